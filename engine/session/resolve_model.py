"""Resolve a MODEL argument: a path, or the name of an installed model."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from engine.assets import starter_model
from engine.errors import ModelNotFoundError
from engine.files import openable
from engine.library.owned.installed import Library
from engine.model.model_files import OpenedModel, open_model

STARTER_NAMES = ("starter-chat", "pip")


@dataclass(frozen=True)
class FoundModel:
    """The meaning of a MODEL argument. name, activation, template: from the list of installed models."""

    path: Path
    name: str = ""
    activation: str = ""
    template: str = ""


def resolve_model(name: str) -> Path:
    """Return the path for a MODEL argument: a path, or the name of an installed model."""
    return find_model(name).path


def open_named(name: str, activation: str | None = None) -> OpenedModel:
    """Open the model of a MODEL argument, with the given activation or the one in the list of models.

    Raises: as `find_model` and `open_model`.
    """
    found = find_model(name)
    return open_model(found.path, activation or found.activation or None)


def find_model(name: str) -> FoundModel:
    """Resolve a MODEL argument: a path, or the id or name of an installed model.

    Raises: ModelNotFoundError if it matches nothing, several models, or a broken one; LibraryError if the list of
    models cannot be read.
    """
    path = openable(Path(os.path.expanduser(name)))  # Path.expanduser raises for an unknown user
    try:
        path.stat()
        return FoundModel(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):  # it exists but is inaccessible, or the name is impossible
            raise ModelNotFoundError(f"{path} cannot be opened: {error.strerror or error}.") from error
    except ValueError:  # a zero byte
        pass
    if name.lower() in STARTER_NAMES:  # must work even if the list is damaged
        return FoundModel(starter_model())
    found = Library().find(name)
    if found is None:
        raise ModelNotFoundError(
            f"There is no file, folder or installed model called {name!r}.",
            "Give the path of a model, a name that `list` shows, or starter-chat for the one that comes with Hearth.",
        )
    return FoundModel(found.path, found.name, found.activation, found.template)
