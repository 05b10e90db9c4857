"""Requests of clients: their JSON, checked field by field, as plain data for the engine.

Unsupported features are refused by name. Fields that change no answer (user, metadata and the like) are accepted and
unused. Unknown fields are ignored, and named in the response.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.config import SamplingConfig
from engine.errors import InvalidRequestError
from engine.local_api.failures import ApiError, wrong
from engine.local_api.fields import checked, count, objects, read_object, shown, stops, take
from engine.local_api.tool_fields import answered_call, read_calls, read_tools, text_of
from engine.session.constraint import ANY_OBJECT, Constraint, Kind
from engine.text.context_fit import ChatMessage
from engine.tool_calls.tool import ToolUse

What = Literal["chat", "completion", "embedding"]

MOST_MESSAGES = 4096
MOST_STOPS = 4
MOST_ALTERNATIVES: dict[What, int] = {"chat": 20, "completion": 5}
COMPLETION_TOKENS = 16  # of a completion that does not say how many

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
# Of those, only these values are supported.
_ONLY: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "presence_penalty": (0,), "frequency_penalty": (0,), "logit_bias": ({},),
    "functions": ([],), "function_call": ("none", "auto"), "modalities": (["text"],), "echo": (False,), "suffix": ("",),
    "store": (False,),
}  # fmt: skip
_WHY: dict[str, str] = {
    "n": "Hearth gives one answer for each request",
    "best_of": "Hearth gives one answer for each request",
    "functions": "Functions are given as 'tools'",
    "modalities": "Hearth answers in plain text",
}
_UNUSED = {
    "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
}  # fmt: skip
_EFFORTS = {"none": "off", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high"}
_VLLM: dict[str, Kind] = {"json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "grammar"}
_CONSTRAINTS: dict[str, Kind] = {
    "grammar": "grammar", "json_schema": "json_schema",  # of llama.cpp
    **{f"{prefix}{name}": kind for prefix in ("structured_outputs.", "guided_") for name, kind in _VLLM.items()},
}  # fmt: skip
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed")


@dataclass(frozen=True)
class ApiRequest:
    """One request. messages: {"role", "content"}; those of the assistant may have calls (list of Call) and reasoning,
    those of the role tool have the id and name of a call. prompt: of a completion; a text, or token ids. alternatives:
    number of tokens to report besides the chosen one; None: no probabilities at all. inputs: of embeddings; texts, or
    token ids. dimensions: keeps this many numbers of each vector; None: all.
    """

    what: What
    model: str
    messages: list[ChatMessage] = field(default_factory=list)
    use: ToolUse = field(default_factory=ToolUse)
    prompt: str | list[int] = ""
    sampling: dict[str, Any] = field(default_factory=dict)  # what differs from the model's own defaults
    constraint: Constraint | None = None  # of the answer
    alternatives: int | None = None
    streams: bool = False
    tells_usage: bool = False  # at the end of a stream
    ignored: tuple[str, ...] = ()  # unknown fields, such as "messages[0].mood"
    continues: bool = False  # the last message, which is the assistant's
    inputs: list[str | list[int]] = field(default_factory=list)
    dimensions: int | None = None
    counts: bool = False  # only the tokens of the prompt are counted
    instructions: str | None = None  # of the Responses API, whose answer repeats them
    as_base64: bool = False  # the vectors, instead of lists of numbers


def read_api_request(what: What, body: bytes) -> ApiRequest:
    """Parse a body as a request. Raises: ApiError with a message for the client's developer."""
    values = read_object(body)
    model = model_of(values)
    _refuse_undone(values)
    ignored: list[str] = []
    api_request: dict[str, Any] = {"streams": bool(take(values, "stream", bool))}
    api_request["tells_usage"] = _usage_wanted(values, api_request["streams"], ignored)
    if what == "chat":
        api_request["messages"] = _messages(values, ignored)
        api_request["use"] = read_tools(values, ignored)
        api_request["alternatives"] = _chat_alternatives(values)
        api_request["constraint"] = _format(values, ignored)
    else:
        api_request["prompt"] = _prompt(values)
        api_request["alternatives"] = count(values, "logprobs", MOST_ALTERNATIVES[what])
    api_request["constraint"] = _read_constraint(values, api_request.get("constraint"))
    api_request["sampling"] = _sampling(values, what, ignored)
    ignored += values.keys() - _UNUSED
    return ApiRequest(what, model, **api_request, ignored=tuple(sorted(ignored)))


