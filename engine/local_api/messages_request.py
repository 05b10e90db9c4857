"""Requests of Anthropic's Messages API, read into the same plain data as those of OpenAI's."""

from __future__ import annotations

from typing import Any

from engine.local_api.api_request import MOST_MESSAGES, ApiRequest, check_sampling, model_of
from engine.local_api.failures import wrong
from engine.local_api.fields import checked, count, objects, read_object, required, shown, stops, take
from engine.local_api.tool_fields import MOST_ARGUMENTS_DEPTH, answered_call, made_call, read_tool, text_of, tool_use
from engine.plain_config import is_deep
from engine.session.constraint import Constraint
from engine.text.context_fit import ChatMessage
from engine.tool_calls.tool import ToolUse

MOST_STOPS = 16
_UNUSED = {"metadata", "service_tier", "betas"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_UNUSED_OF_BLOCKS = {"cache_control", "citations", "signature", "caller"}


def read_messages_request(body: bytes, counts: bool = False) -> ApiRequest:
    """Return the request in a body. counts: only its tokens are to be counted. Raises: ApiError."""
    values = read_object(body)
    model = model_of(values)
    ignored: list[str] = []
    longest = take(values, "max_tokens", int)
    sampling: dict[str, Any] = {} if counts and longest is None else {"max_tokens": required(longest, "max_tokens")}
    for name, kind in (("temperature", float), ("top_p", float), ("top_k", int)):
        if (value := take(values, name, kind)) is not None:
            sampling[name] = value
    check_sampling(sampling)
    if texts := stops(values, "stop_sequences", MOST_STOPS):
        sampling["stop"] = texts
    thinking = _thinking(values, ignored)
    effort, constraint = _output(values, ignored)
    if effort is not None and thinking.get("thinking") != "off":
        thinking["thinking"] = effort
    sampling |= thinking
    system = values.pop("system", None)
    messages = _messages(values, ignored)
    if system:
        messages.insert(0, {"role": "system", "content": text_of(system, "system", ignored)})
    use = _tools(values, ignored)
    streams = bool(take(values, "stream", bool))
    continues = messages[-1]["role"] == "assistant" and "calls" not in messages[-1]
    if continues and (use.tools or constraint is not None):
        raise wrong("With tools or a schema, the last message cannot be the assistant's.", "messages",
                    "unsupported_value")  # fmt: skip
    ignored += values.keys() - _UNUSED
    return ApiRequest(
        "chat", model, messages, use, sampling=sampling, constraint=constraint, streams=streams,
        ignored=tuple(sorted(ignored)), continues=continues,
    )  # fmt: skip


def _thinking(values: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
    """Return how much to think: not at all unless the client asks for it, as this API has it."""
    options = dict(take(values, "thinking", dict) or {"type": "disabled"})
    kind, most = take(options, "type", str), count(options, "budget_tokens", 1 << 30)
    if kind not in ("enabled", "disabled", "adaptive"):
        raise wrong(f"'thinking.type' is {shown(kind)}; it must be enabled, disabled or adaptive.", "thinking")
    ignored += (f"thinking.{name}" for name in options.keys() - {"display"})
    if kind == "adaptive":
        return {}
    if kind == "disabled":
        return {"thinking": "off"}
    return {"thinking": "on"} if most is None else {"thinking": "on", "thought_tokens": most}


def _output(values: dict[str, Any], ignored: list[str]) -> tuple[str | None, Constraint | None]:
    """Return the effort and the JSON schema that the client asks for, if any."""
    options = dict(take(values, "output_config", dict) or {})
    effort, form = take(options, "effort", str), dict(take(options, "format", dict) or {})
    if effort not in (None, *_EFFORTS):
        raise wrong(f"'output_config.effort' is {shown(effort)}; it must be one of {', '.join(_EFFORTS)}.", "effort")
    ignored += (f"output_config.{name}" for name in options)
    if not form:
        return effort and _EFFORTS[effort], None
    if (kind := take(form, "type", str)) != "json_schema":
        raise wrong(f"'output_config.format.type' is {shown(kind)}; it must be json_schema.", "output_config.format")
    param = "output_config.format.schema"
    constraint = checked(Constraint("json_schema", required(take(form, "schema", dict), param)), param)
    ignored += (f"output_config.format.{name}" for name in form)
    return effort and _EFFORTS[effort], constraint


def _tools(values: dict[str, Any], ignored: list[str]) -> ToolUse:
    tools = []
    for i, one in enumerate(objects(take(values, "tools", list) or [], "tools")):
        param = f"tools[{i}]"
        if (kind := take(one, "type", str)) not in (None, "custom"):
            raise wrong(
                f"{param} has the type {shown(kind)}: Hearth runs no tools itself.", f"{param}.type",
                "unsupported_value",
            )  # fmt: skip
        for name in ("cache_control", "input_examples", "eager_input_streaming"):
            one.pop(name, None)
        tools.append(read_tool(one, param, "input_schema", ignored))
    choice = dict(take(values, "tool_choice", dict) or {"type": "auto"})
    kind, name = take(choice, "type", str), take(choice, "name", str)
    is_parallel = not take(choice, "disable_parallel_tool_use", bool)
    ignored += (f"tool_choice.{other}" for other in choice)
    if kind == "tool":
        return tool_use(tools, {"type": "function", "name": name}, {"name": name}, is_parallel)
    if kind not in _CHOICES:
        raise wrong(f"'tool_choice.type' is {shown(kind)}; it must be auto, any, tool or none.", "tool_choice")
    return tool_use(tools, _CHOICES[kind], None, is_parallel)


def _messages(values: dict[str, Any], ignored: list[str]) -> list[ChatMessage]:
    given = objects(take(values, "messages", list) or [], "messages")
    if not given:
        raise wrong("The field 'messages' is missing or empty.", "messages", "missing_field")
    if len(given) > MOST_MESSAGES:
        raise wrong(f"{len(given)} messages are more than the {MOST_MESSAGES} that are taken.", "messages")
    names: dict[str, str] = {}
    found: list[ChatMessage] = []
    for i, message in enumerate(given):
        param = f"messages[{i}]"
        role, content = message.pop("role", None), message.pop("content", None)
        ignored += (f"{param}.{name}" for name in message)
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list):
            raise wrong(f"{param}.content is {shown(content)}; a text is needed.", f"{param}.content", "invalid_type")
        blocks = objects(content, f"{param}.content")
        if role == "assistant":
            found.append(_answer(blocks, f"{param}.content", names, ignored))
        elif role == "user":
            found += _question(blocks, f"{param}.content", names, ignored)
        elif role == "system":
            found.append({"role": "system", "content": text_of(content, f"{param}.content", ignored)})
        else:
            raise wrong(f"{param} has the role {shown(role)}; user or assistant is needed.", param)
    return found


def _answer(blocks: list[dict[str, Any]], param: str, names: dict[str, str], ignored: list[str]) -> ChatMessage:
    texts, thoughts, calls = list[str](), list[str](), []
    for i, block in enumerate(blocks):
        kind, where = block.pop("type", None), f"{param}[{i}]"
        if kind == "text":
            texts.append(required(take(block, "text", str), f"{where}.text"))
        elif kind == "thinking":
            thoughts.append(take(block, "thinking", str) or "")
        elif kind == "redacted_thinking":
            block.pop("data", None)
        elif kind == "tool_use":
            name, given = take(block, "name", str), take(block, "input", dict) or {}
            if is_deep(given, MOST_ARGUMENTS_DEPTH):
                raise wrong(f"{where}.input has more than {MOST_ARGUMENTS_DEPTH} levels.", f"{where}.input")
            calls.append(made_call(take(block, "id", str), required(name, f"{where}.name"), given, names))
        else:
            raise _unsupported(kind, where)
        ignored += (f"{where}.{name}" for name in block.keys() - _UNUSED_OF_BLOCKS)
    found: ChatMessage = {"role": "assistant", "content": "".join(texts)}
    if calls:
        found["calls"] = calls
    if thought := "\n\n".join(filter(None, thoughts)):
        found["reasoning"] = thought
    return found


def _question(blocks: list[dict[str, Any]], param: str, names: dict[str, str], ignored: list[str]) -> list[ChatMessage]:
    """Return one message for each result, and one for the texts, in their order."""
    found: list[ChatMessage] = []
    for i, block in enumerate(blocks):
        kind, where = block.pop("type", None), f"{param}[{i}]"
        if kind == "text":
            text = required(take(block, "text", str), f"{where}.text")
            if found and found[-1]["role"] == "user":
                found[-1]["content"] += f"\n{text}"
            else:
                found.append({"role": "user", "content": text})
        elif kind == "tool_result":
            call = answered_call(take(block, "tool_use_id", str), f"{where}.tool_use_id", names)
            content = block.pop("content", None)
            text = "" if content is None else text_of(content, f"{where}.content", ignored)
            failed = "Error: " if take(block, "is_error", bool) else ""
            found.append({"role": "tool", "content": f"{failed}{text}", **call})
        else:
            raise _unsupported(kind, where)
        ignored += (f"{where}.{name}" for name in block.keys() - _UNUSED_OF_BLOCKS)
    return found or [{"role": "user", "content": ""}]


def _unsupported(kind: object, where: str) -> Exception:
    return wrong(f"{where} has the type {shown(kind)}: Hearth reads only text.", where, "unsupported_value")
