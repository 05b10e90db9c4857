"""Tools, calls and results in requests of OpenAI's API, as plain data for the engine."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from engine.local_api.failures import wrong
from engine.local_api.fields import checked, objects, required, shown, take
from engine.plain_config import is_deep
from engine.session.constraint import Constraint
from engine.tool_calls.call_format import Call
from engine.tool_calls.tool import Choice, Tool, ToolUse

MOST_TOOLS = 128
MOST_SCHEMA_CHARS = 256 << 10  # of all tools
MOST_ARGUMENTS_DEPTH = 48
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_FIELDS_OF_TEXTS = {"type", "text", "annotations", "logprobs", "citations", "cache_control"}
_CHOICES: dict[str, Choice] = {"none": "none", "auto": "auto", "required": "required"}


def read_tools(values: dict[str, Any], ignored: list[str]) -> ToolUse:
    """Return the tools of a chat completion. Raises: ApiError."""
    tools = []
    for i, one in enumerate(objects(take(values, "tools", list) or [], "tools")):
        param = f"tools[{i}]"
        _check_kind(one, param)
        about = dict(required(take(one, "function", dict), f"{param}.function"))
        tools.append(read_tool(about, f"{param}.function", "parameters", ignored))
        ignored += (f"{param}.{name}" for name in one)
    given = values.pop("tool_choice", None)
    named = given.get("function") if isinstance(given, dict) else None
    return tool_use(tools, given, named, take(values, "parallel_tool_calls", bool))


def read_functions(values: dict[str, Any], ignored: list[str]) -> ToolUse:
    """Return the tools of a response, whose fields stand beside their types. Raises: ApiError."""
    tools = []
    for i, one in enumerate(objects(take(values, "tools", list) or [], "tools")):
        _check_kind(one, f"tools[{i}]")
        tools.append(read_tool(one, f"tools[{i}]", "parameters", ignored))
    given, is_parallel = values.pop("tool_choice", None), take(values, "parallel_tool_calls", bool)
    if not isinstance(given, dict) or given.get("type") != "allowed_tools":
        return tool_use(tools, given, given, is_parallel)
    use = tool_use(tools, given.get("mode"), None, is_parallel)
    allowed = [str(one.get("name")) for one in objects(take(dict(given), "tools", list) or [], "tool_choice.tools")]
    if not allowed or not use.allowed.issuperset(allowed):
        raise wrong("'tool_choice.tools' must name some of the tools.", "tool_choice")
    return replace(use, allowed=frozenset(allowed))


def _check_kind(tool: dict[str, Any], param: str) -> None:
    if (kind := take(tool, "type", str)) != "function":
        raise wrong(
            f"{param} has the type {shown(kind)}: Hearth supports only functions.", f"{param}.type", "unsupported_value"
        )  # fmt: skip


def read_tool(about: dict[str, Any], param: str, schema_name: str, ignored: list[str]) -> Tool:
    """Return a tool, and add its unknown fields. schema_name: the field of its schema. Raises: ApiError."""
    name = required(take(about, "name", str), f"{param}.name")
    if not _NAME.fullmatch(name):
        raise wrong(
            f"{param} is called {shown(name)}; 1 to 128 letters, digits, _ and - are needed.", f"{param}.name"
        )  # fmt: skip
    schema = dict(take(about, schema_name, dict) or {})
    if schema.setdefault("type", "object") != "object":
        raise wrong(f"The schema of the tool {name!r} must be that of an object.", f"{param}.{schema_name}")
    description = take(about, "description", str) or ""
    take(about, "strict", bool)
    ignored += (f"{param}.{other}" for other in about)
    return Tool(name, description, checked(Constraint("json_schema", schema), f"{param}.{schema_name}").source)


def tool_use(tools: list[Tool], choice: Any, named: Any, is_parallel: bool | None) -> ToolUse:
    """Return how the tools may be used. choice: none, auto, required, or an object that names a tool; named: the object
    with its name. Raises: ApiError.
    """
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise wrong("Two tools have the same name.", "tools")
    if len(tools) > MOST_TOOLS:
        raise wrong(f"{len(tools)} tools are more than the {MOST_TOOLS} that are taken.", "tools")
    n_chars = sum(len(json.dumps(tool.parameters)) for tool in tools)
    if n_chars > MOST_SCHEMA_CHARS:
        raise wrong(f"The schemas of all tools have {n_chars} characters; the limit is {MOST_SCHEMA_CHARS}.", "tools")
    allowed, kind = frozenset(names), choice
    if isinstance(choice, dict):
        name = named.get("name") if isinstance(named, dict) else None
        if choice.get("type") != "function" or name not in names:
            raise wrong(
                f"'tool_choice' is {shown(choice)}; if it is an object, it must name one of the tools.", "tool_choice"
            )
        allowed, kind = frozenset([name]), "required"
    if kind is not None and (not isinstance(kind, str) or kind not in _CHOICES):
        raise wrong(f"'tool_choice' is {shown(choice)}; it must be none, auto, required or a tool.", "tool_choice")
    if kind == "required" and not tools:
        raise wrong("'tool_choice' requires a call, but there are no tools.", "tool_choice")
    return ToolUse(tuple(tools), _CHOICES[kind or "auto"], allowed, is_parallel is not False)


def read_calls(message: dict[str, Any], param: str, names: dict[str, str], ignored: list[str]) -> list[Call]:
    """Return the calls of an assistant's message, and add their names by their ids. Raises: ApiError."""
    calls = []
    given = objects(take(message, "tool_calls", list) or [], f"{param}.tool_calls")
    for i, one in enumerate(given):
        where = f"{param}.tool_calls[{i}]"
        if (kind := take(one, "type", str)) not in (None, "function"):
            raise wrong(
                f"{where} has the type {shown(kind)}: Hearth supports only functions.", where, "unsupported_value"
            )
        about = dict(required(take(one, "function", dict), f"{where}.function"))
        call = read_call(
            take(one, "id", str), take(about, "name", str), take(about, "arguments", str), f"{where}.function", names
        )
        calls.append(call)
        ignored += (f"{where}.{name}" for name in one.keys() - {"index"})
    return calls


