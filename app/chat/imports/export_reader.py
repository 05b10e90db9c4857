"""The window's side of the process that reads an export: starts it, hears it, ends it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, Signal, Slot

import app

MOST_LINE_BYTES = 1 << 20


class ExportReader(QObject):
    """One process at a time. After `ended` or `failed`, or a `stop`, nothing more is emitted."""

    progressed = Signal(float, int)  # share of the bytes that were read; chats so far
    batch = Signal(object)  # Path of a file of chats, as Store.stage takes
    ended = Signal(dict)  # left_out, skipped, cut, programs: see app/chat/imports/process.py
    failed = Signal(str, dict)  # why, and what the process said

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._buffer = b""
        self._runs = False
        self._process = QProcess(self)
        self._process.setStandardErrorFile(QProcess.nullDevice())
        self._process.readyReadStandardOutput.connect(self._read)
        self._process.finished.connect(self._finished)
        self._process.errorOccurred.connect(self._error)

    def start(self, paths: Sequence[Path], folder: Path) -> None:
        """Read these files and folders; the batches are written to `folder`."""
        self._end_process()
        self._buffer, self._runs = b"", True
        program, *flags = _command()
        self._process.setProgram(program)
        self._process.setArguments([*flags, *map(str, paths), str(folder)])
        self._process.setProcessEnvironment(_environment())
        self._process.start()

    def taken(self) -> None:
        """Say that a batch was taken, so that the process continues."""
        if self._runs:
            self._process.write(b"taken\n")

    def stop(self) -> None:
        self._runs = False
        self._end_process()

    def _end_process(self) -> None:
        if self._process.state() != QProcess.ProcessState.NotRunning:
            self._process.kill()
            self._process.waitForFinished(3000)

    @Slot()
    def _read(self) -> None:
        *lines, self._buffer = (self._buffer + bytes(self._process.readAllStandardOutput().data())).split(b"\n")
        for line in lines:
            if self._runs:
                self._hear(line)
        if len(self._buffer) > MOST_LINE_BYTES:
            self._fail("died", {})

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            said = {}
        match said:
            case {"share": float() | int() as share, "chats": int(chats)}:
                self.progressed.emit(float(share), chats)
            case {"batch": str(path)}:
                self.batch.emit(Path(path))
            case {"end": dict(end)}:
                self._runs = False
                self.ended.emit(end)
            case {"why_not": str(why)}:
                self._fail(why, said)
            case _:
                self._fail("died", {})

    def _fail(self, why: str, said: dict[str, Any]) -> None:
        self._runs = False
        self.failed.emit(why, said)

    @Slot()
    def _finished(self) -> None:
        self._read()
        if self._runs:
            self._fail("died", {})

    @Slot(QProcess.ProcessError)
    def _error(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart and self._runs:
            self._fail("died", {})


def _command() -> list[str]:
    if getattr(sys, "frozen", False):
        return [sys.executable, "--import-chats"]
    # -P: a json.py in the user's folder must not become part of the reader.
    return [sys.executable, "-P", "-m", "app.chat.imports.process"]


def _environment() -> QProcessEnvironment:
    environment = QProcessEnvironment.systemEnvironment()
    if not getattr(sys, "frozen", False):
        before = environment.value("PYTHONPATH")
        root = str(Path(app.__path__[0]).resolve().parent)
        environment.insert("PYTHONPATH", os.pathsep.join(filter(None, (root, before))))
    environment.insert("PYTHONIOENCODING", "utf-8")
    return environment
