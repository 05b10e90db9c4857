"""The display blocks of Markdown: HTML for Qt's rich text, and plain code. markdown_parser.py makes them. No Qt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

# Added at both ends of inline code, since Qt cannot pad its box: a no-break space between two zero-width characters
# that nobody types. `without_padding` removes it from copied text.
PAD = "\u2060\u00a0\u2060"
# A formula is two images for Qt: itself, and one that gives the line its depth (app/ui/look/formulas.py).
FORMULA, STRUT = "formula", "strut"
SOURCE = "#source-"  # begins the address of a source's number
GROWING = "growing"  # key in the parser's environment: the text may continue
MAX_DEPTH = 6  # deeper indents look the same


@dataclass(frozen=True)
class ProseBlock:
    """A top-level block of text (paragraph, heading, list, quote) as HTML for Qt's rich text."""

    html: str


@dataclass(frozen=True)
class TableBlock:
    """A table as HTML for Qt's rich text. Separate from prose because wide tables scroll by themselves."""

    html: str
    head: str = ""  # source of its first two lines, if it has more rows than `html`
    rest: str = ""  # source of those rows


@dataclass(frozen=True)
class CodeBlock:
    """A fence or indented code. `closed`: complete. `depth`: number of lists around it."""

    language: str
    code: str
    closed: bool = True
    depth: int = 0


Block = ProseBlock | TableBlock | CodeBlock

_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufdd0-\ufdef\ufffc\ufffe\uffff]")
_LINE_END = re.compile("\r\n|[\r\u2028\u2029]")
_CONTROL = bytes({*range(0x20), 0x7F} - {*b"\t\n"})
_SUSPICIOUS = (b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xef\xb7", b"\xef\xbf\xbc", b"\xef\xbf\xbe", b"\xef\xbf\xbf")


def displayable(text: str) -> str:
    """Replace what a text layout cannot hold: control characters, lone surrogates, Qt's own marks."""
    if _is_displayable(text):
        return text
    return _UNSHOWABLE.sub("\ufffd", _LINE_END.sub("\n", text))


def _is_displayable(text: str) -> bool:
    """Return whether there is nothing to replace, as nearly always. 15 times as fast as searching with the patterns."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return False
    if len(data.translate(None, _CONTROL)) < len(data):
        return False
    return len(data) == len(text) or not any(mark in data for mark in _SUSPICIOUS)


def without_padding(text: str) -> str:
    """Return copied text as it was written. (Qt turns no-break spaces into plain ones.)"""
    return text.replace(PAD, "").replace(PAD.replace("\u00a0", " "), "")


def web_address(url: str) -> str | None:
    """Return an address that may be opened (http or https with a host), else None."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return None
    return url if parts.scheme.lower() in {"http", "https"} and host else None
