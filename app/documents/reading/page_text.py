"""The text of an HTML page, much like Markdown: headings, lists, links, tables and code. No Qt.

The time is linear in the page's length, whatever it holds. Python's own HTML parser is not used, because in some
versions that Hearth runs on, its time grows with the square of a damaged page's length. Left out are scripts, styles,
navigation, forms and what the page hides. Nothing is fetched.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urljoin

from engine.errors import Cancelled

MAX_CHARACTERS = 4_000_000  # of the text; links can make it longer than the page
LONGEST_ADDRESS = 1_000  # of a link; longer ones are left out
_LONGEST_ALT = 300
_FEWEST_OF_MAIN = 200  # characters for <main> to stand for the page
_CANCEL_EVERY = 2_000  # tags
_ALONE, _ITEMS = 0, 1  # groups of blocks; each table has a number of its own behind them
_BREAK = "\0"  # a line break inside a paragraph, until its spaces are collapsed

_NAME = re.compile(r"[a-zA-Z][^\s/>]*")
_BETWEEN = re.compile(r"[\s/]*")
_ATTRIBUTE = re.compile(r"[^\s/>][^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s>]*")
_WANTED = {"href", "alt", "hidden", "aria-hidden", "role", "style", "start", "open"}
_UNSEEN = re.compile(r"(display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)

_RAW = ("script", "style", "title", "textarea", "iframe", "noembed", "noframes")  # their content holds no tags
_RAW_END = {name: re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE) for name in _RAW}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
_SKIPPED = {"nav", "svg", "canvas", "object", "audio", "video", "template", "select", "datalist"}
_SKIPPED_ROLES = {"navigation", "menu", "menubar", "search"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "li", "main", "ol", "p", "pre",
    "section", "summary", "table", "ul", *_HEADINGS,
}  # fmt: skip
_CELLS, _ROWS = {"td", "th"}, {"tr", "td", "th"}
# Elements that a start tag ends if they are the innermost open ones: their end tags may be left out.
_ENDED_BY = {name: {"p"} for name in _BLOCKS} | {
    "li": {"li", "p"}, "dt": {"dt", "dd", "p"}, "dd": {"dt", "dd", "p"}, "td": {"td", "th", "p"},
    "th": {"td", "th", "p"}, "tr": _ROWS | {"p"}, "option": {"option"}, "a": {"a"},
    **{name: _ROWS | {"p", "thead", "tbody", "tfoot"} for name in ("thead", "tbody", "tfoot")},
}  # fmt: skip


@dataclass(frozen=True)
class Page:
    """A page as text. title: in one line, or ""."""

    title: str
    text: str


def page_text(source: str, address: str, is_xhtml: bool, is_cancelled: Callable[[], bool] = lambda: False) -> Page:
    """Return a page's title and text. address: of the page, for its links. Raises Cancelled."""
    writer = _Writer(address)
    for number, tag in enumerate(_tags(source.replace("\0", ""), is_xhtml)):
        if number % _CANCEL_EVERY == 0 and is_cancelled():
            raise Cancelled
        writer.take(tag)
        if writer.n_characters > MAX_CHARACTERS:
            break
    return writer.page()


# --- tags


_NO_ATTRIBUTES: Mapping[str, str] = {}


class _Tag(NamedTuple):
    """A tag and the text before it. name: "" at the end of the page. raw: the text of an element without tags."""

    before: str
    name: str = ""
    is_end: bool = False
    attributes: Mapping[str, str] = _NO_ATTRIBUTES
    is_empty: bool = False  # it ends itself
    raw: str | None = None


