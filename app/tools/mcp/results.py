"""Turn what a server answers into bounded text for the model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    PromptArgument,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from app.tools.call_text import one_line, visible
from app.tools.questions import MOST_FIELDS, Field
from app.tools.tool import LONGEST_RESULT, ToolResult

if TYPE_CHECKING:
    from mcp import Client

MAX_LISTED = 500  # resources or prompts of one server
MAX_CHARS = 2_000  # of each text about one
_BASE64 = 4 / 3  # characters for each byte


@dataclass(frozen=True)
class Resource:
    """A text or file that a server offers. address: its URI at the server."""

    address: str
    name: str
    description: str = ""


@dataclass(frozen=True)
class Prompt:
    """A prepared message that a server offers. arguments: what it is filled in with."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[Field, ...] = ()


async def resources_of(client: Client) -> tuple[Resource, ...]:
    """Return what a server offers to read, at most MAX_LISTED."""
    found: list[Resource] = []
    cursor = None
    while client.server_capabilities.resources is not None and len(found) < MAX_LISTED:
        page = await client.list_resources(cursor=cursor)
        found += [
            Resource(one.uri, one.name[:MAX_CHARS], (one.description or "")[:MAX_CHARS]) for one in page.resources
        ]
        cursor = page.next_cursor
        if cursor is None or not page.resources:
            break
    return tuple(found[:MAX_LISTED])


async def prompts_of(client: Client) -> tuple[Prompt, ...]:
    """Return a server's prompts, at most MAX_LISTED."""
    found: list[Prompt] = []
    cursor = None
    while client.server_capabilities.prompts is not None and len(found) < MAX_LISTED:
        page = await client.list_prompts(cursor=cursor)
        for one in page.prompts:
            title, about = (one.title or "")[:MAX_CHARS], (one.description or "")[:MAX_CHARS]
            found.append(Prompt(one.name, title, about, fields_of_arguments(one.arguments)))
        cursor = page.next_cursor
        if cursor is None or not page.prompts:
            break
    return tuple(found[:MAX_LISTED])


def fields_of_arguments(arguments: Iterable[PromptArgument] | None) -> tuple[Field, ...]:
    """Return a field for each argument of a prompt, MOST_FIELDS at most."""
    return tuple(
        Field(
            one.name,
            one_line((one.title or one.name)[:MAX_CHARS]),
            visible((one.description or "")[:MAX_CHARS]),
            is_required=bool(one.required),
        )
        for one in list(arguments or ())[:MOST_FIELDS]
    )


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
