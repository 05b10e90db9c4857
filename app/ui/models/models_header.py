"""The head of the Models page: title, this PC in a line, search and Add; and the overlay while a file is dragged."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.translation import tr
from app.ui.look import theme
from app.ui.look.painting import antialiased
from app.ui.models.model_filters import OUTSET_PX
from app.ui.widgets.controls import Button, IconButton, Label
from app.ui.widgets.search_field import SearchField

SEARCH_PX = 300
ONE_ROW_PX = 860  # a narrower page has the search below the title


class ModelSearch(SearchField):
    """The page's search field; the cross clears it, Enter searches the hub."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setPlaceholderText(tr("Filter; Enter searches the hub"))
        self.setAccessibleName(tr("Filter models; Enter searches the hub, or opens a repository link"))
        self._clear.set_name(tr("Clear the search  (Esc)"))
        self._clear.setVisible(False)
        self.textChanged.connect(lambda text: self._clear.setVisible(bool(text)))
        self.left.connect(self.clear)


class DropOverlay(QWidget):
    """Covers the page while a file is dragged over it."""

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, t = antialiased(self), theme.current().tokens
        painter.fillRect(self.rect(), theme.alpha(t.page, 0.92))
        inset = theme.px(12)
        painter.setPen(QPen(theme.colour("hot_fill"), 2))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(inset, inset, -inset, -inset), inset, inset)
        for role, words, lift in (
            ("heading", tr("Drop a GGUF file or a model folder"), -12),
            ("small", tr("Hearth asks whether to copy it or to use it where it is."), 12),
        ):
            painter.setFont(theme.font(role))
            painter.setPen(theme.colour(theme.ROLES[role].token))
            painter.drawText(self.rect().translated(0, theme.px(lift)), Qt.AlignmentFlag.AlignCenter, words)


class ModelsHeader(QFrame):
    """Text at the left, search and buttons at the right; below the text on a narrow page."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title, self.line = Label(tr("Models"), "title"), Label("", "small", elide=True)
        self.line.setText(tr("Checking this PC"))
        self.search = ModelSearch()
        self.import_button = Button(tr("Add"), "secondary", "plus", tooltip=tr("Add a model from this PC"))
        self.import_button.setAccessibleName(tr("Add a model from this PC"))
        self.more = IconButton("more", tr("More"))
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(self.title)
        words.addWidget(self.line)
        self._tools = QHBoxLayout()
        for widget in (self.search, self.import_button, self.more):
            self._tools.addWidget(widget)
        self._row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._row.addLayout(words, 1)
        self._row.addLayout(self._tools)
        theme.current().changed.connect(self._lay_out)
        self._lay_out()

    def _lay_out(self) -> None:
        px, narrow = theme.px, self.width() < theme.px(ONE_ROW_PX + 2 * OUTSET_PX)
        directions = QBoxLayout.Direction
        self._row.setDirection(directions.TopToBottom if narrow else directions.LeftToRight)
        self._row.setContentsMargins(px(OUTSET_PX), 0, px(OUTSET_PX), 0)
        self._row.setSpacing(px(12 if narrow else 20))
        self._tools.setSpacing(px(8))
        self.search.setFont(theme.font("row"))
        self.search.setMinimumWidth(px(150 if narrow else SEARCH_PX))  # fits at 160 % in German too
        self.search.setMaximumWidth(16_777_215 if narrow else px(SEARCH_PX))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()