def _tags(source: str, is_xhtml: bool) -> Iterator[_Tag]:
    """Yield the tags of a page. Each character is looked at a fixed number of times."""
    at = text_from = 0
    while (at := source.find("<", at)) >= 0:
        mark = source[at + 1 : at + 2]
        if mark in ("!", "?"):
            comment = source.startswith("<!--", at)
            end = source.find("-->" if comment else ">", at + 2)
            yield _Tag(source[text_from:at], "!")
            if end < 0:
                return
            at = text_from = end + (3 if comment else 1)
            continue
        is_end = mark == "/"
        match = _NAME.match(source, at + 1 + is_end)
        if match is None:
            at += 1
            continue
        before, name = source[text_from:at], match[0].lower()
        if source.startswith(">", match.end()):
            attributes, after, is_empty = _NO_ATTRIBUTES, match.end() + 1, False
        else:
            attributes, after, is_empty = _attributes(source, match.end())
        if after < 0:  # the page ends inside the tag
            yield _Tag(before, "!")
            return
        at = text_from = after
        is_empty = is_empty and (is_xhtml or name in ("svg", "math"))
        if is_end or is_empty or name not in _RAW_END:
            yield _Tag(before, name, is_end, attributes, is_empty)
            continue
        raw_end = _RAW_END[name].search(source, at)
        yield _Tag(before, name, raw=source[at:] if raw_end is None else source[at : raw_end.start()])
        if raw_end is None:
            return
        at = source.find(">", raw_end.end())
        if at < 0:
            return
        at = text_from = at + 1
    yield _Tag(source[text_from:])


def _attributes(source: str, at: int) -> tuple[Mapping[str, str], int, bool]:
    """Return the wanted attributes of a tag, where it ends (-1: it does not), and whether it ends with "/>"."""
    found: dict[str, str] = {}
    while True:
        gap = _BETWEEN.match(source, at)
        assert gap is not None
        at = gap.end()
        if at >= len(source):
            return found, -1, False
        if source[at] == ">":
            return found, at + 1, gap[0].endswith("/")
        name = _ATTRIBUTE.match(source, at)
        assert name is not None
        at, key, value = name.end(), name[0].lower() if name.end() - at < 20 else "", ""
        if equals := _EQUALS.match(source, at):
            at = equals.end()
            quote = source[at : at + 1]
            if quote in ('"', "'") and quote:
                end = source.find(quote, at + 1)
                if end < 0:
                    return found, -1, False
                value, at = source[at + 1 : end], end + 1
            else:
                unquoted = _UNQUOTED.match(source, at)
                assert unquoted is not None
                value, at = unquoted[0], unquoted.end()
        if key in _WANTED and key not in found:
            found[key] = _unescaped(value)


def _unescaped(text: str) -> str:
    if "&" not in text:
        return text
    try:
        return html.unescape(text).replace("\0", "")
    except ValueError:  # a character number of thousands of digits
        return text


# --- text


@dataclass
class _List:
    is_ordered: bool
    number: int = 1


@dataclass
class _Table:
    """A table. number: the group of its rows. is_plain: it only arranges other blocks, and is written without rows.
    cells: of the current row.
    """

    number: int
    is_plain: bool = False
    cells: list[list[str]] | None = None
    n_headers: int = 0
    n_rows: int = 0


