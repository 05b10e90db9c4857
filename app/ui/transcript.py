"""The messages of a chat in a scrolling column: the newest are built at once, older ones in slices of idle time.

Text that streams in is gathered and painted at most every 33 ms; the view follows the end until the person scrolls up.
It keeps no chat and knows no engine.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import replace

from PySide6.QtCore import QCoreApplication, QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QFrame, QScrollArea, QVBoxLayout, QWidget

from app.conversation import Message, MessageState, Role
from app.engine_status import EngineStatus
from app.ui import theme
from app.ui.controls import Button
from app.ui.message_view import Answer, MessageView, make_view

NEWEST = 60  # messages that a chat has built soon after it opens
BATCH = 20  # older ones that are built when somebody scrolls up to them
# Before the window is painted again, so many are built as fill the view this often, and no more than this; an answer
# with a table and code takes 10 ms.
AT_ONCE, VIEWS_AT_ONCE = 12, 1.5
SLICE_S = 0.012  # of the window's thread for the others, then it sees to whatever else has happened
FLUSH_MS = 33
SLOWEST_FLUSH_MS = 250
PLAIN_TAIL = 4000  # characters of an open block up to which it is painted at the full rate
TEXT_WIDTH = 720
SIDE_MARGIN = 40
TURN_GAP = 16


def text_column(page_width: int) -> tuple[int, int]:
    """Left edge and width of the text column in a page of that width."""
    width = max(min(theme.px(TEXT_WIDTH), page_width - 2 * theme.px(SIDE_MARGIN)), theme.px(120))
    return (page_width - width) // 2, width


def _model_of(message: Message) -> str:
    """The name of the model that gave an answer; empty where that is not kept."""
    name = (message.stats or {}).get("model") if message.role is Role.ASSISTANT else None
    return name if isinstance(name, str) else ""


class Transcript(QScrollArea):
    """The messages of one chat. `link_activated` gives an address that was followed in one of them."""

    link_activated = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "plain")
        self.setAccessibleName("Messages")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self._messages: list[Message] = []
        self._views: list[MessageView] = []  # of the newest messages, oldest first
        self._pending: dict[str, list[str]] = {}
        self._dropped: tuple[str, int] | None = None  # question's id, count
        self._status = EngineStatus()
        self._following = True
        self._moving = False
        self._last_value = 0
        self._anchor: tuple[MessageView, int] | None = None  # first visible turn, its offset from the top of the view
        self._wanted = 0  # messages to have built, counted from the newest

        self._content = QWidget()
        self._column = QVBoxLayout(self._content)
        self._column.setSpacing(theme.px(TURN_GAP))
        self._column.addStretch(1)
        self.setWidget(self._content)
        self._content.setAutoFillBackground(False)

        self._flush_timer = QTimer(self)
        self._flush_timer.setSingleShot(True)
        self._flush_timer.timeout.connect(self.flush)
        self._slice_timer = QTimer(self)
        self._slice_timer.setSingleShot(True)
        self._slice_timer.timeout.connect(self._build_slice)
        self._jump = Button("Jump to end", "secondary", "end", parent=self)
        self._jump.radius_px = 16
        self._jump.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._jump.clicked.connect(self.jump_to_end)
        self._jump.hide()
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._on_scroll)
        bar.rangeChanged.connect(self._on_range)
        theme.current().changing.connect(self._shed)
        theme.current().changed.connect(self._lay_out)

    # ------------------------------------------------------------------ what is shown

    @property
    def messages(self) -> list[Message]:
        """Every message of the chat, built or not; of an answer that is being written, the words so far."""
        return [self._as_it_stands(message) for message in self._messages]

    def _as_it_stands(self, message: Message) -> Message:
        view = self._view(message.id) if message.state is MessageState.WRITING else None
        if not isinstance(view, Answer):
            return message
        return replace(message, text=view.text + "".join(self._pending.get(message.id, [])))

    @property
    def views(self) -> list[MessageView]:
        """The widgets that are built, oldest first."""
        return list(self._views)

    @property
    def is_following(self) -> bool:
        """Whether new text keeps the end in view."""
        return self._following

    def show_messages(self, messages: list[Message]) -> None:
        """Show a chat from its end. Cost: the messages that fill the view, however long it is; 60 in slices to come."""
        self._flush_timer.stop()
        self._pending.clear()
        self._dropped = None
        self._anchor = None
        for view in self._views:
            self._discard(view)
        self._views = []
        self._messages = list(messages)
        self._wanted = NEWEST
        self._build_what_fills_the_view()
        for message in reversed(self._messages):
            count = (message.stats or {}).get("dropped_messages")
            if message.role is Role.ASSISTANT and count is not None:
                self.set_dropped(message.id, int(count))
                break
        self.jump_to_end()

    def add_message(self, message: Message) -> None:
        """Show one message more. The person's own brings the end into view."""
        self.flush()
        self._messages.append(message)
        self._insert(len(self._views), message)
        if message.role is Role.USER:
            self.jump_to_end()

    def append_text(self, message_id: str, text: str) -> None:
        """Take text of an answer that is being written; it is painted with the next flush."""
        self._pending.setdefault(message_id, []).append(text)
        if not self._flush_timer.isActive():
            self._flush_timer.start(self._flush_interval(message_id))

    def finish_message(self, message: Message) -> None:
        """Show an answer as it is kept now, with its figures."""
        self.flush()
        self._messages = [message if m.id == message.id else m for m in self._messages]
        view = self._view(message.id)
        if isinstance(view, Answer):
            view.set_model(self._new_model(message))
            view.finish(message)
        count = (message.stats or {}).get("dropped_messages")
        if count is not None:
            self.set_dropped(message.id, int(count))

    def remove_message(self, message_id: str) -> None:
        """Take a message away."""
        self._pending.pop(message_id, None)
        self._messages = [m for m in self._messages if m.id != message_id]
        view = self._view(message_id)
        if view is not None:
            self._views.remove(view)
            self._discard(view)

    def set_dropped(self, message_id: str, count: int) -> None:
        """Mark above the question of that answer that `count` earlier messages are out of the context.

        There is one mark in a chat, the newest: it says where the context stands now.
        """
        if self._dropped is not None:
            self._mark(self._dropped[0], 0)
        question = self._question_of(message_id)
        self._dropped = (question, count) if question and count else None
        self._show_mark()

    def set_status(self, status: EngineStatus) -> None:
        """What the engine is doing, for the answer that is under way."""
        self._status = status
        for view in self._views[-2:]:
            if isinstance(view, Answer):
                view.set_status(status)

    def last_answer(self) -> Message | None:
        """The newest answer."""
        newest = next((m for m in reversed(self._messages) if m.role is Role.ASSISTANT), None)
        return self._as_it_stands(newest) if newest else None

    def flush(self) -> None:
        """Paint the text that has come since the last time."""
        self._flush_timer.stop()
        pending, self._pending = self._pending, {}
        for message_id, pieces in pending.items():
            view = self._view(message_id)
            if isinstance(view, Answer):
                view.append("".join(pieces))

    def _flush_interval(self, message_id: str) -> int:
        """The longer the block that must be painted again, the rarer: its cost stays a small share of the time."""
        view = self._view(message_id)
        tail = view.tail_length if isinstance(view, Answer) else 0
        return min(max(FLUSH_MS, FLUSH_MS * tail // PLAIN_TAIL), SLOWEST_FLUSH_MS)

    # ------------------------------------------------------------------ building

    def _insert(self, position: int, message: Message) -> None:
        view = make_view(message, self._content)
        view.link_activated.connect(self.link_activated)
        view.set_width(text_column(self.width())[1])
        if isinstance(view, Answer):
            view.set_status(self._status)
            view.set_model(self._new_model(message, len(self._messages) - 1 - len(self._views) if not position else -1))
        self._views.insert(position, view)
        self._column.insertWidget(position, view)

    def _new_model(self, message: Message, index: int = -1) -> str:
        """Who gave an answer, if another model gave the one before it; else nothing. index: its place, if known."""
        name = _model_of(message)
        if not name:
            return ""
        if index < 0 or self._messages[index].id != message.id:
            index = next((i for i in reversed(range(len(self._messages))) if self._messages[i].id == message.id), 0)
        before = next((known for i in range(index - 1, -1, -1) if (known := _model_of(self._messages[i]))), name)
        return name if before != name else ""

    def _discard(self, view: MessageView) -> None:
        self._column.removeWidget(view)
        if self._anchor is not None and self._anchor[0] is view:
            self._anchor = None
        view.hide()
        view.deleteLater()

    def _insert_older(self) -> MessageView:
        self._insert(0, self._messages[-len(self._views) - 1])
        return self._views[0]

    def _build_what_fills_the_view(self) -> None:
        most = min(AT_ONCE, len(self._messages))
        room = VIEWS_AT_ONCE * self.viewport().height()
        while len(self._views) < most and room > 0:
            room -= self._insert_older().sizeHint().height()
        self._slice_timer.start(0)

    def _build_slice(self) -> None:
        """Build older messages above for a moment; what is in view stays where it is."""
        until = time.perf_counter() + SLICE_S
        while len(self._views) < min(self._wanted, len(self._messages)):
            self._insert_older()
            if time.perf_counter() >= until:
                self._slice_timer.start(0)  # if that was the last one, the next slice finds nothing to do
                break
        self._show_mark()

    def _shed(self) -> None:
        """The theme is about to change: what lies above the view is taken down now and built again in slices.

        A new style sheet is laid on every widget there is, at 0.25 ms each: with 60 messages that takes half a second.
        """
        focus = QApplication.focusWidget()
        keep = max(self._first_visible() - 1, 0)
        for index, view in enumerate(self._views[:keep]):
            writing = isinstance(view, Answer) and view.is_writing
            if writing or (focus is not None and view.isAncestorOf(focus)):
                keep = index
                break
        above, self._views = self._views[:keep], self._views[keep:]
        for view in above:
            self._discard(view)
            QCoreApplication.sendPostedEvents(view, QEvent.Type.DeferredDelete.value)  # it must be gone by then
        if above:
            self._wanted = max(self._wanted, len(above) + len(self._views))
            self._slice_timer.start(0)

    def _view(self, message_id: str) -> MessageView | None:
        return next((view for view in reversed(self._views) if view.message.id == message_id), None)

    def _question_of(self, message_id: str) -> str | None:
        ids = [m.id for m in self._messages]
        if message_id not in ids:
            return None
        before = self._messages[: ids.index(message_id)]
        return next((m.id for m in reversed(before) if m.role is Role.USER), None)

    def _show_mark(self) -> None:
        if self._dropped is not None:
            self._mark(*self._dropped)

    def _mark(self, message_id: str, count: int) -> None:
        view = self._view(message_id)
        if view is not None:
            view.set_dropped(count)

    # ------------------------------------------------------------------ scrolling

    def jump_to_end(self) -> None:
        """Show the end, and follow it."""
        self._following = True
        self._anchor = None
        self._move(self.verticalScrollBar().maximum())
        self._show_jump()

    def _move(self, value: int) -> None:
        self._moving = True
        self.verticalScrollBar().setValue(value)
        self._moving = False
        self._last_value = self.verticalScrollBar().value()

    def _on_scroll(self, value: int) -> None:
        """The person scrolled: up stops following, the very end starts it again."""
        if self._moving:
            return
        bar = self.verticalScrollBar()
        if value >= bar.maximum():
            self._following = True
        elif value < self._last_value:
            self._following = False
        self._last_value = value
        self._take_anchor()
        self._show_jump()
        self._ask_for_older()

    def _on_range(self, _minimum: int, maximum: int) -> None:
        """The column has become longer or shorter: hold the end, or what is in view."""
        if self._following:
            self._move(maximum)
        elif self._anchor is not None:
            view, offset = self._anchor
            self._move(view.y() - offset)
        self._show_jump()
        self._ask_for_older()

    def _take_anchor(self) -> None:
        value, index = self.verticalScrollBar().value(), self._first_visible()
        self._anchor = None
        if not self._following and index < len(self._views):
            view = self._views[index]
            self._anchor = (view, view.y() - value)

    def _first_visible(self) -> int:
        """Index of the first view that is not wholly above what is seen."""
        value = self.verticalScrollBar().value()
        return bisect_right(self._views, value, key=lambda view: view.y() + view.height())

    def _ask_for_older(self) -> None:
        if self._following or self._slice_timer.isActive() or len(self._views) == len(self._messages):
            return  # 60 messages are more than a screen: whoever is at the end needs no older ones
        if self.verticalScrollBar().value() < self.viewport().height():
            self._wanted = len(self._views) + BATCH
            self._slice_timer.start(0)

    def _show_jump(self) -> None:
        shown = not self._following and self.verticalScrollBar().maximum() > 0
        if not shown and self._jump.hasFocus():
            self.setFocus()  # else Qt hands the focus to some message and scrolls there
        self._jump.setVisible(shown)
        if self._jump.isVisible():
            self._jump.resize(self._jump.sizeHint())
            left = (self.width() - self._jump.width()) // 2
            self._jump.move(left, self.height() - self._jump.height() - theme.px(12))
            self._jump.raise_()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Home:
            self.verticalScrollBar().setValue(0)
        elif event.key() == Qt.Key.Key_End:
            self.jump_to_end()
        else:
            super().keyPressEvent(event)

    # ------------------------------------------------------------------ layout

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def _lay_out(self) -> None:
        left, width = text_column(self.width())
        # Measured on the whole width, so that the column stays put when the scroll bar comes and goes.
        right = max(self.viewport().width() - left - width, 0)
        self._column.setContentsMargins(left, theme.px(24), right, theme.px(16))
        self._column.setSpacing(theme.px(TURN_GAP))
        for view in self._views:
            view.set_width(width)
        self._show_jump()
