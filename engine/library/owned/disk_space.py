"""Check whether a disk has enough free space. Writes nothing."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from engine.errors import DiskSpaceError

DOWNLOADS = ".downloads"  # unfinished downloads, in a models folder
SPARE_BYTES = 2_000_000_000  # that a download leaves free
LEAST_FREE_BYTES = 200_000_000  # below this a running one stops: the rest of the system needs it
_FULL = {errno.ENOSPC, errno.EDQUOT}


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
    return shutil.disk_usage(Path.cwd()).free


def check_free_space(folder: Path, n_bytes: int, others: int = 0, doing: str = "fetched") -> None:
    """Raise DiskSpaceError unless the disk has `n_bytes`, the bytes of other downloads, and 2 GB more.

    doing: a verb for the error message.
    """
    if n_bytes <= 0:
        return
    free = free_bytes(folder)
    if free < n_bytes + others + SPARE_BYTES:
        beside = f" beside {_gigabytes(others)} of other downloads" if others else ""
        then = "resume" if doing == "fetched" else "try again"
        raise DiskSpaceError(
            f"{_gigabytes(n_bytes)} are still to be {doing}{beside}, and 2 GB must stay free; "
            f"there are {_gigabytes(free)} free in {_shown(folder)}.",
            f"Free some space there and {then}, or choose a models folder on another disk.",
        )


def check_not_full(folder: Path) -> None:
    """Raise DiskSpaceError if almost nothing is free."""
    free = free_bytes(folder)
    if free < LEAST_FREE_BYTES:
        raise full_disk(folder)


def is_full(error: OSError) -> bool:
    """Return whether the disk, or the user's quota on it, is full."""
    return error.errno in _FULL or getattr(error, "winerror", None) in (39, 112)


def full_disk(folder: Path) -> DiskSpaceError:
    what = f"The disk of {_shown(folder)} is full; what was fetched is kept."
    return DiskSpaceError(what, "Free some space there and resume the download.")


def _shown(folder: Path) -> Path:
    """Return the folder that the user knows: the models folder instead of its folder for downloads."""
    return next((place.parent for place in (folder, *folder.parents) if place.name == DOWNLOADS), folder)


def _gigabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 50_000_000 else f"{n_bytes / 1e6:.1f} MB"
