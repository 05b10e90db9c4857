"""Patterns of a tokenizer.json whose cost outgrows the text are refused, those in use pass."""

from __future__ import annotations

import pytest
from support.repetitions import slow

from engine.errors import UnsupportedModelError
from engine.text.pattern_cost import check_patterns, cost_of
from engine.text.splitting import known_patterns


@pytest.mark.parametrize("pattern", [r"\p{L}+(?=!!)|\p{L}", r"(a+)+$", r"(q|q)*z", r"(?:qz)*(?=b)|q"])
def test_a_pattern_that_outgrows_the_text_is_refused(pattern: str) -> None:
    part = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": pattern}}]}
    with pytest.raises(UnsupportedModelError, match="grows much faster"):
        check_patterns(part, "tokenizer.json")


SPLIT = {"type": "Split", "pattern": {"Regex": "q+"}}


def test_a_text_that_takes_a_millisecond_costs_something() -> None:
    assert all(0.0 < cost_of("q+", "q" * 512) < 1.0 for _ in range(20))


def test_the_least_of_several_tries_decides() -> None:
    tries: list[int] = []

    def busy(pattern: str, text: str) -> float:
        """Linear, but for each first try of a text, which something else held up."""
        tries.append(len(text))
        return 1.0 if tries.count(len(text)) == 1 else 1e-6 * len(text)

    check_patterns(SPLIT, "tokenizer.json", busy)
    assert tries


def test_a_spell_of_slow_tries_refuses_nothing() -> None:
    tries: list[int] = []

    def slow_for_a_while(pattern: str, text: str) -> float:
        """Linear, but the first ten tries of a long text take four times as long."""
        tries.append(len(text))
        is_slow = len(text) > 4000 and tries.count(len(text)) <= 10
        return (4 if is_slow else 1) * 4e-6 * len(text)

    check_patterns(SPLIT, "tokenizer.json", slow_for_a_while)


def test_quadratic_is_refused_and_linear_passes_however_slow_the_machine() -> None:
    check_patterns(SPLIT, "tokenizer.json", lambda pattern, text: 1e-4 * len(text))
    with pytest.raises(UnsupportedModelError):
        check_patterns(SPLIT, "tokenizer.json", lambda pattern, text: 1e-8 * len(text) ** 2)
    check_patterns(SPLIT, "tokenizer.json", lambda pattern, text: 1e-10 * len(text) ** 2)  # too little to matter


def test_memory_for_many_pieces_refuses_nothing() -> None:
    def with_pieces(pattern: str, text: str) -> float:
        """Linear, but pieces of a long text need memory at three times the cost."""
        return (3 if len(text) > 4000 else 1) * 4e-6 * len(text)

    check_patterns(SPLIT, "tokenizer.json", with_pieces)


def test_what_the_regex_engine_gives_up_on_is_refused() -> None:
    with pytest.raises(UnsupportedModelError):
        check_patterns(SPLIT, "tokenizer.json", lambda pattern, text: float("inf") if len(text) > 4000 else 1e-4)


def test_many_patterns_are_refused_untried() -> None:
    many = [{"Regex": f"a{{{n}}}"} for n in range(33)]
    with pytest.raises(UnsupportedModelError, match="33"):
        check_patterns(many, "tokenizer.json", lambda pattern, text: pytest.fail("it was tried"))


# Those of published families pass unmeasured: what changes them a little is measured for every twelfth of them a day.
KNOWN = [
    pattern if i % 12 == 0 else slow(pattern)
    for i, pattern in enumerate(sorted(known_patterns(), key=lambda known: (len(known), known)))
]


def test_patterns_of_published_families_pass() -> None:
    for pattern in known_patterns():
        part = {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}
        check_patterns(part, "tokenizer.json", lambda pattern, _: pytest.fail(f"{pattern} was tried"))


@pytest.mark.parametrize("pattern", [" {2,}", r"\s+", r"[0-9]{1,3}", r" ?\p{L}+|\s+(?!\S)|\s+", *KNOWN])
def test_a_pattern_in_use_passes(pattern: str) -> None:
    check_patterns({"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}, "tokenizer.json")
    if not pattern.endswith((r"\z", "$")):  # quadratic in spaces that something follows, but in use
        check_patterns({"type": "Split", "pattern": {"Regex": pattern + "|~~"}}, "tokenizer.json")
