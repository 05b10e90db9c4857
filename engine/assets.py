"""Locate the files that ship with the program."""

from __future__ import annotations

from pathlib import Path

from engine.errors import ModelNotFoundError


def asset_root() -> Path:
    """Return the folder of icons, licences and the starter model.

    An installed package and a frozen program have it inside the engine package, a checkout beside it.
    """
    package = Path(__file__).resolve().parent
    inside = package / "_assets"
    return inside if inside.is_dir() else package.parent / "assets"


def starter_model() -> Path:
    """Return the folder of the bundled model. Raises: ModelNotFoundError if it is missing."""
    folder = asset_root() / "models" / "starter-chat"
    if not folder.is_dir():
        raise ModelNotFoundError(f"The starter model is missing: {folder} does not exist.", "Install Hearth again.")
    return folder
