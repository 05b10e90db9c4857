"""Controls that hold a value: toggle, segments, slider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QMouseEvent, QPaintEvent, QPen, QResizeEvent, QWheelEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QCheckBox,
    QFrame,
    QHBoxLayout,
    QRadioButton,
    QSizePolicy,
    QSlider,
    QStyle,
    QWidget,
)

from app.ui.look import theme
from app.ui.look.painting import antialiased, block


class Toggle(QCheckBox):
    """An on/off switch, 38 x 22, in a hit area 24 high; ink-coloured when on."""

    def __init__(self, name: str, on: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setChecked(on)
        self.setProperty("focusRadius", 11)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.setFixedSize(theme.px(38), theme.px(24))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(38), theme.px(24))

    def hitButton(self, pos: Any) -> bool:
        return self.rect().contains(pos)

    def paintEvent(self, event: QPaintEvent) -> None:
        t, on, painter = theme.current().tokens, self.isChecked(), antialiased(self)
        ground = t.ink if on else t.control
        if not self.isEnabled():
            ground = t.edge
        elif self.underMouse():
            ground = theme.mix(ground, t.page, 0.12)
        high, inset = theme.px(22), theme.px(3)
        top, side = (self.height() - high) / 2, high - 2 * inset
        block(painter, QRectF(0, top, self.width(), high), ground, high / 2)
        x = self.width() - inset - side if on != self.isRightToLeft() else inset
        block(painter, QRectF(x, top + inset, side, side), t.on_ink if on else t.card, side / 2)


class _Segment(QRadioButton):
    def __init__(self, words: str, parent: QWidget) -> None:
        super().__init__(words, parent)
        self.setProperty("focusRadius", 7)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        # Measured in the font of the chosen segment, so that choosing moves nothing.
        words = QFontMetrics(theme.font("smallstrong")).horizontalAdvance(self.text())
        return QSize(max(words + 2 * theme.px(14), theme.px(64)), theme.px(28))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def hitButton(self, pos: Any) -> bool:
        return self.rect().contains(pos)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.setToolTip(self.text() if self.width() < self.sizeHint().width() else "")

    def paintEvent(self, event: QPaintEvent) -> None:
        t, painter, words = theme.current().tokens, antialiased(self), self.text()
        if self.isChecked():
            block(painter, QRectF(self.rect()), t.edge if t.dark else t.card, theme.px(7))
        elif self.underMouse():
            block(painter, QRectF(self.rect()), theme.wash("hover"), theme.px(7))
        painter.setFont(theme.font("smallstrong" if self.isChecked() else "small"))
        painter.setPen(QColor(t.ink if self.isChecked() or self.underMouse() else t.ink2))
        if self.toolTip():
            space = self.width() - 2 * theme.px(14)
            words = painter.fontMetrics().elidedText(words, Qt.TextElideMode.ElideRight, space)
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, words)


class Segments(QFrame):
    """A few choices, all visible. Arrow keys move the choice. picked: the value that the user chose."""

    picked = Signal(object)

    def __init__(
        self, choices: Sequence[tuple[Any, str]], value: Any = None, name: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        row = self._row = QHBoxLayout(self)
        row.setContentsMargins(2, 2, 2, 2)
        row.setSpacing(0)
        self.buttons: dict[Any, _Segment] = {}
        for choice, words in choices:
            button = _Segment(words, self)
            button.setAccessibleName(f"{name}: {words}" if name else words)
            button.clicked.connect(lambda _=False, choice=choice: self.picked.emit(choice))
            row.addWidget(button)
            self.buttons[choice] = button
        self.set_value(value)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def value(self) -> Any:
        """Return the chosen value, None if there is none."""
        return next((choice for choice, button in self.buttons.items() if button.isChecked()), None)

    def set_value(self, value: Any) -> None:
        """Choose a value without emitting `picked`."""
        if value in self.buttons:
            self.buttons[value].setChecked(True)

    def fit(self, width: int) -> None:
        """Stack the segments vertically if they do not fit into `width` side by side."""
        wanted = sum(button.sizeHint().width() for button in self.buttons.values()) + 4
        ways = QBoxLayout.Direction
        self._row.setDirection(ways.LeftToRight if wanted <= width else ways.TopToBottom)
        self._restyle()

    def _restyle(self) -> None:
        rows = 1 if self._row.direction() == QBoxLayout.Direction.LeftToRight else len(self.buttons)
        self.setFixedHeight(rows * theme.px(28) + 4)
        for button in self.buttons.values():
            button.setFixedHeight(theme.px(28))
            button.setMinimumWidth(0 if rows == 1 else theme.px(64))  # one that is stacked may end in an ellipsis
            button.updateGeometry()
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        block(antialiased(self), QRectF(self.rect()), theme.colour("bubble"), theme.px(9))


class Slider(QSlider):
    """A slider with a groove of 4 and a knob of 16 px. reset: a double click, Backspace or Delete."""

    reset = Signal()

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.automatic = False
        self.setAccessibleName(name)
        self.setProperty("focusRadius", 8)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(32))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(180), theme.px(32))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(80), theme.px(32))

    def set_automatic(self, automatic: bool) -> None:
        """Show the value as automatic: no filled groove, a smaller knob."""
        self.automatic = automatic
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in {Qt.Key.Key_Backspace, Qt.Key.Key_Delete}:
            self.reset.emit()
        else:
            super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the page scrolls instead; the wheel must not change a value

    def _value_at(self, x: float) -> int:
        knob = theme.px(16)
        return QStyle.sliderValueFromPosition(
            self.minimum(), self.maximum(), round(x - knob / 2), self.width() - knob, self.isRightToLeft()
        )

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.setSliderDown(True)
            self.setSliderPosition(self._value_at(event.position().x()))
            event.accept()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self.isSliderDown():
            self.setSliderPosition(self._value_at(event.position().x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self.setSliderDown(False)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.setSliderDown(False)
        self.reset.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        t, painter, knob, groove = theme.current().tokens, antialiased(self), theme.px(16), theme.px(4)
        middle = self.height() / 2
        x = QStyle.sliderPositionFromValue(
            self.minimum(), self.maximum(), self.sliderPosition(), self.width() - knob, self.isRightToLeft()
        )
        top, centre = middle - groove / 2, x + knob / 2
        block(painter, QRectF(0, top, self.width(), groove), t.edge, groove / 2)
        done = QRectF(0, top, centre, groove)
        if self.isRightToLeft():
            done = QRectF(centre, top, self.width() - centre, groove)
        if not self.automatic:
            block(painter, done, t.ink2 if self.isEnabled() else t.edge, groove / 2)
        painter.setPen(QPen(QColor(t.ink2 if self.underMouse() else t.control), 1))
        painter.setBrush(QColor(t.card))
        inset = 0.5 + (theme.px(3) if self.automatic else 0)
        painter.drawEllipse(QRectF(x, middle - knob / 2, knob, knob).adjusted(inset, inset, -inset, -inset))
