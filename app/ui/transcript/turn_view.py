"""One turn of a chat as a widget: what the transcript asks of the user's messages and of answers alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.chat.conversation import Message
from app.chat.message_act import Act, MessageAct
from app.text.markdown_blocks import Block
from app.ui.look import theme
from app.ui.transcript.context_mark import ContextMark
from app.ui.transcript.selection.selectable import SelectableText

if TYPE_CHECKING:
    from app.ui.transcript.text_find import TextFind

PART_GAP = 14


class MessageView(QWidget):
    """What the transcript asks of every turn.

    link_activated: an address that was followed. acted: a MessageAct that the person wants for this message. grown: it
    has another text.
    """

    link_activated = Signal(str)
    looked_for = Signal(QWidget, int)  # a part, and how far below its top the place is that a footnote leads to
    acted = Signal(object)
    grown = Signal()
    edit_opened = Signal(QWidget)  # the field of an edit

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self._mark: ContextMark | None = None
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(0, 0, 0, 0)
        self.column.setSpacing(theme.px(PART_GAP))

    def set_width(self, width: int) -> None:
        """Lay out for a column of that width, so that heights are right at once."""

    @property
    def is_editing(self) -> bool:
        """Whether the person is changing it: then it must not go."""
        return False

    def set_versions(self, which: int, count: int) -> None:
        """This is the `which`-th version of it, from 1, of so many."""

    def texts(self) -> list[SelectableText | None]:
        """Return the texts that a selection runs through, from the top; None for one that is not shown now. A text
        keeps its number while the message lives."""
        return []

    def blocks_in(self, number: int) -> list[Block]:
        """Return the Markdown blocks that the text of that number shows."""
        return []

    def sources(self) -> list[tuple[str, int]]:
        """Return the Markdown of every top-level block, and how many of the blocks show it."""
        return []

    @property
    def shows_all(self) -> bool:
        """Whether its texts hold everything, so that nothing is built later or when the user asks for more."""
        return True

    def unshown(self) -> str:
        """Return the words behind the last of its texts, as they were written."""
        return ""

    def searched(self) -> list[SelectableText]:
        """Return every text that Find marks places in, folded ones too."""
        return [text for text in self.texts() if text is not None]

    def reveal(self, piece: int, nth: int, find: TextFind) -> tuple[SelectableText, int] | None:
        """Open what hides a place: the `nth` of a piece of the message, counted as app.chat.chat_find does.

        Return the text with the place in it and the number that the place has
        there. None: it is being built; ask again.
        """
        raise NotImplementedError

    @property
    def source(self) -> str:
        """What "Copy message" gives: the words as they were written, without a thought."""
        return self.message.text

    def do(self, act: Act, text: str = "", step: int = 0) -> None:
        """Ask for an act on this message."""
        self.acted.emit(MessageAct(act, self.message.id, text, step))

    def set_dropped(self, count: int, at: int = 0, messages: Sequence[Message] = ()) -> None:
        """Say above this turn which messages are no longer in the context, as ContextMark has it; with a count of 0
        nothing is said."""
        if self._mark is None and count:
            self._mark = ContextMark(self)
            self.column.insertWidget(0, self._mark)
            self.column.insertSpacing(1, theme.px(6))
        if self._mark is not None:
            self._mark.set_left_out(count, at, messages)
            self._mark.setVisible(count > 0)
