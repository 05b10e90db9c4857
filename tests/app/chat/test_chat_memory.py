"""Chats in memory, branch by branch, and what the store then holds of them."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.chat import chat_search
from app.chat.chat_memory import ChatMemory
from app.chat.store import store_file, store_search
from app.chat.store.conversation import (
    Attachment,
    BinnedChat,
    Conversation,
    Message,
    MessageState,
    Role,
    branch,
    newest_leaf,
    siblings,
)
from app.chat.store.operations import Operations
from app.chat.store.store import Store
from app.chat.store.store_rescue import open_in_memory
from app.errors import ChatFileError, RescueReport, StoreError
from app.user_messages import Action, describe


class Desk:
    """A memory over a file, with its two queues."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.saves, self.reads = Operations(retry_s=0.01), Operations()
        self.memory = ChatMemory(lambda: Store.rescue(path), self.saves, self.reads)
        self.memory.open()

    def close(self) -> None:
        self.memory.end()
        assert self.saves.close() == self.reads.close() == []
        self.memory.close()


@pytest.fixture
def desk(tmp_path: Path, qtbot: Any) -> Iterator[Desk]:
    made = Desk(tmp_path / "chats.db")
    yield made
    made.close()


def stored(desk: Desk, chat: str) -> tuple[Conversation, list[Message]]:
    """What a second start would read."""
    store = Store.open(desk.path)
    try:
        conversation = store.conversation(chat)
        assert conversation is not None
        return conversation, store.messages(chat)
    finally:
        store.close()


def turn(desk: Desk, chat: str, role: Role, text: str, parent: str = "") -> Message:
    message = Message(role, text, parent=parent)
    desk.memory.append(chat, message)
    return message


def wait(desk: Desk, qtbot: Any) -> None:
    qtbot.waitUntil(lambda: not desk.saves.waiting())


def test_a_chat_with_versions_shows_one_branch_and_keeps_all(desk: Desk, qtbot: Any) -> None:
    chat = Conversation(title="tree")
    desk.memory.add(chat)
    q1 = turn(desk, chat.id, Role.USER, "q1")
    a1 = turn(desk, chat.id, Role.ASSISTANT, "a1", q1.id)
    a2 = turn(desk, chat.id, Role.ASSISTANT, "a2", q1.id)
    q2 = turn(desk, chat.id, Role.USER, "q2", a2.id)
    edited = turn(desk, chat.id, Role.USER, "q1, edited")
    every = desk.memory.messages(chat.id)
    assert every == [q1, a1, a2, q2, edited]
    assert desk.memory.branch_of(chat.id) == [edited]
    assert siblings(every, q1.id) == siblings(every, edited.id) == [q1.id, edited.id]
    assert siblings(every, a2.id) == [a1.id, a2.id]
    assert siblings(every, "nothing") == []
    assert newest_leaf(every, q1.id) == newest_leaf(every, a2.id) == q2.id
    desk.memory.set_leaf(chat.id, q1.id)
    assert desk.memory.branch_of(chat.id) == [q1, a2, q2]
    desk.memory.set_leaf(chat.id, a1.id)
    assert desk.memory.branch_of(chat.id) == [q1, a1]
    wait(desk, qtbot)
    conversation, messages = stored(desk, chat.id)
    assert branch(messages, conversation.leaf) == [q1, a1]
    assert messages == every


def test_a_removed_message_is_bridged_and_put_back(desk: Desk, qtbot: Any) -> None:
    chat = Conversation()
    desk.memory.add(chat)
    q1 = turn(desk, chat.id, Role.USER, "q1")
    a1 = turn(desk, chat.id, Role.ASSISTANT, "a1", q1.id)
    q2 = turn(desk, chat.id, Role.USER, "q2", a1.id)
    before = list(desk.memory.messages(chat.id) or [])
    desk.memory.remove(chat.id, a1.id)
    assert [m.text for m in desk.memory.branch_of(chat.id) or []] == ["q1", "q2"]
    wait(desk, qtbot)
    assert [(m.text, m.parent) for m in stored(desk, chat.id)[1]] == [("q1", ""), ("q2", q1.id)]
    assert desk.memory.put_back(chat.id, a1.id)
    assert not desk.memory.put_back(chat.id, a1.id)
    assert desk.memory.messages(chat.id) == before
    desk.memory.remove(chat.id, q2.id)
    assert desk.memory.branch_of(chat.id) == [q1, a1]
    wait(desk, qtbot)
    assert stored(desk, chat.id)[0].leaf == a1.id
    desk.memory.put_back(chat.id, q2.id)
    wait(desk, qtbot)
    assert stored(desk, chat.id)[1] == before
    assert stored(desk, chat.id)[0].leaf == q2.id


