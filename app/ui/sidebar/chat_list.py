"""The list of chats in the sidebar: mouse, keyboard, and the menus of chats and folders.

It emits signals for every action; the controllers store and delete chats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QModelIndex, QPoint, QRect, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QKeyEvent,
    QMouseEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QAbstractItemView,
    QApplication,
    QFrame,
    QListView,
    QWidget,
)

from app.chat.store.conversation import Conversation, SearchHit
from app.translation import tr
from app.ui.look import theme
from app.ui.sidebar import chat_drag, chat_menus
from app.ui.sidebar.chat_model import ChatModel, ChatRow, FolderRow, Row
from app.ui.sidebar.chat_rows import GAP, ROW, SCROLL_BAR, ChatDelegate
from app.ui.widgets.floating import Menu


class ChatList(QListView):
    """The list view. A click or Enter opens, F2 renames in place, Delete deletes, the menu key and "more" open the
    menu.

    Chats can be dragged; the menu does the same. asked: an action of a menu ("export_markdown", "export_json",
    "new_folder" of a chat, "take_out", "delete_folder", "new_chat_in" and "project" of a folder, "new_project",
    "export_all", "import_chats", "bin"), and the chat or folder.
    """

    opened = Signal(str)
    hit_opened = Signal(str, str)  # chat, and the message that was found
    rename_requested = Signal(str, str)
    delete_requested = Signal(str)
    placed = Signal(str, bool, str)  # chat, pinned, folder
    folder_renamed = Signal(str, str)
    closed_changed = Signal(list)  # names of the collapsed folders
    asked = Signal(str, str)
    files_dropped = Signal(list)  # Paths, to import
    focus_rect_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chats = ChatModel(self)
        self.current_id = ""  # the chat that the page shows
        self.over_more = False
        self.is_led = False  # the search field's keys move the cursor
        self.pressed_row = -1
        self.drop_rows: frozenset[int] = frozenset()  # highlighted during a drag
        self._pressed_at = QPoint()
        self._waiting: list[Conversation] | None = None  # a new list that arrived during a rename
        self.setAccessibleName(tr("Chats"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setProperty("kind", "chats")
        self.viewport().setAutoFillBackground(False)
        self.setUniformItemSizes(True)  # 5,000 chats are laid out from one size
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setTabKeyNavigation(False)
        self.setMouseTracking(True)
        self.setModel(self.chats)
        self.delegate = ChatDelegate(self)
        self.setItemDelegate(self.delegate)
        self.viewport().setAcceptDrops(True)
        self.chats.renamed.connect(self.rename_requested)
        self.chats.folder_renamed.connect(self.folder_renamed)
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
        """Return the highlighted part of a row, as wide as with a scroll bar, so that its appearance moves nothing."""
        width = self.width() - theme.px(SCROLL_BAR)
        left = row.right() + 1 - width if self.isRightToLeft() else row.left()
        return QRect(left, row.top() + GAP, width, row.height() - 2 * GAP)

    def focus_rect(self) -> QRect:
        """Return the rectangle of the current row, or of the list if there is none."""
        index = self.currentIndex()
        if not index.isValid():
            return self.rect()
        return self.row_box(self.visualRect(index)).translated(self.viewport().pos())

    # --- updates

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        """Show these chats; during a rename, wait until it ends."""
        if self.state() == QAbstractItemView.State.EditingState:
            self._waiting = list(conversations)
            return
        self._keeping_place(lambda: self.chats.set_conversations(conversations))

    def set_hits(self, hits: Sequence[SearchHit] | None) -> None:
        """Show the results of a search; None shows all chats again."""
        self.chats.set_hits(hits)
        self.scheduleDelayedItemsLayout()
        if hits is None:
            self.show_current()
        else:
            self.setCurrentIndex(self.chats.index(0) if hits else QModelIndex())
            self.scrollToTop()

    def set_led(self, led: bool) -> None:
        """Set whether another widget's keys move the cursor: its row is then marked without the focus."""
        self.is_led = led
        self.viewport().update()

    def step(self, by: int) -> None:
        """Move the cursor down by `by` chats or folders, stopping at both ends."""
        places = [i for i, row in enumerate(self.chats.rows) if not isinstance(row, str)]
        here = self.currentIndex().row()
        beyond = [i for i in places if (i > here if by > 0 else i < here)]
        if beyond:
            index = self.chats.index(beyond[min(by, len(beyond)) - 1] if by > 0 else beyond[max(by, -len(beyond))])
            self.setCurrentIndex(index)
            self.scrollTo(index)
            self.viewport().update()

    def take_current(self) -> None:
        """Open the current row, as Enter does."""
        self._take(self.chats.row(self.currentIndex()))

    def set_current(self, conversation_id: str) -> None:
        """Mark the chat that the page shows."""
        if conversation_id != self.current_id:
            self.current_id = conversation_id
            self.show_current()
            self.viewport().update()

    def show_current(self) -> None:
        """Scroll to the marked chat and move the cursor to it."""
        index = self.chats.index_of(self.current_id)
        if index.isValid():
            self.setCurrentIndex(index)
            self.scrollTo(index)

    def _keeping_place(self, change: Callable[[], None]) -> None:
        under, row = self.chats.chat(self.currentIndex()), self.currentIndex().row()
        offset = self.verticalScrollBar().value()
        change()
        if under is not None and not self.currentIndex().isValid():
            same = self.chats.index_of(under.conversation.id)
            self.setCurrentIndex(same if same.isValid() else self.chats.index(self._beside(row)))
        self.executeDelayedItemsLayout()
        self.verticalScrollBar().setValue(offset)

    def _beside(self, row: int) -> int:
        """Return the chat or folder that replaces a removed row: the one below, else the one above."""
        places = [i for i, one in enumerate(self.chats.rows) if not isinstance(one, str)]
        return next((i for i in places if i >= row), places[-1] if places else -1)

    def closeEditor(self, editor: QWidget, hint: QAbstractItemDelegate.EndEditHint) -> None:
        super().closeEditor(editor, hint)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.set_conversations(waiting)

    # --- actions

    def rename(self, conversation_id: str) -> None:
        """Edit a chat's title in its row, expanding its folder if necessary."""
        chat = self.chats.conversation(conversation_id)
        folder = chat.folder if chat else ""
        if folder in self.chats.closed and not self.chats.index_of(conversation_id).isValid():
            self.toggle_folder(folder)
        self._edit(self.chats.index_of(conversation_id))

    def rename_folder(self, name: str) -> None:
        """Edit a folder's name in its row."""
        self._edit(self.chats.folder_index(name))

    def rename_marked(self) -> None:
        """Edit the name of the marked chat or folder, as F2 does."""
        self._edit(self.currentIndex())

    def _edit(self, index: QModelIndex) -> None:
        if index.isValid():
            self.setCurrentIndex(index)
            self.scrollTo(index)
            self.edit(index)

    def toggle_folder(self, name: str) -> None:
        self._keeping_place(lambda: self.chats.set_closed(self.chats.closed ^ {name}))
        self.setCurrentIndex(self.chats.folder_index(name))
        self.closed_changed.emit(sorted(self.chats.closed & set(self.chats.folders)))

    def neighbour(self, step: int) -> str:
        """Return the id of the listed chat that many rows below the shown one; empty if there is none."""
        ids = [row.conversation.id for row in self.chats.rows if isinstance(row, ChatRow)]
        if self.current_id not in ids:
            return ids[0] if ids else ""
        at = ids.index(self.current_id) + step
        return ids[at] if 0 <= at < len(ids) else ""

    def _take(self, row: Row | None) -> None:
        """Perform the action of a click or Enter."""
        if isinstance(row, FolderRow):
            self.toggle_folder(row.name)
        elif isinstance(row, ChatRow) and row.message_id:
            self.hit_opened.emit(row.conversation.id, row.message_id)
        elif isinstance(row, ChatRow):
            self.opened.emit(row.conversation.id)

    def menu_for(self, row: Row | None) -> Menu:
        """Return the menu of a chat or a folder; without either, the menu of the list."""
        if isinstance(row, ChatRow):
            return chat_menus.chat_menu(self, row.conversation)
        return chat_menus.folder_menu(self, row.name) if isinstance(row, FolderRow) else chat_menus.list_menu(self)

    def _more_at(self, pos: QPoint) -> QModelIndex:
        index = self.indexAt(pos)
        if isinstance(self.chats.row(index), str | None):
            return QModelIndex()
        row = self.row_box(self.visualRect(index))
        return index if self.delegate.more_rect(row).contains(pos) else QModelIndex()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        pos = event.position().toPoint()
        if self._begins_drag(event, pos):
            return
        over = self._more_at(pos).isValid()
        if over != self.over_more:
            self.over_more = over
            self.viewport().update()
        super().mouseMoveEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        pos = event.position().toPoint()
        if event.button() == Qt.MouseButton.LeftButton and (more := self._more_at(pos)).isValid():
            row = self.row_box(self.visualRect(more))
            corner = self.delegate.more_rect(row).bottomLeft() + QPoint(0, theme.px(4))
            self.menu_for(self.chats.row(more)).popup(self.viewport().mapToGlobal(corner))
            return
        self.pressed_row, self._pressed_at = self.indexAt(pos).row(), pos
        self.viewport().update()
        super().mousePressEvent(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        pressed, self.pressed_row = self.pressed_row, -1
        index = self.indexAt(event.position().toPoint())
        super().mouseReleaseEvent(event)
        self.viewport().update()
        if event.button() == Qt.MouseButton.LeftButton and index.isValid() and index.row() == pressed:
            self._take(self.chats.row(index))

    def leaveEvent(self, event: QEvent) -> None:
        self.over_more = False
        super().leaveEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() == QContextMenuEvent.Reason.Keyboard:
            index = self.currentIndex()
            at = self.viewport().mapToGlobal(self.visualRect(index).bottomLeft() + QPoint(theme.px(10), 0))
        else:
            index, at = self.indexAt(event.pos()), event.globalPos()
        self.menu_for(self.chats.row(index)).popup(at)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row, key = self.chats.row(self.currentIndex()), event.key()
        if self.state() == QAbstractItemView.State.EditingState:
            event.accept()  # Enter in the field for a name arrives here too
        elif isinstance(row, FolderRow) and key in {Qt.Key.Key_Left, Qt.Key.Key_Right}:
            if row.is_open == (key == (Qt.Key.Key_Right if self.isRightToLeft() else Qt.Key.Key_Left)):
                self.toggle_folder(row.name)
        elif isinstance(row, ChatRow | FolderRow) and key in {Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space}:
            self._take(row)
        elif isinstance(row, ChatRow | FolderRow) and key == Qt.Key.Key_F2:
            self.rename_marked()
        elif isinstance(row, ChatRow) and key == Qt.Key.Key_Delete:
            self.delete_requested.emit(row.conversation.id)
        else:
            super().keyPressEvent(event)

    # --- dragging

    def _begins_drag(self, event: QMouseEvent, pos: QPoint) -> bool:
        """Start a drag if the mouse has moved the pressed chat far enough. Return whether it was dragged."""
        row = self.chats.row(self.chats.index(self.pressed_row)) if self.pressed_row >= 0 else None
        far = (pos - self._pressed_at).manhattanLength() >= QApplication.startDragDistance()
        held = event.buttons() & Qt.MouseButton.LeftButton
        if not (held and far and isinstance(row, ChatRow)) or self.chats.searching:
            return False
        self.pressed_row = -1
        chat_drag.start(self, row)
        self._mark_drop(None)
        return True

    def _place_at(self, event: QDropEvent) -> chat_drag.Place | None:
        if not chat_drag.carried(event.mimeData()):
            return None
        return chat_drag.place_of(self.chats, self.indexAt(event.position().toPoint()).row())

    def _mark_drop(self, place: chat_drag.Place | None) -> None:
        rows = frozenset() if place is None else chat_drag.rows_of(self.chats, place)
        if rows != self.drop_rows:
            self.drop_rows = rows
            self.viewport().update()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        event.setAccepted(bool(chat_drag.carried(event.mimeData()) or chat_drag.files_in(event.mimeData())))

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        if chat_drag.files_in(event.mimeData()):
            event.setDropAction(Qt.DropAction.CopyAction)
            event.accept()
            return
        place = self._place_at(event)
        self._mark_drop(place)
        event.setAccepted(place is not None)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self._mark_drop(None)

    def dropEvent(self, event: QDropEvent) -> None:
        if files := chat_drag.files_in(event.mimeData()):
            event.setDropAction(Qt.DropAction.CopyAction)
            event.accept()
            self.files_dropped.emit(files)
            return
        place, chat = self._place_at(event), chat_drag.carried(event.mimeData())
        self._mark_drop(None)
        if place is not None:
            event.acceptProposedAction()
            self.placed.emit(chat, place.pinned, place.folder)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._moved()
