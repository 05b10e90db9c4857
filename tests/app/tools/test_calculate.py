"""The calculator: exact results, what it refuses, and expressions that are meant to harm it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tools.calculate import MAX_DIGITS, Calculator, calculate
from app.tools.tool_error import ToolError
from engine.errors import Cancelled


def result(expression: str) -> str:
    """The result, with ≈ before a rounded one."""
    text = calculate(expression)
    return text.partition(" = ")[2] or "≈" + text.partition(" ≈ ")[2]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"), ("0.1 + 0.2", "0.3"), ("1/8", "0.125"), ("-7 // 2", "-4"), ("-7 mod 3", "2"),
        ("2^10", "1024"), ("-2**2", "-4"), ("2**-2", "0.25"), ("2**3**2", "512"), ("4^0.5", "2"), ("8^(1/3)", "2"),
        ("6 × 7 ÷ 2 − 1", "20"), ("1,234,567.5 * 2", "2469135"), ("1\u202f000 + 1_000", "2000"), ("2+2=", "4"),
        ("15% of 80", "12"), ("20%", "0.2"), ("50% of (10 + 30)", "20"), ("200 * 5%", "10"), ("(10 + 5)%", "0.15"),
        ("10% + 5", "5.1"), ("17 % 5", "2"), ("17%5", "2"), ("7 % -3", "-2"), ("5%*3", "0.15"),
        ("2^50%", "≈1.4142135623731"),
        ("5!", "120"), ("3!!", "720"), ("√16 + √(9)", "7"), ("sqrt(0.25)", "0.5"), ("sqrt(10**100)", "1" + "0" * 50),
        ("round(2.5)", "3"), ("round(-2.5)", "-3"), ("round(2.675, 2)", "2.68"), ("round(1234, -2)", "1200"),
        ("round(pi, 3)", "3.142"), ("floor(-1.5) + ceil(1.2)", "0"), ("abs(-3.5)", "3.5"),
        ("max(1, 2.5, 2)", "2.5"), ("min([3, 1, 2])", "1"), ("sum(0.1, 0.1, 0.1)", "0.3"),
        ("mean(1,2,4)", "≈2.3333333333333333333 (exactly 7/3)"),
        ("median([4, 1, 3])", "3"), ("median(1, 2)", "1.5"), ("gcd(12,180)", "12"), ("lcm(4, 6, 10)", "60"),
        ("comb(50, 3)", "19600"), ("comb(3, 5)", "0"), ("factorial(25) / factorial(23)", "600"),
        ("max((1,000), 2)", "1000"),
        ("log10(1000)", "3"), ("log2(1/8)", "-3"), ("log(81, 3)", "4"), ("ln(e)", "1"), ("log(10**400, 10)", "400"),
        ("ln(1 + 10**-12)", f"≈{math.log(1 + 1e-12):.15g}"),
        ("log2(10**400 + 1)", f"≈{400 * math.log2(10):.15g}"), ("cos(0) + sin(0)", "1"), ("degrees(pi)", "180"),
        ("1e3 + 1E-3", "1000.001"), ("2 * PI", f"≈{2 * math.pi:.15g}"), ("10**-70", "≈1E-70"),
        ("1" + "+1" * 499, "500"), ("(-8) ** 3", "-512"), ("(-1) ** 10**30", "1"), ("0 ** 0", "1"),
    ],
)  # fmt: skip
def test_results(expression: str, value: str) -> None:
    assert result(expression) == value


def test_the_reading_is_part_of_the_result() -> None:
    assert calculate("100 + 10%") == "100 + (10 / 100) = 100.1"


@given(st.integers(-(10**30), 10**30), st.integers(-(10**12), 10**12), st.sampled_from("+-*"))
def test_whole_numbers_equal_pythons(a: int, b: int, sign: str) -> None:
    assert result(f"({a}) {sign} ({b})") == str({"+": a + b, "-": a - b, "*": a * b}[sign])


@given(st.decimals(-(10**6), 10**6, places=6), st.decimals(-(10**6), 10**6, places=4))
def test_decimals_are_exact(a: object, b: object) -> None:
    assert Fraction(result(f"({a:f}) + ({b:f})")) == Fraction(f"{a:f}") + Fraction(f"{b:f}")


@pytest.mark.parametrize(
    "expression",
    [
        "10**10**10", "2**(10**100)", "(1/3)**10**9", "factorial(10**9)", "factorial(100000)", "10000000!",
        "comb(10**9, 5*10**8)",
        "1e999999999", "1e-999999999", "1e" + "9" * 900, "9**9**9**9", "((10**9999)**9)**9",
        "lcm(10**30000, 10**30000+1)",
        "2**0.5**-9**9", "exp(10**6)", "sqrt(10**1000 + 1)", "sin(10**400)", "1.5 * e * 10**400", "1**" * 200 + "1",
        "(" * 400 + "1" + ")" * 400, "-" * 900 + "1", "1" * 1001, "1+" * 10**6 + "1", "round(1, 10**9)",
        "*".join(["99999999999"] * 80) + "**9999",
    ],
)  # fmt: skip
@pytest.mark.timeout(60)  # each would take minutes, hours or all memory
def test_bombs_are_refused_at_once(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("", "empty"), ("1/0", "zero"), ("0 ** -1", "zero"), ("0.0 ** -pi", "zero"), ("5 % 0", "zero"), ("(1", "("),
        ("1)", ")"), ("(1]", "]"), ("2 +", "ends"),
        ("* 2", "*"), ("()", ")"), ("2 3", "*"), ("2pi", "*"), ("2(3)", "*"), ("(2)(3)", "*"), ("x + 1", "variables"),
        ("__import__('os')", "'"), ("__import__", "_"), ("a.b", "."), ("open(1)", "sqrt"), ("lambda", "lambda"),
        ("1 if 1 else 2", "*"),
        ("0x1F", "*"), ("1;2", ";"), ("1 < 2", "<"), ("1.5.2", "*"), ("0,5", "point"), ("1,00", "point"),
        ("007", "0"),
        ("sqrt(1,000)", "1000"), ("sqrt(1,500)", "1000"), ("sum(1,500, 2,500)", "1000"), ("max(1,000, 2)", "1000"),
        ("10%-3", "(10%)"), ("sqrt(-1)", "negative"),
        ("(-8)^(1/3)", "negative"), ("(-pi)^0.5", "negative"), ("ln(0)", "positive"), ("log(5, 1)", "base"),
        ("asin(2)", "asin"),
        ("factorial(-1)", "negative"), ("factorial(1.5)", "whole"), ("gcd(1.5, 2)", "whole"), ("comb(5)", "2"),
        ("round(1, 0.5)", "places"),
        ("sum()", ")"), ("[1, 2]", "Lists"), ("sum([[1]])", "Lists"), ("not(3)", "read"), ("٣ + 1", "٣"),
        ("1\u200b+2", "u200b"), ("sqrt 2 3", "*"), ("√", "sqrt"),
    ],
)  # fmt: skip
def test_errors_name_their_cause(expression: str, part: str) -> None:
    with pytest.raises(ToolError) as caught:
        calculate(expression)
    assert part in caught.value.message
    assert len(caught.value.message) < 600


@given(st.text("0123456789.,+-*/%^!()[] eπpisqrtmax", max_size=40))
def test_any_text_gives_a_result_or_a_sentence(text: str) -> None:
    outcome = Calculator().call("calculate", {"expression": text}, lambda: False)
    assert outcome.text.endswith(".") == outcome.is_error


def test_large_results_are_rounded_and_the_largest_are_shown_whole() -> None:
    assert result(f"10**{MAX_DIGITS - 1}") == "1" + "0" * (MAX_DIGITS - 1)
    assert result("10**4001 + 1") == "≈1E+4001"
    assert result("7**20000 / 7**19999") == "7"


def test_it_stops_when_it_is_cancelled_or_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Cancelled):
        calculate("1 + 1", lambda: True)
    monkeypatch.setattr("app.tools.calculate.WITHIN_S", -1.0)
    with pytest.raises(ToolError):
        calculate("1 + 1")


def test_as_a_source() -> None:
    source = Calculator()
    (tool,) = source.tools()
    assert tool.is_local
    assert tool.parameters["required"] == ["expression"]
    assert source.call(tool.name, {"expression": "6*7"}, lambda: False).text == "6 * 7 = 42"
    for arguments in ({}, {"expression": 5}, {"expression": " "}, {"expression": "1+" * 10**6}):
        assert source.call(tool.name, arguments, lambda: False).is_error
    assert source.call(tool.name, {"expression": "1+1"}, lambda: True).is_error
