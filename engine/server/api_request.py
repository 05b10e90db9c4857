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
from engine.server.failures import ApiError, wrong
from engine.session.grammar import ANY_OBJECT, check_size
from engine.text.context_fit import ChatMessage

What = Literal["chat", "completion"]

MOST_MESSAGES = 4096
MOST_STOPS, LONGEST_STOP = 4, 1000  # texts, characters
MOST_ALTERNATIVES: dict[What, int] = {"chat": 20, "completion": 5}
COMPLETION_TOKENS = 16  # of a completion that does not say how many

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
# Of those, only these values are supported.
_ONLY: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "presence_penalty": (0,), "frequency_penalty": (0,), "logit_bias": ({},),
    "tools": ([],), "functions": ([],), "tool_choice": ("none", "auto"), "function_call": ("none", "auto"),
    "modalities": (["text"],), "echo": (False,), "suffix": ("",),
    "store": (False,),
}  # fmt: skip
_WHY: dict[str, str] = {
    "n": "Hearth gives one answer for each request",
    "best_of": "Hearth gives one answer for each request",
    "tools": "Hearth calls no tools",
    "functions": "Hearth calls no functions",
    "modalities": "Hearth answers in plain text",
}
_UNUSED = {
    "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "parallel_tool_calls",
}  # fmt: skip
_EFFORTS = {"none": "off", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high"}
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed")


@dataclass(frozen=True)
class ApiRequest:
    """One request. prompt: of a completion; a text, or token ids. alternatives: number of tokens to report besides the
    chosen one; None: no probabilities at all.
    """

    what: What
    model: str
    messages: list[ChatMessage] = field(default_factory=list)
    prompt: str | list[int] = ""
    sampling: dict[str, Any] = field(default_factory=dict)  # what differs from the model's own defaults
    schema: dict[str, Any] | None = None  # JSON schema of the answer
    alternatives: int | None = None
    streams: bool = False
    tells_usage: bool = False  # at the end of a stream
    ignored: tuple[str, ...] = ()  # unknown fields, such as "messages[0].mood"


def read_api_request(what: What, body: bytes) -> ApiRequest:
    """Return the request in a body. Raises: ApiError with a message for the client's author."""
    values = _object(body)
    model = _take(values, "model", str)
    if model is None:
        raise wrong("The field 'model' is missing; GET /v1/models lists what can be asked.", "model", "missing_field")
    _refuse_undone(values)
    ignored: list[str] = []
    api_request: dict[str, Any] = {"streams": bool(_take(values, "stream", bool))}
    api_request["tells_usage"] = _usage_wanted(values, api_request["streams"], ignored)
    if what == "chat":
        api_request["messages"] = _messages(values, ignored)
        api_request["alternatives"] = _chat_alternatives(values)
        api_request["schema"] = _schema(values, ignored)
    else:
        api_request["prompt"] = _prompt(values)
        api_request["alternatives"] = _count(values, "logprobs", MOST_ALTERNATIVES[what])
    api_request["sampling"] = _sampling(values, what, ignored)
    ignored += values.keys() - _UNUSED
    return ApiRequest(what, model, **api_request, ignored=tuple(sorted(ignored)))


def _object(body: bytes) -> dict[str, Any]:
    def no_number(name: str) -> None:
        raise ValueError(f"{name} is no number of JSON")

    try:
        values = json.loads(body, parse_constant=no_number)
    except RecursionError:
        raise wrong("The body is nested too deeply.", code="invalid_json") from None
    except UnicodeDecodeError:
        raise wrong("The body is not UTF-8.", code="invalid_json") from None
    except ValueError as error:
        raise wrong(f"The body is not JSON: {error}.", code="invalid_json") from None
    if not isinstance(values, dict):
        raise wrong("The body is no JSON object.", code="invalid_json")
    return values


# ------------------------------------------------------------------ fields

_WORDS: dict[type, str] = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "an object",
}  # fmt: skip


def _take(values: dict[str, Any], name: str, kind: type) -> Any:
    """Remove the field from the values and return it; None if missing or null. Raises: ApiError for another type."""
    value = values.pop(name, None)
    if value is None:
        return None
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise wrong(f"The field {name!r} is {_shown(value)}; {_WORDS[kind]} is needed.", name, "invalid_type")
    return value


def _count(values: dict[str, Any], name: str, most: int) -> int | None:
    number: int | None = _take(values, name, int)
    if number is not None and not 0 <= number <= most:
        raise wrong(f"The field {name!r} is {number}; it must lie between 0 and {most}.", name)
    return number


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


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
    options = _take(values, "stream_options", dict)
    if options is None:
        return False
    if not streams:
        raise wrong("The field 'stream_options' is only for streams: set 'stream' too.", "stream_options")
    options = dict(options)
    wanted = bool(_take(options, "include_usage", bool))
    _take(options, "include_obfuscation", bool)
    ignored += (f"stream_options.{name}" for name in options)
    return wanted


