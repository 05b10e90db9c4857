"""The messages of a chat one below the other, of which only a run is built: what is in view and some around it.

What is not built above and below that run is empty room. It builds and takes down; when, and where the view stands,
is decided by app/ui/transcript/transcript.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication, QSizePolicy, QSpacerItem, QVBoxLayout, QWidget

from app.chat.conversation import Message, MessageState, Role
from app.ui.look import theme
from app.ui.transcript.message_view import Answer
from app.ui.transcript.own_message import OwnMessage
from app.ui.transcript.turn_view import MessageView

TURN_GAP = 16
TURN_PX = 140  # room for a message that is not built: about what one takes
MOST_ROOM_PX = 240_000  # above or below; a layout counts no further than 524,287


def make_view(message: Message, parent: QWidget | None = None) -> MessageView:
    """The widget for a message."""
    return Answer(message, parent) if message.role is Role.ASSISTANT else OwnMessage(message, parent)


def model_of(message: Message) -> str:
    """The name of the model that gave an answer; empty where that is not kept."""
    name = (message.stats or {}).get("model") if message.role is Role.ASSISTANT else None
    return name if isinstance(name, str) else ""


class TurnColumn(QWidget):
    """All messages, and the views of those from `first` on that are built.

    wire: called with every new view, before it is laid out.
    """

    def __init__(self, wire: Callable[[MessageView], None], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._wire = wire
        self.messages: list[Message] = []
        self.views: list[MessageView] = []  # of messages[first : last], oldest first
        self.first = 0
        self.versions: dict[str, tuple[int, int]] = {}  # of a message with several: which this is, and of how many
        self.text_width = theme.px(720)
        policy = QSizePolicy.Policy
        self._above = QSpacerItem(0, 0, policy.Minimum, policy.Fixed)
        self._below = QSpacerItem(0, 0, policy.Minimum, policy.Fixed)
        self._column = QVBoxLayout(self)
        self._column.setSpacing(theme.px(TURN_GAP))
        self._column.addItem(self._above)
        self._column.addItem(self._below)
        self._column.addStretch(1)

    @property
    def last(self) -> int:
        """Index behind the last message that is built."""
        return self.first + len(self.views)

    @property
    def room_above(self) -> int:
        """Height of the empty room for messages before the built ones, px."""
        return self._above.sizeHint().height()

    @property
    def room_below(self) -> int:
        """Height of the empty room for messages behind the built ones, px."""
        return self._below.sizeHint().height()

    # ------------------------------------------------------------------ what there is

    def index(self, message_id: str) -> int:
        """Where a message stands; -1: nowhere."""
        return next((i for i in range(len(self.messages) - 1, -1, -1) if self.messages[i].id == message_id), -1)

    def view(self, message_id: str) -> MessageView | None:
        """The view of a message, if it is built."""
        return next((view for view in reversed(self.views) if view.message.id == message_id), None)

    def put(self, message: Message) -> None:
        """A newer state of a message."""
        index = self.index(message.id)
        if index >= 0:
            self.messages[index] = message

    def add_text(self, message_id: str, text: str) -> None:
        """More of an answer that is being written."""
        view = self.view(message_id)
        if isinstance(view, Answer):
            view.append(text)
            return
        index = self.index(message_id)
        if index >= 0 and self.messages[index].state is MessageState.WRITING:
            message = self.messages[index]
            self.messages[index] = replace(message, text=message.text + text)

    def as_it_stands(self, index: int) -> Message:
        """A message; of an answer that is being written, with the words so far."""
        message = self.messages[index]
        if message.state is not MessageState.WRITING:
            return message
        view = self.view(message.id)
        return replace(message, text=view.text) if isinstance(view, Answer) else message

    def new_model(self, index: int) -> str:
        """Return the model of an answer where it does not go without saying: another one gave the answer before it, or
        there are several versions of it, each of which may be another model's."""
        name = model_of(self.messages[index])
        if not name or self.messages[index].id in self.versions:
            return name
        before = next((known for i in range(index - 1, -1, -1) if (known := model_of(self.messages[i]))), name)
        return name if before != name else ""

    def set_versions(self, versions: dict[str, tuple[int, int]]) -> None:
        """Which of the messages are there in several versions."""
        self.versions = versions
        for index, view in enumerate(self.views, self.first):
            view.set_versions(*versions.get(view.message.id, (1, 1)))
            if isinstance(view, Answer) and index < len(self.messages) and self.messages[index].id == view.message.id:
                view.set_model(self.new_model(index))

    # ------------------------------------------------------------------ building

    def start_at(self, index: int) -> None:
        """Take everything down; what is built next begins at that message."""
        self.drop_below(len(self.views))
        self.first = min(max(index, 0), len(self.messages))
        self.fit_room()

    def build_above(self) -> MessageView:
        """Build the message before the first one that is built."""
        self.first -= 1
        view = self._make(self.first)
        self.views.insert(0, view)
        self._column.insertWidget(1, view)
        return view

    def build_below(self) -> MessageView:
        """Build the message behind the last one that is built."""
        view = self._make(self.last)
        self.views.append(view)
        self._column.insertWidget(len(self.views), view)
        return view

    def _make(self, index: int) -> MessageView:
        message = self.messages[index]
        view = make_view(message, self)
        self._wire(view)
        view.set_width(self.text_width)
        if message.id in self.versions:
            view.set_versions(*self.versions[message.id])
        if isinstance(view, Answer):
            view.set_model(self.new_model(index))
            view.set_last(index == len(self.messages) - 1)
        return view

    def drop_above(self, count: int, at_once: bool = False) -> None:
        """Take down so many of the first built ones."""
        self.keep_words(count)
        going, self.views = self.views[:count], self.views[count:]
        self.first += len(going)
        self._discard(going, at_once)

    def drop_below(self, count: int, at_once: bool = False) -> None:
        """Take down so many of the last built ones."""
        keep = len(self.views) - count
        for index in range(self.first + keep, self.last):
            self.messages[index] = self.as_it_stands(index)
        going, self.views = self.views[keep:], self.views[:keep]
        self._discard(going, at_once)

    def keep_words(self, count: int) -> None:
        """Remember what the first built ones say by now, before they are taken down."""
        for index in range(self.first, self.first + count):
            self.messages[index] = self.as_it_stands(index)

    def is_in_use(self, view: MessageView) -> bool:
        """Whether somebody edits in it, or the focus is there."""
        focus = QApplication.focusWidget()
        return view.is_editing or (focus is not None and view.isAncestorOf(focus))

    def fit_room(self) -> None:
        """Leave room above and below for what is not built."""
        each = min(theme.px(TURN_PX), MOST_ROOM_PX / max(len(self.messages), 1))
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
        """Take a message away."""
        index = self.index(message_id)
        if index < 0:
            return
        del self.messages[index]
        if index < self.first:
            self.first -= 1
        elif index - self.first < len(self.views):
            self._discard([self.views.pop(index - self.first)])
        self.fit_room()

    def _discard(self, views: list[MessageView], at_once: bool = False) -> None:
        for view in views:
            self._column.removeWidget(view)
            view.hide()
            view.deleteLater()
            if at_once:
                QCoreApplication.sendPostedEvents(view, QEvent.Type.DeferredDelete.value)

    # ------------------------------------------------------------------ layout

    def first_visible(self, top: int) -> int:
        """Index among the views of the first that is not wholly above that height."""
        return bisect_right(self.views, top, key=lambda view: view.y() + view.height())

    def lay_out(self, left: int, width: int, right: int) -> None:
        """Take this place in the page."""
        self.text_width = width
        self._column.setContentsMargins(left, theme.px(24), right, theme.px(16))
        self._column.setSpacing(theme.px(TURN_GAP))
        for view in self.views:
            view.set_width(width)

    def settle(self) -> None:
        """Lay everything out now, so that places are right before the next event."""
        for view in self.views:
            if view.isHidden():  # Qt would show it with the next event, and a layout passes over what is hidden
                view.show()
        self._column.activate()
