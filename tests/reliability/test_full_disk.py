"""A disk that is full at any moment of a write: the old or the new is left, and what is said has words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs import told_by

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits on Windows")


@pytest.mark.parametrize("limits", [5, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_what_is_kept(tmp_path: Path, limits: int) -> None:
    told = told_by("full_disk.py", tmp_path, limits)
    assert told["faults"] == []
    assert all(ends["refused"] >= 2 for ends in told["acts"].values()), told["acts"]
