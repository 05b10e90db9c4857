"""Translates every text that a user reads, in widgets and in plain data alike.

It holds no translations and no Qt: language.py reads them and installs the look-up. Until then, and in tests that
install nothing, texts are the English ones of the source.

    tr("Delete chat")                                   a text that is shown at once
    tr("{title} was deleted", title=title)              with values, which are filled in after the look-up
    tr("Open", about="a state: the file is open")       the same English for two meanings
    tr_n("{n} chat", "{n} chats", count)                a text that depends on a number
    TITLE = noted("New chat")  ...  tr(TITLE)           a text in a table: marked there, translated when shown

    figure(39.1, ".1f")                                 a number, with the decimal mark of the language

Nothing is looked up at import, when the language is not known yet. Values are texts, or numbers formatted by `figure`;
their names stand in braces and are the same in every language.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

# English text, its context, a count or None -> the text in the user's language; empty if there is none.
LookUp = Callable[[str, str, int | None], str]

_installed: LookUp | None = None
_marks: dict[int, str] = {}


def install(look_up: LookUp | None, decimal: str = ".", group: str = ",") -> None:
    """Switch to another language; None: English, as in the source.

    decimal, group: the decimal mark and the thousands separator.
    """
    global _installed, _marks
    _installed = look_up
    _marks = str.maketrans({".": decimal, ",": group})
    _found.cache_clear()


@lru_cache(maxsize=4096)  # the same texts are painted again and again
def _found(text: str, about: str, count: int | None) -> str:
    return (_installed(text, about, count) if _installed is not None else "") or text


def tr(text: str, /, about: str = "", **values: Any) -> str:
    """Return the text in the user's language with its values filled in."""
    if _installed is not None and text:
        text = _found(text, about, None)
    return text.format(**values) if values else text


def tr_n(one: str, many: str, count: int, /, **values: Any) -> str:
    """Return a text that depends on a count, which it calls {n}: the English singular and plural.

    Values may contain `n`: how the count is written then.
    """
    if _installed is not None and (found := _found(many, "", count)) != many:
        text = found
    else:
        text = one if count == 1 else many
    return text.format(**{"n": count, **values})


def unfigured(words: str) -> str:
    """Convert a number as the user typed it to Python's notation. If points separate thousands, a single point that is
    not followed by three digits counts as the decimal mark, as people type it."""
    words = words.strip().replace("\u202f", "").replace("\u00a0", "")
    if _marks.get(ord("."), ".") == ".":
        return words.replace(",", "")
    if "," in words:
        return words.replace(".", "").replace(",", ".")
    return words.replace(".", "") if re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})+", words) else words


def noted(text: str) -> str:
    """Mark a text in a table for translation; `tr` translates it when it is shown."""
    return text


def figure(value: float, spec: str = ",") -> str:
    """Format a number with the marks of the user's language: figure(1.5, ".1f") is 1,5 in German."""
    return format(value, spec).translate(_marks)
