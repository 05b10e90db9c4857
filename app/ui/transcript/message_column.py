"""The column of a chat's messages, of which only a run around the view is built; the rest is empty space.

transcript.py decides when to build and where the view is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QCoreApplication, QEvent, Signal
from PySide6.QtWidgets import QApplication, QSizePolicy, QSpacerItem, QVBoxLayout, QWidget

from app.chat.store.conversation import Message, MessageState, Role
from app.later import Later
from app.ui.look import theme
from app.ui.transcript.answer_sources import Sources, sources_of
from app.ui.transcript.message_view import MessageView

if TYPE_CHECKING:
    from app.ui.transcript import answer_view, own_message, tool_call_view
else:
    answer_view = Later("app.ui.transcript.answer_view")
    own_message = Later("app.ui.transcript.own_message")
    tool_call_view = Later("app.ui.transcript.tool_call_view")

TEXT_WIDTH = 720
SIDE_MARGIN = 40
MESSAGE_GAP = 16
MESSAGE_PX = 140  # space for a message that is not built
MOST_ROOM_PX = 240_000  # above or below; a layout is limited to 524,287


def text_column(page_width: int) -> tuple[int, int]:
    """Return left edge and width of the text column for a page's width."""
    width = max(min(theme.px(TEXT_WIDTH), page_width - 2 * theme.px(SIDE_MARGIN)), theme.px(120))
    return (page_width - width) // 2, width


def make_view(message: Message, parent: QWidget | None = None, sources: Sources | None = None) -> MessageView:
    """Return the widget for a message. sources: what an answer can rest on."""
    if message.role is Role.ASSISTANT:
        return answer_view.AnswerView(message, parent, sources)
    return own_message.OwnMessage(message, parent)


def model_of(message: Message) -> str:
    """Return the name of an answer's model; empty if unknown."""
    name = (message.stats or {}).get("model") if message.role is Role.ASSISTANT else None
    return name if isinstance(name, str) else ""


