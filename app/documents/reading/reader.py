"""Reads files of many kinds through a child process (reading_process.py), which hostile files cannot leave. No Qt."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import app
from app.documents.reading.document import SUFFIXES as SUFFIXES
from app.documents.reading.document import Document, Limits, PagePicture, Part, ReadError, Reason
from app.text.markdown_blocks import displayable
from app.translation import figure, noted, tr
from engine.errors import Cancelled
from engine.files import open_shared

MOST_FILES = 200  # that one process reads; then another one takes its place, with fresh memory
_LOOK_EVERY_S = 0.05
_STOP_S = 1.0  # for the exchange with a killed process to end
_START_S = 30.0  # for the process to start, on a busy PC
_BLOCK_BYTES = 1 << 20
_MOST_ANSWER_BYTES = 256 << 20
_BAD_ANSWER = (EOFError, ValueError, TypeError, KeyError, RecursionError)
_FLAG = "--read-documents"  # of the packaged program
_PROCESS = "app.documents.reading.reading_process"
_T = TypeVar("_T")

_SENTENCES: dict[Reason, str] = {
    "locked": noted("Couldn't read {name}: it is protected by a password. Save a copy without the password."),
    "scan": noted(
        "Couldn't read {name}: its pages are images without text, as in a scan. Run text recognition (OCR) on it first."
    ),
    "damaged": noted("Couldn't read {name}: it is damaged or incomplete. Download it or save it again."),
    "too-large": noted("Couldn't read {name}: its content is too large or too complex. Split it into smaller files."),
    "empty": noted("Couldn't read {name}: it contains no text. Choose another file."),
    "unsupported": noted(
        "Couldn't read {name}: Hearth doesn't read files of this kind. Save it as PDF, Word (.docx) or text."
    ),
}


class DocumentReader:
    """Reads one file after another, from any thread. The process starts with the first file, and is replaced after a
    crash, a time limit, or MOST_FILES files. It ends with this process, however that ends.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._turn = threading.Lock()  # held while a file is read
        self._process: subprocess.Popen[bytes] | None = None
        self._n_files = 0
        self._is_closed = False  # since the current file's turn began

    def read(self, path: Path, cancelled: Callable[[], bool] = lambda: False) -> Document:
        """Return what a file says. Raises ReadError, Cancelled. Cost: 0.2 s to start the process, then the file's."""
        name = display_name(path)
        request = {"suffix": path.suffix.lower()[:20], "characters": self._limits.characters}
        return self._ask(request, self._opened(path, name), name, _document, cancelled)

    def read_data(self, data: bytes, name: str, cancelled: Callable[[], bool] = lambda: False) -> Document:
        """Return what the bytes of a file say. name: for errors; its end is a hint. Raises ReadError, Cancelled."""
        request = {"suffix": os.path.splitext(name)[1].lower()[:20], "characters": self._limits.characters}
        return self._ask(request, io.BytesIO(data), name, _document, cancelled)

    def page_picture(self, path: Path, number: int, passage: str, width: int) -> PagePicture:
        """Return a picture of a PDF's page, `width` pixels wide, and where the lines of a passage are on it.

        number: of the page, from 1. Raises ReadError, Cancelled.
        """
        name = display_name(path)
        request = {"page": number, "passage": passage[:100_000], "width": width}
        return self._ask(request, self._opened(path, name), name, _picture, lambda: False)

    def close(self) -> None:
        """End the process. A file that is being read raises Cancelled. A later call starts another process."""
        self._is_closed = True
        self._stop()

    # --- a file

    def _opened(self, path: Path, name: str) -> BinaryIO:
        """Open a file. Raises ReadError if that is not possible, or it is too large."""
        file = _opened(path, name)
        size = os.fstat(file.fileno()).st_size
        if size > self._limits.file_bytes:
            file.close()
            raise ReadError(
                tr(
                    "Couldn't read {name}: it has {size}\u202fMB, and files up to {most}\u202fMB are read. Split it.",
                    name=name,
                    size=figure(size / 1e6, ",.0f"),
                    most=figure(self._limits.file_bytes / 1e6, ".0f"),
                ),
                "too-large",
            )
        return file

    def _ask(
        self,
        request: dict[str, Any],
        file: BinaryIO,
        name: str,
        made_of: Callable[[dict[str, Any], bytes], _T],
        cancelled: Callable[[], bool],
    ) -> _T:
        """Send a file to the process and return what is made of its answer, a header and bytes. Closes the file."""
        with self._turn_of(cancelled, file):
            self._is_closed = False
            is_fresh = self._process is None
            exchange = self._exchange(request, file, name, cancelled)
            if exchange.answer is None and exchange.failure is None and not is_fresh:
                file.seek(0)  # the process may have ended before, or because of an earlier file
                exchange = self._exchange(request, file, name, cancelled)
        if exchange.failure is not None:
            raise _unreadable(name, exchange.failure)
        if exchange.answer is None:
            raise ReadError(tr(_SENTENCES["damaged"], name=name), "damaged")
        header, blob = exchange.answer
        try:
            if "reason" not in header:
                return made_of(header, blob)
            reason: Reason = header["reason"] if header["reason"] in _SENTENCES else "damaged"
        except _BAD_ANSWER:  # a file took the process over
            reason = "damaged"
        raise ReadError(tr(_SENTENCES[reason], name=name), reason)

    def _exchange(self, request: dict[str, Any], file: BinaryIO, name: str, cancelled: Callable[[], bool]) -> _Exchange:
        """Return the exchange when it is done. Raises ReadError if it takes too long, Cancelled."""
        process = self._started(name)
        exchange = _Exchange(process, {**request, "seconds": self._limits.seconds}, file, self._limits.file_bytes)
        until = time.monotonic() + self._limits.seconds
        while not exchange.is_done(_LOOK_EVERY_S):
            is_cancelled = cancelled()
            if not is_cancelled and time.monotonic() < until:
                continue
            self._stop()
            exchange.is_done(_STOP_S)
            if is_cancelled:
                raise Cancelled
            raise ReadError(
                tr(
                    "Couldn't read {name} within {seconds}\u202fs. Split it into smaller files.",
                    name=name,
                    seconds=figure(self._limits.seconds, ".0f"),
                ),
                "too-long",
            )
        if exchange.answer is None and self._process is not process:
            raise Cancelled  # closed
        self._n_files += 1
        if exchange.answer is None or self._n_files >= MOST_FILES:
            self._stop()
        return exchange

    @contextlib.contextmanager
    def _turn_of(self, cancelled: Callable[[], bool], file: BinaryIO) -> Iterator[None]:
        with file:
            while not self._turn.acquire(timeout=_LOOK_EVERY_S):
                if cancelled():
                    raise Cancelled
            try:
                yield
            finally:
                self._turn.release()

    # --- the process

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        """Return the running process. Raises ReadError if it does not start, Cancelled."""
        process = self._process
        if process is not None and process.poll() is None:
            return process
        self._stop()
        try:
            process = subprocess.Popen(
                _command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            raise _unreadable(name, error) from error
        self._process, self._n_files = process, 0
        if self._is_closed:  # before the process could be ended
            self._stop()
            raise Cancelled
        timer = threading.Timer(_START_S, process.kill)
        timer.daemon = True
        timer.start()
        try:
            _answer_of(process)
        except (OSError, *_BAD_ANSWER):
            if self._process is not process:
                raise Cancelled from None  # closed
            self._stop()
            raise ReadError(
                tr("Couldn't read {name}: the process that reads files did not start. Restart Hearth.", name=name),
                "unreadable",
            ) from None
        finally:
            timer.cancel()
        return process

    def _stop(self) -> None:
        process, self._process = self._process, None
        _end(process)


class _Exchange:
    """A request and its answer, in a thread. answer: None if the process ended. failure: of reading the file."""

    def __init__(
        self, process: subprocess.Popen[bytes], request: dict[str, Any], file: BinaryIO, most_bytes: int
    ) -> None:
        self.process, self._request, self._file, self._most_bytes = process, request, file, most_bytes
        self.answer: tuple[dict[str, Any], bytes] | None = None
        self.failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="document", daemon=True)
        self._thread.start()

    def is_done(self, within_s: float) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with contextlib.suppress(OSError, *_BAD_ANSWER):  # the process ended, or answers nonsense
            target = self.process.stdin
            assert target is not None
            target.write(json.dumps(self._request).encode() + b"\n")
            while block := self._block():
                target.write(len(block).to_bytes(4, "big") + block)
            target.write(bytes(4))
            target.flush()
            self.answer = _answer_of(self.process)

    def _block(self) -> bytes:
        try:
            block = self._file.read(min(_BLOCK_BYTES, self._most_bytes))
        except OSError as error:
            self.failure = error
            raise
        self._most_bytes -= len(block)
        return block


