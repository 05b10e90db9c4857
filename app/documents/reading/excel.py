"""The text of Excel files (.xlsx): sheets in order, rows as lines, with the values as they were last calculated.

Dates are written as in ISO 8601. Runs in the child process (reading_process.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from app.documents.reading.blocks import Blocks, Full
from app.documents.reading.document import Document, TextLimit
from app.documents.reading.package import Package, parse

_WIDEST_GAP = 32  # empty columns in a row that are kept, so that cells stay below their headings
_DATE_FORMATS = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}  # built in
_PERCENT_FORMATS = {9, 10}
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]')  # parts of a format that are not codes
_COLUMN = re.compile(r"[A-Z]{1,3}")


def read(package: Package, limit: TextLimit) -> Document:
    """Return a workbook by sheets. Raises Unreadable."""
    main = package.first_related("", "officeDocument") or "xl/workbook.xml"
    sheets: list[tuple[str, str]] = []
    is_1904: list[bool] = []
    starts = {
        "s:sheet": lambda values: sheets.append((values.get("r:id", ""), values.get("name", ""))),
        "s:workbookPr": lambda values: is_1904.append(values.get("date1904") in ("1", "true")),
    }
    parse(package.read(main), starts)
    related = package.related(main)
    texts = _shared_texts(package, package.first_related(main, "sharedStrings"))
    formats = _Formats(package, package.first_related(main, "styles"), any(is_1904))

    def written() -> Iterator[tuple[str, str]]:
        for key, name in sheets:
            kind, part = related.get(key, ("", ""))
            blocks = Blocks(limit.left)
            with suppress(Full):
                if kind == "worksheet":
                    _Sheet(blocks, texts, formats).parse(package.read(part))
            yield blocks.text, name

    parts, _ = limit.parts(written())
    return Document("xlsx", parts, len(sheets), cut=limit.is_reached)


def _shared_texts(package: Package, name: str) -> list[str]:
    found: list[str] = []
    pieces: list[str] = []
    is_text = False

    def begin(_: Mapping[str, str]) -> None:
        pieces.clear()

    def text(_: Mapping[str, str]) -> None:
        nonlocal is_text
        is_text = True

    def end_text() -> None:
        nonlocal is_text
        is_text = False

    if name:
        parse(
            package.read(name),
            {"s:si": begin, "s:t": text},
            {"s:t": end_text, "s:si": lambda: found.append("".join(pieces))},
            lambda piece: pieces.append(piece) if is_text else None,
            ("s:rPh",),  # how to pronounce it
        )
    return found


class _Formats:
    """The number formats of a workbook's cells."""

    def __init__(self, package: Package, name: str, is_1904: bool) -> None:
        self._start = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 - as in the file
        self._codes: dict[str, str] = {}
        self._of_styles: list[str] = []
        self._is_cell_style = False
        if name:
            starts = {"s:numFmt": self._code, "s:cellXfs": self._begin, "s:xf": self._style}
            parse(package.read(name), starts, {"s:cellXfs": self._end})

    def _code(self, values: Mapping[str, str]) -> None:
        self._codes[values.get("numFmtId", "")] = _LITERAL.sub("", values.get("formatCode", "")[:1000]).lower()

    def _begin(self, _: Mapping[str, str]) -> None:
        self._is_cell_style = True

    def _end(self) -> None:
        self._is_cell_style = False

    def _style(self, values: Mapping[str, str]) -> None:
        if self._is_cell_style:
            self._of_styles.append(values.get("numFmtId", "0"))

    def shown(self, number: str, style: str) -> str:
        """Return a cell's number as text, by its style."""
        key = self._of_styles[int(style)] if style.isdigit() and int(style) < len(self._of_styles) else "0"
        code = self._codes.get(key, "")
        built_in = int(key) if key.isdigit() and not code else 0
        try:
            value = float(number)
        except ValueError:
            return number
        if built_in in _DATE_FORMATS or re.search("[dmyhs]", code.partition(";")[0].replace("general", "")):
            with suppress(OverflowError, ValueError):
                return self._date(value)
        if built_in in _PERCENT_FORMATS or "%" in code:
            return f"{value * 100:.10g}%"
        return f"{value:.15g}" if "." in number or "e" in number.lower() else number

    def _date(self, value: float) -> str:
        days = value + 1 if value < 60 and self._start.year == 1899 else value  # Excel has a 29 February 1900
        found = self._start + timedelta(days=days, milliseconds=0.5)
        clock = f"{found:%H:%M:%S}"
        if 0 <= value < 1:
            return clock
        return f"{found:%Y-%m-%d}" + ("" if clock == "00:00:00" else f" {clock}")


class _Sheet:
    def __init__(self, blocks: Blocks, texts: list[str], formats: _Formats) -> None:
        self._blocks, self._texts, self._formats = blocks, texts, formats
        self._cells: list[str] = []
        self._column = 0  # of the next cell
        self._kind = self._style = ""
        self._pieces: list[str] = []
        self._is_value = False

    def parse(self, data: bytes) -> None:
        """Raises Full, Unreadable."""
        starts = {"s:row": self._row, "s:c": self._cell, "s:v": self._value, "s:t": self._value}
        ends = {"s:row": self._end_row, "s:c": self._end_cell, "s:v": self._end_value, "s:t": self._end_value}
        parse(data, starts, ends, self._characters, ("s:f", "s:rPh"))

    def _row(self, _: Mapping[str, str]) -> None:
        self._cells, self._column = [], 0

    def _end_row(self) -> None:
        self._blocks.add_row(self._cells)

    def _cell(self, values: Mapping[str, str]) -> None:
        self._kind, self._style, self._pieces = values.get("t", "n"), values.get("s", "0"), []
        column = self._column
        if found := _COLUMN.match(values.get("r", "")):
            column = 0
            for letter in found[0]:
                column = column * 26 + ord(letter) - 64
            column -= 1
        self._cells += [""] * min(max(column - self._column, 0), _WIDEST_GAP)
        self._column = column + 1

    def _value(self, _: Mapping[str, str]) -> None:
        self._is_value = True

    def _end_value(self) -> None:
        self._is_value = False

    def _characters(self, text: str) -> None:
        if self._is_value:
            self._pieces.append(text)

    def _end_cell(self) -> None:
        text = "".join(self._pieces)
        if self._kind == "s":
            text = self._texts[int(text)] if text.isdigit() and int(text) < len(self._texts) else ""
        elif self._kind == "b":
            text = {"1": "TRUE", "0": "FALSE"}.get(text, text)
        elif self._kind == "n" and text:
            text = self._formats.shown(text, self._style)
        self._cells.append(text)
