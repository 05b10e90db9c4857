"""Formulas in rich text: laid out once on a worker thread, painted as outlines.

A formula in a document is an object character (an image for Qt) whose ImageAltText holds its LaTeX with delimiters,
followed by a strut without width, which adds the depth that Qt objects lack. One outline serves every size, colour and
screen, so that a change of theme, zoom or scale needs no new layout.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from html import escape, unescape

from PySide6.QtCore import QObject, QPointF, QRect, QRectF, QSizeF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QFontMetricsF,
    QPainter,
    QPainterPath,
    QPyTextObject,
    QTextDocument,
    QTextFormat,
)

from app.text.markdown_blocks import FORMULA, STRUT
from app.text.math_text import to_text
from app.text.math_typeset import Drawing, Step, formula, typeset
from app.ui.look import theme

MOST_CACHED = 2000  # outlines, of about 10 KB each
MOST_WAITING = 2000  # when exceeded, the oldest request is dropped; painting the formula requests it again
WAIT_S = 0.025  # how long one event loop turn waits for outlines, so that most are ready for the first paint
GAP = 0.1  # above and below a formula, in its own size, so that it touches no other line
TELL_S = 0.015  # how long one event loop turn may spend on texts whose formulas arrived late
# thread switch interval while formulas are laid out: a tenth of Python's default, so that the window stays responsive
SWITCH_S = 0.0005
LEAST_SCALE = 0.7  # a wider formula is scaled down to this, then the column scrolls
_WORDS_PX = 100  # a size at which a font's outlines are exact
_X_HEIGHT = 0.473  # of the formula font
_TAGS = re.compile(f'<img src="{FORMULA}" alt="([^"]*)"/><img src="{STRUT}"[^>]*/>')


@dataclass(frozen=True)
class Outline:
    """A drawing as a painter path, in units of the text's size, with its origin on the baseline."""

    path: QPainterPath
    width: float
    ascent: float
    descent: float


