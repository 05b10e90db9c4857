"""An import from beginning to end: its process, the batches, and the chats that appear all at once or not at all."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exports import AT, gpt4all_chat, simple_gpt_chat, write
from pytestqt.qtbot import QtBot

from app.chat.answers.answer_policy import AnswerPolicy
from app.chat.chat_folders import ChatFolders
from app.chat.chat_memory import ChatMemory
from app.chat.imports import export_reader, process
from app.chat.imports.chat_import import ImportSummary
from app.chat.store.chat_files import write_json
from app.chat.store.conversation import Conversation, Message, Role, Staged, WholeChat
from app.chat.store.operations import Operations
from app.chat.store.store import Store
from app.errors import ChatFileError, StoreError
from app.settings import AppSettings
from app.user_messages import UserMessage

BATCH_CHARS = 1 << 20


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        f"from app.chat.imports import process; process.BATCH_CHARS = {BATCH_CHARS}; raise SystemExit(process.main())"
    )
    monkeypatch.setattr(export_reader, "_command", lambda: [sys.executable, "-P", "-c", code])


class Place:
    """Chats in a file, their folders, and what an import said."""

    def __init__(self, qtbot: QtBot, path: Path) -> None:
        self.qtbot, self.path = qtbot, path
        self.saves, self.reads = Operations(retry_s=0.01), Operations()
        self.memory = ChatMemory(lambda: Store.rescue(path), self.saves, self.reads)
        self.folders = ChatFolders(self.memory, AnswerPolicy(AppSettings()))
        self.done: list[ImportSummary] = []
        self.failed: list[Exception] = []
        self.problems: list[UserMessage] = []
        self.cancelled: list[int] = []
        self.toasts: list[tuple[str, Any]] = []
        self.shares: list[float] = []
        imports = self.folders.imports
        imports.done.connect(self.done.append)
        imports.failed.connect(self.failed.append)
        imports.cancelled.connect(lambda: self.cancelled.append(1))
        imports.progressed.connect(lambda share, chats: self.shares.append(share))
        self.folders.problem.connect(lambda kind, message: self.problems.append(message))
        self.folders.toast.connect(lambda words, undo: self.toasts.append((words, undo)))
        with qtbot.waitSignal(self.memory.opened):
            self.memory.open()

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()))

    def imported(self, *paths: Path) -> ImportSummary:
        n = len(self.done)
        self.folders.import_chats(*paths)
        self.wait(lambda: len(self.done) > n or self.problems)
        assert not self.problems
        return self.done[-1]

    def rows(self, table: str) -> int:
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            found: int = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found

    def titles(self) -> set[str]:
        return {chat.title for chat in self.memory.conversations()}

    def close(self) -> None:
        self.folders.imports.close()
        self.memory.end()
        assert not self.saves.close()
        assert not self.reads.close()
        self.memory.close()


@pytest.fixture
def place(qtbot: QtBot, tmp_path: Path) -> Iterator[Place]:
    place = Place(qtbot, tmp_path / "chats.db")
    yield place
    place.close()


@pytest.fixture
def export(tmp_path: Path) -> Path:
    value = [simple_gpt_chat(f"c{n}", f"text {n}", title=f"Chat {n}", update_time=AT + n) for n in range(5)]
    return write(tmp_path / "conversations.json", [*value, {"no": "chat"}, value[0]])


def test_an_import_shows_all_chats_and_says_what_it_did(place: Place, export: Path) -> None:
    summary = place.imported(export)
    assert summary.staged == Staged(chats=5, messages=10)
    assert summary.programs == ("ChatGPT",)
    assert dict(summary.skipped) == {"unknown": 1, "twice": 1}
    chats = place.memory.conversations()
    assert [chat.title for chat in chats] == [f"Chat {n}" for n in reversed(range(5))], "by their own dates"
    assert {chat.folder for chat in chats} == {"ChatGPT"}
    assert not place.folders.imports.is_running
    place.memory.read(chats[0].id, lambda: None)
    place.wait(lambda: place.memory.messages(chats[0].id))
    assert [m.text for m in place.memory.messages(chats[0].id) or ()] == ["text 4", "about text 4"]


def test_the_same_export_again_adds_only_what_is_new(place: Place, export: Path) -> None:
    chats = place.imported(export).chats
    place.memory.rename(chats[0].id, "my own title")
    place.memory.delete(chats[1].id)
    value = [*json.loads(export.read_text()), simple_gpt_chat("new", "new text", title="New")]
    write(export, value)
    again = place.imported(export)
    assert again.staged == Staged(chats=1, messages=2, here=4, binned=1)
    assert [chat.title for chat in again.chats] == ["New"]
    assert place.titles() >= {"my own title", "New"}
    assert place.imported(export).staged == Staged(here=5, binned=1)


def test_undo_removes_what_was_added_and_the_export_can_be_read_again(place: Place, export: Path) -> None:
    kept = Conversation(title="kept")
    place.memory.add(kept)
    summary = place.imported(export)
    continued = summary.chats[0].id
    place.memory.read(continued, lambda: None)
    place.wait(lambda: place.memory.messages(continued))
    place.memory.append(continued, Message(Role.USER, "and then?"))
    place.folders.undo_import(summary.chats)
    assert place.titles() == {"kept"}
    place.wait(lambda: not place.saves.waiting())
    assert place.rows("conversation") == 2, "one that was continued goes to the bin"
    assert place.imported(export).staged == Staged(chats=4, messages=8, binned=1)


def test_a_folder_is_deleted_with_its_chats_and_comes_back(place: Place, export: Path) -> None:
    place.imported(export)
    place.folders.delete_folder("ChatGPT")
    assert not place.memory.conversations()
    _, undo = place.toasts[-1]
    undo()
    assert len(place.memory.conversations()) == 5
    place.wait(lambda: not place.saves.waiting())
    assert place.rows("conversation WHERE deleted_at IS NULL") == 5


@pytest.mark.usefixtures("small_batches")
def test_many_batches_and_several_files_are_one_import(place: Place, tmp_path: Path) -> None:
    """More batches than may wait at once: the process waits for each to be taken."""
    text = "long " * 20_000
    for n in range(40):
        write(tmp_path / "in" / f"conversations-{n:03}.json", [simple_gpt_chat(f"c{n}", f"{n} {text}")])
    (tmp_path / "in" / "x.chat").write_bytes(gpt4all_chat())
    assert 40 * 2 * len(text) > (process.MOST_WAITING + 1) * BATCH_CHARS
    ours = tmp_path / "ours.json"
    write_json(ours, [WholeChat(Conversation(title="Ours"), ())])
    summary = place.imported(tmp_path / "in", ours)
    assert summary.staged.chats == 41
    assert list(summary.programs) == ["ChatGPT", "GPT4All"]
    place.wait(lambda: "Ours" in place.titles())
    assert place.shares == sorted(place.shares)
    assert place.shares[-1] <= 1


@pytest.mark.usefixtures("small_batches")
def test_cancelling_leaves_nothing(place: Place, tmp_path: Path) -> None:
    text = "long " * 20_000
    export = write(tmp_path / "conversations.json", [simple_gpt_chat(f"c{n}", f"{n} {text}") for n in range(30)])
    taken: list[int] = []
    stage = place.memory.stage

    def cancel_after_the_first(batch: Path, then: Any, failed: Any) -> None:
        def took(staged: Staged) -> None:
            taken.append(staged.chats)
            then(staged)
            place.folders.imports.cancel()

        stage(batch, took, failed)

    place.memory.stage = cancel_after_the_first  # type: ignore[method-assign]
    place.folders.import_chats(export)
    place.wait(lambda: place.cancelled)
    assert taken[0] > 0
    assert (place.rows("conversation"), place.rows("message")) == (0, 0)
    assert not place.done
    assert not place.failed
    place.memory.stage = stage  # type: ignore[method-assign]
    assert place.imported(export).staged.chats == 30, "the next import begins anew"


def test_staged_chats_are_unseen_and_the_next_start_removes_them(qtbot: QtBot, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "chats.db")
    chats = [WholeChat(Conversation(title=f"t{n}"), (Message(Role.USER, "needle"),)) for n in range(3)]
    Store.write_batch(tmp_path / "1.db", chats)
    assert store.stage(tmp_path / "1.db") == Staged(chats=3, messages=3)
    Store.write_batch(tmp_path / "2.db", chats[:2])
    assert store.stage(tmp_path / "2.db") == Staged(binned=2), "they are there, though unseen"
    assert store.stage(tmp_path / "gone.db") == Staged()
    assert (store.conversations(), store.binned(), store.search("needle")) == ([], [], [])
    store.erase([])
    assert len(store.show_staged()) == 3
    assert len(store.conversations()) == 3
    store.close()
    again = Place(qtbot, tmp_path / "chats.db")
    more = [WholeChat(Conversation(title="unfinished"), ())]
    Store.write_batch(tmp_path / "3.db", more)
    again.memory.stage(tmp_path / "3.db", lambda staged: None, lambda error: None)
    again.close()
    assert again.rows("conversation") == 4
    start = Place(qtbot, tmp_path / "chats.db")
    start.wait(lambda: not start.saves.waiting())
    assert start.rows("conversation") == 3
    start.close()


def test_dropping_staged_chats_leaves_the_others(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "chats.db")
    kept = WholeChat(Conversation(title="kept"), (Message(Role.USER, "x"),))
    store.add_chats([kept])
    Store.write_batch(tmp_path / "1.db", [WholeChat(Conversation(), (Message(Role.USER, "y"),)) for _ in range(450)])
    store.stage(tmp_path / "1.db")
    store.drop_staged()
    assert [chat.title for chat in store.conversations()] == ["kept"]
    assert store.show_staged() == []
    assert len(store.messages(kept.conversation.id)) == 1
    store.close()


def test_a_full_disk_ends_the_import_and_leaves_nothing(place: Place, export: Path) -> None:
    def full(batch: Path, then: Any, failed: Callable[[BaseException], None]) -> None:
        failed(StoreError("full", "no space", place.path))

    place.memory.stage = full  # type: ignore[method-assign]
    place.folders.import_chats(export)
    place.wait(lambda: place.failed)
    assert isinstance(place.failed[0], StoreError)
    assert place.rows("conversation") == 0
    assert not place.folders.imports.is_running


@pytest.mark.parametrize("kind", ["no json", "no chats", "bomb", "bad zip"])
def test_what_cannot_be_imported_is_told(place: Place, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.zip"
    if kind == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("conversations.json", b" " * (80 << 20))
    elif kind == "bad zip":
        path.write_bytes(b"PK\x03\x04 and then nothing")
    else:
        path.write_text("text" if kind == "no json" else '{"a": 1}')
    place.folders.import_chats(path)
    place.wait(lambda: place.problems)
    assert isinstance(place.failed[0], ChatFileError)
    assert place.failed[0].message in place.problems[0].sentence
    assert not place.folders.imports.is_running


def test_a_reader_that_dies_is_told(place: Place, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies = [sys.executable, "-c", "import os; os.abort()"]
    monkeypatch.setattr("app.chat.imports.export_reader._command", lambda: dies)
    place.folders.import_chats(export)
    place.wait(lambda: place.failed)
    assert isinstance(place.failed[0], ChatFileError)


def test_a_second_import_waits_for_the_first(place: Place, export: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.json", [simple_gpt_chat("other", "other")])
    place.folders.imports.start([export])
    place.folders.imports.start([other])
    place.wait(lambda: len(place.done) == 2)
    assert [summary.staged.chats for summary in place.done] == [5, 1]
