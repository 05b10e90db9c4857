r"""Paths and files where systems differ, and folders that change while they are read.

On Windows, paths over 259 characters need the prefix \\?\, and open files stay. Path.glob and rglob of Python 3.11 fail
if a folder disappears meanwhile; the functions here leave it out.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

_WINDOWS_LIMIT = 247  # of a folder; a file may have 12 more
_PREFIX = "\\\\?\\"


def spelled(path: Path) -> Path:
    """Return the absolute path in the form that the system opens. Short and non-Windows paths stay the same."""
    absolute = path if path.is_absolute() else Path.cwd() / path
    return Path(windows_spelling(str(absolute))) if sys.platform == "win32" else absolute


def openable(path: Path, windows: bool = sys.platform == "win32") -> Path:
    """Return a user's path as it is, or spelled out if it is too long for Windows."""
    return spelled(path) if windows and len(str(path.absolute())) > _WINDOWS_LIMIT else path


def windows_spelling(path: str) -> str:
    """Return an absolute Windows path, with the prefix if it is long. The prefix disables "." and ".." and "/", so they
    are resolved.
    """
    if len(path) <= _WINDOWS_LIMIT or path.startswith((_PREFIX, "\\\\.\\")):
        return path
    pure = PureWindowsPath(path)
    parts: list[str] = []
    for part in pure.parts[1:]:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
    plain = pure.anchor + "\\".join(parts)
    return f"{_PREFIX}UNC\\{plain[2:]}" if plain.startswith("\\\\") else _PREFIX + plain


def open_shared(path: Path) -> int:
    """Return a descriptor that reads a file, does not wait for a pipe, and lets others rename and delete the file.

    Raises: OSError.
    """
    if sys.platform != "win32":
        return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    import _winapi
    import msvcrt

    read, sharing, existing = 0x8000_0000, 0b111, 3  # GENERIC_READ; read, write and delete; OPEN_EXISTING
    handle = _winapi.CreateFile(str(path), read, sharing, 0, existing, 0, 0)
    return msvcrt.open_osfhandle(handle, os.O_RDONLY | os.O_BINARY)


def replace_file(source: Path, target: Path, windows: bool = sys.platform == "win32") -> None:
    """Rename a file over another. On Windows, a program that reads the target refuses that for a moment: try again.

    Raises: OSError.
    """
    for wait_s in (0.01, 0.05, 0.2, 0.5, None):
        try:
            os.replace(source, target)
        except PermissionError:
            if wait_s is None or not windows:
                raise
            time.sleep(wait_s)
        else:
            return


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return the paths below a folder that match a pattern without `**`, in order."""
    return sorted(folder / name for name in glob.glob(pattern, root_dir=folder, include_hidden=True))


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files at any depth of a folder, and links to files. Does not follow links."""
    for at, _, names in os.walk(folder):
        yield from (Path(at, name) for name in names)


def bytes_below(folder: Path) -> int:
    """Return the size of the files at any depth of a folder, in bytes."""
    total = 0
    for file in files_below(folder):
        with contextlib.suppress(OSError):
            total += file.lstat().st_size
    return total
