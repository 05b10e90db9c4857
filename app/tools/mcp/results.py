"""Turn what a server answers into bounded text for the model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from app.tools.tool import LONGEST_RESULT, ToolResult

_BASE64 = 4 / 3  # characters for each byte


def result_of(answer: CallToolResult) -> ToolResult:
    """Return the text of a call's answer. Pictures and sounds are named, not passed on."""
    text = text_of(answer.content)
    if not text and answer.structured_content is not None:
        text = json.dumps(answer.structured_content, ensure_ascii=False)
    return ToolResult(cut(text), bool(answer.is_error))


def text_of(parts: Iterable[Any]) -> str:
    """Return the text of content blocks or of a resource's contents, one after the other."""
    return "\n\n".join(_text_of(part) for part in parts)


def _text_of(part: Any) -> str:
    if isinstance(part, TextContent | TextResourceContents):
        return part.text
    if isinstance(part, EmbeddedResource):
        return _text_of(part.resource)
    if isinstance(part, ImageContent):
        return f"[image, {part.mime_type}, {_size(part.data)}]"
    if isinstance(part, AudioContent):
        return f"[audio, {part.mime_type}, {_size(part.data)}]"
    if isinstance(part, BlobResourceContents):
        return f"[file, {part.mime_type or 'unknown type'}, {_size(part.blob)}, {part.uri}]"
    if isinstance(part, ResourceLink):
        return f"[resource, {part.name}, {part.uri}]"
    return f"[{getattr(part, 'type', 'content')}, which Hearth does not read]"


def _size(data: str) -> str:
    n_bytes = len(data) / _BASE64
    return f"{n_bytes / 1024:.0f} KB" if n_bytes < 1 << 20 else f"{n_bytes / (1 << 20):.1f} MB"


def cut(text: str) -> str:
    """Return at most LONGEST_RESULT characters, and say in the text what was cut."""
    if len(text) <= LONGEST_RESULT:
        return text
    note = f"\n[Cut here: the result has {len(text)} characters.]"
    return text[: LONGEST_RESULT - len(note)] + note
