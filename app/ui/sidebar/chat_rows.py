"""Paints the rows of the sidebar's list (headings, folders, chats, search results), and creates the field for a
name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QAbstractItemModel, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QHelpEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QLineEdit,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QToolTip,
    QWidget,
)

from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.direction import leading
from app.ui.look.painting import Index, block, outline
from app.ui.sidebar.chat_model import ChatRow, FolderRow
from app.ui.widgets.indicators import paint_dot
from app.ui.widgets.marked_line import Mark, paint_line

if TYPE_CHECKING:
    from app.ui.sidebar.chat_list import ChatList

ROW, HIT_ROW, GAP = 34, 50, 1  # heights of a row without the gap above and below it
INDENT = 20  # of a chat in a folder
SCROLL_BAR = 10  # the list's scroll bar is in the panel's margin


class ChatDelegate(QStyledItemDelegate):
    """Paints a row: heading; folder with count; chat with ember dot or "more" button; search result with its
    passage."""

    def __init__(self, view: ChatList) -> None:
        super().__init__(view)
        self.view = view

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        high = theme.px(HIT_ROW if self.view.chats.searching else ROW) + 2 * GAP
        return QSize(theme.px(100), high)  # a list gives every row its full width

    def more_rect(self, row: QRect) -> QRect:
        """Return the rectangle of a row's "more" button, 28 px wide at its end."""
        side = theme.px(28)
        right = QRect(row.right() - side - theme.px(2), row.center().y() - side // 2 + 1, side, side)
        return self._visual(row, right)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row = self.view.chats.rows[index.row()]
        box = self.view.row_box(option.rect)
        hovered = bool(option.state & QStyle.StateFlag.State_MouseOver)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if isinstance(row, str):
            self._section(painter, box, row)
        elif isinstance(row, FolderRow):
            self._ground(painter, box, index, hovered, False)
            self._folder(painter, box, row, self._offers(index, hovered), hovered)
        else:
            self._ground(painter, box, index, hovered, row.conversation.id == self.view.current_id)
            self._chat(painter, box, row, self._offers(index, hovered), hovered)
        if index.row() in self.view.drop_rows:
            painter.setClipping(False)
            block(painter, QRectF(box), theme.wash("hover"), theme.px(8))
            if isinstance(row, FolderRow):
                outline(painter, QRectF(box), theme.colour("control"), theme.px(8))
        painter.restore()

    def _offers(self, index: Index, hovered: bool) -> bool:
        """Return whether the row shows its "more" button."""
        return hovered or (self.view.hasFocus() and index == self.view.currentIndex())

    def _visual(self, box: QRect, rect: QRect) -> QRect:
        return QStyle.visualRect(self.view.layoutDirection(), box, rect)

    def _section(self, painter: QPainter, box: QRect, words: str) -> None:
        inset = theme.px(10)
        painter.setFont(theme.font("meta"))
        painter.setPen(theme.colour("ink3"))
        room = box.adjusted(inset, 0, -inset, -theme.px(4))
        painter.drawText(room, leading(self.view.isRightToLeft()) | Qt.AlignmentFlag.AlignBottom, words)

    def _ground(self, painter: QPainter, box: QRect, index: Index, hovered: bool, shown: bool) -> None:
        pressed = hovered and self.view.pressed_row == index.row()
        if shown or hovered:
            overlay = theme.wash("pressed" if pressed else "selected" if shown else "hover")
            block(painter, QRectF(box), overlay, theme.px(8))
        if self.view.is_led and index == self.view.currentIndex():
            block(painter, QRectF(box), theme.wash("hover"), theme.px(8))
            outline(painter, QRectF(box), theme.colour("control"), theme.px(8))

    def _more(self, painter: QPainter, box: QRect, hovered: bool) -> None:
        more, side = self.more_rect(box), theme.px(17)
        if hovered and self.view.over_more:
            block(painter, QRectF(more), theme.wash("pressed"), theme.px(6))
        mark = QRectF(more.center().x() - side / 2 + 0.5, more.center().y() - side / 2 + 0.5, side, side)
        icons.paint(painter, "more", mark, theme.colour("ink2"))

    def _folder(self, painter: QPainter, box: QRect, row: FolderRow, offers: bool, hovered: bool) -> None:
        inset, side, end = theme.px(10), theme.px(16), theme.px(34)
        icon_rect = self._visual(box, QRect(box.left() + inset, box.center().y() - side // 2 + 1, side, side))
        closed = "left" if self.view.isRightToLeft() else "right"
        icons.paint(painter, "down" if row.is_open else closed, QRectF(icon_rect), theme.colour("ink2"))
        left = box.left() + inset + side + theme.px(4)
        room = self._visual(box, QRect(left, box.top(), box.right() - end - left, box.height()))
        self._line(painter, room, row.name, "row", "ink")
        if offers:
            self._more(painter, box, hovered)
            return
        painter.setFont(theme.font("meta"))
        painter.setPen(theme.colour("ink3"))
        count = self._visual(box, QRect(box.right() - end, box.top(), end - inset, box.height()))
        beside = Qt.AlignmentFlag.AlignLeft if self.view.isRightToLeft() else Qt.AlignmentFlag.AlignRight
        painter.drawText(count, beside | Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignAbsolute, str(row.count))

    def _chat(self, painter: QPainter, box: QRect, row: ChatRow, offers: bool, hovered: bool) -> None:
        view = self.view
        shown = row.conversation.id == view.current_id
        running, waits = row.conversation.id == view.chats.running, row.conversation.id in view.chats.waiting
        room = self._visual(box, self._room(box, row, offers or running or waits))
        if offers:
            self._more(painter, box, hovered)
        elif waits:
            side = theme.px(17)
            mark = QRect(box.right() - theme.px(8) - side, box.center().y() - side // 2, side, side)
            icons.paint(painter, "question", QRectF(self._visual(box, mark)), theme.colour("hot"))
        elif running:
            side = theme.px(14)
            dot = QRect(box.right() - theme.px(9) - side, box.center().y() - side // 2 + 1, side, side)
            paint_dot(painter, QRectF(self._visual(box, dot)), theme.colour("hot_fill"), True)
        title = room
        if view.chats.searching and row.snippet:
            title = room.adjusted(0, theme.px(6), 0, -theme.px(24))
            below = room.adjusted(0, theme.px(25), 0, -theme.px(6))
            self._line(painter, below, row.snippet, "meta", "ink2" if shown or hovered else "ink3", row.marks)
        marks = row.title_marks if view.chats.searching else ()
        self._line(painter, title, row.title, "rowstrong" if shown else "row", "ink", marks)

    def _room(self, box: QRect, row: ChatRow, has_icon: bool) -> QRect:
        """Return the rectangle of a chat's text, before mirroring. has_icon: an icon follows."""
        inset = theme.px(10)
        return box.adjusted(
            inset + (theme.px(INDENT) if row.folder else 0), 0, -(theme.px(34) if has_icon else inset), 0
        )

    def _line(
        self, painter: QPainter, room: QRect, words: str, role: str, token: str, marks: tuple[Mark, ...] = ()
    ) -> None:
        paint_line(painter, room, words, role, theme.colour(token), marks, self.view.isRightToLeft())

    def helpEvent(self, event: QHelpEvent, view: QAbstractItemView, option: QStyleOptionViewItem, index: Index) -> bool:
        row = self.view.chats.row(index)
        if not isinstance(row, ChatRow | FolderRow):
            return False
        box = self.view.row_box(option.rect)
        words = row.title if isinstance(row, ChatRow) else row.name
        if self.more_rect(box).contains(event.pos()):
            menu = tr("Chat menu") if isinstance(row, ChatRow) else tr("Folder menu")
            QToolTip.showText(event.globalPos(), menu, view)
        else:
            room = box.width() - theme.px(10 + 20 + 34 if isinstance(row, FolderRow) or row.folder else 10 + 34)
            long = QFontMetrics(theme.font("row")).horizontalAdvance(words) > room
            QToolTip.showText(event.globalPos(), words if long else "", view)
        return True

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setProperty("kind", "field")
        editor.setProperty("place", "row")  # keeps the text where it was in the row
        editor.setProperty("focusRing", False)
        editor.setAccessibleName(tr("New name") if self.view.chats.folder(index) else tr("New title"))
        editor.setFont(theme.font("row"))
        return editor

    def setEditorData(self, editor: QWidget, index: Index) -> None:
        assert isinstance(editor, QLineEdit)
        editor.setText(str(index.data(Qt.ItemDataRole.EditRole)))
        editor.selectAll()

    def setModelData(self, editor: QWidget, model: QAbstractItemModel, index: Index) -> None:
        assert isinstance(editor, QLineEdit)
        model.setData(index, editor.text())

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        box = self.view.row_box(option.rect)
        high = theme.px(32)
        editor.setGeometry(QRect(box.left(), box.center().y() - high // 2 + 1, box.width(), high))
