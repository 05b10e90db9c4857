"""The arguments of a call in formats that write each by itself: what a schema allows, and how a text is read.

Texts stand there without quotes, everything else as JSON. So the schema says which of both a value is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import InvalidRequestError

_MOST_STEPS = 20  # through references and alternatives of one schema
_UNIONS = ("anyOf", "oneOf")


@dataclass(frozen=True)
class Alternative:
    """One kind of value. literal: the only value, if is_literal. schema: of a text, if is_text, else of other JSON."""

    schema: Mapping[str, Any]
    is_text: bool = False
    is_literal: bool = False
    literal: Any = None


def parameters_of(schema: Mapping[str, Any]) -> tuple[dict[str, Mapping[str, Any]], frozenset[str]]:
    """Return the schemas of all arguments by their names, and which are required. Raises: InvalidRequestError."""
    schema = resolved(schema, schema)
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(one, dict | bool) for one in properties.values()):
        raise InvalidRequestError("The schema of a tool cannot be used: its 'properties' are not schemas.")
    required = schema.get("required", [])
    names = required if isinstance(required, list) else []
    if not properties and (names or any(word in schema for word in (*_UNIONS, "allOf"))):
        raise InvalidRequestError(
            "The schema of a tool cannot be used: this model writes each argument by itself, and it lists none.",
            "List them in 'properties'.",
        )
    known: dict[str, Mapping[str, Any]] = {
        name: one if isinstance(one, dict) else {} for name, one in properties.items()
    }  # fmt: skip
    return known, frozenset(name for name in names if isinstance(name, str))


def alternatives_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Alternative]:
    """Return the kinds of values that a schema allows, at least one. root: the schema of all arguments."""
    found: list[Alternative] = []
    waiting = [schema]
    for _ in range(_MOST_STEPS):
        if not waiting:
            break
        one = resolved(waiting.pop(0), root)
        union = next((one[word] for word in _UNIONS if isinstance(one.get(word), list)), None)
        literals = [one["const"]] if "const" in one else one.get("enum")
        kinds = one.get("type")
        if union is not None:
            waiting += [each for each in union if isinstance(each, dict)]
        elif isinstance(literals, list):
            found += [Alternative({}, is_literal=True, literal=value) for value in literals]
        elif isinstance(kinds, list):
            waiting += [{**one, "type": kind} for kind in kinds]
        elif kinds == "string" or not one.keys() & {"type", "properties", "items", "allOf", "$ref"}:
            found.append(Alternative(one, is_text=True))
        else:
            found.append(Alternative(with_definitions(one, root)))
    return found or [Alternative({}, is_text=True)]


def read_value(text: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """Return the value that an argument's text means under its schema."""
    alternatives = alternatives_of(schema, root)
    for one in alternatives:
        if one.is_literal and text == (one.literal if isinstance(one.literal, str) else json.dumps(one.literal)):
            return one.literal
    takes_text = any(one.is_text for one in alternatives)
    takes_any = takes_text and any(one.is_text and "type" not in one.schema for one in alternatives)
    if takes_text and not takes_any and all(one.is_text for one in alternatives):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    kinds = {one.schema.get("type") for one in alternatives if not one.is_text}
    return text if takes_text and not takes_any and not _is_of(value, kinds) else value


def _is_of(value: Any, kinds: set[Any]) -> bool:
    kind = kind_of(value)
    return kind in kinds or (kind == "number" and isinstance(value, int) and "integer" in kinds)


def kind_of(value: Any) -> str:
    """Return the type of a value as JSON schema names it, with "number" for integers."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def spelt(value: Any) -> str:
    """Return the value of an argument as formats with a text for each argument write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the references of a schema lead to, as far as they lead into the root."""
    for _ in range(_MOST_STEPS):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        target: Any = root
        for step in reference[2:].split("/"):
            target = target.get(step) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            break
        schema = target
    return schema


def with_definitions(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that its references can be resolved in."""
    return {**{name: root[name] for name in ("$defs", "definitions") if name in root}, **schema}