class Formulas(QObject):
    """All formulas of the window, by their LaTeX with delimiters.

    arrived: a formula was laid out or refused. Between many of them, the event loop runs.
    """

    arrived = Signal(str)
    _done = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._cached: OrderedDict[str, Outline | None] = OrderedDict()
        self._waiting: deque[str] = deque()
        self._under_way: set[str] = set()
        self._results: list[tuple[str, Outline | None]] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._font = theme.font("body")  # for text in formulas that the formula font has no glyphs for
        self._font.setPixelSize(_WORDS_PX)
        self._waited_s, self._in_turn = 0.0, False
        self._held = False  # the thread starts no formula until the next event loop turn
        self._late: deque[str] = deque()  # laid out, but not announced yet
        self._done.connect(self._take, Qt.ConnectionType.QueuedConnection)

    def known(self, source: str) -> bool:
        """Return whether the formula was laid out or refused."""
        return source in self._cached

    def outline(self, source: str) -> Outline | None:
        """Return the outline of a formula; None while it is being laid out, or if it was refused."""
        found = self._cached.get(source)
        if found is not None:
            self._cached.move_to_end(source)
        return found

    def refused(self, source: str) -> bool:
        """Return whether the formula cannot be laid out; its source is shown instead."""
        return source in self._cached and self._cached[source] is None

    def request(self, sources: list[str]) -> None:
        """Request formulas, and wait a short time for them; later ones are announced by `arrived`."""
        new = [source for source in dict.fromkeys(sources) if source not in self._cached]
        if not new:
            return
        with self._changed:
            queued = [source for source in new if source not in self._under_way]
            self._under_way.update(queued)
            self._waiting.extend(queued)
            while len(self._waiting) > MOST_WAITING:
                self._under_way.discard(self._waiting.popleft())
            if self._thread is None and self._waiting:
                self._thread = threading.Thread(target=self._work, name="formulas", daemon=True)
                self._thread.start()
        self._wait_for(new)

    def _wait_for(self, sources: list[str]) -> None:
        left = WAIT_S - self._waited_s
        if not self._in_turn:
            self._in_turn = True
            QTimer.singleShot(0, self._begin_turn)
        if left <= 0:
            self._held = True  # otherwise every call between Qt and Python would wait for the thread
            return
        begun = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way.intersection(sources), left)
        self._waited_s += time.monotonic() - begun
        self._keep()

    def _begin_turn(self) -> None:
        self._waited_s, self._in_turn = 0.0, False
        self._release()

    def _release(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def finish(self, within_s: float = 30.0) -> None:
        """Wait for all requested formulas (for tests and screenshots)."""
        self._release()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, within_s)
        self._keep()
        while self._late:
            self._tell()

    def _work(self) -> None:
        """Lay out the queue on the worker thread; end when it is empty."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            self._lay_out()
        finally:
            sys.setswitchinterval(interval)

    def _lay_out(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._held)
                if not self._waiting:
                    self._thread = None
                    return
                source = self._waiting.popleft()
            drawing = typeset(source, self.words)
            outline = _outline(drawing) if drawing else None
            with self._changed:
                self._results.append((source, outline))
                self._under_way.discard(source)
                self._changed.notify_all()
                first = len(self._results) == 1
            if first:
                self._done.emit()

    def words(self, text: str) -> Drawing:
        """Draw text in the window's font, at the size of the text around the formula, in any thread."""
        path = QPainterPath()
        path.addText(0, 0, self._font, text)
        box, scale = path.boundingRect(), _X_HEIGHT / max(QFontMetricsF(self._font).xHeight(), 1)
        corners = [path.elementAt(index) for index in range(path.elementCount())]
        steps: list[Step] = []
        for index, corner in enumerate(corners):
            kind = corner.type
            if kind is QPainterPath.ElementType.CurveToElement:
                points = [value for one in corners[index : index + 3] for value in (one.x, one.y)]
                steps.append(("C", tuple(value * scale for value in points)))
            elif kind is not QPainterPath.ElementType.CurveToDataElement:
                name = "M" if kind is QPainterPath.ElementType.MoveToElement else "L"
                steps.append((name, (corner.x * scale, corner.y * scale)))
        width = QFontMetricsF(self._font).horizontalAdvance(text)
        return Drawing(width * scale, max(-box.top(), 0) * scale, max(box.bottom(), 0) * scale, tuple(steps))

    def _keep(self) -> None:
        with self._changed:
            results, self._results = self._results, []
        for source, outline in results:
            self._cached[source] = outline
        while len(self._cached) > MOST_CACHED:
            self._cached.popitem(last=False)
        self._late.extend(source for source, _ in results)

    def _take(self) -> None:
        self._keep()
        self._tell()

    def _tell(self) -> None:
        until = time.monotonic() + TELL_S
        while self._late and time.monotonic() < until:
            self.arrived.emit(self._late.popleft())
        if self._late:
            QTimer.singleShot(0, self._tell)


@cache
def current() -> Formulas:
    return Formulas()


def _outline(drawing: Drawing) -> Outline:
    path = QPainterPath()
    path.setFillRule(Qt.FillRule.WindingFill)
    draw: dict[str, Callable[..., None]] = {
        "M": path.moveTo, "L": path.lineTo, "Q": path.quadTo, "C": path.cubicTo, "Z": path.closeSubpath
    }  # fmt: skip
    for name, numbers in drawing.steps:
        draw[name](*numbers)
    return Outline(path, drawing.width, drawing.ascent, drawing.descent)


def outline_of(source: str) -> Outline | None:
    """Lay a formula out now, in any thread. None: it is refused."""
    drawing = typeset(source, current().words)
    return _outline(drawing) if drawing else None


def sources_in(html: str) -> list[str]:
    """Return the LaTeX, with delimiters, of every formula in HTML from app.text.markdown_blocks."""
    return [unescape(found[1]) for found in _TAGS.finditer(html)] if FORMULA in html else []


