"""A chat laid out on pages, for a printer or a PDF file: always in light colours, formulas as outlines.

`prepare` parses in any thread. PrintedChat lays out and paints in the main thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from PySide6.QtCore import QByteArray, QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QColor,
    QFont,
    QFontMetricsF,
    QPagedPaintDevice,
    QPainter,
    QPalette,
    QTextBlock,
    QTextDocument,
    QTextFormat,
    QTextOption,
)
from PySide6.QtSvg import QSvgRenderer

from app.chat.exports.outline import Entry, Outline, section_title, version_words
from app.diagrams.plain_svg import PlainSvg
from app.diagrams.process import draw
from app.text.block_parser import parse
from app.text.code_colours import coloured_parts
from app.text.markdown_blocks import Block, CodeBlock, TableBlock
from app.text.plain_text import rows_behind
from app.text.text_pages import broken
from app.text.web_html import DIAGRAM, plain_html
from app.translation import figure, tr
from app.ui.look import formulas, theme
from app.ui.transcript.text.document_style import LIST_INDENT, directed, table_sheet

LAYOUT_DPI = 96
SCALE = 0.85  # of the window's text: 9.6 points
MARGIN_MM = 18.0
HIGHEST_PX = 700  # of a diagram at zoom 1: it fits on a page
EDGE_PX = 8  # above the first line of a page: the padding of a box
HEAD_PX, FOOT_PX = 34, 34  # at zoom 1: title and date above the text, page numbers below
_END_OF_TABLE = "</tbody></table>"
_DATA_TABLE = '<table width="100%" cellspacing="0" cellpadding="0">'


@dataclass(frozen=True)
class Prepared:
    """A chat as HTML for Qt's rich text, and its formulas."""

    title: str
    day: str
    html: str
    formulas: Mapping[str, formulas.Outline | None]
    diagrams: Mapping[str, PlainSvg]


def prepare(chat: Outline) -> Prepared:
    """Parse a chat and lay out its formulas. Any thread."""
    diagrams: dict[str, PlainSvg] = {}
    html = "".join(_body(chat, diagrams))
    outlines = {source: formulas.outline_of(source) for source in dict.fromkeys(formulas.sources_in(html))}
    html = formulas.shown(html, lambda source: outlines.get(source) is None)
    return Prepared(chat.title, chat.day, directed(html), outlines, diagrams)


def _body(chat: Outline, diagrams: dict[str, PlainSvg]) -> Iterator[str]:
    yield f'<p class="title">{escape(chat.title)}</p>'
    for section in chat.sections:
        if not section.is_shown:
            yield f'<hr/><p class="h1">{escape(section_title(section))}</p>'
        for entry in section.entries:
            yield from _entry_html(entry, diagrams)


def _entry_html(entry: Entry, diagrams: dict[str, PlainSvg]) -> Iterator[str]:
    version = f"   {escape(version_words(entry))}" if version_words(entry) else ""
    yield f'<p class="who">{escape(entry.speaker)}<span class="meta">{version}</span></p>'
    for name in entry.attachments:
        yield f'<p class="meta">{escape(tr("Attached: {name}", name=name))}</p>'
    if entry.thought:
        yield from _boxed("quote", f'<p class="meta">{tr("Thought")}</p>{plain_html(broken(entry.thought))}')
    if entry.is_own:
        if entry.text.strip():
            yield from _boxed("own", plain_html(broken(entry.text)))
    else:
        for block in parse(entry.text):
            source = block.code if isinstance(block, CodeBlock) and block.language == DIAGRAM else ""
            drawing = draw(source, vars(theme.LIGHT)) if source else None
            if drawing is not None:
                diagrams[source] = drawing
                attribute = escape(source).replace("\n", "&#10;")
                yield f'<p class="diagram"><img src="{DIAGRAM}" alt="{attribute}"/></p>'
            else:
                yield from _block_html(block)
    for line in (*entry.calls, entry.note):
        if line:
            yield f'<p class="meta">{escape(line)}</p>'


def _block_html(block: Block) -> Iterator[str]:
    if isinstance(block, CodeBlock):
        colours = vars(theme.LIGHT)
        parts = (
            f'<span style="color: {colours[colour]}">{escape(text)}</span>' if colour else escape(text)
            for text, colour in coloured_parts(block.language, broken(block.code.expandtabs(4)))
        )
        yield from _boxed("code", "".join(parts), block.depth)
    elif isinstance(block, TableBlock):
        html = block.html.replace(_DATA_TABLE, '<table class="data" width="100%" cellspacing="0" cellpadding="0">')
        further = (rows.rstrip().removesuffix(_END_OF_TABLE).removeprefix("<tbody>") for rows in rows_behind(block))
        yield "".join((html.rstrip().removesuffix(_END_OF_TABLE), *further, _END_OF_TABLE))
    else:
        yield block.html.replace(_DATA_TABLE, '<table class="data" width="100%" cellspacing="0" cellpadding="0">')


