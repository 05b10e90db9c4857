"""Refuse on Linux what Windows refuses: to delete, move or replace a file that this process has open or mapped."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_active = _is_installed = False


@contextmanager
def refused_like_windows() -> Iterator[None]:
    """Raise PermissionError for such files meanwhile, in this process. Locks of filelock are excepted."""
    global _active, _is_installed
    if not _is_installed and sys.platform == "linux":
        sys.addaudithook(_look)
        _is_installed = True
    _active = True
    try:
        yield
    finally:
        _active = False


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if not _active or event not in ("os.remove", "os.rename"):
        return
    paths = [_whole(arguments[0], arguments[1 if event == "os.remove" else 2])]
    if event == "os.rename":
        paths.append(_whole(arguments[1], arguments[3]))
    in_use = [file for file in _in_use() if not file.endswith(".lock")]
    for path in paths:
        for file in in_use:
            if file == path or file.startswith(path + "/"):
                raise PermissionError(errno.EACCES, "This file is open in this process", path)


def _whole(path: Any, folder: int) -> str:
    name = os.fsdecode(path)
    return os.path.abspath(os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name) if folder >= 0 else name)


def _in_use() -> set[str]:
    found = {line.split(maxsplit=5)[-1] for line in os.fsdecode(Path("/proc/self/maps").read_bytes()).splitlines()}
    for one in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{one}"))
        except OSError:  # the list's own
            continue
    return {path for path in found if path.startswith("/") and os.path.isfile(path)}
