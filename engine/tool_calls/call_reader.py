"""Read calls of tools from an answer while it arrives: its text, and then the calls."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from engine.tool_calls.arguments import parameters_of, read_value
from engine.tool_calls.call_format import CallFormat
from engine.tool_calls.marked_arguments import read_pairs
from engine.tool_calls.nested_arguments import read_tag
from engine.tool_calls.tool import Tool

_PARTS = re.compile(r"(\$ID|\$NUMBER|\$INDEX|\$IS_TEXT|\$TYPE|\s+)")
_PLACES = {
    "$ID": r"[A-Za-z0-9]{9}", "$NUMBER": r"\d{1,3}", "$INDEX": r"\d{1,3}", "$IS_TEXT": "(?P<kind>true|false)",
    "$TYPE": "(?P<kind>[a-z]+)",
}  # fmt: skip
_ID_CHARS = string.ascii_letters + string.digits


@dataclass(frozen=True)
class TextPart:
    text: str


@dataclass(frozen=True)
class CallPart:
    id: str
    name: str


@dataclass(frozen=True)
class ArgumentsPart:
    """More of the JSON object with the arguments of the call that began last."""

    text: str


Part = TextPart | CallPart | ArgumentsPart


class CallReader:
    """Reads one answer. n_calls: calls that have begun. is_complete: whether all of them have ended."""

    def __init__(self, call_format: CallFormat, tools: Sequence[Tool]) -> None:
        self._format = call_format
        self._schemas = {tool.name: tool.parameters for tool in tools}
        name, middle = r"(?P<name>[\w-]+)(?=[^\w-])", _pattern(call_format.middle)
        names = list(self._schemas) if call_format.is_named else []
        self._marks = [f"{call_format.head}{one}{call_format.middle}" for one in names] or [call_format.mark]
        self._marks += [call_format.before] if call_format.before else []
        self._first = re.compile(_pattern(call_format.begin + call_format.head) + name + middle)
        self._next = re.compile(_pattern(call_format.between + call_format.head) + name + middle)
        self._tail = re.compile(_pattern(call_format.tail))
        before, between, after = call_format.value_marks
        exact = re.escape(between[len(between.rstrip()) :])
        self._opening = re.compile(rf"\s*{_pattern(before)}(?P<key>.*?){_pattern(between.rstrip())}{exact}")
        self._close = after.rstrip()
        self._held = ""
        self._step: Callable[[], list[Part] | None] = self._read_text
        self._has_text = False
        self._json = _JsonEnd()
        self._n_arguments, self._name = 0, ""
        self.n_calls = 0
        self.is_complete = True

    def append(self, text: str) -> list[Part]:
        self._held += text
        found: list[Part] = []
        while (parts := self._step()) is not None:
            found += parts
        return found

    def finish(self, is_cut: bool = False) -> list[Part]:
        """End the answer. Return the text that was held back because it could have been the mark of a call.

        is_cut: whether the model had not ended it, so that a mark may be cut off.
        """
        held, self._held = self._held, ""
        is_call = is_cut and self._format.is_named and held.startswith(self._format.mark)
        return [TextPart(held)] if held and self._step == self._read_text and not is_call else []

    # Each step returns what it read, and maybe sets the next one; None: it needs more text.

    def _read_text(self) -> list[Part] | None:
        marks = self._marks
        places = [(at, mark) for mark in marks if (at := self._held.find(mark)) >= 0]
        if places and (not self._format.only_first or (min(places)[0] == 0 and not self._has_text)):
            at, mark = min(places)
            text, self._held = self._held[:at], self._held[at:]
            if mark == self._format.before:
                self._held = self._held[len(mark) :].lstrip()
            else:
                self._step = self._read_first
            return self._text(text)
        keep = 0
        if not self._format.only_first or not self._has_text:
            keep = max(_overlap(self._held, mark) for mark in marks)
        if self._format.only_first and keep != len(self._held):
            keep = 0
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return self._text(text) if text else None

    def _text(self, text: str) -> list[Part]:
        self._has_text = self._has_text or bool(text)
        return [TextPart(text)] if text else []

    def _read_first(self) -> list[Part] | None:
        return self._read_head(self._first)

    def _read_next(self) -> list[Part] | None:
        return None if self._format.is_single else self._read_head(self._next)

    def _read_head(self, pattern: re.Pattern[str]) -> list[Part] | None:
        found = pattern.match(self._held)
        if found is None:
            return None
        self._held, self._name = self._held[found.end() :], found["name"]
        self.n_calls += 1
        self.is_complete = False
        self._json, self._n_arguments = _JsonEnd(), 0
        self._step = self._read_json
        if self._format.parameter:
            self._step = self._read_parameter
        elif self._format.tag_mark:
            self._step = self._read_tagged
        elif self._format.text_mark:
            self._step = self._read_marked
        elif self._format.assign:
            self._step = self._read_assigned
        return [CallPart("".join(secrets.choice(_ID_CHARS) for _ in range(9)), self._name)]

    def _read_json(self) -> list[Part] | None:
        if not self._json.depth:
            self._held = self._held.lstrip()
        if not self._held:
            return None
        end = self._json.find(self._held)
        text, self._held = self._held[:end], self._held[end:]
        if self._json.is_ended:
            self._step = self._read_tail
        return [ArgumentsPart(text)]

    def _read_parameter(self) -> list[Part] | None:
        opening = self._opening.match(self._held)
        if opening is not None:
            end = self._held.find(self._close, opening.end())
            if end < 0:
                return None
            given = self._held[opening.end() : end]
            self._held = self._held[end + len(self._close) :]
            return [self._argument(opening["key"], self._value(opening, given))]
        if re.match(r"\s*" + self._tail.pattern, self._held) is None:
            return None
        self._held = self._held.lstrip()
        return self._end_arguments()

    def _value(self, opening: re.Match[str], given: str) -> Any:
        """Return the value of an argument that its format or its schema tells."""
        kind = opening.groupdict().get("kind")
        if kind is not None:
            with suppress(ValueError, RecursionError):
                return given if kind in ("true", "string") else json.loads(given)
            return given
        schema = self._schemas.get(self._name, {})
        known, _ = parameters_of(schema)
        return read_value(given, known.get(opening["key"], {}), schema)

    def _argument(self, key: str, value: Any) -> ArgumentsPart:
        before = ", " if self._n_arguments else "{"
        self._n_arguments += 1
        return ArgumentsPart(f"{before}{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}")

    def _read_tagged(self) -> list[Part] | None:
        if self._tail.match(self._held) is not None:
            return self._end_arguments()
        found = read_tag(self._held, self._format.tag_mark, self._schemas.get(self._name, {}))
        if found is None:
            return None
        self._held = self._held[found[2] :]
        return [self._argument(*found[:2])]

    def _end_arguments(self) -> list[Part]:
        self._step = self._read_tail
        return [ArgumentsPart("}" if self._n_arguments else "{}")]

    def _read_assigned(self) -> list[Part] | None:
        if self._tail.match(self._held) is not None:
            return self._end_arguments()
        key, assign, rest = self._held.removeprefix(", ").partition(self._format.assign)
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        if not assign or end == len(rest):  # more digits may follow
            return None
        self._held = rest[end:]
        return [self._argument(key, value)]

    def _read_marked(self) -> list[Part] | None:
        end = self._format.tail.removeprefix("}")
        found = read_pairs(self._held, self._format.text_mark) if end in self._held else None
        if found is None:
            return None
        arguments, after = found
        self._held = self._held[after - 1 :]  # the closing brace belongs to the tail
        self._step = self._read_tail
        return [ArgumentsPart(json.dumps(arguments, ensure_ascii=False))]

    def _read_tail(self) -> list[Part] | None:
        found = self._tail.match(self._held)
        if found is None:
            return None
        self._held = self._held[found.end() :]
        self.is_complete, self._step = True, self._read_next
        return []


class _JsonEnd:
    """Finds the end of a JSON object that arrives in pieces."""

    def __init__(self) -> None:
        self.depth = 0
        self.is_ended = False
        self._in_text = self._is_escaped = False

    def find(self, text: str) -> int:
        """Return how many characters of the next piece belong to the object."""
        for i, char in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_text:
                self._is_escaped, self._in_text = char == "\\", char != '"'
            elif char == '"':
                self._in_text = True
            elif char in "{[":
                self.depth += 1
            elif char in "}]":
                self.depth -= 1
                if not self.depth:
                    self.is_ended = True
                    return i + 1
        return len(text)


def _pattern(text: str) -> str:
    """Return a regular expression for a text in which white space may vary."""
    parts = (_PLACES.get(part, r"\s*" if part.isspace() else re.escape(part)) for part in _PARTS.split(text))
    return "".join(parts)


def _overlap(text: str, mark: str) -> int:
    """Return how many characters at the end of the text may be the beginning of the mark."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), 0)
