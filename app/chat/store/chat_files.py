"""Chats as files: JSON with everything, and Markdown to read.

JSON that is read and written again has the same bytes. app/chat/store/chat_file_check.py checks what is read. No Qt.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from app.chat.store.chat_file_check import FORMAT, NOT_IN_FILES, VERSION, parsed
from app.chat.store.conversation import (
    UNTITLED,
    Attachment,
    Message,
    MessageState,
    Role,
    ToolCall,
    WholeChat,
    branch,
    interrupted,
)
from app.errors import ChatFileError
from app.translation import noted, tr, tr_n

__all__ = [
    "ChatFileError",
    "file_name",
    "is_ours",
    "plain",
    "read_json",
    "write_json",
    "write_markdown",
    "write_markdown_folder",
]

MOST_FILE_BYTES = 128 << 20
_LONGEST_NAME = 80  # characters of a file name: at most 240 bytes; file systems allow 255
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])")  # names reserved by Windows
STATES = {
    MessageState.CANCELLED: noted("Stopped"), MessageState.LENGTH: noted("Cut off at the limit"),
    MessageState.FAILED: noted("Not finished"), MessageState.INTERRUPTED: noted("Interrupted"),
    MessageState.WRITING: noted("Interrupted"),
}  # fmt: skip


# --- JSON


def is_ours(path: Path) -> bool:
    """Return whether a file begins like one that `write_json` wrote. Raises OSError."""
    if path.exists() and not path.is_file():
        return False
    with path.open("rb") as file:
        return f'"{FORMAT}"'.encode() in file.read(4096)


def read_json(path: Path) -> list[WholeChat]:
    """Return the chats in a file. Raises ChatFileError, and OSError if it cannot be read."""
    if path.exists() and not path.is_file():  # a pipe would hold up everything behind it
        raise ChatFileError(tr("This file does not contain chats that Hearth exported."))
    with path.open("rb") as file:
        data = file.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise ChatFileError(
            tr(
                "This file is larger than {most} MiB. Hearth does not read files of that size.",
                most=MOST_FILE_BYTES >> 20,
            )
        )
    return parsed(data)


def write_json(path: Path, chats: Iterable[WholeChat]) -> int:
    """Write chats to one file atomically. Returns their number. Raises OSError."""
    written = 0
    with replacing(path) as file:
        file.write(f'{{"format": "{FORMAT}", "version": {VERSION}, "chats": [')
        for chat in chats:
            file.write("\n" if not written else ",\n")
            json.dump(plain(chat), file, ensure_ascii=False, indent=1, allow_nan=False)
            written += 1
        file.write("\n]}\n")
    return written


def plain(chat: WholeChat) -> dict[str, Any]:
    """Return a chat as JSON values, without its draft."""
    c = chat.conversation
    choices = {name: value for name, value in c.choices.items() if name not in NOT_IN_FILES}
    leaf = c.leaf if any(message.id == c.leaf for message in chat.messages) else ""
    values = {
        "id": c.id, "title": c.title, "created_at": float(c.created_at), "updated_at": float(c.updated_at),
        "pinned": c.pinned, "folder": c.folder, "leaf": leaf, "choices": choices,
        "messages": [_plain_message(m) for m in chat.messages],
    }  # fmt: skip
    return dict(storable(values))


def _plain_message(m: Message) -> dict[str, Any]:
    m = interrupted(m)
    values: dict[str, Any] = {
        "id": m.id, "parent": m.parent, "role": str(m.role), "created_at": float(m.created_at),
        "state": str(m.state), "text": m.text,
    }  # fmt: skip
    if m.attachments:
        values["attachments"] = [asdict(one) for one in m.attachments]
    if m.calls:
        values["calls"] = [asdict(one) for one in m.calls]
    if m.stats is not None:
        values["stats"] = m.stats
    return values


def storable(value: Any) -> Any:
    """Return a value with replacements for what UTF-8 and JSON cannot hold: lone surrogates, infinite numbers."""
    match value:
        case dict():
            return {storable(str(name)): storable(one) for name, one in value.items()}
        case list() | tuple():
            return [storable(one) for one in value]
        case str() if not value.isascii():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case float() if not math.isfinite(value):
            return None
    return value


# --- Markdown


def write_markdown(path: Path, chat: WholeChat) -> None:
    """Write the shown branch of a chat as Markdown. Raises OSError."""
    with replacing(path) as file:
        for part in _markdown(chat):
            file.write(storable(part))


def write_markdown_folder(folder: Path, chats: Iterable[WholeChat]) -> int:
    """Write each chat to a file of its own, in a subfolder named after its folder. Returns their number.

    Existing files are not overwritten: a number is added to the name. Raises OSError.
    """
    written = 0
    for chat in chats:
        c = chat.conversation
        place = folder / file_name(c.folder) if c.folder else folder
        place.mkdir(parents=True, exist_ok=True)
        name, number = file_name(c.title), 1
        path = place / f"{name}.md"
        while path.exists():
            number += 1
            path = place / f"{name} ({number}).md"
        write_markdown(path, chat)
        written += 1
    return written


def file_name(title: str) -> str:
    """Return a file name without extension, made from a chat's title, that every system accepts."""
    title = unicodedata.normalize("NFC", storable(title))
    kept = "".join(
        " " if letter in '<>:"/\\|?*' or unicodedata.category(letter)[0] == "C" else letter for letter in title
    )
    name = " ".join(kept.split())[:_LONGEST_NAME].strip(" .")
    while len(name.encode()) > 3 * _LONGEST_NAME:  # emoji take four bytes
        name = name[:-1].strip(" .")
    if _RESERVED.fullmatch(name.split(".")[0].strip()):
        name = f"_{name}"
    return name or tr(UNTITLED)