def _schema(values: dict[str, Any], ignored: list[str]) -> dict[str, Any] | None:
    """Return the JSON schema that the answer must follow; None for any text. Raises: ApiError."""
    given = dict(_take(values, "response_format", dict) or {"type": "text"})
    kind = _take(given, "type", str)
    if kind == "json_schema":
        about = dict(_take(given, "json_schema", dict) or {})
        schema: dict[str, Any] | None = _take(about, "schema", dict)
        for name, of in (("name", str), ("description", str), ("strict", bool)):
            _take(about, name, of)
        if schema is None:
            raise wrong(
                "'response_format' has no schema: set 'json_schema.schema'.", "response_format", "missing_field"
            )
        ignored += (f"response_format.json_schema.{name}" for name in about)
    elif kind in ("text", "json_object"):
        schema = dict(ANY_OBJECT) if kind == "json_object" else None
    else:
        kinds = "text, json_object, json_schema"
        raise wrong(f"'response_format.type' is {_shown(kind)}; it must be one of {kinds}.", "response_format")
    ignored += (f"response_format.{name}" for name in given)
    if schema is not None:
        try:
            check_size(schema)
        except InvalidRequestError as error:
            raise wrong(f"{error.message} {error.hint}", "response_format") from None
    return schema


def _chat_alternatives(values: dict[str, Any]) -> int | None:
    wanted, most = _take(values, "logprobs", bool), MOST_ALTERNATIVES["chat"]
    alternatives = _count(values, "top_logprobs", most)
    if alternatives is not None and not wanted:
        raise wrong("The field 'top_logprobs' needs 'logprobs' to be true.", "top_logprobs")
    return (alternatives or 0) if wanted else None


def _sampling(values: dict[str, Any], what: What, ignored: list[str]) -> dict[str, Any]:
    """Raises: ApiError for a value out of range."""
    found: dict[str, Any] = {}
    for name in _SAMPLING:
        kind = int if name in ("top_k", "seed") else float
        if (value := _take(values, name, kind)) is not None:
            found[name] = value
            _check(name, value)
    longest = _take(values, "max_tokens", int)
    if what == "chat" and (newer := _take(values, "max_completion_tokens", int)) is not None:
        longest = newer
    if longest is None and what == "completion":
        longest = COMPLETION_TOKENS
    if longest is not None:
        _check("max_tokens", longest)
        found["max_tokens"] = longest
    if stops := _stops(values):
        found["stop"] = stops
    if what == "chat":
        found |= _thinking(values, ignored)
    return found


def _thinking(values: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
    """Return how much to think, in whichever way the client says it. Raises: ApiError."""
    found: dict[str, Any] = {}
    options = dict(_take(values, "chat_template_kwargs", dict) or {})
    for name in ("enable_thinking", "thinking"):
        if (wanted := _take(options, name, bool)) is not None:
            found["thinking"] = "on" if wanted else "off"
    for given in (values, options):
        if (effort := _take(given, "reasoning_effort", str)) is not None:
            if effort not in _EFFORTS:
                names = ", ".join(_EFFORTS)
                raise wrong(f"'reasoning_effort' is {_shown(effort)}; it must be one of {names}.", "reasoning_effort")
            found["thinking"] = _EFFORTS[effort]
    ignored += (f"chat_template_kwargs.{name}" for name in options)
    if (most := _count(values, "thinking_budget", 1 << 30)) is not None:
        found["thought_tokens"] = most
    return found


def _check(name: str, value: float) -> None:
    try:
        SamplingConfig().changed({name: value})
    except InvalidRequestError as error:
        raise wrong(error.message, name) from None


def _stops(values: dict[str, Any]) -> list[str]:
    given = values.pop("stop", None)
    stops = [given] if isinstance(given, str) else given
    if stops is None:
        return []
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        raise wrong(
            f"The field 'stop' is {_shown(given)}; a text or a list of texts is needed.", "stop", "invalid_type"
        )
    if len(stops) > MOST_STOPS or any(not 1 <= len(text) <= LONGEST_STOP for text in stops):
        raise wrong(f"'stop' holds up to {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters.", "stop")
    return stops


# ------------------------------------------------------------------ what is to be answered


def _messages(values: dict[str, Any], ignored: list[str]) -> list[ChatMessage]:
    given = _take(values, "messages", list)
    if not given:
        raise wrong("The field 'messages' is missing or empty.", "messages", "missing_field")
    if len(given) > MOST_MESSAGES:
        raise wrong(f"{len(given)} messages are more than the {MOST_MESSAGES} that are taken.", "messages")
    return [_message(message, f"messages[{i}]", ignored) for i, message in enumerate(given)]


def _message(message: object, param: str, ignored: list[str]) -> ChatMessage:
    if not isinstance(message, dict):
        raise wrong(f"{param} is {_shown(message)}; an object is needed.", param, "invalid_type")
    role = message.get("role")
    if role in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        raise wrong(f"{param} is about a tool: Hearth calls no tools.", param, "unsupported_value")
    if not isinstance(role, str) or role not in _ROLES:
        raise wrong(f"{param} has the role {_shown(role)}; system, developer, user or assistant is needed.", param)
    known = {"role", "content", "name", "tool_calls", "function_call", "refusal", "audio", "annotations"}
    ignored += (f"{param}.{name}" for name in message.keys() - known)
    return {"role": _ROLES[role], "content": _content(message.get("content"), f"{param}.content")}


def _content(content: object, param: str) -> str:
    """Return a text, or the joined texts of its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(f"{param} is {_shown(content)}; a text is needed.", param, "invalid_type")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise wrong(
                f"{param} holds a part of the type {_shown(kind)}: Hearth reads text alone.", param, "unsupported_value"
            )
        assert isinstance(part, dict)
        if not isinstance(part.get("text"), str) or part.keys() - {"type", "text"}:
            raise wrong(f"{param} holds a text part that is not {{type, text}}.", param, "invalid_type")
        texts.append(part["text"])
    return "".join(texts)


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
