"""Norms, activations, lists, embeddings and the whole operators on kernels, on every instruction set there is here."""

from __future__ import annotations

from pathlib import Path

import operator_checks
import pytest
from lower_sets import KINDS_OF_SETS, OTHER_KINDS, THOROUGH, dealt, run_limited


@pytest.mark.parametrize(
    "check", ["check_norms", "check_activations", "check_lists", "check_embeddings", "check_no_numbers"]
)
def test_small_kernels(check: str) -> None:
    getattr(operator_checks, check)()


@pytest.mark.parametrize("n_threads", [1, 2, 5, 8])
def test_operators(n_threads: int) -> None:
    operator_checks.check_operators(n_threads)


@THOROUGH
@KINDS_OF_SETS
def test_lower_instruction_sets(name: str, thorough: bool) -> None:
    checks = Path(__file__).parent / "operator_checks.py"
    codecs = dealt(operator_checks.CODECS, name, OTHER_KINDS, thorough)
    assert run_limited([str(checks), *codecs], name) == "all right\n"
