"""A chat of 10,000 messages: opened, scrolled through, and never built as a whole; other branches of it."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.message_action import MessageAction
from app.chat.store.conversation import Message, MessageState, Role
from app.ui.look import theme
from app.ui.transcript import message_builder
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.message_builder import BATCH, MOST_BUILT, NEWEST
from app.ui.transcript.own_message import OwnMessage
from app.ui.transcript.transcript import Transcript

pytestmark = pytest.mark.gui
STATS = {"tokens": 142, "total_s": 3.6, "decode_tok_s": 39.1}
LONG = [
    Message(Role.USER, f"Question {i}")
    if i % 2 == 0
    else Message(Role.ASSISTANT, f"Answer {i}\n\n- a\n- b", stats=STATS)
    for i in range(10_000)
]


@pytest.fixture
def transcript(qtbot: QtBot, qapp: QApplication) -> Transcript:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)
    out = Transcript()
    out.resize(900, 600)
    qtbot.addWidget(out)
    out.show()
    return out


def settle(transcript: Transcript) -> None:
    for _ in range(60):
        QApplication.processEvents()
        timers = (transcript.builder.timer, transcript._leap_timer)
        if not any(timer.isActive() for timer in timers):
            break


def shown(transcript: Transcript) -> list[str]:
    """The messages in view."""
    top, height = transcript.verticalScrollBar().value(), transcript.viewport().height()
    return [v.message.id for v in transcript.views if v.y() < top + height and v.y() + v.height() > top]


def whole(transcript: Transcript) -> None:
    """What is built is one run of the chat."""
    ids = [view.message.id for view in transcript.views]
    messages = transcript._column.messages
    first = next(i for i, m in enumerate(messages) if m.id == ids[0])
    assert ids == [m.id for m in messages[first : first + len(ids)]]
    assert len(ids) <= MOST_BUILT + 2 * BATCH


def test_it_opens_at_once(transcript: Transcript) -> None:
    started = time.thread_time()  # of the window's thread alone: other work on the machine is not counted
    transcript.show_messages(LONG)
    QApplication.processEvents()
    assert time.thread_time() - started < 0.6
    settle(transcript)
    assert LONG[-1].id in shown(transcript)
    assert len(transcript.views) == NEWEST


def test_it_is_painted_once_the_view_is_filled(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_builder, "AT_ONCE_S", 0.0)  # one message in each event
    transcript.show_messages(LONG)
    assert len(transcript.views) == 1
    while not transcript.viewport().updatesEnabled():
        QApplication.processEvents()
    assert transcript.views[0].y() <= transcript.verticalScrollBar().value()
    assert len(transcript.views) < NEWEST
    settle(transcript)
    assert len(transcript.views) == NEWEST


def test_no_message_is_painted_squeezed_while_an_answer_grows(transcript: Transcript) -> None:
    class Painted(QObject):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.squeezed = 0, list[str]()

        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() == QEvent.Type.Paint:
                self.n += 1
                self.squeezed += [f"{v.height()} of {v.sizeHint().height()}: {v.message.text}" for v in transcript.views
                                  if v.isVisible() and v.height() < v.sizeHint().height()]  # fmt: skip
            return False

    transcript.show_messages(LONG[:6])
    settle(transcript)
    answer = Message(Role.ASSISTANT, "First", state=MessageState.WRITING)
    transcript.add_message(answer)
    transcript.flush()
    settle(transcript)
    painted = Painted()
    transcript._column.installEventFilter(painted)
    for n in range(20):
        transcript.append_text(answer.id, f"{n}. A line of a list\n\n")
        transcript.flush()
        settle(transcript)
    assert painted.n > 5
    assert painted.squeezed == []


def test_a_new_version_of_the_last_answer_builds_nothing_else(transcript: Transcript) -> None:
    transcript.show_messages(LONG)
    settle(transcript)
    before = transcript.views
    transcript.show_branch([*LONG[:-1], Message(Role.ASSISTANT, "Another answer")])
    assert transcript.views[:-1] == before[:-1]
    assert transcript.is_following
    whole(transcript)


def test_it_scrolls_up_and_down_without_a_jump_or_a_gap(transcript: Transcript) -> None:
    transcript.show_messages(LONG)
    settle(transcript)
    bar = transcript.verticalScrollBar()
    for step in [-400] * 40 + [400] * 20:
        seen = shown(transcript)
        view = next(v for v in transcript.views if v.message.id == seen[0])
        before = view.mapTo(transcript, QPoint(0, 0)).y()
        bar.setValue(bar.value() + step)
        assert view.mapTo(transcript, QPoint(0, 0)).y() == before - step
        settle(transcript)
        assert shown(transcript), "there is something to see everywhere"
        whole(transcript)
    assert not transcript.is_following


def test_a_drag_far_away_leaps_and_the_ends_are_reached(transcript: Transcript, qtbot: QtBot) -> None:
    transcript.show_messages(LONG)
    settle(transcript)
    bar = transcript.verticalScrollBar()
    for share in (0.5, 0.1, 0.9, 0.3):
        bar.setValue(int(bar.maximum() * share))
        settle(transcript)
        ids = shown(transcript)
        assert ids
        index = next(i for i, m in enumerate(LONG) if m.id == ids[0])
        assert abs(index / len(LONG) - share) < 0.12
        whole(transcript)
    qtbot.keyClick(transcript, Qt.Key.Key_Home)
    settle(transcript)
    assert LONG[0].id in shown(transcript)
    qtbot.keyClick(transcript, Qt.Key.Key_End)
    settle(transcript)
    assert LONG[-1].id in shown(transcript)
    assert transcript.is_following


def test_a_message_is_brought_into_view(transcript: Transcript) -> None:
    transcript.show_messages(LONG)
    for index in (4000, 4001, 9998, 0):
        transcript.show_message(LONG[index].id)
        assert LONG[index].id in shown(transcript)
        settle(transcript)
        assert LONG[index].id in shown(transcript)


def test_an_answer_that_is_written_far_below_loses_nothing(transcript: Transcript) -> None:
    transcript.show_messages(LONG)
    answer = Message(Role.ASSISTANT, "", state=MessageState.WRITING)
    transcript.add_message(answer)
    transcript.append_text(answer.id, "First, ")
    transcript.show_message(LONG[100].id)
    settle(transcript)
    transcript.append_text(answer.id, "second, ")
    transcript.flush()
    assert transcript._column.view(answer.id) is None
    transcript.jump_to_end()
    settle(transcript)
    transcript.append_text(answer.id, "third")
    transcript.flush()
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    assert view.text == "First, second, third"
    assert transcript.messages[-1].text == "First, second, third"


def test_another_version_stands_where_the_first_stood(transcript: Transcript) -> None:
    chat = LONG[:40]
    transcript.show_messages(chat)
    settle(transcript)
    transcript.show_message(chat[20].id)
    settle(transcript)
    other = [*chat[:21], Message(Role.ASSISTANT, "Another answer " * 80), *LONG[100:120]]
    old = next(v for v in transcript.views if v.message.id == chat[21].id)
    place = old.mapTo(transcript, QPoint(0, 0)).y()
    kept = next(v for v in transcript.views if v.message.id == chat[20].id)
    transcript.set_versions({other[21].id: (2, 2)})
    transcript.show_branch(other, other[21].id)
    new = next(v for v in transcript.views if v.message.id == other[21].id)
    assert new.mapTo(transcript, QPoint(0, 0)).y() == place
    assert kept in transcript.views, "what both branches have in common is not built anew"
    settle(transcript)
    assert new.mapTo(transcript, QPoint(0, 0)).y() == place
    assert [m.id for m in transcript.messages] == [m.id for m in other]


def test_acts_of_messages_arrive_as_data(transcript: Transcript, qtbot: QtBot) -> None:
    question = Message(Role.USER, "One")
    answer = Message(Role.ASSISTANT, "Cut", state=MessageState.LENGTH, stats=STATS)
    acts: list[MessageAction] = []
    transcript.acted.connect(acts.append)
    transcript.set_versions({question.id: (1, 2), answer.id: (2, 3)})
    transcript.show_messages([question, answer])
    settle(transcript)
    own, view = transcript.views
    assert isinstance(own, OwnMessage)
    assert isinstance(view, AnswerView)
    assert own._versions is not None
    assert own._versions.accessibleName() == "Version 1 of 2"
    assert not own._versions.back.isEnabled()
    own._versions.on.click()
    assert view.stats.go_on.isVisible(), "the last answer was cut and can be written on"
    view.stats.go_on.click()
    view.stats.again.click()
    own.start_editing()
    assert own.is_editing
    assert own._editor is not None
    own._editor.field.set_text("Two")
    qtbot.keyClick(own._editor.field, Qt.Key.Key_Return)
    assert own.is_editing, "until the new branch replaces it"
    qtbot.keyClick(own._editor.field, Qt.Key.Key_Escape)
    assert not own.is_editing
    assert acts == [
        MessageAction("switch", question.id, step=1), MessageAction("continue", answer.id),
        MessageAction("regenerate", answer.id), MessageAction("edit", question.id, "Two"),
    ]  # fmt: skip
    transcript.add_message(Message(Role.USER, "Next"))
    assert not view.stats.go_on.isVisible()


def test_a_thought_is_open_while_it_is_written_and_folds_away(transcript: Transcript) -> None:
    message = Message(Role.ASSISTANT, "", state=MessageState.WRITING)
    transcript.add_message(message)
    transcript.append_text(message.id, "<think>\nLet me ")
    transcript.flush()
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    assert view.thought is not None
    assert view.thought.is_open
    assert view.thought.head.text() == "Thinking"
    transcript.append_text(message.id, "see.\n</think>\n\nHello")
    transcript.flush()
    assert not view.thought.is_open
    text = "<think>\nLet me see.\n</think>\n\nHello"
    stats = {**STATS, "thought_s": 6.2, "thought_tokens": 184}
    transcript.finish_message(Message(Role.ASSISTANT, text, id=message.id, stats=stats))
    assert view.thought.head.text() == "Thought for 6.2\u202fs"
    assert view.thought.words.toPlainText().strip() == "Let me see."
    assert view.stats.copy.text_to_copy == "Hello"


def test_a_thought_slides_open_and_shut_unless_nothing_may_move(transcript: Transcript, qtbot: QtBot) -> None:
    transcript.show_messages([Message(Role.ASSISTANT, "<think>\n" + "Let me see.\n\n" * 9 + "</think>\n\nHello")])
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    thought = view.thought
    assert thought is not None
    qtbot.waitUntil(thought.isVisible)
    closed = view.sizeHint().height()
    thought.head.click()
    slide = thought._slide
    assert slide is not None
    slide.pause()  # so that it is where it is, however slow the machine
    slide.setCurrentTime(80)
    whole = thought.inside.sizeHint().height()
    assert 0 < thought.room.maximumHeight() < whole
    qtbot.waitUntil(lambda: closed < view.sizeHint().height() < closed + whole, timeout=30_000)
    slide.setCurrentTime(slide.duration())
    slide.resume()
    qtbot.waitUntil(lambda: view.sizeHint().height() == closed + whole, timeout=30_000)
    thought.head.click()
    qtbot.waitUntil(lambda: thought.room.isHidden() and view.sizeHint().height() == closed, timeout=30_000)
    theme.set_still(True)
    try:
        thought.head.click()
        assert not thought.room.isHidden()
        assert slide.state() == slide.State.Stopped, "it is there at once"
    finally:
        theme.set_still(False)
