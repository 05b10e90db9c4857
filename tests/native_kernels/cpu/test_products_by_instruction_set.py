"""Products of many tokens, of K-quants with one vector, and unpacked rows, for every lower instruction set."""

from __future__ import annotations

from pathlib import Path

from lower_sets import LOWER, LOWER_SETS, OTHER_KINDS, THOROUGH, dealt, run_limited

CHECKS = str(Path(__file__).parent / "product_checks.py")


@THOROUGH
@LOWER_SETS
def test_every_lower_instruction_set_here(name: str, thorough: bool) -> None:
    codecs = dealt(("q4_0", "q8_0.lanes"), name, LOWER, thorough) + dealt(("q6_k", "q4_k"), name, LOWER, thorough)
    if name in OTHER_KINDS:
        codecs.append("f16")
    assert run_limited([CHECKS, *codecs], name).strip() == name
