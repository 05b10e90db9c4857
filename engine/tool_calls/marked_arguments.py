"""Arguments as Gemma 4 writes them: like JSON, with texts between marks, and sorted keys without quotes.

Nothing is escaped, so that a text cannot contain the mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine.tool_calls.arguments import Alternative, alternatives_of, parameters_of, resolved

_MOST_DEPTH = 64
_SCALAR = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")
_DEFINITIONS = {"$defs", "definitions"}
_ANY_KEY = "/[A-Za-z_][A-Za-z0-9_-]*/"


def write_pairs(values: Mapping[str, Any], mark: str) -> str:
    """Return an object's text without its braces."""
    return ",".join(f"{key}:{_written(values[key], mark)}" for key in sorted(values))


def _written(value: Any, mark: str) -> str:
    if isinstance(value, str):
        return f"{mark}{value}{mark}"
    if isinstance(value, dict):
        return f"{{{write_pairs(value, mark)}}}"
    if isinstance(value, list):
        return f"[{','.join(_written(one, mark) for one in value)}]"
    return json.dumps(value)


def read_pairs(text: str, mark: str) -> tuple[dict[str, Any], int] | None:
    """Return an object whose opening brace precedes the text, and where the text behind its closing brace begins.

    None if it is incomplete.
    """
    try:
        return _Reader(text, mark).pairs(0, 0)
    except (ValueError, IndexError):
        return None


