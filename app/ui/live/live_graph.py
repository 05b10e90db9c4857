"""Cards of the Live page that show sixty seconds: a small graph with text, and the rate with its figures.

They paint their own text: figures that change several times a second must not trigger a layout.
"""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QHelpEvent,
    QLinearGradient,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QStaticText,
    QTextOption,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.clients.live_figures import WINDOW_S, Graph, Points, Speed
from app.translation import figure, tr
from app.ui.look import theme
from app.ui.look.direction import order
from app.ui.look.painting import antialiased, block, outline, say_changed
from app.ui.widgets.card_frame import elided
from app.units import NARROW, rate

SMALL_PX, SPEED_PX = 124, 204
GAP_S = 3.5  # points further apart are not joined
END_DOT_PX, LINE_PX = 6, 1.6


def _ago(age: float) -> str:
    return tr("{age}\u202fs ago", age=figure(age, ".0f"))


def _when(age: float) -> str:
    return tr("Now") if age < 1 else _ago(age)


class LiveCard(QWidget):
    """A painted card with text. `high_px` is its minimum height."""

    high_px = SMALL_PX
    side_px, top_px = 14, 11

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._places: list[tuple[QRectF, str]] = []  # tooltip areas
        # so that nothing below is repainted with every figure
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        theme.current().changed.connect(self.restyle)
        self.restyle()

    def restyle(self) -> None:
        """Apply sizes and colours after a change of theme or zoom."""
        self.setMinimumHeight(theme.px(self.high_px))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(200), theme.px(self.high_px))

    def say(self, words: str) -> None:
        """Set the text for a screen reader."""
        if words != self.accessibleName():
            self.setAccessibleName(words)
            say_changed(self)

    def inside(self) -> QRectF:
        side, top = theme.px(self.side_px), theme.px(self.top_px)
        return QRectF(self.rect()).adjusted(side, top, -side, -top)

    def write(
        self, painter: QPainter, words: str, rect: QRectF, role: str, token: str = "", at_end: bool = False,
        middle: bool = False,
    ) -> float:  # fmt: skip
        """Paint one line of text, elided to fit, and return its width."""
        if not words or rect.width() < 1:
            return 0.0
        shown, wide = elided(words, role, int(rect.width()) + 1)
        laid = laid_out(shown, role, theme.current().zoom)
        painter.setFont(theme.font(role))
        painter.setPen(theme.colour(token or theme.ROLES[role].token))
        box = self.mirrored(rect)
        start = box.right() - wide if self.isRightToLeft() != at_end else box.x()
        x = box.center().x() - wide / 2 if middle else start
        painter.drawStaticText(QPointF(x, box.center().y() - laid.size().height() / 2), laid)
        return float(wide)

    def mirrored(self, rect: QRectF) -> QRectF:
        """Mirror a rectangle in a right-to-left layout."""
        if not self.isRightToLeft():
            return rect
        return QRectF(self.width() - rect.x() - rect.width(), rect.y(), rect.width(), rect.height())

    def paint_ground(self, painter: QPainter) -> None:
        """Paint the background and border, and clear the tooltips."""
        rect, radius = QRectF(self.rect()), theme.px(12)
        painter.fillRect(self.rect(), theme.colour("page"))
        block(painter, rect, theme.colour("card"), radius)
        outline(painter, rect, theme.colour("line"), radius)
        self._places = []

    def add_text(self, rect: QRectF, words: str) -> None:
        """Set the tooltip of an area; call while painting."""
        if words:
            self._places.append((self.mirrored(rect), words))

    def text_at(self, place: QPointF) -> str:
        """Return the tooltip at a point."""
        return next((words for rect, words in self._places if rect.contains(place)), "")

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.text_at(QPointF(event.pos())), self)
            return True
        return super().event(event)


@lru_cache(maxsize=1024)
def laid_out(words: str, role: str, zoom: float) -> QStaticText:
    """Return a prepared line of text, so that its glyphs are not laid out again at every repaint."""
    text = QStaticText(words)
    text.setTextFormat(Qt.TextFormat.PlainText)
    option = QTextOption()
    leftwards = order(words) == Qt.TextFlag.TextForceRightToLeft
    option.setTextDirection(Qt.LayoutDirection.RightToLeft if leftwards else Qt.LayoutDirection.LeftToRight)
    option.setWrapMode(QTextOption.WrapMode.NoWrap)
    text.setTextOption(option)
    text.prepare(font=theme.font(role))
    return text


