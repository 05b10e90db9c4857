"""The text of OpenDocument files: texts (.odt), presentations (.odp) by slides and spreadsheets (.ods) by sheets.

Runs in the child process (reading_process.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

from app.documents.reading.blocks import Blocks, Full, row
from app.documents.reading.document import Document, TextLimit, Unreadable
from app.documents.reading.package import Package, parse

_SKIPPED = ("text:tracked-changes", "office:annotation", "office:forms", "text:ruby-text", "text:note-citation",
            "text:sequence-decls", "table:tracked-changes")  # fmt: skip
_MOST_SPACES = 100
_MOST_COLUMNS = 1_000  # cells of a row that repeat one another
_MOST_REPEATS = 1_000  # rows


def read(package: Package, limit: TextLimit, kind: Literal["odt", "odp", "ods"]) -> Document:
    """Return a document's text. Raises Unreadable."""
    if "META-INF/manifest.xml" in package:
        parse(package.read("META-INF/manifest.xml"), {"manifest:encryption-data": _refuse})
    content = _Content(kind, limit.left)
    with suppress(Full):
        content.parse(package.read("content.xml"))
    content.end_part()
    parts, n_parts = limit.parts(content.parts)
    return Document(kind, parts, n_parts, cut=limit.is_reached)


def _refuse(_: Mapping[str, str]) -> None:
    raise Unreadable("locked")


class _Content:
    """Turns the elements of content.xml into parts: (text, name)."""

    def __init__(self, kind: str, most: int) -> None:
        self.parts: list[tuple[str, str]] = []
        self._kind, self._most = kind, most
        self._blocks, self._name = Blocks(most), ""
        self._pieces: list[list[str]] = []  # of the open paragraphs
        self._list_depth = self._note_depth = self._level = 0
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
                  "draw:page": self._page, "presentation:notes": self._begin_page_notes}  # fmt: skip
        ends = {"text:h": self._end_paragraph, "text:p": self._end_paragraph, "text:list": self._end_list,
                "text:note": self._end_note, "table:table": self._end_table, "table:table-row": self._end_row,
                "table:table-cell": self._end_cell, "table:covered-table-cell": self._end_cell,
                "draw:page": self._end_page, "presentation:notes": self._end_page_notes}  # fmt: skip
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

    # -------------------------------------------------------------- paragraphs

    def _put(self, text: str) -> None:
        if self._pieces:
            self._pieces[-1].append(text)

    def _characters(self, text: str) -> None:
        if self._pieces:
            self._pieces[-1].append(" ".join(f".{text}.".split())[1:-1])  # as in XML, spaces stand for one

    def _paragraph(self, _: Mapping[str, str]) -> None:
        self._pieces.append([])
        self._level = 0

    def _heading(self, values: Mapping[str, str]) -> None:
        self._pieces.append([])
        self._level = max(_whole(values.get("text:outline-level"), 1, 6), 1)

    def _spaces(self, values: Mapping[str, str]) -> None:
        self._put(" " * _whole(values.get("text:c"), 1, _MOST_SPACES))

    def _tab(self, _: Mapping[str, str]) -> None:
        self._put("\t")

    def _break(self, _: Mapping[str, str]) -> None:
        self._put("\n")

    def _list(self, _: Mapping[str, str]) -> None:
        self._list_depth += 1

    def _item(self, _: Mapping[str, str]) -> None:
        self._is_item_start = True

    def _end_list(self) -> None:
        self._list_depth -= 1
        if not self._list_depth:
            self._blocks.end_table()

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
        elif self._list_depth and self._is_item_start and text:
            self._is_item_start = False
            self._blocks.add_item(text, self._list_depth - 1)
        else:
            self._blocks.add(text)

    # -------------------------------------------------------------- tables and sheets

    def _table(self, values: Mapping[str, str]) -> None:
        if self._kind == "ods" and not self._rows:
            self._name = values.get("table:name", "")
        self._rows.append([])

    def _end_table(self) -> None:
        if self._rows:
            self._rows.pop()
        if not self._rows:
            self._blocks.end_table()
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

    # -------------------------------------------------------------- slides

    def _page(self, values: Mapping[str, str]) -> None:
        self._name = values.get("draw:name", "")

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
