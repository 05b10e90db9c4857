"""Where the files that ship with the program lie; it reads none of them."""

from __future__ import annotations

from pathlib import Path

from engine.errors import ModelNotFoundError


def asset_root() -> Path:
    """The folder of icons, licences and the starter model.

    An installed package and a frozen program carry it inside the engine package; a checkout has it beside it.
    """
    package = Path(__file__).resolve().parent
    inside = package / "_assets"
    return inside if inside.is_dir() else package.parent / "assets"


def starter_model() -> Path:
    """The folder of the model that ships with the program. Raises ModelNotFoundError when it is not there."""
    folder = asset_root() / "models" / "starter-chat"
    if not folder.is_dir():
        raise ModelNotFoundError(f"The starter model is missing: {folder} does not exist.", "Install Hearth again.")
    return folder