def shown(html: str, is_refused: Callable[[str], bool] | None = None) -> str:
    """Return the HTML with refused formulas replaced by their source, as code."""
    refused = is_refused or current().refused

    def replaced(found: re.Match[str]) -> str:
        source = unescape(found[1])
        return f"<code>{escape(formula(source)[0])}</code>" if refused(source) else found[0]

    return _TAGS.sub(replaced, html) if FORMULA in html else html


def accessible_text(source: str) -> str:
    """Return a formula as a line of text, or its LaTeX if that is not possible."""
    tex, _ = formula(source)
    return to_text(tex) or tex


class FormulaObject(QPyTextObject):
    """Sizes and paints the formulas of one document. It must live as long as the document."""

    def __init__(self, document: QTextDocument) -> None:
        super().__init__(document)
        document.documentLayout().registerHandler(QTextFormat.ObjectTypes.ImageObject, self)

    def outline(self, source: str) -> Outline | None:
        """Return the outline of a formula; None while it is being laid out, or if it was refused."""
        return current().outline(source)

    def miss(self, source: str) -> None:
        """Request a formula whose outline was dropped because there were too many."""
        if not current().known(source):
            current().request([source])

    def ink(self) -> QColor:
        """Return the colour of a formula in text without a colour of its own."""
        return theme.colour("ink")

    def intrinsicSize(self, document: QTextDocument, position: int, form: QTextFormat) -> QSizeF:
        source, is_strut = _source(form)
        outline = self.outline(source)
        em = _em(document, position)
        if outline is None:
            return QSizeF(0, 1) if is_strut else _guessed(source, em)
        em *= _fit(document, position, outline.width * em)
        if not is_strut:
            return QSizeF(outline.width * em, (outline.ascent + GAP) * em)
        # Qt places half of such an object below the middle of small letters.
        return QSizeF(0, 2 * (outline.descent + GAP) * em + QFontMetrics(form.toCharFormat().font()).xHeight() / 2)

    def drawObject(
        self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, form: QTextFormat
    ) -> None:
        rect = QRectF(rect)
        source, is_strut = _source(form)
        outline = None if is_strut else self.outline(source)
        if not is_strut and outline is None:
            self.miss(source)
        if outline is None or not outline.width:
            return
        colour = form.foreground()
        scale = rect.width() / outline.width
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(QPointF(rect.left(), rect.bottom()))
        painter.scale(scale, scale)
        painter.fillPath(outline.path, colour if colour.style() != Qt.BrushStyle.NoBrush else self.ink())
        painter.restore()


def _source(form: QTextFormat) -> tuple[str, bool]:
    """Return the LaTeX of an object, and whether the object is the strut after it."""
    is_strut = form.toImageFormat().name() == STRUT
    kind = QTextFormat.Property.ImageTitle if is_strut else QTextFormat.Property.ImageAltText
    return str(form.property(kind) or ""), is_strut


def _em(document: QTextDocument, position: int) -> float:
    """Return the size in pixels at which small letters of formulas match the text's."""
    size = document.findBlock(position).charFormat().intProperty(QTextFormat.Property.FontPixelSize)
    return _em_of(size or document.defaultFont().pixelSize())


@lru_cache(maxsize=256)
def _em_of(size: int) -> float:
    font = theme.font("body")
    font.setPixelSize(max(size, 1))
    return size * min(max(QFontMetricsF(font).xHeight() / size / _X_HEIGHT, 1.0), 1.2)


def _fit(document: QTextDocument, position: int, width: float) -> float:
    """Return the scale at which a formula fits its column, at least LEAST_SCALE."""
    block = document.findBlock(position)
    points = block.textList()
    indents = block.blockFormat().indent() + (points.format().indent() if points is not None else 0)
    column = document.textWidth() - block.blockFormat().leftMargin() - indents * document.indentWidth()
    return max(min(1.0, column / width), LEAST_SCALE) if 0 < column < width else 1.0


def _guessed(source: str, em: float) -> QSizeF:
    """Estimate the size of a formula that is not laid out yet."""
    letters = re.sub(r"\\[A-Za-z]+|[{}^_$&\s]", "", source)
    return QSizeF(min(len(letters), 40) * em / 2, em * (1.6 if formula(source)[1] else 0.8))
