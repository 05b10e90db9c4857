"""The chat in the window's requests: messages and tools, checked; and the calls in an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from engine.errors import InvalidRequestError
from engine.local_api.parts import Part, PartsReader, ThoughtPart
from engine.session.generate import FinishReason
from engine.text.context_fit import ChatMessage
from engine.text.thoughts import end_of
from engine.text.tokenizer import Tokenizer
from engine.tool_calls.call_format import Call
from engine.tool_calls.call_reader import ArgumentsPart, CallPart, CallReader
from engine.tool_calls.call_style import call_style
from engine.tool_calls.tool import NO_TOOLS, Tool, ToolUse


def read_messages(messages: Sequence[Any]) -> list[ChatMessage]:
    """Return the messages as CallStyle.prepare takes them. Raises: InvalidRequestError."""
    if not messages:
        raise InvalidRequestError("The conversation has no messages.", "Send at least one message.")
    return [_read_message(message) for message in messages]


def _read_message(message: Any) -> ChatMessage:
    try:
        read: ChatMessage = {"role": message["role"], "content": message["content"]}
        if read["role"] == "tool":
            read |= {"id": message["id"], "name": message["name"]}
        if calls := message.get("calls") or ():
            read["calls"] = [Call(one["name"], dict(one["arguments"]), one["id"]) for one in calls]
        if reasoning := message.get("reasoning"):
            read["reasoning"] = reasoning
        texts = [read["content"], *(read.get(name, "") for name in ("id", "name", "reasoning"))]
        texts += [text for call in read.get("calls", ()) for text in (call.name, call.id)]
        is_good = read["role"] in ("system", "user", "assistant", "tool") and all(isinstance(t, str) for t in texts)
    except (AttributeError, KeyError, TypeError, ValueError):
        is_good = False
    if not is_good:
        shown = repr(message)[:200]
        raise InvalidRequestError(f"A message of the conversation has no valid role or content: {shown}.")
    return read


def read_tools(tools: Sequence[Any]) -> ToolUse:
    """Return the tools of a request, each of which may be called. Raises: InvalidRequestError."""
    if not tools:
        return NO_TOOLS
    try:
        read = tuple(Tool(str(one["name"]), str(one["description"]), dict(one["parameters"])) for one in tools)
    except (KeyError, TypeError, ValueError):
        raise InvalidRequestError(f"A tool has no name, description or parameters: {tools!r}"[:300] + ".") from None
    return ToolUse(read, allowed=frozenset(tool.name for tool in read))


class AnswerText:
    """Separates the calls in an answer from the text that the window shows, in which thoughts keep their marks.

    calls: [{"id", "name", "arguments"}], those that have ended.
    """

    def __init__(self, tokenizer: Tokenizer, use: ToolUse, stops: tuple[str, ...], begun: str = "") -> None:
        """begun: the beginning of the answer, which is continued. stops: texts that end it, outside of calls."""
        self._reader: PartsReader | None = None
        self._is_thinking = False
        self._calls: list[tuple[CallPart, list[str]]] = []
        self._shown_before = ""  # text of the beginning that the reader still holds back: it is shown already
        if use.tools and tokenizer.template is not None:
            self._reader = PartsReader(CallReader(call_style(tokenizer.template).format, use.tools), stops)
            shown = self._text(self._reader.append(begun))
            if begun.startswith(shown):
                self._shown_before = begun[len(shown) :]

    @property
    def has_stopped(self) -> bool:
        """Whether one of `stops` has ended the answer."""
        return self._reader is not None and bool(self._reader.stop_text)

    @property
    def has_called(self) -> bool:
        """Whether the answer has calls, all of which have ended."""
        return self._reader is not None and self._reader.has_called

    @property
    def calls(self) -> list[dict[str, Any]]:
        if not self.has_called:
            return []
        try:
            return [
                {"id": call.id, "name": call.name, "arguments": json.loads("".join(texts) or "{}")}
                for call, texts in self._calls
            ]
        except (ValueError, RecursionError):  # a number with thousands of digits, or lists nested as deeply
            return []

    def append(self, text: str, end: FinishReason | None = None) -> str:
        """Add text to the answer. Return what the window shows of it. end: why it ends with this text, if so."""
        if self._reader is None:
            return text
        shown = self._text(self._reader.append(text))
        shown += "" if end is None else self._text(self._reader.finish(end != "stop"))
        if self._shown_before and shown:
            pairs = enumerate(zip(self._shown_before, shown, strict=False))
            n_same = next((i for i, (a, b) in pairs if a != b), min(len(self._shown_before), len(shown)))
            shown, self._shown_before = shown[n_same:], self._shown_before[n_same:] if n_same == len(shown) else ""
        return shown

    def _text(self, parts: Sequence[Part]) -> str:
        shown: list[str] = []
        for part in parts:
            is_thought = isinstance(part, ThoughtPart)
            if is_thought != self._is_thinking:
                assert self._reader is not None
                mark = self._reader.thought_mark
                shown.append(mark if is_thought else f"{end_of(mark)}\n\n")
                self._is_thinking = is_thought
            if isinstance(part, CallPart):
                self._calls.append((part, []))
            elif isinstance(part, ArgumentsPart):
                self._calls[-1][1].append(part.text)
            else:
                shown.append(part.text)
        return "".join(shown)
