"""The folders: pins, folders and files of chats, each with words for a note and the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QFileDialog, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat.answers.answer_policy import AnswerPolicy
from app.chat.chat_folders import ChatFolders
from app.chat.chat_memory import ChatMemory
from app.chat.store.conversation import Conversation, Message, Role
from app.chat.store.operations import Operations
from app.chat.store.store import Store
from app.settings import AppSettings
from app.ui.keyboard.commands import Commands
from app.ui.sidebar.chat_actions import ChatActions
from app.ui.sidebar.import_dialogs import ImportDialog
from app.ui.sidebar.sidebar import Sidebar
from app.user_messages import UserMessage


class Room:
    """A folders over a file, and all that it said."""

    def __init__(self, qtbot: QtBot, path: Path) -> None:
        self.qtbot = qtbot
        self.saves, self.reads = Operations(retry_s=0.01), Operations()
        self.memory = ChatMemory(lambda: Store.rescue(path), self.saves, self.reads)
        self.folders = ChatFolders(self.memory, AnswerPolicy(AppSettings()))
        self.said: list[tuple[str, Any]] = []
        self.problems: list[UserMessage] = []
        self.changes = 0
        self.solved: list[str] = []
        self.folders.solved.connect(self.solved.append)
        self.folders.toast.connect(lambda words, undo: self.said.append((words, undo)))
        self.folders.problem.connect(lambda kind, message: self.problems.append(message))
        self.memory.changed.connect(self._count)
        with qtbot.waitSignal(self.memory.opened):
            self.memory.open()

    def _count(self) -> None:
        self.changes += 1

    def add(self, title: str, **fields: Any) -> Conversation:
        chat = Conversation(title=title, **fields)
        self.memory.add(chat)
        self.memory.append(chat.id, Message(Role.USER, f"about {title}"))
        return chat

    def chat(self, conversation_id: str) -> Conversation:
        found = self.memory.conversation(conversation_id)
        assert found is not None
        return found

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()))

    def end(self) -> None:
        self.memory.end()
        assert self.saves.close() == self.reads.close() == []
        self.memory.close()


@pytest.fixture
def room(qtbot: QtBot, tmp_path: Path) -> Iterator[Room]:
    made = Room(qtbot, tmp_path / "chats.db")
    yield made
    made.end()


def test_placing_a_chat_is_told_and_taken_back(room: Room) -> None:
    chat = room.add("Herons")
    for pinned, folder, words in (
        (True, "", "Chat pinned"),
        (True, "Birds", "Moved to “Birds”"),
        (False, "Birds", "Chat unpinned"),
        (True, "", "Removed from “Birds”"),
    ):
        before = room.chat(chat.id)
        room.folders.place(chat.id, pinned, folder)
        assert (room.chat(chat.id).pinned, room.chat(chat.id).folder) == (pinned, folder)
        assert room.said[-1][0] == words
        room.said[-1][1]()
        assert room.chat(chat.id) == before
        room.folders.place(chat.id, pinned, folder)
    told = len(room.said)
    room.folders.place(chat.id, True, "")
    room.folders.place("nobody", True, "")
    assert len(room.said) == told, "nothing has changed, so nothing is said"


def test_taking_back_after_the_chat_is_gone_does_no_harm(room: Room) -> None:
    chat = room.add("Herons")
    room.folders.place(chat.id, True, "Birds")
    room.memory.delete(chat.id)
    room.said[-1][1]()
    assert room.memory.conversation(chat.id) is None


def test_a_folder_is_renamed_merged_and_emptied_in_one_step(room: Room) -> None:
    chats = [room.add(str(n), folder="a" if n < 15 else "b") for n in range(20)]

    def folders() -> list[str]:
        return [room.chat(chat.id).folder for chat in chats]

    before = room.changes
    room.folders.rename_folder("a", "  new   name ")
    assert room.changes == before + 1, "the list is told once, not for each chat"
    assert folders() == ["new name"] * 15 + ["b"] * 5
    assert room.said == []
    room.folders.rename_folder("new name", "b")
    assert "“b”" in room.said[-1][0]
    assert folders() == ["b"] * 20
    room.said[-1][1]()
    assert folders() == ["new name"] * 15 + ["b"] * 5
    room.folders.take_out("b")
    assert "“b”" in room.said[-1][0]
    assert numbers_in(room.said[-1][0]) == ["5"]
    assert folders() == ["new name"] * 15 + [""] * 5
    room.said[-1][1]()
    assert folders() == ["new name"] * 15 + ["b"] * 5
    room.folders.rename_folder("gone", "x")
    room.folders.rename_folder("b", "  ")
    assert folders()[-1] == "b"


# --- files


def test_chats_go_out_and_come_back(room: Room, tmp_path: Path) -> None:
    chats = [room.add("Herons", folder="Birds"), room.add("Storks", pinned=True)]
    path = tmp_path / "all.json"
    room.folders.export_chats(path)
    room.wait(lambda: room.said)
    assert numbers_in(room.said[-1][0]) == ["2"]
    assert "all.json" in room.said[-1][0]
    assert room.solved == ["export"], "what was said of one that failed is over"
    room.folders.import_chats(path)
    room.wait(lambda: len(room.said) == 2)
    assert numbers_in(room.said[-1][0]) == ["2"]
    assert room.said[-1][1] == "info", "none was added, so there is nothing to undo"
    room.memory.delete(chats[0].id)
    fresh = Room(room.qtbot, tmp_path / "other.db")
    fresh.folders.import_chats(path)
    fresh.wait(lambda: fresh.said)
    assert numbers_in(fresh.said[-1][0]) == ["2"]
    assert fresh.solved == ["import"]
    assert {(c.title, c.folder, c.pinned) for c in fresh.memory.conversations()} == {
        ("Herons", "Birds", False), ("Storks", "", True)}  # fmt: skip
    before = fresh.changes
    fresh.said[-1][1]()
    assert fresh.memory.conversations() == []
    assert fresh.changes == before + 1
    fresh.folders.import_chats(path)
    fresh.wait(lambda: len(fresh.said) == 2)
    assert numbers_in(fresh.said[-1][0]) == ["2"], "the same file again"
    assert {c.id for c in fresh.memory.conversations()} == {chat.id for chat in chats}, "themselves, not copies of them"
    heron = chats[0].id
    fresh.memory.read(heron, lambda: None)
    fresh.wait(lambda: fresh.memory.messages(heron))
    fresh.memory.append(heron, Message(Role.USER, "and what else?"))
    fresh.said[-1][1]()
    assert fresh.memory.conversations() == []
    binned: list[str] = []
    fresh.folders.read_bin(lambda found: binned.extend(one.conversation.id for one in found))
    fresh.wait(lambda: binned)
    assert binned == [heron], "what was said in it since is not lost"
    fresh.end()
    again = Room(room.qtbot, tmp_path / "other.db")
    assert again.memory.conversations() == []
    again.folders.import_chats(path)
    again.wait(lambda: again.said)
    assert len(again.memory.conversations()) == 2
    again.end()


@pytest.mark.parametrize(
    ("content", "words"), [(None, "Errno 2"), (b"no json", "JSON"), (b'{"format": "else"}', "Hearth")]
)
def test_a_file_that_cannot_be_taken_in_is_said(room: Room, tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    room.folders.import_chats(path)
    room.wait(lambda: room.problems)
    assert words in room.problems[0].details
    assert room.said == []


def test_a_folder_that_cannot_be_written_is_said(room: Room, tmp_path: Path) -> None:
    room.add("Herons")
    room.folders.export_chats(tmp_path / "nowhere" / "all.json")
    room.wait(lambda: room.problems)
    assert "Errno 2" in room.problems[0].details


# --- the acts of the window


def test_export_is_two_clicks_and_the_ending_says_what_is_written(
    room: Room, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    herons, storks = room.add("Herons: where?"), room.add("Storks")
    window, bar = QWidget(), Sidebar()
    qtbot.addWidget(window)
    qtbot.addWidget(bar)
    bar.set_conversations(room.memory.conversations())
    acts = ChatActions(window, bar, lambda: herons.id, room.folders)
    commands = Commands(window)
    acts.bind(commands)
    offered: list[str] = []

    def save(parent: object, title: str, path: str, kind: str) -> tuple[str, str]:
        offered.append(Path(path).name)
        return str(tmp_path / "out"), kind

    monkeypatch.setattr(QFileDialog, "getSaveFileName", save)
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(tmp_path))
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: ([str(tmp_path / "out.json")], ""))
    menu = bar.panel.list.menu_for(bar.panel.list.chats.rows[bar.panel.list.chats.index_of(storks.id).row()])
    next(action for action in menu.actions() if action.text() == "Export as Markdown").trigger()
    room.wait(lambda: (tmp_path / "out.md").is_file())
    assert "about Storks" in (tmp_path / "out.md").read_text(encoding="utf-8")
    commands.run("export_json")
    room.wait(lambda: (tmp_path / "out.json").is_file())
    assert [c["title"] for c in json.loads((tmp_path / "out.json").read_bytes())["chats"]] == ["Herons: where?"]
    assert offered == ["Storks.md", "Herons where.json"]
    commands.run("export_all_markdown")
    room.wait(lambda: len(list((tmp_path / "Hearth chats").glob("*.md"))) == 2)
    commands.run("import_chats")
    window.findChildren(ImportDialog)[0].file_button.click()
    room.wait(lambda: any("already here" in words for words, _ in room.said))
    commands.run("export_all")
    room.wait(lambda: sum("2 chats exported" in words for words, _ in room.said) >= 1)
    menu.deleteLater()


def test_acts_of_the_shown_chat_need_one(room: Room, qtbot: QtBot) -> None:
    window, bar = QWidget(), Sidebar()
    qtbot.addWidget(window)
    qtbot.addWidget(bar)
    shown = [""]
    acts, commands = ChatActions(window, bar, lambda: shown[0], room.folders), Commands(window)
    acts.bind(commands)
    assert not any(commands.can(act) for act in ("pin_chat", "move_chat", "delete_chat", "export_all", "next_chat"))
    assert commands.can("import_chats")
    chat = room.add("Herons")
    bar.set_conversations(room.memory.conversations())
    shown[0] = chat.id
    assert all(commands.can(act) for act in ("pin_chat", "move_chat", "delete_chat", "export_all", "next_chat"))
    commands.run("pin_chat")
    assert room.chat(chat.id).pinned
    with qtbot.waitSignal(bar.delete_requested) as told:
        commands.run("delete_chat")
    assert told.args == [chat.id]
    with qtbot.waitSignal(bar.conversation_selected) as told:
        commands.run("next_chat")
    assert told.args == [chat.id]
