"""Turn what a server answers into bounded text for the model."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_types import (
    METHOD_NOT_FOUND,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    PromptArgument,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
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
MOST_PROPOSED = 6  # values for an argument
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


@dataclass(frozen=True)
class Template:
    """Resources with the same kind of address. address: a URI template, arguments: its variables."""

    address: str
    name: str
    description: str = ""
    arguments: tuple[Field, ...] = ()

    def filled(self, values: Mapping[str, str]) -> Resource:
        """Return the resource for these values. A variable for a path may have several parts, with slashes between."""
        from mcp.shared.uri_template import UriTemplate

        parsed = UriTemplate.parse(self.address)
        paths = {one.name for one in parsed.variables if one.explode and one.operator == "/"}
        parts = {name: text.split("/") if name in paths else text for name, text in values.items()}
        return Resource(parsed.expand(parts), self.name, self.description)


async def resources_of(client: Client) -> tuple[Resource, ...]:
    """Return what a server offers to read, at most MAX_LISTED."""
    if client.server_capabilities.resources is None:
        return ()
    found = await _listed(client.list_resources, lambda page: page.resources)
    return tuple(Resource(one.uri, one.name[:MAX_CHARS], (one.description or "")[:MAX_CHARS]) for one in found)


async def templates_of(client: Client) -> tuple[Template, ...]:
    """Return the templates of what a server offers to read, at most MAX_LISTED, without those that no form can fill."""
    from mcp import MCPError

    if client.server_capabilities.resources is None:
        return ()
    try:
        found = await _listed(client.list_resource_templates, lambda page: page.resource_templates)
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:  # not every server with resources answers
            return ()
        raise
    templates = []
    for one in found:
        if (fields := fields_of_template(one.uri_template)) is not None:
            name, about = one.title or one.name, one.description or ""
            templates.append(Template(one.uri_template, name[:MAX_CHARS], about[:MAX_CHARS], fields))
    return tuple(templates)


async def prompts_of(client: Client) -> tuple[Prompt, ...]:
    """Return a server's prompts, at most MAX_LISTED."""
    if client.server_capabilities.prompts is None:
        return ()
    found = []
    for one in await _listed(client.list_prompts, lambda page: page.prompts):
        title, about = (one.title or "")[:MAX_CHARS], (one.description or "")[:MAX_CHARS]
        found.append(Prompt(one.name, title, about, fields_of_arguments(one.arguments)))
    return tuple(found)


async def _listed(ask: Callable[..., Awaitable[Any]], entries: Callable[[Any], list[Any]]) -> list[Any]:
    """Return what a server lists page by page, at most MAX_LISTED."""
    found: list[Any] = []
    cursor = None
    while len(found) < MAX_LISTED:
        page = await ask(cursor=cursor)
        found += entries(page)
        cursor = page.next_cursor
        if cursor is None or not entries(page):
            break
    return found[:MAX_LISTED]


async def completions_of(
    client: Client, offer: Prompt | Template, argument: str, begun: str, given: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what a server proposes for an argument that begins like this, MOST_PROPOSED at most.

    given: the other arguments so far. Proposals with invisible characters or line breaks are left out.
    """
    ref = (
        PromptReference(name=offer.name) if isinstance(offer, Prompt) else ResourceTemplateReference(uri=offer.address)
    )
    answer = await client.complete(ref, {"name": argument, "value": begun}, dict(given))
    values = [one for one in answer.completion.values if one_line(one) == one and len(one) <= MAX_CHARS]
    return tuple(values[:MOST_PROPOSED])


def fields_of_template(address: str) -> tuple[Field, ...] | None:
    """Return a field for each variable of a URI template; None if it has too many, or is none."""
    from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

    try:
        variables = UriTemplate.parse(address).variables
    except InvalidUriTemplate:
        return None
    fields = tuple(Field(one.name, one.name, is_required=one.operator not in ("?", "&")) for one in variables)
    return fields if len(fields) <= MOST_FIELDS else None


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
