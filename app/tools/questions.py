"""Questions of MCP servers to the user, and the fields in which they are answered. No Qt.

A server wrote the texts and the schema, so a schema with anything but plain values has no fields.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

from app.tools.call_text import one_line, visible
from app.translation import figure, tr

MOST_FIELDS, MOST_OPTIONS = 40, 60
LONGEST_TEXT = 100_000  # characters of one value
_LONGEST_NOTE = 400
# In English, German and Chinese. A warning too many costs little.
_SECRET = re.compile(
    r"(?i)pass.?(word|phrase|code)|passwor|kennwort|secret|geheim|token|api.?key|access.?key|private.?key|schlüssel"
    r"|credential|\bpin\b|\bcvc|\bcvv|card.?number|kartennummer|密码|口令|密钥|令牌|验证码"
)
_FORMATS = {  # what they are written like, and an example
    "email": (re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+"), "ann@example.org"),
    "uri": (re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"), "https://example.org"),
    "date": (re.compile(r"\d{4}-\d{2}-\d{2}"), "2026-11-27"),
    "date-time": (
        re.compile(r"\d{4}(-\d{2}){2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([Zz]|[+-]\d{2}:\d{2})?"), "2026-11-27T09:30:00Z",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """A question of a server to the user. schema: JSON schema of the answer, an object with plain values."""

    server: str
    message: str
    schema: Mapping[str, Any]

    @property
    def asks_secret(self) -> bool:
        """Whether it seems to ask for a password or a key."""
        return bool(_SECRET.search(f"{self.message} {self.schema}"))


@dataclass(frozen=True)
class Reply:
    """The user's answer to a question. cancel: the user neither answered nor declined."""

    action: Literal["accept", "decline", "cancel"]
    values: Mapping[str, Any] = field(default_factory=dict)


class OpenQuestion:
    """A question that waits for the user's reply. Thread-safe; the first reply counts."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._reply = Reply("cancel")
        self._replied, self._lock = threading.Event(), threading.Lock()

    def reply(self, reply: Reply) -> None:
        with self._lock:
            if not self._replied.is_set():
                self._reply = reply
                self._replied.set()

    def wait(self) -> Reply:
        """Return the reply. Blocks until there is one."""
        self._replied.wait()
        return self._reply


@dataclass(frozen=True)
class Field:
    """One value to ask for. options: values and their words, of a choice. least, most: of a number, or of the length
    of a text. form: "email", "uri", "date", "date-time" or "". default: None: none.
    """

    name: str
    title: str
    note: str = ""
    kind: Literal["text", "number", "whole", "switch", "choice", "choices"] = "text"
    is_required: bool = False
    default: Any = None
    options: tuple[tuple[str, str], ...] = ()
    least: float = -math.inf
    most: float = math.inf
    form: str = ""

    @property
    def is_secret(self) -> bool:
        return bool(_SECRET.search(f"{self.name} {self.title}"))

    def read(self, given: Any) -> tuple[Any, str]:
        """Return the value of what was entered, and what is wrong with it. None: nothing was entered.

        given: a text, or of a switch a bool, of a choice its value or None, of choices a list of values.
        """
        value, fault = given, ""
        if self.kind in ("number", "whole"):
            value, fault = self._number(given)
        elif self.kind == "text":
            value = given or None
            fault = self._text_fault(given) if given else ""
        elif self.kind == "choices":
            fault = self._range_fault(len(given))
        if not fault and self.is_required and value is None:
            fault = tr("Fill this in.")
        return (None, fault) if fault else (value, "")

    def _number(self, given: str) -> tuple[Any, str]:
        text = given.strip().replace("−", "-")
        if not text:
            return None, ""
        try:
            value = int(text) if self.kind == "whole" else float(text)
        except ValueError:
            return None, tr("Enter a whole number.") if self.kind == "whole" else tr("Enter a number.")
        if not math.isfinite(value):
            return None, tr("Enter a number.")
        return value, self._range_fault(value)

    def _range_fault(self, value: float) -> str:
        if value < self.least:
            return tr("At least {least}.", least=figure(self.least, "g"))
        return tr("At most {most}.", most=figure(self.most, "g")) if value > self.most else ""

    def _text_fault(self, text: str) -> str:
        n = len(text)
        if n < self.least or n > min(self.most, LONGEST_TEXT):
            return self._range_fault(n) or tr("At most {most}.", most=figure(LONGEST_TEXT, "g"))
        pattern, example = _FORMATS.get(self.form, (None, ""))
        is_right = pattern is None or pattern.fullmatch(text.strip())
        return "" if is_right else tr("Write it as {example}.", example=example)


def fields_of(schema: Mapping[str, Any]) -> tuple[Field, ...] | None:
    """Return the fields for a schema; None if it wants what no field can hold."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list) or len(properties) > MOST_FIELDS:
        return None
    found = [_field(name, about, name in required) for name, about in properties.items()]
    return None if None in found else tuple(one for one in found if one is not None)


def _field(name: str, about: Any, is_required: bool) -> Field | None:
    if not isinstance(about, dict):
        return None
    kinds: dict[Any, Any] = {"string": "text", "number": "number", "integer": "whole", "boolean": "switch"}
    kind = kinds.get(str(about.get("type")))
    options = _options(about)
    bounds = ("minLength", "maxLength") if kind == "text" else ("minimum", "maximum")
    if about.get("type") == "array" and isinstance(about.get("items"), dict):
        kind, options, bounds = "choices", _options(about["items"]), ("minItems", "maxItems")
    elif options:
        kind = "choice"
    if kind is None or (kind == "choices" and not options) or options is None:
        return None
    least, most = (math.nan if kind == "choice" else _number(about.get(one)) for one in bounds)
    title, note, form = (about.get(one) for one in ("title", "description", "format"))
    return Field(
        name, one_line(title if isinstance(title, str) and title.strip() else name)[:_LONGEST_NOTE],
        visible(note)[:_LONGEST_NOTE] if isinstance(note, str) else "", kind, is_required, about.get("default"),
        options,
        -math.inf if math.isnan(least) else least, math.inf if math.isnan(most) else most,
        form if isinstance(form, str) else "",
    )  # fmt: skip


def _number(value: Any) -> float:
    """Return a bound that can be shown, else NaN."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1e100 else math.nan


def _options(about: Mapping[str, Any]) -> tuple[tuple[str, str], ...] | None:
    """Return the values to choose from and their words; (): not a choice; None: they cannot be shown."""
    values, words = about.get("enum"), about.get("enumNames")
    if values is None:
        titled = about.get("oneOf", about.get("anyOf"))
        if titled is None:
            return ()
        if not isinstance(titled, list) or not all(isinstance(one, dict) for one in titled):
            return None
        values, words = [one.get("const") for one in titled], [one.get("title") for one in titled]
    if not _is_texts(values) or not 0 < len(values) <= MOST_OPTIONS:
        return None
    shown = words if words is not None and _is_texts(words) and len(words) == len(values) else values
    return tuple((value, one_line(word)) for value, word in zip(values, shown, strict=True))


def _is_texts(values: object) -> TypeGuard[Sequence[str]]:
    return isinstance(values, Sequence) and not isinstance(values, str) and all(isinstance(one, str) for one in values)
