"""The widget of an answer: thought, parts, and statistics line."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.chat.answers.answer_labels import figures_of
from app.chat.answers.thinking import ReplySplitter, split
from app.chat.conversation import Message, MessageState
from app.clients.engine_status import EngineStatus, Phase
from app.text.block_parser import BlockParser
from app.text.markdown_blocks import Block, CodeBlock, ProseBlock, TableBlock
from app.text.plain_text import block_text, thought_text
from app.translation import figure, tr
from app.ui.look import theme
from app.ui.transcript.answer_figures import AnswerFigures
from app.ui.transcript.code_block import CodeBlockView
from app.ui.transcript.further_rows import FurtherRows
from app.ui.transcript.message_view import PART_GAP, MessageView
from app.ui.transcript.more_row import MoreRow
from app.ui.transcript.prose import Prose, Table
from app.ui.transcript.selection.selectable import SelectableText
from app.ui.transcript.stat_line import StatLine
from app.ui.transcript.thought_view import ThoughtView
from app.ui.widgets.floating import Menu
from app.ui.widgets.slices import SLICE_S, later

if TYPE_CHECKING:
    from app.ui.transcript.text_find import TextFind

# Prose is split into widgets of about this many characters, at the end of a block, so that updating the last one has a
# constant cost however long the answer is.
PROSE_CHUNK = 3000
# Parser steps and widgets before the window is painted again; the rest follows in slices.
PIECES_AT_ONCE, PARTS_AT_ONCE, AT_ONCE_S = 3, 8, 0.05
PAGE = 30_000  # characters, approximately, of a finished answer that are shown before the user asks for more

Part = Prose | Table | CodeBlockView


class AnswerView(MessageView):
    """An answer: its parts in the full column, and the statistics line."""

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(message, parent)
        self._parser = BlockParser()
        self._writing = message.state is MessageState.WRITING
        self._limit = PAGE * (4 if self._writing else 1)
        self._unread = False  # whether the parser has more to read now
        self._next = 0  # index of the first block that may not be shown yet
        self._before: list[Block] | None = None  # the shown blocks while everything is parsed again
        self._stale: list[Part | FurtherRows] = []  # parts still to be laid out for a new width
        self._more: MoreRow | None = None
        self._splitter = ReplySplitter()
        self._said: list[str] = []  # raw text, including thought and its marks
        self._thought: ThoughtView | None = None
        self._parts: list[Part] = []
        self._rests: dict[Part, FurtherRows] = {}  # below tables of which only the first rows are shown
        self._starts: list[int] = []  # for each part, the index of its first block
        self._width = theme.px(720)
        self._status = EngineStatus(Phase.THINKING)
        self._model = ""  # the model, if it differs from the previous answer's
        self._words = QVBoxLayout()
        self._words.setSpacing(theme.px(PART_GAP))
        self.column.addLayout(self._words)
        self.stats = StatLine(self)
        self.column.addWidget(self.stats)
        self.setAccessibleName(tr("Answer"))
        self.stats.acted.connect(self._act)
        if self._writing:
            self.append(message.text)
            self.set_status(self._status)
        else:
            self._show_whole()

    @property
    def is_writing(self) -> bool:
        """Whether more text may come."""
        return self._writing

    @property
    def text(self) -> str:
        """The raw text so far."""
        return "".join(self._said) if self._writing else self.message.text

    @property
    def source(self) -> str:
        return split(self.text).answer.strip("\n")

    def texts(self) -> list[SelectableText | None]:
        thought = self._thought
        shown = thought.words if thought is not None and not thought.isHidden() and thought.is_open else None
        return [shown, *(part.text if isinstance(part, CodeBlockView) else part for part in self._parts)]

    @property
    def shows_all(self) -> bool:
        return not self._unread and self.is_complete

    def unshown(self) -> str:
        if self.is_complete:
            return self._parser.unread if self._unread else ""
        blocks = self._parser.spans[: self._next]
        return self._parser.text[blocks[-1][1] if blocks else 0 :]

    def searched(self) -> list[SelectableText]:
        out: list[SelectableText] = [self._thought.words] if self._thought is not None else []
        for part in self._parts:
            out.append(part.text if isinstance(part, CodeBlockView) else part)
            if part in self._rests:
                out += self._rests[part].tables
        return out

    def reveal(self, piece: int, nth: int, find: TextFind) -> tuple[SelectableText, int] | None:
        if piece == 0 and self._thought is not None:
            is_shown = self._thought.reveal(nth < len(find.found_in(self._thought.words)))
            return (self._thought.words, nth) if is_shown else None
        block = max(piece - 1, 0)
        if block >= self._next:
            if not self.is_complete:
                return None
            if self._unread:
                self._read_on()
                return None
        if not self._parts:
            return None
        place = max(bisect_right(self._starts, block) - 1, 0)
        part = self._parts[place]
        if isinstance(part, CodeBlockView):
            return (part.text, nth) if nth < len(find.found_in(part.text)) or not part.show_more() else None
        if part not in self._rests:
            before = [block_text(one) for one in self._parser.blocks[self._starts[place] : block]]
            return part, nth + find.count_in(before)
        for table in (part, *self._rests[part].tables):
            if nth < (some := len(find.found_in(table))):
                return table, nth
            nth -= some
        return None if self._rests[part].show_more() else (part, nth)

    def pieces(self) -> tuple[str, ...]:
        """Return the plain text so far: of the thought, and of each block."""
        return (thought_text(split(self.text).thought), *map(block_text, self._parser.blocks))

    def blocks_in(self, number: int) -> list[Block]:
        starts = [*self._starts, self._next]
        return self._parser.blocks[starts[number - 1] : starts[number]] if 1 <= number < len(starts) else []

    def sources(self) -> list[tuple[str, int]]:
        return self._parser.sources()

    @property
    def thought(self) -> ThoughtView | None:
        """The widget of the thought, if there is one."""
        return self._thought

    @property
    def tail_length(self) -> int:
        """The length in characters of the block that the next append renders again."""
        return self._parser.tail_length if self._writing else 0

    def append(self, text: str) -> None:
        """Append text to an answer in progress."""
        if not self._writing or not text:
            return
        self._said.append(text)
        was_thinking = self._splitter.is_thinking
        thought, words = self._splitter.append(text)
        if self._splitter.is_thinking or thought:
            self._thought_view().add(thought)
        if self._splitter.is_thinking and not was_thinking:
            self._thought_view().begin()
        elif self._thought is not None and not self._splitter.is_thinking and (was_thinking or thought):
            self._thought.end(self.message.stats or {})
        if words:
            self._parser.feed(words)
            self._unread = True
            self._work_at_once()
        if self._splitter.is_thinking != was_thinking:
            self.stats.show_running(self._status, self._splitter.is_thinking)
        self._place_caret()

    def _thought_view(self) -> ThoughtView:
        if self._thought is None:
            self._thought = ThoughtView(self)
            self._thought.set_width(self._width)
            self.column.insertWidget(self.column.indexOf(self._words), self._thought)
        return self._thought

    def set_model(self, name: str) -> None:
        """Set the model's name, if it differs from the previous answer's; empty otherwise."""
        if name != self._model:
            self._model = name
            if not self._writing:
                self._show_result()

    def finish(self, message: Message) -> None:
        """Show the final state of the answer."""
        self.message = message
        was_writing, self._writing = self._writing, False
        self._status = EngineStatus(Phase.READY)
        self._place_caret()
        if was_writing and self._parser.text == split(message.text).answer:
            before = list(self._parser.blocks)
            if self._parser.end():
                self._before = before
            self._unread = True
            self._work_at_once()
            self._show_thought()
            self._show_result()
        else:
            self._show_whole()

    def _show_whole(self) -> None:
        self._parser, self._before = BlockParser(), None
        self._parser.feed(split(self.message.text).answer)
        self._parser.end()
        self._unread, self._next = True, 0
        self._work_at_once()
        self._show_thought()
        self._show_result()

    # ------------------------------------------------------------------ building, in slices

    @property
    def is_complete(self) -> bool:
        """Whether everything to be shown now is built."""
        return not self._stale and not self._reads_on and self._next == len(self._parser.blocks)

    @property
    def _reads_on(self) -> bool:
        return self._unread and self._parser.weight < self._limit

    def _work_at_once(self) -> None:
        if self._work(PIECES_AT_ONCE, PARTS_AT_ONCE):
            later(self, lambda: self._work(1, 1))

    def _work(self, pieces: int, parts: int) -> bool:
        """Parse `pieces` steps and build `parts` parts. Return whether there is more to do."""
        if self._stale:
            self._stale.pop().set_width(self._width)
            return True
        parser, until = self._parser, time.thread_time() + (AT_ONCE_S if pieces > 1 else SLICE_S)
        if pieces > 1 or self._next == len(parser.blocks) or self._before is not None:
            while self._reads_on and pieces > 0 and time.thread_time() < until:
                self._unread = parser.step()
                pieces -= 1
        changed = parser.take_changed()
        if self._before is not None:  # definitions below changed earlier blocks: show them when everything is parsed
            if self._reads_on:
                return True
            before, self._before = self._before, None
            pairs = zip(before, parser.blocks, strict=False)
            changed = next(
                (i for i, (old, new) in enumerate(pairs) if old != new), min(len(before), len(parser.blocks))
            )
        self._next = min(self._next, changed)
        if time.thread_time() > until and self._next < len(parser.blocks):
            return True  # parsing used up the time
        self._show_blocks(parser.blocks, parts, until)
        if self.is_complete:
            self._show_more()
        self._place_caret()
        return not self.is_complete

    def _show_more(self) -> None:
        """Offer the rest of a very long answer."""
        if not self._unread:
            if self._more is not None:
                self._more.hide()
            return
        if self._more is None:
            self._more = MoreRow(self)
            self._more.clicked.connect(self._read_on)
            self.column.insertWidget(self.column.indexOf(self._words) + 1, self._more)
        share = figure(100 * self._parser.share_read, ".0f")
        note = tr("{share}% of this answer is shown. Copy and export take all of it.", share=share)
        self._more.show_words(tr("Show more"), note)
        self._more.show()

    def _read_on(self) -> None:
        self._limit = self._parser.weight + PAGE
        later(self, lambda: self._work(1, 1))

    def _show_thought(self) -> None:
        thought = split(self.message.text).thought
        if thought:
            view = self._thought_view()
            view.set_text(thought)
            view.end(self.message.stats or {})
        elif self._thought is not None:
            self._thought.hide()

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status while this answer is in progress."""
        if not self._writing:
            return
        self._status = status
        self.stats.show_running(status, self._splitter.is_thinking)
        self._place_caret()

    def set_width(self, width: int) -> None:
        self._width = width
        if self._thought is not None:
            self._thought.set_width(width)
        parts = [*self._parts, *self._rests.values()]
        in_view = [part for part in parts if len(parts) <= PARTS_AT_ONCE or not part.visibleRegion().isEmpty()]
        for part in in_view:
            part.set_width(width)
        self._stale = [part for part in reversed(parts) if part not in in_view]
        if self._stale:
            later(self, lambda: self._work(1, 1))

    def parts(self) -> list[Part]:
        """Return the widgets of the parts, from the top."""
        return list(self._parts)

    def set_versions(self, which: int, count: int) -> None:
        self.stats.set_versions(which, count)

    def set_last(self, last: bool) -> None:
        """Set whether it is the last message, which alone can be continued."""
        self.stats.set_last(last)

    def _act(self, name: str) -> None:
        if name == "figures":
            self.show_figures()
        elif name == "more":
            corner = self.stats.more.mapToGlobal(QPoint(self.stats.more.width(), self.stats.more.height()))
            menu = self.make_menu()
            menu.popup(corner - QPoint(menu.sizeHint().width(), -theme.px(4)))
        elif name in ("back", "on"):
            self.do("switch", step=-1 if name == "back" else 1)
        else:
            self.do("continue" if name == "continue" else "regenerate")

    def make_menu(self) -> Menu:
        """Return the menu of the answer."""
        menu = Menu(tr("This answer"), self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if figures_of(self.message.stats or {}):
            menu.add(tr("Figures of this answer"), "table", self.show_figures)
        menu.add(tr("Copy"), "copy", self.stats.copy.click)
        menu.add(tr("Answer again"), "redo", lambda: self.do("regenerate"))
        menu.add(tr("Answer again with another model"), "chip", lambda: self.do("other_model"))
        menu.addSeparator()
        menu.add(tr("Delete"), "trash", lambda: self.do("delete"), token="bad")
        return menu

    def show_figures(self) -> None:
        """Open the table of all figures."""
        AnswerFigures(self.message.stats or {}, self.window()).open_at(self.stats)

    def _show_result(self) -> None:
        self.stats.copy.text_to_copy = self.source
        self.stats.show_result(self.message, self._model)

    def _place_caret(self) -> None:
        shown = (
            self._writing
            and self.is_complete
            and self._status.phase is Phase.WRITING
            and not self._splitter.is_thinking
        )
        for part in self._parts[-2:]:
            part.set_caret(shown and part is self._parts[-1])

    def _show_blocks(self, blocks: list[Block], most: int, until: float) -> None:
        """Update at most `most` parts from block `_next` on; earlier parts are not touched."""
        part = max(bisect_right(self._starts, self._next) - 1, 0)
        if part and self._starts[part] == self._next:
            part -= 1  # the previous part may take in the changed block
        position = self._starts[part] if self._starts else 0
        while position < len(blocks):
            if part < len(self._parts) and not self._fits(self._parts[part], blocks[position]):
                self._remove_from(part)
            if part == len(self._parts):
                self._add_part(blocks[position], position)
            self._starts[part] = position
            end = _end_of_part(blocks, position)
            self._fill(self._parts[part], blocks[position:end])
            most -= end > self._next
            position, part = end, part + 1
            if (most <= 0 or time.thread_time() > until) and position < len(blocks) and end > self._next:
                self._next = position
                return
        self._next = len(blocks)
        self._remove_from(part)

    def _fits(self, part: Part, block: Block) -> bool:
        if isinstance(block, CodeBlock):
            return isinstance(part, CodeBlockView) and part.level == block.depth
        if isinstance(block, TableBlock):
            return type(part) is Table and (part in self._rests) == bool(block.rest)
        return type(part) is Prose

    def _follow(self, address: str) -> None:
        """Follow a link: inside this message to a footnote and back, otherwise by `link_activated`."""
        if not address.startswith("#"):
            self.link_activated.emit(address)
            return
        for part in self._parts:
            place = None if isinstance(part, CodeBlockView) else part.place_of(address[1:])
            if place is not None:
                self.looked_for.emit(part, place)
                return

    def _fill(self, part: Part, blocks: list[Block]) -> None:
        if isinstance(part, CodeBlockView):
            assert isinstance(blocks[0], CodeBlock)
            part.update_block(blocks[0])
        else:
            if part in self._rests and isinstance(blocks[0], TableBlock):
                self._rests[part].update_block(blocks[0])
            part.show_html("".join(block.html for block in blocks if not isinstance(block, CodeBlock)))

    def _add_part(self, block: Block, start: int) -> None:
        if isinstance(block, CodeBlock):
            part: Part = CodeBlockView(block, self)
        else:
            part = (
                Table(tr("Table in the answer"), self) if isinstance(block, TableBlock) else Prose(tr("Answer"), self)
            )
            part.link_activated.connect(self._follow)
        part.set_width(self._width)
        self._parts.append(part)
        self._starts.append(start)
        self.grown.emit()
        if isinstance(part, CodeBlockView) and part.indent:
            row = QHBoxLayout()
            row.setContentsMargins(part.indent, 0, 0, 0)
            row.addWidget(part)
            self._words.addLayout(row)
        elif isinstance(block, TableBlock) and block.rest:
            assert isinstance(part, Table)
            rows = self._rests[part] = FurtherRows(part)
            rows.link_activated.connect(self._follow)
            rows.grown.connect(self.grown)
            column = QVBoxLayout()
            column.setSpacing(0)
            column.addWidget(part)
            column.addWidget(rows)
            self._words.addLayout(column)
        else:
            self._words.addWidget(part)

    def _remove_from(self, first: int) -> None:
        while len(self._parts) > first:
            part = self._parts.pop()
            self._starts.pop()
            self._stale = [stale for stale in self._stale if stale is not part]
            if (rows := self._rests.pop(part, None)) is not None:
                self._stale = [stale for stale in self._stale if stale is not rows]
                rows.hide()
                rows.deleteLater()
            item = self._words.takeAt(self._words.count() - 1)
            row = item.layout() if item is not None else None
            if row is not None:
                row.deleteLater()
            part.hide()
            part.deleteLater()


def _end_of_part(blocks: list[Block], start: int) -> int:
    """Return the index after the last block that shares a widget with the block at `start`."""
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
