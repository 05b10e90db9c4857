"""Reads the chats of GPT4All: one `gpt4all-*.chat` file each, written by Qt's QDataStream (big-endian).

Read are the versions 2 to 12 of the format, which GPT4All 2.4 to 3.10 wrote. Messages have neither times nor ids. The
order of the values is from GPT4All's own sources: chat.cpp, chatmodel.h, chatmodel.cpp, tool.cpp, chatllm.cpp.
"""

from __future__ import annotations

import struct
from typing import Any
from urllib.parse import unquote, urlsplit

from app.chat.imports.building import (
    Call,
    Head,
    LeftOut,
    Node,
    Piece,
    Result,
    SkippedChatError,
    Text,
    Thought,
    attachment,
    seconds,
    whole_chat,
)
from app.chat.store.conversation import Attachment, WholeChat

PROGRAM = "GPT4All"
MAGIC = 0xF5D553CC
VERSIONS = range(2, 13)
DEEPEST = 8  # levels of parts of an answer; GPT4All has three
_NULL = 0xFFFFFFFF
_TAGS = ("<think>", "</think>", "<javascript_interpret>", "</javascript_interpret>")
_SIZES = {1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 8}  # bytes of a QVariant: bool, int, uint, qlonglong, qulonglong, double


class _DamagedError(SkippedChatError):
    def __init__(self) -> None:
        super().__init__("damaged")


def chat(data: bytes, changed_at: float, left_out: LeftOut) -> WholeChat:
    """Return a chat. changed_at: when the file was changed, in s since the epoch. Raises SkippedChatError."""
    stream = _Stream(data)
    try:
        return _chat(stream, changed_at, left_out)
    except (struct.error, UnicodeError, ValueError) as error:
        raise _DamagedError from error


def is_chat(head: bytes) -> bool:
    return head[:4] == MAGIC.to_bytes(4, "big")


def _chat(stream: _Stream, changed_at: float, left_out: LeftOut) -> WholeChat:
    if stream.number(">I") != MAGIC:
        raise _DamagedError
    version = stream.number(">i")
    if version not in VERSIONS:
        raise SkippedChatError("version")
    created = seconds(stream.number(">q"))
    chat_id, name, _user, model = (stream.text() for _ in range(4))
    if version >= 3:
        for _ in range(stream.count(4)):
            stream.text()  # the names of collections of documents
    if version < 11:
        _pass_over_model_state(stream, version)
    nodes: list[Node] = []
    for at in range(stream.count(4)):
        node = Node(str(at), str(at - 1) if at else "", "")
        _Item(stream, version, left_out).read(node)
        if node.role == "assistant" and model:
            node.stats["model"] = model[:200]
        nodes.append(node)
    updated = max(changed_at, created or 0.0)
    return whole_chat(Head(PROGRAM, chat_id, name, created, updated), nodes, nodes[-1].id if nodes else "")


def _pass_over_model_state(stream: _Stream, version: int) -> None:
    has_state = stream.number(">?") if version >= 6 else True
    stream.number(">i")  # kind of model
    stream.number(">i")  # version of its state
    stream.text()
    stream.text()
    stream.number(">I")
    if not has_state:
        return
    if version < 4:
        stream.number(">I")
    stream.number(">I")
    if version >= 7:
        stream.number(">I")
    if version < 9:
        stream.skip(4 * stream.number(">Q"))
    stream.skip(4 * stream.number(">Q"))
    stream.raw()


