"""The threads of the kernels wait as they do in the product where they themselves are tested."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def quiet_threads() -> None:
    """Leave the threads as they are."""
