"""Build dataclasses from plain JSON values, with every type checked."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from engine.errors import ModelFormatError, UnsupportedModelError


def from_plain(kind: Any, value: Any, where: str, strict: bool = False) -> Any:
    """Return `value` as an instance of the annotation `kind`: a dataclass, scalar, Literal, union, tuple or dict.

    strict: unknown fields raise UnsupportedModelError; otherwise they are ignored.
    Raises: ModelFormatError with the place, for a missing field or a value of another type.
    """
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _dataclass(kind, value, where, strict)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(arguments, value, where, strict)
    if origin is Literal:
        if not any(type(value) is type(choice) and value == choice for choice in arguments):
            raise _wrong(where, value, "one of " + ", ".join(map(str, arguments)))
        return value
    if origin is tuple:
        return _tuple(arguments, value, where, strict)
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise _wrong(where, value, "an object")
        return {key: from_plain(arguments[1], item, f"{where}.{key[:60]}", strict) for key, item in value.items()}
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    if kind is type(None):
        kind = types.NoneType
    if type(value) is not kind:
        raise _wrong(where, value, _WORDS.get(kind, str(kind)))
    return value


@lru_cache(maxsize=256)
def _hints(kind: Any) -> dict[str, Any]:
    """Return a dataclass's evaluated annotations, cached: the window reads hundreds of records between two frames."""
    return get_type_hints(kind)


def _dataclass(kind: Any, value: Any, where: str, strict: bool) -> Any:
    if isinstance(value, kind):
        return value  # already built
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object")
    hints = _hints(kind)
    known = {field.name: field for field in fields(kind) if field.init}
    if strict and (unknown := sorted(set(value) - set(known))):
        raise UnsupportedModelError(
            f"{where} has the field {unknown[0][:60]!r}, which this version of Hearth does not know.",
            "Use a newer Hearth, or convert the model again.",
        )
    given = {}
    for name, field in known.items():
        if name in value:
            given[name] = from_plain(hints[name], value[name], f"{where}.{name}", strict)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ModelFormatError(f"{where} lacks {name!r}.")
    return kind(**given)


def _union(choices: tuple[Any, ...], value: Any, where: str, strict: bool) -> Any:
    if value is None and type(None) in choices:
        return None
    others = [choice for choice in choices if choice is not type(None)]
    for choice in others[:-1]:
        try:
            return from_plain(choice, value, where, strict)
        except ModelFormatError:
            continue
    return from_plain(others[-1], value, where, strict)


def _tuple(arguments: tuple[Any, ...], value: Any, where: str, strict: bool) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _wrong(where, value, "a list")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(from_plain(arguments[0], item, f"{where}[{i}]", strict) for i, item in enumerate(value))
    if len(value) != len(arguments):
        raise _wrong(where, value, f"a list of {len(arguments)}")
    return tuple(from_plain(kind, item, where, strict) for kind, item in zip(arguments, value, strict=True))


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", types.NoneType: "null"}


def _wrong(where: str, value: Any, expected: str) -> ModelFormatError:
    shown = repr(value)[:60]
    return ModelFormatError(f"{where} is {shown}; expected is {expected}.")


def is_deep(value: Any, most: int) -> bool:
    """Return whether JSON is nested more than this many levels deep."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True
