"""Checks a file of chats value by value: turns any JSON into chats, or raises an error that says what is wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args

from app.chat.store.conversation import (
    LOCAL_CHOICES,
    Attachment,
    AttachmentKind,
    CallState,
    Conversation,
    Message,
    MessageState,
    Role,
    Source,
    ToolCall,
    WholeChat,
    interrupted,
)
from app.chat.store.json_steps import STEP_BYTES, TooManyContainersError, decoded, require_utf8
from app.clients.servers import CHOICE
from app.errors import ChatFileError
from app.translation import tr
from engine.service.protocol import GenerationResult

FORMAT = "hearth-chats"
VERSION = 1

# Far above what users write, far below what would do harm.
MOST_CHATS = 100_000
MOST_MESSAGES = 200_000  # of one chat
MOST_CONTAINERS = 1_000_000  # lists and objects in a file; each takes at least 64 bytes
LONGEST_PATH = 4_096
LONGEST_TEXT = 16 << 20  # characters of a message or an attachment
LONGEST_TITLE = 40_000
MOST_ATTACHMENTS = 200
MOST_CALLS = 1_000  # of tools, in one message
MOST_PAGES = 1_000_000
LONGEST_PLAIN = 1 << 20  # characters of a chat's choices or an answer's statistics, as JSON
DEEPEST_PLAIN = 16
LAST_TIME = 253_402_214_400.0  # the end of year 9999; later dates cannot be shown

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NUMBER = {"int", "float", "int | None", "float | None"}
# Only the window may send a chat to a server, switch tools on and let them run, never a file.
NOT_IN_FILES = (CHOICE, *LOCAL_CHOICES)
_STATS: dict[str, str] = {field.name: str(field.type) for field in fields(GenerationResult)}


def parsed(data: bytes) -> list[WholeChat]:
    """Return the chats in a file's bytes. Raises ChatFileError. Cost: about ten times the bytes in memory."""
    try:
        require_utf8(data)
        file = decoded(data, MOST_CONTAINERS)
    except UnicodeDecodeError:
        raise ChatFileError(tr("This file is not a text in UTF-8.")) from None
    except TooManyContainersError:
        raise ChatFileError(tr("This file contains more values than Hearth reads.")) from None
    except ValueError:
        raise ChatFileError(tr("This file is not JSON, or it is cut off.")) from None
    if not isinstance(file, dict) or file.get("format") != FORMAT:
        raise ChatFileError(tr("This file does not contain chats that Hearth exported."))
    version = file.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ChatFileError(tr("This file was written by a later version of Hearth."))
    _check(version == VERSION, tr("the file"), tr("the version"))
    chats = _list(file, "chats", MOST_CHATS, tr("the file"))
    found = [_chat(chat, tr("chat {number}", number=number)) for number, chat in enumerate(chats, 1)]
    _check_unique([c.conversation.id for c in found], tr("the file"))
    _check_unique([m.id for c in found for m in c.messages], tr("the file"))
    return found


def _chat(values: Any, where: str) -> WholeChat:
    _check(isinstance(values, dict), where, tr("the chat itself"))
    messages: list[Message] = []
    known = {""}
    for number, one in enumerate(_list(values, "messages", MOST_MESSAGES, where), 1):
        message = _message(one, tr("{where}, message {number}", where=where, number=number))
        # A parent comes before its children, so there are no cycles.
        _check(
            message.parent in known and message.id not in known,
            tr("{where}, message {number}", where=where, number=number),
            tr("the parent"),
        )
        known.add(message.id)
        messages.append(message)
    leaf = _text(values, "leaf", 64, where, "")
    _check(leaf in known, where, tr("the leaf"))
    pinned = values.get("pinned", False)
    _check(isinstance(pinned, bool), where, "pinned")
    choices = _plain(values.get("choices", {}), where, tr("the choices"))
    for name in NOT_IN_FILES:
        choices.pop(name, None)
    conversation = Conversation(
        _id(values, where), _text(values, "title", LONGEST_TITLE, where, ""), _time(values, "created_at", where),
        _time(values, "updated_at", where), pinned, _text(values, "folder", LONGEST_TITLE, where, ""), leaf,
        choices=choices,
    )  # fmt: skip
    return WholeChat(conversation, tuple(messages))


def _message(values: Any, where: str) -> Message:
    _check(isinstance(values, dict), where, tr("the message itself"))
    role, state = values.get("role"), values.get("state", "complete")
    _check(isinstance(role, str) and role in set(Role), where, tr("the role"))
    _check(isinstance(state, str) and state in set(MessageState), where, tr("the state"))
    state = MessageState(state)
    attachments = _list(values, "attachments", MOST_ATTACHMENTS, where) if "attachments" in values else []
    calls = _list(values, "calls", MOST_CALLS, where) if "calls" in values else []
    stats = None
    if values.get("stats") is not None:
        stats = _plain(values["stats"], where, tr("the statistics"))
        for name, value in stats.items():
            _check(_is_statistic(name, value), where, tr("the statistic {name}", name=name[:40]))
        stats.pop("server_here", None)  # true on the PC that wrote the file, unknown on this one
    return interrupted(Message(
        Role(role), _text(values, "text", LONGEST_TEXT, where), _id(values, where), _time(values, "created_at", where),
        state, stats,
        _text(values, "parent", 64, where, ""),
        tuple(_attachment(one, tr("{where}, attachment {number}", where=where, number=number))
              for number, one in enumerate(attachments, 1)),
        tuple(_call(one, tr("{where}, call {number}", where=where, number=number))
              for number, one in enumerate(calls, 1)),
    ))  # fmt: skip


