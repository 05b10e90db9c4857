"""A chat as plain data. Knows nothing of Qt, of storage or of the engine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from app.translation import noted


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class MessageState(StrEnum):
    """How a message stands."""

    COMPLETE = "complete"
    WRITING = "writing"  # being generated now; found in the store at start, it means the program was killed
    CANCELLED = "cancelled"  # the person pressed Stop; the partial text is kept
    LENGTH = "length"  # the token limit or the end of the context was reached
    FAILED = "failed"  # the engine failed; the partial text is kept
    INTERRUPTED = "interrupted"  # the program or the engine died in mid-answer; the partial text is kept


def new_id() -> str:
    """A fresh id; made by whoever creates the thing, so that nothing waits for the database."""
    return uuid.uuid4().hex


AttachmentKind = Literal["pasted", "text", "pdf"]


@dataclass(frozen=True)
class Attachment:
    """A text that was given along with a message: a long paste, or what a file said. The file itself is not kept."""

    name: str
    text: str
    kind: AttachmentKind
    n_pages: int = 0  # of a PDF


@dataclass(frozen=True)
class Message:
    """One turn. The messages of a chat are a tree: every version of a question or an answer has the same parent.

    `stats` holds the fields of engine.service.protocol.GenerationResult that are worth keeping (no text).
    """

    role: Role
    text: str
    id: str = field(default_factory=new_id)
    created_at: float = field(default_factory=time.time)  # seconds since the epoch
    state: MessageState = MessageState.COMPLETE
    stats: dict[str, Any] | None = None
    parent: str = ""  # id of the message before it on its branch; empty: it begins the chat
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True)
class Unsent:
    """A message that waits for the end of the answer before it."""

    text: str
    attachments: tuple[Attachment, ...] = ()

    def and_then(self, text: str, attachments: tuple[Attachment, ...] = ()) -> Unsent:
        """The same message with a further paragraph, and what is attached to that."""
        return Unsent("\n\n".join(part for part in (self.text, text) if part), self.attachments + attachments)


@dataclass(frozen=True)
class Conversation:
    """The head of a chat, without its messages."""

    id: str = field(default_factory=new_id)
    title: str = ""  # empty: still untitled; shown as "New chat"
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    pinned: bool = False
    folder: str = ""  # its name; empty: in none
    leaf: str = ""  # id of the last message of the branch that is shown; empty: of the newest
    draft: str = ""  # what stands in the composer, unsent
    choices: dict[str, Any] = field(default_factory=dict)  # made for this chat alone: persona, sampling, model, ...
    queued: Unsent | None = None  # sent when the answer that is being written ends


@dataclass(frozen=True)
class BinnedChat:
    """A deleted chat that can still be restored."""

    conversation: Conversation
    deleted_at: float  # seconds since the epoch


@dataclass(frozen=True)
class WholeChat:
    """A chat with all its messages, of every branch."""

    conversation: Conversation
    messages: tuple[Message, ...]

    def with_new_ids(self) -> WholeChat:
        """A copy that can stand beside this one."""
        new = {"": ""} | {message.id: new_id() for message in self.messages}
        messages = tuple(replace(m, id=new[m.id], parent=new.get(m.parent, "")) for m in self.messages)
        return WholeChat(replace(self.conversation, id=new_id(), leaf=new.get(self.conversation.leaf, "")), messages)


@dataclass(frozen=True)
class SearchHit:
    """A conversation that matches a search, with the passage that matched (empty when only the title did).

    Marks are the places to highlight, each from a character to the one behind its last.
    """

    conversation: Conversation
    snippet: str = ""
    marks: tuple[tuple[int, int], ...] = ()  # in the snippet
    title_marks: tuple[tuple[int, int], ...] = ()  # in the conversation's title
    message_id: str = ""  # the message that the snippet is from


UNTITLED = noted("New chat")
TITLE_LENGTH = 60


def title_from(text: str) -> str:
    """The first title of a chat: the first line of its first message, cut at a word."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH + 1].rsplit(" ", 1)[0] if " " in line[: TITLE_LENGTH + 1] else line[:TITLE_LENGTH]
    return cut.rstrip(",;:.") + "…"


# ------------------------------------------------------------------ branches

# A chat's messages are given in the order in which they came into it, so a parent stands before its children.


def branch(messages: Sequence[Message], leaf: str) -> list[Message]:
    """The messages from the first one to that leaf; to the newest message where there is no such leaf."""
    by_id = {message.id: message for message in messages}
    at = by_id.get(leaf) or (messages[-1] if messages else None)
    way: list[Message] = []
    while at is not None:
        way.append(at)
        del by_id[at.id]  # so that parents that lead round in a circle, as in a damaged file, end
        at = by_id.get(at.parent)
    way.reverse()
    return way


def siblings(messages: Sequence[Message], message_id: str) -> list[str]:
    """The ids of all versions of a message, oldest first, itself among them: same parent, same role."""
    one = next((message for message in messages if message.id == message_id), None)
    return [m.id for m in messages if one is not None and (m.parent, m.role) == (one.parent, one.role)]


def newest_leaf(messages: Sequence[Message], message_id: str) -> str:
    """Where the branch through that message ends: the newest message that has it before it, or itself."""
    below, newest = {message_id}, message_id
    for message in messages:
        if message.parent in below and message.id not in below:
            below.add(message.id)
            newest = message.id
    return newest


@dataclass(frozen=True)
class TakenOut:
    """A message that was taken out of its chat, and where it stood."""

    message: Message
    earlier: frozenset[str]  # ids of the messages before it in the list
    followers: tuple[str, ...]
    leaf: str  # of the chat, when it was taken out


def take_out(messages: Sequence[Message], message_id: str, leaf: str) -> tuple[list[Message], TakenOut]:
    """The messages without that one, and what `put_in` needs; what followed it follows the one before it."""
    place = next(i for i, message in enumerate(messages) if message.id == message_id)
    gone = messages[place]
    followers = tuple(m.id for m in messages if m.parent == message_id)
    left = [replace(m, parent=gone.parent) if m.parent == message_id else m for m in messages if m is not gone]
    return left, TakenOut(gone, frozenset(m.id for m in messages[:place]), followers, leaf)


def put_in(messages: Sequence[Message], gone: TakenOut, parent: str) -> list[Message]:
    """The messages with that one back in its place, behind `parent` and before its followers."""
    back = [replace(m, parent=gone.message.id) if m.id in gone.followers else m for m in messages]
    back.insert(sum(m.id in gone.earlier for m in back), replace(gone.message, parent=parent))
    return back
