"""A chat laid out on pages, for a printer or a PDF file: always in light colours, formulas as outlines.

`prepare` parses in any thread. PrintedChat lays out and paints in the thread that made it, in steps: a chat is divided
into documents of a few messages, because Qt lets no other Python thread run while it reads or lays out one document.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
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
PART_CHARS = 10_000  # of HTML; then the next message begins another document
ABOVE_SPEAKER_PX = 20  # at zoom 1
HEAD_PX, FOOT_PX = 34, 34  # at zoom 1: title and date above the text, page numbers below
LAYOUT_SHARE = 0.7  # of the time, for progress
_END_OF_TABLE = "</tbody></table>"
_DATA_TABLE = '<table width="100%" cellspacing="0" cellpadding="0">'


@dataclass(frozen=True)
class Prepared:
    """A chat as HTML for Qt's rich text, and its formulas."""

    title: str
    day: str
    parts: tuple[str, ...]  # HTML, each of a document; all but the first begin with a speaker
    formulas: Mapping[str, formulas.Outline | None]
    diagrams: Mapping[str, PlainSvg]


def prepare(chat: Outline) -> Prepared:
    """Parse a chat and lay out its formulas. Any thread."""
    diagrams: dict[str, PlainSvg] = {}
    parts = list(_parts(chat, diagrams))
    sources = dict.fromkeys(source for html in parts for source in formulas.sources_in(html))
    outlines = {source: formulas.outline_of(source) for source in sources}
    shown = (formulas.shown(html, lambda source: outlines.get(source) is None) for html in parts)
    return Prepared(chat.title, chat.day, tuple(map(directed, shown)), outlines, diagrams)


def _parts(chat: Outline, diagrams: dict[str, PlainSvg]) -> Iterator[str]:
    """Yield the HTML in parts, each of whole messages."""
    part = f'<p class="title">{escape(chat.title)}</p>'
    for section in chat.sections:
        if not section.is_shown:
            part += f'<hr/><p class="h1">{escape(section_title(section))}</p>'
        for number, entry in enumerate(section.entries):
            if number and len(part) > PART_CHARS:
                yield part
                part = ""
            part += "".join(_entry_html(entry, diagrams))
    yield part


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
    .who {{ font-size: {px(15)}px; font-weight: 600; margin: {px(ABOVE_SPEAKER_PX)}px 0 {px(6)}px 0;
            color: {t.ink}; }}
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


class _Part(NamedTuple):
    """A document of the column, and where it begins. formulas: must live as long as the document."""

    document: QTextDocument
    formulas: _PrintedFormulas
    top: float


