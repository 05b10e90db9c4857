"""Reading the fields of a request's JSON: each is taken out of its object, so that the unknown ones are left."""

from __future__ import annotations

import json
from typing import Any

from engine.errors import InvalidRequestError
from engine.local_api.failures import wrong
from engine.session.constraint import Constraint

LONGEST_STOP = 1000  # characters


def read_object(body: bytes) -> dict[str, Any]:
    def no_number(name: str) -> None:
        raise ValueError(f"{name} is not a number of JSON")

    try:
        values = json.loads(body, parse_constant=no_number)
    except RecursionError:
        raise wrong("The body is nested too deeply.", code="invalid_json") from None
    except UnicodeDecodeError:
        raise wrong("The body is not UTF-8.", code="invalid_json") from None
    except ValueError as error:
        raise wrong(f"The body is not JSON: {error}.", code="invalid_json") from None
    if not isinstance(values, dict):
        raise wrong("The body is not a JSON object.", code="invalid_json")
    return values


# --- fields

_WORDS: dict[type, str] = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "an object",
}  # fmt: skip


def take(values: dict[str, Any], name: str, kind: type) -> Any:
    """Remove the field from the values and return it; None if missing or null. Raises: ApiError for another type."""
    value = values.pop(name, None)
    if value is None:
        return None
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise wrong(f"The field {name!r} is {shown(value)}; {_WORDS[kind]} is needed.", name, "invalid_type")
    return value


def count(values: dict[str, Any], name: str, most: int) -> int | None:
    number: int | None = take(values, name, int)
    if number is not None and not 0 <= number <= most:
        raise wrong(f"The field {name!r} is {number}; it must be between 0 and {most}.", name)
    return number


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def required(value: Any, name: str) -> Any:
    """Return the value. Raises: ApiError if it is None."""
    if value is None:
        raise wrong(f"The field {name!r} is missing.", name, "missing_field")
    return value


def objects(values: list[Any], param: str) -> list[dict[str, Any]]:
    """Return copies of the objects of a list. Raises: ApiError for anything else in it."""
    for i, one in enumerate(values):
        if not isinstance(one, dict):
            raise wrong(f"{param}[{i}] is {shown(one)}; an object is needed.", f"{param}[{i}]", "invalid_type")
    return [dict(one) for one in values]


def stops(values: dict[str, Any], name: str, most: int) -> list[str]:
    """Return the texts that end an answer, given as one text or a list."""
    given = values.pop(name, None)
    texts = [given] if isinstance(given, str) else given
    if texts is None:
        return []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise wrong(
            f"The field {name!r} is {shown(given)}; a text or a list of texts is needed.", name, "invalid_type"
        )  # fmt: skip
    if len(texts) > most or any(not 1 <= len(text) <= LONGEST_STOP for text in texts):
        raise wrong(f"{name!r} holds up to {most} texts of 1 to {LONGEST_STOP} characters.", name)
    return texts


def checked(constraint: Constraint, param: str) -> Constraint:
    """Return the constraint. Raises: ApiError if it exceeds a limit or is malformed."""
    try:
        constraint.check()
    except InvalidRequestError as error:
        raise wrong(f"{error.message} {error.hint}", param) from None
    return constraint