def model_of(values: dict[str, Any]) -> str:
    """Return the name of the model. Raises: ApiError."""
    model: str | None = take(values, "model", str)
    if model is None:
        raise wrong("The field 'model' is missing; GET /v1/models lists what can be asked.", "model", "missing_field")
    return model


def _refuse_undone(values: dict[str, Any]) -> None:
    for name, allowed in _ONLY.items():
        value = values.pop(name, None)
        if value is not None and not any(type(value) in _alike(one) and value == one for one in allowed):
            why = _WHY.get(name, "Hearth does not do that")
            raise wrong(f"{why}: {name!r} must be left out or {_either(allowed)}.", name, "unsupported_value")


def _alike(value: object) -> tuple[type, ...]:
    return (int, float) if type(value) is int else (type(value),)


def _either(allowed: tuple[Any, ...]) -> str:
    return " or ".join(json.dumps(one) for one in allowed)


def _usage_wanted(values: dict[str, Any], streams: bool, ignored: list[str]) -> bool:
    options = take(values, "stream_options", dict)
    if options is None:
        return False
    if not streams:
        raise wrong("The field 'stream_options' is only for streams: set 'stream' too.", "stream_options")
    options = dict(options)
    wanted = bool(take(options, "include_usage", bool))
    take(options, "include_obfuscation", bool)
    ignored += (f"stream_options.{name}" for name in options)
    return wanted


def _format(values: dict[str, Any], ignored: list[str]) -> Constraint | None:
    """Return the JSON schema that the answer must follow; None for any text. Raises: ApiError."""
    given = dict(take(values, "response_format", dict) or {"type": "text"})
    kind = take(given, "type", str)
    about = dict(take(given, "json_schema", dict) or {}) if kind == "json_schema" else {}
    ignored += (f"response_format.{name}" for name in given)
    return read_format(kind, about, "response_format", "json_schema.", ignored)


def read_format(
    kind: str | None, about: dict[str, Any], param: str, within: str, ignored: list[str]
) -> Constraint | None:
    """Return the schema of a format of this kind; None for any text. within: where in `param` its fields are.

    Raises: ApiError.
    """
    schema: dict[str, Any] | None = dict(ANY_OBJECT) if kind == "json_object" else None
    if kind == "json_schema":
        schema = take(about, "schema", dict)
        for name, of in (("name", str), ("description", str), ("strict", bool)):
            take(about, name, of)
        if schema is None:
            raise wrong(f"{param!r} has no schema: set '{within}schema'.", param, "missing_field")
    elif kind not in ("text", "json_object"):
        kinds = "text, json_object, json_schema"
        raise wrong(f"'{param}.type' is {shown(kind)}; it must be one of {kinds}.", param)
    ignored += (f"{param}.{within}{name}" for name in about)
    return None if schema is None else checked(Constraint("json_schema", schema), param)


def _read_constraint(values: dict[str, Any], from_format: Constraint | None) -> Constraint | None:
    """Return what the answer must be, as fields of llama.cpp and vLLM may say it too. Raises: ApiError."""
    for name, value in (take(values, "structured_outputs", dict) or {}).items():
        values[f"structured_outputs.{name}"] = value
    if take(values, "structured_outputs.json_object", bool):
        values.setdefault("structured_outputs.json", dict(ANY_OBJECT))
    found = {} if from_format is None else {"response_format": from_format}
    for name, kind in _CONSTRAINTS.items():
        if kind == "json_schema" and isinstance(values.get(name), str):
            values[name] = read_object(values[name].encode("utf-8", "replace"))
        source = take(values, name, {"json_schema": dict, "choice": list}.get(kind, str))
        if source is None or source == "":
            continue
        if kind == "choice" and not (source and all(isinstance(text, str) for text in source)):
            raise wrong(f"The field {name!r} is {shown(source)}; a list of texts is needed.", name, "invalid_type")
        found[name] = checked(Constraint(kind, source), name)
    if len(found) > 1:
        first, second, *_ = found
        raise wrong(f"{first!r} and {second!r} both say what the answer must be; give one of them.", second)
    return next(iter(found.values()), None)


def _chat_alternatives(values: dict[str, Any]) -> int | None:
    wanted, most = take(values, "logprobs", bool), MOST_ALTERNATIVES["chat"]
    alternatives = count(values, "top_logprobs", most)
    if alternatives is not None and not wanted:
        raise wrong("The field 'top_logprobs' needs 'logprobs' to be true.", "top_logprobs")
    return (alternatives or 0) if wanted else None


