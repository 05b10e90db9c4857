"""Removed models: unlisted at once, moved to the trash, restored by a token, and deleted later.

The list records a removal before files move. After any interruption, `bring_back` or `empty` finds each file, in the
model's folder or in the trash.
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
    """Remove the model from the list; return the token. Call `carry_out` to move its files once the list is written."""
    token = secrets.token_hex(8)
    names, prepared = tuple(owned_names(model)), Path(model.prepared)
    bundle = tuple(bundle_names(prepared)) if is_prepared_folder(prepared) else ()
    home = Path(model.folder).parents[1] if names else prepared.parents[2] if bundle else contents.folder
    contents.removed[token] = Removed(model, str(home / TRASH / token), names, bundle, time.time())
    contents.models.pop(model.id, None)
    return token


def carry_out(gone: Removed) -> None:
    """Move the files to the trash. Files in use stay and are deleted later."""
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
    """Restore the files and the list's entry.

    Raises: LibraryError if it was purged, or something else is in its place.
    """
    gone = contents.removed.get(token) if _TOKEN.fullmatch(token) else None
    if gone is None:
        raise LibraryError("The removed model has been deleted for good.", "Download or import the model again.")
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
    """Delete what was removed at least this long ago; return the bytes freed. Files in use stay for the next time."""
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
    """Return the files of removed models that still exist."""
    found = []
    for gone in contents.removed.values():
        for folder, part, names in _places(gone):
            own = [Path(gone.trash) / part / name for name in names]
            own += [file_below(folder, name) for name in permitted(folder, names)]
            found += [file for file in own if file.is_file()]
    return found


def _places(gone: Removed) -> list[tuple[Path, str, tuple[str, ...]]]:
    """Return (a folder of the model, its folder in the trash, names)."""
    places = [(Path(gone.model.folder), "model", gone.names)] if gone.names else []
    if gone.bundle:
        places.append((Path(gone.model.prepared), "prepared", gone.bundle))
    return places
