"""The tool `calculate`: arithmetic, exact where it can be, within bounds of size and time. No Qt.

Python's parser reads the expression, and this module computes its tree. Nothing is evaluated as code.
"""

from __future__ import annotations

import ast
import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from app.tools.expression import in_python
from app.tools.tool import Scope, Tool, ToolResult
from app.tools.tool_error import ToolError, result_of, text_argument
from app.translation import noted, tr
from engine.errors import Cancelled

NAME = "calculate"
TITLE = noted("Calculator")
MAX_BITS = 100_000  # of a whole number, or of a fraction's numerator or denominator
MAX_DIGITS = 4_000  # that are shown; Python itself writes up to 4,300
MAX_DEPTH = 100
WITHIN_S = 2.0
_PLACES = 60  # of an exact decimal fraction
_SIGNIFICANT = Context(prec=20)
_LONGEST_TEXT = 10_000  # the expression itself is bounded by in_python

Number = int | Fraction | float
CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_DESCRIPTION = (
    "Computes an arithmetic expression exactly where possible. Use it for every calculation that is not trivial. "
    "Operators: + - * / // % ** and parentheses; ^ is a power, 15% of 80 and 5! work. "
    "Functions: sqrt abs round floor ceil min max sum mean median exp ln log (natural, or log(x, base)) log10 log2 "
    "sin cos tan asin acos atan (radians) radians degrees factorial comb gcd lcm. Constants: pi e tau. "
    "round() rounds halves away from zero."
)


class Calculator:
    """A ToolSource with the one tool `calculate`, which sends and changes nothing."""

    def tools(self) -> tuple[Tool, ...]:
        text = {"type": "string", "description": "such as (1250 * 1.19) / 12 or sqrt(2) + 15% of 80"}
        schema = {"type": "object", "properties": {"expression": text}, "required": ["expression"]}
        return (Tool(NAME, tr(TITLE), _DESCRIPTION, schema, is_local=True),)

    def scope(self, name: str, arguments: Mapping[str, Any]) -> Scope:
        return Scope(f"local:{NAME}", tr(TITLE))

    def call(self, name: str, arguments: Mapping[str, Any], is_cancelled: Callable[[], bool]) -> ToolResult:
        return result_of(NAME, lambda: calculate(text_argument(arguments, "expression", _LONGEST_TEXT), is_cancelled))


def calculate(expression: str, is_cancelled: Callable[[], bool] = lambda: False) -> str:
    """Return "expression = result", or with ≈ if the result is rounded. Raises ToolError, Cancelled."""
    source = in_python(expression)
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ToolError(f"The expression was read as {source} and cannot be understood.") from None
    try:
        value = _Evaluation(source, is_cancelled).value(tree.body)
        return f"{source} {written(value)}"
    except ZeroDivisionError:
        raise ToolError("The expression divides by zero.") from None
    except OverflowError:
        raise ToolError("A number is too large for this function or for decimals. Use smaller numbers.") from None


# --- results


