"""The tiny models of all families, each made once: most tests here read the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

import family_models
import pytest
from family_models import Reference, shared_reference


@pytest.fixture(scope="session")
def references(kept_folder: Callable[[str, str], Path]) -> Callable[[str], Reference]:
    """The reference of a case, by its name. Its files are those of other tests as well: read them only."""
    made_of = Path(family_models.__file__).read_bytes() + family_models.GREEDY.read_bytes()
    made_of += f"{version('torch')} {version('transformers')}".encode()
    folder = kept_folder("references", hashlib.sha256(made_of).hexdigest())
    return cache(lambda name: shared_reference(name, folder))
