"""Style, format, types and import contracts: the rules of the house, run like any other test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.systems import ON_WINDOWS

ROOT = Path(__file__).resolve().parents[2]
MODULE = [sys.executable, "-m"]
GATES = {
    "ruff check": [*MODULE, "ruff", "check", "--no-fix", "."],
    "ruff format": [*MODULE, "ruff", "format", "--check", "."],
    "mypy": [*MODULE, "mypy"],
    # import-linter has no __main__; this is what its command does.
    "import contracts": [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"],
}


@pytest.mark.skipif(ON_WINDOWS, reason="the sources are the same on every system")
@pytest.mark.timeout(600)  # mypy without its cache on a busy machine
@pytest.mark.parametrize("command", GATES.values(), ids=GATES.keys())
def test_gate(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"\n{done.stdout}"
