"""The content of an exported or printed chat: its messages in reading order, and its other branches. No Qt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from app.chat.store.chat_files import STATES, day, speaker
from app.chat.store.conversation import (
    UNTITLED,
    Attachment,
    CallState,
    Message,
    Role,
    ToolCall,
    WholeChat,
    branch,
    interrupted,
    newest_leaf,
)
from app.text.markdown_blocks import displayable
from app.tools.call_text import one_line
from app.translation import noted, tr, tr_n
from engine.text.thoughts import split

_CALL_STATES = {
    CallState.FAILED: noted("failed"),
    CallState.REFUSED: noted("refused"),
    CallState.NOT_RUN: noted("not run"),
}


@dataclass(frozen=True)
class Scope:
    """What goes along. message_id: one message alone; "" for the chat."""

    branches: bool = False  # all of them, not only the shown one
    thoughts: bool = False
    message_id: str = ""


@dataclass(frozen=True)
class Entry:
    """One message. text: plain if `is_own`, else Markdown. number: its place on the branch, from 1."""

    id: str
    number: int
    speaker: str
    is_own: bool
    text: str
    thought: str
    attachments: tuple[str, ...]  # their names
    calls: tuple[str, ...]  # of tools, a line each
    note: str  # why it is not complete; "" if it is
    version: int  # from 1
    versions: tuple[str, ...]  # ids of all versions of the message that are in the outline


class Section(NamedTuple):
    """A branch: all messages of the shown one first, then the rest of each other one from where it leaves."""

    entries: tuple[Entry, ...]
    is_shown: bool


class Outline(NamedTuple):
    title: str
    day: str
    sections: tuple[Section, ...]


def outline(chat: WholeChat, scope: Scope) -> Outline:
    """Return what is exported of a chat. Cost: linear in its messages, times the number of branches."""
    messages = {message.id: message for message in chat.messages}
    parts = _branches(chat, scope)
    present = {message.id for part in parts for message in part}
    versions: dict[tuple[str, Role], list[str]] = {}
    for message in chat.messages:
        if message.id in present:
            versions.setdefault((message.parent, message.role), []).append(message.id)
    numbers: dict[str, int] = {}
    for number, message in enumerate(parts[0] if parts else [], 1):
        numbers[message.id] = number
    for part in parts[1:]:
        for message in part:
            numbers[message.id] = numbers.get(message.parent, 0) + 1
    sections = []
    for place, part in enumerate(parts):
        entries = (
            _entry(messages[m.id], numbers[m.id], tuple(versions[m.parent, m.role]), scope.thoughts) for m in part
        )
        sections.append(Section(tuple(entries), place == 0))
    title = " ".join(displayable(chat.conversation.title).split()) or tr(UNTITLED)
    return Outline(title, day(chat.conversation.created_at), tuple(sections))


def _branches(chat: WholeChat, scope: Scope) -> list[list[Message]]:
    """Return the shown branch, and of each other branch the messages that are on no earlier one."""
    shown = branch(chat.messages, chat.conversation.leaf)
    if scope.message_id:
        return [[message for message in chat.messages if message.id == scope.message_id]]
    if not scope.branches:
        return [shown]
    parts, seen = [shown], {message.id for message in shown}
    for message in chat.messages:  # parents come before their children
        if message.id not in seen:
            rest = [one for one in branch(chat.messages, newest_leaf(chat.messages, message.id)) if one.id not in seen]
            seen.update(one.id for one in rest)
            parts.append(rest)
    return parts


def _entry(message: Message, number: int, versions: tuple[str, ...], thoughts: bool) -> Entry:
    message = interrupted(message)
    is_own = message.role is not Role.ASSISTANT
    reply = split(message.text)
    return Entry(
        id=message.id,
        number=number,
        speaker=displayable(speaker(message)),
        is_own=is_own,
        text=displayable(message.text) if is_own else reply.answer.strip("\n"),
        thought=displayable(reply.thought.strip()) if thoughts and not is_own else "",
        attachments=tuple(map(_attachment, message.attachments)),
        calls=tuple(map(_call, message.calls)),
        note=tr(STATES[message.state]) if message.state in STATES else "",
        version=versions.index(message.id) + 1,
        versions=versions,
    )


def _attachment(attachment: Attachment) -> str:
    n = attachment.n_pages
    return one_line(attachment.name) + (f" ({tr_n('{n} page', '{n} pages', n)})" if n else "")


def _call(call: ToolCall) -> str:
    words = tr("Tool: {name}", name=one_line(call.tool))
    return f"{words}, {tr(_CALL_STATES[call.state])}" if call.state in _CALL_STATES else words


def version_words(entry: Entry) -> str:
    """Return which version of its message an entry is; "" if there is one only."""
    if len(entry.versions) < 2:
        return ""
    return tr("Version {which} of {count}", which=entry.version, count=len(entry.versions))


def section_title(section: Section) -> str:
    """Return the heading of a branch other than the shown one."""
    return tr("Another version from message {number} on", number=section.entries[0].number)