def _boxed(kind: str, html: str, depth: int = 0) -> Iterable[str]:
    margin = f' style="margin-left: {depth * theme.px(LIST_INDENT)}px"' if depth else ""
    table = f'<table class="{kind}" width="100%" cellspacing="0" cellpadding="0"{margin}>'
    return (f'{table}<tr><td class="{kind}">{html}</td></tr></table>',)


def _style() -> str:
    t, px = theme.LIGHT, theme.px
    sheet = re.sub(r"(?m)^(\s*)(th|td) \{", r"\1table.data \2 {", table_sheet(t))
    return f"""{sheet}
    .title {{ font-size: {px(22)}px; font-weight: 600; line-height: {px(29)}px; margin: 0 0 {px(4)}px 0;
              color: {t.ink}; }}
    .who {{ font-size: {px(15)}px; font-weight: 600; margin: {px(20)}px 0 {px(6)}px 0; color: {t.ink}; }}
    .meta {{ font-size: {px(12)}px; font-weight: 400; line-height: {px(16)}px; margin: 0 0 {px(6)}px 0;
             color: {t.ink3}; }}
    table.data {{ margin: {px(4)}px 0 {px(14)}px 0; }}
    table.own, table.code {{ margin: {px(5)}px 0 {px(12)}px 0; }}
    .diagram {{ margin: {px(6)}px 0 {px(12)}px 0; }}
    td.own {{ background-color: {t.bubble}; padding: {px(9)}px {px(14)}px {px(5)}px {px(14)}px; }}
    td.own p {{ margin: 0 0 {px(4)}px 0; }}
    td.code {{ background-color: {t.sunken}; padding: {px(8)}px {px(12)}px {px(8)}px {px(12)}px;
               font-family: {", ".join(f"'{family}'" for family in theme.families(mono=True))}; font-size: {px(12.5)}px;
               line-height: {px(19)}px; -qt-line-height-type: minimum; white-space: pre-wrap; }}
    """


class _PrintedFormulas(formulas.FormulaObject):
    """The formulas and diagrams of a printed chat, which are all drawn already."""

    def __init__(self, document: QTextDocument, prepared: Prepared) -> None:
        super().__init__(document)
        self._outlines, self._diagrams = prepared.formulas, prepared.diagrams

    def intrinsicSize(self, document: QTextDocument, position: int, form: QTextFormat) -> QSizeF:
        drawing = self._diagram(form)
        if drawing is None:
            return super().intrinsicSize(document, position, form)
        room, most, zoom = document.textWidth(), theme.px(HIGHEST_PX), theme.current().zoom
        scale = min(zoom, room / drawing.width if room > 0 else zoom, most / drawing.height)
        return QSizeF(drawing.width * scale, drawing.height * scale)

    def drawObject(
        self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, form: QTextFormat
    ) -> None:
        drawing = self._diagram(form)
        if drawing is None:
            super().drawObject(painter, rect, document, position, form)
        else:
            QSvgRenderer(QByteArray(drawing.text.encode())).render(painter, QRectF(rect))

    def _diagram(self, form: QTextFormat) -> PlainSvg | None:
        if form.toImageFormat().name() != DIAGRAM:
            return None
        return self._diagrams.get(str(form.property(QTextFormat.Property.ImageAltText) or ""))

    def outline(self, source: str) -> formulas.Outline | None:
        return self._outlines.get(source)

    def miss(self, source: str) -> None:
        """Do nothing: nothing comes later."""

    def ink(self) -> QColor:
        return QColor(theme.LIGHT.ink)


class _Span(NamedTuple):
    """A part of the column. goes_on: it stays with the part below it."""

    top: float
    bottom: float
    goes_on: bool


