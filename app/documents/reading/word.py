"""The text of Word files (.docx): headings, numbered lists, tables, footnotes. Deleted text is left out.

Runs in the child process (reading_process.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from app.documents.reading.blocks import Blocks, Full, row
from app.documents.reading.document import Document, TextLimit
from app.documents.reading.package import Package, parse

_SKIPPED = ("w:del", "w:moveFrom", "w:pPrChange", "w:rPrChange", "w:sectPrChange", "w:tblPrChange", "mc:Fallback")
_MOST_STYLES = 50  # that are based on each other


def read(package: Package, limit: TextLimit) -> Document:
    """Return a document as one part. Raises Unreadable."""
    main = package.first_related("", "officeDocument") or "word/document.xml"
    styles = _styles(package, package.first_related(main, "styles"))
    numbering = _Numbering(package, package.first_related(main, "numbering"))
    notes: dict[str, str] = {}
    for kind in ("footnotes", "endnotes"):
        if name := package.first_related(main, kind):
            body = _Body(Blocks(limit.left), styles, numbering, kind)
            with suppress(Full):
                body.parse(package.read(name))
            notes |= body.notes
    body = _Body(Blocks(limit.left), styles, numbering)
    with suppress(Full):
        body.parse(package.read(main))
        for number, key in enumerate(body.cited, 1):
            if text := notes.get(key):
                body.blocks.add_item(text, mark=f"[^{number}]:")
    parts, _ = limit.parts([(body.blocks.text, "")])
    return Document("docx", parts, 1, cut=limit.is_reached)


@dataclass
class _Style:
    """The formatting of a paragraph style. level: of a heading, or 0. number: (list, level), or None."""

    name: str = ""
    based_on: str = ""
    level: int = 0
    number: tuple[str, int] | None = None


def _styles(package: Package, name: str) -> dict[str, _Style]:
    found: dict[str, _Style] = {}
    style = _Style()

    def begin(values: Mapping[str, str]) -> None:
        nonlocal style
        style = found[values.get("w:styleId", "")] = _Style()

    def named(values: Mapping[str, str]) -> None:
        style.name = values.get("w:val", "").lower()
        kind, _, level = style.name.partition(" ")
        if kind == "heading" and level.isdigit():
            style.level = min(int(level), 6)
        elif style.name == "title":
            style.level = 1

    def based(values: Mapping[str, str]) -> None:
        style.based_on = values.get("w:val", "")

    def outline(values: Mapping[str, str]) -> None:
        level = _whole(values.get("w:val"), 9)
        style.level = style.level or (level + 1 if level < 6 else 0)

    def level_of(values: Mapping[str, str]) -> None:
        style.number = (style.number[0] if style.number else "", _whole(values.get("w:val"), 0))

    def list_of(values: Mapping[str, str]) -> None:
        style.number = (values.get("w:val", ""), style.number[1] if style.number else 0)

    if name:
        parse(
            package.read(name),
            {"w:style": begin, "w:name": named, "w:basedOn": based, "w:outlineLvl": outline, "w:ilvl": level_of,
             "w:numId": list_of},
            skipped=_SKIPPED,
        )  # fmt: skip
    for one in found.values():
        base = one
        for _ in range(_MOST_STYLES):
            if base.based_on not in found:
                break
            base = found[base.based_on]
            one.level, one.number = one.level or base.level, one.number or base.number
    return found


# --- numbers of lists


@dataclass
class _Level:
    start: int = 1
    kind: str = "decimal"
    text: str = "%1."


class _Numbering:
    """The labels of numbered paragraphs, counted in the order of the text."""

    def __init__(self, package: Package, name: str) -> None:
        self._lists: dict[str, str] = {}  # the kind of list that a list is of
        self._levels: dict[str, dict[int, _Level]] = {}  # by kind of list
        self._counts: dict[str, dict[int, int]] = {}
        self._kind, self._level, self._list = "", _Level(), ""
        if name:
            starts = {"w:abstractNum": self._of_kind, "w:lvl": self._of_level, "w:start": self._set_start,
                      "w:numFmt": self._set_format, "w:lvlText": self._set_text, "w:num": self._of_list,
                      "w:abstractNumId": self._set_kind}  # fmt: skip
            parse(package.read(name), starts, skipped=("mc:Fallback", "w:lvlOverride"))

    def _of_kind(self, values: Mapping[str, str]) -> None:
        self._kind = values.get("w:abstractNumId", "")

    def _of_level(self, values: Mapping[str, str]) -> None:
        self._level = _Level()
        self._levels.setdefault(self._kind, {})[_whole(values.get("w:ilvl"), 0)] = self._level

    def _set_start(self, values: Mapping[str, str]) -> None:
        self._level.start = _whole(values.get("w:val"), 1)

    def _set_format(self, values: Mapping[str, str]) -> None:
        self._level.kind = values.get("w:val", "")

    def _set_text(self, values: Mapping[str, str]) -> None:
        self._level.text = values.get("w:val", "")[:100]

    def _of_list(self, values: Mapping[str, str]) -> None:
        self._list = values.get("w:numId", "")

    def _set_kind(self, values: Mapping[str, str]) -> None:
        self._lists[self._list] = values.get("w:val", "")

    def label(self, number: tuple[str, int]) -> str:
        """Return the next label of a list's level: "-", "2.1", "c)". "": the paragraph has none."""
        kind, at = self._lists.get(number[0], ""), number[1]
        levels = self._levels.get(kind, {})
        level = levels.get(at)
        if number[0] == "0" or level is None or level.kind == "none":
            return ""
        if level.kind == "bullet":
            return "-"
        counts = self._counts.setdefault(kind, {})
        counts[at] = counts.get(at, level.start - 1) + 1
        for deeper in [one for one in counts if one > at]:
            del counts[deeper]
        label = level.text
        for upper, settings in levels.items():
            count = counts.get(upper, settings.start)
            label = label.replace(f"%{upper + 1}", _numeral(count, settings.kind))
        return label.strip()


