"""Which files of a model are Hearth's, and how just these are moved and deleted.

Nothing that is not listed is touched: not what a person put beside a model, nor what a link leads to.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from engine.bundle.bundle import is_bundle, open_bundle
from engine.bundle.bundle_manifest import MANIFEST
from engine.errors import EngineError
from engine.library.owned.library_file import RECEIPT, flush_folder, read_receipt
from engine.library.owned.stored_models import StoredModel, file_below

log = logging.getLogger(__name__)

PREPARED = ".prepared"  # in a models folder: <owner>/<name>, the bundles that preparing made


def owned_names(model: StoredModel) -> list[str]:
    """The names of the model's files that may be moved and deleted; none where the folder's receipt does not say so.

    A bundle's own manifest counts too: preparing adds to it.
    """
    folder = Path(model.folder)
    receipt = read_receipt(folder) if model.owned else None
    if receipt is None or receipt.id != model.id:
        return []
    told = {file.name for file in receipt.files}
    names = [file.name for file in model.files if file.name in told]
    return [*dict.fromkeys([*names, *bundle_names(folder)]), RECEIPT]


def permitted(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of the names that are Hearth's: what the folder's receipt or bundle lists, the receipt last.

    A list that says more than they do was not written by Hearth.
    """
    if is_prepared_folder(folder):
        return list(names)
    receipt = read_receipt(folder)
    if receipt is None:
        return []
    told = {file.name for file in receipt.files} | set(bundle_names(folder))
    return [*(name for name in names if name in told), RECEIPT]


def drop_stale(before: StoredModel, after: StoredModel) -> None:
    """Deletes what an earlier version of a model had in its folder and the new one has no more."""
    folder, kept = Path(before.folder), {file.name.casefold() for file in after.files} | {RECEIPT.casefold()}
    delete_files(folder, [name for name in owned_names(before) if name.casefold() not in kept])


def is_prepared_folder(folder: Path) -> bool:
    """Whether it is one of the folders in which preparing makes bundles."""
    return len(folder.parts) > 3 and folder.parents[1].name == PREPARED


def bundle_names(folder: Path) -> list[str]:
    """The names of a bundle's files, as its manifest says; none of what is no bundle."""
    try:
        if not is_bundle(folder):
            return []
        names = [MANIFEST, *open_bundle(folder).manifest.files]
    except (EngineError, OSError):
        return [MANIFEST] if (folder / MANIFEST).is_file() else []
    return [name for name in names if file_below(folder, name).is_file()]


def move_files(source: Path, target: Path, names: Iterable[str]) -> None:
    """Renames the files into the other folder of the same disk, as far as they are still here; a second call goes on.

    Raises: OSError.
    """
    for name in names:
        old, new = file_below(source, name), file_below(target, name)
        if not _is_inside(source, old) or not os.path.lexists(old):
            continue
        new.parent.mkdir(parents=True, exist_ok=True)
        os.replace(old, new)
    if target.is_dir():
        flush_folder(target)


def delete_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Deletes the files, and the folders that are empty then; the names of those that could not be."""
    stuck: list[str] = []
    for name in names:
        file = file_below(folder, name)
        if name == RECEIPT and stuck:  # it says whose they are
            continue
        try:
            if _is_inside(folder, file):
                file.unlink(missing_ok=True)
        except NotADirectoryError:
            pass
        except OSError as error:
            log.info("%s cannot be deleted yet: %s", file, error)
            stuck.append(name)
    drop_empty(folder, names)
    return stuck


def drop_empty(folder: Path, names: Iterable[str], above: int | None = None) -> None:
    """Removes the folders that the names lead through, the folder itself and so many above it, if they are empty.

    above: None: up to the models folder.
    """
    above = above if above is not None else 2 if is_prepared_folder(folder) else 1
    deepest = sorted({parent for name in names for parent in _between(folder, name)}, key=lambda p: -len(p.parts))
    for place in [*deepest, folder, *list(folder.parents)[:above]]:
        with contextlib.suppress(OSError):  # it holds something, is gone, or may not be changed
            place.rmdir()


def sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """The sizes of those of the files that are there."""
    found = {}
    for name in names:
        try:
            found[name] = file_below(folder, name).stat().st_size
        except OSError:
            continue
    return found


def only_holds(folder: Path, names: Iterable[str]) -> bool:
    """Whether there is nothing in the folder but these files."""
    listed = set(names)
    for at, folders, files in os.walk(folder):
        if any(os.path.islink(os.path.join(at, name)) for name in folders):
            return False
        if any((Path(at) / name).relative_to(folder).as_posix() not in listed for name in files):
            return False
    return True


def _is_inside(folder: Path, file: Path) -> bool:
    """Whether the file's own place is below the folder, links followed on the way but not the file's own."""
    try:
        return file.parent.resolve().is_relative_to(folder.resolve())
    except OSError:
        return False


def _between(folder: Path, name: str) -> list[Path]:
    parents = file_below(folder, name).parents
    return [place for place in parents if place != folder and place.is_relative_to(folder)]
