"""The widgets of an answer's blocks: prose in pieces, tables, and code blocks, one below the other."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Collection
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.text.markdown_blocks import SOURCE, Block, CodeBlock, ProseBlock, TableBlock
from app.text.plain_text import block_text
from app.translation import tr
from app.ui.look import theme
from app.ui.transcript.message_view import PART_GAP
from app.ui.transcript.selection.selectable import SelectableText
from app.ui.transcript.text.code_block import CodeBlockView
from app.ui.transcript.text.further_rows import FurtherRows
from app.ui.transcript.text.prose import Prose, Table

if TYPE_CHECKING:
    from app.ui.transcript.text_find import TextFind

# Prose is split into widgets of about this many characters, at the end of a block, so that updating the last one has a
# constant cost however long the answer is.
PROSE_CHUNK = 3000
Part = Prose | Table | CodeBlockView


class AnswerParts(QObject):
    """The parts of one answer.

    link_activated: an address. source_requested: number of a source. looked_for: a part, and a place in it. grown: a
    new part.
    """

    link_activated = Signal(str)
    source_requested = Signal(int)
    looked_for = Signal(QWidget, int)
    grown = Signal()

    def __init__(self, owner: QWidget, width: int) -> None:
        super().__init__(owner)
        self.parts: list[Part] = []
        self.sources: Collection[int] = ()  # as in BlockParser
        self.shown = 0  # index of the first block that may not be shown yet
        self.column = QVBoxLayout()
        self.column.setSpacing(theme.px(PART_GAP))
        self._is_final = False  # whether the answer is complete, so that its diagrams are drawn
        self._owner, self._width = owner, width
        self._starts: list[int] = []  # for each part, the index of its first block
        self._rests: dict[Part, FurtherRows] = {}  # below tables of which only the first rows are shown
        self._with_caret: Part | None = None
        self._stale: list[Part | FurtherRows] = []  # still to be laid out for a new width

    # --- texts

    def texts(self) -> list[SelectableText]:
        return [part.text if isinstance(part, CodeBlockView) else part for part in self.parts]

    def searched(self) -> list[SelectableText]:
        """Return all texts that a search marks, including further rows of tables."""
        out: list[SelectableText] = []
        for part in self.parts:
            out.append(part.text if isinstance(part, CodeBlockView) else part)
            if part in self._rests:
                out += self._rests[part].tables
        return out

    def blocks_of(self, number: int) -> slice:
        """Return the range of blocks that a part shows; empty if there is no such part."""
        starts = [*self._starts, self.shown]
        return slice(starts[number], starts[number + 1]) if 0 <= number < len(self._starts) else slice(0)

    def reveal(self, block: int, nth: int, find: TextFind, blocks: list[Block]) -> tuple[SelectableText, int] | None:
        """Unfold what hides the `nth` match of a block; see MessageView.reveal."""
        if not self.parts:
            return None
        place = max(bisect_right(self._starts, block) - 1, 0)
        part = self.parts[place]
        if isinstance(part, CodeBlockView):
            return (part.text, nth) if nth < len(find.found_in(part.text)) or not part.show_more() else None
        if part not in self._rests:
            return part, nth + find.count_in([block_text(one) for one in blocks[self._starts[place] : block]])
        for table in (part, *self._rests[part].tables):
            if nth < (some := len(find.found_in(table))):
                return table, nth
            nth -= some
        return None if self._rests[part].show_more() else (part, nth)

    # --- layout

    @property
    def is_stale(self) -> bool:
        """Whether parts are still to be laid out for a new width."""
        return bool(self._stale)

    def set_width(self, width: int, most: int) -> bool:
        """Lay out for a column of that width; of more than `most` parts only the visible ones. Return `is_stale`."""
        self._width = width
        parts = [*self.parts, *self._rests.values()]
        in_view = [part for part in parts if len(parts) <= most or not part.visibleRegion().isEmpty()]
        for part in in_view:
            part.set_width(width)
        self._stale = [part for part in reversed(parts) if part not in in_view]
        return self.is_stale

    def lay_out_next(self) -> bool:
        """Lay out one more part for the new width. Return whether there was one."""
        if not self._stale:
            return False
        self._stale.pop().set_width(self._width)
        return True

    def set_caret(self, shown: bool) -> None:
        """Show or hide the caret at the end of the last part."""
        last = self.parts[-1] if shown and self.parts else None
        before, self._with_caret = self._with_caret, last
        if before is not last and before in self.parts:
            before.set_caret(False)
        if last is not None:
            last.set_caret(True)

    def draw_diagrams(self) -> None:
        """Draw the diagrams, of further parts too: the answer is complete."""
        self._is_final = True
        for part in self.parts:
            if isinstance(part, CodeBlockView):
                part.draw_diagram()

    # --- building

    def show(self, blocks: list[Block], most: int, until: float) -> None:
        """Update at most `most` parts from block `shown` on; earlier parts are not touched.

        until: time.thread_time() at which to stop.
        """
        part = max(bisect_right(self._starts, self.shown) - 1, 0)
        if part and self._starts[part] == self.shown:
            part -= 1  # the previous part may take in the changed block
        position = self._starts[part] if self._starts else 0
        while position < len(blocks):
            if part < len(self.parts) and not self._fits(self.parts[part], blocks[position]):
                self._remove_from(part)
            if part == len(self.parts):
                self._add_part(blocks[position], position)
            self._starts[part] = position
            end = _end_of_part(blocks, position)
            self._fill(self.parts[part], blocks[position:end])
            most -= end > self.shown
            position, part = end, part + 1
            if (most <= 0 or time.thread_time() > until) and position < len(blocks) and end > self.shown:
                self.shown = position
                return
        self.shown = len(blocks)
        self._remove_from(part)

    def _fits(self, part: Part, block: Block) -> bool:
        if isinstance(block, CodeBlock):
            return isinstance(part, CodeBlockView) and part.level == block.depth
        if isinstance(block, TableBlock):
            return type(part) is Table and (part in self._rests) == bool(block.rest)
        return type(part) is Prose

    def _follow(self, address: str) -> None:
        """Follow a link: to a source, inside this message to a footnote and back, otherwise by `link_activated`."""
        if address.startswith(SOURCE):
            self.source_requested.emit(int(address.removeprefix(SOURCE)))
            return
        if not address.startswith("#"):
            self.link_activated.emit(address)
            return
        for part in self.parts:
            place = None if isinstance(part, CodeBlockView) else part.place_of(address[1:])
            if place is not None:
                self.looked_for.emit(part, place)
                return

    def _fill(self, part: Part, blocks: list[Block]) -> None:
        if isinstance(part, CodeBlockView):
            assert isinstance(blocks[0], CodeBlock)
            part.update_block(blocks[0])
            if self._is_final:
                part.draw_diagram()
        else:
            if part in self._rests and isinstance(blocks[0], TableBlock):
                self._rests[part].update_block(blocks[0])
            part.show_html("".join(block.html for block in blocks if not isinstance(block, CodeBlock)))

    def _add_part(self, block: Block, start: int) -> None:
        if isinstance(block, CodeBlock):
            part: Part = CodeBlockView(block, self._owner)
        else:
            part = (
                Table(tr("Table in the answer"), self._owner)
                if isinstance(block, TableBlock)
                else Prose(tr("Answer"), self._owner)
            )
            part.link_activated.connect(self._follow)
        part.set_width(self._width)
        self.parts.append(part)
        self._starts.append(start)
        self.grown.emit()
        if isinstance(part, CodeBlockView) and part.indent:
            row = QHBoxLayout()
            row.setContentsMargins(part.indent, 0, 0, 0)
            row.addWidget(part)
            self.column.addLayout(row)
        elif isinstance(block, TableBlock) and block.rest:
            assert isinstance(part, Table)
            rows = self._rests[part] = FurtherRows(part, self.sources)
            rows.link_activated.connect(self._follow)
            rows.grown.connect(self.grown)
            column = QVBoxLayout()
            column.setSpacing(0)
            column.addWidget(part)
            column.addWidget(rows)
            self.column.addLayout(column)
        else:
            self.column.addWidget(part)

    def _remove_from(self, first: int) -> None:
        while len(self.parts) > first:
            part = self.parts.pop()
            self._starts.pop()
            self._stale = [stale for stale in self._stale if stale is not part]
            if (rows := self._rests.pop(part, None)) is not None:
                self._stale = [stale for stale in self._stale if stale is not rows]
                rows.hide()
                rows.deleteLater()
            item = self.column.takeAt(self.column.count() - 1)
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
