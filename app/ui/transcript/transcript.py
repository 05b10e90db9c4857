"""The messages of a chat in a scrolling column: the visible ones are built first, others in idle slices.

Streamed text is collected and painted every 60 ms at most; the view follows the end until the user scrolls up. Messages
far from the view are not built (message_column.py), so that a chat of 10,000 messages costs only what is visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QEvent, QPoint, QRect, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QScrollArea, QWidget
from shiboken6 import isValid

from app.chat.message_action import MessageAction
from app.chat.store.conversation import Message, MessageState, Role
from app.clients.engine_status import EngineStatus
from app.later import Later
from app.tools.questions import Question
from app.translation import tr
from app.ui.look import theme
from app.ui.transcript.context_reach import ContextReach
from app.ui.transcript.jump_button import JumpButton
from app.ui.transcript.message_builder import AT_ONCE, BATCH, NEWEST, MessageBuilder
from app.ui.transcript.message_column import MessageColumn, common_length, text_column
from app.ui.transcript.message_view import HAS_NOTES, MessageView
from app.ui.transcript.selection.copied_text import copy_message_text
from app.ui.transcript.selection.passages import spoken_or_own
from app.ui.transcript.selection.selection import TextSelection
from app.ui.transcript.text_find import TextFind
from app.ui.transcript.text_stream import TextStream

if TYPE_CHECKING:
    from app.ui.transcript import answer_view, own_message
else:
    answer_view = Later("app.ui.transcript.answer_view")
    own_message = Later("app.ui.transcript.own_message")


class Transcript(QScrollArea):
    """The messages of one chat.

    link_activated: the address of a link that was followed. source_requested: an Attachment with a source. acted: a
    MessageAction.
    """

    link_activated = Signal(str)
    source_requested = Signal(object)
    acted = Signal(object)
    files_given = Signal(list)  # paths that were dropped on an editor or pasted there
    edited = Signal(str, str)  # as in MessageColumn

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "plain")
        self.setAccessibleName(tr("Messages"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self._column = MessageColumn(self._wire)
        self._column.edited.connect(self.edited)
        self.stream = TextStream(self._column)
        self.builder = MessageBuilder(self._column, lambda: self.verticalScrollBar().value())
        self._reach = ContextReach(self._column)
        self.selection = TextSelection(self, self._column)
        self.selection.link_activated.connect(self.link_activated)
        self.selection.note_requested.connect(lambda text: self.acted.emit(MessageAction("note", "", text)))
        self.text_find = TextFind(
            self, self._column, lambda index: self._go_to(index, theme.px(24)), self._show_part, self._top_message
        )
        self._status = EngineStatus()
        self._following = True
        self._edited: QWidget | None = None  # an editor that stays in view
        self._moving = False
        self._last_value = 0
        self._is_changing = False  # a new theme is being applied
        self._anchor: tuple[MessageView, int] | None = None  # first visible message, and its offset from the top
        self.setWidget(self._column)
        # An opaque background allows scrolling by moving pixels, so that only newly visible parts are painted.
        self._column.setAutoFillBackground(True)

        self.stream.flushed.connect(self.text_find.grew)
        self.stream.flushed.connect(self._settle_before_paint)
        self.builder.built.connect(self._take_built)
        self._leap_timer = QTimer(self, singleShot=True)
        self._leap_timer.timeout.connect(self._leap)
        self._jump = JumpButton(self._column, self)
        self._jump.clicked.connect(self.jump_to_end)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._on_scroll)
        bar.rangeChanged.connect(self._on_range)
        theme.current().changing.connect(self._theme_changes)
        theme.current().changed.connect(self._take_up_theme)

    # --- messages

    @property
    def messages(self) -> list[Message]:
        """All messages of the chat, built or not; of an answer in progress, the text so far."""
        self.flush()
        return [self._column.as_it_stands(index) for index in range(len(self._column.messages))]

    def take_edits(self, edits: Mapping[str, str]) -> None:
        """Open these edits, texts by id, wherever their messages are shown from now on."""
        self._column.edits = dict(edits)

    def foot_of(self, message_id: str) -> QWidget | None:
        """Return the menu button of an answer, if visible."""
        view = self._column.view(message_id)
        button = view.stats.more if isinstance(view, answer_view.AnswerView) else None
        return button if button is not None and not button.visibleRegion().isEmpty() else None

    @property
    def views(self) -> list[MessageView]:
        """The built widgets, oldest first."""
        return list(self._column.views)

    @property
    def is_following(self) -> bool:
        """Whether the view follows the end."""
        return self._following

    def show_messages(self, messages: list[Message]) -> None:
        """Show a chat from its end. Cost: the messages that fill the view; up to NEWEST follow in slices."""
        self.stream.clear()
        self.selection.clear()
        self._column.start_at(0)
        self._column.messages = list(messages)
        self._build_the_end()
        self._reach.find()
        self.text_find.sync()

    def show_branch(self, messages: list[Message], keep: str = "") -> None:
        """Show another branch of the same chat, keeping the common part.

        keep: id of a message to place where its other version was; if empty, show the end.
        """
        self.flush()
        column, before = self._column, self._column.messages
        same = common_length(before, messages)
        self.selection.clear()
        place = None
        if column.first <= same < column.last:
            place = column.views[same - column.first].y() - self.verticalScrollBar().value()
        column.drop_below(max(column.last - max(same, column.first), 0))
        column.messages = list(messages)
        column.drop_sent_edits(before)
        self._anchor = None
        if not keep or same < column.first or (not column.views and same):
            if column.first < same == column.last and len(messages) - same <= AT_ONCE:
                while column.last < len(messages):
                    column.build_below()
                column.fit_room()
                self.builder.mark_last()
                self.jump_to_end()
            else:
                column.start_at(0)
                self._build_the_end()
        else:
            self._following = False
            self.builder.fill_below(self.viewport().height())
            column.fit_room()
            index = column.index(keep)
            if place is not None and column.first <= index < column.last:
                self._hold(column.views[index - column.first], place)
            self.builder.mark_last()
            self.builder.want(NEWEST // 2, NEWEST // 2)
            self._paint_when_filled()
        self._reach.find()
        self._show_jump()
        self.text_find.sync()

    def set_versions(self, versions: dict[str, tuple[int, int]]) -> None:
        """Set the version number and count of messages with several versions."""
        self._column.set_versions(versions)

    def has_versions(self, message_id: str) -> bool:
        return message_id in self._column.versions

    def show_message(self, message_id: str) -> None:
        """Scroll a message to the top of the view."""
        index = self._column.index(message_id)
        if index >= 0:
            self._go_to(index, theme.px(24))

    def edit_last(self) -> bool:
        """Edit the user's last message. Return False if there is none."""
        column = self._column
        last = next((i for i in reversed(range(len(column.messages))) if column.messages[i].role is Role.USER), -1)
        if last < 0:
            return False
        view = column.view(column.messages[last].id)
        top, height = self.verticalScrollBar().value(), self.viewport().height()
        if view is None or not top <= view.y() <= top + height // 2:
            self._go_to(last, theme.px(24))
            view = column.view(column.messages[last].id)
        if isinstance(view, own_message.OwnMessage):
            view.start_editing()
        return True

    def add_message(self, message: Message) -> None:
        """Append a message. The user's own, or a new answer, scrolls to the end."""
        self.flush()
        column = self._column
        at_end = column.last == len(column.messages)
        column.messages.append(message)
        if at_end:
            column.build_below()
            self.builder.mark_last()
        else:
            column.fit_room()
        self.text_find.sync()
        if message.role is Role.USER or message.state is MessageState.WRITING:
            self.jump_to_end()
        self._settle_before_paint()

    def resume_message(self, message: Message) -> None:
        """Show that a finished answer is being continued."""
        self.flush()
        column = self._column
        column.put(message)
        if column.messages and column.messages[-1].id == message.id:
            if column.views and column.last == len(column.messages):
                column.drop_below(1)
                column.messages[-1] = message
                column.build_below()
                self.builder.mark_last()
            self.jump_to_end()
        self.text_find.sync()

    def finish_message(self, message: Message) -> None:
        """Show the final state of an answer; ignored if it is in another branch."""
        self.flush()
        if self._column.index(message.id) < 0:
            return
        self._column.put(message)
        view = self._column.view(message.id)
        if isinstance(view, answer_view.AnswerView):
            view.set_model(self._column.new_model(self._column.index(message.id)))
            view.finish(message)
        self._settle_before_paint()
        self._reach.hear(message)
        self.text_find.sync()

    def update_message(self, message: Message) -> None:
        """Show newer states of an answer's calls, or what was found for a question; ignored in another branch."""
        if self._column.index(message.id) < 0:
            return
        self._column.put(message)
        view = self._column.view(message.id)
        if isinstance(view, answer_view.AnswerView):
            view.update_calls(message)

    def set_tool_titles(self, titles: Mapping[str, str]) -> None:
        """Set the titles of the known tools, by name."""
        self._column.set_tool_words(titles=dict(titles))

    def set_tool_questions(self, questions: Mapping[str, Question]) -> None:
        """Set the questions of MCP servers, by the ids of the calls during which they came."""
        self._column.set_tool_words(questions=dict(questions))

    def set_has_folder(self, has_folder: bool) -> None:
        """Set whether the chat is in a folder, so that consent to calls can cover the folder."""
        self._column.set_tool_words(has_folder=has_folder)

    def set_has_notes(self, has_notes: bool) -> None:
        """Set whether texts of the chat can be added to the notes of its project."""
        self.setProperty(HAS_NOTES, has_notes)
        self.selection.set_has_notes(has_notes)

    def set_dropped(self, message_id: str, count: int, at: int = 0) -> None:
        """Mark where the context of that answer begins: `count` messages after the first `at` were dropped."""
        self._reach.set_dropped(message_id, count, at)

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status at the answer in progress."""
        self._status = status
        for view in self._column.views[-2:]:
            if isinstance(view, answer_view.AnswerView):
                view.set_status(status)
        self.stream.flush_if_due()  # combines both repaints into one

    def last_answer(self) -> Message | None:
        """Return the newest answer."""
        self.flush()
        return self._column.last_answer()

    def copy_last_answer(self) -> bool:
        """Copy the newest answer without its thought. Return whether it has any text."""
        answer = self.last_answer()
        text = spoken_or_own(answer) if answer is not None else ""
        if text:
            copy_message_text(text, is_answer=True)
        return bool(text)

    def append_text(self, message_id: str, text: str) -> None:
        """Add text of an answer in progress, to be painted by the next flush."""
        self.stream.append(message_id, text)

    def flush(self) -> None:
        """Paint the collected text."""
        self.stream.flush()

    # --- building

    def _wire(self, view: MessageView) -> None:
        view.link_activated.connect(self.link_activated)
        view.source_requested.connect(self.source_requested)
        view.looked_for.connect(self._look_for)
        view.edit_opened.connect(self._hold_editor)
        view.files_given.connect(self.files_given)
        view.acted.connect(self.acted)
        view.text_selected.connect(self.selection.give_way)
        view.grown.connect(lambda: self._show_marks(view))
        self._show_marks(view)
        if isinstance(view, answer_view.AnswerView):
            view.set_status(self._status)

    def _show_marks(self, view: MessageView) -> None:
        self.selection.show_in(view)
        self.text_find.show_in(view)

    def _build_the_end(self) -> None:
        """Build the newest messages that fill the view, and follow the end."""
        self.builder.build_end(self.viewport().height())
        self._paint_when_filled()
        self.jump_to_end()

    def _take_built(self) -> None:
        """Keep the view in place after messages were built or removed."""
        self._reach.show()
        self._settle()
        self._paint_when_filled()

    def _paint_when_filled(self) -> None:
        """Paint again once the messages in view are built, so that nobody sees a part of them."""
        self.viewport().setUpdatesEnabled(not self.builder.is_filling)

    def _theme_changes(self) -> None:
        self._is_changing = True
        self.builder.shed(self.viewport().height())

    # --- scrolling

    def jump_to_end(self) -> None:
        """Scroll to the end and follow it."""
        if self._column.last < len(self._column.messages):
            self._column.start_at(len(self._column.messages))
            self._build_the_end()
            return
        self._following = True
        self._anchor = None
        self._move(self.verticalScrollBar().maximum())
        self._show_jump()

    def _go_to(self, index: int, offset: int) -> None:
        """Place a message `offset` pixels below the top of the view."""
        column = self._column
        self._following = False
        if not column.first <= index < column.last:
            column.start_at(index)
            self.builder.fill_below(self.viewport().height())
            column.fit_room()
            self.builder.mark_last()
            self.builder.want(BATCH, BATCH)
            self._paint_when_filled()
        self._hold(column.views[index - column.first], offset)
        self._show_jump()

    def _look_for(self, part: QWidget, place: int) -> None:
        """Scroll to a place in a message."""
        self._following = False
        self._move(part.mapTo(self._column, QPoint(0, place)).y() - theme.px(24))
        self._take_anchor()
        self._show_jump()

    def _hold_editor(self, editor: QWidget) -> None:
        """Keep an editor in view, even while an answer grows below it, until the user scrolls."""
        self._following, self._edited = False, editor
        self._take_anchor()
        self._settle()

    def _show_editor(self, editor: QWidget) -> None:
        top, height = editor.mapTo(self._column, QPoint(0, 0)).y(), editor.height()
        seen, value = self.viewport().height(), self.verticalScrollBar().value()
        edge = min(theme.px(12), max(seen - height, 0) // 2)
        # of an editor higher than the view, show the end, where the caret is
        self._move(max(min(value, top - edge), top + height + edge - seen))
        self._take_anchor()

    def _show_part(self, part: QWidget, place: QRect) -> None:
        """Scroll to a part of a text, also sideways within the text."""
        if isinstance(part, QAbstractScrollArea):
            bar, wide = part.horizontalScrollBar(), part.viewport().width()
            if bar.maximum() and not 0 <= place.left() <= place.right() <= wide:
                bar.setValue(bar.value() + place.left() - wide // 3)
            place = place.translated(part.viewport().pos())
        self._settle()
        top, height = self.verticalScrollBar().value(), self.viewport().height()
        begin = part.mapTo(self._column, place.topLeft()).y()
        above, below = (theme.px(24), theme.px(40)) if height > theme.px(200) else (0, 0)
        is_seen = top + above <= begin <= top + height - place.height() - below
        is_writing = self._column.messages[-1].state is MessageState.WRITING
        if is_seen and not (self._following and is_writing):  # otherwise the view would follow the answer's end
            return
        self._following = False
        if not is_seen:
            self._move(begin - height // 3)
        self._take_anchor()
        self._show_jump()
        self._look_ahead()

    def _top_message(self) -> int:
        """Return the index of the first visible message."""
        return min(self._column.first + self._first_visible(), max(len(self._column.messages) - 1, 0))

    def _hold(self, view: MessageView, offset: int) -> None:
        """Keep a view at an offset from the top, whatever is built around it."""
        self._anchor = (view, offset)
        self._settle()

    def _settle(self) -> None:
        """Lay out the changes now, and restore the view's position."""
        column = self._column
        column.settle()
        column.resize(column.width(), max(column.minimumSizeHint().height(), self.viewport().height()))
        column.settle()
        self._on_range(0, self.verticalScrollBar().maximum())

    def _settle_before_paint(self) -> None:
        """Give every message its height now: else they are painted once within the old height, and cut."""
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)
        self._settle()

    def _move(self, value: int) -> None:
        self._moving = True
        self.verticalScrollBar().setValue(value)
        self._moving = False
        self._last_value = self.verticalScrollBar().value()

    def _on_scroll(self, value: int) -> None:
        """Stop following after scrolling up; start again at the very end."""
        if self._moving:
            return
        self._edited = None
        bar = self.verticalScrollBar()
        if value >= bar.maximum() and self._column.last == len(self._column.messages):
            self._following = True
        elif value < self._last_value:
            self._following = False
        self._last_value = value
        self._take_anchor()
        self._show_jump()
        self._look_ahead()

    def _on_range(self, _minimum: int, maximum: int) -> None:
        """After a change of height, keep the end in view, or the anchor in place."""
        if self._following:
            self._move(maximum)
        elif self._edited is not None and isValid(self._edited) and self._edited.isVisible():
            self._show_editor(self._edited)
        elif self._anchor is not None and self._anchor[0] in self._column.views:
            view, offset = self._anchor
            self._move(view.y() - offset)
        self._show_jump()
        self._look_ahead()

    def _take_anchor(self) -> None:
        value, index = self.verticalScrollBar().value(), self._first_visible()
        self._anchor = None
        if not self._following and index < len(self._column.views):
            view = self._column.views[index]
            self._anchor = (view, view.y() - value)

    def _first_visible(self) -> int:
        """Return the index of the first view that is not entirely above the viewport."""
        return self._column.first_visible(self.verticalScrollBar().value())

    def _look_ahead(self) -> None:
        """Build the messages near the view; if no built message is visible, jump there."""
        column = self._column
        if self._following or not column.views or self._leap_timer.isActive() or column.views[0].isHidden():
            return  # NEWEST messages are more than a screen, so none are needed at the end
        top, height = self.verticalScrollBar().value(), self.viewport().height()
        begin, end = column.views[0].y(), column.views[-1].y() + column.views[-1].height()
        if (column.first and top + height <= begin) or (column.last < len(column.messages) and top >= end):
            self._leap_timer.start(0)
        elif not self.builder.is_busy:
            above = BATCH if top < begin + height else 0
            below = BATCH if top + 2 * height > end else 0
            if (above and column.first) or (below and column.last < len(column.messages)):
                self.builder.want(above, below)

    def _leap(self) -> None:
        """Build the messages for a scroll position in the unbuilt space."""
        index = self._column.unbuilt_index(self.verticalScrollBar().value())
        if index is not None:
            self._go_to(index, 0)

    def _show_jump(self) -> None:
        shown = not self._following and self.verticalScrollBar().maximum() > 0
        if not shown and self._jump.hasFocus():
            self.setFocus()  # otherwise Qt focuses some message and scrolls to it
        self._jump.show_in_view(shown)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Home:
            if self._column.messages:
                self._go_to(0, theme.px(24))
        elif event.key() == Qt.Key.Key_End:
            self.jump_to_end()
        else:
            super().keyPressEvent(event)

    # --- layout

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def _take_up_theme(self) -> None:
        self._is_changing = False
        self._lay_out()

    def _lay_out(self) -> None:
        if self._is_changing:  # ignore intermediate widths during a change of theme
            return
        left, width = text_column(self.width())
        # Computed from the full width, so that the scroll bar does not move the column.
        right = max(self.viewport().width() - left - width, 0)
        self._column.lay_out(left, width, right)
        self._jump.fit(min(left, right))
        self._show_jump()
