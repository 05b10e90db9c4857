"""The tiny models of all families, each made once per run: most tests here read the same ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from family_models import Reference, shared_reference


@pytest.fixture(scope="session")
def references(whole_run: Path) -> Callable[[str], Reference]:
    """The reference of a case, by its name. Its files are those of other tests as well: read them only."""
    return cache(lambda name: shared_reference(name, whole_run / "references"))
