"""Reads the chats of LM Studio: one `*.conversation.json` file each, in its folder `conversations`.

Messages are a row; each has versions, of which one is selected. Other versions are leaves of the tree. An answer is a
list of steps: texts, thoughts (blocks with a style), calls of tools and results. Messages have no times and no ids.
"""

from __future__ import annotations

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

PROGRAM = "LM Studio"
_STATES = {
    "userStopped": MessageState.CANCELLED, "maxPredictedTokensReached": MessageState.LENGTH,
    "contextLengthReached": MessageState.LENGTH, "failed": MessageState.FAILED,
}  # fmt: skip
_FIGURES = {
    "predictedTokensCount": "tokens", "promptTokensCount": "prompt_tokens", "totalTimeSec": "total_s",
    "timeToFirstTokenSec": "ttft_s", "tokensPerSecond": "decode_tok_s",
}  # fmt: skip
_SYSTEM_PROMPT = "llm.prediction.systemPrompt"


def is_chat(value: dict[str, Any]) -> bool:
    messages = value.get("messages")
    return isinstance(messages, list) and (
        any(isinstance(one.get("versions"), list) for one in objects(messages[:3]))
        or ("usePerChatPredictionConfig" in value or "lastUsedModel" in value)
    )


def chat(value: dict[str, Any], left_out: LeftOut) -> WholeChat:
    """Return a chat. Raises SkippedChatError."""
    head = Head(
        PROGRAM, "", string(value.get("name")), seconds(value.get("createdAt")),
        max(filter(None, map(seconds, (value.get("userLastMessagedAt"), value.get("assistantLastMessagedAt")))),
            default=None),
        value.get("pinned") is True, instructions=_instructions(value),
    )  # fmt: skip
    nodes: list[Node] = []
    before = ""
    for at, message in enumerate(objects(value["messages"])):
        versions = objects(message.get("versions")) or [message]
        chosen = message.get("currentlySelected")
        chosen = chosen if isinstance(chosen, int) and 0 <= chosen < len(versions) else len(versions) - 1
        for n, version in enumerate(versions):
            nodes.append(_node(f"{at}.{n}", before, version, left_out))
        before = f"{at}.{chosen}"
    return whole_chat(head, nodes, before)


def _instructions(value: dict[str, Any]) -> str:
    fields = objects(mapping(value.get("perChatPredictionConfig")).get("fields"))
    own = next((string(one.get("value")) for one in fields if one.get("key") == _SYSTEM_PROMPT), "")
    return own or string(value.get("systemPrompt"))


def _node(key: str, parent: str, version: dict[str, Any], left_out: LeftOut) -> Node:
    node = Node(key, parent, "")
    role = version.get("role")
    if role not in ("user", "assistant"):
        return node
    node.role = str(role)
    node.pieces += _content(version.get("content"), "", left_out)
    for step in objects(version.get("steps")):
        if step.get("type") == "contentBlock":
            style = mapping(step.get("style")).get("type")
            node.pieces += _content(step.get("content"), string(style), left_out)
            _take_figures(node, mapping(step.get("genInfo")))
    sender = string(mapping(version.get("senderInfo")).get("senderName"))[:200]
    if role == "assistant" and sender:
        node.stats.setdefault("model", sender)
    return node


def _take_figures(node: Node, info: dict[str, Any]) -> None:
    if name := string(info.get("identifier") or info.get("indexedModelIdentifier"))[:200]:
        node.stats["model"] = name
    stats = mapping(info.get("stats"))
    for theirs, ours in _FIGURES.items():
        figure = stats.get(theirs)
        if isinstance(figure, int | float) and not isinstance(figure, bool) and 0 < figure < 1e9:
            node.stats[ours] = figure if ours.endswith("_s") else int(figure)
    node.state = _STATES.get(string(stats.get("stopReason")), node.state)


def _content(content: Any, style: str, left_out: LeftOut) -> Iterator[Piece]:
    if isinstance(content, str):
        yield Text(content)
    text = ""
    for part in objects(content):
        if part.get("type") == "text":
            text += string(part.get("text"))
            continue
        if text:
            yield Thought(text) if style == "thinking" else Text(text)
            text = ""
        match part.get("type"):
            case "toolCallRequest":
                yield Call(_call_id(part), string(part.get("name")), part.get("parameters"))
            case "toolCallResult":
                result = part.get("content")
                yield Result(_call_id(part), string(part.get("name")), result if isinstance(result, str) else "")
            case "file":
                name = string(part.get("name") or part.get("fileIdentifier"))
                yield left_out.picture(name) if part.get("fileType") == "image" else left_out.file(name)
            case kind:
                yield left_out.other(kind)
    if text:
        yield Thought(text) if style == "thinking" else Text(text)


def _call_id(part: dict[str, Any]) -> str:
    call = part.get("callId")
    return str(call) if isinstance(call, int | str) else ""
