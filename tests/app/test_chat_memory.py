"""Chats in memory, branch by branch, and what the store then holds of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.chat_memory import ChatMemory
from app.conversation import Attachment, Conversation, Message, Role, branch, newest_leaf, siblings
from app.operations import Operations
from app.store import Store


class Desk:
    """A memory over a file, with its two queues."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.saves, self.reads = Operations(retry_s=0.01), Operations()
        self.memory = ChatMemory(lambda: Store.rescue(path), self.saves, self.reads)
        self.memory.open()

    def end(self) -> None:
        self.memory.end()
        assert self.saves.close() == self.reads.close() == []
        self.memory.close()


@pytest.fixture
def desk(tmp_path: Path, qtbot: Any) -> Iterator[Desk]:
    made = Desk(tmp_path / "chats.db")
    yield made
    made.end()


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
    qtbot.waitUntil(lambda: not desk.saves.waiting(), timeout=5000)


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
    qtbot.waitUntil(lambda: stored(desk, chat.id)[0].draft == "half a thought", timeout=3000)
    conversation, messages = stored(desk, chat.id)
    assert conversation == desk.memory.conversation(chat.id)
    assert (conversation.pinned, conversation.folder, conversation.choices) == (
        True,
        "Work",
        {"mode": "exact", "seed": 7},
    )
    assert messages == [message]


def test_a_draft_of_the_last_moment_is_kept(tmp_path: Path, qtbot: Any) -> None:
    desk = Desk(tmp_path / "chats.db")
    chat = Conversation()
    desk.memory.add(chat)
    desk.memory.set_draft(chat.id, "typed, then closed")
    desk.end()
    assert stored(desk, chat.id)[0].draft == "typed, then closed"


def test_parents_that_lead_round_in_a_circle_end() -> None:
    a, b = Message(Role.USER, "a", id="a", parent="b"), Message(Role.ASSISTANT, "b", id="b", parent="a")
    assert branch([a, b], "b") == [a, b]
    assert branch([], "x") == []
    assert newest_leaf([a, b], "a") == "b"
