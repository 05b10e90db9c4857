"""Chats for the tests of the store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from app.chat.store.conversation import Attachment, Conversation, Message, Role
from app.chat.store.store import Store


def chat(store: Store, title: str, *texts: str, at: float = 1000.0) -> Conversation:
    """A stored conversation of alternating turns."""
    made = Conversation(title=title, created_at=at, updated_at=at)
    store.save_conversation(made)
    parent = ""
    for number, text in enumerate(texts):
        role = Role.USER if number % 2 == 0 else Role.ASSISTANT
        message = Message(role, text, created_at=at + number, parent=parent)
        store.append(made.id, message)
        parent = message.id
    return dataclasses.replace(made, leaf=parent)


def tree(store: Store) -> tuple[Conversation, list[Message]]:
    """A stored chat with everything that a chat can have: two versions of an answer, attachments, choices."""
    paper = Attachment("a.pdf", "page \U0001f525\n" * 3, "pdf", 2)
    asked = Message(Role.USER, "q", attachments=(paper, Attachment("Pasted", "x", "pasted")))
    first = Message(Role.ASSISTANT, "a1", parent=asked.id, stats={"tokens": 3})
    second = Message(Role.ASSISTANT, "a2", parent=asked.id)
    follow = Message(Role.USER, "q2", parent=first.id)
    made = Conversation(title="tree", pinned=True, folder="Work", draft="half a", choices={"mode": "exact", "n": [1]})
    store.save_conversation(made)
    for message in (asked, first, second, follow):
        store.append(made.id, message)
    made = dataclasses.replace(made, leaf=second.id, updated_at=follow.created_at)
    store.save_conversation(made)
    return made, [asked, first, second, follow]


def damaged_files(file: Path) -> list[Path]:
    return sorted(path for path in file.parent.iterdir() if "-damaged-" in path.name)
