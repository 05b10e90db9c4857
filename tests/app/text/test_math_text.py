"""Formulas as text for screen readers: what is written out, what stays source, and that no formula hangs or fails."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text.math_text import MOST_CHARACTERS, to_text


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}", "x = (−b ± √(b² − 4ac))/(2a)"),
        (r"\sum_{i=1}^{n} i^2", "∑ᵢ₌₁ⁿ i²"),
        (r"\int_0^\infty e^{-x^2}\,dx", "∫₀^∞ e^(−x²)\u2009dx"),
        (r"f'(x) = \lim_{h \to 0} g(h)", "f′(x) = lim_(h → 0) g(h)"),
        (r"\text{if } x \in \mathbb{R}^n", "if x ∈ ℝⁿ"),
        (r"\begin{cases} x & x > 0 \\ -x & \text{otherwise} \end{cases}", "{ x, x > 0; −x, otherwise"),
        (r"\begin{aligned} a &= b \\ &= c \end{aligned}", "a = b\n= c"),
        (r"\left( \frac{1}{2} \right)^2", "(1/2)²"),
        (r"\sqrt[3]{2\pi}", "∛(2π)"),
        (r"a < b \not= c", "a < b ≠ c"),
        (r"\sin^2\theta", "sin²θ"),
        (r"50\%", "50%"),
    ],
)
def test_tex_becomes_a_line_of_text(tex: str, text: str) -> None:
    assert to_text(tex) == text


@pytest.mark.parametrize(
    "tex", [r"\unheardof{x}", "{a", "a}", "{" * 99 + "}" * 99, "x" * (MOST_CHARACTERS + 1), "", "x^"]
)
def test_what_is_not_known_stays_source(tex: str) -> None:
    assert to_text(tex) is None


def test_what_has_no_raised_letter_stands_behind_a_mark() -> None:
    assert to_text("e^{qr} + e^q + x_{b}") == "e^(qr) + e^q + x_b"


PIECES = st.lists(
    st.sampled_from(
        [r"\frac", r"\sqrt", "{", "}", "^", "_", "x", "1", " ", r"\left", r"\right", "(", ")", r"\begin{cases}", "&",
         r"\end{cases}", r"\\", r"\text", r"\sum", r"\alpha", "-", "[", "]", "%", "~", "'", r"\hat", r"\not", "<", "é"]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(PIECES)
def test_no_formula_fails(tex: str) -> None:
    text = to_text(tex)
    assert text is None or isinstance(text, str)
