"""Find all models on this PC, or one by name: listed, bundled, in the hub's cache, of other programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from engine.errors import ModelNotFoundError
from engine.library.owned.heads import Heads
from engine.library.owned.hub_cache import cache_folder, cached_models
from engine.library.owned.library_file import Contents, models_with_receipt
from engine.library.owned.other_programs import models_of_other_programs
from engine.library.owned.states import STARTER_ID, from_elsewhere, starter
from engine.library.owned.stored_models import StoredModel, as_part, file_below, is_id

IMPORTED = "local"  # the owner of imported models


def elsewhere(contents: Contents) -> Iterator[StoredModel]:
    """Yield the models in the hub's cache and of other programs that are not listed.

    A file that is listed in place is not repeated. The header of a model tells whether Hearth can run it.
    """
    taken = {id.casefold() for id in (*contents.models, *contents.hidden)}
    files = {os.path.join(model.folder, model.path) for model in contents.models.values() if not model.owned}
    for found in chain(cached_models(cache_folder()), models_of_other_programs()):
        owner, _, name = found.id.partition("/")
        id = found.id if found.origin == "hub cache" else f"{as_part(owner, 'local')}/{as_part(name, 'model')}"
        file = os.path.join(found.folder, found.path)
        if is_id(id) and id.casefold() not in taken and file not in files:
            model = from_elsewhere(found, id, contents)
            if model is not None:
                taken.add(id.casefold())
                files.add(file)
                yield model


def stored(contents: Contents, heads: Heads, id: str) -> StoredModel:
    """Return the model with this id. Raises: ModelNotFoundError."""
    if id in contents.models:
        return contents.models[id]
    shipped = starter(contents, heads) if id == STARTER_ID else None
    if shipped is not None:
        return shipped
    for model in elsewhere(contents):
        if model.id == id:
            return model
    raise ModelNotFoundError(f"There is no installed model {str(id)[:200]!r}.")


def named(contents: Contents, heads: Heads, name: str) -> StoredModel | None:
    """Return the model with this id, name or catalogue id, ignoring case; None without one.

    Raises: ModelNotFoundError if several match.
    """
    wanted = name.casefold()
    shipped = starter(contents, heads)
    for models in ([*contents.models.values(), *([] if shipped is None else [shipped])], list(elsewhere(contents))):
        found = [model for model in models if model.id.casefold() == wanted]
        found = found or [model for model in models if wanted in _names(model)]
        if len(found) > 1:
            ids = ", ".join(model.id for model in found[:4])
            raise ModelNotFoundError(f"{len(found)} models are called {name!r}.", f"Name one of {ids}.")
        if found:
            return found[0]
    return None


def free_id(contents: Contents, name: str, root: Path | None = None) -> str:
    """Return a free id for an import with this name; with `root`, its folder there is free too."""
    taken = {id.casefold() for id in contents.models} | {gone.model.id.casefold() for gone in contents.removed.values()}
    part, number = as_part(name, "model"), 1
    while True:
        id = f"{IMPORTED}/{part}" if number == 1 else f"{IMPORTED}/{part}-{number}"
        if id.casefold() not in taken and not (root is not None and os.path.lexists(file_below(root, id))):
            return id
        number += 1


def unlisted(contents: Contents) -> Iterator[StoredModel]:
    """Yield Hearth's models in the models folder that an interruption left unlisted."""
    taken = {id.casefold() for id in contents.models}
    thrown = {gone.model.folder for gone in contents.removed.values()}
    for model in models_with_receipt(contents.folder):
        if model.id.casefold() not in taken and model.folder not in thrown:
            yield model


def _names(model: StoredModel) -> tuple[str, ...]:
    return model.name.casefold(), model.id.casefold().rpartition("/")[2], model.catalogue_id.casefold()