def _sampling(values: dict[str, Any], what: What, ignored: list[str]) -> dict[str, Any]:
    """Raises: ApiError for a value out of range."""
    found = read_numbers(values)
    longest = take(values, "max_tokens", int)
    if what == "chat" and (newer := take(values, "max_completion_tokens", int)) is not None:
        longest = newer
    if longest is None and what == "completion":
        longest = COMPLETION_TOKENS
    if longest is not None:
        check_sampling({"max_tokens": longest})
        found["max_tokens"] = longest
    if texts := stops(values, "stop", MOST_STOPS):
        found["stop"] = texts
    if what == "chat":
        found |= read_thinking(values, ignored)
    return found


def read_numbers(values: dict[str, Any]) -> dict[str, Any]:
    """Return how tokens are chosen. Raises: ApiError for a value out of range."""
    found: dict[str, Any] = {}
    for name in _SAMPLING:
        kind = int if name in ("top_k", "seed") else float
        if (value := take(values, name, kind)) is not None:
            found[name] = value
    check_sampling(found)
    return found


def read_thinking(values: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
    """Return how much to think, in whichever way the client says it. Raises: ApiError."""
    found: dict[str, Any] = {}
    options = dict(take(values, "chat_template_kwargs", dict) or {})
    for name in ("enable_thinking", "thinking"):
        if (wanted := take(options, name, bool)) is not None:
            found["thinking"] = "on" if wanted else "off"
    for given in (values, options):
        if (effort := take(given, "reasoning_effort", str)) is not None:
            if effort not in _EFFORTS:
                names = ", ".join(_EFFORTS)
                raise wrong(f"'reasoning_effort' is {shown(effort)}; it must be one of {names}.", "reasoning_effort")
            found["thinking"] = _EFFORTS[effort]
    ignored += (f"chat_template_kwargs.{name}" for name in options)
    if (most := count(values, "thinking_budget", 1 << 30)) is not None:
        found["thought_tokens"] = most
    return found


def check_sampling(values: dict[str, Any]) -> None:
    """Raises: ApiError for a value out of range."""
    for name, value in values.items():
        try:
            SamplingConfig().changed({name: value})
        except InvalidRequestError as error:
            raise wrong(error.message, name) from None


# --- what is to be answered


def _messages(values: dict[str, Any], ignored: list[str]) -> list[ChatMessage]:
    given = take(values, "messages", list)
    if not given:
        raise wrong("The field 'messages' is missing or empty.", "messages", "missing_field")
    if len(given) > MOST_MESSAGES:
        raise wrong(f"{len(given)} messages are more than the {MOST_MESSAGES} that are taken.", "messages")
    names: dict[str, str] = {}
    messages = objects(given, "messages")
    return [_message(message, f"messages[{i}]", names, ignored) for i, message in enumerate(messages)]


def _message(message: dict[str, Any], param: str, names: dict[str, str], ignored: list[str]) -> ChatMessage:
    """names: of all calls so far by their ids, which the message's own are added to."""
    role = message.pop("role", None)
    if not isinstance(role, str) or role not in _ROLES:
        needed = "system, developer, user, assistant or tool"
        raise wrong(f"{param} has the role {shown(role)}; {needed} is needed.", param)
    found: ChatMessage = {"role": _ROLES[role], "content": ""}
    content, reasoning = message.pop("content", None), message.pop("reasoning_content", None)
    calls = read_calls(message, param, names, ignored) if role == "assistant" else []
    if content is not None or not calls:
        found["content"] = text_of(content, f"{param}.content", ignored)
    if calls:
        found["calls"] = calls
    if role == "assistant" and isinstance(reasoning, str) and reasoning:
        found["reasoning"] = reasoning
    if role == "tool":
        found |= answered_call(take(message, "tool_call_id", str), f"{param}.tool_call_id", names)
    if message.get("tool_calls") or message.get("function_call"):
        raise wrong(f"{param} holds a call, which only the assistant makes as 'tool_calls'.", param)
    unused = {"name", "tool_calls", "function_call", "refusal", "audio", "annotations"}
    ignored += (f"{param}.{name}" for name in message.keys() - unused)
    return found


def _prompt(values: dict[str, Any]) -> str | list[int]:
    given = values.pop("prompt", None)
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], str | list):
        given = given[0]
    if isinstance(given, str):
        return given
    if isinstance(given, list) and given and all(type(token) is int for token in given):
        return given
    if isinstance(given, list) and given and all(isinstance(one, str | list) for one in given):
        raise ApiError(400, "unsupported_value", "Hearth answers one prompt for each request.", "prompt")
    raise wrong("The field 'prompt' is missing; a text, or a list of token ids, is needed.", "prompt", "missing_field")
