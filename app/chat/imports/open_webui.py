"""Reads the chats that Open WebUI exports: a list of rows of its database, each with a `chat`.

`chat.history` is a tree (`messages`, `currentId`). Old exports have `chat.messages` alone, one row of messages.
Thoughts and calls of tools stand in the text as <details> elements.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from app.chat.imports.building import (
    Call,
    Head,
    LeftOut,
    Node,
    Piece,
    Result,
    Text,
    Thought,
    attachment,
    mapping,
    objects,
    seconds,
    string,
    whole_chat,
)
from app.chat.store.conversation import Attachment, MessageState, WholeChat

PROGRAM = "Open WebUI"
_DETAILS = re.compile(r'<details\b(?P<attributes>(?:[^>"]|"[^"]*")*)>(?P<inside>.*?)</details>', re.DOTALL)
_ATTRIBUTE = re.compile(r'([a-z_]+)="([^"]*)"')
_SUMMARY = re.compile(r"^\s*<summary>.*?</summary>", re.DOTALL)
_QUOTE = re.compile(r"^> ?", re.MULTILINE)


def is_chat(value: dict[str, Any]) -> bool:
    chat_ = mapping(value.get("chat"))
    return isinstance(chat_.get("history"), dict) or isinstance(chat_.get("messages"), list)


def chat(value: dict[str, Any], left_out: LeftOut) -> WholeChat:
    """Return a chat. Raises SkippedChatError."""
    inner = mapping(value.get("chat"))
    history = mapping(inner.get("history"))
    head = Head(
        PROGRAM, string(value.get("id")) or string(inner.get("id")), string(value.get("title") or inner.get("title")),
        seconds(value.get("created_at")) or seconds(inner.get("timestamp")), seconds(value.get("updated_at")),
        value.get("pinned") is True, value.get("archived") is True,
        string(mapping(inner.get("params")).get("system") or inner.get("system")),
    )  # fmt: skip
    tree = mapping(history.get("messages"))
    nodes: list[Node] = []
    if tree:
        nodes = [_node(key, mapping(one), mapping(one).get("parentId"), left_out) for key, one in tree.items()]
    else:
        for at, one in enumerate(objects(inner.get("messages"))):
            nodes.append(_node(string(one.get("id")) or str(at), one, nodes[-1].id if nodes else "", left_out))
    return whole_chat(head, nodes, string(history.get("currentId")))


def _node(key: str, message: dict[str, Any], parent: Any, left_out: LeftOut) -> Node:
    role, text = message.get("role"), message.get("content")
    node = Node(key, string(parent), "", seconds(message.get("timestamp")))
    if role == "user":
        node.role = "user"
        node.pieces = list(_content(text, left_out))
    elif role == "assistant":
        node.role = "assistant"
        for part in _content(text, left_out):
            node.pieces += _pieces(part.text)
        if model := string(message.get("modelName") or message.get("model"))[:200]:
            node.stats["model"] = model
        if message.get("error"):
            node.state = MessageState.FAILED
    for one in objects(message.get("files")):
        if attached := _attached(one):
            node.attachments.append(attached)
        elif node.role:
            is_picture = one.get("type") == "image" or string(one.get("content_type")).startswith("image/")
            node.pieces.append(left_out.picture(one.get("name")) if is_picture else left_out.file(one.get("name")))
    return node


def _content(content: Any, left_out: LeftOut) -> Iterator[Text]:
    """Yield the texts of a message: one text, or a list of parts as in OpenAI's API."""
    if isinstance(content, str):
        yield Text(content)
    for part in objects(content):
        if isinstance(part.get("text"), str):
            yield Text(part["text"])
        elif part.get("type") == "image_url":
            yield left_out.picture()
        else:
            yield left_out.other(part.get("type"))


def _pieces(text: str) -> Iterator[Piece]:
    at = 0
    for found in _DETAILS.finditer(text) if "<details" in text else ():
        values = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(found["attributes"])}
        kind = values.get("type")
        if kind not in ("reasoning", "tool_calls", "code_interpreter"):
            continue
        yield Text(text[at : found.start()])
        at = found.end()
        inside = html.unescape(_SUMMARY.sub("", found["inside"])).strip("\n")
        if kind == "reasoning":
            yield Thought(_QUOTE.sub("", inside))
        elif kind == "code_interpreter":
            yield Call("", "code_interpreter", {"code": inside})
            yield Result("", "code_interpreter", _decoded(values.get("output", "")))
        else:
            call = values.get("id", "")
            yield Call(call, values.get("name", ""), _json(values.get("arguments", "")))
            if values.get("done") == "true" or "result" in values:
                yield Result(call, values.get("name", ""), _decoded(values.get("result", "") or inside))
    yield Text(text[at:])


def _json(text: str) -> Any:
    """Return a JSON value, also one that was written twice: as a string of JSON."""
    value: Any = text
    for _ in range(2):
        if not isinstance(value, str) or len(value) > 1_000_000 or value.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            break
    return value


def _decoded(text: str) -> str:
    value = _json(text)
    return value if isinstance(value, str) else text


def _attached(one: dict[str, Any]) -> Attachment | None:
    """Return the text of a file that the export carries, or None."""
    inner = mapping(one.get("file"))
    text = string(mapping(inner.get("data")).get("content")) or string(one.get("content"))
    if not text or one.get("type") == "image":
        return None
    return attachment(one.get("name") or inner.get("filename"), text)