def written(value: Number) -> str:
    """Return "= digits", or "≈ digits" for a rounded value."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return f"= {int(value)}"
        return f"≈ {value:.15g}"
    if isinstance(value, int):
        if value.bit_length() * math.log10(2) < MAX_DIGITS:
            return f"= {value}"
        return f"≈ {Decimal(value).normalize(_SIGNIFICANT)}"
    if (exact := _decimal(value)) is not None:
        return f"= {exact}"
    rounded = _SIGNIFICANT.divide(Decimal(value.numerator), Decimal(value.denominator))
    short = max(abs(value.numerator), value.denominator) < 10**12
    return f"≈ {rounded}" + (f" (exactly {value.numerator}/{value.denominator})" if short else "")


def _decimal(value: Fraction) -> str | None:
    """Return a fraction as an exact decimal; None if it has none of a reasonable length."""
    if value.denominator.bit_length() > 3.4 * _PLACES or value.numerator.bit_length() > 3.3 * MAX_DIGITS:
        return None
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1 or places > _PLACES:
        return None
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


# --- evaluation


class _Evaluation:
    def __init__(self, source: str, is_cancelled: Callable[[], bool]) -> None:
        self._source, self._is_cancelled = source, is_cancelled
        self._until = time.monotonic() + WITHIN_S
        self._depth = 0

    def value(self, node: ast.expr) -> Number:
        """Return the value of a node. Raises ToolError, Cancelled, ZeroDivisionError, OverflowError."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ToolError(f"The expression is nested more than {MAX_DEPTH} deep. Compute it in parts.")
        result = self._computed(node)
        self._depth -= 1
        return result

    def _computed(self, node: ast.expr) -> Number:
        if self._is_cancelled():
            raise Cancelled
        match node:
            case ast.Constant(value=int() | float()):
                return _literal(self._source[node.col_offset : node.end_col_offset])
            case ast.Name(id=name) if name in CONSTANTS:
                return CONSTANTS[name]
            case ast.Name(id=name):
                raise ToolError(_unknown(name))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.value(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.value(operand)
            case ast.BinOp():
                return self._chain(node)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._called(name, arguments)
        raise ToolError(f"The expression was read as {self._source}. Lists are allowed only in functions such as sum.")

    def _chain(self, node: ast.BinOp) -> Number:
        """Compute a + b + c + ... from the left, in a loop: it is as deep as it is long."""
        links: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):
            links.append(first)
            first = first.left
        value = self.value(first)
        for link in reversed(links):
            value = self._simplest(_OPERATORS[type(link.op)](value, self.value(link.right)))
        return value

    def _called(self, name: str, arguments: Sequence[ast.expr]) -> Number:
        if name not in FUNCTIONS:
            raise ToolError(_unknown(name))
        function, fewest, most = FUNCTIONS[name]
        takes_lists = most > _MANY // 2
        values: list[Number] = []
        for argument in arguments:
            parts = argument.elts if takes_lists and isinstance(argument, ast.List) else [argument]
            values += [self.value(part) for part in parts]
        if not fewest <= len(values) <= most:
            wanted = f"at least {fewest}" if takes_lists else str(fewest) if fewest == most else f"{fewest} or {most}"
            raise ToolError(
                f"{name} takes {wanted} argument{'' if wanted in ('1', 'at least 1') else 's'}, not {len(values)}. "
                "Inside a function a comma separates arguments: write 1000, not 1,000."
            )
        try:
            return self._simplest(function(*values))
        except ValueError:
            raise ToolError(f"{name} has no real value for these arguments.") from None

    def _simplest(self, value: Number) -> Number:
        """Return a value in its simplest type. Raises ToolError if it is too large or took too long."""
        if time.monotonic() > self._until:
            raise ToolError(f"The calculation took longer than {WITHIN_S:.0f} s. Simplify it.")
        if isinstance(value, float):
            if not math.isfinite(value):
                raise OverflowError
            return value
        _check_bits(max(value.numerator.bit_length(), value.denominator.bit_length()))
        return value.numerator if value.denominator == 1 else value


def _check_bits(n_bits: float) -> None:
    """Raise ToolError if a number of this many bits is too large. Called before the number is computed, too."""
    if n_bits > MAX_BITS:
        digits = int(MAX_BITS * math.log10(2))
        raise ToolError(f"A number would have more than {digits:,} digits, which is too large. Use logarithms instead.")


def _literal(text: str) -> Number:
    _, _, exponent = text.partition("e")
    _check_bits(abs(int(exponent or "0")) / math.log10(2) if len(exponent) < 10 else math.inf)
    value = Fraction(text)
    return value.numerator if value.denominator == 1 else value


def _unknown(name: str) -> str:
    return (
        f"'{name[:40]}' is not known. Functions: {', '.join(sorted(FUNCTIONS))}. Constants: "
        f"{', '.join(CONSTANTS)}. Put the arguments of a function in parentheses; variables are not allowed."
    )


# --- operators and functions


def _divided(a: Number, b: Number) -> Number:
    return a / b if isinstance(a, float) or isinstance(b, float) else Fraction(a) / Fraction(b)


def _power(base: Number, exponent: Number) -> Number:
    if base == 0 and exponent < 0:
        raise ZeroDivisionError
    if isinstance(base, float) or isinstance(exponent, float):
        if base < 0 and exponent != int(exponent):
            raise ToolError("A power of a negative number with a fraction as its exponent is not a real number.")
        return math.pow(base, exponent)
    if isinstance(exponent, Fraction):
        return _fractional_power(base, exponent)
    if base in (0, 1) or exponent == 0:
        return 1 if exponent == 0 else base
    if base == -1:
        return 1 if exponent % 2 == 0 else -1
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    _check_bits(abs(exponent) * max(bits - 1, 1))
    return Fraction(base) ** exponent


def _fractional_power(base: int | Fraction, exponent: Fraction) -> Number:
    if base < 0:
        raise ToolError("A power of a negative number with a fraction as its exponent is not a real number.")
    top, bottom = _root(base.numerator, exponent.denominator), _root(base.denominator, exponent.denominator)
    if top is not None and bottom is not None:
        return _power(Fraction(top, bottom), exponent.numerator)
    return math.pow(base, exponent)


def _root(n: int, degree: int) -> int | None:
    """Return the exact root of n >= 0; None if it is not a whole number or not looked for."""
    if degree == 2:
        root = math.isqrt(n)
    elif degree > 64 or n.bit_length() > 1000:
        return None
    else:
        root = round(n ** (1 / degree))
    return root if root**degree == n else None


