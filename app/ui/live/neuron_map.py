"""The map of neurons: a column per layer, the busiest neurons at the bottom, bright where they were active for a token.

Of a model with experts it shows those: the most chosen at the bottom, the brighter the more often, ember on the GPU.

The cells are a small image, drawn enlarged below a cached picture of everything else, so that a token is cheap.
"""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QFontMetrics,
    QHideEvent,
    QImage,
    QKeyEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QPixmap,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.clients.live_figures import share
from app.translation import figure, tr
from app.ui.live.live_graph import LiveCard
from app.ui.look import theme
from app.ui.look.painting import block
from app.ui.widgets.card_frame import elided

ROWS = 22  # until the engine sends the number of groups
LEVELS = 100  # of brightness, from idle to all neurons of a cell
EXPERT_FULL = 50  # percent of the tokens from which on an expert is as bright as can be
GLOW = "#FFD9A8"
GLOWS_FROM = 86  # in the dark theme, on the GPU
IDLE = {False: 0.10, True: 0.12}  # tint of an idle cell, by dark theme
FADE_MS, FADES = 100, 3
LEAST_PX = 240
_STEPS = {Qt.Key.Key_Left: (-1, 0), Qt.Key.Key_Right: (1, 0), Qt.Key.Key_Up: (0, 1), Qt.Key.Key_Down: (0, -1)}


