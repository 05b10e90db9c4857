"""One turn of a chat as a widget: the person's bubble, or an answer with its parts and its statistics line.

It shows what it is given; it neither stores nor scrolls.
"""

from __future__ import annotations

from bisect import bisect_right

from PySide6.QtCore import QEvent, Signal
from PySide6.QtGui import QEnterEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.conversation import Message, MessageState
from app.engine_status import EngineStatus, Phase
from app.markdown_blocks import Block, BlockParser, CodeBlock, ProseBlock, TableBlock, parse
from app.ui import theme
from app.ui.code_block import CodeBlockView
from app.ui.controls import Label, Rule
from app.ui.prose import PlainText, Prose, Table
from app.ui.stat_line import CopyButton, StatLine

BUBBLE_WIDTH = 560
PART_GAP = 14
# A run of prose is cut into widgets of about this many characters, at a block's end, so that painting the last one
# again costs the same however long the answer has become.
PROSE_CHUNK = 3000

Part = Prose | Table | CodeBlockView


class ContextMark(QWidget):
    """A line across: from here up, messages are no longer in the model's context."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._label = Label("", "meta")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(theme.px(12))
        row.addWidget(Rule(), 1)
        row.addWidget(self._label)
        row.addWidget(Rule(), 1)
        self.setToolTip("The model reads what fits its context: the oldest messages are left out, and stay here.")

    def set_count(self, count: int) -> None:
        """How many messages were left out."""
        words = "1 earlier message is" if count == 1 else f"{count:,} earlier messages are"
        self._label.setText(f"{words} no longer in the context")
        self.setAccessibleName(self._label.words)


class MessageView(QWidget):
    """What the transcript asks of every turn. `link_activated` gives an address that was followed."""

    link_activated = Signal(str)

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self._mark: ContextMark | None = None
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(0, 0, 0, 0)
        self.column.setSpacing(theme.px(PART_GAP))

    def set_width(self, width: int) -> None:
        """Lay out for a column of that width, so that heights are right at once."""

    def set_dropped(self, count: int) -> None:
        """Show above this turn that `count` earlier messages are no longer in the context; 0 takes the mark away."""
        if self._mark is None and count:
            self._mark = ContextMark(self)
            self.column.insertWidget(0, self._mark)
            self.column.insertSpacing(1, theme.px(6))
        if self._mark is not None:
            self._mark.set_count(count)
            self._mark.setVisible(count > 0)


class OwnMessage(MessageView):
    """The person's words in a bubble at the right, at most 560 wide; Copy appears left of it."""

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(message, parent)
        self.setAccessibleName("Your message")
        self._text = PlainText(message.text, f"You: {message.text[:200]}")
        self._bubble = QFrame()
        self._bubble.setProperty("kind", "bubble")
        self._inside = QHBoxLayout(self._bubble)
        self._inside.addWidget(self._text)
        self._copy = CopyButton("Copy message", only_on_hover=True)
        self._copy.text_to_copy = message.text
        row = QHBoxLayout()
        row.setSpacing(theme.px(6))
        row.addStretch(1)
        row.addWidget(self._copy)
        row.addWidget(self._bubble)
        self.column.addLayout(row)
        self._width = 0
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_width(self, width: int) -> None:
        if width == self._width:
            return
        self._width = width
        beside = theme.px(16) * 2 + self._copy.width() + theme.px(6)
        most = min(theme.px(BUBBLE_WIDTH) - theme.px(16) * 2, max(width - beside, theme.px(80)))
        own = self._text.natural_width(most)
        self._text.setFixedWidth(own)
        self._text.set_width(own)

    def _restyle(self) -> None:
        px = theme.px
        self._inside.setContentsMargins(px(16), px(8), px(16), px(12))  # a line's extra height is above it
        width, self._width = self._width, 0
        if width:
            self.set_width(width)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._copy.reveal(True)
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._copy.reveal(False)
        super().leaveEvent(event)


