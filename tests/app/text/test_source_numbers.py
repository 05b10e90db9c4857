"""The numbers of sources in answers: links where the text names a known one."""

from __future__ import annotations

import re

import pytest

from app.text.block_parser import BlockParser, parse
from app.text.markdown_blocks import CodeBlock
from app.text.markdown_marks import cited

KNOWN = frozenset({1, 2, 3})


def links(text: str) -> list[int]:
    html = "".join(block.html for block in parse(text, KNOWN) if not isinstance(block, CodeBlock))
    return [int(number) for number in re.findall(r'href="#source-(\d+)"', html)]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("As in [1].", [1]),
        ("As in [1, 3] and [2][1].", [1, 3, 2, 1]),
        ("**[2]** in bold, [9] is unknown, [3, 9] in part.", [2, 3]),
        ("| a |\n|---|\n| [1] |", [1]),
        ("- [x] done [2]\n> a quote [3]", [2, 3]),
        ("`[1]` and\n\n```\n[2]\n```\n\n    [3]", []),
        ("$a[1]$ and [2](https://example.com)", []),
        ("See [1].\n\n[1]: contract.pdf", [1]),
        ("[a](https://example.com/[1])", []),
    ],
)
def test_known_numbers_are_links_and_no_others(text: str, numbers: list[int]) -> None:
    assert links(text) == numbers


def test_without_sources_a_number_is_text() -> None:
    assert [block.html for block in parse("As in [1].") if not isinstance(block, CodeBlock)] == ["<p>As in [1].</p>"]


def test_an_answer_cannot_make_such_a_link_itself() -> None:
    assert links("[click](#source-1) and <a href='#source-2'>this</a>") == []


def test_the_text_stays_as_it_was_written() -> None:
    html = "".join(block.html for block in parse("A [1], b [2, 3] c [4].", KNOWN) if not isinstance(block, CodeBlock))
    assert re.sub(r"<[^>]*>", "", html) == "A [1], b [2, 3] c [4]."


def test_a_growing_text_gets_the_same_links() -> None:
    text = "First [1].\n\nThen [2, 3].\n\n" + "Long text. " * 500 + "[3]\n"
    parser = BlockParser(KNOWN)
    for start in range(0, len(text), 7):
        parser.append(text[start : start + 7])
    parser.finish()
    assert parser.blocks == parse(text, KNOWN)


def test_cited_are_the_known_numbers_outside_of_code_in_order() -> None:
    text = "See [3] and [1, 3].\n```\n[2]\n```\nNot `[2]`, nor [7]."
    assert cited(text, KNOWN) == [3, 1]
    assert cited("```\n[1]", KNOWN) == []
