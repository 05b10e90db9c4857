"""Patterns of a tokenizer.json whose cost outgrows the text are refused, those in use pass."""

from __future__ import annotations

import pytest

from engine.errors import UnsupportedModelError
from engine.text.pattern_cost import check_patterns
from engine.text.splitting import known_patterns


@pytest.mark.parametrize("pattern", [r"\p{L}+(?=!!)|\p{L}", r"(a+)+$", r"(q|q)*z"])
def test_a_pattern_that_outgrows_the_text_is_refused(pattern: str) -> None:
    part = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": pattern}}]}
    with pytest.raises(UnsupportedModelError, match="grows much faster"):
        check_patterns(part, "tokenizer.json")


@pytest.mark.parametrize("pattern", [" {2,}", r"\s+", r"[0-9]{1,3}", r" ?\p{L}+|\s+(?!\S)|\s+", *known_patterns()])
def test_a_pattern_in_use_passes(pattern: str) -> None:
    check_patterns({"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}, "tokenizer.json")
    check_patterns({"type": "Split", "pattern": {"Regex": pattern + "|~~"}}, "tokenizer.json")
