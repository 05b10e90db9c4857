"""Delete all models that belong to Hearth, and the lists of models. Models used in place stay as they are.

The window calls this after its processes have ended. It cannot be undone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.files import bytes_below, files_below, matching
from engine.job import CancelCheck
from engine.library.owned.disk_space import DOWNLOADS
from engine.library.owned.installed import STARTER_ID, Library
from engine.library.owned.library_file import BEFORE, LIST, LOCK
from engine.library.owned.owned_files import PREPARED, delete_files
from engine.library.owned.staging_folder import INCOMING
from engine.library.owned.trash import TRASH
from engine.library.records import ELSEWHERE

_LISTS = (f"{LIST}*", f"{BEFORE}*", LOCK, "moving.lock", "library.damaged-*.json", "heads.json*")
_PARTS = (".part", ".log", ".whole", ".copy")  # of an unfinished download

Freed = Callable[[int], None]


def model_bytes(library: Library) -> int:
    """Return the bytes of Hearth's models, of removed ones and of the lists."""
    owned = sum(model.n_bytes for model in library.models() if model.owned and model.id != STARTER_ID)
    return owned + bytes_below(library.folder / TRASH) + sum(_length(file) for file in _lists(library))


def prepared_bytes(library: Library) -> int:
    """Return the bytes of the bundles that preparing created."""
    return bytes_below(library.folder / PREPARED)


def unfinished_files(library: Library) -> list[Path]:
    """Return the files of unfinished downloads and copies."""
    folder = library.folder
    parts = [file for file in matching(folder / DOWNLOADS, "*/*") if file.suffix in _PARTS]
    locks = [*(folder / DOWNLOADS).glob("*.lock"), *(folder / INCOMING).glob("*.lock")]
    return [*parts, *(file for file in files_below(folder / INCOMING) if file.parent != folder / INCOMING), *locks]


def erase_models(library: Library, freed: Freed, cancelled: CancelCheck) -> list[Path]:
    """Delete Hearth's models with their prepared bundles, and the lists; return the files that stay.

    After `cancelled`, the remaining models are complete and still listed. freed: called with bytes after each model.
    Raises: LibraryError.
    """
    for model in library.models():
        if cancelled():
            return []
        if model.id == STARTER_ID or (model.origin in ELSEWHERE and not model.prepared):
            continue
        library.remove(model.id)
        freed(library.purge())
    freed(library.purge())
    if stuck := library.undeleted():
        return stuck
    lists = _lists(library)
    size = sum(map(_length, lists))
    stuck = [file for file in lists if not _unlink(file)]
    freed(size)
    for name in (TRASH, PREPARED):
        drop_empty_below(library.folder / name)
    return stuck


def erase_prepared(library: Library, freed: Freed, cancelled: CancelCheck) -> list[Path]:
    """Delete the bundles that preparing created; their models are loaded from their original files again.

    Raises: LibraryError.
    """
    root = library.folder / PREPARED
    for model in library.models():
        if model.prepared and Path(model.prepared).is_relative_to(root):
            library.set_prepared(model.id)
    stuck: list[Path] = []
    for bundle in matching(root, "*/*"):
        if cancelled():
            break
        size = bytes_below(bundle)
        names = [file.relative_to(bundle).as_posix() for file in files_below(bundle)]
        stuck += [bundle / name for name in delete_files(bundle, names)]
        freed(size - bytes_below(bundle))
    drop_empty_below(root)
    return stuck


def drop_empty_below(folder: Path) -> None:
    """Remove empty folders in a folder, and the folder itself if it is empty. Does not follow links."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for one in sorted(_folders(folder), key=lambda place: -len(place.parts)):
        with contextlib.suppress(OSError):
            one.rmdir()


def _folders(folder: Path) -> Iterator[Path]:
    yield folder
    for one in folder.iterdir():
        if one.is_dir() and not one.is_symlink():
            yield from _folders(one)


def _lists(library: Library) -> list[Path]:
    return sorted({file for pattern in _LISTS for file in library.home.glob(pattern) if file.is_file()})


def _unlink(file: Path) -> bool:
    try:
        file.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _length(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0
