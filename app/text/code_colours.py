"""The colours of code, by Pygments, as tokens of the theme. No Qt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HIGHLIGHT_UP_TO = 60_000  # characters; lexers are Python, and some are slow


def coloured_parts(language: str, code: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of the code in order, with the colour token of each, or "" for plain text.

    The parts together are the code. Code of an unknown language, or longer than HIGHLIGHT_UP_TO, is one plain part.
    """
    if not language or len(code) > HIGHLIGHT_UP_TO:
        yield code, ""
        return
    from pygments.lexers import get_lexer_by_name  # imported here: it takes 20 ms, and many chats have no code
    from pygments.token import Comment, Keyword, Literal, Name, Number, Operator, String
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        yield code, ""
        return
    tokens: tuple[tuple[Any, str], ...] = (
        (Comment, "ink3"), (Keyword, "code_keyword"), (Operator.Word, "code_keyword"), (Name.Tag, "code_keyword"),
        (Name.Function, "code_function"), (Name.Class, "code_function"), (Name.Decorator, "code_function"),
        (Name.Builtin, "code_function"), (Name.Attribute, "code_function"), (String, "code_string"),
        (Number, "code_number"), (Keyword.Constant, "code_number"), (Literal, "code_number"),
    )  # fmt: skip
    for kind, text in lexer.get_tokens(code):
        yield text, next((token for family, token in tokens if kind in family), "") if text.strip() else ""


def coloured_spans(language: str, code: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, length (both in UTF-16 units, as Qt counts) and colour token of everything that is not plain
    text."""
    position = 0
    for text, colour in coloured_parts(language, code):
        length = len(text) + sum(ch > "\uffff" for ch in text)
        if colour:
            yield position, length, colour
        position += length
