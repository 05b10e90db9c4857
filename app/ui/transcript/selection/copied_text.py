"""Converts a document of an answer to copied text: list markers, tabs between cells, formulas as LaTeX."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData
from PySide6.QtGui import (
    QGuiApplication,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextList,
    QTextListFormat,
    QTextTable,
)

from app.later import Later
from app.text.markdown_blocks import Block, CodeBlock, TableBlock, without_padding
from app.text.web_html import answer_html, document_html, plain_html

if TYPE_CHECKING:
    from app.ui.look import formulas
else:
    formulas = Later("app.ui.look.formulas")

MOST_FORMATTED = 60_000  # characters of a message that is also copied as HTML: its parsing takes 0.03 to 0.1 s
OBJECT = "\ufffc"  # a formula in a document's text
_BAR = re.compile(r"(?<!\\)\|")  # between two cells of a row
_TORN_PADDING = re.compile("^\u00a0?\u2060|\u2060\u00a0?$")  # of inline code that was cut at its end
_NUMBERED = {
    QTextListFormat.Style.ListDecimal, QTextListFormat.Style.ListLowerAlpha, QTextListFormat.Style.ListUpperAlpha,
    QTextListFormat.Style.ListLowerRoman, QTextListFormat.Style.ListUpperRoman,
}  # fmt: skip
_BOXES = {QTextBlockFormat.MarkerType.Checked: "[x] ", QTextBlockFormat.MarkerType.Unchecked: "[ ] "}


def copy_message_text(text: str, is_answer: bool) -> None:
    """Copy a message as it was written, and as HTML for other programs' documents."""
    data = QMimeData()
    data.setText(text)
    if len(text) <= MOST_FORMATTED:
        data.setHtml(document_html(answer_html(text) if is_answer else plain_html(text)))
    QGuiApplication.clipboard().setMimeData(data)


def block_text(block: Block) -> str:
    """Return the copied text of a whole block; nothing is laid out."""
    if isinstance(block, CodeBlock):
        return block.code
    document = QTextDocument()
    document.setHtml(formulas.shown(block.html))
    if not isinstance(block, TableBlock):
        return running_text(document, 0, document.characterCount() - 1)
    rows = [table_text(document, 0, document.characterCount() - 1)]
    # Rows of a long table that are not shown are in no document.
    rows += ["\t".join(cell.strip() for cell in _cells(line)) for line in block.rest.split("\n") if line.strip()]
    return "\n".join(rows)


def _cells(line: str) -> list[str]:
    line = line.strip().removeprefix("|")
    return _BAR.split(line[:-1] if line.endswith("|") and not line.endswith("\\|") else line)


def span(document: QTextDocument, start: int, end: int) -> QTextCursor:
    """Return a cursor that selects from start to end, both in UTF-16 units, as Qt counts."""
    cursor = QTextCursor(document)
    last = document.characterCount() - 1
    cursor.setPosition(min(start, last))
    cursor.setPosition(min(end, last), QTextCursor.MoveMode.KeepAnchor)
    return cursor


def verbatim(document: QTextDocument, start: int, end: int) -> str:
    """Return the characters as they are in the document, including no-break spaces."""
    return span(document, start, end).selectedText().replace("\u2029", "\n").replace("\u2028", "\n")


def running_text(document: QTextDocument, start: int, end: int) -> str:
    """Return running text with list markers and a blank line between paragraphs."""
    out: list[str] = []
    before: QTextBlock | None = None
    lists: list[QTextList] = []  # lists without a paragraph between them, including nested ones
    block = document.findBlock(start)
    while block.isValid() and block.position() < end:
        begin = max(start, block.position())
        last = block.position() + block.length() - 1
        text = copied_text(span(document, begin, min(end, last)))
        if end >= last:  # a list within an item leaves a space before it
            text = text.rstrip(" ")
        ruler = block.blockFormat().hasProperty(QTextFormat.Property.BlockTrailingHorizontalRulerWidth)
        if ruler and not text:
            text = "---"
        if text:
            if out:
                out.append("\n" if before is not None and _belongs(before, block, lists) else "\n\n")
            out.append((_marker(block) if begin == block.position() else "") + text)
            points = block.textList()
            lists = [*lists, points] if points is not None else []
            before = block
        block = block.next()
    return "".join(out)


def _belongs(before: QTextBlock, block: QTextBlock, lists: list[QTextList]) -> bool:
    """Return whether two paragraphs are on consecutive lines: list items, or lines of code."""
    first, second = before.textList(), block.textList()
    if first is not None and second is not None:
        return second in lists or second.format().indent() > first.format().indent()
    return before.blockFormat().nonBreakableLines() and block.blockFormat().nonBreakableLines()


def _marker(block: QTextBlock) -> str:
    points = block.textList()
    if points is None:
        return ""
    numbered = points.format().style() in _NUMBERED
    mark = points.itemText(block).strip() if numbered else "-"
    return "  " * (points.format().indent() - 1) + f"{mark} " + _BOXES.get(block.blockFormat().marker(), "")


def table_in(document: QTextDocument) -> QTextTable | None:
    """Return the table of a document that holds one table and nothing else."""
    return next((frame for frame in document.rootFrame().childFrames() if isinstance(frame, QTextTable)), None)


def table_text(document: QTextDocument, start: int, end: int) -> str:
    """Return the cells from start to end, separated by tabs, as spreadsheets expect."""
    table = table_in(document)
    if table is None:
        return running_text(document, start, end)
    rows: list[str] = []
    for row in range(table.rows()):
        words: list[str] = []
        for column in range(table.columns()):
            cell = table.cellAt(row, column)
            first, last = cell.firstPosition(), cell.lastPosition()
            if last < start or first > end or (first < last and (last == start or first == end)):
                continue
            inside = copied_text(span(document, max(first, start), min(last, end)))
            words.append(inside.replace("\n", " "))
        if words:
            rows.append("\t".join(words))
    return "\n".join(rows)


def copied_text(cursor: QTextCursor) -> str:
    """Return the selected text as written: formulas as LaTeX with delimiters, no padding.

    A formula is one object character; its format's ImageAltText holds the LaTeX.
    """
    text = _TORN_PADDING.sub("", without_padding(cursor.selectedText())).replace("\u00a0", " ")
    text = text.replace("\u2029", "\n").replace("\u2028", "\n")
    if OBJECT in text:
        sources = iter(formulas_in(cursor))
        text = re.sub(OBJECT, lambda _: next(sources, ""), text)
    return text


def formulas_in(cursor: QTextCursor) -> list[str]:
    """Return the LaTeX of the object characters in a selection, in order; empty for objects without it."""
    first, end = cursor.selectionStart(), cursor.selectionEnd()
    document, found = cursor.document(), []
    line = document.findBlock(first)
    while line.isValid() and line.position() < end:
        pieces = line.begin()
        while not pieces.atEnd():
            piece = pieces.fragment()
            begin = piece.position()
            if piece.charFormat().isImageFormat():
                source = str(piece.charFormat().property(QTextFormat.Property.ImageAltText) or "")
                found += [source] * (min(begin + piece.length(), end) - max(begin, first))
            pieces += 1
        line = line.next()
    return found