def _attachment(values: Any, where: str) -> Attachment:
    _check(isinstance(values, dict), where, tr("the attachment itself"))
    kind, n_pages = values.get("kind"), values.get("n_pages", 0)
    _check(isinstance(kind, str) and kind in get_args(AttachmentKind), where, tr("the kind"))
    _check(
        isinstance(n_pages, int) and n_pages is not True and 0 <= n_pages <= MOST_PAGES,
        where,
        tr("the number of pages"),
    )
    name, text = _text(values, "name", LONGEST_TITLE, where), _text(values, "text", LONGEST_TEXT, where)
    source = values.get("source")
    return Attachment(name, text, kind, n_pages, None if source is None else _source(source, where))


def _source(values: Any, where: str) -> Source:
    _check(isinstance(values, dict), where, tr("the source"))
    numbers = [values.get(name, 0) for name in ("number", "part", "line")]
    _check(all(type(one) is int and 0 <= one < 2**31 for one in numbers), where, tr("the place of the source"))
    path, label = _text(values, "path", LONGEST_PATH, where), _text(values, "label", LONGEST_TITLE, where, "")
    return Source(numbers[0], path, numbers[1], numbers[2], label)


def _call(values: Any, where: str) -> ToolCall:
    _check(isinstance(values, dict), where, tr("the call itself"))
    state, seconds = values.get("state"), values.get("seconds")
    _check(isinstance(state, str) and state in set(CallState), where, tr("the state"))
    _check(seconds is None or _is_finite(seconds), where, "seconds")
    return ToolCall(
        _text(values, "id", 64, where), _text(values, "tool", LONGEST_TITLE, where),
        _plain(values.get("arguments"), where, tr("the arguments")), CallState(state),
        _text(values, "source", LONGEST_TITLE, where, ""), _text(values, "scope", LONGEST_TITLE, where, ""),
        _text(values, "result", LONGEST_TEXT, where, ""), seconds,
    )  # fmt: skip


def _is_statistic(name: str, value: Any) -> bool:
    """Whether a statistic has the type that the window expects."""
    match _STATS.get(name):
        case None:
            return True  # from a later version, or measured by the window
        case "str":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
        case kind if kind in _NUMBER:
            return (value is None and kind.endswith("None")) or (_is_finite(value))
        case _:
            return True


# --- single values


def _check(is_right: bool, where: str, what: str) -> None:
    if not is_right:
        raise ChatFileError(tr("This file is damaged: in {where}, {what} is wrong.", where=where, what=what))


def _check_unique(ids: list[str], where: str) -> None:
    _check(len(set(ids)) == len(ids), where, tr("an id that occurs twice"))


def _list(values: dict[str, Any], name: str, most: int, where: str) -> list[Any]:
    found = values.get(name)
    _check(isinstance(found, list) and len(found) <= most, where, name)
    return found  # type: ignore[return-value]  # just checked


def _text(values: dict[str, Any], name: str, longest: int, where: str, default: str | None = None) -> str:
    found = values.get(name, default)
    _check(isinstance(found, str) and len(found) <= longest and _is_utf8(found), where, name)
    return str(found)


def _is_utf8(text: str) -> bool:
    """Return whether a text has no lone surrogates, which neither files nor the database can hold."""
    if text.isascii():
        return True
    try:
        for at in range(0, len(text), STEP_BYTES):  # in steps: other threads wait while C works on a string
            text[at : at + STEP_BYTES].encode()
    except UnicodeEncodeError:
        return False
    return True


def _id(values: dict[str, Any], where: str) -> str:
    found = _text(values, "id", 64, where)
    _check(_ID.fullmatch(found) is not None, where, tr("the id"))
    return found


def _time(values: dict[str, Any], name: str, where: str) -> float:
    found = values.get(name)
    _check(_is_finite(found) and 0 <= float(found or 0) <= LAST_TIME, where, name)
    return float(found or 0)


def _is_finite(value: Any) -> bool:
    """Return whether a value is a number that the database and a line of text can hold."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _plain(values: Any, where: str, what: str) -> dict[str, Any]:
    """Return a dictionary of plain values, neither deep nor large."""
    _check(isinstance(values, dict) and _is_short(values) and _depth_is_fine(values, DEEPEST_PLAIN), where, what)
    _check(all(_is_utf8(text) for text in _texts(values)), where, what)
    _check(len(json.dumps(values, ensure_ascii=False)) <= LONGEST_PLAIN, where, what)
    return dict(values)


def _is_short(values: dict[str, Any]) -> bool:
    """Whether its texts and numbers could fit LONGEST_PLAIN characters. Asked first: json.dumps holds up the window."""
    left, waiting = LONGEST_PLAIN, [values]
    while waiting and left >= 0:
        one: Any = waiting.pop()
        if isinstance(one, str | dict | list):
            left -= len(one)
        if isinstance(one, dict) and left >= 0:
            waiting += [*one, *one.values()]
        elif isinstance(one, list) and left >= 0:
            waiting += one
    return left >= 0


def _depth_is_fine(value: Any, left: int) -> bool:
    if isinstance(value, dict | list):
        return left > 0 and all(
            _depth_is_fine(one, left - 1) for one in (value.values() if isinstance(value, dict) else value)
        )
    return isinstance(value, str | bool | None) or _is_finite(value)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, one in value.items():
                yield name
                yield from _texts(one)
        case list():
            for one in value:
                yield from _texts(one)
