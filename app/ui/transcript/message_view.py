"""The base of a message's widget, for the user's messages and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.chat.message_action import ActionName, MessageAction
from app.chat.store.conversation import Message
from app.text.markdown_blocks import Block
from app.ui.look import theme
from app.ui.transcript.context_mark import ContextMark
from app.ui.transcript.selection.selectable import SelectableText

if TYPE_CHECKING:
    from app.ui.transcript.text_find import TextFind

PART_GAP = 14


HAS_NOTES = "hasNotes"  # property of a transcript: whether its chat has notes of a project


def has_notes(widget: QWidget) -> bool:
    """Return whether texts of the chat around a widget can be added to the notes of its project."""
    around: QWidget | None = widget
    while around is not None:
        if around.property(HAS_NOTES) is not None:
            return bool(around.property(HAS_NOTES))
        around = around.parentWidget()
    return False


class MessageView(QWidget):
    """The interface between the transcript and a message.

    link_activated: the address of a link that was followed. source_requested: an Attachment with a source. acted: a
    MessageAction for this message. grown: its texts changed.
    """

    link_activated = Signal(str)
    source_requested = Signal(object)
    looked_for = Signal(QWidget, int)  # a part, and the offset of a footnote's place from its top
    acted = Signal(object)
    grown = Signal()
    edit_opened = Signal(QWidget)  # the editor
    files_given = Signal(list)  # paths that were dropped on the editor or pasted there
    text_selected = Signal()  # in a text with a selection of its own

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
        """Whether the message is being edited, so that its view must stay."""
        return False

    def set_versions(self, which: int, count: int) -> None:
        """Show that this is version `which` (from 1) of `count`."""

    def texts(self) -> list[SelectableText | None]:
        """Return the selectable texts from the top; None for one that is hidden now.

        A text keeps its index as long as the view lives.
        """
        return []

    def blocks_in(self, number: int) -> list[Block]:
        """Return the Markdown blocks of the text with that index."""
        return []

    def sources(self) -> list[tuple[str, int]]:
        """Return the Markdown of each top-level block, and the number of blocks that show it."""
        return []

    @property
    def shows_all(self) -> bool:
        """Whether the texts hold everything, so that nothing is built later."""
        return True

    def unshown(self) -> str:
        """Return the source after the last text, as written."""
        return ""

    def searched(self) -> list[SelectableText]:
        """Return all texts that a search marks, including folded ones."""
        return [text for text in self.texts() if text is not None]

    def reveal(self, piece: int, nth: int, find: TextFind) -> tuple[SelectableText, int] | None:
        """Unfold what hides a match: the `nth` in a piece of the message, as app.chat.chat_find counts.

        Return the text and the match's number in it, or None while it is being built; then call again.
        """
        raise NotImplementedError

    @property
    def source(self) -> str:
        """The text for "Copy message", as written, without a thought."""
        return self.message.text

    def do(self, act: ActionName, text: str = "", step: int = 0) -> None:
        self.acted.emit(MessageAction(act, self.message.id, text, step))

    def set_dropped(self, count: int, at: int = 0, messages: Sequence[Message] = (), summary: str = "") -> None:
        """Show above this message which ones are no longer in the context, as in ContextMark; nothing for a count of
        0."""
        if self._mark is None and count:
            self._mark = ContextMark(self)
            self._mark.unsummarised.connect(lambda: self.do("unsummarise"))
            self.column.insertWidget(0, self._mark)
            self.column.insertSpacing(1, theme.px(6))
        if self._mark is not None:
            self._mark.set_left_out(count, at, messages, summary)
            self._mark.setVisible(count > 0)
