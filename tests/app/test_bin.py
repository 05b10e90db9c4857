"""Deleted chats wait in the bin: seen there, restored, deleted for good, and gone after 30 days."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from desk import MakeDesk
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.chat.chat_folders import ChatFolders
from app.chat.chat_memory import BIN_DAYS
from app.chat.store.conversation import BinnedChat, Conversation, Message, Role
from app.chat.store.store import Store
from app.startup.bootstrap import folders_in
from app.ui.sidebar.bin_dialog import MOST_ROWS, BinDialog, days_left
from app.ui.widgets.floating import ConfirmDialog, Toast

pytestmark = pytest.mark.gui

DAY = 24 * 3600


def binned(desk_or_person: object) -> list[str]:
    """The titles in the bin, read as the dialog reads them."""
    found: list[list[BinnedChat]] = []
    memory = getattr(desk_or_person, "memory", None) or desk_or_person.hearth.memory  # type: ignore[attr-defined]
    memory.read_bin(found.append)
    desk_or_person.wait(lambda: found)  # type: ignore[attr-defined]
    return [chat.conversation.title for chat in found[0]]


def fill(path: Path, **deleted_before_days: float) -> None:
    """Chats of these names with a message each, deleted so many days ago; at 0 days they are not. The last start was
    two days ago."""
    store, _ = Store.rescue(path)
    store.empty_bin(time.time() - 2 * DAY, BIN_DAYS)
    for title, days in deleted_before_days.items():
        chat = Conversation(title=title)
        store.save_conversation(chat)
        store.append(chat.id, Message(Role.USER, f"about {title}"))
        if days:
            store.delete(chat.id)
            store._db.execute(
                "UPDATE conversation SET deleted_at = ? WHERE id = ?", (time.time() - days * DAY, chat.id)
            )
    store.close()


def dialog_of(person: Person) -> BinDialog:
    person.window.commands.run("bin")
    person.wait(lambda: isinstance(QApplication.activeModalWidget(), BinDialog))
    dialog = QApplication.activeModalWidget()
    assert isinstance(dialog, BinDialog)
    return dialog


def test_the_start_empties_the_bin_of_what_is_older_than_30_days(make_desk: MakeDesk, tmp_path: Path) -> None:
    fill(tmp_path / "chats.db", kept=0, recent=BIN_DAYS - 1, old=BIN_DAYS + 3)
    desk = make_desk()
    desk.wait_ready()
    desk.wait(lambda: not desk.saves.waiting())
    assert [c.title for c in desk.conversations] == ["kept"]
    assert binned(desk) == ["recent"]
    store = Store.open(desk.path)
    assert [c.conversation.title for c in store.binned()] == ["recent"]
    store.close()


@pytest.mark.parametrize("years", [1, -30])
def test_a_clock_that_is_wrong_for_a_day_empties_no_bin(tmp_path: Path, years: int) -> None:
    now, wrong = time.time(), time.time() + years * 365 * DAY
    store = Store.open(tmp_path / "chats.db")
    chat, late = Conversation(title="gone"), Conversation(title="gone while the clock is wrong")
    store.save_conversation(chat)
    store.save_conversation(late)
    store.empty_bin(now - DAY, BIN_DAYS)
    store.delete(chat.id, at=now)
    for at in (wrong, wrong + 60):
        store.empty_bin(at, BIN_DAYS)
    store.delete(late.id, at=wrong)
    store.empty_bin(now + DAY, BIN_DAYS)
    assert {one.conversation.id for one in store.binned()} == {chat.id, late.id}
    for days in (BIN_DAYS + 2, BIN_DAYS + 4):
        store.empty_bin(now + days * DAY, BIN_DAYS)
    assert chat.id not in [one.conversation.id for one in store.binned()], "two days agree"
    store.close()


def test_a_deleted_chat_survives_the_next_starts_and_can_be_restored(make_desk: MakeDesk) -> None:
    first = make_desk()
    first.wait_ready()
    first.say("keep me")
    chat = first.controller.open_conversation
    assert chat is not None
    first.controller.delete(chat)
    first.close()
    desk = make_desk()
    desk.wait_ready()
    assert desk.conversations == []
    assert len(binned(desk)) == 1
    folders = ChatFolders(desk.memory, desk.policy)
    folders.restore(chat)
    assert [c.id for c in desk.conversations] == [chat]
    assert binned(desk) == []
    desk.controller.open(chat)
    desk.wait(lambda: desk.order)
    assert desk.shown[0].text == "keep me"


def test_a_chat_in_the_bin_is_neither_found_nor_exported(make_desk: MakeDesk, tmp_path: Path) -> None:
    fill(tmp_path / "chats.db", kept=0, gone=2)
    desk = make_desk()
    desk.wait_ready()
    desk.controller.search("about")
    desk.wait(lambda: desk.hits)
    assert [hit.conversation.title for hit in desk.hits[-1][1]] == ["kept"]
    done: list[int] = []
    desk.memory.export_chats(tmp_path / "all.json", None, done.append, pytest.fail)
    desk.wait(lambda: done)
    assert done == [1]
    assert "gone" not in (tmp_path / "all.json").read_text()


@pytest.mark.parametrize("for_good", [False, True])
def test_deleting_a_folder_ends_the_answers_of_its_chats(make_desk: MakeDesk, for_good: bool) -> None:
    desk = make_desk()
    running: list[str | None] = []
    desk.controller.running_changed.connect(running.append)
    desk.wait_ready()
    desk.controller.new_chat("work")
    desk.controller.send("words 100000 pace 0.005")
    desk.wait(lambda: "word2 " in desk.last.text)
    chat = desk.controller.open_conversation
    assert chat is not None
    desk.memory.set_folder(chat, "work")
    desk.controller.new_chat()
    folders = ChatFolders(desk.memory, desk.policy)
    folders.delete_folder("work")
    if for_good:
        folders.erase([chat])
    desk.wait(lambda: running == [chat, None])
    desk.wait_ready()
    assert desk.say("hello").text == "hello ", "the next chat is answered"


def test_delete_in_the_list_moves_to_the_bin_and_undo_brings_back(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    person.ask("hello")
    view = person.window.sidebar.panel.list
    view.setFocus(Qt.FocusReason.ShortcutFocusReason)
    QTest.keyClick(view, Qt.Key.Key_Delete)
    assert person.hearth.memory.conversations() == []
    assert len(binned(person)) == 1
    (toast,) = person.page.findChildren(Toast)
    toast._take_back()
    assert len(person.hearth.memory.conversations()) == 1
    assert binned(person) == []


def test_what_was_typed_last_into_a_deleted_chat_is_restored_with_it(make_desk: MakeDesk) -> None:
    first = make_desk()
    first.wait_ready()
    first.say("hello")
    chat = first.controller.open_conversation
    assert chat is not None
    first.memory.set_draft(chat, "half a thou")
    first.controller.delete(chat)
    first.close()
    desk = make_desk()
    desk.wait_ready()
    binned(desk)
    assert desk.memory.restore(chat)
    assert desk.memory.draft(chat) == "half a thou"


def test_the_dialog_restores_and_deletes_for_good_after_a_question(arrive: Arrive, tmp_path: Path) -> None:
    fill(folders_in(tmp_path).chats_file, one=1, two=2, three=3, kept=0)
    person = arrive("in-thread")
    person.wait_ready()
    dialog = dialog_of(person)
    ids = {chat.conversation.title: chat_id for chat_id, chat in dialog._chats.items()}
    assert list(ids) == ["one", "two", "three"], "those deleted last first"
    dialog.rows[ids["two"]].restore.click()
    assert {c.title for c in person.hearth.memory.conversations()} == {"kept", "two"}
    dialog.rows[ids["one"]].erase.click()
    question = QApplication.activeModalWidget()
    assert isinstance(question, ConfirmDialog)
    question.safe.click()
    assert ids["one"] in dialog.rows
    dialog.rows[ids["one"]].erase.click()
    question = QApplication.activeModalWidget()
    assert isinstance(question, ConfirmDialog)
    question.danger.click()
    assert list(dialog.rows) == [ids["three"]]
    assert binned(person) == ["three"]
    dialog.empty.click()
    question = QApplication.activeModalWidget()
    assert isinstance(question, ConfirmDialog)
    question.danger.click()
    assert (list(dialog.rows), dialog.empty.isHidden()) == ([], True)
    dialog.close()
    person.wait(lambda: not person.hearth.saves.waiting())
    store = Store.open(person.places.chats_file)
    assert store.binned() == []
    assert {c.title for c in store.conversations()} == {"kept", "two"}
    store.close()


def test_a_full_bin_builds_no_more_rows_than_anybody_reads(arrive: Arrive) -> None:
    person = arrive("in-thread")
    chats = [BinnedChat(Conversation(title=f"Chat {n}"), time.time()) for n in range(MOST_ROWS + 5)]
    dialog = BinDialog(person.window, chats)
    dialog.open()
    assert len(dialog.rows) == MOST_ROWS
    dialog._restore(chats[0].conversation.id)
    assert len(dialog.rows) == MOST_ROWS, "the next one follows"
    dialog.close()


def test_the_days_that_are_left_are_counted_down() -> None:
    assert [days_left(0, days * DAY) for days in (-1, 0, 0.5, 1, 29.5, 40)] == [30, 30, 30, 29, 1, 0]
