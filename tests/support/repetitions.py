"""Parameters of tests of which some run every day, and the others with `-m slow`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some_daily(values: Iterable[Any], daily: Collection[Any]) -> list[Any]:
    """Return the values as parameters. Those that are not in `daily` are marked `slow`: a daily test covers them."""
    return [value if value in daily else slow(value) for value in values]


def slow(*values: Any, id: str | None = None) -> Any:
    """Return one set of parameters that is marked `slow`."""
    return pytest.param(*values, id=id, marks=pytest.mark.slow)
