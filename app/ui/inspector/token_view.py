"""A text as its tokens: shaded, white space visible, one token chosen by mouse or keyboard."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QKeyEvent,
    QMouseEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextOption,
)
from PySide6.QtWidgets import QFrame, QTextEdit, QWidget

from app.ui.look import theme

LINE = 165  # percent of the line height, so that shaded lines stay apart
MARKS = str.maketrans({"\n": "↵\n", "\r": "␍", "\t": "⇥", "\x00": "␀", "\u2028": "↵", "\u2029": "↵"})
_STEPS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
_MOVES = {
    Qt.Key.Key_Up: QTextCursor.MoveOperation.Up, Qt.Key.Key_Down: QTextCursor.MoveOperation.Down,
    Qt.Key.Key_Home: QTextCursor.MoveOperation.Start, Qt.Key.Key_End: QTextCursor.MoveOperation.End,
}  # fmt: skip


class TokenView(QTextEdit):
    """Tokens in running text. chosen: the number of the token that was chosen."""

    chosen = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setTabChangesFocus(True)
        self.setProperty("kind", "plain")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.viewport().setAutoFillBackground(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        option = QTextOption()
        option.setFlags(QTextOption.Flag.ShowTabsAndSpaces)
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document().setDefaultTextOption(option)
        self._texts: list[str] = []
        self._shades: list[float] = []
        self._marked: frozenset[int] = frozenset()
        self._starts: list[int] = []  # of each token in the document
        self._end = 0
        self.current = -1
        theme.current().changed.connect(self._restyle)

    def show_tokens(self, texts: Sequence[str], shades: Sequence[float], marked: frozenset[int] = frozenset()) -> None:
        """Show tokens. shades: opacity of the wash behind each, 0 for none. marked: those that are underlined."""
        self._texts, self._shades, self._marked, self.current = list(texts), list(shades), marked, -1
        self._fill()

    def choose(self, place: int, scrolls: bool = True) -> None:
        """Choose a token. Nothing happens without tokens."""
        if not self._texts:
            return
        self.current = min(max(place, 0), len(self._texts) - 1)
        self._mark_current()
        if scrolls:
            cursor = QTextCursor(self.document())
            cursor.setPosition(self._starts[self.current])
            self.setTextCursor(cursor)
            self.ensureCursorVisible()
        self.chosen.emit(self.current)

    def find_next(self, words: str) -> bool:
        """Choose the next token at which these words begin, from the start again after the end."""
        found = self.document().find(words, self.textCursor())
        if found.isNull():
            found = self.document().find(words)
        if found.isNull():
            return False
        self.choose(self._token_at(found.selectionStart()), scrolls=False)
        self.setTextCursor(found)
        return True

    # --- inside

    def _fill(self) -> None:
        document = QTextDocument(self)  # filled aside, as one that is shown lays out every change
        document.setDocumentMargin(theme.px(6))
        document.setDefaultTextOption(self.document().defaultTextOption())
        document.setDefaultFont(theme.font("body"))
        cursor, block = QTextCursor(document), QTextBlockFormat()
        block.setLineHeight(LINE, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.beginEditBlock()
        cursor.setBlockFormat(block)
        self._starts = []
        looks: dict[tuple[float, bool, bool], QTextCharFormat] = {}
        for place, (text, shade) in enumerate(zip(self._texts, self._shades, strict=True)):
            self._starts.append(cursor.position())
            words = text.translate(MARKS) or "∅"
            rest = words.lstrip(" ")
            for part, is_space in ((words[: len(words) - len(rest)], True), (rest, False)):
                key = (shade, place in self._marked, is_space)
                if part:
                    cursor.insertText(part, looks.setdefault(key, _look(*key)))
        cursor.endEditBlock()
        self._end = cursor.position()
        self.setDocument(document)
        for before in self.findChildren(QTextDocument):
            if before is not document:
                before.deleteLater()
        self._mark_current()

    def _mark_current(self) -> None:
        if not 0 <= self.current < len(self._texts):
            self.setExtraSelections([])
            return
        one, cursor, look = QTextEdit.ExtraSelection(), QTextCursor(self.document()), QTextCharFormat()
        cursor.setPosition(self._starts[self.current])
        ends = [*self._starts[1:], self._end]
        end = ends[self.current] - self._texts[self.current].endswith("\n")
        cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
        look.setBackground(theme.colour("ink"))
        look.setForeground(theme.colour("on_ink"))
        one.cursor, one.format = cursor, look
        self.setExtraSelections([one])

    def _token_at(self, position: int) -> int:
        return max(bisect_right(self._starts, position) - 1, 0)

    def _restyle(self) -> None:
        place = self.current
        self._fill()
        self.current = place
        self._mark_current()

    # --- mouse and keyboard

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if event.button() == Qt.MouseButton.LeftButton and not self.textCursor().hasSelection() and self._texts:
            self.choose(self._token_at(self._position_at(event)), scrolls=False)

    def _position_at(self, event: QMouseEvent) -> int:
        """Return the character under the mouse; a cursor lies between two, at the nearer one's edge."""
        place = event.position().toPoint()
        cursor = self.cursorForPosition(place)
        is_right_half = self.cursorRect(cursor).left() > place.x()
        return max(cursor.position() - is_right_half, 0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        if event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier or not self._texts:
            super().keyPressEvent(event)
        elif key in _STEPS:
            self.choose(self.current + _STEPS[key])
        elif key in _MOVES:
            cursor = self.textCursor()
            cursor.movePosition(_MOVES[key])
            self.choose(self._token_at(cursor.position()))
        else:
            super().keyPressEvent(event)

    def createMimeDataFromSelection(self) -> QMimeData:
        data = QMimeData()
        data.setText(self.textCursor().selectedText().replace("\u2029", "\n").replace("↵\n", "\n").replace("⇥", "\t"))
        return data


def _look(shade: float, is_marked: bool, is_space: bool) -> QTextCharFormat:
    look = QTextCharFormat()
    look.setForeground(theme.colour("edge" if is_space else "ink"))
    if shade:
        tokens = theme.current().tokens  # opaque, so that the parts of a token leave no seam
        look.setBackground(QColor(theme.mix(tokens.page, tokens.ink, shade)))
    if is_marked:
        look.setUnderlineStyle(QTextCharFormat.UnderlineStyle.DotLine)
        look.setUnderlineColor(theme.colour("ink2"))
    return look