class _Writer:
    """Turns tags into blocks of text."""

    def __init__(self, address: str) -> None:
        self._base = address
        self._open: list[str] = []
        self._counts: Counter[str] = Counter()
        self._skipped_from: int | None = None  # number of open elements outside the one that is left out
        self._blocks: list[tuple[str, int]] = []  # text and group: blocks of a group follow each other closely
        self._inline: list[str] = []
        self._lists: list[_List] = []
        self._tables: list[_Table] = []
        self._mains: list[tuple[int, int]] = []
        self._main_from = 0
        self._quotes = self._pres = self._n_tables = 0
        self._marker = ""  # of the block to come
        self._link: tuple[str, int] | None = None  # address, and where its text begins
        self._title = ""
        self.n_characters = 0

    def take(self, tag: _Tag) -> None:
        """Write the text before a tag, and what the tag means."""
        if tag.before and self._skipped_from is None:
            self._inline.append(_unescaped(tag.before))
        if tag.is_end:
            self._end(tag.name)
        elif tag.raw is not None:
            if tag.name == "title" and not self._title:
                self._title = " ".join(_unescaped(tag.raw[:1000]).split())
        elif tag.name not in ("", "!"):
            self._start(tag)

    def page(self) -> Page:
        while self._open:
            self._pop()
        self._flush()
        mains = [block for start, end in self._mains for block in self._blocks[start:end]]
        is_enough = sum(len(text) for text, _ in mains) >= _FEWEST_OF_MAIN
        parts: list[str] = []
        last = _ALONE
        for text, group in mains if is_enough else self._blocks:
            parts += [("\n" if group == last != _ALONE else "\n\n") if parts else "", text]
            last = group
        return Page(self._title, "".join(parts))

    # --- elements

    def _start(self, tag: _Tag) -> None:
        name = tag.name
        ended = _ENDED_BY.get(name)
        while ended and self._open and self._open[-1] in ended:
            self._pop()
        is_skipped = self._skipped_from is not None
        if name in _VOID:
            if not is_skipped:
                self._void(name, tag.attributes)
            return
        if not is_skipped and _is_left_out(name, tag.attributes):
            self._flush_if_block(name)
            self._skipped_from, is_skipped = len(self._open), True
        self._open.append(name)
        self._counts[name] += 1
        if not is_skipped:
            self._begin(name, tag.attributes)
        if tag.is_empty:
            self._pop()

    def _end(self, name: str) -> None:
        if name == "br" and self._skipped_from is None:
            self._inline.append(_BREAK)
        if self._counts[name]:
            while self._pop() != name:
                pass

    def _pop(self) -> str:
        name = self._open.pop()
        self._counts[name] -= 1
        if self._skipped_from is None:
            self._finish(name)
        elif len(self._open) <= self._skipped_from:
            self._skipped_from = None
        return name

    def _void(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "br":
            self._inline.append("\n" if self._pres else _BREAK)
        elif name == "hr":
            self._flush()
            self._add("---")
        elif name == "img" and (alt := " ".join(attributes.get("alt", "")[:_LONGEST_ALT].split())):
            self._inline.append(f" [Image: {alt}] ")
        elif name == "base" and (base := self._absolute(attributes.get("href", ""))):
            self._base = base

    def _begin(self, name: str, attributes: Mapping[str, str]) -> None:
        self._flush_if_block(name)
        if name in _HEADINGS:
            self._marker = "#" * _HEADINGS[name] + " "
        elif name in ("ul", "ol"):
            start = attributes.get("start", "")
            self._lists.append(_List(name == "ol", int(start) if re.fullmatch(r"[0-9]{1,9}", start) else 1))
        elif name == "li":
            items = self._lists[-1] if self._lists else _List(False)
            self._marker = f"{items.number}. " if items.is_ordered else "- "
            items.number += 1
        elif name == "blockquote":
            self._quotes += 1
        elif name == "pre":
            self._write_cells_as_blocks()
            self._pres += 1
        elif name == "code" and not self._pres:
            self._inline.append("`")
        elif name == "sup" and not self._pres:
            self._inline.append("^")
        elif name == "a" and (address := self._absolute(attributes.get("href", ""))):
            self._link = (address, len(self._inline))
        elif name == "main":
            self._main_from = len(self._blocks)
        elif name == "table":
            self._write_cells_as_blocks()
            self._n_tables += 1
            self._tables.append(_Table(_ITEMS + self._n_tables))
        elif name in _ROWS and self._tables:
            self._begin_cell(name, self._tables[-1])

    def _finish(self, name: str) -> None:
        if name == "pre":
            self._pres -= 1
            if self._pres == 0:
                self._write_code()
        self._flush_if_block(name)
        if name in ("ul", "ol"):
            self._lists.pop()
        elif name == "blockquote":
            self._quotes -= 1
        elif name == "code" and not self._pres:
            self._inline.append("`")
        elif name == "a":
            self._write_link()
        elif name == "main":
            self._mains.append((self._main_from, len(self._blocks)))
        elif name == "tr" and self._tables:
            self._write_row(self._tables[-1])
        elif name == "table":
            self._write_row(self._tables.pop())
        if name == "li" or name in _HEADINGS:
            self._marker = ""

    def _flush_if_block(self, name: str) -> None:
        if name in _BLOCKS or name in _ROWS:
            self._flush()

    # --- links, code and tables

    def _absolute(self, href: str) -> str:
        """Return a link's address; "" for one inside the page, of another kind, or too long to be of use."""
        href = href.strip()
        if not href or href.startswith("#") or len(href) > LONGEST_ADDRESS:
            return ""
        try:
            found = "".join(urljoin(self._base, href).split())
        except ValueError:
            return ""
        is_usable = found.lower().startswith(("http://", "https://", "mailto:")) and len(found) <= LONGEST_ADDRESS
        return found if is_usable else ""

    def _write_link(self) -> None:
        """Write the open link's address behind its text."""
        if self._link is None:
            return
        address, start = self._link
        self._link = None
        text = " ".join("".join(self._inline[start:]).split()).strip(_BREAK)
        if text and not self._pres and text not in (address, address.partition("//")[2].rstrip("/")):
            self._inline.append(f" ({address})")

    def _write_code(self) -> None:
        code = "".join(self._inline).replace(_BREAK, "\n").strip("\n").rstrip()
        self._inline.clear()
        self._link = None
        if code.strip():
            longest = max((len(run) for run in re.findall("`{3,}", code)), default=2)
            fence = "`" * min(longest + 1, 20)
            self._add(f"{fence}\n{code}\n{fence}")

    def _begin_cell(self, name: str, table: _Table) -> None:
        if table.is_plain:
            return
        if name == "tr" or table.cells is None:
            self._write_row(table)
            table.cells = []
        if name in _CELLS:
            table.cells.append([])
            table.n_headers += name == "th"

    def _write_row(self, table: _Table) -> None:
        rows, headers = table.cells or [], table.n_headers
        table.cells, table.n_headers = None, 0
        texts = [" ".join(" ".join(cell).split()).replace("|", "\\|") for cell in rows]
        if not any(texts):
            return
        self._add(f"| {' | '.join(texts)} |" if len(texts) > 1 else texts[0], table.number)
        if len(texts) > 1 and headers == len(texts) and table.n_rows == 0:
            self._add("| " + " | ".join(["---"] * len(texts)) + " |", table.number)
        table.n_rows += 1

    def _write_cells_as_blocks(self) -> None:
        """Give up the rows of the innermost table: a cell holds a table or code."""
        if self._tables and not self._tables[-1].is_plain:
            table = self._tables[-1]
            cells, table.cells, table.is_plain = table.cells or [], None, True
            for text in [text for cell in cells for text in cell]:
                self._add(text)

    # --- blocks

    def _flush(self) -> None:
        """End the current paragraph."""
        if self._pres:
            if self._inline and not self._inline[-1].endswith("\n"):
                self._inline.append("\n")
            return
        if not self._inline:
            return
        is_in_link = self._link is not None and "".join(self._inline[self._link[1] :]).strip()
        if is_in_link:
            self._write_link()
        elif self._link is not None:
            self._link = (self._link[0], 0)
        lines = (" ".join(line.split()) for line in "".join(self._inline).split(_BREAK))
        self._inline.clear()
        text = "\n".join(line for line in lines if line)
        if not text:
            return
        cells = self._tables[-1].cells if self._tables else None
        if cells:
            cells[-1].append(self._marker + text)
            self._marker = ""
        else:
            self._add(text)

    def _add(self, text: str, group: int = _ALONE) -> None:
        """Add a block, with the marks of its lists and quotes before its lines."""
        quote, depth = "> " * min(self._quotes, 4), min(len(self._lists), 8)
        is_item = bool(self._lists and self._marker)
        first = quote + "  " * (depth - is_item) + self._marker
        self._marker = ""
        written = first + text.replace("\n", "\n" + quote + "  " * depth)
        self._blocks.append((written, _ITEMS if is_item and group == _ALONE else group))
        self.n_characters += len(written)


def _is_left_out(name: str, attributes: Mapping[str, str]) -> bool:
    """Return whether an element is not a part of the page's text, or hidden."""
    if name in _SKIPPED or (name == "dialog" and "open" not in attributes):
        return True
    if name in ("html", "body", "main") or not attributes:
        return False
    return (
        ("hidden" in attributes and attributes["hidden"].lower() != "until-found")
        or attributes.get("aria-hidden", "").lower() == "true"
        or attributes.get("role", "").lower() in _SKIPPED_ROLES
        or _UNSEEN.search(attributes.get("style", "")[:1000]) is not None
    )
