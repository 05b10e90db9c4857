"""A hidden folder in which a model is assembled before it is listed. It is removed after its process ends."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.files import bytes_below
from engine.library.owned.imports import disk_refused
from engine.library.owned.library_file import flush_folder

INCOMING = ".incoming"


@dataclass(frozen=True)
class StagingFolder:
    """root: the models folder. folder: for the files; it is renamed or removed in the end."""

    root: Path
    folder: Path

    @classmethod
    @contextlib.contextmanager
    def open(cls, root: Path) -> Iterator[StagingFolder]:
        """Yield a new folder, locked during the block and the life of this process. Raises: LibraryError."""
        from filelock import FileLock

        incoming = root / INCOMING
        name = secrets.token_hex(8)
        try:
            incoming.mkdir(parents=True, exist_ok=True)
            lock = FileLock(str(incoming / f"{name}.lock"))
            lock.acquire(timeout=0)
            (incoming / name).mkdir()
        except OSError as error:
            raise disk_refused(error, incoming) from error
        try:
            yield cls(root, incoming / name)
        finally:
            shutil.rmtree(incoming / name, ignore_errors=True)
            _give_up(incoming, name, lock)

    def deliver(self, folder: Path) -> None:
        """Rename the result to this folder atomically. Raises: LibraryError."""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            flush_folder(self.folder)
            self.folder.rename(folder)
            flush_folder(folder.parent)
        except OSError as error:
            raise disk_refused(error, folder) from error


def sweep(root: Path) -> int:
    """Remove the folders of processes that died; return the bytes freed."""
    from filelock import FileLock, Timeout

    incoming, freed = root / INCOMING, 0
    if not incoming.is_dir():
        return 0
    for marker in list(incoming.glob("*.lock")):
        lock = FileLock(str(marker))
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):
            continue  # in use
        folder = marker.with_suffix("")
        freed += bytes_below(folder)
        shutil.rmtree(folder, ignore_errors=True)
        _give_up(incoming, marker.stem, lock)
    return freed


def _give_up(incoming: Path, name: str, lock: object) -> None:
    lock.release()  # type: ignore[attr-defined]
    with contextlib.suppress(OSError):
        (incoming / f"{name}.lock").unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        incoming.rmdir()
