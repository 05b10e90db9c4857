"""The transcript: what is built, what a flush paints again, when it follows the end, and that it fetches nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QTextCursor, QTextDocument, QWheelEvent
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat.answers.answer_labels import facts_of
from app.chat.store.conversation import Message, MessageState, Role
from app.clients.engine_status import EngineStatus, Phase
from app.text import markdown_blocks
from app.text.block_parser import STEP
from app.text.markdown_blocks import FORMULA, STRUT, CodeBlock
from app.ui.look import theme
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.message_builder import AT_ONCE, BATCH, NEWEST
from app.ui.transcript.message_column import text_column
from app.ui.transcript.own_message import OwnMessage
from app.ui.transcript.stat_line import StatLine
from app.ui.transcript.text import prose
from app.ui.transcript.text.code_block import CodeBlockView, coloured_spans
from app.ui.transcript.text.further_rows import FurtherRows
from app.ui.transcript.text.prose import Prose, Table
from app.ui.transcript.text.text_view import TextView
from app.ui.transcript.text_stream import FLUSH_MS, SLOWEST_FLUSH_MS
from app.ui.transcript.transcript import Transcript
from app.ui.widgets.slices import is_working

pytestmark = pytest.mark.gui

STATS = {"tokens": 142, "total_s": 3.6, "ttft_s": 0.34, "active_share": 0.064, "decode_tok_s": 39.1}
WRITING = EngineStatus(Phase.WRITING, "Pip", tok_s=38.6, tokens=212)


def question(text: str = "And then?") -> Message:
    return Message(Role.USER, text)


def answer(text: str, state: MessageState = MessageState.COMPLETE, **stats: Any) -> Message:
    return Message(Role.ASSISTANT, text, state=state, stats=stats or None)


def chat(column: int) -> list[Message]:
    out: list[Message] = []
    for turn in range(column):
        out += [question(f"Question {turn}"), answer(f"Answer {turn}\n\nwith *two* paragraphs", **STATS)]
    return out


@pytest.fixture
def transcript(qtbot: QtBot, qapp: QApplication) -> Transcript:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)
    out = Transcript()
    out.resize(900, 600)
    qtbot.addWidget(out)
    out.show()
    return out


def settle(qtbot: QtBot) -> None:
    for _ in range(4):
        QApplication.processEvents()


def at_end(transcript: Transcript) -> bool:
    bar = transcript.verticalScrollBar()
    return bar.value() == bar.maximum()


def wheel(widget: QWidget, degrees: int, sideways: int = 0) -> bool:
    event = QWheelEvent(
        QPointF(widget.rect().center()), QPointF(widget.mapToGlobal(widget.rect().center())), QPoint(),
        QPoint(sideways, degrees), Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(widget, event)
    return event.isAccepted()


def start_answer(transcript: Transcript, text: str = "") -> Message:
    message = answer("", MessageState.WRITING)
    transcript.add_message(message)
    transcript.set_status(WRITING)
    if text:
        transcript.append_text(message.id, text)
        transcript.flush()
    return message


def complete(view: QWidget) -> None:
    """Wait until all of an answer is built, which happens in slices."""
    assert isinstance(view, AnswerView)
    while not view.is_complete:
        QApplication.processEvents()


# ------------------------------------------------------------------ windowing


def wait_built(transcript: Transcript, qtbot: QtBot, count: int) -> None:
    qtbot.waitUntil(lambda: len(transcript.views) == count)
    settle(qtbot)


def test_a_long_chat_builds_the_newest_alone(transcript: Transcript, qtbot: QtBot) -> None:
    messages = chat(1000)
    for _ in range(2):
        transcript.show_messages(messages)
        wait_built(transcript, qtbot, NEWEST)
        assert transcript.views[-1].message is messages[-1]
        assert at_end(transcript)


def test_opening_builds_what_fills_the_view_and_the_rest_in_slices(
    transcript: Transcript, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.ui.transcript.message_builder.SLICE_S", 0.0)  # one message a slice
    messages = chat(1000)
    transcript.show_messages(messages)
    at_once = len(transcript.views)
    assert at_once <= AT_ONCE
    assert sum(view.sizeHint().height() for view in transcript.views) > transcript.height(), "the view is full"
    seen = []
    while len(transcript.views) < NEWEST:
        before = len(transcript.views)
        QApplication.processEvents()
        seen.append(len(transcript.views) - before)
        assert at_end(transcript), "the end stays in view meanwhile"
    assert max(seen) <= 2, "never many in one go"
    assert [view.message for view in transcript.views] == messages[-NEWEST:]


def test_older_messages_come_in_batches_and_nothing_jumps(transcript: Transcript, qtbot: QtBot) -> None:
    messages = chat(60)
    transcript.show_messages(messages)
    wait_built(transcript, qtbot, NEWEST)
    first = transcript.views[0]
    transcript.verticalScrollBar().setValue(first.y() + 50)
    before = first.mapTo(transcript, QPoint(0, 0)).y()
    wait_built(transcript, qtbot, NEWEST + BATCH)
    assert [view.message.id for view in transcript.views] == [m.id for m in messages[-NEWEST - BATCH :]]
    assert first.mapTo(transcript, QPoint(0, 0)).y() == before
    for count in (NEWEST + 2 * BATCH, len(messages)):
        transcript.verticalScrollBar().setValue(transcript.views[0].y())
        wait_built(transcript, qtbot, count)
    assert transcript.views[0].message is messages[0]


@pytest.mark.parametrize("following", [True, False])
def test_a_theme_change_restyles_what_is_seen_and_builds_the_rest_anew(
    transcript: Transcript, qtbot: QtBot, qapp: QApplication, following: bool
) -> None:
    transcript.show_messages(chat(100))
    wait_built(transcript, qtbot, NEWEST)
    bar = transcript.verticalScrollBar()
    if not following:
        bar.setValue(transcript.views[NEWEST // 2].y())
    settle(qtbot)
    seen = next(view for view in transcript.views if view.y() >= bar.value())
    before = seen.mapTo(transcript, QPoint(0, 0)).y()
    restyled: list[int] = []
    theme.current().changed.connect(lambda: restyled.append(len(transcript.views)))
    try:
        theme.apply(qapp, "dark", 1.0)
        assert restyled[0] < 12, "what lies above and below the view costs nothing now"
        wait_built(transcript, qtbot, NEWEST)
        assert [view.message.id for view in transcript.views] == [m.id for m in transcript.messages[-NEWEST:]]
        assert seen.mapTo(transcript, QPoint(0, 0)).y() == before
        assert at_end(transcript) is following
    finally:
        theme.apply(qapp, "light", 1.0)


def test_scrolling_moves_what_is_painted_already(transcript: Transcript, qtbot: QtBot) -> None:
    class Painted(QObject):
        count = 0

        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            self.count += event.type() == QEvent.Type.Paint
            return False

    transcript.show_messages(chat(100))
    wait_built(transcript, qtbot, NEWEST)
    settle(qtbot)
    bar = transcript.verticalScrollBar()
    bar.setValue(transcript.views[NEWEST // 2].y())
    settle(qtbot)
    middle = bar.value() + transcript.viewport().height() // 2
    view = next(view for view in transcript.views if view.y() >= middle)
    painted = Painted()
    view.installEventFilter(painted)
    bar.setValue(bar.value() - 10)
    settle(qtbot)
    assert painted.count == 0
    view.update()
    qtbot.waitUntil(lambda: painted.count == 1, timeout=30_000)
    view.removeEventFilter(painted)


def test_an_answer_that_is_being_written_outlives_a_theme_change(
    transcript: Transcript, qtbot: QtBot, qapp: QApplication
) -> None:
    message = start_answer(transcript, "Words that only the window has so far")
    for turn in chat(20):  # messages below it, so that it is out of view
        transcript.add_message(turn)
    transcript.jump_to_end()
    settle(qtbot)
    try:
        theme.apply(qapp, "dark", 1.0)
        kept = next(m for m in transcript.messages if m.id == message.id)
        assert kept.text == "Words that only the window has so far"
    finally:
        theme.apply(qapp, "light", 1.0)


def test_another_chat_takes_the_place_of_the_first(transcript: Transcript, qtbot: QtBot) -> None:
    transcript.show_messages(chat(50))
    other = chat(2)
    transcript.show_messages(other)
    settle(qtbot)
    assert [view.message for view in transcript.views] == other


# ------------------------------------------------------------------ what a flush costs


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    counts = {"setHtml": 0, "html": 0, "parse": 0, "parsed": 0}
    set_html: Callable[..., None] = TextView.setHtml
    parse = markdown_blocks._MD.parse

    def counting_html(self: TextView, html: str) -> None:
        counts["setHtml"] += 1
        counts["html"] += len(html)
        set_html(self, html)

    def counting_parse(text: str, env: Any) -> Any:
        counts["parse"] += 1
        counts["parsed"] += len(text)
        return parse(text, env)

    monkeypatch.setattr(TextView, "setHtml", counting_html)
    monkeypatch.setattr(markdown_blocks._MD, "parse", counting_parse)
    return counts


def test_a_flush_costs_the_same_in_a_long_chat_and_a_long_answer(
    transcript: Transcript, qtbot: QtBot, counted: dict[str, int]
) -> None:
    def cost(column: int, paragraphs: int) -> dict[str, int]:
        transcript.show_messages(chat(column))
        message = start_answer(transcript, "A paragraph of the answer.\n\n" * paragraphs + "And the tail ")
        settle(qtbot)
        complete(transcript.views[-1])
        counted.update(dict.fromkeys(counted, 0))
        transcript.append_text(message.id, "goes ")
        transcript.append_text(message.id, "on.")
        transcript.flush()
        return dict(counted)

    short, long = cost(1, 3), cost(1000, 3)
    assert short == long
    assert short["setHtml"] == 1
    assert short["parse"] == 1, "two appends are one flush"
    assert short["parsed"] < 60
    many = cost(1, 1000)
    assert (many["setHtml"], many["parse"], many["parsed"]) == (1, 1, short["parsed"])
    assert many["html"] < 4000, "more than the last piece of a long answer was painted"


def test_an_open_fence_is_not_rendered_again(transcript: Transcript, counted: dict[str, int]) -> None:
    message = start_answer(transcript, "Text\n\n```python\n" + "x = 1\n" * 200)
    counted.update(dict.fromkeys(counted, 0))
    transcript.append_text(message.id, "y = 2\n")
    transcript.flush()
    assert counted == {"setHtml": 0, "html": 0, "parse": 0, "parsed": 0}
    code = transcript.views[-1].findChildren(CodeBlockView)[0]
    assert code.text.toPlainText().endswith("y = 2")


def test_text_is_gathered_until_the_flush(transcript: Transcript, qtbot: QtBot) -> None:
    message = start_answer(transcript)
    transcript.append_text(message.id, "one ")
    transcript.append_text(message.id, "two")
    view = transcript.views[-1]
    assert view.findChildren(Prose) == []
    qtbot.waitUntil(lambda: [p.toPlainText() for p in view.findChildren(Prose)] == ["one two"])


def test_a_huge_block_is_painted_less_often_and_in_pieces(transcript: Transcript) -> None:
    message = start_answer(transcript, "word ")
    assert transcript.stream.interval(message.id) == FLUSH_MS
    transcript.append_text(message.id, "word " * 700)
    transcript.flush()
    assert FLUSH_MS < transcript.stream.interval(message.id) <= SLOWEST_FLUSH_MS
    transcript.append_text(message.id, "word " * 20_000)
    transcript.flush()
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    complete(view)
    assert view.tail_length <= STEP, "what is longer is cut"


def test_text_for_a_chat_that_was_left_is_dropped(transcript: Transcript) -> None:
    message = start_answer(transcript)
    transcript.append_text(message.id, "late")
    transcript.show_messages(chat(1))
    transcript.append_text(message.id, "later")
    transcript.flush()
    assert [view.message.role for view in transcript.views] == [Role.USER, Role.ASSISTANT]


# ------------------------------------------------------------------ following the end


def grow(transcript: Transcript, message: Message, qtbot: QtBot) -> None:
    transcript.append_text(message.id, "One more paragraph.\n\n" * 5)
    transcript.flush()
    settle(qtbot)


@pytest.fixture
def streaming(transcript: Transcript, qtbot: QtBot) -> Message:
    transcript.show_messages(chat(10))
    message = start_answer(transcript, "First.\n\n")
    wait_built(transcript, qtbot, 21)
    return message


def test_it_follows_the_end(transcript: Transcript, streaming: Message, qtbot: QtBot) -> None:
    for _ in range(5):
        grow(transcript, streaming, qtbot)
        assert at_end(transcript)


@pytest.mark.parametrize("how", ["wheel", "page up", "drag", "wheel over text"])
def test_the_first_scroll_upwards_stops_following(
    transcript: Transcript, streaming: Message, qtbot: QtBot, how: str
) -> None:
    grow(transcript, streaming, qtbot)
    if how == "wheel":
        wheel(transcript.viewport(), 120)
    elif how == "wheel over text":
        prose = transcript.views[-1].findChildren(Prose)[-1]
        assert not wheel(prose.viewport(), 120), "the text kept the wheel for itself"
        wheel(transcript.viewport(), 120)
    elif how == "page up":
        qtbot.keyClick(transcript, Qt.Key.Key_PageUp)
    else:
        transcript.verticalScrollBar().setSliderPosition(transcript.verticalScrollBar().maximum() - 1)
    place = transcript.verticalScrollBar().value()
    assert not transcript.is_following
    jump = next(b for b in transcript.findChildren(QAbstractButton) if b.accessibleName() == "Jump to end")
    assert jump.isVisible()
    grow(transcript, streaming, qtbot)
    assert transcript.verticalScrollBar().value() == place
    qtbot.mouseClick(jump, Qt.MouseButton.LeftButton)
    assert transcript.is_following
    assert not jump.isVisible()
    grow(transcript, streaming, qtbot)
    assert at_end(transcript)


def test_reaching_the_end_by_hand_follows_again(transcript: Transcript, streaming: Message, qtbot: QtBot) -> None:
    qtbot.keyClick(transcript, Qt.Key.Key_PageUp)
    assert not transcript.is_following
    transcript.verticalScrollBar().setValue(transcript.verticalScrollBar().maximum())
    assert transcript.is_following
    qtbot.keyClick(transcript, Qt.Key.Key_Home)
    assert not transcript.is_following
    qtbot.keyClick(transcript, Qt.Key.Key_End)
    assert transcript.is_following


def test_a_narrower_window_keeps_the_end(transcript: Transcript, streaming: Message, qtbot: QtBot) -> None:
    grow(transcript, streaming, qtbot)
    transcript.resize(500, 300)
    settle(qtbot)
    assert at_end(transcript)
    assert transcript.is_following


def test_sending_brings_the_end_into_view(transcript: Transcript, qtbot: QtBot) -> None:
    transcript.show_messages(chat(20))
    settle(qtbot)
    qtbot.keyClick(transcript, Qt.Key.Key_PageUp)
    transcript.add_message(question("New"))
    settle(qtbot)
    assert at_end(transcript)


# ------------------------------------------------------------------ an answer and its line


def stat_words(transcript: Transcript) -> str:
    return transcript.views[-1].findChildren(StatLine)[0].words()


def test_a_running_answer_tells_what_is_going_on(transcript: Transcript) -> None:
    transcript.add_message(answer("", MessageState.WRITING))
    transcript.set_status(EngineStatus(Phase.READING, done=312, total=512))
    assert numbers_in(stat_words(transcript)) == ["512", "60%"]
    transcript.set_status(WRITING)
    assert numbers_in(stat_words(transcript)) == ["38.6 tok/s", "212"]


def test_a_finished_answer_shows_its_figures_and_copies(transcript: Transcript, qtbot: QtBot) -> None:
    message = start_answer(transcript, "The **answer**")
    done = replace(message, text="The **answer** is 42", state=MessageState.COMPLETE, stats=STATS)
    transcript.finish_message(done)
    assert numbers_in(stat_words(transcript)) == ["39.1 tok/s", "142", "3.6 s", "340 ms", "6%"]
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    assert [p.toPlainText() for p in view.parts() if isinstance(p, Prose)] == ["The answer is 42"]
    qtbot.mouseClick(view.stats.copy, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "The **answer** is 42"
    assert view.stats.copy.accessibleName() == "Copied"
    qtbot.waitUntil(lambda: view.stats.copy.accessibleName() == "Copy answer")


@pytest.mark.parametrize(
    ("state", "stats", "words"),
    [
        (MessageState.CANCELLED, {}, ("topped",)),
        (MessageState.LENGTH, {"finish_reason": "length"}, ("limit",)),
        (MessageState.LENGTH, {"finish_reason": "context"}, ("context",)),
        (MessageState.INTERRUPTED, {}, ("closed",)),
        (MessageState.FAILED, {}, ("engine",)),
        (MessageState.FAILED, {"server": "Lab"}, ("server", "Lab")),
    ],
)
def test_an_answer_that_ended_early_says_so(
    transcript: Transcript, state: MessageState, stats: dict[str, Any], words: tuple[str, ...]
) -> None:
    transcript.show_messages([question(), answer("Half", state, **stats)])
    assert [word for word in words if word not in stat_words(transcript)] == []


def test_the_share_bar_is_for_a_gpu_that_took_part(transcript: Transcript) -> None:
    transcript.show_messages([answer("a", **STATS)])
    line = transcript.views[-1].findChildren(StatLine)[0]
    assert line._bar is None
    transcript.show_messages([answer("a", **STATS, gpu_neuron_load=0.83)])
    line = transcript.views[-1].findChildren(StatLine)[0]
    assert not line._bar.isHidden()
    assert numbers_in(line._bar.accessibleName()) == ["83"]


def test_unknown_figures_are_left_out() -> None:
    assert facts_of({}) == []
    assert facts_of({"tokens": 1, "active_share": 0.001}) == ["1 token", "under 1% of neurons"]


def test_words_are_painted_with_the_figures_that_come_with_them(transcript: Transcript) -> None:
    message = start_answer(transcript)
    transcript.append_text(message.id, "One ")
    transcript.set_status(EngineStatus(Phase.WRITING, tokens=1))
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    assert view.text == "One ", "one repaint for both"
    assert not transcript.stream.timer.isActive()
    transcript.stream.flushed_at = time.monotonic() + 60  # they have just been painted
    transcript.append_text(message.id, "two ")
    transcript.set_status(EngineStatus(Phase.WRITING, tokens=2))
    assert view.text == "One ", "the next repaint is not due"
    transcript.stream.flushed_at = 0.0
    transcript.set_status(EngineStatus(Phase.WRITING, tokens=2))
    assert view.text == "One two "


def test_streamed_and_finished_answers_look_alike(transcript: Transcript) -> None:
    text = "# T\n\npara\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n1. x\n   ```sh\n   ls\n   ```\n2. y\n\n```\nz\n```\nend"
    message = start_answer(transcript)
    for start in range(0, len(text), 3):
        transcript.append_text(message.id, text[start : start + 3])
        transcript.flush()
    streamed = transcript.views[-1]
    transcript.finish_message(replace(message, text=text, state=MessageState.COMPLETE))
    transcript.add_message(answer(text))
    built = transcript.views[-1]
    assert isinstance(streamed, AnswerView)
    assert isinstance(built, AnswerView)

    def shape(view: AnswerView) -> list[tuple[type, str]]:
        return [(type(p), (p.text if isinstance(p, CodeBlockView) else p).toPlainText()) for p in view.parts()]

    assert shape(streamed) == shape(built)
    assert [kind for kind, _ in shape(built)] == [
        Prose, Table, Prose, CodeBlockView, Prose, CodeBlockView, Prose
    ]  # fmt: skip


def test_the_caret_stands_in_the_last_part_while_writing(transcript: Transcript) -> None:
    message = start_answer(transcript, "Text\n\n```\ncode\n")
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    prose, code = view.parts()
    assert isinstance(prose, Prose)
    assert isinstance(code, CodeBlockView)
    assert (prose._caret, code.text._caret) == (False, True)
    complete(view)
    transcript.append_text(message.id, "```\n\nText\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nMore")
    transcript.flush()
    complete(view)
    carets = [part.text._caret if isinstance(part, CodeBlockView) else part._caret for part in view.parts()]
    assert carets == [False, False, False, False, True], "several parts may come at once"
    transcript.finish_message(replace(message, text="Text", state=MessageState.CANCELLED))
    assert [p._caret for p in view.parts() if isinstance(p, Prose)] == [False]


# ------------------------------------------------------------------ code


def test_code_copies_and_is_coloured_when_it_is_whole(qtbot: QtBot) -> None:
    view = CodeBlockView(CodeBlock("python", "def f(", closed=False))
    qtbot.addWidget(view)

    def colours() -> set[str]:
        line = view.text.document().begin()
        return {part.format.foreground().color().name() for part in line.layout().formats()} | {
            it.fragment().charFormat().foreground().color().name() for it in _fragments(line)
        }

    assert len(colours()) == 1
    view.update_block(CodeBlock("python", "def f(): pass"))
    tokens = theme.current().tokens
    assert {tokens.code_keyword.lower(), tokens.code_function.lower()} <= colours()
    button = next(b for b in view.findChildren(QAbstractButton) if b.accessibleName() == "Copy python code")
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == "def f(): pass"
    assert button.text() == "Copied"
    qtbot.waitUntil(lambda: button.text() == "Copy")


def _fragments(line: Any) -> list[Any]:
    out, it = [], line.begin()
    while not it.atEnd():
        out.append(type(it)(it))
        it += 1
    return out


def test_colours_count_as_qt_counts() -> None:
    (span,) = [s for s in coloured_spans("python", "'👩' + 1") if s[2] == "code_number"]
    assert span[:2] == (7, 1)
    assert not list(coloured_spans("no such language", "x"))


def test_long_code_folds_unless_it_was_seen_being_written(qtbot: QtBot) -> None:
    code = "\n".join(f"line {i}" for i in range(84))
    folded = CodeBlockView(CodeBlock("", code))
    qtbot.addWidget(folded)
    button = next(b for b in folded.findChildren(QAbstractButton) if b.text() == "Show 84 lines")
    low = folded.text.height()
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert folded.text.height() > 4 * low
    assert button.text() == "Show fewer lines"
    written = CodeBlockView(CodeBlock("", "line 0", closed=False))
    qtbot.addWidget(written)
    written.update_block(CodeBlock("", code))
    assert written.text.height() == folded.text.height()


def test_wide_code_scrolls_inside_and_passes_the_wheel_on_at_its_ends(qtbot: QtBot) -> None:
    view = CodeBlockView(CodeBlock("", "x" * 500))
    view.resize(400, 100)
    qtbot.addWidget(view)
    view.show()
    settle(qtbot)
    bar = view.text.horizontalScrollBar()
    assert bar.maximum() > 0
    assert bar.value() == 0
    assert not wheel(view.text.viewport(), 120), "an upright wheel belongs to the page"
    assert not wheel(view.text.viewport(), 0, 120), "at the left end"
    assert wheel(view.text.viewport(), 0, -120)
    assert bar.value() > 0
    bar.setValue(bar.maximum())
    assert not wheel(view.text.viewport(), 0, -120), "at the right end"


# ------------------------------------------------------------------ context, links, strange text, names


def test_the_context_mark_stands_where_the_context_begins(transcript: Transcript) -> None:
    def told() -> dict[str, list[str]]:
        return {message: numbers_in(words) for message, words in marks(transcript).items()}

    messages = chat(3)
    transcript.show_messages(messages)
    transcript.set_dropped(messages[5].id, 2)
    assert told() == {messages[2].id: ["2"]}
    transcript.set_dropped(messages[5].id, 2, at=2)
    assert told() == {messages[4].id: ["2"]}
    transcript.set_dropped(messages[5].id, 12)
    assert told() == {messages[4].id: ["12"]}
    transcript.set_dropped(messages[5].id, 0)
    assert marks(transcript) == {}


def test_the_context_mark_comes_back_with_the_chat(transcript: Transcript) -> None:
    messages = chat(3)
    messages[-1] = replace(messages[-1], stats={**STATS, "dropped_messages": 2})
    transcript.show_messages(messages)
    assert list(marks(transcript)) == [messages[2].id], "above the first message that is kept"


def marks(transcript: Transcript) -> dict[str, str]:
    return {
        v.message.id: v._mark.accessibleName()
        for v in transcript.views
        if v._mark is not None and not v._mark.isHidden()
    }


def test_only_web_links_are_followed(transcript: Transcript, qtbot: QtBot) -> None:
    transcript.show_messages([answer("[a](https://example.org/x)")])
    prose = transcript.views[-1].findChildren(Prose)[0]
    assert prose.focusPolicy() is Qt.FocusPolicy.StrongFocus, "a link must be within reach of the keyboard"
    followed: list[str] = []
    transcript.link_activated.connect(followed.append)
    for url in ("https://example.org/x", "file:///etc/passwd", "javascript:x"):
        prose.anchorClicked.emit(QUrl(url))
    assert followed == ["https://example.org/x"]


STRANGE = st.text(max_size=120) | st.lists(
    st.sampled_from(["<img src='file:///etc/passwd'>", "![x](http://a.b/c.png)", "```", "\n", "|a|\n|-|\n", "- ",
                     "שלום", "日本", "👩‍👩‍👧", "e\u0301" * 9, "w" * 300, "&amp;", "\x00", "\u202e",
                     "<a href='x'>", "`", "> "]),
    max_size=25,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    "text", ["a\n\n- b\n- c\n\nd", "a\n\n1. b\n2. c\n\nd", "a\n\n- b\n  - c\n\nd", "a\n\n- [ ] b\n\nd"]
)
def test_a_list_stands_as_far_from_the_text_below_it_as_from_that_above_it(transcript: Transcript, text: str) -> None:
    transcript.show_messages([answer(text)])
    document = transcript.views[-1].findChildren(Prose)[0].document()
    boxes = [document.documentLayout().blockBoundingRect(document.findBlockByNumber(line))
             for line in range(document.blockCount())]  # fmt: skip
    assert boxes[-1].top() - boxes[-2].bottom() == pytest.approx(boxes[1].top() - boxes[0].bottom(), abs=1)


def objects_in(document: QTextDocument) -> set[str]:
    """The names of what stands in a document where text could, as `\ufffc`; other objects have an empty name."""
    cursor, names = QTextCursor(document), set()
    for place in range(document.characterCount()):
        if document.characterAt(place) == "\ufffc":
            cursor.setPosition(place + 1)
            names.add(cursor.charFormat().toImageFormat().name())
    return names


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STRANGE, min_size=1, max_size=4))
@example(["\\[0\\]"])
@example(["👩 $0$ <img src='a'> \\[0\\]"])
@example(["\ufffc"])
def test_strange_text_never_fails_and_asks_for_nothing(qtbot: QtBot, pieces: list[str]) -> None:
    transcript = Transcript()
    transcript.resize(600, 400)
    try:
        transcript.add_message(question("".join(pieces)))
        message = start_answer(transcript)
        for piece in pieces:
            transcript.append_text(message.id, piece)
            transcript.flush()
        transcript.finish_message(replace(message, text="".join(pieces), state=MessageState.COMPLETE))
        transcript.grab()
        for view in transcript.findChildren(TextView):
            assert objects_in(view.document()) <= {FORMULA, STRUT}, "something else than a formula stands in the text"
            assert view.loadResource(int(QTextDocument.ResourceType.ImageResource), QUrl("file:///x")) is None
    finally:
        transcript.deleteLater()


def test_everything_that_takes_the_focus_has_a_name(transcript: Transcript) -> None:
    transcript.show_messages([
        question("Hi"), answer("Text [l](https://a.b)\n\n|a|\n|-|\n|1|\n\n```py\n" + "x\n" * 40 + "```\n", **STATS),
    ])  # fmt: skip
    for widget in transcript.findChildren(QWidget):
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and not widget.objectName().startswith("qt_"):
            name = widget.accessibleName() or (widget.text() if isinstance(widget, QAbstractButton) else "")
            assert name, widget
    assert isinstance(transcript.views[0], OwnMessage)
    assert [view.accessibleName() for view in transcript.views] == ["Your message", "Answer"]


def test_a_theme_change_renders_again(transcript: Transcript, qapp: QApplication) -> None:
    transcript.show_messages([question(), answer("Some `code` and\n\n```py\nx = 1\n```", **STATS)])
    prose = transcript.views[-1].findChildren(Prose)[0]
    code = transcript.views[-1].findChildren(CodeBlockView)[0]

    def ink(view: TextView) -> str:
        return _fragments(view.document().lastBlock())[-1].fragment().charFormat().foreground().color().name()

    light = (ink(prose), ink(code.text))
    theme.apply(qapp, "dark", 1.2)
    assert ink(prose) == theme.DARK.ink.lower() != light[0]
    assert ink(code.text) == theme.DARK.code_number.lower() != light[1]
    theme.apply(qapp, "light", 1.0)


@pytest.mark.parametrize("width", [664, 844, 1024, 1664])
def test_the_column_is_in_the_middle(width: int, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)
    left, wide = text_column(width)
    assert wide <= 720
    assert abs(width - (2 * left + wide)) <= 1
    assert left >= 40


def test_a_copy_made_in_mid_answer_holds_the_words_so_far(qtbot: QtBot) -> None:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    answer = Message(Role.ASSISTANT, "", state=MessageState.WRITING)
    transcript.show_messages([Message(Role.USER, "Count")])
    transcript.add_message(answer)
    transcript.append_text(answer.id, "One, ")
    transcript.flush()
    transcript.append_text(answer.id, "two")
    assert [message.text for message in transcript.messages] == ["Count", "One, two"]
    newest = transcript.last_answer()
    assert newest is not None
    assert newest.text == "One, two"


def test_tasks_are_drawn_as_boxes(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bool] = []
    monkeypatch.setattr(prose, "paint_task", lambda painter, place, is_done: drawn.append(is_done))
    transcript.show_messages([answer("- [ ] open\n- [x] done\n- none\n")])
    QApplication.processEvents()
    transcript.grab()
    assert drawn[:2] == [False, True]


def test_aligned_columns_keep_lines_and_baselines(transcript: Transcript) -> None:
    transcript.show_messages(
        [answer("| a | b | c | d |\n|---|:---|:---:|---:|\n| x | x | x | x |\n| y | y | y | y |\n")]
    )
    (table,) = transcript.findChildren(Table)
    grid = QTextCursor(table.document().begin().next()).currentTable()
    layout = table.document().documentLayout()
    for row in range(3):
        cells = [grid.cellAt(row, column) for column in range(4)]
        assert len({layout.blockBoundingRect(cell.firstCursorPosition().block()).y() for cell in cells}) == 1
        formats = [cell.format().toTableCellFormat() for cell in cells]
        assert {form.bottomBorder() for form in formats} == {1.0}
        assert len({form.bottomPadding() for form in formats}) == 1


def test_a_long_answer_is_shown_page_by_page(transcript: Transcript) -> None:
    transcript.show_messages([answer("Words of a paragraph.\n\n" * 5000)])
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    complete(view)
    before = len(view.parts())
    assert not view.shows_all
    assert view._more is not None
    view._more.button.click()
    QApplication.processEvents()
    complete(view)
    assert len(view.parts()) > before
    assert view.stats.copy.text_to_copy.count("paragraph") == 5000


def test_more_rows_of_a_table_stand_in_the_columns_of_the_first(transcript: Transcript) -> None:
    rows = "".join(f"| {i} | {'word ' * (i % 7)} |\n" for i in range(900))
    transcript.show_messages([answer(f"| n | words |\n|---|---|\n{rows}")])
    complete(transcript.views[-1])
    (more,) = transcript.findChildren(FurtherRows)
    more._row.button.click()
    while is_working():
        QApplication.processEvents()
    (table,) = (part for part in transcript.views[-1].findChildren(Table) if part not in more.tables)
    shown = [table, *more.tables]
    assert sum(len(part.toPlainText().split("word ")) > 0 for part in shown) == len(shown)
    assert "899" in more.tables[-1].toPlainText()
    assert all(
        abs(one - other) <= 2
        for part in more.tables
        for one, other in zip(part.column_widths(), table.column_widths(), strict=True)
    )
    assert not more._row.isVisible()


def test_a_long_message_and_a_long_thought_are_shown_page_by_page(transcript: Transcript) -> None:
    text = "word " * 20_000
    transcript.show_messages([question(text), answer(f"<think>{text}</think>Done")])
    own, view = transcript.views
    assert isinstance(own, OwnMessage)
    assert isinstance(view, AnswerView)
    assert own._left is not None
    shown = own._shown
    own._left.button.click()
    assert shown < own._shown < len(text)
    assert own._copy.text_to_copy == text
    assert view.thought is not None
    length = view.thought.words.length
    assert length < len(text) / 2
    view.thought.words.show_more()
    assert view.thought.words.length > length


def test_a_footnote_leads_to_its_text_and_back(transcript: Transcript) -> None:
    between = "A paragraph between them.\n\n" * 150
    transcript.show_messages([answer(f"Said[^a] here.\n\n{between}[^a]: The *note*.\n", **STATS)])
    view = transcript.views[-1]
    complete(view)
    QApplication.processEvents()
    bar = transcript.verticalScrollBar()
    opened: list[str] = []
    transcript.link_activated.connect(opened.append)
    view.link_activated.emit("https://a.b")
    bar.setValue(0)
    parts = view.findChildren(Prose)
    first, last = parts[0], parts[-1]
    first._follow(QUrl("#note-1"))
    assert bar.value() > transcript.viewport().height()
    last._follow(QUrl("#back-1"))
    assert bar.value() < 100
    assert opened == ["https://a.b"]


@pytest.mark.parametrize(("width", "direction"), [
    (1100, Qt.LayoutDirection.LeftToRight),
    (1100, Qt.LayoutDirection.RightToLeft),
    (664, Qt.LayoutDirection.LeftToRight),
])  # fmt: skip
def test_the_way_to_the_end_stands_beside_the_text(
    transcript: Transcript, qtbot: QtBot, width: int, direction: Qt.LayoutDirection
) -> None:
    transcript.setLayoutDirection(direction)
    transcript.resize(width, 600)
    transcript.show_messages(chat(20))
    settle(qtbot)
    wheel(transcript.viewport(), 120)
    jump = transcript._jump
    assert jump.isVisible()
    where = jump.geometry()
    assert where.left() >= 0, "all of it can be pressed"
    assert where.right() < transcript.viewport().width()
    for view in transcript.views:
        line = view.findChild(StatLine)
        if line is not None:
            figures = line._facts.geometry().translated(line.mapTo(transcript._column, QPoint(0, 0)))
            assert not figures.intersects(where)
    column = transcript.views[-1].geometry()
    assert where.intersected(column).width() <= 8, "no more than the edge around the last button of a line"


def test_an_edit_is_as_wide_as_a_bubble_may_be_and_offers_to_send(transcript: Transcript, qtbot: QtBot) -> None:
    transcript.show_messages(chat(1))
    settle(qtbot)
    own = transcript.views[0]
    assert isinstance(own, OwnMessage)
    own.start_editing()
    settle(qtbot)
    editor = own._editor
    assert editor is not None
    assert editor.width() == theme.px(560)
    assert editor.geometry().right() == own.rect().right(), "where the bubble stood"
    assert (editor.send.look, editor.cancel.look) == ("primary", "quiet")
    transcript.resize(500, 600)
    settle(qtbot)
    assert editor.width() == own.width()


@pytest.mark.parametrize("is_writing", [False, True])
def test_an_edit_is_in_view_in_a_low_window(transcript: Transcript, qtbot: QtBot, is_writing: bool) -> None:
    messages = [question("\n".join(f"line {n}" for n in range(30))), answer("One line.", **STATS)]
    if is_writing:
        messages[1] = answer("One line.", MessageState.WRITING)
    transcript.resize(720, 260)
    transcript.show_messages(messages)
    settle(qtbot)
    transcript.jump_to_end()
    own = transcript.views[0]
    assert isinstance(own, OwnMessage)
    own.start_editing()
    settle(qtbot)
    editor = own._editor
    assert editor is not None

    def is_seen() -> bool:
        top = editor.mapTo(transcript.viewport(), QPoint(0, 0)).y()
        return top >= 0 and top + editor.height() <= transcript.viewport().height()

    assert is_seen()
    if is_writing:
        transcript.append_text(messages[1].id, "more\n\n" * 30)
        qtbot.wait(2 * FLUSH_MS)
        settle(qtbot)
        assert is_seen(), "the answer that grows below does not take the view along"


def test_bold_words_have_a_weight_that_the_font_has(transcript: Transcript) -> None:
    transcript.show_messages([question(), answer("one **bold** word")])
    complete(transcript.views[-1])
    (text,) = transcript.views[-1].findChildren(Prose)
    cursor = text.document().find("bold")
    assert cursor.charFormat().fontWeight() == 600, "at 700 Qt smears the letters of the next lighter weight"