def test_several_removed_messages_come_back_last_first(desk: Desk, qtbot: Any) -> None:
    chat = Conversation()
    desk.memory.add(chat)
    parent, every = "", []
    for number in range(5):
        every.append(turn(desk, chat.id, Role.USER if number % 2 == 0 else Role.ASSISTANT, f"{number}", parent))
        parent = every[-1].id
    gone = [every[3], every[2], every[0]]
    for message in gone:
        desk.memory.remove(chat.id, message.id)
    assert [(m.text, m.parent) for m in desk.memory.branch_of(chat.id) or []] == [("1", ""), ("4", every[1].id)]
    for message in reversed(gone):
        assert desk.memory.put_back(chat.id, message.id)
    assert desk.memory.branch_of(chat.id) == desk.memory.messages(chat.id) == every
    wait(desk, qtbot)
    assert stored(desk, chat.id)[1] == every


def test_a_message_comes_back_before_the_one_that_it_followed(desk: Desk, qtbot: Any) -> None:
    chat = Conversation()
    desk.memory.add(chat)
    first = turn(desk, chat.id, Role.USER, "1")
    second = turn(desk, chat.id, Role.ASSISTANT, "2", first.id)
    third = turn(desk, chat.id, Role.USER, "3", second.id)
    desk.memory.remove(chat.id, third.id)
    desk.memory.remove(chat.id, second.id)
    desk.memory.put_back(chat.id, third.id)
    assert [(m.text, m.parent) for m in desk.memory.branch_of(chat.id) or []] == [("1", ""), ("3", first.id)]
    wait(desk, qtbot)
    assert stored(desk, chat.id)[1] == desk.memory.messages(chat.id)


def test_the_head_of_a_chat_and_its_draft_are_kept(desk: Desk, qtbot: Any) -> None:
    chat = Conversation(title="head")
    desk.memory.add(chat)
    paste = Attachment("Pasted text", "line\n" * 3, "pasted")
    message = Message(Role.USER, "look", attachments=(paste, Attachment("a.pdf", "page", "pdf", 2)))
    desk.memory.append(chat.id, message)
    desk.memory.set_pinned(chat.id, True)
    desk.memory.set_folder(chat.id, "Work")
    desk.memory.set_choices(chat.id, {"mode": "exact", "seed": 7})
    desk.memory.set_draft(chat.id, "half a thou")
    desk.memory.set_draft(chat.id, "half a thought")
    wait(desk, qtbot)
    qtbot.waitUntil(lambda: stored(desk, chat.id)[0].draft == "half a thought")
    conversation, messages = stored(desk, chat.id)
    assert conversation == desk.memory.conversation(chat.id)
    assert (conversation.pinned, conversation.folder, conversation.choices) == (
        True,
        "Work",
        {"mode": "exact", "seed": 7},
    )
    assert messages == [message]