def plot(painter: QPainter, rect: QRectF, points: Points, top: float, colour: QColor, strength: float) -> None:
    """Paint a line with the area below it, with gaps where values are unknown.

    strength: the area's opacity at its upper edge. Cosmetic lines of one pixel side by side cost a thirtieth of a wide
    line.
    """
    runs = _runs(points)
    pen = QPen(colour, 1, Qt.PenStyle.SolidLine, Qt.PenCapStyle.FlatCap, Qt.PenJoinStyle.BevelJoin)
    pen.setCosmetic(True)
    ratio = painter.device().devicePixelRatio()
    strokes = max(1, round(LINE_PX * ratio))
    fill = QLinearGradient(rect.topLeft(), rect.bottomLeft())
    fill.setColorAt(0, theme.alpha(colour, strength))
    fill.setColorAt(1, theme.alpha(colour, strength * 0.25))
    for run in runs:
        line = [
            QPointF(
                rect.right() - rect.width() * age / WINDOW_S,
                rect.bottom() - rect.height() * min(max(value / top, 0.0), 1.0),
            )
            for age, value in run
        ]
        area = QPainterPath()
        area.addPolygon([QPointF(line[0].x(), rect.bottom()), *line, QPointF(line[-1].x(), rect.bottom())])
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)  # the line covers its edge
        painter.fillPath(area, fill)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        # Drop points in the middle of level runs.
        around = zip(line, line[1:], line[2:], strict=False)
        line = [line[0], *(b for a, b, c in around if not a.y() == b.y() == c.y()), *line[1:][-1:]]
        painter.setPen(pen)
        for number in range(strokes):
            aside = (number - (strokes - 1) / 2) / ratio
            painter.drawPolyline([point + QPointF(0.6 * aside, aside) for point in line])
    if runs and runs[-1][-1][0] < GAP_S:
        age, value = runs[-1][-1]
        side = theme.px(END_DOT_PX)
        x = rect.right() - rect.width() * age / WINDOW_S
        y = rect.bottom() - rect.height() * min(max(value / top, 0.0), 1.0)
        block(painter, QRectF(x - side / 2, y - side / 2, side, side), colour, side / 2)


def _runs(points: Points) -> list[list[tuple[float, float]]]:
    """Return runs of points without a gap, none older than the graph's window."""
    runs: list[list[tuple[float, float]]] = [[]]
    for age, value in points:
        if value is None or age > WINDOW_S:
            if runs[-1]:
                runs.append([])
            continue
        if runs[-1] and runs[-1][-1][0] - age > GAP_S:
            runs.append([])
        runs[-1].append((age, value))
    return [run for run in runs if run]


def hairlines(painter: QPainter, rect: QRectF) -> None:
    """Paint lines at 0, 50 and 100 %."""
    for part in (0.0, 0.5, 1.0):
        y = round(rect.top() + rect.height() * part)
        painter.fillRect(QRectF(rect.left(), y, rect.width(), 1), theme.colour("line"))


def value_at(points: Points, age: float) -> float | None:
    """Return the value nearest to that age."""
    known = [(abs(at - age), value) for at, value in points if value is not None and abs(at - age) < GAP_S]
    return min(known)[1] if known else None


