"""Reads the chats of ChatGPT's data export: conversations.json, since 2026 also conversations-000.json and so on.

A chat is a tree: `mapping` names each message's parent, `current_node` the end of the shown branch. One answer is a row
of messages: thoughts, calls of tools (with a recipient), results (of the role tool) and texts.
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
    mapping,
    objects,
    seconds,
    sequence,
    string,
    whole_chat,
)
from app.chat.store.conversation import MessageState, WholeChat

PROGRAM = "ChatGPT"
_PICTURES = {"image_asset_pointer"}
_AUDIO = {"audio_asset_pointer", "real_time_user_audio_video_asset_pointer"}
_VIDEOS = {"video_container_asset_pointer"}
_STATES = {"max_tokens": MessageState.LENGTH, "interrupted": MessageState.CANCELLED}


def is_chat(value: dict[str, Any]) -> bool:
    return isinstance(value.get("mapping"), dict)


def chat(value: dict[str, Any], left_out: LeftOut) -> WholeChat:
    """Return a chat. Raises SkippedChatError."""
    head = Head(
        PROGRAM, string(value.get("conversation_id")) or string(value.get("id")), string(value.get("title")),
        seconds(value.get("create_time")), seconds(value.get("update_time")),
        value.get("is_starred") is True or value.get("pinned_time") is not None, value.get("is_archived") is True,
    )  # fmt: skip
    nodes = []
    for key, one in value["mapping"].items():
        node = Node(key, string(mapping(one).get("parent")), "")
        message = mapping(mapping(one).get("message"))
        if message:
            _read(node, message, head, left_out)
        nodes.append(node)
    return whole_chat(head, nodes, string(value.get("current_node")))


def _read(node: Node, message: dict[str, Any], head: Head, left_out: LeftOut) -> None:
    content, details = mapping(message.get("content")), mapping(message.get("metadata"))
    kind = string(content.get("content_type"))
    if kind == "user_editable_context":
        said = (string(content.get("user_profile")), string(content.get("user_instructions")))
        head.instructions = head.instructions or "\n\n".join(text for text in said if text.strip())
        return
    role = string(mapping(message.get("author")).get("role"))
    if role not in ("user", "assistant", "tool") or details.get("is_visually_hidden_from_conversation") is True:
        return
    node.role = "user" if role == "user" else "assistant"
    node.time = seconds(message.get("create_time"))
    parts = list(_parts(kind, content, left_out))
    if role == "user":
        node.pieces = [*parts, *_files(details, left_out)]
        return
    name = string(mapping(message.get("author")).get("name"))
    recipient = string(message.get("recipient")) or "all"
    if role == "tool":
        text = "\n\n".join(part.text for part in parts if isinstance(part, Text | Thought))
        node.pieces = [Result("", name, text, kind == "system_error")]
    elif recipient != "all":
        text = "\n\n".join(part.text for part in parts if isinstance(part, Text | Thought))
        node.pieces = [Call("", recipient, _arguments(text))]
    else:
        node.pieces = parts
        if model := string(details.get("model_slug"))[:200]:
            node.stats["model"] = model
        node.state = _STATES.get(string(mapping(details.get("finish_details")).get("type")), MessageState.COMPLETE)


def _parts(kind: str, content: dict[str, Any], left_out: LeftOut) -> Iterator[Piece]:
    match kind:
        case "text" | "multimodal_text":
            for part in sequence(content.get("parts")):
                yield Text(part) if isinstance(part, str) else _part(mapping(part), left_out)
        case "thoughts":
            for one in objects(content.get("thoughts")):
                summary, thought = string(one.get("summary")), string(one.get("content"))
                yield Thought("\n\n".join(filter(None, (f"**{summary}**" if summary else "", thought))))
        case "reasoning_recap":
            return
        case "code":
            yield Text(string(content.get("text")))
        case "tether_quote":
            title, address = string(content.get("title")), string(content.get("url"))
            yield Text("\n".join(filter(None, (title, address, string(content.get("text"))))))
        case _:  # execution_output, tether_browsing_display, system_error and kinds to come
            text = next((string(content.get(name)) for name in ("text", "result", "content") if content.get(name)), "")
            yield Text(text) if text else Text("") if kind == "tether_browsing_display" else left_out.other(kind)


def _part(part: dict[str, Any], left_out: LeftOut) -> Text:
    kind = string(part.get("content_type"))
    if kind in _PICTURES:
        return left_out.picture()
    if kind in _AUDIO:
        return left_out.audio()
    if kind in _VIDEOS:
        return left_out.video()
    return Text(part["text"]) if isinstance(part.get("text"), str) else left_out.other(kind)


def _files(details: dict[str, Any], left_out: LeftOut) -> Iterator[Text]:
    for one in objects(details.get("attachments")):
        if not string(one.get("mime_type") or one.get("mimeType")).startswith("image/"):  # which are parts, too
            yield left_out.file(one.get("name"))


def _arguments(text: str) -> Any:
    if text.lstrip()[:1] != "{" or len(text) > 1_000_000:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
