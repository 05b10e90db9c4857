"""The text of a tool's call as the user reads it. No Qt.

A model or a web page wrote this text, so nothing in it may stay invisible or reorder what stands around it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

# Control and format characters (which also reverse text), lone surrogates, private use, line and paragraph separators.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
# Letters and marks without a shape: fillers, a blank Braille cell, and variation selectors.
_SHAPELESS = re.compile("[\u034f\u115f\u1160\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
# What hides or reorders whole texts and has little other use: bidirectional controls and tag characters.
_HIDING = re.compile("[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
LONGEST_LABEL = 40  # characters of a name on a button
LONGEST_WORD = 24  # a wrapped label is as wide as its longest word
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD}}}(?=\S)")


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return all arguments of a call as indented JSON, with invisible characters written as escapes."""
    text = json.dumps(dict(arguments), ensure_ascii=False, indent=2, default=str)
    return visible(text)


def visible(text: str) -> str:
    """Return the text with invisible characters, except line ends, written as \\u escapes."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(_escape(char) if _is_invisible(char) else char for char in text)


def unhidden(text: str) -> str:
    """Return a text in any script, with characters that hide or reorder parts of it written as escapes."""
    return _HIDING.sub(lambda found: _escape(found[0]), text)


def one_line(name: str) -> str:
    """Return a name on one line, with invisible characters written as escapes."""
    return visible(" ".join(name.split()))


def breakable(text: str) -> str:
    """Return the text with a place to wrap after every LONGEST_WORD characters of a word."""
    return _LONG_WORD.sub("\\g<0>\u200b", text)


def label(name: str) -> str:
    """Return the name of a site, tool or server as `one_line`; the middle of a long one is left out.

    The end of a site's name says whose it is, so it stays.
    """
    line = one_line(name)
    if len(line) <= LONGEST_LABEL:
        return line
    start = LONGEST_LABEL // 3
    return f"{line[:start]}…{line[start + 1 - LONGEST_LABEL :]}"


def _is_invisible(char: str) -> bool:
    return char != "\n" and (unicodedata.category(char) in _INVISIBLE or _SHAPELESS.match(char) is not None)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