def test_the_shown_branch_is_computed_once_and_follows_every_change(
    desk: Desk, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    monkeypatch.setattr(
        "app.chat.chat_memory.branch", lambda messages, leaf: (computed.append(leaf), branch(messages, leaf))[1]
    )
    chat = Conversation()
    desk.memory.add(chat)

    def shown() -> list[Message] | None:
        messages, head = desk.memory.messages(chat.id), desk.memory.conversation(chat.id)
        assert messages is not None
        assert head is not None
        assert desk.memory.branch_of(chat.id) == branch(messages, head.leaf)
        return desk.memory.branch_of(chat.id)

    assert shown() == []
    a = turn(desk, chat.id, Role.USER, "a")
    assert shown() == [a]
    computed.clear()
    b = turn(desk, chat.id, Role.ASSISTANT, "b", a.id)
    assert shown() == [a, b]
    b = replace(b, text="b, longer")
    desk.memory.update(chat.id, b)
    assert shown() == [a, b]
    assert computed == [], "a chat that grows is not walked again"
    (shown() or []).clear()
    c = turn(desk, chat.id, Role.ASSISTANT, "c", a.id)
    assert shown() == [a, c]
    desk.memory.update(chat.id, replace(b, text="beside the branch"))
    desk.memory.set_leaf(chat.id, b.id)
    assert [m.text for m in shown() or []] == ["a", "beside the branch"]
    desk.memory.remove(chat.id, a.id)
    assert [m.text for m in shown() or []] == ["beside the branch"]
    desk.memory.put_back(chat.id, a.id)
    assert len(shown() or []) == 2


def test_a_draft_of_the_last_moment_is_kept(tmp_path: Path, qtbot: Any) -> None:
    desk = Desk(tmp_path / "chats.db")
    chat = Conversation()
    desk.memory.add(chat)
    desk.memory.set_draft(chat.id, "typed, then closed")
    desk.close()
    assert stored(desk, chat.id)[0].draft == "typed, then closed"


def test_the_draft_of_a_chat_that_is_not_begun_is_kept(tmp_path: Path, qtbot: Any) -> None:
    desk = Desk(tmp_path / "chats.db")
    desk.memory.set_draft("", "typed before anything was open")
    desk.memory.set_draft("nowhere", "lost")
    assert desk.memory.draft("nowhere") == ""
    qtbot.waitSignal(desk.memory.opened).wait()
    assert desk.memory.draft("") == "typed before anything was open"
    desk.close()
    desk = Desk(tmp_path / "chats.db")
    qtbot.waitSignal(desk.memory.opened).wait()
    assert desk.memory.draft("") == "typed before anything was open"
    desk.memory.set_draft("", "")
    desk.close()
    store = Store.open(tmp_path / "chats.db")
    assert store.draft() == ""
    store.close()


def test_an_open_edit_is_kept_until_it_is_closed_and_goes_with_its_message(tmp_path: Path, qtbot: Any) -> None:
    desk = Desk(tmp_path / "chats.db")
    qtbot.waitSignal(desk.memory.opened).wait()
    chat, other = Conversation(), Conversation()
    desk.memory.add(chat)
    desk.memory.add(other)
    first, second = turn(desk, chat.id, Role.USER, "a"), turn(desk, other.id, Role.USER, "b")
    desk.memory.set_edit(first.id, "half")
    desk.memory.set_edit(second.id, "typed, then killed")
    with contextlib.closing(Store.open(desk.path)) as store:  # saved by the clock, not at the end
        qtbot.waitUntil(lambda: store.edits() == {first.id: "half", second.id: "typed, then killed"})
    desk.memory.set_edit(first.id, "half a \ud83d")
    desk.close()
    desk = Desk(tmp_path / "chats.db")
    qtbot.waitSignal(desk.memory.opened).wait()
    assert desk.memory.edits == {first.id: "half a \ufffd", second.id: "typed, then killed"}
    desk.memory.set_edit(first.id, "")
    desk.memory.delete(other.id)
    desk.memory.erase([other.id])
    desk.close()
    with contextlib.closing(Store.open(tmp_path / "chats.db")) as store:
        assert store.edits() == {}
    assert b"then killed" not in b"".join(one.read_bytes() for one in tmp_path.iterdir())


# --- files


def test_chats_go_out_and_come_in(desk: Desk, tmp_path: Path, qtbot: Any) -> None:
    chats = [Conversation(title=f"chat {number}", created_at=number) for number in range(3)]
    for chat in chats:
        desk.memory.add(chat)
        asked = turn(desk, chat.id, Role.USER, f"question {chat.title}")
        turn(desk, chat.id, Role.ASSISTANT, "answer", asked.id)
    written: list[Any] = []
    for path, ids in (("all.json", None), ("one.md", [chats[1].id]), ("folder", None)):
        desk.memory.export_chats(tmp_path / path, ids, written.append, written.append)
    qtbot.waitUntil(lambda: len(written) == 3)
    assert written == [3, 1, 3]
    assert "question chat 1" in (tmp_path / "one.md").read_text("utf-8")
    assert len(list((tmp_path / "folder").iterdir())) == 3

    other = Desk(tmp_path / "other.db")
    came: list[Any] = []
    other.memory.import_chats(tmp_path / "all.json", lambda added, known: came.append((len(added), known)), came.append)
    qtbot.waitUntil(lambda: len(came) == 1)
    other.memory.import_chats(tmp_path / "all.json", lambda added, known: came.append((len(added), known)), came.append)
    qtbot.waitUntil(lambda: len(came) == 2)
    assert came == [(3, 0), (0, 3)]
    assert {c.title for c in other.memory.conversations()} == {"chat 0", "chat 1", "chat 2"}
    other.memory.export_chats(tmp_path / "again.json", None, came.append, came.append)
    qtbot.waitUntil(lambda: len(came) == 3)
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "all.json").read_bytes()
    other.close()


