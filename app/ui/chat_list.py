"""The list of chats in the sidebar: how a row is painted, and what mouse and keys do to it.

It shows what it is given and says what the person asks for; it stores and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import (
    QAbstractItemModel,
    QEvent,
    QModelIndex,
    QPoint,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import (
    QContextMenuEvent,
    QFontMetrics,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QAbstractItemView,
    QFrame,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QToolTip,
    QWidget,
)

from app.conversation import Conversation, SearchHit
from app.ui import icons, theme
from app.ui.chat_model import ChatModel, Index
from app.ui.direction import leading, order
from app.ui.floating import Menu
from app.ui.painting import block
from app.ui.signs import paint_dot

ROW, HIT_ROW, GAP = 34, 50, 1  # heights of the marked part of a row; the gap is left above and below it
SCROLL_BAR = 10  # the list's scroll bar stands in the panel's margin


class ChatDelegate(QStyledItemDelegate):
    """Paints a row: section word, or the marked ground with title, ember dot or "more" button, and snippet."""

    def __init__(self, view: ChatList) -> None:
        super().__init__(view)
        self.view = view

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        high = theme.px(HIT_ROW if self.view.chats.searching else ROW) + 2 * GAP
        return QSize(theme.px(100), high)  # a list gives every row its whole width

    def more_rect(self, row: QRect) -> QRect:
        """Where the "more" button of a row is: 28 wide at its end."""
        side = theme.px(28)
        right = QRect(row.right() - side - theme.px(2), row.center().y() - side // 2 + 1, side, side)
        return QStyle.visualRect(self.view.layoutDirection(), row, right)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        view = self.view
        row = view.chats.rows[index.row()]
        box = self.view.row_box(option.rect)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        inset = theme.px(10)
        if isinstance(row, str):
            painter.setFont(theme.font("meta"))
            painter.setPen(theme.colour("ink3"))
            words = box.adjusted(inset, 0, -inset, -theme.px(4))
            painter.drawText(words, leading(view.isRightToLeft()) | Qt.AlignmentFlag.AlignBottom, row)
            painter.restore()
            return
        shown = row.conversation.id == view.current_id
        hovered = bool(option.state & QStyle.StateFlag.State_MouseOver)
        pressed = hovered and view.pressed_row == index.row()
        if shown or hovered:
            veil = theme.wash("pressed" if pressed else "selected" if shown else "hover")
            block(painter, QRectF(box), veil, theme.px(8))
        offers = hovered or (view.hasFocus() and index == view.currentIndex())
        running = row.conversation.id == view.chats.running
        room = box.adjusted(inset, 0, -(theme.px(34) if offers or running else inset), 0)
        room = QStyle.visualRect(view.layoutDirection(), box, room)
        if offers:
            more = self.more_rect(box)
            if hovered and view.over_more:
                block(painter, QRectF(more), theme.wash("pressed"), theme.px(6))
            side = theme.px(17)
            mark = QRectF(more.center().x() - side / 2 + 0.5, more.center().y() - side / 2 + 0.5, side, side)
            icons.paint(painter, "more", mark, theme.colour("ink2"))
        elif running:
            side = theme.px(14)
            dot = QRect(box.right() - theme.px(9) - side, box.center().y() - side // 2 + 1, side, side)
            dot = QStyle.visualRect(view.layoutDirection(), box, dot)
            paint_dot(painter, QRectF(dot), theme.colour("hot_fill"), True)
        title = room
        if view.chats.searching and row.snippet:
            title = room.adjusted(0, theme.px(6), 0, -theme.px(24))
            below = room.adjusted(0, theme.px(25), 0, -theme.px(6))
            painter.setPen(theme.colour("ink2" if shown or hovered else "ink3"))
            self._line(painter, below, row.snippet, "meta")
        painter.setPen(theme.colour("ink"))
        self._line(painter, title, row.title, "rowstrong" if shown else "row")
        painter.restore()

    def _line(self, painter: QPainter, room: QRect, words: str, role: str) -> None:
        painter.setFont(theme.font(role))
        cut = QFontMetrics(painter.font()).elidedText(words, Qt.TextElideMode.ElideRight, room.width())
        flags = leading(self.view.isRightToLeft()) | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(room, flags | Qt.TextFlag.TextSingleLine | order(words), cut)

    def helpEvent(self, event: QHelpEvent, view: QAbstractItemView, option: QStyleOptionViewItem, index: Index) -> bool:
        row = self.view.chats.chat(index)
        if row is None:
            return False
        box = self.view.row_box(option.rect)
        if self.more_rect(box).contains(event.pos()):
            QToolTip.showText(event.globalPos(), "Rename or delete", view)
        else:
            room = box.width() - theme.px(10) - theme.px(34)
            long = QFontMetrics(theme.font("row")).horizontalAdvance(row.title) > room
            QToolTip.showText(event.globalPos(), row.title if long else "", view)
        return True

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setProperty("kind", "field")
        editor.setProperty("place", "row")  # the words stay where they stood in the row
        editor.setProperty("focusRing", False)
        editor.setAccessibleName("New title")
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


class ChatList(QListView):
    """The view. A click or Enter opens, F2 renames in place, Delete deletes, the menu key and "more" open the menu."""

    opened = Signal(str)
    rename_requested = Signal(str, str)
    delete_requested = Signal(str)
    focus_rect_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chats = ChatModel(self)
        self.current_id = ""  # of the chat that the page shows
        self.over_more = False
        self.pressed_row = -1
        self._waiting: list[Conversation] | None = None  # a new list that came in the middle of a rename
        self.setAccessibleName("Chats")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setProperty("kind", "chats")
        self.viewport().setAutoFillBackground(False)
        self.setUniformItemSizes(True)  # 5,000 chats are laid out from one measure
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setTabKeyNavigation(False)
        self.setMouseTracking(True)
        self.setModel(self.chats)
        self.delegate = ChatDelegate(self)
        self.setItemDelegate(self.delegate)
        self.chats.renamed.connect(self.rename_requested)
        self.verticalScrollBar().valueChanged.connect(self._moved)
        self.selectionModel().currentChanged.connect(self._moved)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.verticalScrollBar().setSingleStep(theme.px(ROW))
        self.scheduleDelayedItemsLayout()
        self.viewport().update()

    def _moved(self) -> None:
        self.focus_rect_changed.emit()

    def row_box(self, row: QRect) -> QRect:
        """The marked part of a row: as wide as if there were a scroll bar, so that one coming moves nothing."""
        width = self.width() - theme.px(SCROLL_BAR)
        left = row.right() + 1 - width if self.isRightToLeft() else row.left()
        return QRect(left, row.top() + GAP, width, row.height() - 2 * GAP)

    def focus_rect(self) -> QRect:
        """Where the keyboard is: the row of the cursor, or the whole list before there is one."""
        index = self.currentIndex()
        if not index.isValid():
            return self.rect()
        return self.row_box(self.visualRect(index)).translated(self.viewport().pos())

    # -------------------------------------------------------------- what is shown

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        """Show these chats; in the middle of a rename the new list waits for its end."""
        if self.state() == QAbstractItemView.State.EditingState:
            self._waiting = list(conversations)
            return
        self._keeping_place(lambda: self.chats.set_conversations(conversations))

    def set_hits(self, hits: Sequence[SearchHit] | None) -> None:
        """Show the hits of a search, or the full list again."""
        self.chats.set_hits(hits)
        self.scheduleDelayedItemsLayout()
        if hits is None:
            self.show_current()
        else:
            self.scrollToTop()

    def set_current(self, conversation_id: str) -> None:
        """Mark the chat that the page shows."""
        if conversation_id != self.current_id:
            self.current_id = conversation_id
            self.show_current()
            self.viewport().update()

    def show_current(self) -> None:
        """Scroll the marked chat into view and put the cursor on it."""
        index = self.chats.index_of(self.current_id)
        if index.isValid():
            self.setCurrentIndex(index)
            self.scrollTo(index)

    def _keeping_place(self, change: Any) -> None:
        under = self.chats.chat(self.currentIndex())
        offset = self.verticalScrollBar().value()
        change()
        if under is not None and not self.currentIndex().isValid():
            self.setCurrentIndex(self.chats.index_of(under.conversation.id))
        self.executeDelayedItemsLayout()
        self.verticalScrollBar().setValue(offset)

    def closeEditor(self, editor: QWidget, hint: QAbstractItemDelegate.EndEditHint) -> None:
        super().closeEditor(editor, hint)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.set_conversations(waiting)

    # -------------------------------------------------------------- what is asked for

    def rename(self, conversation_id: str) -> None:
        """Open the field for a new title in the row itself."""
        index = self.chats.index_of(conversation_id)
        if index.isValid():
            self.setCurrentIndex(index)
            self.scrollTo(index)
            self.edit(index)

    def menu_for(self, conversation_id: str) -> Menu:
        """The menu of one chat."""
        menu = Menu("Chat", self)
        menu.add("Rename", "pen", lambda: self.rename(conversation_id), "F2")
        menu.add("Delete", "trash", lambda: self.delete_requested.emit(conversation_id), "Del")
        return menu

    def _open_menu(self, index: QModelIndex, at: QPoint) -> None:
        chat = self.chats.chat(index)
        if chat is None:
            return
        menu = self.menu_for(chat.conversation.id)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(at)

    def _more_at(self, pos: QPoint) -> QModelIndex:
        index = self.indexAt(pos)
        if self.chats.chat(index) is None:
            return QModelIndex()
        row = self.row_box(self.visualRect(index))
        return index if self.delegate.more_rect(row).contains(pos) else QModelIndex()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        over = self._more_at(event.position().toPoint()).isValid()
        if over != self.over_more:
            self.over_more = over
            self.viewport().update()
        super().mouseMoveEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        pos = event.position().toPoint()
        if event.button() == Qt.MouseButton.LeftButton and (more := self._more_at(pos)).isValid():
            row = self.row_box(self.visualRect(more))
            corner = self.delegate.more_rect(row).bottomLeft() + QPoint(0, theme.px(4))
            self._open_menu(more, self.viewport().mapToGlobal(corner))
            return
        self.pressed_row = self.indexAt(pos).row()
        self.viewport().update()
        super().mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        pressed, self.pressed_row = self.pressed_row, -1
        index = self.indexAt(event.position().toPoint())
        super().mouseReleaseEvent(event)
        self.viewport().update()
        chat = self.chats.chat(index)
        if event.button() == Qt.MouseButton.LeftButton and chat is not None and index.row() == pressed:
            self.opened.emit(chat.conversation.id)

    def leaveEvent(self, event: QEvent) -> None:
        self.over_more = False
        super().leaveEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() == QContextMenuEvent.Reason.Keyboard:
            index = self.currentIndex()
            at = self.viewport().mapToGlobal(self.visualRect(index).bottomLeft() + QPoint(theme.px(10), 0))
        else:
            index, at = self.indexAt(event.pos()), event.globalPos()
        self._open_menu(index, at)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        chat = self.chats.chat(self.currentIndex())
        if chat is not None and event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space}:
            self.opened.emit(chat.conversation.id)
        elif chat is not None and event.key() == Qt.Key.Key_F2:
            self.rename(chat.conversation.id)
        elif chat is not None and event.key() == Qt.Key.Key_Delete:
            self.delete_requested.emit(chat.conversation.id)
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._moved()
