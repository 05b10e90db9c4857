"""Small exports of other programs, made by code."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QDataStream, QIODevice, QUrl

from app.chat.imports.json_stream import Skipped
from app.chat.imports.sources import Export
from app.chat.store.conversation import Message, Role, WholeChat, branch

AT = 1_700_000_000.0


class Read:
    """What an export has: chats, skipped ones by reason, left-out parts by kind, the number of cut files."""

    def __init__(self, *paths: Path) -> None:
        export = Export(paths)
        found = list(export.chats())
        self.chats = [one for one in found if isinstance(one, WholeChat)]
        self.skipped = Counter(one.why for one in found if isinstance(one, Skipped))
        self.left_out, self.cut = dict(export.left_out.counts), len(export.cut)

    @property
    def chat(self) -> WholeChat:
        assert len(self.chats) == 1, (self.chats, self.skipped)
        return self.chats[0]


def shown(chat: WholeChat) -> list[tuple[str, str]]:
    """The shown branch as (role, text)."""
    return [(str(m.role), m.text) for m in branch(chat.messages, chat.conversation.leaf)]


def answer_of(chat: WholeChat) -> Message:
    return next(m for m in chat.messages if m.role is Role.ASSISTANT)


# --- ChatGPT


def gpt_node(key: str, parent: str | None, role: str, parts: list[Any], **more: Any) -> dict[str, Any]:
    """more: kind, at, content, metadata, recipient, name."""
    content = more.get("content") or {"content_type": more.get("kind", "text"), "parts": parts}
    return {
        "id": key, "parent": parent, "children": [],
        "message": {
            "id": key, "author": {"role": role, "name": more.get("name")}, "create_time": more.get("at", AT),
            "content": content, "metadata": more.get("metadata", {}), "recipient": more.get("recipient", "all"),
        },
    }  # fmt: skip


def gpt_chat(nodes: list[dict[str, Any]], current: str = "", **head: Any) -> dict[str, Any]:
    root = {"id": "root", "parent": None, "children": [], "message": None}
    return {
        "title": "Herons", "create_time": AT, "update_time": AT + 100, "conversation_id": "c-1",
        "mapping": {one["id"]: one for one in (root, *nodes)}, "current_node": current or nodes[-1]["id"], **head,
    }  # fmt: skip


def simple_gpt_chat(key: str = "c-1", text: str = "hello", **head: Any) -> dict[str, Any]:
    nodes = [
        gpt_node("q", "root", "user", [text]),
        gpt_node("a", "q", "assistant", [f"about {text}"], at=AT + 1, metadata={"model_slug": "gpt-4o"}),
    ]
    return gpt_chat(nodes, conversation_id=key, **head)


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


# --- GPT4All


def gpt4all_chat(version: int = 12, think: bool = True) -> bytes:
    """A chat file, written by Qt itself in the order of GPT4All's own writer."""
    data = QByteArray()
    out = QDataStream(data, QIODevice.OpenModeFlag.WriteOnly)
    out.writeUInt32(0xF5D553CC)
    out.writeInt32(version)
    out.setVersion(QDataStream.Version.Qt_6_2)
    out.writeInt64(int(AT))
    for text in ("id-1", "Herons", "", "llama-3.gguf"):
        out.writeQString(text)
    if version >= 3:
        out.writeUInt32(1)
        out.writeQString("my documents")
    if version < 11:
        if version >= 6:
            out.writeBool(False)
        out.writeInt32(1)
        out.writeInt32(0)
        out.writeQString("")
        out.writeQString("")
        out.writeUInt32(0)
        if version < 6:
            if version < 4:
                out.writeUInt32(0)
            out.writeInt32(0)
            out.writeUInt64(2)
            for _ in range(2):
                out.writeFloat(0.0) if False else out.writeInt32(0)
            out.writeUInt64(1)
            out.writeInt32(0)
            _bytes(out, b"state")
    out.writeInt32(2)
    _item(out, version, "Prompt: ", "What is a heron? 🪶", attached=(("file:///home/me/notes%20a.txt", b"a note"),))
    _item(out, version, "Response: ", "A bird.", parts=_thought if think and version >= 12 else None)
    return bytes(data.data())


def _bytes(out: QDataStream, data: bytes) -> None:
    out.writeUInt32(len(data))
    out.writeRawData(data)


def _item(out: QDataStream, version: int, kind: str, value: str, attached: Any = (), parts: Any = None) -> None:
    if version < 12:
        out.writeInt32(0)
    out.writeQString(kind)
    out.writeQString(value)
    if version < 10:
        out.writeQString("")
    out.writeQString("")
    for _ in range(4):
        out.writeBool(False)
    if version >= 11 and kind == "Response: ":
        out.writeBool(False)
    if version >= 8:
        out.writeInt64(1 if kind == "Prompt: " else 0)
        if kind == "Prompt: ":
            for text in ("my documents", "/x/birds.txt", "birds.txt", "", "", "", "Herons wade."):
                out.writeQString(text)
            for _ in range(3):
                out.writeInt32(-1)
    elif version >= 3:
        out.writeQString("1. In birds.txt. [Context](context://1)" if kind == "Response: " else "")
        out.writeUInt32(0)
    if version >= 10:
        out.writeInt64(len(attached))
        for address, content in attached:
            _bytes(out, QUrl(address).toEncoded().data())
            _bytes(out, content)
    if version >= 12:
        if parts is None:
            out.writeInt64(0)
        else:
            parts(out)


def _thought(out: QDataStream) -> None:
    """A thought and a call of the interpreter, each in a container, as GPT4All 3.10 writes them."""
    out.writeInt64(3)
    out.writeQString("Response: ")
    out.writeQString("")
    out.writeInt64(1)
    out.writeQString("Think: ")
    out.writeQString("<think>\nIt wades.\n</think>")
    out.writeInt32(1200)
    out.writeInt64(0)
    out.writeQString("Response: ")
    out.writeQString("")
    out.writeInt64(2)
    out.writeQString("Text: ")
    out.writeQString("I compute:")
    out.writeInt64(0)
    out.writeQString("ToolCall: ")
    out.writeQString("<javascript_interpret>\n```javascript\nconsole.log(6*7)\n```\n</javascript_interpret>")
    out.writeQString("javascript_interpret")
    out.writeInt64(1)
    out.writeQString("code")
    out.writeInt32(0)
    out.writeQVariant("console.log(6*7)")
    out.writeQString("42")
    out.writeInt32(0)
    out.writeQString("")
    out.writeInt64(0)
    out.writeQString("ToolResponse: ")
    out.writeQString("42")
    out.writeInt64(0)


# --- Claude


def claude_like(ids: list[str]) -> dict[str, Any]:
    """A chat of Claude with a question of each id."""
    messages = [{"uuid": one, "sender": "human", "text": f"text {n}"} for n, one in enumerate(ids)]
    return {"uuid": "u", "name": "Herons", "chat_messages": messages}
