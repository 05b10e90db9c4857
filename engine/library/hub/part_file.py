"""An incomplete file and its number of bytes safely on the disk, through killed processes and power failures.

It does not know networks or hashes. A log beside the part has one line per sync, with the bytes that were safe then.
Bytes after the last line are not trusted: after a power failure, a file can be longer than what was written.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

# The most bytes lost when the process is killed: unsynced ones, and as many again during a sync, stay below the allowed
# 8 MiB.
SYNC_BYTES = 4 << 20
_LINE = "{:016x} {:08x}\n"
_LINE_BYTES = 26


class PartFile:
    """A part opened for appending. length: its bytes; safe: those that survive a power failure.

    Raises: OSError of the disk. After a full disk it can be written to again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log_path = path.with_name(path.name + ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _open(path)
        try:
            self._log = _open(self._log_path)
        except OSError:
            self._file.close()
            raise
        self.length = self.safe = min(_last_line(self._log), os.fstat(self._file.fileno()).st_size)
        self._file.truncate(self.length)
        self._file.seek(self.length)
        self._log.seek(0, os.SEEK_END)

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None or not issubclass(kind, OSError):
                self.sync()
        finally:
            self.close()

    def write(self, data: bytes) -> None:
        """Append all of the data, or nothing that counts."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) or 0 :]
        except OSError:
            self._file.seek(self.length)
            self._file.truncate()
            raise
        finally:
            self.length = self._file.tell()  # Ctrl+C may come before the bytes are counted
        if self.length - self.safe >= SYNC_BYTES:
            self.sync()

    def sync(self) -> None:
        """Make all written bytes safe."""
        if self.length == self.safe:
            return
        os.fsync(self._file.fileno())
        text = f"{self.length:016x}".encode("ascii")
        self._log.write(_LINE.format(self.length, zlib.crc32(text)).encode("ascii"))
        os.fsync(self._log.fileno())
        self.safe = self.length

    def restart(self) -> None:
        """Discard all bytes."""
        self._log.seek(0)
        self._log.truncate()
        os.fsync(self._log.fileno())
        self._file.seek(0)
        self._file.truncate()
        self.length = self.safe = 0

    def close(self) -> None:
        self._file.close()
        self._log.close()

    def delete(self) -> None:
        """Close and delete both files."""
        self.close()
        self._log_path.unlink(missing_ok=True)  # first: a part without a log counts as empty
        self.path.unlink(missing_ok=True)


def safe_length(path: Path) -> int:
    """Return the bytes of the part at `path` that count, without opening it for writing; 0 without a part."""
    try:
        with open(path.with_name(path.name + ".log"), "rb") as log:
            return min(_last_line(log), path.stat().st_size)
    except OSError:
        return 0


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power failure, on systems that support it."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open(path: Path) -> BinaryIO:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
    return os.fdopen(handle, "r+b", buffering=0)


def _last_line(log: BinaryIO) -> int:
    """Return the length in the last complete line of a log, 0 without one. Ignores an incomplete last line."""
    end = log.seek(0, os.SEEK_END) // _LINE_BYTES
    for number in range(end, max(0, end - 16), -1):
        log.seek((number - 1) * _LINE_BYTES)
        line = log.read(_LINE_BYTES)
        text, _, check = line[:-1].partition(b" ")
        try:
            if len(text) == 16 and zlib.crc32(text) == int(check, 16):
                log.truncate(number * _LINE_BYTES) if log.writable() else None
                return int(text, 16)
        except ValueError:
            continue
    if log.writable():
        log.truncate(0)
    return 0
