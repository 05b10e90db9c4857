"""The text of OpenDocument files: texts (.odt), presentations (.odp) by slides and spreadsheets (.ods) by sheets.

Runs in the child process (reading_process.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from app.documents.reading.blocks import Blocks, Full, row
from app.documents.reading.document import Document, TextLimit, Unreadable
from app.documents.reading.package import Package, parse

_SKIPPED = ("text:tracked-changes", "office:annotation", "office:forms", "text:ruby-text", "text:note-citation",
            "text:sequence-decls", "table:tracked-changes", "text:page-number")  # fmt: skip
_MOST_SPACES = 100
_MOST_COLUMNS = 1_000  # cells of a row that repeat one another
_MOST_REPEATS = 1_000  # rows


def read(package: Package, limit: TextLimit, kind: Literal["odt", "odp", "ods"]) -> Document:
    """Return a document's text. Raises Unreadable."""
    if "META-INF/manifest.xml" in package:
        parse(package.read("META-INF/manifest.xml"), {"manifest:encryption-data": _refuse})
    styles = _Styles()
    for name in ("styles.xml", "content.xml"):
        if name in package:
            styles.parse(package.read(name))
    content = _Content(kind, limit.left, styles)
    with suppress(Full):
        content.parse(package.read("content.xml"))
    content.end_part()
    parts, n_parts = limit.parts(content.parts)
    return Document(kind, parts, n_parts, cut=limit.is_reached)


def _refuse(_: Mapping[str, str]) -> None:
    raise Unreadable("locked")


