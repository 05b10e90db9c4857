"""What is made of a model, and dies at any moment: each artefact is whole or absent, and the next life goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and kills with SIGKILL")


def told_by(name: str, *arguments: object) -> Any:
    """The last line of a program beside this file, as JSON."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name(name)), *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_artefact_that_replaces_another(tmp_path: Path) -> None:
    for steps, left in told_by("killed_artefacts.py", tmp_path).values():
        assert steps > 5
        assert left == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["steps", "moments"])
def test_convert_profile_train_and_solve(tmp_path: Path, how: str) -> None:
    told = told_by("killed_jobs.py", tmp_path, how, 50, 3)
    assert told["faults"] == []
    assert told["kills"] == 50