class NeuronMap(LiveCard):
    """The map. Tab focuses it; the arrow keys read it cell by cell."""

    high_px = LEAST_PX
    side_px, top_px = 18, 12

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setProperty("focusRadius", 12)
        self._on_gpu: tuple[float, ...] = ()
        self._fired: list[list[int]] = []  # [layers][groups], in percent
        self._experts = 0  # of a layer; 0 for a map of neurons
        self._chosen: list[list[int]] = []  # [layers][groups] of experts, in percent
        self._resident: list[list[int]] = []
        self._faded = 0  # fade steps since the last token
        self._line, self._has_gpu, self._why, self._rest = "", False, "", ""
        self._grid: QPixmap | None = None
        self._colours: list[int] = []
        self._cell: tuple[int, int] | None = None  # layer and group under the keyboard cursor
        self._fade = QTimer(self, interval=FADE_MS)
        self._fade.timeout.connect(self._fade_on)
        self._tell()

    # --- updates

    def set_places(self, on_gpu: list[float], has_gpu: bool, line: str, why: str) -> None:
        """Set the placement.

        on_gpu: the share of each layer's neurons on the GPU; if empty, nothing is known and `why` says why.
        """
        if (tuple(on_gpu), has_gpu, line, why) == (self._on_gpu, self._has_gpu, self._line, self._why):
            return
        self._grid = None
        if len(on_gpu) != len(self._on_gpu):
            self._fired, self._cell = [], None
        self._on_gpu, self._has_gpu, self._line, self._why = tuple(on_gpu), has_gpu, line, why
        self._tell()
        self.update()

    def set_experts(self, chosen: list[list[int]], resident: list[list[int]], n_experts: int) -> None:
        """Show experts: [layers][groups], percent of tokens that chose one of a group, percent of them on the GPU.

        n_experts: of a layer; 0 for a model without.
        """
        if (chosen, resident, n_experts) == (self._chosen, self._resident, self._experts):
            return
        if n_experts != self._experts or len(chosen) != len(self._chosen):
            self._grid = None
        self._chosen, self._resident, self._experts = chosen, resident, n_experts
        self._tell()
        self.update()

    def set_rest(self, words: str) -> None:
        """Set the text over the map while it has nothing to show; empty for none."""
        if words != self._rest:
            self._rest = words
            self._tell()
            self.update()

    def set_fired(self, fired: list[list[int]]) -> None:
        """Show the active neurons of a token: [layers][groups], in percent, the busiest group first."""
        if len(fired) != len(self._on_gpu):
            return
        if not self._fired or len(fired[0]) != len(self._fired[0]):
            self._grid = None
        self._fired, self._faded = fired, 0
        self._fade.stop()
        self.update()

    def go_out(self) -> None:
        """Fade out, because no token is being computed."""
        if not self._fired or self._faded >= FADES or self._fade.isActive():
            return
        if theme.current().still or not self.isVisible():
            self._faded = FADES
            self.update()
        else:
            self._fade.start()

    def _fade_on(self) -> None:
        self._faded += 1
        if self._faded >= FADES:
            self._fade.stop()
        self.update()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        if self._fade.isActive():
            self._fade.stop()
            self._faded = FADES

    # --- painting

    def restyle(self) -> None:
        self._grid, self._colours = None, []
        super().restyle()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._grid = None

    def sizeHint(self) -> QSize:
        return QSize(theme.px(400), theme.px(LEAST_PX))

    @property
    def _rows(self) -> int:
        if self._chosen:
            return len(self._chosen[0])
        return len(self._fired[0]) if self._fired else ROWS

    def _field(self) -> QRectF:
        """Return the rectangle of the cells, in whole pixels."""
        content, px = self.inside(), theme.px
        top = content.y() + theme.line_height("heading") + px(10)
        high = content.bottom() - theme.line_height("axis") - px(4) - top
        return QRectF(int(content.x()), int(top), int(content.width()), max(int(high), 1))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, field = QPainter(self), self._field()
        if self._on_gpu:
            painter.drawImage(field, self._picture())
        painter.drawPixmap(0, 0, self._still_part(field))
        if self._rest and self._on_gpu:
            self._paint_rest(painter, field)
        if self._cell is not None and self.hasFocus():
            painter.setPen(QPen(theme.colour("hot"), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(self._box(field, *self._cell), 2, 2)

    def _paint_rest(self, painter: QPainter, field: QRectF) -> None:
        px = theme.px
        wide = min(elided(self._rest, "small", 10_000)[1] + px(32), field.width())
        box = QRectF(0, 0, wide, px(36))
        box.moveCenter(field.center())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        block(painter, box, theme.colour("card"), px(8))
        self.write(painter, self._rest, box.adjusted(px(12), 0, -px(12), 0), "small", "ink2", middle=True)

    def _paint_legend(self, painter: QPainter, content: QRectF) -> float:
        px, x = theme.px, content.right()
        for words, token in ((tr("on the CPU"), "cold_fill"), (tr("on the GPU"), "hot_fill")):
            wide, dot = elided(words, "meta", 10_000)[1], px(7)
            self.write(painter, words, QRectF(x - wide - 1, content.y(), wide + 1, content.height()), "meta")
            icon_rect = QRectF(x - wide - px(6) - dot, content.center().y() - dot / 2, dot, dot)
            block(painter, self.mirrored(icon_rect), theme.colour(token), dot / 2)
            x = icon_rect.left() - px(14)
        return content.right() - x

    def _picture(self) -> QImage:
        """Return an image with a pixel per cell: 0 to LEVELS on the CPU, the next LEVELS + 1 values on the GPU."""
        rows, layers = self._rows, len(self._on_gpu)
        stride = -(-layers // 4) * 4
        cells = bytearray(stride * rows)
        left = 1.0 if self._chosen else 1.0 - self._faded / FADES
        full = EXPERT_FULL if self._chosen else 100
        brightness = [round(LEVELS * left * min(1.0, level / full) ** 0.6) for level in range(101)]
        lit = self._chosen or self._fired
        for layer in range(layers):
            for group in range(rows):
                level = brightness[lit[layer][group]] if lit else 0
                cells[(rows - 1 - group) * stride + layer] = level + (LEVELS + 1 if self._is_hot(layer, group) else 0)
        image = QImage(bytes(cells), layers, rows, stride, QImage.Format.Format_Indexed8).copy()
        image.setColorTable(self._colours or self._colour_table())
        return image

    def _is_hot(self, layer: int, group: int) -> bool:
        """Return whether most of a group is on the GPU."""
        if self._chosen:
            return self._resident[layer][group] >= 50
        return group < round(self._on_gpu[layer] * self._rows)

    def _colour_table(self) -> list[int]:
        tokens = theme.current().tokens
        idle = IDLE[tokens.dark]
        for on_gpu, full in ((False, tokens.cold_fill), (True, tokens.hot_fill)):
            rest = theme.mix(tokens.card, full, idle)
            for level in range(LEVELS + 1):
                glows = tokens.dark and on_gpu and level > GLOWS_FROM
                brightest = theme.mix(full, GLOW, 0.5) if glows else full
                self._colours.append(QColor(theme.mix(rest, brightest, level / LEVELS)).rgb())
        return self._colours

    def _still_part(self, field: QRectF) -> QPixmap:
        """Return everything except the cells, with holes for them; painted again only after a change."""
        if self._grid is None or self._grid.devicePixelRatio() != self.devicePixelRatioF():
            ratio = self.devicePixelRatioF()
            grid = QPixmap(QSize(round(self.width() * ratio), round(self.height() * ratio)))
            grid.setDevicePixelRatio(ratio)
            grid.fill(Qt.GlobalColor.transparent)
            painter = QPainter(grid)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self.paint_ground(painter)
            self._paint_head(painter)
            if self._on_gpu:
                painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_Clear)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(Qt.GlobalColor.black)
                for layer in range(len(self._on_gpu)):
                    for group in range(self._rows):
                        painter.drawRoundedRect(self._box(field, layer, group), 2, 2)
                painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceOver)
                self._paint_steps(painter, field)
                self._paint_axis(painter, field)
            else:
                self.write(painter, self._why, field, "small", "ink3", middle=True)
            painter.end()
            self._grid = grid
        return self._grid

    def _paint_head(self, painter: QPainter) -> None:
        content, px = self.inside(), theme.px
        head = QRectF(content.x(), content.y(), content.width(), theme.line_height("heading"))
        wide = self.write(painter, tr("Experts") if self._experts else tr("Neurons"), head, "heading") + px(8)
        lower = head.adjusted(wide, px(2), 0, px(2))
        end = self._paint_legend(painter, lower) if self._on_gpu and self._has_gpu else 0.0
        self.write(painter, self._line, lower.adjusted(0, 0, -end, 0), "meta")

    def _box(self, field: QRectF, layer: int, group: int) -> QRectF:
        """Return a cell without the gap around it."""
        wide, high = field.width() / len(self._on_gpu), field.height() / self._rows
        across, down = min(1.0, wide / 6), min(1.0, high / 8)
        x, y = field.x() + layer * wide, field.bottom() - (group + 1) * high
        return QRectF(x + across, y + down, wide - 2 * across, high - 2 * down)

    def _paint_steps(self, painter: QPainter, field: QRectF) -> None:
        """Paint the line between GPU and CPU; not over experts, which change sides while the model answers."""
        if not any(self._on_gpu) or self._experts:
            return
        path, wide = QPainterPath(), field.width() / len(self._on_gpu)
        for layer, on_gpu in enumerate(self._on_gpu):
            y = field.bottom() - field.height() * round(on_gpu * self._rows) / self._rows
            point = QPointF(field.x() + layer * wide, y)
            path.lineTo(point) if layer else path.moveTo(point)
            path.lineTo(QPointF(point.x() + wide, y))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme.colour("ink2"), 1.5))
        painter.drawPath(path)

    def _paint_axis(self, painter: QPainter, field: QRectF) -> None:
        layers, wide = len(self._on_gpu), field.width() / len(self._on_gpu)
        painter.setFont(theme.font("axis"))
        painter.setPen(theme.colour("ink3"))
        label_width = QFontMetrics(painter.font()).horizontalAdvance("000") + theme.px(8)
        step = next((n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n * wide >= label_width), layers)
        last = (layers - 1) - (layers - 1) % step
        for layer in {*range(0, layers, step), layers - 1}:
            if layer == last != layers - 1 and (layers - 1 - last) * wide < label_width:
                continue  # the last layer's label is there
            middle = field.x() + (layer + 0.5) * wide
            box = QRectF(middle - label_width / 2, field.bottom() + theme.px(4), label_width, theme.line_height("axis"))
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, str(layer))

    # --- mouse, keyboard, accessibility

    def text_at(self, place: QPointF) -> str:
        field = self._field()
        if not self._on_gpu or not field.contains(place):
            return self._line
        layer = int((place.x() - field.x()) / field.width() * len(self._on_gpu))
        group = int((field.bottom() - place.y()) / field.height() * self._rows)
        return self.cell_text(min(layer, len(self._on_gpu) - 1), min(group, self._rows - 1))

    def cell_text(self, layer: int, group: int) -> str:
        rows = self._rows
        where = tr("on the GPU") if self._is_hot(layer, group) else tr("on the CPU")
        if self._chosen:
            each = -(-self._experts // rows)
            return tr(
                "Layer {layer}, experts {first} to {last} of {n}, most chosen first, {where}, {share}% of tokens",
                layer=layer,
                first=group * each + 1,
                last=min(self._experts, (group + 1) * each),
                n=self._experts,
                where=where,
                share=self._chosen[layer][group],
            )
        words = tr(
            "Layer {layer}, neurons {first} to {last}% by how busy they are, {where}",
            layer=layer,
            first=figure(100 * group / rows, ".0f"),
            last=figure(100 * (group + 1) / rows, ".0f"),
            where=where,
        )
        if not self._fired or self._faded:
            return words
        return tr("{part}, {fired}% of them fired", part=words, fired=self._fired[layer][group])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = _STEPS.get(Qt.Key(event.key()))
        if step is None or not self._on_gpu:
            super().keyPressEvent(event)
            return
        layer, group = self._cell or (0, 0)
        if self._cell is not None:
            layer = min(max(layer + step[0], 0), len(self._on_gpu) - 1)
            group = min(max(group + step[1], 0), self._rows - 1)
        self._cell = layer, group
        self._tell()
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._cell = None
        self._tell()
        self.update()

    def _tell(self) -> None:
        if not self._on_gpu:
            self.say(f"{tr('Map of neurons.')} {self._why}".strip())
            return
        if self._cell is not None:
            self.say(self.cell_text(*self._cell))
            return
        there, layers = share(sum(self._on_gpu) / len(self._on_gpu)), len(self._on_gpu)
        words = tr("Map of neurons, {layers} layers, {there} of the neurons on the GPU", layers=layers, there=there)
        if self._experts:
            words = tr("Map of experts, {layers} layers, {there} of the experts on the GPU", layers=layers, there=there)
        self.say(f"{words}. {self._rest}" if self._rest else words)