def read_call(call_id: str | None, name: str | None, arguments: str | None, param: str, names: dict[str, str]) -> Call:
    """Return a call whose arguments are JSON text, and add its name by its id. Raises: ApiError."""
    if not name:
        raise wrong(f"{param} has no name.", f"{param}.name", "missing_field")
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or is_deep(found, MOST_ARGUMENTS_DEPTH):
        raise wrong(
            f"The arguments of the call of {shown(name)} must be a JSON object "
            f"of at most {MOST_ARGUMENTS_DEPTH} levels.",
            f"{param}.arguments",
        )
    return made_call(call_id, name, found, names)


def made_call(call_id: str | None, name: str, arguments: dict[str, Any], names: dict[str, str]) -> Call:
    call = Call(name, arguments, call_id or f"call{len(names)}")
    names[call.id] = name
    return call


def answered_call(call_id: str | None, param: str, names: dict[str, str]) -> dict[str, str]:
    """Return id and name of the call that a result belongs to. Raises: ApiError if there is none before it."""
    if call_id is None or call_id not in names:
        raise wrong(f"{param} is {shown(call_id)}, but no call before it has this id.", param)
    return {"id": call_id, "name": names[call_id]}


def text_of(content: object, param: str, ignored: list[str], kinds: tuple[str, ...] = ("text",)) -> str:
    """Return a text, or the joined texts of its parts. kinds: types of parts. Raises: ApiError."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(f"{param} is {shown(content)}; a text is needed.", param, "invalid_type")
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or kind not in kinds:
            raise wrong(
                f"{param} holds a part of the type {shown(kind)}: Hearth reads only text.", param, "unsupported_value"
            )
        if not isinstance(part.get("text"), str):
            raise wrong(f"{param} holds a text part without a text.", param, "invalid_type")
        texts.append(part["text"])
        ignored += (f"{param}[{i}].{name}" for name in part.keys() - _FIELDS_OF_TEXTS)
    return "".join(texts)
