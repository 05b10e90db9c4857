"""Where the time of a token goes: a bar for the GPU and one for the CPU on one axis, and the stages with their times.

Both sides work at the same time, so their bars are never stacked.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.clients.live_figures import UNKNOWN, Stage, TokenTimes, milliseconds
from app.translation import figure, noted, tr
from app.ui.live.live_graph import SPEED_PX, LiveCard
from app.ui.look import theme
from app.ui.look.painting import antialiased, block
from app.ui.widgets.card_frame import elided

LANE_PX, LANE_GAP_PX, ROW_PX = 22, 6, 22
LOW_PX, THREE_COLUMNS_PX = 188, 560
# Tint of each stage, as a share of its side's colour.
TINTS = {"attention": 0.62, "predictor": 0.42, "ffn": 1.0, "wait": 0.18, "head": 0.5, "sampling": 0.34, "other": 0.24}


AT_REST = noted("Ask something: this shows where the time of each token goes, from attention to choosing the token.")


class TokenTime(LiveCard):
    """The card with the bars above and the legend below; tooltips name the stages."""

    high_px = SPEED_PX
    side_px, top_px = 16, 12

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._times = TokenTimes(None, (), False)
        self.set_times(self._times)

    def set_low(self, low: bool) -> None:
        """Set whether the card has the page's full width and needs less height."""
        if (LOW_PX if low else SPEED_PX) != self.high_px:
            self.high_px = LOW_PX if low else SPEED_PX
            self.restyle()

    @property
    def is_empty(self) -> bool:
        """Whether no time is shown."""
        return self._times.total is None

    def set_times(self, times: TokenTimes) -> None:
        self._times = times
        total = UNKNOWN if times.total is None else milliseconds(times.total)
        stages = [f"{_in_full(stage, times.has_gpu)} {milliseconds(stage.seconds)}" for stage in times.stages]
        if times.total is None:
            self.say(f"{tr('Time of a token')}. {tr(AT_REST)}")
        else:
            self.say(", ".join([tr("Time of a token {total}", total=total), *stages]))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, times, content, px = antialiased(self), self._times, self.inside(), theme.px
        self.paint_ground(painter)
        head = QRectF(content.x(), content.y(), content.width(), theme.line_height("heading"))
        total = UNKNOWN if times.total is None else milliseconds(times.total)
        wide = self.write(painter, total, head, "rate", at_end=True)
        self.write(painter, tr("Time of a token"), head.adjusted(0, 0, -wide - px(8), 0), "small")
        if times.total is None:
            self._paint_rest(
                painter, QRectF(content.x(), head.bottom(), content.width(), content.bottom() - head.bottom())
            )
            return
        sides = ("gpu", "cpu") if times.has_gpu else ("cpu",)
        labels = max(elided(side.upper(), "meta", 1000)[1] for side in sides) + px(8)
        y = head.bottom() + px(10)
        for side in sides:
            lane = QRectF(content.x() + labels, y, content.width() - labels, px(LANE_PX))
            label = QRectF(content.x(), y, labels, lane.height())
            self.write(painter, side.upper(), label, "meta")
            block(painter, self.mirrored(lane), theme.colour("sunken"), px(5))
            self._paint_lane(painter, lane, side)
            y = lane.bottom() + px(LANE_GAP_PX)
        self._paint_legend(painter, QRectF(content.x(), y + px(5), content.width(), content.bottom() - y - px(5)))

    def _paint_rest(self, painter: QPainter, content: QRectF) -> None:
        inset = min(theme.px(20), content.width() / 8)
        painter.setFont(theme.font("small"))
        painter.setPen(theme.colour("ink2"))
        flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
        painter.drawText(content.adjusted(inset, 0, -inset, 0), int(flags), tr(AT_REST))

    def _paint_lane(self, painter: QPainter, lane: QRectF, side: str) -> None:
        times = self._times
        if not times.total:
            return
        scale = lane.width() / max(times.total, _longest(times))
        x = lane.x()
        for stage in times.stages:
            if stage.side != side:
                continue
            wide = stage.seconds * scale
            part = QRectF(x, lane.y(), max(wide - 1.5, 1.0), lane.height())
            block(painter, self.mirrored(part), _tint(stage), min(theme.px(4), part.width() / 2))
            self.add_text(QRectF(x, lane.y(), max(wide, 4.0), lane.height()), _text_of(stage, times))
            x += wide

    def _paint_legend(self, painter: QPainter, content: QRectF) -> None:
        px, times = theme.px, self._times
        if not times.stages:
            words = tr("Its parts are not measured")
            self.write(painter, words, QRectF(content.x(), content.y(), content.width(), px(ROW_PX)), "meta")
            return
        gap, rows = px(20), max(1, int(content.height() // px(ROW_PX)))
        columns = 3 if content.width() >= px(THREE_COLUMNS_PX) else 2
        width = (content.width() - gap * (columns - 1)) / columns
        shown = times.stages
        if len(shown) > columns * rows:  # the shortest are left out; their tooltips in the bars remain
            least = sorted(shown, key=lambda stage: stage.seconds)[: len(shown) - columns * rows]
            shown = tuple(stage for stage in shown if stage not in least)
        for number, stage in enumerate(shown):
            x = content.x() + (number % columns) * (width + gap)
            row = QRectF(x, content.y() + (number // columns) * px(ROW_PX), width, px(ROW_PX))
            side = px(10)
            icon_rect = QRectF(row.x(), row.center().y() - side / 2, side, side)
            block(painter, self.mirrored(icon_rect), _tint(stage), px(3))
            wide = self.write(painter, milliseconds(stage.seconds), row, "metastrong", "ink", at_end=True)
            self.write(painter, stage.words, row.adjusted(side + px(8), 0, -wide - px(6), 0), "meta", "ink2")
            self.add_text(row, _text_of(stage, times))


def _tint(stage: Stage) -> str:
    tokens, key = theme.current().tokens, stage.key.partition("-")[2]
    return theme.mix(tokens.card, tokens.hot_fill if stage.side == "gpu" else tokens.cold_fill, TINTS[key])


def _in_full(stage: Stage, sided: bool) -> str:
    return tr("{stage} on the {side}", stage=stage.words, side=stage.side.upper()) if sided else stage.words


def _text_of(stage: Stage, times: TokenTimes) -> str:
    first = f"{_in_full(stage, times.has_gpu)}: {milliseconds(stage.seconds)}"
    if times.total:
        share = figure(100 * stage.seconds / times.total, ".0f")
        first = tr("{time}, {share}% of the time", time=first, share=share)
    return f"{first}\n{stage.more}" if stage.more else first


def _longest(times: TokenTimes) -> float:
    sides = ("gpu", "cpu")
    return max(sum(stage.seconds for stage in times.stages if stage.side == side) for side in sides)
