"""How the threads of the kernels wait in tests of the kernels."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def quiet_threads(parked_threads: None) -> None:
    """In every test but those of the threads themselves."""
