"""Answers in the transcript: what a flush paints again, the line below an answer, and its text while it grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot
from shown_messages import (
    STATS,
    WRITING,
    answer,
    chat,
    complete,
    question,
    settle,
    show,
    start_answer,
)
from support.shown_text import numbers_in

from app.chat.answers.answer_labels import facts_of
from app.chat.store.conversation import MessageState, Role
from app.clients.engine_status import EngineStatus, Phase
from app.text import markdown_parser
from app.text.block_parser import STEP
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.stat_line import StatLine
from app.ui.transcript.text.code_block import CodeBlockView
from app.ui.transcript.text.prose import Prose, Table
from app.ui.transcript.text.text_view import TextView
from app.ui.transcript.text_stream import FLUSH_MS, SLOWEST_FLUSH_MS
from app.ui.transcript.transcript import Transcript

pytestmark = pytest.mark.gui

# --- what a flush costs


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    counts = {"setHtml": 0, "html": 0, "parse": 0, "parsed": 0}
    set_html: Callable[..., None] = TextView.setHtml
    parse = markdown_parser._MD.parse

    def counting_html(self: TextView, html: str) -> None:
        counts["setHtml"] += 1
        counts["html"] += len(html)
        set_html(self, html)

    def counting_parse(text: str, env: Any) -> Any:
        counts["parse"] += 1
        counts["parsed"] += len(text)
        return parse(text, env)

    monkeypatch.setattr(TextView, "setHtml", counting_html)
    monkeypatch.setattr(markdown_parser._MD, "parse", counting_parse)
    return counts


def test_a_flush_costs_the_same_in_a_long_chat_and_a_long_answer(
    transcript: Transcript, qtbot: QtBot, counted: dict[str, int]
) -> None:
    def cost(column: int, paragraphs: int) -> dict[str, int]:
        show(transcript, chat(column))
        message = start_answer(transcript, "A paragraph of the answer.\n\n" * paragraphs + "And the tail ")
        settle(transcript)
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
    show(transcript, chat(1))
    transcript.append_text(message.id, "later")
    transcript.flush()
    assert [view.message.role for view in transcript.views] == [Role.USER, Role.ASSISTANT]


# --- an answer and its line


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
    settle(transcript)
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
    show(transcript, [question(), answer("Half", state, **stats)])
    assert [word for word in words if word not in stat_words(transcript)] == []


def test_the_share_bar_is_for_a_gpu_that_took_part(transcript: Transcript) -> None:
    show(transcript, [answer("a", **STATS)])
    line = transcript.views[-1].findChildren(StatLine)[0]
    assert line._bar is None
    show(transcript, [answer("a", **STATS, gpu_neuron_load=0.83)])
    line = transcript.views[-1].findChildren(StatLine)[0]
    assert not line._bar.isHidden()
    assert numbers_in(line._bar.accessibleName()) == ["83"]


def test_a_click_on_the_figures_asks_for_all_of_them(transcript: Transcript) -> None:
    show(transcript, [answer("a", **STATS)])
    line, asked = transcript.views[-1].findChildren(StatLine)[0], []
    line.acted.connect(asked.append)
    QTest.mouseClick(line, Qt.MouseButton.LeftButton)
    QTest.mouseClick(line, Qt.MouseButton.RightButton)
    assert asked == ["figures"]


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
    settle(transcript)
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
    settle(transcript)
    assert [p._caret for p in view.parts() if isinstance(p, Prose)] == [False]
