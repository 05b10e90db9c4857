"""Formulas as text: what is written out, what stays source, and that no formula hangs or fails."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.block_parser import BlockParser, parse
from app.markdown_blocks import CodeBlock, ProseBlock
from app.math_text import MOST_CHARACTERS, linear, to_html, to_text


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
    assert to_html(tex) is None


def test_words_stand_upright_and_variables_slant() -> None:
    assert to_html(r"x \text{ and } \sin y") == "<i>x</i> and sin <i>y</i>"
    assert to_html("p_i = 1") == "<i>p</i>ᵢ = 1"
    assert to_html("a<b") == "<i>a</i> &lt; <i>b</i>"


def test_what_is_raised_is_copied_so_that_it_can_be_read() -> None:
    html = to_html("e^{qr} + e^q + x_{b}") or ""
    assert "<sup>" in html
    assert linear("".join(html.replace("<sup>", "").replace("</sup>", ""))) == (
        "<i>e</i>^(<i>qr</i>) + <i>e</i>^(<i>q</i>) + <i>x</i><sub>_(<i>b</i>)</sub>"
    )
    assert to_text("e^{qr} + e^q") == "e^(qr) + e^q"


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
    html = to_html(tex)
    assert html is None or not any("\ue000" <= char <= "\ue006" for char in html)


def prose(text: str) -> str:
    return "".join(block.html for block in parse(text) if isinstance(block, ProseBlock))


def test_formulas_are_found_and_money_is_not() -> None:
    assert prose("It costs $5 and $10.") == "<p>It costs $5 and $10.</p>"
    assert prose("Let $x^2$ be") == "<p>Let <i>x</i>² be</p>"
    assert prose(r"Let \(x\) be \[y\]") == "<p>Let <i>x</i> be <i>y</i></p>"
    assert prose(r"a \$3 and $4") == "<p>a $3 and $4</p>"
    assert "$x$" in prose("`$x$`")
    assert prose("$$\na\n- b\n$$") == '<p class="math"><i>a</i> − <i>b</i></p>'
    assert prose("So:\n\\[\nx\n\\]\nthen") == '<p>So:</p><p class="math"><i>x</i></p><p>then</p>'
    assert "x" in prose("- item\n\n  $$x$$")
    assert parse("$$\n\\foo{x}\n$$") == [CodeBlock("tex", "\\foo{x}")]
    assert prose("$$ alone\n\nnext") == "<p>$$ alone</p><p>next</p>"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["$", "$$", "\n", "\n\n", "x", r"\[", r"\]", r"\(", r"\)", "- ", "```\n", " "]), max_size=30
    )
)
def test_formulas_that_stream_in_end_as_the_whole(pieces: list[str]) -> None:
    parser = BlockParser()
    for piece in pieces:
        parser.append(piece)
    parser.finish()
    assert parser.blocks == parse("".join(pieces))
