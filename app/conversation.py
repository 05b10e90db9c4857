"""A chat as plain data. Knows nothing of Qt, of storage or of the engine."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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


@dataclass(frozen=True)
class Message:
    """One turn. `stats` holds the fields of engine.protocol.GenerationResult that are worth keeping (no text)."""

    role: Role
    text: str
    id: str = field(default_factory=new_id)
    created_at: float = field(default_factory=time.time)  # seconds since the epoch
    state: MessageState = MessageState.COMPLETE
    stats: dict[str, Any] | None = None


@dataclass(frozen=True)
class Conversation:
    """The head of a chat, without its messages."""

    id: str = field(default_factory=new_id)
    title: str = ""  # empty: still untitled; shown as "New chat"
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class SearchHit:
    """A conversation that matches a search, with the passage that matched (empty when it was the title)."""

    conversation: Conversation
    snippet: str = ""


TITLE_LENGTH = 60


def title_from(text: str) -> str:
    """The first title of a chat: the first line of its first message, cut at a word."""
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[: TITLE_LENGTH + 1].rsplit(" ", 1)[0] if " " in line[: TITLE_LENGTH + 1] else line[:TITLE_LENGTH]
    return cut.rstrip(",;:.") + "…"
