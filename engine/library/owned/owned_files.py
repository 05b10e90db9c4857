"""Determine which files of a model belong to Hearth; move and delete only those.

Unlisted files are never touched, such as files that the user added, or targets of links.
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
    """Return the model's files that may be moved and deleted; none if the folder's receipt does not list them.

    A bundle's manifest counts too, because preparing adds to it.
    """
    folder = Path(model.folder)
    receipt = read_receipt(folder) if model.owned else None
    if receipt is None or receipt.id != model.id:
        return []
    in_receipt = {file.name for file in receipt.files}
    names = [file.name for file in model.files if file.name in in_receipt]
    return [*dict.fromkeys([*names, *bundle_names(folder)]), RECEIPT]


def permitted(folder: Path, names: Iterable[str]) -> list[str]:
    """Return those of the names that belong to Hearth according to the folder's receipt or bundle, the receipt last.

    A list with more names was not written by Hearth.
    """
    if is_prepared_folder(folder):
        return list(names)
    receipt = read_receipt(folder)
    if receipt is None:
        return []
    in_receipt = {file.name for file in receipt.files} | set(bundle_names(folder))
    return [*(name for name in names if name in in_receipt), RECEIPT]


def drop_stale(before: StoredModel, after: StoredModel) -> None:
    """Delete the files of an earlier version of a model that the new one lacks."""
    folder, kept = Path(before.folder), {file.name.casefold() for file in after.files} | {RECEIPT.casefold()}
    delete_files(folder, [name for name in owned_names(before) if name.casefold() not in kept])


def is_prepared_folder(folder: Path) -> bool:
    """Return whether preparing creates bundles in this folder."""
    return len(folder.parts) > 3 and folder.parents[1].name == PREPARED


def bundle_names(folder: Path) -> list[str]:
    """Return a bundle's files according to its manifest; empty if it is not a bundle."""
    try:
        if not is_bundle(folder):
            return []
        names = [MANIFEST, *open_bundle(folder).manifest.files]
    except (EngineError, OSError):
        return [MANIFEST] if (folder / MANIFEST).is_file() else []
    return [name for name in names if file_below(folder, name).is_file()]


def move_files(source: Path, target: Path, names: Iterable[str]) -> None:
    """Rename the files into another folder on the same disk. Skips missing files, so a second call continues.

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
    """Delete the files and then empty folders; return the names of those that remain."""
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
    """Remove the folders of the names, the folder itself and `above` levels over it, if they are empty.

    above: None: up to the models folder.
    """
    above = above if above is not None else 2 if is_prepared_folder(folder) else 1
    deepest = sorted({parent for name in names for parent in _between(folder, name)}, key=lambda p: -len(p.parts))
    for place in [*deepest, folder, *list(folder.parents)[:above]]:
        with contextlib.suppress(OSError):  # it holds something, is gone, or may not be changed
            place.rmdir()


def sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the sizes of the existing files."""
    found = {}
    for name in names:
        try:
            found[name] = file_below(folder, name).stat().st_size
        except OSError:
            continue
    return found


def only_holds(folder: Path, names: Iterable[str]) -> bool:
    """Return whether the folder contains nothing but these files."""
    listed = set(names)
    for at, folders, files in os.walk(folder):
        if any(os.path.islink(os.path.join(at, name)) for name in folders):
            return False
        if any((Path(at) / name).relative_to(folder).as_posix() not in listed for name in files):
            return False
    return True


def _is_inside(folder: Path, file: Path) -> bool:
    """Return whether the file's own location is below the folder. Follows links on the way, but not the file itself."""
    try:
        return file.parent.resolve().is_relative_to(folder.resolve())
    except OSError:
        return False


def _between(folder: Path, name: str) -> list[Path]:
    parents = file_below(folder, name).parents
    return [place for place in parents if place != folder and place.is_relative_to(folder)]
