"""The transcript: which messages are built, when it follows the end, and where the column stands."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QMimeData, QObject, QPoint, Qt, QUrl
from PySide6.QtWidgets import QAbstractButton, QApplication
from pytestqt.qtbot import QtBot
from shown_messages import (
    STATS,
    answer,
    at_end,
    chat,
    question,
    settle,
    show,
    start_answer,
    wait_built,
    wheel,
)

from app.chat.store.conversation import Message, MessageState, Role
from app.ui.look import theme
from app.ui.transcript.message_builder import AT_ONCE, BATCH, NEWEST
from app.ui.transcript.message_column import text_column
from app.ui.transcript.own_message import OwnMessage
from app.ui.transcript.stat_line import StatLine
from app.ui.transcript.text.prose import Prose
from app.ui.transcript.text_stream import FLUSH_MS
from app.ui.transcript.transcript import Transcript

pytestmark = pytest.mark.gui

# --- windowing


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
    settle(transcript)
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
    settle(transcript)
    bar = transcript.verticalScrollBar()
    bar.setValue(transcript.views[NEWEST // 2].y())
    settle(transcript)
    middle = bar.value() + transcript.viewport().height() // 2
    view = next(view for view in transcript.views if view.y() >= middle)
    painted = Painted()
    view.installEventFilter(painted)
    bar.setValue(bar.value() - 10)
    settle(transcript)
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
    settle(transcript)
    try:
        theme.apply(qapp, "dark", 1.0)
        kept = next(m for m in transcript.messages if m.id == message.id)
        assert kept.text == "Words that only the window has so far"
    finally:
        theme.apply(qapp, "light", 1.0)


def test_another_chat_takes_the_place_of_the_first(transcript: Transcript, qtbot: QtBot) -> None:
    transcript.show_messages(chat(50))
    other = chat(2)
    show(transcript, other)
    assert [view.message for view in transcript.views] == other


# --- following the end


def grow(transcript: Transcript, message: Message, qtbot: QtBot) -> None:
    transcript.append_text(message.id, "One more paragraph.\n\n" * 5)
    transcript.flush()
    settle(transcript)


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
    settle(transcript)
    assert at_end(transcript)
    assert transcript.is_following


def test_sending_brings_the_end_into_view(transcript: Transcript, qtbot: QtBot) -> None:
    show(transcript, chat(20))
    qtbot.keyClick(transcript, Qt.Key.Key_PageUp)
    transcript.add_message(question("New"))
    settle(transcript)
    assert at_end(transcript)


# --- the column


@pytest.mark.parametrize("width", [664, 844, 1024, 1664])
def test_the_column_is_in_the_middle(width: int, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)
    left, wide = text_column(width)
    assert wide <= 720
    assert abs(width - (2 * left + wide)) <= 1
    assert left >= 40


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
    show(transcript, chat(20))
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
    show(transcript, chat(1))
    own = transcript.views[0]
    assert isinstance(own, OwnMessage)
    own.start_editing()
    settle(transcript)
    editor = own._editor
    assert editor is not None
    assert editor.width() == theme.px(560)
    assert editor.geometry().right() == own.rect().right(), "where the bubble stood"
    assert (editor.send.look, editor.cancel.look) == ("primary", "quiet")
    transcript.resize(500, 600)
    settle(transcript)
    assert editor.width() == own.width()


def test_an_open_edit_stays_until_it_is_sent_and_hands_files_on(transcript: Transcript, qtbot: QtBot) -> None:
    def edit_of(place: int) -> str | None:
        own = transcript.views[place]
        assert isinstance(own, OwnMessage)
        return own._editor.field.text() if own._editor is not None else None

    messages = chat(200)
    show(transcript, messages)
    own = transcript.views[-2]
    assert isinstance(own, OwnMessage)
    own.start_editing()
    assert own._editor is not None
    own._editor.field.set_text("half a sen")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/a.txt")])
    with qtbot.waitSignal(transcript.files_given):
        own._editor.field.insertFromMimeData(data)
    show(transcript, chat(1))
    assert edit_of(0) is None, "it belongs to another message"
    show(transcript, messages)
    assert edit_of(-2) == "half a sen"
    transcript.show_message(messages[0].id)
    transcript.jump_to_end()
    settle(transcript)
    assert edit_of(-2) == "half a sen"

    sent = Message(Role.USER, "half a sen", parent=messages[-2].parent)
    transcript.show_branch([*messages[:-2], sent])
    transcript.show_branch(messages, messages[-2].id)
    settle(transcript)
    assert edit_of(-2) is None, "it was sent"


@pytest.mark.parametrize("is_writing", [False, True])
def test_an_edit_is_in_view_in_a_low_window(transcript: Transcript, qtbot: QtBot, is_writing: bool) -> None:
    messages = [question("\n".join(f"line {n}" for n in range(30))), answer("One line.", **STATS)]
    if is_writing:
        messages[1] = answer("One line.", MessageState.WRITING)
    transcript.resize(720, 260)
    show(transcript, messages)
    transcript.jump_to_end()
    own = transcript.views[0]
    assert isinstance(own, OwnMessage)
    own.start_editing()
    settle(transcript)
    editor = own._editor
    assert editor is not None

    def is_seen() -> bool:
        top = editor.mapTo(transcript.viewport(), QPoint(0, 0)).y()
        return top >= 0 and top + editor.height() <= transcript.viewport().height()

    assert is_seen()
    if is_writing:
        transcript.append_text(messages[1].id, "more\n\n" * 30)
        qtbot.wait(2 * FLUSH_MS)
        settle(transcript)
        assert is_seen(), "the answer that grows below does not take the view along"