class LiveGraph(LiveCard):
    """A card with title and value, a graph, and a line of details."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._graph: Graph | None = None
        self._plot = QRectF()

    def set_graph(self, graph: Graph) -> None:
        self._graph = graph
        self.say(", ".join(part for part in (f"{graph.spoken or graph.title} {graph.value}", graph.line) if part))
        self.update()

    def text_at(self, place: QPointF) -> str:
        graph = self._graph
        if graph is None:
            return ""
        if not self._plot.contains(place):
            return "\n".join(part for part in (f"{graph.title}: {graph.value}", graph.line) if part)
        age = WINDOW_S * (self._plot.right() - place.x()) / self._plot.width()
        value, others = value_at(graph.points, age), value_at(graph.others, age)
        words = f"{_when(age)}: {'–' if value is None else graph.say(value)}"
        return (
            words
            if others is None
            else tr("{figure} in all\nOther programs: {others}", figure=words, others=graph.say(others))
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, graph, content, px = antialiased(self), self._graph, self.inside(), theme.px
        self.paint_ground(painter)
        if graph is None:
            return
        head = QRectF(content.x(), content.y(), content.width(), theme.line_height("heading"))
        wide = self.write(painter, graph.value, head, "rate", at_end=True)
        self.write(painter, graph.title, head.adjusted(0, 0, -wide - px(8), 0), "small")
        foot = QRectF(
            content.x(), content.bottom() - theme.line_height("meta"), content.width(), theme.line_height("meta")
        )
        self.write(painter, graph.line, foot, "meta")
        self._plot = QRectF(
            content.x(), head.bottom() + px(9), content.width() - px(4), foot.top() - head.bottom() - px(16)
        )
        hairlines(painter, self._plot)
        top = graph.top or max((value for _, value in graph.points if value is not None), default=0.0)
        if top > 0:
            if any(value for _, value in graph.others):
                plot(painter, self._plot, graph.others, top, theme.colour("control"), 0.18)
            ours = theme.colour("hot_fill" if graph.hot else "cold_fill")
            plot(painter, self._plot, graph.points, top, ours, 0.26)


class SpeedCard(LiveCard):
    """The card with the current rate, four figures, and sixty seconds of the rate."""

    high_px = SPEED_PX
    side_px, top_px = 18, 12

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._speed: Speed | None = None
        self._plot = QRectF()
        self._top = 1.0

    def set_speed(self, speed: Speed, figures_only: bool = False) -> None:
        """Show a rate. figures_only: the graph is unchanged."""
        self._speed = speed
        facts = [f"{fact.words} {fact.value}" for fact in speed.facts]
        said = tr("Speed {rate}", rate=speed.value.replace("tok/s", tr("tokens per second")))
        self.say(", ".join([said, *facts, speed.of]).rstrip(", "))
        if figures_only and self._plot.isValid():
            self.update(0, 0, self.width(), int(self._plot.top()) - 1)
        else:
            self.update()

    def text_at(self, place: QPointF) -> str:
        if self._speed is None or not self._plot.contains(place):
            return super().text_at(place)
        age = WINDOW_S * (self._plot.right() - place.x()) / self._plot.width()
        value = value_at(self._speed.points, age)
        return f"{_when(age)}: {'–' if value is None else rate(value)}"

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, speed, content, px = antialiased(self), self._speed, self.inside(), theme.px
        self.paint_ground(painter)
        if speed is None:
            return
        high = theme.line_height("figure")
        number, _, unit = speed.value.partition(NARROW)
        head = QRectF(content.x(), content.y(), content.width(), high)
        wide = self.write(painter, number, head, "figure", "" if speed.working else "ink2")
        lowered = head.adjusted(wide + px(4), px(9), 0, px(4))
        unit_wide = self.write(painter, unit, lowered, "unit")
        self._write_facts(painter, head.adjusted(wide + unit_wide + px(16), 0, 0, 0))
        if self._plot.isValid() and event.rect().bottom() < self._plot.top():
            return
        foot = QRectF(
            content.x(), content.bottom() - theme.line_height("meta"), content.width(), theme.line_height("meta")
        )
        # Time runs to the right, whatever the text direction.
        oldest, newest = _ago(WINDOW_S), tr("now")
        if self.isRightToLeft():
            oldest, newest = newest, oldest
        left = self.write(painter, oldest, foot, "meta")
        right = self.write(painter, newest, foot, "meta", at_end=True)
        self.write(painter, speed.of, foot.adjusted(left + px(8), 0, -right - px(8), 0), "meta", middle=True)
        self._plot = QRectF(
            content.x(), head.bottom() + px(12), content.width() - px(4), foot.top() - head.bottom() - px(18)
        )
        hairlines(painter, self._plot)
        fastest = max((value for _, value in speed.points if value is not None), default=0.0)
        self._top = round_top(fastest)
        if fastest > 0:
            plot(painter, self._plot, speed.points, self._top, theme.colour("hot_fill"), 0.26)

    def _write_facts(self, painter: QPainter, content: QRectF) -> None:
        """Paint figures from the end, as many as fit; the least important come first in the list."""
        assert self._speed is not None, "there is something to paint"
        gap, x = theme.px(22), content.right()
        for fact in reversed(self._speed.facts):
            wide = max(elided(fact.value, "number", 10_000)[1], elided(fact.words, "meta", 10_000)[1])
            if x - wide < content.left():
                break
            box = QRectF(x - wide, content.y(), wide, theme.line_height("number"))
            self.write(painter, fact.value, box, "number", at_end=True)
            below = QRectF(box.x(), box.bottom(), wide, theme.line_height("meta"))
            self.write(painter, fact.words, below, "meta", at_end=True)
            self.add_text(box.united(below), fact.more)
            x -= wide + gap


def round_top(value: float) -> float:
    """Return the next larger of 1, 2, 5, 10, 20, 50, ..., so that the scale is steady while the rate varies."""
    top = 1.0
    for step in (2.0, 2.5, 2.0) * 6:
        if top >= value * 1.05:
            break
        top *= step
    return top
