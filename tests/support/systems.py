"""What tests need to know of the system, and processes that they end and suspend on any."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ON_WINDOWS = sys.platform == "win32"
UNDER_WINE = ON_WINDOWS and hasattr(getattr(ctypes, "windll").ntdll, "wine_get_version")  # noqa: B009
KILLED = signal.SIGTERM if ON_WINDOWS else -signal.SIGKILL  # exit code of a process that `kill` ended


def _makes_links() -> bool:
    with tempfile.TemporaryDirectory() as place:
        with suppress(OSError):
            Path(place, "link").symlink_to(place)
        return os.path.lexists(Path(place, "link"))  # Wine makes none and reports no error


MAKES_LINKS = _makes_links()  # Windows lets only some accounts
needs_links = pytest.mark.skipif(not MAKES_LINKS, reason="this account cannot create symbolic links")
needs_pinned_ram = pytest.mark.skipif(ON_WINDOWS, reason="no RAM is pinned for the GPU on Windows")


def kill(pid: int) -> None:
    """End a process so that it can do nothing before: SIGKILL, or TerminateProcess of Windows."""
    psutil.Process(pid).kill()


def children(recursive: bool = False) -> list[psutil.Process]:
    """Return the processes that this one has started. Wine adds its desktop to the first program that needs it."""
    found = psutil.Process().children(recursive)
    return [child for child in found if "explorer.exe" not in child.cmdline()[0]] if UNDER_WINE else found


def is_below_normal(pid: int) -> bool:
    """Return whether a process runs at a lower priority than this one."""
    nice = psutil.Process(pid).nice()
    return (
        nice == psutil.BELOW_NORMAL_PRIORITY_CLASS if sys.platform == "win32" else nice >= psutil.Process().nice() + 10
    )


def is_alive(pid: int) -> bool:
    """Return whether a process runs. One that has ended and that nobody waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
