"""Removed models: out of the list at once, out of the way in the trash, back by a token, and gone for good later.

The list says first what is removed, and only then files move: whatever interrupts it, either `bring_back` or `empty`
finds each of them, in the model's folder or in the trash.
"""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path

from engine.errors import LibraryError
from engine.library.owned.library_file import RECEIPT, Contents, Removed
from engine.library.owned.owned_files import (
    bundle_names,
    delete_files,
    drop_empty,
    is_prepared_folder,
    move_files,
    owned_names,
    permitted,
    sizes,
)
from engine.library.owned.stored_models import StoredModel, file_below
from engine.library.records import ELSEWHERE

TRASH = ".trash"

_TOKEN = re.compile(r"[0-9a-f]{16}")


def throw_away(contents: Contents, model: StoredModel) -> str:
    """Takes the model off the list; the token. `carry_out` moves its files, as soon as the list is written."""
    token = secrets.token_hex(8)
    names, prepared = tuple(owned_names(model)), Path(model.prepared)
    bundle = tuple(bundle_names(prepared)) if is_prepared_folder(prepared) else ()
    home = Path(model.folder).parents[1] if names else prepared.parents[2] if bundle else contents.folder
    contents.removed[token] = Removed(model, str(home / TRASH / token), names, bundle, time.time())
    contents.models.pop(model.id, None)
    return token


def carry_out(gone: Removed) -> None:
    """Moves the files into the trash. What cannot be moved, since it is in use, stays and is deleted later."""
    trash = Path(gone.trash)
    for folder, part, names in _places(gone):
        stuck = False
        for name in permitted(folder, names):
            if name == RECEIPT and stuck:  # it says whose the others are
                break
            try:
                move_files(folder, trash / part, (name,))
            except OSError:
                stuck = True
        drop_empty(folder, names)


def bring_back(contents: Contents, token: str) -> StoredModel:
    """Puts the files back and the model onto the list.

    Raises: LibraryError where it is gone for good, or something else is in its place.
    """
    gone = contents.removed.get(token) if _TOKEN.fullmatch(token) else None
    if gone is None:
        raise LibraryError("What was removed is gone for good.", "Download or import the model again.")
    model = gone.model
    if model.id.casefold() in {id.casefold() for id in contents.models}:
        raise LibraryError(f"There is a {model.id} again.", "Remove that one first.")
    trash = Path(gone.trash)
    for folder, part, names in _places(gone):
        back = [name for name in names if file_below(trash / part, name).is_file()]
        if taken := [name for name in back if file_below(folder, name).exists()]:
            raise LibraryError(f"There is a {taken[0]} in {folder} again.", "Move it to another place first.")
        try:
            move_files(trash / part, folder, back)
        except OSError as error:
            raise LibraryError(f"{error.filename} cannot be put back: {error.strerror or error}.") from error
        drop_empty(trash / part, names, above=2)
    if model.origin in ELSEWHERE:
        contents.hidden.discard(model.id)
    else:
        contents.models[model.id] = model
    del contents.removed[token]
    return model


def empty(contents: Contents, older_than_s: float) -> int:
    """Deletes what was removed so long ago; the bytes freed. What cannot be deleted yet stays for the next time."""
    freed = 0
    in_use = {model.folder for model in contents.models.values()}
    for token, gone in list(contents.removed.items()):
        if not (_TOKEN.fullmatch(token) and Path(gone.trash).parts[-2:] == (TRASH, token)):
            del contents.removed[token]  # no trash of Hearth's
            continue
        if 0 <= time.time() - gone.at < older_than_s:  # a clock that was put back does not keep it for ever
            continue
        stuck: list[str] = []
        for folder, part, names in _places(gone):
            places = [(Path(gone.trash) / part, list(names))]
            if str(folder) not in in_use:  # an interrupted removal left some; else they are another model's by now
                places.append((folder, permitted(folder, names)))
            for place, own in places:
                there = sum(sizes(place, own).values())
                stuck += delete_files(place, own)
                freed += there - sum(sizes(place, own).values())
        drop_empty(Path(gone.trash), ())
        if not stuck:
            del contents.removed[token]
    return freed


def left(contents: Contents) -> list[Path]:
    """Return the files of removed models that are still there."""
    found = []
    for gone in contents.removed.values():
        for folder, part, names in _places(gone):
            own = [Path(gone.trash) / part / name for name in names]
            own += [file_below(folder, name) for name in permitted(folder, names)]
            found += [file for file in own if file.is_file()]
    return found


def _places(gone: Removed) -> list[tuple[Path, str, tuple[str, ...]]]:
    """(a folder of the model, the trash's part for it, names)."""
    places = [(Path(gone.model.folder), "model", gone.names)] if gone.names else []
    if gone.bundle:
        places.append((Path(gone.model.prepared), "prepared", gone.bundle))
    return places