def _answer_of(process: subprocess.Popen[bytes]) -> tuple[dict[str, Any], bytes]:
    """Return an answer. Raises OSError or one of _BAD_ANSWER if the process ends or answers something else."""
    header = json.loads(_exactly(process, int.from_bytes(_exactly(process, 4), "big")))
    return header, _exactly(process, int(header["n_bytes"]))


def _exactly(process: subprocess.Popen[bytes], n: int) -> bytes:
    assert process.stdout is not None
    if not 0 <= n <= _MOST_ANSWER_BYTES:
        raise ValueError(n)
    data = process.stdout.read(n)
    if len(data) < n:
        raise EOFError
    return data


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what was not sent is lost
                if pipe is not None:
                    pipe.close()


def _command() -> list[str]:
    if getattr(sys, "frozen", False):
        return [sys.executable, _FLAG]
    return [sys.executable, "-P", "-m", _PROCESS]


def _environment() -> dict[str, str]:
    if getattr(sys, "frozen", False):
        return dict(os.environ)
    root = str(Path(app.__path__[0]).resolve().parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}


# --- files


def display_name(path: Path) -> str:
    """Return a file's name in one line, also if it is not valid text."""
    return " ".join(displayable(path.name).split()) or "file"


def _opened(path: Path, name: str) -> BinaryIO:
    try:
        number = open_shared(path)  # a person may save a file while it is read
        mode = os.fstat(number).st_mode
        if stat.S_ISREG(mode):
            return open(number, "rb")
        os.close(number)
    except OSError as error:
        if not path.is_dir():
            if isinstance(error, FileNotFoundError):
                sentence = tr("Couldn't read {name}: the file no longer exists. Check if it was moved.", name=name)
                raise ReadError(sentence, "gone") from None
            raise _unreadable(name, error) from error
        mode = stat.S_IFDIR
    if stat.S_ISDIR(mode):
        raise ReadError(tr("{name} is a folder. Choose the files in it.", name=name), "unreadable")
    raise ReadError(tr("{name} is not a file. Choose a file.", name=name), "unreadable")


def _unreadable(name: str, error: OSError) -> ReadError:
    sentence = tr(
        "Couldn't read {name}: {why}. Check that you may open it.", name=name, why=error.strerror or str(error)
    )
    return ReadError(sentence, "unreadable")


def _document(header: dict[str, Any], blob: bytes) -> Document:
    parts, at = [], 0
    for number, name, n_bytes in header["parts"]:
        text = displayable(blob[at : at + n_bytes].decode("utf-8", "replace"))
        parts.append(Part(text, int(number), " ".join(displayable(name).split())))
        at += n_bytes
    return Document(header["kind"], tuple(parts), int(header["n_parts"]), int(header["n_scanned"]), bool(header["cut"]))


def _picture(header: dict[str, Any], blob: bytes) -> PagePicture:
    return PagePicture(blob, tuple((float(x), float(y), float(w), float(h)) for x, y, w, h in header["boxes"]))