def common_length(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return how many messages two branches have in common, from the first on."""
    pairs = zip(before, after, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a.id != b.id), min(len(before), len(after)))


class MessageColumn(QWidget):
    """All messages, and the views of those that are built.

    wire: called with every new view, before it is laid out. edited: id and text of a message that is being edited; no
    text: it no longer is.
    """

    edited = Signal(str, str)

    def __init__(self, wire: Callable[[MessageView], None], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._wire = wire
        self._messages: list[Message] = []
        self._with_sources: list[int] = []  # indices of messages that carry texts found in documents
        self.views: list[MessageView] = []  # of messages[first : last], oldest first
        self.first = 0
        self.versions: dict[str, tuple[int, int]] = {}  # number and count of versions, for messages with several
        self.edits: dict[str, str] = {}  # texts of messages that are being edited, by id
        self._tool_words: dict[str, Any] = {}  # fields of ToolWords
        self.text_width = theme.px(720)
        policy = QSizePolicy.Policy
        self._above = QSpacerItem(0, 0, policy.Minimum, policy.Fixed)
        self._below = QSpacerItem(0, 0, policy.Minimum, policy.Fixed)
        self._column = QVBoxLayout(self)
        self._column.setSpacing(theme.px(MESSAGE_GAP))
        self._column.addItem(self._above)
        self._column.addItem(self._below)
        self._column.addStretch(1)

    @property
    def last(self) -> int:
        """The index after the last built message."""
        return self.first + len(self.views)

    @property
    def room_above(self) -> int:
        """The height of the space for messages before the built ones, px."""
        return self._above.sizeHint().height()

    @property
    def room_below(self) -> int:
        """The height of the space for messages after the built ones, px."""
        return self._below.sizeHint().height()

    # --- messages

    @property
    def messages(self) -> list[Message]:
        """All messages, oldest first. Answers may be appended and replaced; `put` replaces any message."""
        return self._messages

    @messages.setter
    def messages(self, messages: list[Message]) -> None:
        self._messages = messages
        self._find_sources()

    def _find_sources(self) -> None:
        self._with_sources = [
            index for index, one in enumerate(self.messages) if one.attachments and any(sources_of(one.attachments))
        ]

    def _sources_at(self, index: int) -> Sources:
        """Return what the answer with that index can rest on."""
        before = [i for i in self._with_sources if i < index]
        if not before:
            return Sources()
        own = before[-1] if all(m.role is Role.ASSISTANT for m in self.messages[before[-1] + 1 : index]) else None
        known = [one for i in before for one in sources_of(self.messages[i].attachments)]
        return Sources.by(known, () if own is None else sources_of(self.messages[own].attachments))

    def index(self, message_id: str) -> int:
        """Return the index of a message; -1 if there is none."""
        return next((i for i in range(len(self.messages) - 1, -1, -1) if self.messages[i].id == message_id), -1)

    @staticmethod
    def loose_view(message: Message) -> MessageView:
        """Build a message that is not in the column. The caller deletes it."""
        return make_view(message)

    def view(self, message_id: str) -> MessageView | None:
        """Return the view of a message, if it is built."""
        return next((view for view in reversed(self.views) if view.message.id == message_id), None)

    def put(self, message: Message) -> None:
        """Replace a message by its newer state."""
        index = self.index(message.id)
        if index < 0:
            return
        self.messages[index] = message
        if any(sources_of(message.attachments)):
            self._find_sources()
            for place, view in enumerate(self.views, self.first):
                if place > index and isinstance(view, answer_view.AnswerView):
                    view.set_sources(self._sources_at(place))

    def add_text(self, message_id: str, text: str) -> None:
        """Append text to an answer in progress."""
        view = self.view(message_id)
        if isinstance(view, answer_view.AnswerView):
            view.append(text)
            return
        index = self.index(message_id)
        if index >= 0 and self.messages[index].state is MessageState.WRITING:
            message = self.messages[index]
            self.messages[index] = replace(message, text=message.text + text)

    def as_it_stands(self, index: int) -> Message:
        """Return a message; an answer in progress with its text so far."""
        message = self.messages[index]
        if message.state is not MessageState.WRITING:
            return message
        view = self.view(message.id)
        return replace(message, text=view.text) if isinstance(view, answer_view.AnswerView) else message

    def last_answer(self) -> Message | None:
        """Return the newest answer, with its text so far."""
        places = reversed(range(len(self.messages)))
        newest = next((i for i in places if self.messages[i].role is Role.ASSISTANT), None)
        return None if newest is None else self.as_it_stands(newest)

    def new_model(self, index: int) -> str:
        """Return the model of an answer if it should be shown.

        That is the case if the previous answer is from another model, or if the answer has several versions.
        """
        name = model_of(self.messages[index])
        if not name or self.messages[index].id in self.versions:
            return name
        before = next((known for i in range(index - 1, -1, -1) if (known := model_of(self.messages[i]))), name)
        return name if before != name else ""

    def set_versions(self, versions: dict[str, tuple[int, int]]) -> None:
        self.versions = versions
        for index, view in enumerate(self.views, self.first):
            view.set_versions(*versions.get(view.message.id, (1, 1)))
            if (
                isinstance(view, answer_view.AnswerView)
                and index < len(self.messages)
                and self.messages[index].id == view.message.id
            ):
                view.set_model(self.new_model(index))

    def set_tool_words(self, **words: Any) -> None:
        """Change some of the fields of ToolWords."""
        self._tool_words |= words
        for view in self.views:
            if isinstance(view, answer_view.AnswerView):
                view.set_tool_words(tool_call_view.ToolWords(**self._tool_words))

    def mark_place(self, view: answer_view.AnswerView, index: int) -> None:
        """Tell an answer whether it is the last message, which alone can be continued, and whether the next message
        continues after its calls."""
        following = self.messages[index + 1] if index + 1 < len(self.messages) else None
        view.set_last(following is None)
        view.set_goes_on(following is not None and following.role is Role.ASSISTANT)

    # --- building

    def start_at(self, index: int) -> None:
        """Remove all views; the next one built is that of message `index`."""
        self.drop_below(len(self.views))
        self.first = min(max(index, 0), len(self.messages))
        self.fit_room()

    def build_above(self) -> MessageView:
        """Build the message before the first built one."""
        self.first -= 1
        view = self._make(self.first)
        self.views.insert(0, view)
        self._column.insertWidget(1, view)
        return view

    def build_below(self) -> MessageView:
        """Build the message after the last built one."""
        view = self._make(self.last)
        self.views.append(view)
        self._column.insertWidget(len(self.views), view)
        return view

    def _make(self, index: int) -> MessageView:
        message = self.messages[index]
        view = make_view(message, self, self._sources_at(index))
        self._wire(view)
        view.set_width(self.text_width)
        if message.id in self.versions:
            view.set_versions(*self.versions[message.id])
        if isinstance(view, own_message.OwnMessage):
            if edit := self.edits.get(message.id):
                view.edit(edit)
            view.edited.connect(partial(self._take_edit, message.id))
        if isinstance(view, answer_view.AnswerView):
            view.set_tool_words(tool_call_view.ToolWords(**self._tool_words))
            view.set_model(self.new_model(index))
            self.mark_place(view, index)
        return view

    def drop_above(self, count: int, at_once: bool = False) -> None:
        """Remove the first `count` views."""
        self.save_texts(count)
        going, self.views = self.views[:count], self.views[count:]
        self.first += len(going)
        self._discard(going, at_once)

    def drop_below(self, count: int, at_once: bool = False) -> None:
        """Remove the last `count` views."""
        keep = len(self.views) - count
        for index in range(self.first + keep, self.last):
            self.messages[index] = self.as_it_stands(index)
        going, self.views = self.views[keep:], self.views[:keep]
        self._discard(going, at_once)

    def save_texts(self, count: int) -> None:
        """Save the current text of the first `count` views before they are removed."""
        for index in range(self.first, self.first + count):
            self.messages[index] = self.as_it_stands(index)

    def is_in_use(self, view: MessageView) -> bool:
        """Return whether the view is being edited or has the focus."""
        focus = QApplication.focusWidget()
        return view.is_editing or (focus is not None and view.isAncestorOf(focus))

    def fit_room(self) -> None:
        """Adjust the space for messages that are not built."""
        each = min(theme.px(MESSAGE_PX), MOST_ROOM_PX / max(len(self.messages), 1))
        gap = self._column.spacing()
        before = (self.room_above, self.room_below)
        after = tuple(
            max(round(count * each) - gap, 0) for count in (self.first, len(self.messages) - self.last)
        )  # fmt: skip
        if before != after:
            policy = QSizePolicy.Policy
            self._above.changeSize(0, after[0], policy.Minimum, policy.Fixed)
            self._below.changeSize(0, after[1], policy.Minimum, policy.Fixed)
            self._column.invalidate()

    def remove(self, message_id: str) -> None:
        index = self.index(message_id)
        if index < 0:
            return
        del self.messages[index]
        self._find_sources()
        if index < self.first:
            self.first -= 1
        elif index - self.first < len(self.views):
            self._discard([self.views.pop(index - self.first)])
        self.fit_room()

    def drop_sent_edits(self, before: Sequence[Message]) -> None:
        """Forget the edits that were sent: a message of this branch, or of the one before, has their text."""
        if any(self.edits.values()):
            shown = [*before, *self.messages]
            sent = {(message.parent, message.text.strip()) for message in shown}
            for message in shown:
                if (message.parent, self.edits.get(message.id, "").strip()) in sent:
                    self._take_edit(message.id, "")

    def _take_edit(self, message_id: str, text: str) -> None:
        self.edits[message_id] = text
        self.edited.emit(message_id, text)

    def _discard(self, views: list[MessageView], at_once: bool = False) -> None:
        for view in views:
            self._column.removeWidget(view)
            view.hide()
            view.deleteLater()
            if at_once:
                QCoreApplication.sendPostedEvents(view, QEvent.Type.DeferredDelete.value)

    # --- layout

    def first_visible(self, top: int) -> int:
        """Return the index of the first view that is not entirely above a height."""
        return bisect_right(self.views, top, key=lambda view: view.y() + view.height())

    def unbuilt_index(self, top: int) -> int | None:
        """Return the index of the message at a height in the space that is not built; None if it is built."""
        if not self.views:
            return None
        begin, end = self.views[0].y(), self.views[-1].y() + self.views[-1].height()
        if begin <= top < end:
            return None
        if top < begin:
            index = int(self.first * top / max(begin, 1))
        else:
            index = self.last + int((len(self.messages) - self.last) * (top - end) / max(self.height() - end, 1))
        return min(index, len(self.messages) - 1)

    def lay_out(self, left: int, width: int, right: int) -> None:
        """Set margins and text width."""
        self.text_width = width
        self._column.setContentsMargins(left, theme.px(24), right, theme.px(16))
        self._column.setSpacing(theme.px(MESSAGE_GAP))
        for view in self.views:
            view.set_width(width)

    def settle(self) -> None:
        """Lay everything out now, so that positions are right before the next event."""
        for view in self.views:
            if view.isHidden():  # a layout ignores hidden widgets, and Qt would show it only with the next event
                view.show()
        self._column.activate()
