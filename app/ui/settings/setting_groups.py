"""Parts of the settings dialog: groups of rows, rows that open something or show a value, and the search field."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QRectF, Qt, QTimer, QUrl
from PySide6.QtGui import QColor, QDesktopServices, QFontMetrics, QGuiApplication, QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.painting import antialiased, block
from app.ui.settings.setting_rows import ROW_PX
from app.ui.widgets.controls import COPIED_MS, Button, Label, Rule
from app.ui.widgets.search_field import GlassField


class Group(QFrame):
    """A title and a card of rows separated by hairlines. folds: starts collapsed."""

    def __init__(self, title: str, parent: QWidget | None = None, folds: bool = False) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self._column.setSpacing(0)
        self.title = Label(title, "metastrong")
        self.title.setVisible(not folds)
        self._column.addWidget(self.title)
        self.fold = Button(title, "quiet", "right")
        self.fold.setVisible(folds)
        self._column.addWidget(self.fold, 0, Qt.AlignmentFlag.AlignLeft)
        self.card = card = QFrame()
        card.setProperty("kind", "card")
        self._inside = QVBoxLayout(card)
        self._inside.setContentsMargins(1, 1, 1, 1)
        self._inside.setSpacing(0)
        self._column.addWidget(card)
        self._folds, self.is_open = folds, not folds
        self.fold.clicked.connect(lambda: self.set_open(not self.is_open))
        self.set_open(self.is_open)
        self._rows: list[tuple[Rule, QWidget, Callable[[list[str]], bool]]] = []
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_open(self, is_open: bool) -> None:
        self.is_open = is_open
        self.card.setVisible(is_open)
        self.fold.set_glyph("down" if is_open else "right")
        self.fold.setAccessibleDescription(tr("Expanded") if is_open else tr("Collapsed"))

    def add(self, row: QWidget, is_found_by: Callable[[list[str]], bool]) -> None:
        """Append a row. is_found_by: whether the row matches lower-case search words."""
        rule = Rule()
        rule.setVisible(bool(self._rows))
        self._inside.addWidget(rule)
        self._inside.addWidget(row)
        self._rows.append((rule, row, is_found_by))

    def show_found(self, words: list[str]) -> bool:
        """Show only the rows that match. Return whether there is one."""
        some = False
        for rule, row, is_found_by in self._rows:
            found = is_found_by(words)
            row.setVisible(found)
            rule.setVisible(found and some)
            some = some or found
        self.setVisible(some)
        if self._folds:
            self.card.setVisible(self.is_open or bool(words))
        return some

    def _restyle(self) -> None:
        self._column.setContentsMargins(0, 0, 0, theme.px(18))
        self.title.setContentsMargins(theme.px(4), 0, 0, theme.px(6))


class LinkRow(Button):
    """A row that opens something: title at the left, text and chevron at the right."""

    def __init__(self, words: str, line: str, parent: QWidget | None = None) -> None:
        super().__init__(words, "quiet", parent=parent)
        self.line = line
        self.height_px, self.radius_px = ROW_PX, 11
        self.setAccessibleDescription(line)
        self._restyle()

    def is_found_by(self, words: list[str]) -> bool:
        """Return whether the row contains every word (lower case)."""
        return all(word in f"{self.text()} {self.line}".casefold() for word in words)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = antialiased(self)
        ground, _, _ = self.colours()
        if ground.alpha():
            block(painter, QRectF(self.rect()), QColor(ground), theme.px(self.radius_px))
        inset, side = theme.px(16), theme.px(17)
        box = self.rect().adjusted(inset, 0, -inset, 0)
        painter.setFont(theme.font("label"))
        painter.setPen(theme.colour("ink"))
        painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, self.text())
        painter.setFont(theme.font("small"))
        painter.setPen(theme.colour("ink2"))
        beside = box.adjusted(0, 0, -side - theme.px(6), 0)
        room = beside.width() - QFontMetrics(theme.font("label")).horizontalAdvance(self.text()) - theme.px(16)
        line = QFontMetrics(painter.font()).elidedText(self.line, Qt.TextElideMode.ElideMiddle, room)
        painter.drawText(beside, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, line)
        mark = QRectF(box.right() - side + 4, box.center().y() - side / 2 + 0.5, side, side)
        icons.paint(painter, "right", mark, theme.colour("ink2"))


class ValueRow(QFrame):
    """A title, a value to copy, and further controls."""

    def __init__(self, title: str, also: str = "", parent: QWidget | None = None) -> None:
        """Build the row. also: further words that the search finds."""
        super().__init__(parent)
        self._also = also
        self.title, self.value = Label(title, "label"), Label("", "small", "ink", elide=True)
        self.words = QVBoxLayout()
        self.words.setSpacing(1)
        self.words.addWidget(self.title)
        self.words.addWidget(self.value)
        self._across = QHBoxLayout(self)
        self._across.addLayout(self.words, 1)
        self.copied = ""
        self.copy = Button(tr("Copy"), "secondary", "copy")
        self.copy.clicked.connect(self._copy)
        self._resting = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._resting.timeout.connect(lambda: self.copy.setText(tr("Copy")))
        self._across.addWidget(self.copy)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _copy(self) -> None:
        """Copy the value, and confirm on the button for a moment."""
        QGuiApplication.clipboard().setText(self.copied)
        self.copy.setText(tr("Copied"))
        self._resting.start()

    def add(self, widget: QWidget) -> None:
        self._across.insertWidget(self._across.count() - 1, widget)

    def show_value(self, shown: str, copied: str) -> None:
        """Set the value to show and the text to copy."""
        self.value.setText(shown)
        self.copied = copied
        self.copy.setEnabled(bool(copied))
        self.copy.setAccessibleName(tr("Copy: {what}", what=self.title.words))

    def is_found_by(self, words: list[str]) -> bool:
        """Return whether the row contains every word (lower case)."""
        said = f"{self.title.words} {self._also}".casefold()
        return all(word in said for word in words)

    def _restyle(self) -> None:
        px = theme.px
        self._across.setContentsMargins(px(16), px(9), px(16), px(9))
        self._across.setSpacing(px(8))
        self.setMinimumHeight(px(ROW_PX))


class FolderRow(ValueRow):
    """A folder, with its path to copy and a button that opens it in the file manager."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(title, parent=parent)
        self.note = Label("", "small", "bad", wrap=True)
        self.note.hide()
        self.words.addWidget(self.note)
        self.open = Button(tr("Open"), "secondary", "folder")
        self.open.setAccessibleName(tr("Open: {what}", what=title))
        self.open.clicked.connect(self._open)
        self.add(self.open)
        self.show_value("–", "")
        self.open.setEnabled(False)

    def show_folder(self, path: str) -> None:
        self.show_value(path, path)
        self.value.setToolTip(path)
        self.open.setEnabled(True)

    def _open(self) -> None:
        """Open the folder, creating it if nothing was stored yet."""
        with contextlib.suppress(OSError):
            Path(self.copied).mkdir(parents=True, exist_ok=True)
        opened = QDesktopServices.openUrl(QUrl.fromLocalFile(self.copied))
        self.note.setText("" if opened else tr("No program opened this folder. Copy its path instead."))
        self.note.setVisible(not opened)


class FindField(GlassField):
    """The settings' search field. Esc clears it; a second Esc reaches the dialog."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr("Search settings"), parent=parent)

    def words(self) -> list[str]:
        """Return the search words in lower case; empty for everything."""
        return self.text().casefold().split()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFixedWidth(theme.px(220))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self.focusNextChild()
        else:
            super().keyPressEvent(event)
