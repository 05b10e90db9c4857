"""Records what Hearth did and how it crashed: the log, crash notes, and stacks of native crashes.

A marker file exists while Hearth runs. If the next start finds it, the last run crashed. All handlers of the window's
process are set here.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import logging.handlers
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

from app.desktop.shareable_log import ShareableFormatter

log = logging.getLogger("app")

LOG_BYTES = 1 << 20
SHAREABLE_BYTES = 1 << 18
SHAREABLE = "shareable.log"
STACKS, STACKS_BEFORE = "crash-native.txt", "crash-native-before.txt"
FAULTS, FAULTS_BEFORE = "crash.txt", "crash-before.txt"
FAULT_BYTES = 1 << 18  # of the newer file; the older one has at most twice as much
_MARK = "running.json"
# What Qt prints before it ends the program because its display has gone: the user logged out.
_DISPLAY_GONE = ("The X11 connection broke", "The Wayland connection broke", "The Wayland connection experienced")
_marked: Path | None = None  # this run's marker file
_stacks: TextIO | None = None  # the file for the stacks of a crash
_QT_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


@dataclass(frozen=True)
class LastRun:
    """A run that crashed. stacks: whether native code crashed and left the stacks of all threads."""

    stacks: bool


def look_back(folder: Path) -> LastRun | None:
    """Return how the last run crashed; None if it ended normally or the PC went down. Call it before `open_log`, which
    clears the notes."""
    stacks = False
    with contextlib.suppress(OSError):
        stacks = (folder / STACKS).stat().st_size > 0
        if stacks:
            os.replace(folder / STACKS, folder / STACKS_BEFORE)
    try:
        mark = json.loads((folder / _MARK).read_text(encoding="utf-8"))
        same_boot, pid = mark["boot"] == _boot(), int(mark["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if not same_boot or _is_running(pid) else LastRun(stacks)


def mark_running(folder: Path) -> None:
    """Mark the program as running until `mark_ended`."""
    global _marked
    mark = folder / _MARK
    try:
        mark.write_text(json.dumps({"pid": os.getpid(), "boot": _boot()}), encoding="utf-8")
    except OSError as error:
        log.info("a crash of this run cannot be reported at the next start: %s", error)
        return
    _marked = mark


def mark_ended() -> None:
    global _marked
    mark, _marked = _marked, None
    if mark is not None:
        with contextlib.suppress(OSError):
            mark.unlink(missing_ok=True)


def _boot() -> str:
    """Return an id of the PC's current boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        import psutil

        return str(round(psutil.boot_time() / 60))  # clocks are set, and seconds rounded, between two readings


def _is_running(pid: int) -> bool:
    """Return whether Hearth runs with this pid. The pid alone may be another program's by now."""
    import psutil

    try:
        return pid != os.getpid() and psutil.Process(pid).name() == psutil.Process().name()
    except (psutil.Error, OSError):  # OSError: only on Windows
        return False


def open_log(file: Path) -> str | None:
    """Log to a file of at most LOG_BYTES, and one older file. Returns why not, or None."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
        # Stacks of all threads when native code crashes. The file stays open as long as the process lives.
        global _stacks
        _stacks = (file.parent / STACKS).open("w", encoding="utf-8")
        faulthandler.enable(_stacks)
    except OSError as error:
        root.addHandler(logging.StreamHandler())
        return str(error)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))
    root.addHandler(handler)
    shareable = logging.handlers.RotatingFileHandler(
        file.with_name(SHAREABLE), maxBytes=SHAREABLE_BYTES, backupCount=1, encoding="utf-8"
    )
    shareable.setFormatter(ShareableFormatter())
    root.addHandler(shareable)
    qInstallMessageHandler(_log_qt)
    return None


def close_log() -> None:
    """Close the log, so that its files can be deleted. Later messages are lost."""
    qInstallMessageHandler(None)
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, logging.handlers.RotatingFileHandler):
            root.removeHandler(handler)
            handler.close()
    root.addHandler(logging.NullHandler())
    global _stacks
    faulthandler.disable()
    if _stacks is not None:
        _stacks.close()
        _stacks = None


def _log_qt(kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
    if text.startswith(_DISPLAY_GONE):
        mark_ended()
    logging.getLogger("qt").log(_QT_LEVELS.get(kind, logging.WARNING), "%s", text)


def catch_faults(folder: Path, tell: Callable[[BaseException], None]) -> None:
    """Log every uncaught exception, note it in a file, and pass it to `tell`. The program continues."""

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        words = "".join(traceback.format_exception(kind, error, trace))
        log.critical("a fault of our own", exc_info=(kind, error, trace))
        try:
            if (folder / FAULTS).is_file() and (folder / FAULTS).stat().st_size > FAULT_BYTES:
                os.replace(folder / FAULTS, folder / FAULTS_BEFORE)
            with (folder / FAULTS).open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}\n{words[-FAULT_BYTES:]}\n")
        except OSError as refused:
            log.info("the crash note cannot be written: %s", refused)
        tell(error)

    sys.excepthook = note
    threading.excepthook = lambda fault: note(
        fault.exc_type, fault.exc_value or fault.exc_type(), fault.exc_traceback
    )  # fmt: skip
