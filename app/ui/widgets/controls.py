"""Basic controls of every page: labels, chips and buttons. Re-exports the indicators and switches.

Controls know nothing about the page; the page sets their text and connects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QKeyEvent, QPainter, QPaintEvent, QPalette, QResizeEvent
from PySide6.QtWidgets import QLabel, QPushButton, QSizePolicy, QToolTip, QWidget

from app.ui.look import icons, theme
from app.ui.look.direction import leading, order
from app.ui.look.painting import antialiased, block, outline
from app.ui.widgets.indicators import Dot, MemoryBar, Progress, ShareBar
from app.ui.widgets.switches import Segments, Slider, Toggle

__all__ = [
    "COPIED_MS", "Button", "Chip", "Dot", "IconButton", "Label", "MemoryBar", "PlainButton", "Progress", "Rule",
    "Segments", "ShareBar", "Slider", "Toggle",
]  # fmt: skip

Look = Literal["primary", "secondary", "quiet", "danger"]
Tone = Literal["", "hot", "cold", "ok", "warn", "bad", "away"]

COPIED_MS = 1500  # how long a button says that it copied


class Label(QLabel):
    """Text in a role of the type table. `elide` cuts a long line with an ellipsis, with the full text as tooltip."""

    def __init__(
        self,
        text: str = "",
        role: str = "body",
        token: str | None = None,
        *,
        wrap: bool = False,
        elide: bool = False,
        align: Qt.AlignmentFlag | None = None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.role, self.token, self.elides = role, token or theme.ROLES[role].token, elide
        self.words = ""
        self.setTextFormat(Qt.TextFormat.PlainText)  # names and titles come from outside
        if wrap:
            self.setWordWrap(True)
            policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
            policy.setHeightForWidth(True)
            self.setSizePolicy(policy)
        elif elide:
            self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._leads = align is None and not wrap  # aligned to the leading edge, whatever the script of the text
        if align is not None:
            self.setAlignment(align)
        theme.current().changed.connect(self._restyle)
        self.setText(text)
        self._restyle()

    def setText(self, text: str) -> None:
        if text == self.words:  # figures are set again with every token
            return
        self.words = text
        if self.elides:
            self.setAccessibleName(text)
        self._fit()

    def set_look(self, role: str, token: str | None = None) -> None:
        self.role, self.token = role, token or theme.ROLES[role].token
        self._restyle()

    def _restyle(self) -> None:
        self.setFont(theme.font(self.role))
        self._colour()
        if not self.wordWrap():
            self.setMinimumHeight(theme.line_height(self.role))
        self._lead()
        self._fit()

    def _colour(self) -> None:
        colour = theme.colour(self.token)
        if self.palette().color(QPalette.ColorRole.WindowText) == colour:
            return
        colours = QPalette(self.palette())
        for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text):
            colours.setColor(role, colour)
        self.setPalette(colours)

    def _lead(self) -> None:
        if self._leads:
            self.setAlignment(leading(self.isRightToLeft()) | Qt.AlignmentFlag.AlignVCenter)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.LayoutDirectionChange:
            self._lead()
        elif event.type() == QEvent.Type.StyleChange:  # a new parent's style sheet restores older fonts and colours
            self._colour()
            if self.font().pixelSize() != theme.font(self.role).pixelSize():
                self.setFont(theme.font(self.role))

    def _fit(self) -> None:
        if not self.elides:
            super().setText(self.words)
            return
        line = " ".join(self.words.splitlines())
        shown = QFontMetrics(self.font()).elidedText(line, Qt.TextElideMode.ElideRight, max(self.width(), 1))
        super().setText(shown)
        if shown != line:
            self.setToolTip(line)
        elif self.toolTip() == line:  # keep a tooltip that says something else
            self.setToolTip("")
        self.updateGeometry()

    def fix_height(self, width: int) -> None:
        """Fix the height to that of the text, wrapped to a width."""
        self.setMinimumHeight(0)  # heightForWidth is never below the minimum
        self.setFixedHeight(max(self.heightForWidth(width), 0))

    def sizeHint(self) -> QSize:
        if not self.elides:
            return super().sizeHint()
        metrics = QFontMetrics(self.font())
        return QSize(metrics.horizontalAdvance(" ".join(self.words.splitlines())) + 1, theme.line_height(self.role))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(24), theme.line_height(self.role)) if self.elides else super().minimumSizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self.elides:
            self._fit()


class Chip(QLabel):
    """A short fact or verdict on a tinted background, always with text. Not clickable."""

    def __init__(self, words: str, tone: Tone = "", parent: QWidget | None = None) -> None:
        super().__init__(words, parent)
        self.tone = tone
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.setFont(theme.font("chip"))
        self.setFixedHeight(theme.px(22))
        self.setContentsMargins(theme.px(8), 0, theme.px(8), 0)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = antialiased(self)
        block(painter, QRectF(self.rect()), theme.colour(f"{self.tone}_soft" if self.tone else "sunken"), theme.px(6))
        painter.setPen(theme.colour(self.tone or "ink2"))
        painter.drawText(self.contentsRect(), Qt.AlignmentFlag.AlignCenter, self.text())


class Rule(QWidget):
    """A hairline; decoration only."""

    def __init__(self, token: str = "line", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.token = token
        self.setFixedHeight(1)
        theme.current().changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), theme.colour(self.token))


class PlainButton(QPushButton):
    """A button without a look. Space and Return press it while it has the focus, in dialogs and elsewhere.

    Qt's own would leave Return to the dialog, whose default is its safe button: Return on "Add" would cancel.
    """

    def __init__(self, words: str = "", parent: QWidget | None = None) -> None:
        super().__init__(words, parent)
        self.setAutoDefault(False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            if not event.isAutoRepeat():
                self.click()
        else:
            super().keyPressEvent(event)


class Button(PlainButton):
    """A button with text, an icon or both.

    look: "primary" (at most one on a page), "secondary", "quiet", "danger" (never a dialog's default). For an icon
    without text, pass empty `words` and call setAccessibleName.
    """

    _own_font: QFont | None = None  # the font set last

    def __init__(
        self,
        words: str = "",
        look: Look = "secondary",
        glyph: str = "",
        tooltip: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(words, parent)
        self.look, self.glyph, self.glyph_px = look, glyph, 17
        self.glyph_token = ""  # overrides the icon colour of the look
        self.height_px, self.radius_px, self.padding_px = 32, 8, 9 if look == "quiet" else 14
        self.align_left = False
        self.setToolTip(tooltip)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_look(self, look: Look) -> None:
        self.look = look
        self._restyle()

    def set_glyph(self, glyph: str) -> None:
        self.glyph = glyph
        self.updateGeometry()
        self.update()

    def setFont(self, font: QFont | str | Sequence[str]) -> None:
        super().setFont(font)
        self._own_font = self.font()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        # A new parent's style sheet restores the font of an earlier zoom.
        own = self._own_font
        if event.type() == QEvent.Type.StyleChange and own is not None and self.font().pixelSize() != own.pixelSize():
            super().setFont(own)

    def _restyle(self) -> None:
        self.setFont(theme.font("button"))
        self.setProperty("focusRadius", self.radius_px)
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        height = theme.px(self.height_px)
        words = self.text().replace("&&", "&")
        if not words:
            return QSize(height, height)
        width = QFontMetrics(self.font()).horizontalAdvance(words) + 2 * theme.px(self.padding_px) + 2
        if self.glyph:
            width += theme.px(self.glyph_px) + theme.px(8)
        return QSize(width, height)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def event(self, event: QEvent) -> bool:
        # A tooltip shows the full text if the button is too narrow for it.
        if event.type() == QEvent.Type.ToolTip and not self.toolTip() and self.width() < self.sizeHint().width():
            QToolTip.showText(self.mapToGlobal(self.rect().bottomLeft()), self.text().replace("&&", "&"), self)
            return True
        return super().event(event)

    def colours(self) -> tuple[QColor, QColor, QColor]:
        """Return background, border and text colour for the current state."""
        t, clear = theme.current().tokens, QColor(0, 0, 0, 0)
        pressed, hover = self.isDown() or self.isChecked(), self.underMouse()
        if self.look == "primary":
            if not self.isEnabled():
                return QColor(t.bubble), clear, QColor(t.ink3)
            ground = theme.mix(t.ink, t.page, 0.22 if pressed else 0.12 if hover else 0)
            return QColor(ground), clear, QColor(t.on_ink)
        if self.look == "quiet":
            if not self.isEnabled():
                return clear, clear, QColor(t.ink3)
            if pressed:
                return theme.wash("pressed"), clear, QColor(t.ink)
            return (theme.wash("hover"), clear, QColor(t.ink)) if hover else (clear, clear, QColor(t.ink2))
        if not self.isEnabled():
            return QColor(t.sunken), QColor(t.line), QColor(t.ink3)
        text = QColor(t.bad if self.look == "danger" else t.ink)
        ground = theme.mix(t.card, t.ink, 0.09 if pressed else 0.04 if hover else 0)
        return QColor(ground), QColor(t.control if pressed or hover else t.edge), text

    def glyph_colour(self, text: QColor) -> QColor:
        """Return the icon's colour, for text of that colour."""
        if self.glyph_token and self.isEnabled():
            return theme.colour(self.glyph_token)
        if self.look == "secondary" and self.isEnabled():
            return theme.colour("ink2")
        return text

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = antialiased(self)
        ground, border, ink = self.colours()
        rect, radius = QRectF(self.rect()), theme.px(self.radius_px)
        if ground.alpha():
            block(painter, rect, ground, radius)
        if border.alpha():
            outline(painter, rect, border, radius)
        words, side = self.text().replace("&&", "&"), theme.px(self.glyph_px)
        gap = theme.px(8) if self.glyph and words else 0
        metrics = QFontMetrics(self.font())
        room = self.width() - 2 * theme.px(self.padding_px if words else 0)
        width = min(metrics.horizontalAdvance(words), max(room - gap - (side if self.glyph else 0), 0))
        total = width + gap + (side if self.glyph else 0)
        x = theme.px(self.padding_px) if self.align_left and words else (self.width() - total) / 2
        if self.isRightToLeft():
            x = self.width() - x - total
        glyph_x, text_x = (x + width + gap, x) if self.isRightToLeft() else (x, x + total - width)
        if self.glyph:
            box = QRectF(glyph_x, (self.height() - side) / 2, side, side)
            icons.paint(painter, self.glyph, box, self.glyph_colour(ink))
        if words:
            painter.setPen(ink)
            shown = metrics.elidedText(words, Qt.TextElideMode.ElideRight, width + 1)
            flags = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
            painter.drawText(QRectF(text_x, 0, width + 2, self.height()), flags | order(words), shown)


class IconButton(Button):
    """A quiet button with only an icon, at least 32 x 32. Its tooltip gives its name and shortcut."""

    def __init__(self, glyph: str, tooltip: str, shortcut: str = "", parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", glyph, parent=parent)
        self.shortcut_text = shortcut
        self.set_name(tooltip)

    def set_name(self, tooltip: str) -> None:
        self.setAccessibleName(tooltip)
        self.setToolTip(f"{tooltip}  ({self.shortcut_text})" if self.shortcut_text else tooltip)

    def _restyle(self) -> None:
        super()._restyle()
        self.setFixedSize(self.sizeHint())