def _markdown(chat: WholeChat) -> Iterator[str]:
    title = " ".join(chat.conversation.title.split()) or tr(UNTITLED)
    yield f"# {title}\n\n*{day(chat.conversation.created_at)}*\n"
    for message in branch(chat.messages, chat.conversation.leaf):
        yield f"\n## {speaker(message)}\n"
        for attachment in message.attachments:
            yield from _attached(attachment)
        if text := message.text.strip("\n"):
            yield f"\n{text}\n"
        for call in message.calls:
            yield from _called(call)
        if words := STATES.get(message.state):
            yield f"\n*{tr(words)}*\n"


def speaker(message: Message) -> str:
    """Return who wrote a message: you, the instructions, or the model by its name."""
    if message.role is Role.USER:
        return tr("You")
    if message.role is Role.SYSTEM:
        return tr("Instructions")
    model = (message.stats or {}).get("model")
    return " ".join(model.split()) if isinstance(model, str) and model.strip() else tr("Answer")


def _attached(attachment: Attachment) -> Iterator[str]:
    if (source := attachment.source) is not None:  # of a whole document, the name alone
        words = ", ".join(part for part in (attachment.name, source.label) if part)
        yield f"\n**[{source.number}] {' '.join(words.split())}**\n"
        if source.part:
            yield f"\n{_fenced(attachment.text)}"
        return
    n = attachment.n_pages
    pages = f" ({tr_n('{n} page', '{n} pages', n)})" if n else ""
    yield f"\n**{' '.join(attachment.name.split())}**{pages}\n\n{_fenced(attachment.text)}"


def _called(call: ToolCall) -> Iterator[str]:
    given = json.dumps(call.arguments, ensure_ascii=False, indent=1)
    yield f"\n**{tr('Tool: {name}', name=call.tool)}**\n\n{_fenced(given)}"
    if call.result:
        yield f"\n{_fenced(call.result)}"


def _fenced(text: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}\n{text}{end}{fence}\n"


def day(seconds: float) -> str:
    try:
        date = datetime.fromtimestamp(seconds).astimezone()
    except (OverflowError, OSError, ValueError):  # a wrong clock; Windows rejects more than others
        return "–"
    return f"{date:%Y-%m-%d}"


# --- writing


@contextlib.contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file that replaces the existing one only when it is complete. mode: "w" for UTF-8 text, "wb" for bytes."""
    unfinished = path.with_name(f".{path.name[:40]}.{os.getpid()}.part")
    try:
        text = {"encoding": "utf-8", "newline": "\n"} if mode == "w" else {}
        with unfinished.open(mode, **text) as file:  # type: ignore[call-overload]
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
