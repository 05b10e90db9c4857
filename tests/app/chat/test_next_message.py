"""A message that is written during an answer waits for its end: in sight, to be taken back, and never lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, MakeDesk
from person import Arrive, Person
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from support.shown_text import numbers_in
from support.systems import kill

from app.chat.store.conversation import Attachment, MessageState, Unsent
from app.documents.attachment_texts import cut_to, kept_of
from app.ui.widgets.floating import Toast
from engine.service.protocol import CountResult

pytestmark = pytest.mark.gui

NOTES = Attachment("notes.txt", "some words", "text")


def answered(desk: Desk, tmp_path: Path) -> str:
    """Has an answer written that ends when `go_on` is there; the chat."""
    desk.wait_ready()
    desk.controller.send(f"words 30 until {tmp_path / 'go_on'}")
    desk.wait(lambda: "word3 " in desk.last.text)
    chat = desk.controller.open_conversation
    assert chat is not None
    return chat


def said(desk: Desk, chat: str) -> list[str]:
    """What the person said in a chat."""
    return [m.text for m in desk.memory.branch_of(chat) or [] if m.role == "user"]


def test_it_is_sent_when_the_answer_ends(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    chat = answered(desk, tmp_path)
    shown: list[Unsent | None] = []
    desk.controller.next.shown.connect(shown.append)
    desk.controller.send("and then")
    desk.controller.send("and more")
    assert shown[-1] == Unsent("and then\n\nand more"), "a second one is a further paragraph of the first"
    assert len(desk.shown) == 2
    (tmp_path / "go_on").touch()
    desk.wait(lambda: len(desk.shown) == 4 and desk.last.state is MessageState.COMPLETE)
    assert said(desk, chat)[-1] == "and then\n\nand more"
    assert shown[-1] is None
    assert desk.drafts == []
    assert desk.chat_statuses[-1].answering is False


def test_it_is_sent_into_a_chat_that_was_left(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    running: list[str | None] = []
    desk.controller.running_changed.connect(running.append)
    chat = answered(desk, tmp_path)
    desk.controller.send("and then")
    desk.controller.new_chat()
    assert desk.drafts == []
    (tmp_path / "go_on").touch()
    desk.wait(lambda: len(desk.memory.messages(chat) or []) == 4 and running == [chat, None, chat, None])
    assert said(desk, chat)[-1] == "and then"
    assert desk.order == [], "the new chat shows nothing of it"


def test_its_attachments_go_along_into_a_chat_that_was_left(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    running: list[str | None] = []
    desk.controller.running_changed.connect(running.append)
    chat = answered(desk, tmp_path)
    desk.controller.next.add(chat, "and then", (NOTES,))
    desk.controller.new_chat()
    (tmp_path / "go_on").touch()
    desk.wait(lambda: len(desk.memory.messages(chat) or []) == 4 and running == [chat, None, chat, None])
    question = [m for m in desk.memory.branch_of(chat) or [] if m.role == "user"][-1]
    assert (question.text, question.attachments) == ("and then", (NOTES,))
    assert desk.drafts == []
    assert desk.controller.next.of(chat) is None


def test_of_attachments_only_what_the_context_has_room_for_is_sent() -> None:
    long = Attachment("long.txt", "word " * 100, "text")
    counted = CountResult(102, 200, 150, text_tokens=[2, 100], text_kept_tokens=[2, 10], text_kept_chars=[10, 50])
    whole, beginning = cut_to((NOTES, long), counted)
    assert whole == NOTES
    assert kept_of(beginning) == (10, 100)
    assert cut_to((NOTES, long), None) == (NOTES, long)


@pytest.mark.parametrize("how", ["stopped", "failed", "killed"])
def test_it_returns_to_the_composer_when_the_answer_does_not_end_by_itself(make_desk: MakeDesk, how: str) -> None:
    desk = make_desk(location="process")
    desk.wait_ready()
    desk.controller.send("fail after 3" if how == "failed" else "words 100000 pace 0.01")
    desk.controller.next.add(desk.controller.open_conversation or "", "and then", (NOTES,))
    desk.wait(lambda: "word2 " in desk.last.text)
    if how == "stopped":
        desk.controller.stop()
    elif how == "killed":
        kill(desk.pid)
    desk.wait(lambda: desk.drafts)
    assert desk.drafts == ["and then"]
    assert len(desk.shown) == 2
    desk.qtbot.wait(50)
    assert len(desk.shown) == 2, "nothing is sent after a failure"


def test_what_failed_behind_another_chat_returns_when_its_own_is_shown(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.01")
    desk.wait(lambda: "word2 " in desk.last.text)
    chat = desk.controller.open_conversation
    assert chat is not None
    desk.controller.send("and then")
    desk.controller.new_chat()
    desk.controller.stop()
    desk.wait(lambda: desk.engine.is_ready)
    assert desk.drafts == []
    desk.controller.open(chat)
    assert desk.drafts == ["and then"]
    assert desk.controller.next.of(chat) is None


def test_it_does_not_return_into_a_chat_that_is_being_read(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send("hello")
    other = desk.controller.open_conversation
    desk.wait(lambda: desk.engine.is_ready)
    desk.controller.new_chat()
    desk.controller.send("words 100000 pace 0.01")
    desk.wait(lambda: "word2 " in desk.last.text)
    desk.controller.send("and then")
    assert other is not None
    del desk.memory._chats[other]  # as after a restart
    may_read = threading.Event()
    desk.reads.run("wait", may_read.wait)
    desk.controller.open(other)
    desk.controller.stop()
    desk.wait(lambda: desk.engine.is_ready)
    assert desk.drafts == []
    may_read.set()
    desk.wait(lambda: desk.controller.open_conversation == other)
    assert desk.drafts == []


def test_it_outlives_the_program(make_desk: MakeDesk) -> None:
    first = make_desk()
    first.wait_ready()
    first.controller.send("words 100000 pace 0.01")
    chat = first.controller.open_conversation
    assert chat is not None
    first.controller.next.add(chat, "and then", (NOTES,))
    first.close()
    assert first.drafts == []
    desk = make_desk()
    desk.wait_ready()
    returned: list[Unsent] = []
    desk.controller.next.returned.connect(lambda unsent, goes: returned.append(unsent))
    desk.controller.open(chat)
    desk.wait(lambda: returned)
    assert returned == [Unsent("and then", (NOTES,))]
    assert desk.shown[-1].state is MessageState.INTERRUPTED


def test_a_chat_deleted_meanwhile_keeps_it_in_the_bin(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.01")
    chat = desk.controller.open_conversation
    assert chat is not None
    desk.controller.send("and then")
    desk.controller.delete(chat)
    desk.wait(lambda: desk.engine.is_ready)
    desk.toasts[-1][1]()
    assert desk.drafts == ["and then"]


# --- in the window


@pytest.fixture
def person(arrive: Arrive, tmp_path: Path) -> Person:
    """An answer is being written, until `go_on` is there."""
    out = arrive("in-thread")
    out.wait_ready()
    out.send(f"words 30 until {tmp_path / 'go_on'}")
    out.wait(out.writing("word3 "))
    return out


def test_return_during_an_answer_shows_what_waits(person: Person, tmp_path: Path) -> None:
    row = person.page.composer.next
    assert row.isHidden()
    person.send("and then")
    assert (row.isVisible(), row.words.words, person.page.composer.text()) == (True, "and then", "")
    assert person.page.composer.send.accessibleName() == "Stop"
    person.send("and more")
    assert row.words.words == "and then and more"
    (tmp_path / "go_on").touch()
    person.wait(lambda: len(person.finished) == 2)
    assert person.shown[-2].text == "and then\n\nand more"
    assert row.isHidden()
    assert person.page.composer.field.hasFocus()


def test_it_is_taken_back_to_be_edited(person: Person, tmp_path: Path) -> None:
    person.send("and then")
    person.type("typed since")
    QTest.mouseClick(person.page.composer.next.edit, Qt.MouseButton.LeftButton)
    assert person.page.composer.text() == "and then\ntyped since"
    assert person.page.composer.next.isHidden()
    person.wait(person.page.composer.field.hasFocus)
    (tmp_path / "go_on").touch()
    person.wait(lambda: len(person.finished) == 1)
    assert len(person.shown) == 2, "it is a draft again"


def test_up_in_an_empty_field_takes_it_back(person: Person) -> None:
    person.send("and then")
    person.press(Qt.Key.Key_Up)
    assert person.page.composer.text() == "and then"
    assert person.page.composer.next.isHidden()


def test_it_is_removed_and_brought_back(person: Person) -> None:
    person.send("and then")
    QTest.mouseClick(person.page.composer.next.remove, Qt.MouseButton.LeftButton)
    assert person.page.composer.next.isHidden()
    (toast,) = person.page.findChildren(Toast)
    toast._take_back()
    assert person.page.composer.next.isVisible()


def test_stop_returns_it_behind_what_was_written_first(person: Person) -> None:
    person.send("and then")
    person.type("more")
    person.press(Qt.Key.Key_Escape)
    person.wait(lambda: person.finished)
    assert person.page.composer.text() == "and then\nmore"
    assert person.page.composer.next.isHidden()
    chat = person.hearth.controller.open_conversation
    assert person.hearth.memory.draft(chat or "") == "and then\nmore"


def test_each_chat_has_its_own(person: Person) -> None:
    chat = person.hearth.controller.open_conversation
    assert chat is not None
    person.send("and then")
    person.window.sidebar.new_chat.emit()
    assert person.page.composer.next.isHidden()
    person.window.sidebar.conversation_selected.emit(chat)
    assert person.page.composer.next.isVisible()


def test_an_edit_that_is_sent_during_an_answer_stays_in_its_editor(person: Person, tmp_path: Path) -> None:
    person.page.transcript.flush()
    view: Any = person.page.transcript.views[0]
    view.start_editing()
    field = view._editor.field
    QTest.keyClicks(field, " changed")
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert (view.is_editing, field.text().endswith(" changed")) == (True, True)
    (tmp_path / "go_on").touch()
    person.wait(lambda: len(person.finished) == 1)
    QTest.keyClick(field, Qt.Key.Key_Return)
    person.wait(lambda: len(person.finished) == 2)
    assert person.shown[0].text.endswith(" changed")


def test_attachments_wait_too_and_are_counted_before_they_are_sent(person: Person, tmp_path: Path) -> None:
    data = QMimeData()
    data.setText("word " * 900)
    person.page.composer.field.insertFromMimeData(data)
    person.send("and this")
    row = person.page.composer.next
    assert row.words.words.startswith("and this ")
    assert numbers_in(row.words.words) == ["1"]
    assert person.page.composer.draft.items == []
    (tmp_path / "go_on").touch()
    person.wait(lambda: len(person.finished) == 2)
    question = person.shown[-2]
    assert question.text == "and this"
    assert kept_of(question.attachments[0]) == (100, 900), "there was room for its beginning"
    assert row.isHidden()


def test_attachments_that_return_wait_for_the_person_who_writes(person: Person, tmp_path: Path) -> None:
    data = QMimeData()
    data.setText("word " * 900)
    person.page.composer.field.insertFromMimeData(data)
    person.send("and this")
    person.type("half a thought")
    (tmp_path / "go_on").touch()
    person.wait(lambda: person.page.composer.draft.items and person.page.composer.draft.items[0].measure)
    assert person.page.composer.text() == "and this\nhalf a thought"
    QApplication.processEvents()
    assert len(person.shown) == 2