class Answer(MessageView):
    """The model's words: parts one below the other in the full column, and the statistics line."""

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(message, parent)
        self._parser: BlockParser | None = None
        self._parts: list[Part] = []
        self._starts: list[int] = []  # for each part, the index of its first block
        self._width = theme.px(720)
        self._status = EngineStatus(Phase.THINKING)
        self._model = ""  # who answers, where that was another one before
        self._words = QVBoxLayout()
        self._words.setSpacing(theme.px(PART_GAP))
        self.column.addLayout(self._words)
        self.stats = StatLine(self)
        self.column.addWidget(self.stats)
        self.setAccessibleName("Answer")
        if message.state is MessageState.WRITING:
            self._parser = BlockParser()
            self.append(message.text)
            self.set_status(self._status)
        else:
            self._show_blocks(parse(message.text), 0)
            self._show_result()

    @property
    def is_writing(self) -> bool:
        """Whether more text may come."""
        return self._parser is not None

    @property
    def text(self) -> str:
        """The words so far."""
        return self._parser.text if self._parser else self.message.text

    @property
    def tail_length(self) -> int:
        """Characters of the block that the next append renders again."""
        return self._parser.tail_length if self._parser else 0

    def append(self, text: str) -> None:
        """Add text to an answer that is being written."""
        if self._parser is None or not text:
            return
        changed = self._parser.append(text)
        self._show_blocks(self._parser.blocks, changed)
        self._place_caret()

    def set_model(self, name: str) -> None:
        """Name who answered: another one than before in this chat. Empty: it goes without saying."""
        if name != self._model:
            self._model = name
            if self._parser is None:
                self._show_result()

    def finish(self, message: Message) -> None:
        """The answer is complete (or has ended otherwise): show it as it is kept."""
        self.message = message
        parser, self._parser = self._parser, None
        self._status = EngineStatus(Phase.READY)
        self._place_caret()
        if parser is not None and parser.text == message.text:
            self._show_blocks(parser.blocks, parser.finish())
        else:
            self._show_blocks(parse(message.text), 0)
        self._show_result()

    def set_status(self, status: EngineStatus) -> None:
        """What the engine is doing, while this answer is under way."""
        if self._parser is None:
            return
        self._status = status
        self.stats.show_running(status)
        self._place_caret()

    def set_width(self, width: int) -> None:
        self._width = width
        for part in self._parts:
            part.set_width(width)

    def parts(self) -> list[Part]:
        """The widgets that show it, from the top."""
        return list(self._parts)

    def _show_result(self) -> None:
        self.stats.copy.text_to_copy = self.message.text
        self.stats.show_result(self.message, self._model)

    def _place_caret(self) -> None:
        shown = self._parser is not None and self._status.phase is Phase.WRITING
        for part in self._parts[-2:]:
            part.set_caret(shown and part is self._parts[-1])

    def _show_blocks(self, blocks: list[Block], changed: int) -> None:
        """Bring the parts in line with the blocks from index `changed` on; parts before it are not touched."""
        part = max(bisect_right(self._starts, changed) - 1, 0)
        if part and self._starts[part] == changed:
            part -= 1  # the part before it may take the changed block in
        position = self._starts[part] if self._starts else 0
        while position < len(blocks):
            if part < len(self._parts) and not _fits(self._parts[part], blocks[position]):
                self._remove_from(part)
            if part == len(self._parts):
                self._add_part(blocks[position], position)
            self._starts[part] = position
            end = _end_of_part(blocks, position)
            self._fill(self._parts[part], blocks[position:end])
            position, part = end, part + 1
        self._remove_from(part)

    def _fill(self, part: Part, blocks: list[Block]) -> None:
        if isinstance(part, CodeBlockView):
            assert isinstance(blocks[0], CodeBlock)
            part.update_block(blocks[0])
        else:
            part.show_html("".join(block.html for block in blocks if not isinstance(block, CodeBlock)))

    def _add_part(self, block: Block, start: int) -> None:
        if isinstance(block, CodeBlock):
            part: Part = CodeBlockView(block, self)
        else:
            part = Table("Table in the answer", self) if isinstance(block, TableBlock) else Prose("Answer", self)
            part.link_activated.connect(self.link_activated)
        part.set_width(self._width)
        self._parts.append(part)
        self._starts.append(start)
        if isinstance(part, CodeBlockView) and part.indent:
            row = QHBoxLayout()
            row.setContentsMargins(part.indent, 0, 0, 0)
            row.addWidget(part)
            self._words.addLayout(row)
        else:
            self._words.addWidget(part)

    def _remove_from(self, first: int) -> None:
        while len(self._parts) > first:
            part = self._parts.pop()
            self._starts.pop()
            item = self._words.takeAt(self._words.count() - 1)
            row = item.layout() if item is not None else None
            if row is not None:
                row.deleteLater()
            part.hide()
            part.deleteLater()


def _fits(part: Part, block: Block) -> bool:
    if isinstance(block, CodeBlock):
        return isinstance(part, CodeBlockView) and part.level == block.depth
    return type(part) is (Table if isinstance(block, TableBlock) else Prose)


def _end_of_part(blocks: list[Block], start: int) -> int:
    """Index behind the last block that stands in one widget with the block at `start`."""
    if not isinstance(blocks[start], ProseBlock):
        return start + 1
    end, length = start, 0
    while end < len(blocks) and length < PROSE_CHUNK:
        block = blocks[end]
        if not isinstance(block, ProseBlock):
            break
        length += len(block.html)
        end += 1
    return end


def make_view(message: Message, parent: QWidget | None = None) -> MessageView:
    """The widget for a message."""
    return Answer(message, parent) if message.role == "assistant" else OwnMessage(message, parent)
