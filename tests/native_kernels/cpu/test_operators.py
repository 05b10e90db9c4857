"""Norms, activations, lists, embeddings and the whole operators on kernels, on every instruction set there is here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import operator_checks
import pytest

from native_kernels.cpu import isa, jit


@pytest.mark.parametrize("check", ["check_norms", "check_activations", "check_lists", "check_embeddings"])
def test_small_kernels(check: str) -> None:
    getattr(operator_checks, check)()


@pytest.mark.parametrize("n_threads", [1, 2, 5, 8])
def test_operators(n_threads: int) -> None:
    operator_checks.check_operators(n_threads)


@pytest.mark.parametrize("name", [one.name for one in isa.available() if one != isa.chosen()])
def test_lower_instruction_sets(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    here = Path(__file__).parent
    around = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1]), str(here.parents[2])]),
        isa.SWITCH: name,
        jit.CACHE_VARIABLE: str(tmp_path_factory.mktemp("kernels")),
    }
    command = [sys.executable, "-W", "error", str(here / "operator_checks.py")]
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "all right\n"), done.stderr
