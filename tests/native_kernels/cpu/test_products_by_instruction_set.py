"""Products of many tokens, of K-quants with one vector, and unpacked rows, for every lower instruction set."""

from __future__ import annotations

from pathlib import Path

import pytest
from lower_sets import LOWER, OTHER_KINDS, run_limited

CHECKS = str(Path(__file__).parent / "product_checks.py")


@pytest.mark.parametrize("name", LOWER)
def test_every_lower_instruction_set_here(name: str) -> None:
    codecs = ["q4_0", "q8_0.lanes", "q4_k", "q6_k"]
    if name in OTHER_KINDS:
        codecs.append("f16")
    assert run_limited([CHECKS, *codecs], name).strip() == name
