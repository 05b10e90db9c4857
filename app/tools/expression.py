"""Writes an arithmetic expression as people and models type it in Python's syntax, as text. No Qt.

It accepts × ÷ · − ^ √, thousands separators, percentages and n!, and refuses what has two meanings. The result holds
only numbers, names, brackets, commas and operators, so that `ast.parse` reads nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.tools.tool_error import ToolError

MAX_CHARACTERS = 1_000
MAX_BRACKETS = 50  # inside each other

_SIGNS = str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "∕": "/", "⁄": "/", "−": "-", "–": "-", "^": "^", "π": "pi",
     "τ": "tau", "√": " sqrt "}
)  # fmt: skip
_NARROW_SPACE = re.compile(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3}(?!\d))")  # separates thousands
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?")
_NUMBER = re.compile(r"(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:e[+-]?\d+)?")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OPERATOR = re.compile(r"\*\*|//|[-+*/%^]")
_THREE_DIGITS = re.compile(r",\d{3}(?!\d)")


@dataclass
class _Bracket:
    """An open bracket. start: index of the first piece of its operand, the name of the function included."""

    sign: str
    start: int
    takes_commas: bool
    tight: bool = False  # it holds "1,234", which may be one number or two
    spaced: bool = False  # it holds a comma and a space


def in_python(text: str) -> str:
    """Return the expression in Python's syntax, in ASCII. Raises ToolError with what is wrong."""
    if len(text) > MAX_CHARACTERS:
        raise ToolError(f"The expression has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed.")
    plain = _NARROW_SPACE.sub("", text.translate(_SIGNS)).lower().strip().removesuffix("=").rstrip()
    if not plain:
        raise ToolError("The expression is empty. Give one such as (3 + 4) * 2.")
    return _Writer(plain).write()


