"""Requests of OpenAI's Responses API, read into the same plain data as chat completions. Nothing is stored."""

from __future__ import annotations

from typing import Any

from engine.local_api.api_request import (
    MOST_MESSAGES,
    ApiRequest,
    check_sampling,
    model_of,
    read_format,
    read_numbers,
    read_thinking,
)
from engine.local_api.failures import wrong
from engine.local_api.fields import objects, read_object, required, shown, take
from engine.local_api.tool_fields import answered_call, read_call, read_functions, text_of
from engine.session.constraint import Constraint
from engine.text.context_fit import ChatMessage

# Fields that Hearth cannot honour, with the only values it takes.
_ONLY: dict[str, tuple[tuple[Any, ...], str]] = {
    "previous_response_id": ((), "Hearth stores no responses: send all items of the conversation as 'input'"),
    "conversation": ((), "Hearth stores no conversations: send all items as 'input'"),
    "prompt": ((), "Hearth stores no prompts: send 'instructions' and 'input'"),
    "background": ((False,), "Hearth answers while the client waits"),
    "top_logprobs": ((0,), "Hearth gives no probabilities here; chat completions have them"),
    "truncation": (("disabled",), "Hearth leaves no items out"),
    "n": ((1,), "Hearth gives one answer for each request"),
}
_UNUSED = {
    "store", "metadata", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "include", "max_tool_calls", "stream_options",
}  # fmt: skip
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXTS = ("input_text", "output_text", "text")


def read_responses_request(body: bytes) -> ApiRequest:
    """Return the request in a body. Raises: ApiError."""
    values = read_object(body)
    model = model_of(values)
    for name, (allowed, why) in _ONLY.items():
        value = values.pop(name, None)
        if value is not None and value not in allowed:
            raise wrong(f"{why}; {name!r} is {shown(value)}.", name, "unsupported_value")
    ignored: list[str] = []
    sampling = read_numbers(values)
    if (longest := take(values, "max_output_tokens", int)) is not None:
        check_sampling({"max_tokens": longest})
        sampling["max_tokens"] = longest
    reasoning = dict(take(values, "reasoning", dict) or {})
    if (effort := take(reasoning, "effort", str)) is not None:
        values["reasoning_effort"] = effort
    sampling |= read_thinking(values, ignored)
    ignored += (f"reasoning.{name}" for name in reasoning.keys() - {"summary", "generate_summary"})
    constraint = _format(values, ignored)
    use = read_functions(values, ignored)
    instructions = take(values, "instructions", str)
    messages = _Items(ignored).read(values.pop("input", None))
    if instructions:
        messages.insert(0, {"role": "system", "content": instructions})
    streams = bool(take(values, "stream", bool))
    ignored += values.keys() - _UNUSED
    return ApiRequest(
        "chat",
        model,
        messages,
        use,
        sampling=sampling,
        constraint=constraint,
        streams=streams,
        instructions=instructions,
        ignored=tuple(sorted(ignored)),
    )


def _format(values: dict[str, Any], ignored: list[str]) -> Constraint | None:
    text = dict(take(values, "text", dict) or {})
    given = dict(take(text, "format", dict) or {"type": "text"})
    ignored += (f"text.{name}" for name in text.keys() - {"verbosity"})
    return read_format(take(given, "type", str), given, "text.format", "", ignored)


class _Items:
    """Reads the items of an input, and joins those that make up one message of the assistant."""

    def __init__(self, ignored: list[str]) -> None:
        self._ignored = ignored
        self._messages: list[ChatMessage] = []
        self._names: dict[str, str] = {}
        self._reasoning = ""  # of the assistant's next message

    def read(self, given: object) -> list[ChatMessage]:
        """Raises: ApiError."""
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        if not isinstance(given, list) or not given:
            raise wrong(
                "The field 'input' is missing; a text, or a list of items, is needed.", "input", "missing_field"
            )
        if len(given) > MOST_MESSAGES:
            raise wrong(f"{len(given)} items are more than the {MOST_MESSAGES} that are taken.", "input")
        for i, item in enumerate(objects(given, "input")):
            self._read_item(item, f"input[{i}]")
        if not self._messages:
            raise wrong("The field 'input' has no message.", "input", "missing_field")
        return self._messages

    def _read_item(self, item: dict[str, Any], param: str) -> None:
        kind = item.pop("type", None) or "message"
        if kind == "message":
            self._read_message(item, param)
        elif kind == "function_call":
            name, arguments = take(item, "name", str), take(item, "arguments", str)
            call = read_call(take(item, "call_id", str), name, arguments, param, self._names)
            self._answer().setdefault("calls", []).append(call)
        elif kind == "function_call_output":
            about = answered_call(take(item, "call_id", str), f"{param}.call_id", self._names)
            output = text_of(item.pop("output", None), f"{param}.output", self._ignored, _TEXTS)
            self._messages.append({"role": "tool", "content": output, **about})
        elif kind == "reasoning":
            parts = objects([*(take(item, "content", list) or take(item, "summary", list) or [])], param)
            self._reasoning = "\n\n".join(str(part.get("text", "")) for part in parts)
            item.pop("summary", None)
        else:
            raise wrong(f"{param} has the type {shown(kind)}, which Hearth does not read.", param, "unsupported_value")
        unused = {"id", "status", "encrypted_content", "phase"}
        self._ignored += (f"{param}.{name}" for name in item.keys() - unused)

    def _read_message(self, item: dict[str, Any], param: str) -> None:
        role = required(take(item, "role", str), f"{param}.role")
        if role not in _ROLES:
            needed = "user, assistant, system or developer"
            raise wrong(f"{param} has the role {shown(role)}; {needed} is needed.", f"{param}.role")
        content = item.pop("content", None)
        if role == "assistant" and isinstance(content, list):
            content = [part for part in content if not isinstance(part, dict) or part.get("type") != "refusal"]
        text = text_of(content, f"{param}.content", self._ignored, _TEXTS)
        if role == "assistant":
            self._messages.append({"role": "assistant", "content": text, **self._thought()})
        else:
            self._messages.append({"role": _ROLES[role], "content": text})

    def _answer(self) -> ChatMessage:
        """Return the assistant's message that a call belongs to."""
        if not self._messages or self._messages[-1]["role"] != "assistant":
            self._messages.append({"role": "assistant", "content": "", **self._thought()})
        return self._messages[-1]

    def _thought(self) -> dict[str, str]:
        thought, self._reasoning = self._reasoning, ""
        return {"reasoning": thought} if thought else {}