def _square_root(value: Number) -> Number:
    if value < 0:
        raise ToolError("The square root of a negative number is not a real number.")
    return math.sqrt(value) if isinstance(value, float) else _fractional_power(value, Fraction(1, 2))


def _rounded(value: Number, places: Number = 0) -> Number:
    if not isinstance(places, int) or abs(places) > 1000:
        raise ToolError("The second argument of round is the number of decimal places, between -1000 and 1000.")
    # The decimal that is shown for a float is what gets rounded: round(2.675, 2) is 2.68 either way.
    scaled = abs(Fraction(repr(value)) if isinstance(value, float) else Fraction(value)) * Fraction(10) ** places
    whole = math.floor(scaled + Fraction(1, 2))
    return Fraction(whole if value >= 0 else -whole) / Fraction(10) ** places


def _logarithm(value: Number, base: Number = math.e) -> Number:
    if value <= 0 or base <= 0 or base == 1:
        raise ToolError("A logarithm needs a positive number, and a positive base other than 1.")
    if isinstance(base, float) and base == math.e:
        return _natural(value)
    found = _natural(value) / _natural(base)
    whole = round(found)
    if not isinstance(value, float) and not isinstance(base, float) and abs(whole) < 100_000:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(whole) * bits <= 2 * MAX_BITS and Fraction(base) ** whole == value:
            return whole
    return found


def _natural(value: Number) -> float:
    """Return the natural logarithm, also of numbers that are too large or too small for a float."""
    try:
        if (near := float(value)) > 0:
            return math.log(near)
    except OverflowError:
        pass
    return math.log(value.numerator) - math.log(value.denominator) if isinstance(value, int | Fraction) else -math.inf


def _whole(value: Number, name: str) -> int:
    if not isinstance(value, int):
        raise ToolError(f"{name} takes whole numbers only.")
    return value


def _factorial(value: Number) -> int:
    n = _whole(value, "factorial")
    if n < 0:
        raise ToolError("factorial takes no negative number.")
    _check_bits(n)  # n! has more bits than n from n = 6 on
    _check_bits(math.lgamma(n + 1) / math.log(2))
    return math.factorial(n)


def _combinations(value: Number, chosen: Number) -> int:
    n, k = _whole(value, "comb"), _whole(chosen, "comb")
    if n < 0 or k < 0:
        raise ToolError("comb takes no negative number.")
    fewer = max(min(k, n - k), 0)
    _check_bits(fewer)  # C(n, k) >= 2^k for k <= n / 2
    _check_bits(fewer * (math.log2(n) - math.log2(fewer)) if fewer else 0)  # C(n, k) >= (n / k)^k
    return math.comb(n, k)


def _common(function: Callable[[int, int], int], name: str) -> Callable[..., int]:
    def result(*values: Number) -> int:
        found = 1 if name == "lcm" else 0
        for value in values:
            found = function(found, _whole(value, name))
            _check_bits(found.bit_length())
        return found

    return result


def _total(*values: Number) -> Number:
    return reduce(operator.add, values)


def _mean(*values: Number) -> Number:
    return _divided(_total(*values), len(values))


def _median(*values: Number) -> Number:
    return _divided(_total(sorted(values)[(len(values) - 1) // 2], sorted(values)[len(values) // 2]), 2)


_MANY = 10_000
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
# Name: the function, and the fewest and most arguments.
FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    "sqrt": (_square_root, 1, 1), "abs": (abs, 1, 1), "round": (_rounded, 1, 2), "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1), "min": (min, 1, _MANY), "max": (max, 1, _MANY), "sum": (_total, 1, _MANY),
    "mean": (_mean, 1, _MANY), "median": (_median, 1, _MANY), "log": (_logarithm, 1, 2), "ln": (_logarithm, 1, 1),
    "log10": (lambda value: _logarithm(value, 10), 1, 1), "log2": (lambda value: _logarithm(value, 2), 1, 1),
    "exp": (math.exp, 1, 1), "sin": (math.sin, 1, 1), "cos": (math.cos, 1, 1), "tan": (math.tan, 1, 1),
    "asin": (math.asin, 1, 1), "acos": (math.acos, 1, 1), "atan": (math.atan, 1, 1),
    "radians": (math.radians, 1, 1), "degrees": (math.degrees, 1, 1), "factorial": (_factorial, 1, 1),
    "comb": (_combinations, 2, 2), "gcd": (_common(math.gcd, "gcd"), 1, _MANY),
    "lcm": (_common(math.lcm, "lcm"), 1, _MANY),
}  # fmt: skip
