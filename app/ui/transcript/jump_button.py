"""The button "Jump to end", beside the text of a transcript that was scrolled up."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QWidget

from app.translation import tr
from app.ui.look import theme
from app.ui.transcript.message_column import text_column
from app.ui.widgets.controls import Button


class JumpButton(Button):
    """A child of the column, because a widget above the scroll area would cause full repaints."""

    def __init__(self, column: QWidget, area: QScrollArea) -> None:
        super().__init__(tr("Jump to end"), "secondary", "end", parent=column)
        self._area = area
        self.radius_px = 16
        self.setAccessibleName(tr("Jump to end"))
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.hide()

    def fit(self, beside: int) -> None:
        """Show the text if it fits into `beside` px, so that the button covers no message; otherwise only the icon."""
        self.setText(tr("Jump to end"))
        fits = self.sizeHint().width() + 2 * theme.px(8) <= beside
        self.setText(tr("Jump to end") if fits else "")
        self.setToolTip("" if fits else tr("Jump to end"))

    def show_in_view(self, shown: bool) -> None:
        """Show the button at the bottom of the viewport, after the text column, or hide it."""
        self.setVisible(shown)
        if not self.isVisible():
            return
        self.resize(self.sizeHint())
        area, gap = self._area, theme.px(8)
        view, top = area.viewport(), area.verticalScrollBar().value()
        left, width = text_column(area.width())
        edge = view.width() - self.width() - 2  # on a page with space for the icon only
        x = min(left + width + gap, edge)
        if self.isRightToLeft():
            x = max(left - gap - self.width(), 2) - view.x()
        self.move(x, top + view.height() - self.height() - theme.px(12))
        self.raise_()
