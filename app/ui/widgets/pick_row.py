"""A row of a popover: an item to pick, with a check if it is chosen, and a figure at its right."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.direction import leading, order
from app.ui.look.painting import antialiased, block
from app.ui.widgets.controls import Button

ROW, INSET, GLYPH = 34, 10, 16


class PickRow(Button):
    """A row to pick. glyph: its icon; "none" keeps the space of the check. figure: text at the right."""

    def __init__(self, words: str, glyph: str = "none", figure: str = "", parent: QWidget | None = None) -> None:
        super().__init__(words.replace("&", "&&"), "quiet", glyph, parent=parent)
        self.height_px, self.padding_px, self.glyph_px = ROW, INSET, GLYPH
        self.figure, self.is_picked, self.is_shown, self.leads_on = figure, False, False, False
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.set_figure(figure)

    @property
    def words(self) -> str:
        return self.text().replace("&&", "&")

    def set_figure(self, figure: str) -> None:
        """Set the text at the right."""
        self.figure = figure
        self._name()

    def set_name(self, words: str) -> None:
        self.setText(words.replace("&", "&&"))
        self._name()

    def set_picked(self, picked: bool) -> None:
        self.is_picked = picked
        self.set_glyph("check" if picked else "none")
        self.glyph_token = "ok" if picked else ""
        self._name()

    def set_shown(self, shown: bool) -> None:
        """Mark the row as the one whose content is shown beside the list."""
        self.is_shown = shown
        self._name()

    def _name(self) -> None:
        self.setAccessibleName(", ".join(part for part in (self.words, self.figure) if part))
        self.setAccessibleDescription(tr("in use") if self.is_picked else tr("shown") if self.is_shown else "")
        self.update()

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(theme.font("rowstrong"))
        beside = QFontMetrics(theme.font("meta")).horizontalAdvance(self.figure)
        wide = metrics.horizontalAdvance(self.words) + beside + theme.px(2 * INSET + GLYPH + 8 + 12)
        return QSize(wide, theme.px(ROW))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(80), theme.px(ROW))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, mirrored = antialiased(self), self.isRightToLeft()
        px, held = theme.px, self.isDown()
        if self.isEnabled() and (held or self.is_shown or self.underMouse() or self.hasFocus()):
            block(painter, QRectF(self.rect()), theme.wash("pressed" if held else "selected"), px(self.radius_px))
        ink = "ink" if self.isEnabled() else "ink3"
        inset, side, wide = px(INSET), px(GLYPH), self.width()

        def placed(x: float, width: float) -> QRectF:
            return QRectF(wide - x - width if mirrored else x, 0, width, self.height())

        mark = placed(inset, side)
        mark.setTop((self.height() - side) / 2)
        mark.setHeight(side)
        icons.paint(painter, self.glyph, mark, theme.colour(self.glyph_token or ("ink2" if ink == "ink" else ink)))
        end = wide - inset
        if self.leads_on:
            chevron = placed(end - side, side)
            chevron.setTop((self.height() - side) / 2)
            chevron.setHeight(side)
            icons.paint(painter, "left" if mirrored else "right", chevron, theme.colour("ink3"))
            end -= side + px(2)
        start = inset + side + px(8)
        words_font = theme.font("rowstrong" if self.is_picked or self.is_shown else "row")
        needed = QFontMetrics(words_font).horizontalAdvance(self.words) + 2
        painter.setFont(theme.font("meta"))
        metrics = QFontMetrics(painter.font())
        # The name comes first; the figure gets the rest, but at least a third of the row.
        room = max(end - start - needed - px(12), (end - start) // 3)
        figure = metrics.elidedText(self.figure, Qt.TextElideMode.ElideRight, room)
        beside = metrics.horizontalAdvance(figure) + 1 if figure else 0
        painter.setPen(
            QColor(theme.colour("ink2" if self.is_shown or self.underMouse() or self.hasFocus() else "ink3"))
        )
        middle = Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
        painter.drawText(placed(end - beside, beside), leading(mirrored) | middle | order(figure), figure)
        painter.setFont(words_font)
        painter.setPen(theme.colour(ink))
        left = end - start - (beside + px(12) if figure else 0)
        shown = QFontMetrics(words_font).elidedText(self.words, Qt.TextElideMode.ElideRight, left)
        painter.drawText(placed(start, left), leading(mirrored) | middle | order(self.words), shown)