class _Styles:
    """parents: of styles by name. ordered: levels of list styles that have numbers, from 1."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        self.ordered: set[tuple[str, int]] = set()
        self._list = ""

    def parse(self, data: bytes) -> None:
        starts = {"style:style": self._style, "text:list-style": self._list_style,
                  "text:list-level-style-number": self._numbers}  # fmt: skip
        parse(data, starts, skipped=("office:body",))

    def _style(self, values: Mapping[str, str]) -> None:
        self.parents[values.get("style:name", "")] = values.get("style:parent-style-name", "")

    def _list_style(self, values: Mapping[str, str]) -> None:
        self._list = values.get("style:name", "")

    def _numbers(self, values: Mapping[str, str]) -> None:
        self.ordered.add((self._list, _whole(values.get("text:level"), 1, 20)))


@dataclass
class _List:
    style: str
    n_items: int = 0


class _Content:
    """Turns the elements of content.xml into parts: (text, name)."""

    def __init__(self, kind: str, most: int, styles: _Styles) -> None:
        self.parts: list[tuple[str, str]] = []
        self._kind, self._most = kind, most
        self._blocks, self._name = Blocks(most), ""
        self._pieces: list[list[str]] = []  # of the open paragraphs
        self._note_depth = self._level = 0
        self._lists: list[_List] = []
        self._styles = styles
        self._is_title = False  # of a slide
        self._notes: list[str] = []
        self._note: list[str] = []
        self._is_item_start = self._is_page_notes = False
        self._page_notes: list[str] = []
        self._rows: list[list[str]] = []  # the cells of the open row of each open table
        self._cell: list[list[str]] = []  # the paragraphs of each open cell
        self._cell_value, self._cell_repeats, self._row_repeats = "", 1, 1

    def parse(self, data: bytes) -> None:
        """Raises Full, Unreadable."""
        starts = {"text:h": self._heading, "text:p": self._paragraph, "text:s": self._spaces, "text:tab": self._tab,
                  "text:line-break": self._break, "text:list": self._list, "text:list-item": self._item,
                  "text:note": self._begin_note, "table:table": self._table, "table:table-row": self._row,
                  "table:table-cell": self._begin_cell, "table:covered-table-cell": self._begin_cell,
                  "draw:frame": self._frame, "presentation:notes": self._begin_page_notes}  # fmt: skip
        ends = {"text:h": self._end_paragraph, "text:p": self._end_paragraph, "text:list": self._end_list,
                "text:note": self._end_note, "table:table": self._end_table, "table:table-row": self._end_row,
                "table:table-cell": self._end_cell, "table:covered-table-cell": self._end_cell,
                "draw:page": self._end_page, "draw:frame": self._end_frame,
                "presentation:notes": self._end_page_notes}  # fmt: skip
        parse(data, starts, ends, self._characters, _SKIPPED)

    def end_part(self) -> None:
        """End the last part: a text has one; of the others, only a cut one is left."""
        with suppress(Full):
            for number, note in enumerate(self._notes, 1):
                self._blocks.add_item(note, mark=f"[^{number}]:")
        if self._kind == "odt" or self._blocks.text:
            self._next_part()

    def _next_part(self) -> None:
        self.parts.append((self._blocks.text, self._name))
        self._most = max(self._most - len(self._blocks.text), 0)
        self._blocks, self._name = Blocks(self._most), ""

    # --- paragraphs

    def _put(self, text: str) -> None:
        if self._pieces:
            self._pieces[-1].append(text)

    def _characters(self, text: str) -> None:
        if self._pieces:
            self._pieces[-1].append(" ".join(f".{text}.".split())[1:-1])  # as in XML, spaces stand for one

    def _paragraph(self, values: Mapping[str, str]) -> None:
        self._pieces.append([])
        style = values.get("text:style-name", "")
        self._level = 1 if "Title" in (style, self._styles.parents.get(style)) else 0

    def _heading(self, values: Mapping[str, str]) -> None:
        self._pieces.append([])
        self._level = max(_whole(values.get("text:outline-level"), 1, 6), 1)

    def _spaces(self, values: Mapping[str, str]) -> None:
        self._put(" " * _whole(values.get("text:c"), 1, _MOST_SPACES))

    def _tab(self, _: Mapping[str, str]) -> None:
        self._put("\t")

    def _break(self, _: Mapping[str, str]) -> None:
        self._put("\n")

    def _list(self, values: Mapping[str, str]) -> None:
        style = values.get("text:style-name") or (self._lists[-1].style if self._lists else "")
        self._lists.append(_List(style))

    def _item(self, _: Mapping[str, str]) -> None:
        self._is_item_start = True

    def _end_list(self) -> None:
        if self._lists:
            self._lists.pop()

    def _begin_note(self, _: Mapping[str, str]) -> None:
        self._note_depth += 1
        self._put(f"[^{len(self._notes) + 1}]")

    def _end_note(self) -> None:
        self._note_depth -= 1
        if not self._note_depth:
            self._notes.append(" ".join(self._note))
            self._note = []

    def _end_paragraph(self) -> None:
        if not self._pieces:
            return
        text = "".join(self._pieces.pop()).strip()
        level, self._level = self._level, 0
        if self._note_depth:
            self._note.append(text)
        elif self._is_page_notes:
            self._page_notes.append(text)
        elif self._cell:
            self._cell[-1].append(text)
        elif level:
            self._blocks.add(text, level)
        elif self._is_title and text:
            self._name = f"{self._name} {text}".strip()
            self._blocks.add(text, 1)
        elif self._lists and self._is_item_start and text:
            self._is_item_start = False
            self._lists[-1].n_items += 1
            is_ordered = (self._lists[-1].style, len(self._lists)) in self._styles.ordered
            mark = f"{self._lists[-1].n_items}." if is_ordered else "-"
            self._blocks.add_item(text, len(self._lists) - 1, mark)
        else:
            self._blocks.add(text)

    # --- tables and sheets

    def _table(self, values: Mapping[str, str]) -> None:
        if self._kind == "ods" and not self._rows:
            self._name = values.get("table:name", "")
        self._rows.append([])

    def _end_table(self) -> None:
        if self._rows:
            self._rows.pop()
        if not self._rows:
            self._blocks.end_group()
            if self._kind == "ods":
                self._next_part()

    def _row(self, values: Mapping[str, str]) -> None:
        self._row_repeats = _whole(values.get("table:number-rows-repeated"), 1, _MOST_REPEATS)
        if self._rows:
            self._rows[-1].clear()

    def _end_row(self) -> None:
        if not self._rows:
            return
        text = row(self._rows[-1])
        if len(self._rows) > 1:  # a table in a cell
            if self._cell:
                self._cell[-1].append(text)
        elif text:
            for _ in range(self._row_repeats):
                self._blocks.add_row(self._rows[-1])
        self._rows[-1].clear()

    def _begin_cell(self, values: Mapping[str, str]) -> None:
        self._cell.append([])
        self._cell_repeats = _whole(values.get("table:number-columns-repeated"), 1, _MOST_COLUMNS)
        is_date = values.get("office:value-type") == "date"
        self._cell_value = values.get("office:date-value", "").replace("T", " ") if is_date else ""

    def _end_cell(self) -> None:
        if not self._cell:
            return
        text = self._cell_value or " ".join(self._cell[-1])
        self._cell.pop()
        if self._rows:
            n = self._cell_repeats if len(text) < 1_000 else 1
            self._rows[-1] += [text] * n
        self._cell_value, self._cell_repeats = "", 1

    # --- slides

    def _frame(self, values: Mapping[str, str]) -> None:
        self._is_title = values.get("presentation:class") == "title" and not self._is_page_notes

    def _end_frame(self) -> None:
        self._is_title = False

    def _end_page(self) -> None:
        if self._page_notes and (text := "\n".join(filter(None, self._page_notes))):
            self._blocks.add(f"Notes: {text}")
        self._page_notes = []
        self._next_part()

    def _begin_page_notes(self, _: Mapping[str, str]) -> None:
        self._is_page_notes = True

    def _end_page_notes(self) -> None:
        self._is_page_notes = False


def _whole(text: str | None, default: int, most: int) -> int:
    return min(int(text), most) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else default