class PrintedChat:
    """A chat that can be painted on pages of any size."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._document = QTextDocument()
        self._document.setUndoRedoEnabled(False)
        self._document.setUseDesignMetrics(True)  # the pages are scaled
        self._document.setDocumentMargin(0)
        self._document.setDefaultFont(_plain_shapes(theme.font("body")))
        self._document.setIndentWidth(theme.px(LIST_INDENT))
        option = self._document.defaultTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self._document.setDefaultTextOption(option)
        self._document.setDefaultStyleSheet(_style())
        self._formulas = _PrintedFormulas(self._document, prepared)
        self._document.setHtml(prepared.html)
        self._tops: list[float] = []  # of the pages in the document, and its end

    @property
    def title(self) -> str:
        """The chat's title."""
        return self._prepared.title

    @property
    def document(self) -> QTextDocument:
        """The document, laid out for the last page size."""
        return self._document

    def lay_out(self, size: QSizeF) -> int:
        """Lay out for pages of that size, in px of the window, without head and foot. Return the number of pages.

        The document is one column. It is cut between lines, since Qt's own pages cut lines in table cells.
        """
        self._document.setTextWidth(size.width())
        spans = self._spans()
        self._tops = tops = [0.0]
        first = 0
        while first < len(spans):
            last = first
            while last + 1 < len(spans) and spans[last + 1].bottom <= tops[-1] + size.height():
                last += 1
            if last + 1 < len(spans):
                kept = last
                while kept > first and spans[kept].goes_on:  # such as a heading
                    kept -= 1
                last = kept if kept > first else last
                gap = spans[last + 1].top - spans[last].bottom
                tops.append(spans[last + 1].top - min(max(gap, 0.0), theme.px(EDGE_PX)))
            first = last + 1
        tops.append(self._document.size().height() + theme.px(EDGE_PX))
        return len(tops) - 1

    def _spans(self) -> list[_Span]:
        """Return the parts of the column that must not be cut: lines, or the lines beside each other in a table."""
        layout, spans = self._document.documentLayout(), []
        block = self._document.begin()
        while block.isValid():
            top, lines, is_heading = layout.blockBoundingRect(block).top(), block.layout(), _is_heading(block)
            for number in range(lines.lineCount()):
                line = lines.lineAt(number)
                spans.append(_Span(top + line.y(), top + line.y() + line.height(), is_heading))
            block = block.next()
        spans.sort()
        merged: list[_Span] = []
        for span in spans:
            if merged and span.top < merged[-1].bottom - 1:
                before = merged[-1]
                merged[-1] = _Span(before.top, max(before.bottom, span.bottom), before.goes_on and span.goes_on)
            else:
                merged.append(span)
        return merged

    def paint(self, device: QPagedPaintDevice, first: int = 1, last: int = 0) -> bool:
        """Paint the pages, from `first` to `last` (0: all). Return whether the device could be painted on."""
        painter = QPainter()
        if not painter.begin(device):
            return False
        scale = device.logicalDpiX() / LAYOUT_DPI * SCALE / theme.current().zoom
        width, height = device.width() / scale, device.height() / scale
        head, foot = theme.px(HEAD_PX), theme.px(FOOT_PX)
        count = self.lay_out(QSizeF(width, height - head - foot))
        painter.scale(scale, scale)
        for number in range(max(first, 1), min(last or count, count) + 1):
            if number > max(first, 1) and not device.newPage():
                painter.end()
                return False
            self._paint_page(painter, number, count, QRectF(0, 0, width, height))
        return painter.end()

    def _paint_page(self, painter: QPainter, number: int, count: int, page: QRectF) -> None:
        head, top, end = theme.px(HEAD_PX), self._tops[number - 1], self._tops[number]
        painter.setFont(_small())
        painter.setPen(QColor(theme.LIGHT.ink3))
        line = QFontMetricsF(_small(), painter.device()).height()
        above = QRectF(page.left(), page.top(), page.width(), line)
        day = self._prepared.day
        room = page.width() - painter.fontMetrics().horizontalAdvance(day) - theme.px(24)
        title = painter.fontMetrics().elidedText(self._prepared.title, Qt.TextElideMode.ElideRight, int(room))
        painter.drawText(above, Qt.AlignmentFlag.AlignLeft, title)
        painter.drawText(above, Qt.AlignmentFlag.AlignRight, day)
        place = tr("Page {number} of {count}", number=figure(number), count=figure(count))
        painter.drawText(
            QRectF(page.left(), page.bottom() - line, page.width(), line), Qt.AlignmentFlag.AlignHCenter, place
        )
        painter.save()
        painter.translate(0, head - top)
        context = QAbstractTextDocumentLayout.PaintContext()
        # Qt draws the lines that touch this, and one more of a paragraph that began on the page before: both unseen.
        context.clip = QRectF(0, top + 1, page.width(), end - top - 2)
        context.palette.setColor(QPalette.ColorRole.Text, QColor(theme.LIGHT.ink))
        painter.setClipRect(QRectF(0, top, page.width(), end - top))
        self._document.documentLayout().draw(painter, context)
        painter.restore()


def _plain_shapes(font: QFont) -> QFont:
    """Switch off contextual shapes, such as a raised "+" in "C++", and ligatures: a PDF file has no text for them."""
    for feature in ("calt", "case", "liga", "tnum"):
        font.setFeature(QFont.Tag(feature), 0)
    return font


def _small() -> QFont:
    return _plain_shapes(theme.font("meta"))


def _is_heading(block: QTextBlock) -> bool:
    form = block.charFormat()
    return bool(form.fontWeight() == 600 and form.intProperty(QTextFormat.Property.FontPixelSize) >= theme.px(15))
