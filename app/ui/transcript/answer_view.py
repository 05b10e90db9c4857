"""The widget of an answer: thought, parts, calls of tools, sources, and statistics line."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget

from app.chat.message_action import ActionName, MessageAction
from app.chat.store.conversation import Message, MessageState
from app.clients.engine_status import EngineStatus, Phase
from app.text.block_parser import BlockParser
from app.text.markdown_blocks import Block
from app.text.plain_text import block_text, thought_text
from app.translation import figure, tr
from app.ui.look import theme
from app.ui.transcript.answer_figures import AnswerFigures
from app.ui.transcript.answer_parts import AnswerParts, Part
from app.ui.transcript.answer_sources import AnswerSources, Sources
from app.ui.transcript.message_view import MessageView, has_notes
from app.ui.transcript.selection.selectable import SelectableText
from app.ui.transcript.stat_line import StatLine
from app.ui.transcript.text.more_row import MoreRow
from app.ui.transcript.text.slices import SLICE_S, later
from app.ui.transcript.thought_view import ThoughtView
from app.ui.transcript.tool_call_view import ToolCalls, ToolWords
from app.ui.widgets.floating import Menu
from engine.text.thoughts import ReplySplitter, split

if TYPE_CHECKING:
    from app.ui.transcript.text_find import TextFind

# Parser steps and widgets before the window is painted again; the rest follows in slices.
PIECES_AT_ONCE, PARTS_AT_ONCE, AT_ONCE_S = 3, 8, 0.05
PAGE = 30_000  # characters, approximately, of a finished answer that are shown before the user asks for more


class AnswerView(MessageView):
    """An answer: its parts in the full column, and the statistics line. sources: what it can rest on."""

    def __init__(self, message: Message, parent: QWidget | None = None, sources: Sources | None = None) -> None:
        super().__init__(message, parent)
        self._sources = sources or Sources()
        self._source_row: AnswerSources | None = None
        self._parser = BlockParser(self._sources.known)
        self._writing = message.state is MessageState.WRITING
        self._limit = PAGE * (4 if self._writing else 1)
        self._unread = False  # whether the parser has more to read now
        self._before: list[Block] | None = None  # the shown blocks while everything is parsed again
        self._more: MoreRow | None = None
        self._splitter = ReplySplitter()
        self._said: list[str] = []  # raw text, including thought and its marks
        self._thought: ThoughtView | None = None
        self._width = theme.px(720)
        self._parts = AnswerParts(self, self._width)
        self._parts.sources = self._sources.known
        self._parts.link_activated.connect(self.link_activated)
        self._parts.source_requested.connect(self._ask_for_source)
        self._parts.looked_for.connect(self.looked_for)
        self._parts.grown.connect(self.grown)
        self._status = EngineStatus(Phase.THINKING)
        self._model = ""  # the model, if it differs from the previous answer's
        self._calls: ToolCalls | None = None
        self._tool_words = ToolWords()
        self._goes_on = False  # in the next message
        self.column.addLayout(self._parts.column)
        self.stats = StatLine(self)
        self.column.addWidget(self.stats)
        self.setAccessibleName(tr("Answer"))
        self.stats.acted.connect(self._act)
        if self._writing:
            self.append(message.text)
            self.set_status(self._status)
        else:
            self._parts.draw_diagrams()
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
        return [shown, *self._parts.texts()]

    @property
    def shows_all(self) -> bool:
        return not self._unread and self.is_complete

    def unshown(self) -> str:
        if self.is_complete:
            return self._parser.unread if self._unread else ""
        blocks = self._parser.spans[: self._parts.shown]
        return self._parser.text[blocks[-1][1] if blocks else 0 :]

    def searched(self) -> list[SelectableText]:
        thought: list[SelectableText] = [self._thought.words] if self._thought is not None else []
        return [*thought, *self._parts.searched()]

    def reveal(self, piece: int, nth: int, find: TextFind) -> tuple[SelectableText, int] | None:
        if piece == 0 and self._thought is not None:
            is_shown = self._thought.reveal(nth < len(find.found_in(self._thought.words)))
            return (self._thought.words, nth) if is_shown else None
        block = max(piece - 1, 0)
        if block >= self._parts.shown:
            if not self.is_complete:
                return None
            if self._unread:
                self._read_on()
                return None
        return self._parts.reveal(block, nth, find, self._parser.blocks)

    def pieces(self) -> tuple[str, ...]:
        """Return the plain text so far: of the thought, and of each block."""
        return (thought_text(split(self.text).thought), *map(block_text, self._parser.blocks))

    def blocks_in(self, number: int) -> list[Block]:
        return self._parser.blocks[self._parts.blocks_of(number - 1)] if number > 0 else []

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
            self.column.insertWidget(self.column.indexOf(self._parts.column), self._thought)
        return self._thought

    def set_model(self, name: str) -> None:
        """Set the model's name, if it differs from the previous answer's; empty otherwise."""
        if name != self._model:
            self._model = name
            if not self._writing:
                self._show_result()

    def finish(self, message: Message) -> None:
        self.message = message
        was_writing, self._writing = self._writing, False
        self._parts.draw_diagrams()
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
        self._parse_again()
        self._show_thought()
        self._show_result()

    def _parse_again(self) -> None:
        self._parser, self._before = BlockParser(self._sources.known), None
        self._parser.feed(split(self.text).answer)
        if not self._writing:
            self._parser.end()
        self._unread, self._parts.shown = True, 0
        self._work_at_once()

    # --- sources

    def set_sources(self, sources: Sources) -> None:
        if sources != self._sources:
            self._sources = sources
            if self._parser.sources_known != sources.known.keys():
                self._parts.sources = sources.known
                self._parse_again()
            self._show_sources()

    def _ask_for_source(self, number: int) -> None:
        if (found := self._sources.known.get(number)) is not None:
            self.source_requested.emit(found)

    def _show_sources(self) -> None:
        """Show the sources below the last answer to their question, once it is complete."""
        shown = not self._writing and not self._goes_on and bool(self._sources.known)
        if shown and self._source_row is None:
            self._source_row = AnswerSources(self)
            self._source_row.asked.connect(self.source_requested)
            self._source_row.set_width(self._width)
            self.column.insertWidget(self.column.indexOf(self.stats), self._source_row)
        if self._source_row is not None:
            self._source_row.show_sources(self._sources, self.source if shown else "")
            self._source_row.setVisible(shown and self._source_row.has_some)

    # --- building, in slices

    @property
    def is_complete(self) -> bool:
        """Whether everything to be shown now is built."""
        return not self._parts.is_stale and not self._reads_on and self._parts.shown == len(self._parser.blocks)

    @property
    def _reads_on(self) -> bool:
        return self._unread and self._parser.weight < self._limit

    def _work_at_once(self) -> None:
        if self._work(PIECES_AT_ONCE, PARTS_AT_ONCE):
            later(self, lambda: self._work(1, 1))

    def _work(self, pieces: int, parts: int) -> bool:
        """Parse `pieces` steps and build `parts` parts. Return whether there is more to do."""
        if self._parts.lay_out_next():
            return True
        parser, until = self._parser, time.thread_time() + (AT_ONCE_S if pieces > 1 else SLICE_S)
        if pieces > 1 or self._parts.shown == len(parser.blocks) or self._before is not None:
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
        self._parts.shown = min(self._parts.shown, changed)
        if time.thread_time() > until and self._parts.shown < len(parser.blocks):
            return True  # parsing used up the time
        self._parts.show(parser.blocks, parts, until)
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
            self.column.insertWidget(self.column.indexOf(self._parts.column) + 1, self._more)
        share = figure(100 * self._parser.share_read, ".0f")
        note = tr("{share}% of this answer is shown. Copy and export include all of it.", share=share)
        self._more.show_text(tr("Show more"), note)
        self._more.show()

    def _read_on(self) -> None:
        self._limit = self._parser.weight + PAGE
        later(self, lambda: self._work(1, 1))

    # --- calls of tools

    @property
    def calls(self) -> ToolCalls | None:
        """The widget of the calls, or None."""
        return self._calls

    def update_calls(self, message: Message) -> None:
        """Show newer states of the calls; everything else stays."""
        self.message = message
        if message.calls and self._calls is None:
            self._calls = ToolCalls(self)
            self._calls.decided.connect(self._decide)
            self._calls.text_selected.connect(self.text_selected)
            self._calls.set_words(self._tool_words)
            self._calls.set_width(self._width)
            self.column.insertWidget(self.column.indexOf(self._source_row or self.stats), self._calls)
        if self._calls is not None:
            self._calls.show_calls(message.calls)
            self._calls.setVisible(bool(message.calls))
        self._show_stats()

    def set_tool_words(self, words: ToolWords) -> None:
        """Set the titles of tools, and whether the chat is in a folder."""
        self._tool_words = words
        if self._calls is not None:
            self._calls.set_words(words)

    def set_goes_on(self, goes_on: bool) -> None:
        """Set whether the next message continues this answer with the results of its calls."""
        if goes_on != self._goes_on:
            self._goes_on = goes_on
            self._show_stats()
            self._show_sources()

    def _show_stats(self) -> None:
        """Hide the statistics line of an answer that is not at its end, unless it leads to other versions."""
        calls = self.message.calls
        unfinished = bool(calls) and (self._goes_on or not all(call.has_ended for call in calls))
        self.stats.setVisible(self._writing or not unfinished or (self._goes_on and self.stats.has_versions))

    def _decide(self, act: ActionName, call_id: str, values: Mapping[str, Any]) -> None:
        self.acted.emit(MessageAction(act, self.message.id, call_id=call_id, values=values))

    # --- thought, status, width

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
        if self._calls is not None:
            self._calls.set_width(width)
        if self._source_row is not None:
            self._source_row.set_width(width)
        if self._parts.set_width(width, PARTS_AT_ONCE):
            later(self, lambda: self._work(1, 1))

    def parts(self) -> list[Part]:
        """Return the widgets of the parts, from the top."""
        return list(self._parts.parts)

    def set_versions(self, which: int, count: int) -> None:
        self.stats.set_versions(which, count)
        self._show_stats()

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
        menu = Menu(tr("This answer"), self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if self.stats.has_figures:
            menu.add(tr("Figures of this answer"), "table", self.show_figures)
        menu.add(tr("Inspect tokens"), "eye", lambda: self.do("inspect"))
        menu.add(tr("Copy"), "copy", self.stats.copy.click)
        if has_notes(self):
            menu.add(tr("Add to notes…"), "file", lambda: self.do("note", self.source))
        menu.add(tr("Print or export"), "put", lambda: self.do("print"))
        menu.add(tr("Answer again"), "redo", lambda: self.do("regenerate"))
        menu.add(tr("Answer again with another model"), "chip", lambda: self.do("other_model"))
        if self.stats.has_versions:
            menu.add(tr("Versions side by side"), "table", lambda: self.do("side_by_side"))
        menu.addSeparator()
        menu.add(tr("Delete"), "trash", lambda: self.do("delete"), token="bad")
        return menu

    def show_figures(self) -> None:
        AnswerFigures(self.message.stats or {}, self.window()).open_at(self.stats)

    def _show_result(self) -> None:
        self.stats.copy.text_to_copy = self.source
        self.stats.show_result(self.message, self._model)
        self.update_calls(self.message)
        self._show_sources()

    def _place_caret(self) -> None:
        shown = (
            self._writing
            and self.is_complete
            and self._status.phase is Phase.WRITING
            and not self._splitter.is_thinking
        )
        self._parts.set_caret(shown)
