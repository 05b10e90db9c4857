"""What is made of a model, and dies at any moment: each artefact is whole, and the next life goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs import told_by

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and kills with SIGKILL")


def test_an_artefact_that_replaces_another(tmp_path: Path) -> None:
    for steps, left in told_by("killed_artefacts.py", tmp_path).values():
        assert steps > 5
        assert left == [1, 2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["steps", "moments"])
def test_convert_profile_train_and_solve(tmp_path: Path, how: str) -> None:
    told = told_by("killed_jobs.py", tmp_path, how, 50, 3)
    assert told["faults"] == []
    assert told["kills"] == 50
