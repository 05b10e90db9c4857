"""The grammar of an answer that may call tools, in the Lark syntax of the library llguidance.

Text is free until the mark of a call. From there on, the text is a call of one of the tools with arguments that follow
its schema, maybe further calls, and then the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from engine.errors import InvalidRequestError
from engine.text import harmony
from engine.tool_calls.arguments import Alternative, alternatives_of, kind_of, parameters_of, with_definitions
from engine.tool_calls.call_format import HARMONY, CallFormat
from engine.tool_calls.marked_arguments import MarkedGrammar, with_commas
from engine.tool_calls.nested_arguments import NestedGrammar
from engine.tool_calls.tool import Tool, ToolUse

_ANY = "/(?s:.*)/"
_PLACES: Mapping[str, str] = {"$ID": "/[A-Za-z0-9]{9}/", "$NUMBER": "/[0-9]{1,3}/", "$INDEX": "/[0-9]{1,3}/"}
_PARTS = re.compile(r"(\$ID|\$NUMBER|\$INDEX|(?<!\w)\s+|\s+(?!\w))")
# In a pattern: escapes, and what would end it in the grammar.
_ESCAPED_OR_END = re.compile(r"\\.|[/\n\r]", re.DOTALL)
_SPELT = {"/": r"\x2f", "\\/": r"\x2f", "\n": r"\n", "\\\n": r"\n", "\r": r"\r", "\\\r": r"\r"}
_PATTERN_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)  # escapes, classes, other characters


class CallGrammar:
    """Writes the grammar for one request. specials: ids of the vocabulary's special tokens by their texts.

    style: options for llguidance's JSON schemas. answer: the grammar of an answer that is not a call; None: any text.
    """

    def __init__(
        self,
        call_format: CallFormat,
        use: ToolUse,
        specials: Mapping[str, int],
        style: Mapping[str, Any],
        answer: str | None = None,
    ) -> None:
        self._format, self._use, self._style, self._answer = call_format, use, style, answer
        self._specials = specials
        texts = sorted(specials, key=len, reverse=True)
        self._special = re.compile("(" + "|".join(map(re.escape, texts)) + ")") if texts else None

    @property
    def text(self) -> str:
        """The grammar. Raises: InvalidRequestError."""
        rules = self._harmony() if self._format is HARMONY else self._calls()
        return "\n".join(rules)

    def _calls(self) -> list[str]:
        one, tools = self._format, self._use.callable
        rules = [f"answer: {self._answer}"] if self._answer is not None else []
        head = one.begin + one.head
        assert head.startswith(one.mark), "the mark begins a call"
        mark = self._lark(one.mark)
        is_special = mark.startswith("<[")
        before = f"<[{self._specials[one.before]}]>? " if one.before in self._specials else ""
        closing, final = (f" ({self._lark(text)})?" if text else "" for text in (one.closing, one.final))
        several = f" ({self._lark(one.between + one.head)} tool)*" if tools and self._use.is_parallel else ""
        opening = f"({self._lark(one.before)})? " if one.is_named else ""
        if tools:
            rest = f"{self._lark(head[len(one.mark) :])} tool{'' if one.is_single else several} {self._lark(one.end)}"
            rules += [f"calls: {rest}{final}", "tool: " + " | ".join(f"tool_{i}" for i in range(len(tools)))]
            for i, tool in enumerate(tools):
                middle = f"{_quoted(tool.name)} {self._lark(one.middle)}"
                rules += [f"tool_{i}: {middle} arguments_{i} {self._lark(one.tail)}", *self._arguments(i, tool)]
        calls = f"{closing} {before}{mark} calls"
        ended = f" ({self._lark(one.closing)}{final})?" if closing else ""
        if self._use.choice == "required":
            start = calls
        elif self._answer is not None:
            start = f"{opening}answer{ended}" + (f" | {calls}" if tools else "")
        elif is_special:
            start = f"TEXT?{ended}" + (f" | TEXT? {calls}" if tools else "")
            rules += [f"TEXT: {_ANY}"]
        elif one.only_first:
            start = f"TEXT | {before}open calls" if tools else "TEXT"
            rules += [f"TEXT: {_ANY} & ~/{_regex(one.mark)}(?s:.*)/", f"open[lazy]: /{_regex(one.mark)}/"]
        elif one.is_named:
            marks = {tool.name: _regex(f"{one.head}{tool.name}{one.middle}") for tool in self._use.tools}
            start = " | ".join(["TEXT", *(f"open_{i} arguments_{i}{several}" for i in range(len(tools)))])
            rules += [f"TEXT: {_ANY} & ~/(?s:.*)(?:{'|'.join(marks.values())})(?s:.*)/"]
            rules += [f"open_{i}[lazy]: /(?s:.*){marks[tool.name]}/" for i, tool in enumerate(tools)]
        else:
            start = "TEXT | open calls" if tools else "TEXT"
            rules += [f"TEXT: {_ANY} & ~/(?s:.*){_regex(one.mark)}(?s:.*)/"]
            rules += [f"open[lazy]: /(?s:.*){_regex(one.mark)}/"] if tools else []
        return [f"start: {start}", *rules]

    def _harmony(self) -> list[str]:
        if not harmony.speaks_harmony(self._specials):
            raise InvalidRequestError(
                "This model cannot call tools: its vocabulary lacks the special tokens of its chat template.",
                "Choose another chat template for it.",
            )
        marks = (harmony.CHANNEL, harmony.MESSAGE, harmony.START, harmony.END)
        channel, message, start, end = (f"<[{self._specials[mark]}]>" for mark in marks)
        kind = '(" json")?'
        if (constrain := self._specials.get("<|constrain|>")) is not None:
            kind = f'(" json" | " " <[{constrain}]> "json")?'
        tools = self._use.callable
        rules = [
            f'before: {channel} ("analysis" | "commentary") {message} TEXT? {end} {start} "assistant"',
            f'final: {channel} "final" {message} ' + ("TEXT?" if self._answer is None else "answer"),
            f"TEXT: {_ANY}",
            *([] if self._answer is None else [f"answer: {self._answer}"]),
        ]
        for i, tool in enumerate(tools):
            to = f"to=functions.{tool.name}"
            by_role, by_channel = _quoted(f" {to}"), _quoted(f"commentary {to}")
            header = f'({by_role} {channel} "commentary" | {channel} {by_channel}) {kind} {message}'
            rules += [f"tool_{i}: {header} arguments_{i}", *self._arguments(i, tool)]
        ends = [*([] if self._use.choice == "required" else ["final"]), *(f"tool_{i}" for i in range(len(tools)))]
        return [f"start: before* ({' | '.join(ends)})", *rules]

    def _arguments(self, i: int, tool: Tool) -> list[str]:
        """Return the rules for the arguments of a tool, of which the first is called arguments_i."""
        if mark := self._format.tag_mark:
            text = partial(self._marked, end=f"{mark}</", opens=False)
            nested = NestedGrammar(str(i), tool.parameters, mark, text, self._json, lark=self._lark)
            return nested.rules(f"arguments_{i}")
        if self._format.text_mark:
            grammar = MarkedGrammar(str(i), tool.parameters, self._format.text_mark, self._marked, self._json)
            return grammar.rules(f"arguments_{i}")
        if self._format.assign:
            return self._assigned(i, tool)
        if not self._format.parameter:
            return [self._json(f"arguments_{i}", tool.parameters)]
        before, between, after = self._format.value_marks
        close, rest = after.rstrip(), self._lark(after[len(after.rstrip()) :])
        known, required = parameters_of(tool.parameters)
        rules, names = list[str](), list[str]()
        for j, (key, schema) in enumerate(known.items()):
            name = f"{i}_{j}"
            names.append(f"parameter_{name}{'' if key in required else '?'}")
            values = list[str]()
            for k, one in enumerate(alternatives_of(schema, tool.parameters)):
                rules += self._value(f"{name}_{k}", one, close)
                is_text = one.is_text or (one.is_literal and isinstance(one.literal, str))
                opened = between.replace("$IS_TEXT", json.dumps(is_text)).replace("$TYPE", _type_of(one))
                values.append(f"{_exact(opened, self._lark)} value_{name}_{k}")
            opening = f"{self._lark(before)} {_quoted(key)}"
            rules.append(f"parameter_{name}: {opening} ({' | '.join(values)}) {rest}")
        return [f"arguments_{i}: " + (" ".join(names) or '""'), *rules]

    def _assigned(self, i: int, tool: Tool) -> list[str]:
        """Return the rules for arguments like keyword arguments of Python, in the order of the schema."""
        known, required = parameters_of(tool.parameters)
        rules, pairs = list[str](), list[tuple[str, bool]]()
        for j, (key, schema) in enumerate(known.items()):
            rules.append(self._json(f"json_{i}_{j}", with_definitions(schema, tool.parameters)))
            pairs.append((f"{_quoted(key + self._format.assign)} json_{i}_{j}", key in required))
        return [*with_commas(f"arguments_{i}", pairs, ", "), *rules]

    def _value(self, name: str, one: Alternative, close: str) -> list[str]:
        if one.is_literal:
            text = one.literal if isinstance(one.literal, str) else json.dumps(one.literal)
            return [f"value_{name}: {self._exactly(text + close)}"]
        if one.is_text:
            return self._marked(f"value_{name}", one.schema, close, opens=False)
        return [f"value_{name}: json_{name} {self._exactly(close)}", self._json(f"json_{name}", one.schema)]

    def _marked(self, name: str, schema: Mapping[str, Any], end: str = "", opens: bool = True) -> list[str]:
        """Return the rules for a text with a mark after it, and before it if it opens the text."""
        own = end or self._format.text_mark
        mark = self._lark(own)
        opening = mark if opens else ""
        if "const" in schema:
            return [f"{name}: {opening} {_quoted(schema['const'])} {mark}"]
        text, is_any = _text_pattern(schema)
        terminal = f"TEXT_{name.upper()}"
        if mark.startswith("<["):
            may_be_empty = not schema.get("minLength") and "pattern" not in schema
            return [f"{name}: {opening} {terminal}{'?' if may_be_empty else ''} {mark}", f"{terminal}: {text}"]
        body = f"{terminal}: {text}" + ("" if is_any else f" & ~/(?s:.*){_regex(own)}(?s:.*)/")
        ended = f"{name}_ended[lazy]: {terminal} {_quoted(own)}"
        return [f"{name}: {opening} {name}_ended", ended, body]

    def _json(self, name: str, schema: Mapping[str, Any]) -> str:
        return f"{name}: %json {json.dumps({**schema, 'x-guidance': self._style})}"

    def _lark(self, text: str) -> str:
        """Return the grammar of a text in which white space may vary, except between two words."""
        found = list[str]()
        for part in _PARTS.split(text):
            if part in _PLACES:
                found.append(_PLACES[part])
            elif part.isspace():
                found.append(f"/[ \\n]{{0,{len(part) + 1}}}/")
            else:
                found += self._literal(part)
        return " ".join(found)

    def _exactly(self, text: str) -> str:
        return " ".join(self._literal(text))

    def _literal(self, text: str) -> list[str]:
        parts = self._special.split(text) if self._special else [text]
        return [f"<[{self._specials[part]}]>" if part in self._specials else _quoted(part) for part in parts if part]


def _type_of(one: Alternative) -> str:
    if one.is_literal or one.is_text:
        return kind_of(one.literal if one.is_literal else "")
    kind = one.schema.get("type") or ("array" if "items" in one.schema else "object")
    return "number" if kind == "integer" else str(kind)


def _exact(text: str, lark: Any) -> str:
    """Return the grammar of a text whose white space at the end belongs to it: a value follows."""
    kept = text.rstrip()
    return f"{lark(kept)} {_quoted(text[len(kept) :])}" if kept != text else str(lark(text))


def _text_pattern(schema: Mapping[str, Any]) -> tuple[str, bool]:
    least, most, pattern = (schema.get(name) for name in ("minLength", "maxLength", "pattern"))
    found = list[str]()
    if (isinstance(least, int) and least > 0) or isinstance(most, int):
        found.append(f"/(?s:.{{{least if isinstance(least, int) else 0},{most if isinstance(most, int) else ''}}})/")
    if isinstance(pattern, str):
        inner = "|".join(map(_unanchored, _branches(pattern)))
        found.append("/" + _ESCAPED_OR_END.sub(lambda one: _SPELT.get(one[0], one[0]), inner) + "/")
    return " & ".join(found) or _ANY, not found


def _branches(pattern: str) -> list[str]:
    """Return the alternatives of a regular expression that are not in a group."""
    found, depth = [""], 0
    for part in _PATTERN_PARTS.findall(pattern):
        depth += {"(": 1, ")": -1}.get(part, 0)
        if part == "|" and not depth:
            found.append("")
        else:
            found[-1] += part
    return found


def _unanchored(branch: str) -> str:
    """Return an expression for whole texts in place of one that is searched in them."""
    parts = _PATTERN_PARTS.findall(branch)
    begins, ends = parts[:1] == ["^"], parts[-1:] == ["$"]
    inner = "".join(parts[begins : len(parts) - ends])
    return f"{'' if begins else '(?s:.*)'}(?:{inner}){'' if ends else '(?s:.*)'}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _regex(text: str) -> str:
    return "".join(char if char.isalnum() else f"\\x{ord(char):02x}" if char.isascii() else char for char in text)
