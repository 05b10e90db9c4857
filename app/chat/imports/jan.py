"""Reads the threads of Jan: a folder each, with thread.json and messages.jsonl, in its folder `threads`."""

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
    mapping,
    objects,
    seconds,
    string,
    whole_chat,
)
from app.chat.store.conversation import MessageState, WholeChat

PROGRAM = "Jan"
_STATES = {"stopped": MessageState.CANCELLED, "error": MessageState.FAILED}


def chat(thread: dict[str, Any], messages: list[dict[str, Any]], left_out: LeftOut) -> WholeChat:
    """Return a chat. messages: the lines of messages.jsonl. Raises SkippedChatError."""
    assistant = next(iter(objects(thread.get("assistants"))), {})
    model = string(mapping(thread.get("model") or assistant.get("model")).get("id"))[:200]
    head = Head(
        PROGRAM, string(thread.get("id")), string(thread.get("title")),
        seconds(thread.get("created") or thread.get("created_at")), seconds(thread.get("updated")),
        mapping(thread.get("metadata")).get("is_favorite") is True or thread.get("isFavorite") is True,
        instructions=string(assistant.get("instructions")),
    )  # fmt: skip
    nodes: list[Node] = []
    by_time = sorted(messages, key=lambda one: seconds(one.get("created_at")) or 0.0)
    for at, message in enumerate(by_time):
        role = message.get("role")
        node = Node(
            string(message.get("id")) or str(at), nodes[-1].id if nodes else "",
            "user" if role == "user" else "assistant" if role in ("assistant", "tool") else "",
            seconds(message.get("created_at")),
        )  # fmt: skip
        if node.role:
            node.pieces = list(_pieces(message, left_out))
        if node.role == "assistant":
            details = mapping(message.get("metadata"))
            if name := string(details.get("modelId") or details.get("model"))[:200] or model:
                node.stats["model"] = name
            node.state = _STATES.get(string(message.get("status")), MessageState.COMPLETE)
        nodes.append(node)
    return whole_chat(head, nodes)


def _pieces(message: dict[str, Any], left_out: LeftOut) -> Iterator[Piece]:
    content = message.get("content")
    is_result = message.get("role") == "tool"
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else objects(content):
        text = part.get("text")
        said = string(text) or string(mapping(text).get("value"))
        match part.get("type"):
            case "text" if is_result:
                yield Result(string(message.get("tool_call_id")), "", said)
            case "text":
                yield Text(said)
            case "reasoning":
                yield Thought(said)
            case "image_url" | "image":
                yield left_out.picture()
            case "tool_call":
                call, name = string(part.get("tool_call_id")), string(part.get("tool_name"))
                yield Call(call, name, part.get("input"))
                if part.get("output") is not None:
                    yield Result(call, name, _output(part["output"]))
            case kind:
                yield left_out.other(kind)
    for one in objects(mapping(message.get("metadata")).get("tool_calls")):
        request = mapping(one.get("tool"))
        function = mapping(request.get("function"))
        yield Call(string(request.get("id")), string(function.get("name")), _json(function.get("arguments")))
        if one.get("response") is not None:
            is_bad = mapping(one["response"]).get("error") not in (None, "")
            yield Result(string(request.get("id")), "", _output(one["response"]), is_bad)
    for one in objects(message.get("attachments")):
        yield left_out.file(one.get("name") or one.get("file_id"))


def _json(value: Any) -> Any:
    if isinstance(value, str) and len(value) <= 1_000_000:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _output(value: Any) -> str:
    """Return the text of a result: of a list of parts, of an object that has one, or as JSON."""
    if isinstance(value, str):
        return value
    parts = objects(mapping(value).get("content")) or objects(value)
    texts = [string(part.get("text")) for part in parts]
    try:
        return "\n\n".join(filter(None, texts)) or json.dumps(value, ensure_ascii=False)[:1_000_000]
    except (ValueError, RecursionError):
        return ""
