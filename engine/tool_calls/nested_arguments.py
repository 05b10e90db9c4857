"""Arguments as MiniMax M3 writes them: an element for each key, nested, with a mark before each tag.

A list has elements called item, everything else is a text or JSON. So the schema says what a value is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine.tool_calls.arguments import alternatives_of, parameters_of, read_value, resolved, spelt
from engine.tool_calls.marked_arguments import MarkedGrammar

_ITEM = "item"
_MOST_DEPTH = 64
_KEY = "/[A-Za-z_][A-Za-z0-9_-]*/"
_Element = tuple[str, str, list[Any]]  # key, text, inner elements


def write_tags(values: Mapping[str, Any], mark: str) -> str:
    return "".join(_element(key, value, mark) for key, value in values.items())


def _element(key: str, value: Any, mark: str) -> str:
    if isinstance(value, list):
        inner = "".join(_element(_ITEM, one, mark) for one in value)
    else:
        inner = write_tags(value, mark) if isinstance(value, dict) else spelt(value)
    return f"{mark}<{key}>{inner}{mark}</{key}>"


def read_tag(text: str, mark: str, root: Mapping[str, Any]) -> tuple[str, Any, int] | None:
    """Return the key and the value of the element at the beginning of a text, and where the text behind it begins.

    root: the schema of all arguments. None if the element is incomplete.
    """
    open_ones: list[_Element] = []
    tags = re.finditer(rf"{re.escape(mark)}<(/?)([^<>]+)>", text) if text.startswith(f"{mark}<") else ()
    for tag in tags:
        if not tag[1]:
            open_ones.append((tag[2], "", []))
            start = tag.end()
            continue
        if not open_ones or len(open_ones) > _MOST_DEPTH:
            return None
        key, _, inner = open_ones.pop()
        element = (key, "" if inner else text[start : tag.start()], inner)
        if not open_ones:
            return key, _value(element, parameters_of(root)[0].get(key), root), tag.end()
        open_ones[-1][2].append(element)
    return None


def _value(element: _Element, schema: Any, root: Mapping[str, Any]) -> Any:
    _, text, inner = element
    schema = schema if isinstance(schema, dict) else {}
    kinds = [resolved(one.schema, root) for one in alternatives_of(schema, root) if not one.is_text]

    def of(kind: str, word: str) -> Any:
        return next((one.get(word, {}) for one in kinds if one.get("type") == kind or word in one), None)

    items, keys = of("array", "items"), of("object", "properties")
    if inner and {one[0] for one in inner} == {_ITEM} and (keys is None or _ITEM not in keys):
        return [_value(one, items, root) for one in inner]
    if inner:
        return {one[0]: _value(one, (keys or {}).get(one[0]), root) for one in inner}
    if not text and (items is not None or keys is not None):
        return {} if items is None else []
    return read_value(text, schema, root)


class NestedGrammar(MarkedGrammar):
    """Writes the grammar of the arguments of one tool. The rule of a value, also `text`, includes the beginning of its
    end tag. lark: returns the grammar of a text.
    """

    def __init__(self, *given: Any, lark: Callable[[str], str]) -> None:
        super().__init__(*given)
        self._lark, self._end = lark, lark(f"{self._mark}</")

    def _tag(self, key: str, rule: str) -> str:
        return f"({self._lark(f'{self._mark}<{key}>')} {rule} {json.dumps(f'{key}>', ensure_ascii=False)})"

    def _scalar(self, name: str, schema: Mapping[str, Any]) -> list[str]:
        return [f"{name}: {name}_json {self._end}", self._json(f"{name}_json", schema)]

    def _object(self, name: str, pairs: str) -> str:
        return f"{name}: {pairs} {self._end}"

    def _array(self, name: str, schema: Mapping[str, Any]) -> str:
        least, most = (one if isinstance(one := schema.get(word), int) else "" for word in ("minItems", "maxItems"))
        return f"{name}: {self._tag(_ITEM, self._rule(schema['items']))}{{{least or 0},{most}}} {self._end}"

    def _pairs(self, name: str, known: Mapping[str, Mapping[str, Any]], required: Iterable[str]) -> list[str]:
        needed = set(required)
        pairs = (f"{self._tag(key, self._rule(one))}{'' if key in needed else '?'}" for key, one in known.items())
        return [f"{name}: " + (" ".join(pairs) or '""')]

    def _any(self) -> list[str]:
        own = self._prefix
        return [
            f"any_{own}: text_{own} | object_{own}",
            *self._text(f"text_{own}", {}),
            f'object_{own}: ({self._lark(f"{self._mark}<")} {_KEY} ">" any_{own} {_KEY} ">")* {self._end}',
            f"array_{own}: {self._tag(_ITEM, f'any_{own}')}* {self._end}",
        ]
