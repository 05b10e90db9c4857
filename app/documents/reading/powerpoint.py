"""The text of PowerPoint files (.pptx): slides in the order of the presentation, with their notes.

Runs in the child process (reading_process.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from app.documents.reading.blocks import Blocks, Full
from app.documents.reading.document import Document, TextLimit
from app.documents.reading.package import Package, parse

_LEFT_OUT = ("sldNum", "dt", "ftr", "hdr")  # placeholders of a slide's number, date, footer and header
_TITLES = ("title", "ctrTitle")


def read(package: Package, limit: TextLimit) -> Document:
    """Return a presentation by slides. Raises Unreadable."""
    main = package.first_related("", "officeDocument") or "ppt/presentation.xml"
    ids: list[str] = []
    parse(package.read(main), {"p:sldId": lambda values: ids.append(values.get("r:id", ""))})
    related = package.related(main)
    slides = [related[one][1] for one in ids if one in related]
    parts, _ = limit.parts(_slides(package, slides, limit))
    return Document("pptx", parts, len(slides), cut=limit.is_reached)


def _slides(package: Package, slides: list[str], limit: TextLimit) -> Iterator[tuple[str, str]]:
    for name in slides:
        blocks, title = Blocks(limit.left), ""
        with suppress(Full):
            slide = _Slide(package.read(name))
            title = slide.title
            slide.write(blocks)
            if notes := package.first_related(name, "notesSlide"):
                blocks.add(_Slide(package.read(notes)).notes)
        yield blocks.text, title


class _Slide:
    """The shapes of a slide, or of the page with its notes."""

    def __init__(self, data: bytes) -> None:
        self._titles: list[str] = []
        self._shapes: list[tuple[str, list[tuple[str, int]]]] = []  # placeholder, and paragraphs with their levels
        self._tables: list[list[list[str]]] = []
        self._kind, self._level, self._is_text = "", 0, False
        self._paragraphs: list[tuple[str, int]] = []
        self._pieces: list[str] | None = None
        self._order: list[tuple[str, int]] = []  # of shapes and tables
        starts = {"p:sp": self._shape, "p:ph": self._placeholder, "a:p": self._paragraph, "a:pPr": self._properties,
                  "a:t": self._text, "m:t": self._text, "a:br": self._break, "a:tbl": self._table, "a:tr": self._row,
                  "a:tc": self._cell}  # fmt: skip
        ends = {"p:sp": self._end_shape, "a:p": self._end_paragraph, "a:t": self._end_text, "m:t": self._end_text,
                "a:tc": self._end_cell}  # fmt: skip
        parse(data, starts, ends, self._characters, ("mc:Fallback",))

    @property
    def title(self) -> str:
        return " ".join(" ".join(self._titles).split())

    @property
    def notes(self) -> str:
        texts = [text for kind, shape in self._shapes if kind == "body" for text, _ in shape]
        return "Notes: " + "\n".join(texts) if texts else ""

    def write(self, blocks: Blocks) -> None:
        """Write the slide: its title, then shapes and tables in the order of the file. Raises Full."""
        blocks.add(self.title, 1)
        for kind, at in self._order:
            if kind == "table":
                for cells in self._tables[at]:
                    blocks.add_row(cells)
                blocks.end_group()
                continue
            placeholder, paragraphs = self._shapes[at]
            is_list = placeholder in ("body", "obj") and len(paragraphs) > 1
            if is_list:
                for text, level in paragraphs:
                    blocks.add_item(text, level)
                blocks.end_group()
            else:
                blocks.add("\n".join(text for text, _ in paragraphs))

    def _shape(self, _: Mapping[str, str]) -> None:
        self._kind, self._paragraphs = "", []

    def _placeholder(self, values: Mapping[str, str]) -> None:
        self._kind = values.get("type", "obj")

    def _end_shape(self) -> None:
        if self._kind in _TITLES:
            self._titles += [text for text, _ in self._paragraphs]
        elif self._kind not in _LEFT_OUT and self._paragraphs:
            self._order.append(("shape", len(self._shapes)))
            self._shapes.append((self._kind, self._paragraphs))
        self._kind, self._paragraphs = "", []

    def _paragraph(self, _: Mapping[str, str]) -> None:
        self._pieces, self._level = [], 0

    def _properties(self, values: Mapping[str, str]) -> None:
        self._level = int(level) if (level := values.get("lvl", "")).isdigit() and len(level) == 1 else 0

    def _end_paragraph(self) -> None:
        if self._pieces is not None and (text := "".join(self._pieces).strip()):
            self._paragraphs.append((text, self._level))
        self._pieces = None

    def _text(self, _: Mapping[str, str]) -> None:
        self._is_text = True

    def _end_text(self) -> None:
        self._is_text = False

    def _characters(self, text: str) -> None:
        if self._is_text and self._pieces is not None:
            self._pieces.append(text)

    def _break(self, _: Mapping[str, str]) -> None:
        if self._pieces is not None:
            self._pieces.append("\n")

    def _table(self, _: Mapping[str, str]) -> None:
        self._order.append(("table", len(self._tables)))
        self._tables.append([])

    def _row(self, _: Mapping[str, str]) -> None:
        if self._tables:
            self._tables[-1].append([])

    def _cell(self, _: Mapping[str, str]) -> None:
        self._paragraphs = []

    def _end_cell(self) -> None:
        if self._tables and self._tables[-1]:
            self._tables[-1][-1].append(" ".join(text for text, _ in self._paragraphs))
        self._paragraphs = []
