"""Reads the chats of Claude's data export: conversations.json.

Since 2026, messages name the one before them (`parent_message_uuid`); before, a chat is one row of messages. An answer
is a list of blocks: thoughts, texts, calls of tools and their results.
"""

from __future__ import annotations

import json
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
from app.chat.store.conversation import WholeChat

PROGRAM = "Claude"
_SAYS_NOTHING = {"token_budget", "flag"}
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".heic")


def is_chat(value: dict[str, Any]) -> bool:
    return isinstance(value.get("chat_messages"), list)


def chat(value: dict[str, Any], left_out: LeftOut) -> WholeChat:
    """Return a chat. Raises SkippedChatError."""
    head = Head(
        PROGRAM, string(value.get("uuid")), string(value.get("name")), seconds(value.get("created_at")),
        seconds(value.get("updated_at")), value.get("is_starred") is True, value.get("is_archived") is True,
    )  # fmt: skip
    model = string(value.get("model"))[:200]
    nodes: list[Node] = []
    for at, message in enumerate(objects(value["chat_messages"])):
        parent = message.get("parent_message_uuid")
        role = "user" if message.get("sender") == "human" else "assistant"
        node = Node(
            string(message.get("uuid")) or str(at), string(parent) if parent is not None else _last(nodes), role,
            seconds(message.get("created_at")), [*_pieces(message, left_out), *_files(message, left_out)],
        )  # fmt: skip
        node.attachments = [
            attachment(one.get("file_name"), one["extracted_content"])
            for one in objects(message.get("attachments"))
            if string(one.get("extracted_content"))
        ]
        if role == "assistant" and (by := string(message.get("model"))[:200] or model):
            node.stats["model"] = by
        nodes.append(node)
    return whole_chat(head, nodes, string(value.get("current_leaf_message_uuid")))


def _last(nodes: list[Node]) -> str:
    return nodes[-1].id if nodes else ""


def _pieces(message: dict[str, Any], left_out: LeftOut) -> Iterator[Piece]:
    blocks = objects(message.get("content"))
    if not blocks:
        yield Text(string(message.get("text")))
    for block in blocks:
        match string(block.get("type")):
            case "text":
                yield Text(string(block.get("text")))
            case "thinking":
                yield Thought(string(block.get("thinking")))
            case "redacted_thinking":
                yield left_out.other("thought")
            case "tool_use":
                yield from _call(block)
            case "tool_result":
                yield Result(
                    string(block.get("tool_use_id")), string(block.get("name")),
                    _result(block.get("content"), left_out), block.get("is_error") is True,
                )  # fmt: skip
            case "image":
                yield left_out.picture()
            case "voice_note":
                yield Text(string(block.get("text")))
                yield left_out.audio(block.get("title"))
            case kind if kind not in _SAYS_NOTHING:
                text = string(block.get("text"))
                yield Text(text) if text else left_out.other(kind)


def _call(block: dict[str, Any]) -> Iterator[Piece]:
    """Yield a call. A document that it writes ("artifact") is part of the answer, so its text is also shown there."""
    given = mapping(block.get("input"))
    if block.get("name") == "artifacts" and (document := string(given.get("content"))):
        title, language = string(given.get("title")), string(given.get("language"))
        fence = "`" * max(3, _longest_run(document) + 1)
        yield Text(f"**{title}**\n\n{fence}{language}\n{document}\n{fence}" if title else document)
        return
    yield Call(string(block.get("id")), string(block.get("name")), block.get("input"))


def _longest_run(text: str) -> int:
    longest = 0
    while "`" * (longest + 1) in text:
        longest += 1
    return longest


def _result(content: Any, left_out: LeftOut) -> str:
    if isinstance(content, str):
        return content
    parts = []
    for one in objects(content):
        if isinstance(one.get("text"), str):
            parts.append(one["text"])
        elif one.get("type") == "image":
            parts.append(left_out.picture().text)
        elif one.get("type") == "knowledge":
            parts.append("\n".join(filter(None, (string(one.get("title")), string(one.get("url"))))))
        else:
            parts.append(json.dumps(one, ensure_ascii=False)[:100_000])
    return "\n\n".join(parts)


def _files(message: dict[str, Any], left_out: LeftOut) -> Iterator[Text]:
    for one in objects(message.get("files")):
        name = string(one.get("file_name"))
        is_picture = one.get("file_kind") == "image" or name.lower().endswith(_PICTURES)
        yield left_out.picture(name) if is_picture else left_out.file(name)
    for one in objects(message.get("attachments")):
        if not string(one.get("extracted_content")):
            yield left_out.file(one.get("file_name"))
