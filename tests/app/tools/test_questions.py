"""Questions of MCP servers: which fields a schema gives, what they take, and what is asked with a warning."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from app.tools.questions import MOST_FIELDS, Field, OpenQuestion, Question, Reply, fields_of


def one(about: dict[str, Any], required: bool = False) -> Field:
    fields = fields_of({"type": "object", "properties": {"a": about}, "required": ["a"] if required else []})
    assert fields is not None
    return fields[0]


@pytest.mark.parametrize(
    ("about", "kind", "options"),
    [
        ({"type": "string"}, "text", ()),
        ({"type": "number"}, "number", ()),
        ({"type": "integer"}, "whole", ()),
        ({"type": "boolean"}, "switch", ()),
        ({"type": "string", "enum": ["x", "y"]}, "choice", (("x", "x"), ("y", "y"))),
        ({"type": "string", "enum": ["x", "y"], "enumNames": ["X", "Y"]}, "choice", (("x", "X"), ("y", "Y"))),
        ({"type": "string", "oneOf": [{"const": "x", "title": "X"}]}, "choice", (("x", "X"),)),
        ({"type": "array", "items": {"type": "string", "enum": ["x"]}}, "choices", (("x", "x"),)),
        ({"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}}, "choices", (("x", "X"),)),
    ],
)
def test_each_kind_of_value_has_a_field(about: dict[str, Any], kind: str, options: Any) -> None:
    field = one(about)
    assert (field.kind, field.options) == (kind, options)


@pytest.mark.parametrize(
    "about",
    [
        {"type": "object"}, {"type": "array", "items": {"type": "string"}}, {"type": "string", "enum": [1, 2]}, {}, 5,
        {"type": ["string", "null"]}, {"type": "string", "enum": []}, {"type": "string", "oneOf": [{"type": "string"}]},
        {"type": "array", "items": {"enum": ["x"] * 999}},
    ],
    ids=str,
)  # fmt: skip
def test_what_no_field_can_hold_has_none(about: Any) -> None:
    assert fields_of({"properties": {"a": about}}) is None


def test_numbers_without_a_shape_are_no_bounds() -> None:
    field = one({"type": "number", "minimum": 10**400, "maximum": True})
    assert (field.least, field.most) == (-math.inf, math.inf)
    assert field.read("5") == (5.0, "")


def test_too_many_fields_are_none() -> None:
    assert fields_of({"properties": {str(i): {"type": "string"} for i in range(MOST_FIELDS + 1)}}) is None


@pytest.mark.parametrize(
    ("about", "given", "value"),
    [
        ({"type": "string"}, "Lima", "Lima"), ({"type": "string"}, "", None),
        ({"type": "string", "minLength": 2}, "a", ...), ({"type": "string", "maxLength": 2}, "abc", ...),
        ({"type": "string", "format": "email"}, "ann@example.org", "ann@example.org"),
        ({"type": "string", "format": "email"}, "ann", ...), ({"type": "string", "format": "date"}, "27 May", ...),
        ({"type": "string", "format": "date-time"}, "2026-11-27T09:30:00Z", "2026-11-27T09:30:00Z"),
        ({"type": "string", "format": "uri"}, "nowhere", ...), ({"type": "string", "format": "other"}, "x", "x"),
        ({"type": "integer"}, " −7 ", -7), ({"type": "integer"}, "7.5", ...), ({"type": "number"}, "7.5", 7.5),
        ({"type": "number"}, "nan", ...), ({"type": "integer", "minimum": 3}, "2", ...), ({"type": "number"}, "", None),
        ({"type": "integer", "maximum": 3}, "4", ...), ({"type": "boolean"}, False, False),
        ({"type": "string", "enum": ["x"]}, None, None), ({"type": "string", "enum": ["x"]}, "x", "x"),
        ({"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 1}, [], ...),
        ({"type": "array", "items": {"enum": ["x", "y"]}}, ["y"], ["y"]),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_entered_is_a_value_or_a_fault(about: dict[str, Any], given: Any, value: Any) -> None:
    found, fault = one(about).read(given)
    assert bool(fault) == (value is ...)
    assert found == (None if value is ... else value)
    assert type(found) is type(None if value is ... else value)


def test_what_is_required_must_be_entered() -> None:
    for about in ({"type": "string"}, {"type": "integer"}):
        assert one(about, required=True).read("")[1]
    assert one({"type": "string", "enum": ["x"]}, required=True).read(None)[1]


def test_texts_of_servers_are_shown_without_tricks() -> None:
    field = one({"type": "string", "title": "na\u202eme", "description": "x\u200by"})
    assert field.title.isascii()
    assert field.note.isascii()
    assert one({"type": "string", "title": 5, "description": []}) == Field("a", "a")


@pytest.mark.parametrize(
    ("message", "schema", "asks"),
    [
        ("Which city?", {"properties": {"city": {"type": "string"}}}, False),
        ("Your password?", {}, True),
        ("Log in", {"properties": {"pw": {"type": "string", "title": "API key"}}}, True),
        ("Anmelden", {"properties": {"x": {"type": "string", "description": "Dein Kennwort"}}}, True),
        ("请输入密码", {}, True),
    ],
)
def test_a_question_for_a_secret_is_known(message: str, schema: dict[str, Any], asks: bool) -> None:
    assert Question("S", message, schema).asks_secret is asks


def test_the_first_reply_counts() -> None:
    opened = OpenQuestion(Question("S", "?", {}))
    found: list[Reply] = []
    waiting = threading.Thread(target=lambda: found.append(opened.wait()))
    waiting.start()
    opened.reply(Reply("accept", {"a": 1}))
    opened.reply(Reply("decline"))
    waiting.join(10)
    assert found == [Reply("accept", {"a": 1})]
