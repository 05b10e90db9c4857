"""The neurons of a token in the inspector: a strip for each layer, and the neurons of one layer with their ids.

Ember neurons were computed on the GPU, slate ones on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QEvent, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QImage, QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QPlainTextEdit, QSizePolicy, QToolTip, QVBoxLayout, QWidget

from app.chat.answers.inspection import Inspection
from app.translation import figure, tr
from app.ui.look import theme
from app.ui.look.painting import antialiased, outline, say_changed
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.floating import announce

Flags = NDArray[np.bool_]
Colours = NDArray[np.uint32]  # 0xFFRRGGBB

_STRIPS, _GRID, _IDS = 200, 220, 76  # px at zoom 1: heights
_ONLY_NOW = 0.55  # strength of a neuron that was not active for the token before
_PARTS = 140  # of a strip
_IDS_OF_A_LINE = 5  # the field lays out only visible lines: 14 ms for all


def share_text(share: float) -> str:
    """Return a share as a percentage with one decimal."""
    return f"{figure(100 * share, '.1f')}%" if share >= 0.0005 else tr("under 0.1%")


def _blended(strength: NDArray[np.float64], is_hot: Flags) -> Colours:
    """Return colours from the background, at strength 0, to those of the GPU and the CPU, at 1."""
    ground, cold, hot = map(_parts_of, ("sunken", "cold_fill", "hot_fill"))
    mixed = ground + strength[..., None] * (np.where(is_hot[..., None], hot, cold) - ground)
    red, green, blue = np.moveaxis(np.rint(mixed).astype(np.uint32), -1, 0)
    colours: Colours = np.uint32(0xFF000000) | red << np.uint32(16) | green << np.uint32(8) | blue
    return colours


def _parts_of(token: str) -> NDArray[np.float64]:
    """Return red, green and blue of a colour, [3]."""
    colour = theme.colour(token)
    return np.array([colour.red(), colour.green(), colour.blue()], np.float64)


def _draw(painter: QPainter, colours: Colours, to: QRectF) -> None:
    colours = np.ascontiguousarray(colours)
    high, wide = colours.shape
    painter.drawImage(to, QImage(colours.data, wide, high, 4 * wide, QImage.Format.Format_RGB32))


class LayerStrips(QWidget):
    """A strip for each layer, of which one is chosen with the mouse, Up or Down. chosen: the layer."""

    chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.layer = 0
        self._shares: list[float] = []
        self._strength: NDArray[np.float64] = np.zeros((0, _PARTS))
        self._is_hot: Flags = np.zeros((0, _PARTS), bool)
        self._hot = self._first_hot = self._is_hot
        self._order = np.zeros((0, 0), np.int64)  # the GPU's first: layer x F + neuron
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)

    def show_layers(self, shares: Sequence[float], active: Flags | None, hot: Flags, is_hot: bool) -> None:
        """Show the neurons [L, F] that were active, those on the GPU first; None: only their shares, as bars."""
        self._shares = list(shares)
        self.layer = min(self.layer, max(len(shares) - 1, 0))
        n = len(shares)
        if active is None:
            ends = np.array(shares)[:, None] / (max(shares, default=0.0) or 1.0) * _PARTS
            self._strength, self._is_hot = (np.arange(_PARTS) < ends).astype(float), np.full((n, _PARTS), is_hot)
        else:
            starts = np.unique(np.arange(_PARTS) * active.shape[1] // _PARTS)
            if hot is not self._hot:  # 10 ms with 32 x 14,336 neurons
                order = np.argsort(~hot, axis=1, kind="stable")
                self._hot, self._order = hot, order + np.arange(n)[:, None] * active.shape[1]
                self._first_hot = hot.take(self._order[:, starts])
            sizes = np.diff([*starts, active.shape[1]])
            found = np.add.reduceat(active.take(self._order).view(np.uint8), starts, axis=1, dtype=np.int32) / sizes
            self._strength, self._is_hot = found**0.35, self._first_hot  # a power, so that few neurons are seen too
        self.fit()
        if shares:
            low, high = share_text(min(shares)), share_text(max(shares))
            self.setAccessibleName(tr("Active neurons by layer, from {low} to {high}", low=low, high=high))
        self._choose(self.layer)

    def fit(self) -> None:
        """Set the height for the layers and the zoom."""
        self.setFixedHeight(theme.px(min(_STRIPS, 14 * len(self._shares))))

    def _choose(self, layer: int) -> None:
        self.layer = max(0, min(layer, len(self._shares) - 1))
        if self._shares:
            self.setAccessibleDescription(self._words(self.layer))
        say_changed(self)
        self.update()
        self.chosen.emit(self.layer)

    def _words(self, layer: int) -> str:
        return tr("Layer {layer}: {share} active", layer=layer, share=share_text(self._shares[layer]))

    def _layer_at(self, event: QMouseEvent) -> int:
        return min(int(event.position().y() / max(self.height(), 1) * len(self._shares)), len(self._shares) - 1)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._shares:
            QToolTip.showText(event.globalPosition().toPoint(), self._words(self._layer_at(event)), self)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._choose(self._layer_at(event))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
        if event.key() in steps:
            self._choose(self.layer + steps[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, n = antialiased(self), max(len(self._shares), 1)
        each = self.height() / n
        colours = _blended(self._strength, self._is_hot)
        for layer in range(len(self._shares)):
            _draw(painter, colours[layer : layer + 1], QRectF(0, layer * each, self.width(), max(each - 1, 1)))
        chosen = QRectF(0, self.layer * each, self.width(), max(each - 1, 3))
        outline(painter, chosen.adjusted(0, -1, 0, 1), theme.colour("ink"), 2)


class LayerGrid(QWidget):
    """Every neuron of a layer, those on the GPU first."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._active = self._before = self._hot = np.zeros(0, bool)
        self._columns, self._cell = 1, 1
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Neurons active"))
        self.setMouseTracking(True)

    def show_layer(self, active: Flags, before: Flags, hot: Flags) -> None:
        """Show the neurons [F]. before: those that were active for the token before."""
        self._active, self._before, self._hot = active, before, hot
        self._order = np.argsort(~hot, kind="stable")
        self.fit()
        self.update()

    def fit(self) -> None:
        """Set the cells for the neurons, the width and the zoom."""
        n, wide = max(len(self._order), 1), max(self.width(), 1)
        self._cell = max(1, min(theme.px(20), int((wide * theme.px(_GRID) / n) ** 0.5)))
        self._columns = max(1, wide // self._cell)
        self.setFixedHeight(-(-n // self._columns) * self._cell)

    def resizeEvent(self, event: QEvent) -> None:
        self.fit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        row, column = int(event.position().y()) // self._cell, int(event.position().x()) // self._cell
        at = row * self._columns + column
        if column >= self._columns or at >= len(self._order):
            return
        neuron = int(self._order[at])
        words = {
            (True, True): tr("Neuron {neuron}: active, as for the token before", neuron=neuron),
            (True, False): tr("Neuron {neuron}: active", neuron=neuron),
            (False, True): tr("Neuron {neuron}: active only for the token before", neuron=neuron),
            (False, False): tr("Neuron {neuron}: not active", neuron=neuron),
        }[bool(self._active[neuron]), bool(self._before[neuron])]
        here = event.position().toPoint()
        QToolTip.showText(event.globalPosition().toPoint(), words, self, QRect(here, here))  # of this place only

    def paintEvent(self, event: QPaintEvent) -> None:
        rows = self.height() // self._cell
        strength = np.where(self._before, 1.0, _ONLY_NOW) * self._active
        colours = np.full(rows * self._columns, QColor(theme.colour("page")).rgb(), np.uint32)
        colours[: len(self._order)] = _blended(strength[self._order], self._hot[self._order])
        to = QRectF(0, 0, self._columns * self._cell, rows * self._cell)
        _draw(QPainter(self), colours.reshape(rows, self._columns), to)


class TokenNeurons(QWidget):
    """The neurons of a token. copied: the ids of a layer's active neurons were copied."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._active: Flags | None = None
        self._before = self._hot = np.zeros((0, 0), bool)
        self.strips, self.grid = LayerStrips(), LayerGrid()
        self.title, self.line = Label("", "smallstrong", wrap=True), Label("", "meta", wrap=True)
        self.ids = QPlainTextEdit()
        self.ids.setReadOnly(True)
        self.ids.setTabChangesFocus(True)
        self.ids.setProperty("kind", "field")
        self.ids.setAccessibleName(tr("Ids of the active neurons"))
        self.copy = Button(tr("Copy neuron ids"), "quiet", "copy")
        self.copy.clicked.connect(self._copy)
        self.strips.chosen.connect(self._show_layer)
        column = self._column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        for part in (self.strips, self.title, self.grid, self.line, self.ids):
            column.addWidget(part)
        column.addWidget(self.copy, 0, Qt.AlignmentFlag.AlignLeading)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self._column.setSpacing(theme.px(6))
        self.ids.setFont(theme.font("code"))
        self.ids.setFixedHeight(theme.px(_IDS))
        self.strips.fit()
        self.grid.fit()

    def show_token(self, record: Inspection, place: int, is_on_gpu: bool) -> None:
        """Show a token's neurons. is_on_gpu: whether the GPU computed all of them, if it is not known which."""
        fired = record.rows[place].get("fired") or []
        shares = [n / record.n_neurons for n in fired] if record.n_neurons else []
        self._active = active = record.active(place)
        if active is not None:
            before, hot = record.active(place - 1) if place else None, record.on_gpu(place)
            self._before = np.zeros_like(active) if before is None else before
            none = self._hot if self._hot.shape == active.shape and not self._hot.any() else np.zeros_like(active)
            self._hot = none if hot is None else hot
        self.setVisible(bool(shares))
        self.strips.show_layers(shares, active, self._hot, is_on_gpu)
        for part in (self.title, self.grid, self.ids, self.copy):
            part.setVisible(active is not None)
        if active is None:
            n = sum("active" in row for row in record.rows)
            words = tr("Which neurons were active was not recorded for this answer.")
            if n:
                words = tr(
                    "Which neurons were active is kept only for the last {n} of this answer's tokens.", n=figure(n)
                )
            self.line.setText(words)

    @property
    def shared(self) -> float | None:
        """The share of the active neurons that were active for the token before too; None if not known."""
        if self._active is None or not self._before.any():
            return None
        return float((self._active & self._before).sum() / max(self._active.sum(), 1))

    def _show_layer(self, layer: int) -> None:
        if self._active is None:
            return
        active, before, hot = self._active[layer], self._before[layer], self._hot[layer]
        n = int(active.sum())
        self.title.setText(
            tr("Layer {layer}: {n} of {all} neurons active", layer=layer, n=figure(n), all=figure(len(active)))
        )
        said = []
        if hot.any():
            on_gpu = int((active & hot).sum())
            said.append(tr("{gpu} on the GPU, {cpu} on the CPU", gpu=figure(on_gpu), cpu=figure(n - on_gpu)))
        if self._before.any():
            both = figure(int((active & before).sum()))
            said.append(tr("{n} also for the token before, in the stronger colour", n=both))
        self.line.setText("\n".join(said))
        self.line.setVisible(bool(said))
        self.grid.show_layer(active, before, hot)
        found = list(map(str, active.nonzero()[0].tolist()))
        lines = [" ".join(found[at : at + _IDS_OF_A_LINE]) for at in range(0, len(found), _IDS_OF_A_LINE)]
        self.ids.setPlainText("\n".join(lines))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.ids.toPlainText().replace("\n", " "))
        announce(self, tr("Copied"))
