"""Random JSON schemas under which every answer ends, and what follows them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np


def schema_of(seed: int) -> dict[str, Any]:
    """Return a random schema in which all texts, lists and numbers are bounded, so that every answer ends.

    All numbers are integers, because other numbers can have endlessly many decimal places.
    """
    draw = np.random.default_rng(seed)

    def made(depth: int) -> dict[str, Any]:
        kinds = ("text", "word", "whole", "switch", "nothing", "pattern", "several", "list", "object")
        kind = kinds[draw.integers(len(kinds) if depth else 6)]
        if kind == "text":
            return {"type": "string", "maxLength": int(draw.integers(1, 20))}
        if kind == "word":
            return {"enum": ["fox", "Füchsin", 'a "quoted" one', 7, None][: int(draw.integers(1, 6))]}
        if kind == "whole":
            low = int(draw.integers(-50, 50))
            return {"type": "integer", "minimum": low, "maximum": low + int(draw.integers(0, 100))}
        if kind in ("switch", "nothing"):
            return {"type": "boolean" if kind == "switch" else "null"}
        if kind == "pattern":
            return {"type": "string", "pattern": r"^[A-Z][a-z]{1,5}-\d{2}$"}
        if kind == "several":
            return {"anyOf": [made(depth - 1), {"type": "boolean"}]}
        if kind == "list":
            least = int(draw.integers(0, 3))
            return {"type": "array", "items": made(depth - 1), "minItems": least, "maxItems": least + 1}
        names = ["name", "age of it", "größe", "x", "y"][: int(draw.integers(1, 6))]
        return {
            "type": "object", "properties": {name: made(depth - 1) for name in names},
            "required": names[: int(draw.integers(0, len(names) + 1))], "additionalProperties": False,
        }  # fmt: skip

    return {"type": "object", "properties": {"a": made(3), "b": made(2)}, "required": ["a", "b"],
            "additionalProperties": False}  # fmt: skip


def follows(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a value follows a schema of `schema_of`."""
    if "anyOf" in schema:
        return any(follows(value, one) for one in schema["anyOf"])
    if "enum" in schema:
        return any(type(value) is type(one) and value == one for one in schema["enum"])
    kind = schema["type"]
    if kind == "string":
        return isinstance(value, str) and len(value) <= schema.get("maxLength", 99) and bool(
            re.search(schema.get("pattern", ""), value)
        )  # fmt: skip
    if kind == "integer":
        return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
    if kind == "array":
        least, most = schema["minItems"], schema["maxItems"]
        return isinstance(value, list) and least <= len(value) <= most and all(
            follows(one, schema["items"]) for one in value
        )  # fmt: skip
    if kind == "object":
        known = schema["properties"]
        return isinstance(value, dict) and set(schema["required"]) <= value.keys() <= known.keys() and all(
            follows(one, known[name]) for name, one in value.items()
        )  # fmt: skip
    return value is None if kind == "null" else isinstance(value, bool)
