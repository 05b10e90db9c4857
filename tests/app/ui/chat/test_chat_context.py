"""What goes into the next prompt, from the composer to the engine and back: the count, attachments, policy, drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk, MakeDesk
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat import context_count
from app.chat.store.conversation import Message, Role
from app.clients.engine_status import EngineStatus, Phase
from app.documents.attachment_texts import kept_of
from app.ui.chat.chat_context import ChatContext
from app.ui.chat.chat_page import ChatPage
from engine.service import protocol

pytestmark = pytest.mark.gui


class Room:
    """A page with the real controller and store behind it, and an engine that counts a token a word."""

    def __init__(self, qtbot: QtBot, desk: Desk) -> None:
        self.desk, self.qtbot, self.window = desk, qtbot, QWidget()
        QVBoxLayout(self.window).addWidget(page := ChatPage())
        self.page, self.composer = page, page.composer
        chat = desk.controller
        chat.conversation_opened.connect(page.show_conversation)
        chat.chat_status_changed.connect(page.set_status)
        page.submitted.connect(chat.send)
        self.context = ChatContext(self.window, page, chat, desk.engine, desk.memory)
        self.counts: list[protocol.CountResult | None] = []
        self.context.counter.counted.connect(self.counts.append)
        qtbot.addWidget(self.window)
        self.window.resize(900, 600)
        self.window.show()

    @property
    def tokens(self) -> int | None:
        count = self.counts[-1] if self.counts else None
        return None if count is None else count.tokens

    def counted(self, tokens: int) -> None:
        self.desk.wait(lambda: self.tokens == tokens)

    def send(self) -> Message:
        before = len(self.desk.order)
        self.qtbot.mouseClick(self.composer.send, Qt.MouseButton.LeftButton)
        self.desk.wait(lambda: len(self.desk.order) > before and self.desk.last.stats is not None)
        return self.desk.last


@pytest.fixture
def room(qtbot: QtBot, make_desk: MakeDesk) -> Iterator[Room]:
    desk = make_desk()
    room = Room(qtbot, desk)
    desk.wait_ready()
    yield room
    desk.close()


def test_the_draft_is_counted_with_what_came_before_it(room: Room) -> None:
    room.composer.set_text("one two three")
    room.counted(3)
    assert room.composer.meter.text() == "1% of 512"
    room.send()
    room.counted(6)  # question and answer, which repeats it
    room.composer.set_text("four")
    room.counted(7)


def test_a_paste_is_measured_cut_and_read_by_the_model_with_its_name(room: Room) -> None:
    assert room.composer.draft.add_paste("word " * 900)
    room.composer.set_text("history")
    room.desk.wait(lambda: room.composer.send.isEnabled())
    chip = next(iter(room.composer.attached.chips.values()))
    assert numbers_in(chip.facts.words) == ["100", "900"]
    room.desk.wait(lambda: (room.tokens or 0) > 100)
    count = room.tokens
    answer = room.send()
    question = room.desk.shown[-2]
    assert (question.role, question.text) == (Role.USER, "history")
    assert kept_of(question.attachments[0]) == (100, 900)
    assert room.desk.stored()[0].attachments == question.attachments
    assert answer.text.startswith("[Pasted")  # the fake model repeats what it reads
    assert len(answer.text.split()) == count, "what was counted is what was read"


def test_a_change_of_chat_counts_that_chat(room: Room) -> None:
    room.composer.set_text("one two three")
    room.send()
    first = room.desk.controller.open_conversation
    room.desk.controller.new_chat()
    room.desk.wait(lambda: room.counts[-1] is None or room.tokens == 0)
    room.composer.set_text("solo")
    room.counted(1)
    room.desk.controller.open(first or "")
    room.counted(6)


def test_the_policy_is_chosen_for_this_chat_and_asked_for(room: Room) -> None:
    room.composer.set_text("word " * 400)
    room.counted(400)
    assert room.counts[-1] is not None
    assert room.counts[-1].dropped_at == 0
    room.qtbot.mouseClick(room.composer.meter, Qt.MouseButton.LeftButton)
    popup = room.context.popup
    assert popup.is_open
    assert numbers_in(popup.figure.words) == ["400", "512"]
    at_the_beginning = popup.note.words
    assert "2" in numbers_in(at_the_beginning)
    room.qtbot.mouseClick(popup.policy.buttons["middle"], Qt.MouseButton.LeftButton)
    room.desk.wait(lambda: room.counts[-1] is not None and room.counts[-1].dropped_at == 2)
    assert "2" in numbers_in(popup.note.words)
    assert popup.note.words != at_the_beginning
    room.qtbot.keyClick(popup, Qt.Key.Key_Escape)
    room.composer.set_text("one")
    room.counted(1)
    room.send()
    conversation = room.desk.memory.conversation(room.desk.controller.open_conversation)
    assert conversation is not None
    assert conversation.choices == {"overflow": "middle"}
    assert room.desk.controller.next_request("x").overflow == "middle"
    room.desk.controller.new_chat()
    assert room.desk.controller.next_request("x").overflow == "roll"


def test_messages_that_will_be_summarised_are_not_called_left_out(room: Room) -> None:
    room.composer.set_text("word " * 400)
    room.counted(400)
    left_out = room.composer.meter.text()
    room.context.popup.picked.emit("summarise")
    room.desk.wait(lambda: room.composer.meter.text() != left_out)
    assert "2" in numbers_in(left_out)
    assert room.composer.meter.text() == "78% of 512"


def test_a_message_that_does_not_fit_says_so_before_it_is_sent(room: Room) -> None:
    room.composer.set_text("word " * 600)
    room.counted(600)
    assert room.composer.meter.text() == "117% of 512"
    room.context._open_popup()
    assert numbers_in(room.context.popup.figure.words) == ["600", "512"]
    assert not room.context.popup.note.isHidden()


def test_a_file_that_cannot_go_along_is_told_in_a_banner(room: Room, tmp_path: Path) -> None:
    room.composer.attach([tmp_path / "nowhere.txt"])
    room.desk.wait(lambda: room.desk.problem)
    assert room.composer.draft.items == []
    room.composer.set_text("something else")
    room.send()
    assert room.desk.problem is None, "it was about a message that is sent"


def test_a_file_that_was_refused_is_told_with_its_chat_only(room: Room, tmp_path: Path) -> None:
    room.composer.set_text("one")
    room.counted(1)
    room.send()
    room.desk.controller.new_chat()
    room.composer.attach([tmp_path / "nowhere.txt"])
    room.desk.wait(lambda: room.desk.problem)
    first = room.desk.conversations[0].id
    room.desk.controller.open(first)
    assert room.desk.problem is None
    room.desk.controller.new_chat()
    assert room.desk.problem is not None
    (tmp_path / "here.txt").write_text("Words")
    room.composer.attach([tmp_path / "here.txt"])
    room.desk.wait(lambda: room.desk.problem is None)


def test_files_are_dropped_anywhere_on_the_page(room: Room, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Heat pumps")
    data, words = QMimeData(), QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "note.txt"))])
    words.setText("only words")
    copy, left, no_key = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(room.page, QDragEnterEvent(QPoint(5, 5), copy, words, left, no_key))
    assert room.composer.property("state") != "drop"
    QApplication.sendEvent(room.page, QDragEnterEvent(QPoint(5, 5), copy, data, left, no_key))
    assert room.composer.property("state") == "drop"
    QApplication.sendEvent(room.page, QDragLeaveEvent())
    assert room.composer.property("state") != "drop"
    QApplication.sendEvent(room.page, QDragEnterEvent(QPoint(5, 5), copy, data, left, no_key))
    QApplication.sendEvent(room.page, QDropEvent(QPointF(5, 5), copy, data, left, no_key))
    room.desk.wait(lambda: room.composer.draft.texts == ["Heat pumps"])
    room.desk.wait(lambda: room.composer.send.isEnabled())


def test_drafts_are_kept_with_their_chats(room: Room) -> None:
    room.composer.set_text("hello there")
    room.send()
    first = room.desk.controller.open_conversation or ""
    room.composer.set_text("not sent yet")
    room.desk.controller.new_chat()
    assert room.composer.text() == ""
    conversation = room.desk.memory.conversation(first)
    assert conversation is not None
    assert conversation.draft == "not sent yet"
    room.desk.controller.open(first)
    assert room.composer.text() == "not sent yet"


def test_the_draft_of_a_chat_that_is_not_begun_is_there_at_the_next_start(qtbot: QtBot, make_desk: MakeDesk) -> None:
    desk = make_desk()
    room = Room(qtbot, desk)
    desk.wait_ready()
    room.composer.set_text("to be continued")
    desk.close()
    again = make_desk()
    later = Room(qtbot, again)
    again.wait_ready()
    assert later.composer.text() == "to be continued"


def test_a_policy_that_there_is_not_counts_as_none(room: Room) -> None:
    room.desk.controller.choices.set(overflow=["stop"])
    assert room.desk.controller.next_request("x").overflow == "roll"
    room.desk.controller.choices.set(overflow="stop")
    assert room.desk.controller.next_request("x").overflow == "stop"


def test_nothing_is_counted_while_an_answer_is_written(room: Room, tmp_path: Path) -> None:
    room.composer.set_text(f"words 30 until {tmp_path / 'go_on'}")
    room.qtbot.mouseClick(room.composer.send, Qt.MouseButton.LeftButton)
    room.desk.wait(lambda: room.composer.status.phase is Phase.WRITING)
    before = len(room.counts)
    room.composer.set_text("meanwhile")
    room.qtbot.wait(3 * context_count.AFTER_MS)
    assert len(room.counts) == before
    (tmp_path / "go_on").touch()
    room.desk.wait(lambda: room.composer.status.phase is Phase.READY)
    room.desk.wait(lambda: len(room.counts) > before)


def test_reading_tells_its_share_only_after_a_second(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.engine._answer_id, desk.engine._asked_at = "a", 100.0
    now = 100.4
    monkeypatch.setattr("app.clients.engine_client.time.monotonic", lambda: now)
    desk.engine._on_event(protocol.Progress("a", "reading", 100, 512))
    assert numbers_in(desk.engine.status.word) == ["512"]
    now = 101.0
    desk.engine._on_event(protocol.Progress("a", "reading", 300, 512))
    assert numbers_in(desk.engine.status.word) == ["512", "58%"]
    assert numbers_in(EngineStatus(Phase.READING, done=0, total=1, brief=True).word) == ["1"]
    desk.engine._answer_id = ""