def _numeral(n: int, kind: str) -> str:
    if kind in ("lowerLetter", "upperLetter") and 0 < n <= 26:
        return chr((97 if kind == "lowerLetter" else 65) + n - 1)
    if kind in ("lowerRoman", "upperRoman") and 0 < n < 4000:
        text = ""
        for value, letters in ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"),
                               (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")):  # fmt: skip
            text += letters * (n // value)
            n %= value
        return text if kind == "lowerRoman" else text.upper()
    return str(n)


def _whole(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 7 else default


# --- the text


@dataclass
class _Paragraph:
    pieces: list[str] = field(default_factory=list)
    style: str = ""
    list: str = ""
    list_level: int | None = None
    level: int = 0


class _Body:
    """Turns the elements of a part into blocks. cited: ids of notes in the order of the text. notes: their texts."""

    def __init__(
        self, blocks: Blocks, styles: Mapping[str, _Style], numbering: _Numbering, notes_kind: str = ""
    ) -> None:
        self.blocks, self._styles, self._numbering, self._notes_kind = blocks, styles, numbering, notes_kind
        self.cited: list[str] = []
        self.notes: dict[str, str] = {}
        self._note: str | None = None
        self._note_texts: list[str] = []
        self._paragraphs: list[_Paragraph] = []
        self._tables: list[list[list[str]]] = []  # the cells of the open row of each open table, each cell's paragraphs
        self._is_text = False

    def parse(self, data: bytes) -> None:
        starts = {"w:p": self._paragraph, "w:t": self._text, "m:t": self._text, "w:tab": self._tab, "w:br": self._break,
                  "w:cr": self._break, "w:noBreakHyphen": self._hyphen, "w:pStyle": self._style, "w:numId": self._list,
                  "w:ilvl": self._list_level, "w:outlineLvl": self._outline, "w:footnoteReference": self._cite_footnote,
                  "w:endnoteReference": self._cite_endnote, "w:tbl": self._table, "w:tr": self._row, "w:tc": self._cell,
                  "w:footnote": self._begin_note, "w:endnote": self._begin_note}  # fmt: skip
        ends = {"w:p": self._end_paragraph, "w:t": self._end_text, "m:t": self._end_text, "w:tr": self._end_row,
                "w:tbl": self._end_table, "w:footnote": self._end_note, "w:endnote": self._end_note}  # fmt: skip
        parse(data, starts, ends, self._characters, _SKIPPED)

    def _put(self, text: str) -> None:
        if self._paragraphs:
            self._paragraphs[-1].pieces.append(text)

    def _characters(self, text: str) -> None:
        if self._is_text:
            self._put(text)

    def _text(self, _: Mapping[str, str]) -> None:
        self._is_text = True

    def _end_text(self) -> None:
        self._is_text = False

    def _tab(self, _: Mapping[str, str]) -> None:
        self._put("\t")

    def _break(self, _: Mapping[str, str]) -> None:
        self._put("\n")

    def _hyphen(self, _: Mapping[str, str]) -> None:
        self._put("-")

    def _cite_footnote(self, values: Mapping[str, str]) -> None:
        self._cite(f"footnotes {values.get('w:id')}")

    def _cite_endnote(self, values: Mapping[str, str]) -> None:
        self._cite(f"endnotes {values.get('w:id')}")

    def _cite(self, key: str) -> None:
        if not self._notes_kind:
            self.cited.append(key)
            self._put(f"[^{len(self.cited)}]")

    def _begin_note(self, values: Mapping[str, str]) -> None:
        self._note, self._note_texts = f"{self._notes_kind} {values.get('w:id')}", []

    def _end_note(self) -> None:
        if self._note is not None:
            self.notes[self._note] = " ".join(" ".join(self._note_texts).split())
        self._note = None

    # --- paragraphs

    def _paragraph(self, _: Mapping[str, str]) -> None:
        self._paragraphs.append(_Paragraph())

    def _style(self, values: Mapping[str, str]) -> None:
        if self._paragraphs:
            self._paragraphs[-1].style = values.get("w:val", "")

    def _list(self, values: Mapping[str, str]) -> None:
        if self._paragraphs:
            self._paragraphs[-1].list = values.get("w:val", "")

    def _list_level(self, values: Mapping[str, str]) -> None:
        if self._paragraphs:
            self._paragraphs[-1].list_level = _whole(values.get("w:val"), 0)

    def _outline(self, values: Mapping[str, str]) -> None:
        level = _whole(values.get("w:val"), 9)
        if self._paragraphs and level < 6:
            self._paragraphs[-1].level = level + 1

    def _end_paragraph(self) -> None:
        if not self._paragraphs:
            return
        paragraph = self._paragraphs.pop()
        style = self._styles.get(paragraph.style, _Style())
        level, (of_style, at) = paragraph.level or style.level, style.number or ("", 0)
        number = paragraph.list or of_style, at if paragraph.list_level is None else paragraph.list_level
        text = "".join(paragraph.pieces).strip()
        label = self._numbering.label(number) if text and number[0] else ""
        if self._note is not None:
            self._note_texts.append(text)
        elif self._tables:
            if self._tables[-1]:
                self._tables[-1][-1].append(f"{label} {text}" if label else text)
        elif level:
            self.blocks.add(f"{label} {text}".strip(), level)
        elif label:
            self.blocks.add_item(text, number[1], label)
        else:
            self.blocks.add(text)

    # --- tables

    def _table(self, _: Mapping[str, str]) -> None:
        self._tables.append([])

    def _row(self, _: Mapping[str, str]) -> None:
        if self._tables:
            self._tables[-1].clear()

    def _cell(self, _: Mapping[str, str]) -> None:
        if self._tables:
            self._tables[-1].append([])

    def _end_row(self) -> None:
        if not self._tables:
            return
        cells = [" ".join(paragraphs) for paragraphs in self._tables[-1]]
        if len(self._tables) == 1 and self._note is None:
            self.blocks.add_row(cells)
        elif len(self._tables) > 1 and self._tables[-2]:  # a table in a cell
            self._tables[-2][-1].append(row(cells))
        self._tables[-1].clear()

    def _end_table(self) -> None:
        if self._tables:
            self._tables.pop()
        if not self._tables:
            self.blocks.end_group()