class _Stream:
    """Values in the order in which QDataStream wrote them. Raises _DamagedError at the end of the data."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def skip(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._at:
            raise _DamagedError
        self._at += size

    def number(self, layout: str) -> Any:
        at = self._at
        self.skip(struct.calcsize(layout))
        return struct.unpack_from(layout, self._data, at)[0]

    def count(self, size: int) -> int:
        """Return the number of items that follow, in `size` bytes. Each takes at least one byte."""
        found: int = self.number(">i" if size == 4 else ">q")
        if not 0 <= found <= len(self._data) - self._at:
            raise _DamagedError
        return found

    def raw(self) -> bytes:
        size = self.number(">I")
        if size == _NULL:
            return b""
        at = self._at
        self.skip(size)
        return self._data[at : self._at]

    def text(self) -> str:
        return self.raw().decode("utf-16-be", "surrogatepass")


class _Item:
    def __init__(self, stream: _Stream, version: int, left_out: LeftOut) -> None:
        self._stream, self._version, self._left_out = stream, version, left_out

    def read(self, node: Node) -> None:
        stream, version = self._stream, self._version
        if version < 12:
            stream.number(">i")  # id
        kind, value = stream.text(), stream.text()
        if version < 10:
            stream.text()  # prompt
        stream.text()  # newResponse
        for _ in range(4):  # isCurrentResponse, stopped, thumbsUpState, thumbsDownState
            stream.number(">?")
        if version >= 11 and kind == "Response: ":
            stream.number(">?")  # isError
        sources = self._sources() if version >= 3 else []
        attached = self._attachments(node) if version >= 10 else []
        if version >= 12:
            for _ in range(stream.count(8)):
                self._part(node.pieces, DEEPEST)
        if kind == "Prompt: ":
            node.role = "user"
        elif kind == "Response: ":
            node.role = "assistant"
        elif kind != "System: ":
            raise _DamagedError
        node.pieces.append(Text(value))
        node.attachments = sources + attached if node.role == "user" else []

    def _sources(self) -> list[Attachment]:
        """Return the excerpts of the user's documents that GPT4All added to a question."""
        stream = self._stream
        if self._version < 8:
            stream.text()
            return [attachment("", stream.text()) for _ in range(stream.count(4))]
        found = []
        for _ in range(stream.count(8)):
            _collection, _path, file, _title, _author, _date, text = (stream.text() for _ in range(7))
            for _ in range(3):
                stream.number(">i")
            found.append(attachment(file, text))
        return found

    def _attachments(self, node: Node) -> list[Attachment]:
        stream, found = self._stream, []
        for _ in range(stream.count(8)):
            address, content = stream.raw().decode("ascii", "replace"), stream.raw()
            name = unquote(urlsplit(address).path).rpartition("/")[2]
            if name.lower().endswith(".xlsx") or b"\0" in content[:4096]:
                node.pieces.append(self._left_out.file(name))
            else:
                found.append(attachment(name, content.decode("utf-8", "replace")))
        return found

    def _part(self, pieces: list[Piece], left: int) -> None:
        """Read a part of an answer. Texts after its own parts come last."""
        if left == 0:
            raise _DamagedError
        stream = self._stream
        kind, value = stream.text(), stream.text()
        inner: list[Piece] = []
        match kind:
            case "Think: ":
                stream.number(">i")  # ms
                inner.append(Thought(_untagged(value)))
            case "ToolCall: ":
                name, result = self._call()
                inner.append(Call("", name or "javascript_interpret", {"code": _untagged(value)}))
                inner.append(Result("", name, result))
            case "ToolResponse: ":
                pass  # the same as the result of the call
            case "Response: " | "Text: ":
                inner.append(Text(value))
            case _:
                raise _DamagedError
        for _ in range(stream.count(8)):
            self._part(pieces, left - 1)
        pieces += inner

    def _call(self) -> tuple[str, str]:
        stream = self._stream
        name = stream.text()
        for _ in range(stream.count(8)):
            stream.text()
            stream.number(">i")
            self._pass_over_variant()
        result = stream.text()
        stream.number(">i")
        error = stream.text()
        return name, result or error

    def _pass_over_variant(self) -> None:
        stream = self._stream
        kind = stream.number(">I")
        stream.number(">?")
        if kind == 10:
            stream.text()
        elif kind in _SIZES:
            stream.skip(_SIZES[kind])
        elif kind:
            raise _DamagedError


def _untagged(value: str) -> str:
    text = value.strip()
    for tag in _TAGS:
        text = text.removeprefix(tag).removesuffix(tag).strip()
    return text.removeprefix("```javascript").removesuffix("```").strip("\n")