def test_files_that_fail_are_told_in_words(desk: Desk, tmp_path: Path, qtbot: Any) -> None:
    (tmp_path / "bad.json").write_text("{}")
    failed: list[BaseException] = []
    for name in ("bad.json", "missing.json"):
        desk.memory.import_chats(tmp_path / name, lambda added, known: None, failed.append)
    desk.memory.export_chats(tmp_path / "nowhere" / "x.json", None, lambda count: None, failed.append)
    qtbot.waitUntil(lambda: len(failed) == 3)
    bad, missing, unwritable = failed
    assert isinstance(bad, ChatFileError)
    assert describe(bad, during="import").sentence.startswith(bad.message)
    full = OSError(28, "No space left on device")
    told = [describe(error, during=act) for error, act in (
        (bad, "import"), (missing, "import"), (unwritable, "export"), (full, "export"))]  # fmt: skip
    assert [message.details for message in told] == [str(error) for error in (bad, missing, unwritable, full)]
    assert len({message.title for message in told}) == 2, "one for each act"
    assert len({message.sentence for message in told}) == 4, "one for each failure"


def test_a_search_that_comes_before_the_chats_are_open_is_answered_then(tmp_path: Path, qtbot: Any) -> None:
    before = Desk(tmp_path / "chats.db")
    chat = Conversation(title="needle")
    before.memory.add(chat)
    before.close()
    desk = Desk(tmp_path / "chats.db")  # open() has only queued the read
    found: list[str] = []
    desk.memory.search("hay", lambda hits: found.append("hay"))
    desk.memory.search("needle", lambda hits: found.extend(hit.conversation.id for hit in hits))
    with contextlib.closing(desk):
        qtbot.waitUntil(lambda: bool(found))
    assert found == [chat.id]