class _Writer:
    """Reads the expression once, from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._pieces: list[str] = []
        self._brackets: list[_Bracket] = []
        self._operand: int | None = None  # index of the first piece of the operand that just ended

    def write(self) -> str:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char.isspace():
                self._at += 1
            elif char in "([":
                self._open(char)
            elif char in ")]":
                self._close(char)
            elif char == ",":
                self._comma()
            elif found := self._number():
                self._begin_operand(found)
                self._add_operand(found.replace("_", ""))
            elif match := _NAME.match(self._text, self._at):
                self._name(match[0])
            elif char == "!" and self._operand is not None:
                self._at += 1
                self._wrap("factorial(", ")")
            elif match := _OPERATOR.match(self._text, self._at):
                self._operator(match[0])
            else:
                raise ToolError(
                    f"The expression contains {_shown(char)}, which is not allowed. Use numbers, + - * / // % **, "
                    "parentheses, functions and the constants pi, e and tau."
                )
        if self._brackets:
            raise ToolError(f"The expression ends before a '{self._brackets[-1].sign}' is closed.")
        if self._operand is None:
            raise ToolError("The expression ends where a number is expected.")
        return "".join(self._pieces).strip()

    # --- operands

    def _number(self) -> str:
        """Return the number that begins here, without separators, and step over it; "" if none begins here."""
        match = None if self._takes_commas else _GROUPED.match(self._text, self._at)
        match = match or _NUMBER.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        number = match[0].replace(",", "").replace("_", "")
        if re.match(r"0\d", number):
            raise ToolError(
                f"The number {_shown(match[0])} begins with 0. Inside a function a comma separates arguments: write "
                "1000 there, not 1,000."
            )
        return number

    def _name(self, name: str) -> None:
        rest = self._text[self._at + len(name) :].lstrip()
        if name == "mod" and self._operand is not None:
            self._at += len(name)
            self._add_operator(" % ")
            return
        self._begin_operand(name)
        self._at += len(name)
        if rest.startswith("("):
            start = len(self._pieces)
            self._pieces.append(name)
            self._at = self._text.index("(", self._at)
            self._push("(", start, takes_commas=True)
        elif name == "sqrt" and (match := re.compile(r"\s*").match(self._text, self._at)):  # √2
            self._at = match.end()
            if not (number := self._number()):
                raise ToolError("Write the argument of sqrt in parentheses.")
            self._add_operand(f"sqrt({number})")
        else:
            self._add_operand(name)

    def _add_operand(self, piece: str) -> None:
        self._operand = len(self._pieces)
        self._pieces.append(piece)

    def _begin_operand(self, what: str) -> None:
        if self._operand is not None:
            raise ToolError(f"An operator is missing before {_shown(what)}. Write * to multiply.")

    def _wrap(self, before: str, after: str) -> None:
        """Put the operand that just ended between two texts."""
        assert self._operand is not None
        self._pieces[self._operand :] = [before + "".join(self._pieces[self._operand :]) + after]

    # --- brackets

    @property
    def _takes_commas(self) -> bool:
        return bool(self._brackets) and self._brackets[-1].takes_commas

    def _open(self, sign: str) -> None:
        self._begin_operand(sign)
        self._push(sign, len(self._pieces), takes_commas=sign == "[")

    def _push(self, sign: str, start: int, takes_commas: bool) -> None:
        if len(self._brackets) >= MAX_BRACKETS:
            raise ToolError(f"Parentheses are nested more than {MAX_BRACKETS} deep. Write a simpler expression.")
        self._brackets.append(_Bracket(sign, start, takes_commas))
        self._pieces.append(sign)
        self._operand = None
        self._at += 1

    def _close(self, sign: str) -> None:
        if not self._brackets or self._brackets[-1].sign + sign not in ("()", "[]"):
            raise ToolError(f"The '{sign}' has no opening parenthesis. Check the parentheses.")
        if self._operand is None:
            raise ToolError(f"A number is missing before '{sign}'.")
        bracket = self._brackets.pop()
        if bracket.tight and bracket.spaced:
            raise ToolError(
                "A comma in a function's arguments could separate thousands or arguments. Write 1000, not 1,000."
            )
        self._pieces.append(sign)
        self._operand = bracket.start
        self._at += 1

    def _comma(self) -> None:
        if not self._takes_commas:
            raise ToolError(
                "A comma is allowed between the arguments of a function and between groups of three digits, as in "
                "1,000. Write decimal fractions with a point, as in 0.5."
            )
        if self._operand is None:
            raise ToolError("A number is missing before a comma.")
        bracket, last = self._brackets[-1], self._pieces[-1]
        if _THREE_DIGITS.match(self._text, self._at) and last.isdecimal() and len(last) <= 3:
            bracket.tight = True
        elif self._text[self._at + 1 : self._at + 2].isspace():
            bracket.spaced = True
        self._pieces.append(", ")
        self._operand = None
        self._at += 1

    # --- operators

    def _operator(self, sign: str) -> None:
        before = self._text[self._at - 1 : self._at]
        self._at += len(sign)
        if self._operand is None:
            if sign not in ("+", "-"):
                raise ToolError(f"A number is missing before '{sign}'.")
            self._pieces.append(sign)
        elif sign == "%" and self._is_percent(before.isspace()):
            self._wrap("(", " / 100)")
        else:
            self._add_operator({"^": " ** ", "**": " ** "}.get(sign, f" {sign} "))

    def _add_operator(self, piece: str) -> None:
        self._pieces.append(piece)
        self._operand = None

    def _is_percent(self, space_before: bool) -> bool:
        """Return whether the % that was just read means "per cent" and not "remainder of". Steps over "of"."""
        rest = self._text[self._at :].lstrip()
        space_after = len(rest) < len(self._text) - self._at
        if match := re.match(r"of\b", rest):
            self._at = len(self._text) - len(rest) + match.end()
            self._text = f"{self._text[: self._at]}*{self._text[self._at :]}"
            return True
        if not rest or rest[0] in ")],*/%^!" or re.match(r"mod\b", rest):
            return True
        if rest[0] not in "+-":
            return False
        if space_before and not rest[1:2].isspace():
            return False  # 7 % -3
        if not space_before and space_after:
            return True  # 10% - 3
        raise ToolError(
            f"'%{rest[0]}' could be a percentage or a remainder. Write (10%) - 3 for the one, 10 % (-3) for the other."
        )


def _shown(text: str) -> str:
    return ascii(text[:40]) if not text.isprintable() else f"'{text[:40]}'"
