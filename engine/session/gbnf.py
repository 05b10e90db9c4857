"""Translate a grammar from GBNF, the notation of llama.cpp, to the Lark notation of the library llguidance.

llguidance reads each terminal as long as possible, so that `[a-z]* "a"` would never find its last letter. GBNF has no
such rule: here, every character is a terminal of its own, and the language of the grammar stays the same.
"""

from __future__ import annotations

import re

from engine.errors import InvalidRequestError

_TOKEN = re.compile(
    r"""(?P<skip>(?:\s|\#[^\n]*)+) | (?P<define>[\w-]+\s*::=) | (?P<name>[\w-]+) | "(?P<text>(?:[^"\\]|\\.)*)"
    | \[(?P<class>\^?(?:[^\]\\]|\\.)*)\] | (?P<any>\.) | (?P<mark>[()|]) | (?P<times>[*+?]|\{[\d\s,]*\})""",
    re.VERBOSE | re.DOTALL,
)
_CHARACTER = re.compile(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|(.)", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}
_LARGEST = 0x10FFFF


def lark_of(text: str) -> str:
    """Return the grammar in Lark notation. Raises: InvalidRequestError with the line of the mistake."""
    found = ["%llguidance {}"]
    numbers: dict[str, int] = {}  # of the rules that are named so far
    defined: set[str] = set()
    place, is_empty = 0, False
    while place < len(text):
        token = _TOKEN.match(text, place)
        kind, given = (token.lastgroup, token[token.lastgroup]) if token and token.lastgroup else ("", "")
        if token is None or (not defined and kind not in ("skip", "define")):
            raise _wrong(text, place, f"{text[place : place + 20]!r} was not expected")
        if is_empty and (kind == "define" or given in ("|", ")")):
            found.append('""')
        if kind == "define":
            name = given[:-3].rstrip()
            if name in defined:
                raise _wrong(text, place, f"the rule {name!r} is defined twice")
            defined.add(name)
            found.append(f"\nr{numbers.setdefault(name, len(numbers))}:")
        elif kind == "name":
            found.append(f"r{numbers.setdefault(given, len(numbers))}")
        elif kind == "text":
            terminals = [f"/{_escaped(one)}/" for one in _characters(text, place, given)]
            found.append("(" + (" ".join(terminals) or '""') + ")")
        elif kind == "class":
            found.append(f"/{_class(text, place, given)}/")
        elif kind == "any":
            found.append("/(?s:.)/")
        elif kind in ("mark", "times"):
            found.append("".join(given.split()))
        if kind != "skip":
            is_empty = kind == "define" or given in ("|", "(")
        place = token.end()
    if is_empty:
        found.append('""')
    for name in ("root", *numbers):
        if name not in defined:
            raise InvalidRequestError(f"The grammar has no rule {name!r}.", "Define it, or correct its name.")
    return f"{' '.join(found)}\nstart: r{numbers['root']}\n"


def _class(text: str, place: int, given: str) -> str:
    """Return a class of characters as a regular expression."""
    inverts = given.startswith("^")
    codes = _characters(text, place, given[inverts:])
    minus = [found[-1] == "-" for found in _CHARACTER.findall(given[inverts:])]  # without a backslash
    parts, i = list[str](), 0
    while i < len(codes):
        is_range = i + 2 < len(codes) and minus[i + 1]
        parts.append(f"{_escaped(codes[i])}-{_escaped(codes[i + 2])}" if is_range else _escaped(codes[i]))
        i += 3 if is_range else 1
    if not parts:
        return "(?s:.)" if inverts else r"[^\x{0}-\x{10ffff}]"
    return f"[{'^' * inverts}{''.join(parts)}]"


def _characters(text: str, place: int, given: str) -> list[int]:
    """Return the code points of a text with escapes."""
    codes = [
        int(x or u or long, 16) if x or u or long else ord(_SHORT.get(escaped, escaped) or plain)
        for x, u, long, escaped, plain in _CHARACTER.findall(given)
    ]
    if any(code > _LARGEST or 0xD800 <= code < 0xE000 for code in codes):
        raise _wrong(text, place, "an escape stands for no character")
    return codes


def _escaped(code: int) -> str:
    return f"\\x{{{code:x}}}"


def _wrong(text: str, place: int, why: str) -> InvalidRequestError:
    line = text.count("\n", 0, place) + 1
    return InvalidRequestError(f"The grammar cannot be read: in line {line}, {why}.", "Correct the grammar.")