class _Reader:
    def __init__(self, text: str, mark: str) -> None:
        self._text, self._mark = text, mark

    def pairs(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while self._text[at] != "}":
            at += self._text[at] == ","
            colon = self._text.index(":", at)
            found[self._text[at:colon]], at = self._value(colon + 1, depth + 1)
        return found, at + 1

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        if depth > _MOST_DEPTH:
            raise ValueError("nested too deeply")
        if self._text.startswith(self._mark, at):
            start = at + len(self._mark)
            end = self._text.index(self._mark, start)
            return self._text[start:end], end + len(self._mark)
        if self._text[at] == "{":
            return self.pairs(at + 1, depth)
        if self._text[at] == "[":
            return self._list(at + 1, depth)
        scalar = _SCALAR.match(self._text, at)
        if scalar is None or scalar.end() == len(self._text):
            raise ValueError("not complete")
        return json.loads(scalar.group()), scalar.end()

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while self._text[at] != "]":
            at += self._text[at] == ","
            one, at = self._value(at, depth + 1)
            found.append(one)
        return found, at + 1


def with_commas(name: str, entries: Sequence[tuple[str, bool]], comma: str) -> list[str]:
    """Return the rules for a list with commas between the entries that are there: their grammar, and whether they must
    be there. The first rule has the name. The others form a tree, because llguidance follows rules recursively: a chain
    for 450 entries overflows a stack of 1 MB.
    """
    n_entries, size = len(entries), 1 << max(len(entries) - 1, 0).bit_length()  # leaves of the tree, whose root is 1

    def has_any(node: int) -> bool:
        while node < size:
            node <<= 1
        return node - size < n_entries

    def rest(node: int) -> str:
        """Return the rules for the entries from a leaf on."""
        nodes, end = list[int](), 2 * size
        while node < end:
            if node % 2:
                nodes.append(node)
                node += 1
            node, end = node // 2, end // 2
        return " ".join(f"{name}_rest_{one}" for one in nodes if has_any(one))

    found, openings = list[str](), list[str]()
    for i, (entry, is_needed) in enumerate(entries):
        found.append(f"{name}_{i}: {entry}")
        found.append(f'{name}_rest_{size + i}: ("{comma}" {name}_{i}){"" if is_needed else "?"}')
    for node in filter(has_any, range(1, size)):
        inner = filter(has_any, (2 * node, 2 * node + 1))
        found.append(f"{name}_rest_{node}: " + " ".join(f"{name}_rest_{one}" for one in inner))
    for i, (_, is_needed) in enumerate(entries):
        openings.append(f"{name}_{i} {rest(size + i + 1)}")
        if is_needed:
            break
    else:
        openings.append('""')
    return [f"{name}: {' | '.join(openings)}", *found]


class MarkedGrammar:
    """Writes the grammar of the arguments of one tool. Equal schemas share a rule, so that schemas may be recursive.

    prefix: of the rules' names. text: returns the rules of a text between marks under its schema, by a name. json:
    returns the rule of other JSON.
    """

    def __init__(
        self,
        prefix: str,
        root: Mapping[str, Any],
        mark: str,
        text: Callable[[str, Mapping[str, Any]], list[str]],
        json_rule: Callable[[str, Mapping[str, Any]], str],
    ) -> None:
        self._prefix, self._root, self._mark, self._text, self._json = prefix, root, mark, text, json_rule
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        self._has_any = False

    def rules(self, name: str) -> list[str]:
        """Return the rules for the text between the braces of the arguments; the first has this name.

        Raises: InvalidRequestError.
        """
        known, required = parameters_of(self._root)
        found = self._pairs(name, known, required)
        while self._waiting:
            found += self._value(*self._waiting.pop())
        return [*found, *(self._any() if self._has_any else [])]

    def _rule(self, schema: Mapping[str, Any]) -> str:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._names:
            self._names[key] = f"value_{self._prefix}_{len(self._names)}"
            self._waiting.append((self._names[key], schema))
        return self._names[key]

    def _value(self, name: str, schema: Mapping[str, Any]) -> list[str]:
        alternatives = alternatives_of(schema, self._root)
        found = [f"{name}: " + " | ".join(f"{name}_{i}" for i in range(len(alternatives)))]
        for i, one in enumerate(alternatives):
            found += self._alternative(f"{name}_{i}", one)
        return found

    def _alternative(self, name: str, one: Alternative) -> list[str]:
        if one.is_literal:
            is_text = isinstance(one.literal, str)
            return (self._text if is_text else self._scalar)(name, {"const": one.literal})
        if one.is_text:
            return self._text(name, one.schema)
        schema = resolved(one.schema, self._root)
        kind = schema.get("type") or ("object" if "properties" in schema else "array" if "items" in schema else None)
        if kind == "object" and schema.get("properties"):
            known, required = parameters_of(schema)
            return [self._object(name, f"{name}_pairs"), *self._pairs(f"{name}_pairs", known, required)]
        if kind == "array" and isinstance(schema.get("items"), dict):
            return [self._array(name, schema)]
        if kind in ("object", "array", None):
            self._has_any = True
            own = {"object": f"object_{self._prefix}", "array": f"array_{self._prefix}"}
            return [f"{name}: {own.get(str(kind), f'any_{self._prefix}')}"]
        return self._scalar(name, {word: schema[word] for word in schema.keys() - _DEFINITIONS})

    def _scalar(self, name: str, schema: Mapping[str, Any]) -> list[str]:
        return [self._json(name, schema)]

    def _object(self, name: str, pairs: str) -> str:
        return f'{name}: "{{" {pairs} "}}"'

    def _array(self, name: str, schema: Mapping[str, Any]) -> str:
        item, least, most = self._rule(schema["items"]), schema.get("minItems", 0), schema.get("maxItems")
        least = least if isinstance(least, int) else 0
        if most == 0:
            return f'{name}: "[" "]"'
        most = most if isinstance(most, int) else None
        more = "" if most == 1 else f'("," {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        return f'{name}: "[" {item} {more} "]"' + ("" if least else ' | "[" "]"')

    def _pairs(self, name: str, known: Mapping[str, Mapping[str, Any]], required: Iterable[str]) -> list[str]:
        """Return the rules for the pairs of an object, with commas between those that are there."""
        needed = set(required)
        entries = [
            (f"{json.dumps(f'{key}:', ensure_ascii=False)} {self._rule(known[key])}", key in needed)
            for key in sorted(known)
        ]
        return with_commas(name, entries, ",")

    def _any(self) -> list[str]:
        own = self._prefix
        pair = f'{_ANY_KEY} ":" any_{own}'
        return [
            f"any_{own}: text_{own} | scalar_{own} | object_{own} | array_{own}",
            *self._text(f"text_{own}", {}),
            self._json(f"scalar_{own}", {"type": ["number", "boolean", "null"]}),
            f'object_{own}: "{{" ({pair} ("," {pair})*)? "}}"',
            f'array_{own}: "[" (any_{own} ("," any_{own})*)? "]"',
        ]