class PrintedChat:
    """A chat that can be painted on pages of any size."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._size = QSizeF()  # page size of the current layout
        self._parts: list[_Part] = []
        self._tops: list[float] = []  # of the pages in the column, and its end

    @property
    def title(self) -> str:
        """The chat's title."""
        return self._prepared.title

    @property
    def n_pages(self) -> int:
        """The number of pages of the last layout."""
        return len(self._tops) - 1

    @property
    def documents(self) -> list[QTextDocument]:
        """The documents, laid out for the last page size."""
        return [part.document for part in self._parts]

    def lay_out(self, size: QSizeF) -> Iterator[float]:
        """Lay out in steps for pages of that size, in px of the window, without head and foot. Yield the share that is
        done.

        All documents are one column. It is cut between lines, since Qt's own pages cut lines in table cells.
        """
        if size == self._size:
            return
        self._size, parts = QSizeF(), self._prepared.parts
        spans: list[_Span] = []
        end, known, self._parts = 0.0, self._parts, []
        for number, html in enumerate(parts):
            if number < len(known):
                document, handler, _ = known[number]
            else:
                document = self._document(html)
                yield (number + 0.5) / len(parts)
                handler = _PrintedFormulas(document, self._prepared)
            document.setTextWidth(size.width())
            top = end + theme.px(ABOVE_SPEAKER_PX) if number else 0.0  # Qt drops margins at the ends of a document
            self._parts.append(_Part(document, handler, top))
            yield (number + 0.8) / len(parts)
            spans += [_Span(top + one.top, top + one.bottom, one.goes_on) for one in _spans(document)]
            end = top + document.size().height()
            yield (number + 1) / len(parts)
        self._tops = _cut(spans, size.height())
        self._tops.append(end + theme.px(EDGE_PX))
        self._size = size

    def _document(self, html: str) -> QTextDocument:
        document = QTextDocument()
        document.setUndoRedoEnabled(False)
        document.setUseDesignMetrics(True)  # the pages are scaled
        document.setDocumentMargin(0)
        document.setDefaultFont(_plain_shapes(theme.font("body")))
        document.setIndentWidth(theme.px(LIST_INDENT))
        option = document.defaultTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        document.setDefaultTextOption(option)
        document.setDefaultStyleSheet(_style())
        document.setHtml(html)
        return document

    def paint(self, device: QPagedPaintDevice, first: int = 1, last: int = 0) -> bool:
        """Paint the pages, from `first` to `last` (0: all). Return whether the device could be painted on."""
        steps = self.paint_steps(device, first, last)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    def lay_out_for(self, device: QPagedPaintDevice) -> Generator[float, None, None]:
        """Lay out in steps for the pages of a device. Yield the share that is done."""
        _, page = _page_of(device)
        yield from self.lay_out(QSizeF(page.width(), page.height() - theme.px(HEAD_PX) - theme.px(FOOT_PX)))

    def paint_steps(self, device: QPagedPaintDevice, first: int = 1, last: int = 0) -> Generator[float, None, bool]:
        """Paint as `paint` does, in steps. Yield the share that is done."""
        for share in self.lay_out_for(device):
            yield LAYOUT_SHARE * share
        painter = QPainter()
        if not painter.begin(device):
            return False
        try:
            scale, page = _page_of(device)
            painter.scale(scale, scale)
            count, part = self.n_pages, 0
            first, last = max(first, 1), min(last or count, count)
            for number in range(first, last + 1):
                if number > first and not device.newPage():
                    return False
                part = self._paint_page(painter, number, page, part)
                yield LAYOUT_SHARE + (1 - LAYOUT_SHARE) * (number - first + 1) / (last - first + 1)
        finally:
            is_painted = painter.end()
        return is_painted

    def _paint_page(self, painter: QPainter, number: int, page: QRectF, part: int) -> int:
        """Paint a page, which begins in that part or a later one. Return the part in which the next one may begin."""
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
        place = tr("Page {number} of {count}", number=figure(number), count=figure(self.n_pages))
        painter.drawText(
            QRectF(page.left(), page.bottom() - line, page.width(), line), Qt.AlignmentFlag.AlignHCenter, place
        )
        painter.save()
        painter.translate(0, head - top)
        painter.setClipRect(QRectF(0, top, page.width(), end - top))
        context = QAbstractTextDocumentLayout.PaintContext()
        context.palette.setColor(QPalette.ColorRole.Text, QColor(theme.LIGHT.ink))
        while part + 1 < len(self._parts) and self._parts[part + 1].top <= top:
            part += 1
        for one in self._parts[part:]:
            if one.top >= end:
                break
            # Qt draws the lines that touch this, and one more of a paragraph that began on the page before: both
            # unseen.
            context.clip = QRectF(0, top - one.top + 1, page.width(), end - top - 2)
            painter.save()
            painter.translate(0, one.top)
            one.document.documentLayout().draw(painter, context)
            painter.restore()
        painter.restore()
        return part


def _page_of(device: QPagedPaintDevice) -> tuple[float, QRectF]:
    """Return the device's units in a px of the window, and its page in px."""
    scale = device.logicalDpiX() / LAYOUT_DPI * SCALE / theme.current().zoom
    return scale, QRectF(0, 0, device.width() / scale, device.height() / scale)


def _spans(document: QTextDocument) -> list[_Span]:
    """Return the parts of a document that must not be cut: lines, or the lines beside each other in a table."""
    layout, spans = document.documentLayout(), []
    block = document.begin()
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


def _cut(spans: Sequence[_Span], height: float) -> list[float]:
    """Return where pages of that height begin."""
    tops, first = [0.0], 0
    while first < len(spans):
        last = first
        while last + 1 < len(spans) and spans[last + 1].bottom <= tops[-1] + height:
            last += 1
        if last + 1 < len(spans):
            kept = last
            while kept > first and spans[kept].goes_on:  # such as a heading
                kept -= 1
            last = kept if kept > first else last
            gap = spans[last + 1].top - spans[last].bottom
            tops.append(spans[last + 1].top - min(max(gap, 0.0), theme.px(EDGE_PX)))
        first = last + 1
    return tops


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
