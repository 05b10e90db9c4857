"""What a user reads of a call, whoever wrote it: nothing in it is invisible, and no name hides its end."""

from __future__ import annotations

import json

import pytest

from app.tools.call_text import LONGEST_LABEL, arguments_text, label, visible


def test_all_arguments_are_in_the_text_and_read_back_as_they_were() -> None:
    arguments = {"query": 'naïve 火 "quoted"\nline', "count": 5, "deep": {"list": [1, 2.5, None, True]}, "": ""}
    text = arguments_text(arguments)
    assert json.loads(text) == arguments
    assert "naïve 火" in text


@pytest.mark.parametrize(
    "hidden",
    ["\u202e", "\u200b", "\u2066", "\ufeff", "\u00ad", "\u2028", "\x07", "\ue000", "\u3164", "\u2800", "\ufe01",
     "\u034f", "\U000e0041", "\U000e0100"],
)  # fmt: skip
def test_what_has_no_shape_is_written_as_an_escape(hidden: str) -> None:
    for text in (visible(f"a{hidden}b"), arguments_text({"x": f"a{hidden}b"}), label(f"a{hidden}b")):
        assert hidden not in text
        if not hidden.isspace():  # a label is one line
            assert f"{ord(hidden):04x}" in text


def test_plain_text_and_line_ends_stay() -> None:
    for text in ("", "a b\nc", "Grüße, 你好, שלום", "😀"):
        assert visible(text) == text


def test_a_long_name_keeps_the_end_that_says_whose_site_it_is() -> None:
    site = "accounts.bank.example.com." + "a" * 60 + ".evil.example"
    short = label(site)
    assert len(short) == LONGEST_LABEL
    assert short.endswith(".evil.example")
    assert label("example.org") == "example.org"
    assert label("two\nlines") == "two lines"