def test_what_is_asked_while_the_chats_are_read_is_answered_when_the_window_knows_them(
    tmp_path: Path, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Desk(tmp_path / "chats.db")
    kept, gone = Conversation(title="needle"), Conversation(title="gone")
    for chat in (kept, gone):
        before.memory.add(chat)
    before.memory.delete(gone.id)
    before.close()
    reading, go_on = threading.Event(), threading.Event()
    read = Store.conversations

    def slowly(store: Store) -> list[Conversation]:
        reading.set()
        assert go_on.wait(60)
        return read(store)

    monkeypatch.setattr(Store, "conversations", slowly)
    desk = Desk(tmp_path / "chats.db")
    assert reading.wait(60), "the store is open, and its chats are not in memory"
    known: list[bool] = []
    found: list[BinnedChat] = []
    desk.memory.search(
        "needle", lambda hits: known.extend(desk.memory.conversation(hit.conversation.id) is not None for hit in hits)
    )
    desk.memory.read_bin(found.extend)
    qtbot.wait(50)
    assert not known, "a hit that the window does not know cannot be opened"
    go_on.set()
    with contextlib.closing(desk):
        qtbot.waitUntil(lambda: bool(known and found))
    assert known == [True]
    assert [chat.conversation.id for chat in found] == [gone.id]


def test_the_bin_that_is_asked_for_before_the_chats_are_open_is_read_then(tmp_path: Path, qtbot: Any) -> None:
    before = Desk(tmp_path / "chats.db")
    chat = Conversation(title="gone")
    before.memory.add(chat)
    before.memory.delete(chat.id)
    before.close()
    gate = threading.Event()

    def late() -> tuple[Store, RescueReport | None]:
        assert gate.wait(60)
        return Store.rescue(tmp_path / "chats.db")

    saves, reads = Operations(retry_s=0.01), Operations()
    memory = ChatMemory(late, saves, reads)
    memory.open()
    found: list[BinnedChat] = []
    troubles: list[object] = []
    memory.trouble.connect(troubles.append)
    memory.read_bin(found.extend)
    qtbot.wait(20)
    gate.set()
    qtbot.waitUntil(lambda: bool(found or troubles))
    assert (troubles, [one.conversation.id for one in found]) == ([], [chat.id])
    memory.end()
    assert saves.close() == reads.close() == []
    memory.close()


def test_chats_that_cannot_be_saved_are_lost_only_if_something_was_written(
    tmp_path: Path, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Desk(tmp_path / "chats.db")
    chat = Conversation(title="read only")
    before.memory.add(chat)
    before.close()
    error = StoreError("read-only", "", tmp_path / "chats.db")
    db, report = open_in_memory(tmp_path / "chats.db", error)
    monkeypatch.setattr(Store, "rescue", lambda path: (Store(db, path, in_memory=True), report))
    with contextlib.closing(Desk(tmp_path / "chats.db")) as desk:
        with qtbot.waitSignal(desk.memory.opened):
            pass
        with qtbot.waitCallback() as was_read:
            desk.memory.read(chat.id, was_read)
        assert desk.memory.unsaved is None
        desk.memory.set_draft(chat.id, "words")
        assert desk.memory.unsaved is report
        wait(desk, qtbot)
        assert desk.memory.unsaved is report


def test_the_index_grows_when_nothing_is_said(tmp_path: Path, qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_search, "INDEX_AFTER_MS", 20)
    monkeypatch.setattr(chat_search, "INDEX_STEP_MS", 1)
    monkeypatch.setattr(store_search, "STEP_CHARACTERS", 200)
    desk = Desk(tmp_path / "chats.db")
    chat = Conversation()
    desk.memory.add(chat)
    for number in range(20):
        turn(desk, chat.id, Role.USER, f"words {number}")
    answer = Message(Role.ASSISTANT, "", state=MessageState.WRITING)
    desk.memory.append(chat.id, answer)
    desk.memory.update(chat.id, replace(answer, text="done", state=MessageState.COMPLETE))

    def known() -> int:
        with contextlib.closing(sqlite3.connect(tmp_path / "chats.db")) as db:
            return int(db.execute("SELECT count(*) FROM search_entry").fetchone()[0])

    def all_known() -> None:
        with contextlib.suppress(sqlite3.OperationalError):  # no such table yet
            assert known() == 21
            return
        raise AssertionError

    qtbot.waitUntil(all_known)
    desk.close()


# --- branches as plain data


def test_parents_that_lead_round_in_a_circle_end() -> None:
    a, b = Message(Role.USER, "a", id="a", parent="b"), Message(Role.ASSISTANT, "b", id="b", parent="a")
    assert branch([a, b], "b") == [a, b]
    assert branch([], "x") == []
    assert newest_leaf([a, b], "a") == "b"


def test_the_copy_from_before_an_update_brings_the_chats_back(tmp_path: Path, qtbot: Any) -> None:
    path = tmp_path / "chats.db"
    store = Store.open(path)
    store.save_conversation(Conversation(id="old", title="From before"))
    store.close()
    copy = tmp_path / f"chats-20260101-000000-000000-version-{len(store_file.MIGRATIONS)}.db"
    copy.write_bytes(path.read_bytes())
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(store_file.MIGRATIONS) + 1}")
    db.close()
    desk = Desk(path)
    troubles: list[Any] = []
    desk.memory.trouble.connect(troubles.append)
    qtbot.waitUntil(lambda: bool(troubles))
    assert (troubles[0].error.kind, describe(troubles[0]).remedy_action) == ("newer", Action.USE_COPY)
    desk.memory.add(Conversation(id="now", title="Written meanwhile"))
    with qtbot.waitSignal(desk.memory.solved):
        desk.memory.repair(from_copy=True)
    assert {one.id for one in desk.memory.conversations()} == {"old", "now"}
    desk.close()
    reopened = Store.open(path)
    assert {one.id for one in reopened.conversations()} == {"old", "now"}
    reopened.close()
    assert len(list(tmp_path.glob("chats-damaged-*.db"))) == 1
