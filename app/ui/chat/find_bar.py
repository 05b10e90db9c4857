"""The find bar of a chat's title bar: a field, the number of the match, and buttons to the others.

ChatPage connects it with the transcript's search.
"""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from app.shortcuts import keys
from app.translation import figure, tr, tr_n
from app.ui.look import theme
from app.ui.transcript.text_find import TextFind
from app.ui.widgets.controls import IconButton, Label
from app.ui.widgets.search_field import SearchField

FIELD_PX, LEAST_FIELD_PX, WORDS_PX = 240, 96, 92
MOST_SELECTED = 200  # a longer selection is not used as the search text


class FindField(SearchField):
    """Return or Down goes to the next match, Shift+Return or Up to the previous one."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setPlaceholderText(tr("Find in this chat"))
        self.setAccessibleName(tr("Find in this chat"))
        self._clear.set_name(tr("Close  (Esc)"))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.entered.connect(lambda: self.stepped.emit(1))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_return = event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter}
        if is_return and event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.stepped.emit(-1)
        else:
            super().keyPressEvent(event)

    def sizeHint(self) -> QSize:
        return QSize(theme.px(FIELD_PX), super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(LEAST_FIELD_PX), super().minimumSizeHint().height())


class FindBar(QWidget):
    """sought: the text was changed. stepped: go to the next (1) or previous (-1) match. left: close the bar."""

    sought = Signal(str)
    stepped = Signal(int)
    left = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = FindField()
        self.words = Label("", "meta")
        self.words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.previous = IconButton("up", tr("Previous match"), keys("find_previous"))
        self.next = IconButton("down", tr("Next match"), keys("find_next"))
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        for part in (self.field, self.words, self.previous, self.next):
            self._row.addWidget(part)
        for button, step in ((self.previous, -1), (self.next, 1)):
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # a click leaves the focus in the field
            button.clicked.connect(lambda _=False, step=step: self.stepped.emit(step))
        self.field.textChanged.connect(self.sought)
        self.field.stepped.connect(self.stepped)
        self.field.left.connect(self.left)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self._row.setSpacing(theme.px(4))
        self.field.setFont(theme.font("row"))
        self.words.setMinimumWidth(theme.px(WORDS_PX))

    def open(self, text: str) -> None:
        """Show the bar with a selected text in the field, so that typing replaces it."""
        self.show()
        if text and text != self.field.text():
            self.field.setText(text)
        self.field.selectAll()
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_text(self, text: str) -> None:
        """Show the bar for a search that was started elsewhere, without moving the focus."""
        if self.field.text() != text:
            self.field.blockSignals(True)  # do not start another search
            self.field.setText(text)
            self.field.blockSignals(False)
        self.show()

    def show_result(self, find: TextFind) -> None:
        """Show the number of matches and which is the current one."""
        some = find.total > 0
        if not find.text.strip():
            words = ""
        elif find.is_counting:
            words = tr("Searching, {percent}%", percent=figure(100 * find.share, ".0f"))
        elif not some:
            words = tr("No matches")
        elif find.is_opening:
            words = tr("Opening")
        elif find.number:
            words = tr("{n} of {total}", n=figure(find.number), total=figure(find.total))
        else:
            words = tr_n("{n} match", "{n} matches", find.total, n=figure(find.total))
        self.words.setText(words)
        self.field.setAccessibleDescription(words)
        for button in (self.previous, self.next):
            button.setEnabled(some)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        else:
            super().keyPressEvent(event)
