"""Parse a server's response with limits: server-sent events from bytes, an answer's text from events.

All input is untrusted. Opens no connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MAX_LINE_BYTES = 1 << 20
MAX_TEXT_CHARACTERS = 2_000_000  # of one answer
MAX_NAME_CHARACTERS = 200
_ENDS = {"length": "length"}  # everything else counts as a normal end


class StrangeAnswerError(ValueError):
    """The response is not that of such a server; the message states a fact in a few words."""


class EventReader:
    """Converts bytes to the data of whole events. Only `data` lines count; comments keep a connection alive."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._n_bytes = 0

    def feed(self, block: bytes) -> Iterator[str]:
        """Yield complete events. Raises: StrangeAnswerError for a long line or event, or invalid UTF-8."""
        lines = (self._rest + block).replace(b"\r\n", b"\n").split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE_BYTES:
            raise StrangeAnswerError("a line has no end")
        for line in lines:
            if not line:
                if self._data:
                    yield self._take()
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._n_bytes += len(line)
                if self._n_bytes > MAX_LINE_BYTES:
                    raise StrangeAnswerError("an event has no end")

    def end(self) -> Iterator[str]:
        """Yield an event that no empty line ended."""
        yield from self.feed(b"\n\n")

    def _take(self) -> str:
        data, self._data, self._n_bytes = b"\n".join(self._data), [], 0
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise StrangeAnswerError("an event is not text") from None


@dataclass
class AnswerText:
    """A growing answer. Reasoning that a server sends separately is put between <think> marks."""

    finish_reason: str = ""  # "" until the end
    tokens: int | None = None  # as counted by the server, if it does
    prompt_tokens: int | None = None
    n_characters: int = 0
    is_full: bool = False  # the answer exceeded the limit
    pieces: int = 0
    _thinking: bool = field(default=False, repr=False)

    def take(self, event: Any) -> str:
        """Return the new text in an event. Raises: StrangeAnswerError, also for a failure that the event reports."""
        if not isinstance(event, dict):
            raise StrangeAnswerError("an event is not an object")
        if event.get("error"):
            raise StrangeAnswerError(said_in(event) or "the server failed during the answer")
        self._take_usage(event.get("usage"))
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        if not isinstance(choice, dict):
            raise StrangeAnswerError("an answer is not an object")
        part = choice.get("delta") or choice.get("message") or {}
        if not isinstance(part, dict):
            raise StrangeAnswerError("a part of an answer is not an object")
        new = self._new_text(part)
        if choice.get("finish_reason") and not self.finish_reason:
            self.finish_reason = _ENDS.get(str(choice["finish_reason"]), "stop")
            new += self.close()
        if new:
            self.pieces += 1
            self.n_characters += len(new)
        if self.n_characters > MAX_TEXT_CHARACTERS:
            self.finish_reason, self.is_full = "length", True
        return new

    def close(self) -> str:
        """Return the end mark of a thought without a following answer."""
        was, self._thinking = self._thinking, False
        return "</think>" if was else ""

    def _new_text(self, part: dict[str, Any]) -> str:
        thought, said = part.get("reasoning_content") or part.get("reasoning"), part.get("content")
        new = ""
        if isinstance(thought, str) and thought:
            new += ("" if self._thinking else "<think>") + thought
            self._thinking = True
        if isinstance(said, str) and said:
            new += self.close() + said
        return clean(new)

    def _take_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self.tokens = _count(usage.get("completion_tokens"), self.tokens)
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)


def parsed(text: str | bytes) -> Any:
    """Return a JSON value. Raises: StrangeAnswerError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise StrangeAnswerError("it is not JSON") from None


def models_in(values: Any, most: int) -> list[str]:
    """Return the ids in a list of models, without invalid ones. Raises: StrangeAnswerError if it is not such a list."""
    listed = values.get("data") if isinstance(values, dict) else None
    if not isinstance(listed, list):
        raise StrangeAnswerError("it is not a list of models")
    ids = [one.get("id") for one in listed[:most] if isinstance(one, dict)]
    return list(dict.fromkeys(str(found) for found in ids if is_name(found)))


def is_name(value: Any) -> bool:
    """Return whether it can be a model's name."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARACTERS and value.isprintable()


def said_in(values: Any) -> str:
    """Return a failure's own message as one printable line; "" without one."""
    error = values.get("error") if isinstance(values, dict) else None
    said = error.get("message") if isinstance(error, dict) else error
    if not isinstance(said, str) and isinstance(values, dict):
        said = values.get("message") or values.get("detail")
    return " ".join(clean(said).split())[:300] if isinstance(said, str) else ""


def clean(text: str) -> str:
    """Return text that files and databases can store: no lone surrogates, no control characters but tab and newline."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if text.isprintable():
        return text
    return "".join(letter for letter in text if letter in "\n\t" or (letter >= " " and letter != "\x7f"))


def _count(value: Any, before: int | None) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else before
