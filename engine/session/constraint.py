"""Constraints on the text of an answer: JSON by a schema, a regular expression, or a grammar.

This module checks the limits of a constraint and writes it in the Lark notation of the library llguidance, which
engine/session/grammar.py compiles.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from engine.errors import InvalidRequestError
from engine.session.gbnf import lark_of

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

Kind = Literal["json_schema", "regex", "choice", "grammar"]

MOST_CHARS = 64 << 10
MOST_DEPTH = 48
MOST_COMBINED = 12  # entries of all "allOf" of a schema: to combine patterns takes 30 times as long for every four more
MOST_MULTIPLE = 10_000  # least common multiple of all "multipleOf": compiling 9,999,991 takes more than a minute
MOST_RULES = 256  # llguidance follows rules recursively: 400 of them overflow a stack of 1 MB
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
# White space as json.dumps writes it. If any were allowed, a small model might write nothing but white space.
STYLE: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_JSON = re.compile(r"%json\s*")
_COMBINES = re.compile(r'"(?:\\.|[^"\\])*"|/(?:\\.|[^/\\])+/|(?://|#)[^\n]*|(&)', re.DOTALL)  # & alone is captured
_NAMES: Mapping[Kind, str] = {
    "json_schema": "JSON schema", "regex": "regular expression", "choice": "choice", "grammar": "grammar",
}  # fmt: skip


@dataclass(frozen=True)
class Constraint:
    """source: of a json_schema, the schema; of a choice, its texts; else the text of the expression or grammar, which
    is in GBNF if it has `::=` and else in Lark, with llguidance's extensions.
    """

    kind: Kind
    source: Any

    @property
    def name(self) -> str:
        """The name for users."""
        return _NAMES[self.kind]

    def check(self) -> None:
        """Raises: InvalidRequestError if a limit is exceeded or the source is malformed."""
        if self.kind == "json_schema":
            check_size(self.source)
            return
        length = len(self.source) if isinstance(self.source, str) else sum(map(len, self.source))
        if length > MOST_CHARS:
            raise InvalidRequestError(
                f"The {self.name} has {length} characters; the limit is {MOST_CHARS}.", f"Shorten the {self.name}."
            )
        try:
            "".join(self.source).encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(
                f"The {self.name} cannot be used: it contains half of a surrogate pair."
            ) from None
        if self.kind == "grammar":
            self._check_rules(self.lark)

    @property
    def lark(self) -> str:
        """The whole grammar. Raises: InvalidRequestError if GBNF cannot be read."""
        if self.kind == "grammar":
            source = str(self.source)
            return lark_of(source) if "::=" in source else source
        return f"start: {self.part}"

    @property
    def part(self) -> str:
        """The symbol for the answer in a rule of another grammar."""
        if self.kind == "json_schema":
            return f"%json {json.dumps({**self.source, 'x-guidance': STYLE})}"
        if self.kind == "choice":
            return " | ".join(json.dumps(text) for text in self.source)
        if self.kind == "regex":
            from llguidance import regex_to_lark

            return f"/{regex_to_lark(self.source)}/"
        return f"%lark {{\n{self.lark}\n}}"

    def _check_rules(self, text: str) -> None:
        rest, place = list[str](), 0
        while found := _JSON.search(text, place):
            rest.append(text[place : found.start()])
            place = found.end()
            try:
                schema, place = json.JSONDecoder().raw_decode(text, place)
            except (ValueError, RecursionError):
                continue  # llguidance refuses it, unless it is part of a text
            check_size(schema)
        rest.append(text[place:])
        text = "".join(rest)
        rules = sum(":" in line for line in text.splitlines())  # each has its own line
        if rules > MOST_RULES:
            raise InvalidRequestError(
                f"The grammar has {rules} rules; the limit is {MOST_RULES}.", "Join rules, or use a JSON schema."
            )
        combined = sum(map(bool, _COMBINES.findall(text)))
        if combined > MOST_COMBINED:
            raise InvalidRequestError(
                f"The grammar combines {combined} terminals with '&'; the limit is {MOST_COMBINED}.",
                "Combine them in one expression.",
            )


def check_size(schema: Any) -> None:
    """Check the limits of a schema. Raises: InvalidRequestError if it is too long, nested too deeply or not JSON."""
    try:
        text = json.dumps(schema)
    except (RecursionError, ValueError, TypeError) as error:
        raise InvalidRequestError(f"The JSON schema cannot be read: {error}.", "Correct the schema.") from None
    if len(text) > MOST_CHARS:
        raise InvalidRequestError(
            f"The JSON schema has {len(text)} characters; the limit is {MOST_CHARS}.", "Shorten the schema."
        )
    level: list[Any] = [schema]
    combined, multiple = 0, 1
    for _ in range(MOST_DEPTH):
        objects = [one for one in level if isinstance(one, dict)]
        combined += sum(len(one["allOf"]) for one in objects if isinstance(one.get("allOf"), list))
        steps = [one["multipleOf"] for one in objects if type(one.get("multipleOf")) in (int, float)]
        multiple = math.lcm(multiple, *(_digits(step) for step in steps if step))
        lists = [*(list(one.values()) for one in objects), *(one for one in level if isinstance(one, list))]
        level = [value for values in lists for value in values]
        if not level:
            break
    if level:
        raise InvalidRequestError(
            f"The JSON schema is nested more than {MOST_DEPTH} levels deep.", "Use fewer nested levels."
        )
    if combined > MOST_COMBINED:
        raise InvalidRequestError(
            f"The JSON schema combines {combined} schemas with 'allOf'; the limit is {MOST_COMBINED}.",
            "Combine them in the schema itself.",
        )
    if multiple > MOST_MULTIPLE:
        raise InvalidRequestError(
            "The JSON schema has too many, or too large, numbers for 'multipleOf': the least common multiple of their "
            f"digits is above {MOST_MULTIPLE}.", "Leave 'multipleOf' out, or use rounder numbers.",
        )  # fmt: skip


def _digits(number: float) -> int:
    """Return the significant digits of a number as an integer: 25 for 0.025 and for 2500."""
    return int("0" + "".join(map(str, Decimal(str(number)).normalize().as_tuple().digits)))
