"""Typeset formulas: sixty from answers, where they stand in a line, what is copied, and what is refused."""

from __future__ import annotations

import pytest
from formulas_of_answers import FORMULAS
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPoint
from PySide6.QtGui import QColor, QImage, QTextCursor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.text import math_drawing
from app.text.block_parser import BlockParser, parse
from app.text.markdown_blocks import FORMULA, CodeBlock, ProseBlock
from app.text.math_typeset import MOST_CHARACTERS, MOST_DEPTH, Drawing, formula, is_bounded, typeset
from app.ui.look import formulas, theme
from app.ui.transcript.selection.copied_text import copied_text
from app.ui.transcript.text.prose import Prose

WIDTH = 600
ALIGNED = "\\begin{align}\na &= b\n\\end{align}"


def html_of(markdown: str) -> str:
    return "".join(block.html for block in parse(markdown) if isinstance(block, ProseBlock))


@pytest.fixture
def view(qtbot: QtBot, qapp: QApplication) -> Prose:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)
    out = Prose("Answer")
    out.resize(WIDTH, 100)
    out.set_width(WIDTH)
    qtbot.addWidget(out)
    return out


def show(view: Prose, markdown: str) -> None:
    view.show_html(html_of(markdown))
    formulas.current().finish()


def everything(view: Prose) -> QTextCursor:
    cursor = QTextCursor(view.document())
    cursor.select(QTextCursor.SelectionType.Document)
    return cursor


# --- layout


@pytest.mark.parametrize("source", FORMULAS)
def test_formulas_of_answers_are_typeset(source: str) -> None:
    drawing = typeset(source)
    assert drawing is not None
    assert 0.3 < drawing.width < 60
    assert 0.3 < drawing.ascent + drawing.descent < 12
    ys = [y for _, numbers in drawing.steps for y in numbers[1::2]]
    assert max(-min(ys), 0) <= drawing.ascent + 1e-6
    assert max(*ys, 0) <= drawing.descent + 1e-6


def test_there_are_sixty_of_them_and_each_is_found_in_its_text() -> None:
    assert len(set(FORMULAS)) == 60
    for source in FORMULAS:
        text = source if source.startswith("\\begin") else f"Words {source}, words."
        assert formulas.sources_in(html_of(text)) == [source]


def test_signs_have_the_spaces_of_tex() -> None:
    def width(tex: str) -> float:
        drawing = typeset(f"${tex}$")
        assert drawing is not None
        return drawing.width

    assert width("a - b") > width("{-} b") + width("a") + 0.3  # of two sides
    assert width("= -b") < width("= a - b") - width("a") - 0.3  # of one
    assert width(r"P \land Q") > width(r"P {\land} Q") + 0.3
    assert width(r"\det A") > width(r"\det(A") - width("(") + 0.1


def test_words_and_chemistry_are_read() -> None:
    for source in (r"$\text{if $x$ is odd}$", r"$\ce{SO4^2- + Ba^{2+} -> BaSO4}$", r"$$E = mc^2 \tag{1}$$",
                   r"$\color{red}{x} + \textcolor{blue}{y}$", r"$\operatorname*{arg\,max}_x f$", r"$a \not= b$",
                   r"$\begin{array}{c|c} P & Q \\ \hline T & F \end{array}$"):  # fmt: skip
        assert typeset(source) is not None, source


def test_words_in_other_scripts_are_the_windows() -> None:
    drawn: list[str] = []

    def words(text: str) -> Drawing:
        drawn.append(text)
        return Drawing(len(text), 0.8, 0.2, (("M", (0, -0.8)), ("L", (len(text), 0.2)), ("Z", ())))

    drawing = typeset(r"$x = \text{面积} \cdot \frac{速}{2}$", words)
    assert drawing is not None
    assert set(drawn) == {"面积", "速"}
    assert typeset(r"$\text{面积}$") is None


# --- hostile formulas

NESTED = 60
HOSTILE = (
    "{" * 10_000 + "x" + "}" * 10_000,
    r"\frac{1}{1+" * NESTED + "x" + "}" * NESTED,
    r"\sqrt" * 900 + "x",
    "x" + "^x" * 1900,
    r"\left(" * NESTED + "x" + r"\right)" * NESTED,
    r"\begin{pmatrix}" * NESTED + "x" + r"\end{pmatrix}" * NESTED,
    r"\def\a{\b\b}\def\b{\c\c}\a",
    r"\newcommand{\a}{\a\a}\a",
    r"\begin{pmatrix}" + r"\\".join("&".join("x" * 100) for _ in range(100)) + r"\end{pmatrix}",
    "x+" * 500_000,
    r"\hspace{99999999em}x",
    r"\unheardof{x}",
    "&",
    "",
)


@pytest.mark.parametrize("tex", HOSTILE)
def test_hostile_formulas_are_refused_within_bounds(tex: str) -> None:
    math_drawing.rows_laid_out = 0
    assert typeset(f"$${tex}$$") is None
    assert math_drawing.rows_laid_out <= math_drawing.MOST_ROWS + 1


def test_nesting_does_not_double_the_work() -> None:
    counts = []
    for depth in (5, 10):
        assert typeset("$" + r"\frac{1}{1+" * depth + "x" + "}" * depth + "$") is not None
        counts.append(math_drawing.rows_laid_out)
    assert counts[1] < 6 * counts[0]  # 32 times as many, were it doubled by every level


PIECES = st.lists(
    st.sampled_from(
        [r"\frac", r"\sqrt", "{", "}", "^", "_", "x", "1", " ", r"\left", r"\right", "(", ")", r"\begin{cases}", "&",
         r"\end{cases}", r"\\", r"\text", r"\sum", r"\alpha", "-", "[", "]", "%", "~", "'", r"\hat", r"\not", "<", "é",
         r"\ce{", r"\tag{", r"\boxed", r"\begin{array}{c|c}", r"\end{array}", r"\hline", "$", r"\hspace{", "𝕏", "中"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(PIECES)
def test_no_formula_fails(tex: str) -> None:
    drawing = typeset(f"$${tex}$$")
    assert drawing is None or drawing.width < math_drawing.MOST_EMS + 1
    assert math_drawing.rows_laid_out <= math_drawing.MOST_ROWS + 1


def test_depth_and_length_have_their_bounds() -> None:
    assert is_bounded("{" * MOST_DEPTH + "x" + "}" * MOST_DEPTH)
    assert not is_bounded("{" * (MOST_DEPTH + 1))
    assert not is_bounded("x" * (MOST_CHARACTERS + 1))
    assert not is_bounded(" ")


# --- in Markdown


def test_formulas_are_found_and_money_is_not() -> None:
    assert html_of("It costs $5 and $10.") == "<p>It costs $5 and $10.</p>"
    assert formulas.sources_in(html_of("Let $x^2$ be")) == ["$x^2$"]
    assert formulas.sources_in(html_of(r"Let \(x\) be \[y\]")) == [r"\(x\)", r"\[y\]"]
    assert html_of(r"a \$3 and $4") == "<p>a $3 and $4</p>"
    assert "$x$" in html_of("`$x$`")
    assert formulas.sources_in(html_of("$$\na < b\n- c\n$$")) == ["$$\na < b\n- c\n$$"]
    assert formulas.sources_in(html_of("So:\n\\[\nx\n\\]\nthen")) == ["\\[\nx\n\\]"]
    assert formulas.sources_in(html_of("- item\n\n  $$x$$")) == ["$$x$$"]
    assert formulas.sources_in(html_of("\\begin{align}\na &= b\n\\end{align}")) == [
        "\\begin{align}\na &= b\n\\end{align}"
    ]
    assert parse("$$\n\\def\\foo{x}\n$$") == [CodeBlock("tex", "\\def\\foo{x}")]
    assert html_of("$$ alone\n\nnext") == "<p>$$ alone</p><p>next</p>"


@pytest.mark.parametrize(
    "source", ["$$x_1 + *y* = z - *a*$$", "\\[ x_1 + *y*\n= z - *a* \\]", "\\begin{align}\na &= b\n\\end{align}"]
)
def test_a_formula_that_streams_in_is_source_until_its_end(source: str) -> None:
    parser = BlockParser()
    for index, letter in enumerate(source, 1):
        parser.append(letter)
        (block,) = parser.blocks
        assert isinstance(block, ProseBlock)
        if 14 < index < len(source):
            assert block.html.startswith("<pre>")
            assert "<em>" not in block.html
    assert formulas.sources_in(parser.blocks[0].html) == [source]


def test_an_inline_formula_that_streams_in_is_no_markdown() -> None:
    parser = BlockParser()
    parser.append(r"Let \(x_1_ * y * z")
    (block,) = parser.blocks
    assert isinstance(block, ProseBlock)
    assert block.html == r"<p>Let \(x_1_ * y * z</p>"


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


def test_delimiters_say_how_a_formula_is_set() -> None:
    assert formula("$x$") == ("x", False)
    assert formula(r"\(x\)") == ("x", False)
    assert formula("$$x$$") == ("x", True)
    assert formula("\\[\nx\n\\]") == ("x", True)
    assert formula(r"\begin{align}x\end{align}") == (r"\begin{align}x\end{align}", True)


# --- in the window


def picture(view: Prose) -> QImage:
    image = QImage(view.size(), QImage.Format.Format_RGB32)
    image.fill(QColor("white"))
    view.render(image, QPoint())
    return image


def ink(image: QImage, left: int, right: int) -> tuple[int, int]:
    """First and last row with something dark between two columns."""
    rows = [
        y for y in range(image.height()) if any(QColor(image.pixel(x, y)).lightness() < 110 for x in range(left, right))
    ]
    return rows[0], rows[-1]


@pytest.mark.gui
def test_a_formula_stands_on_the_baseline_of_its_line(view: Prose) -> None:
    show(view, r"H $\mathrm{H}$")
    image = picture(view)
    letter = view.fontMetrics().horizontalAdvance("H")
    text, set_ = ink(image, 0, letter), ink(image, letter + 4, letter + 40)
    assert abs(text[1] - set_[1]) <= 1
    assert abs((text[1] - text[0]) - (set_[1] - set_[0])) <= 4  # and is of its size


@pytest.mark.gui
def test_a_line_with_a_formula_is_no_higher_unless_the_formula_is(view: Prose) -> None:
    def height(markdown: str) -> int:
        show(view, markdown)
        return view.height()

    assert height("words") == height("words $x + y$ words")
    assert height("words") < height(r"words $\frac{a}{b}$ words") < height(r"words $$\frac{a}{b}$$ words")


@pytest.mark.gui
def test_what_is_copied_is_the_latex(view: Prose) -> None:
    show(view, "Let $x^2$ be\n\n$$\n\\frac{a}{b} < c\n$$\n\nand \\(y\\).")
    assert copied_text(everything(view)) == "Let $x^2$ be\n$$\n\\frac{a}{b} < c\n$$\nand \\(y\\)."
    assert view.plain() == "Let $x^2$ be\n\n$$\n\\frac{a}{b} < c\n$$\n\nand \\(y\\)."
    part = QTextCursor(view.document())
    part.setPosition(5, QTextCursor.MoveMode.KeepAnchor)
    assert copied_text(part) == "Let $x^2$"


@pytest.mark.gui
def test_a_formula_that_cannot_be_typeset_is_shown_as_code(view: Prose) -> None:
    show(view, r"Let $\unheardof{x}$ be $y$")
    assert FORMULA in view.document().toHtml()
    assert copied_text(everything(view)) == r"Let \unheardof{x} be $y$"


@pytest.mark.gui
def test_chinese_words_in_a_formula_are_drawn(view: Prose) -> None:
    show(view, r"Let $\text{面积} = x$ be")
    assert not formulas.current().refused(r"$\text{面积} = x$")
    assert copied_text(everything(view)) == r"Let $\text{面积} = x$ be"


@pytest.mark.gui
def test_a_formula_that_arrives_late_takes_its_place(view: Prose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulas, "WAIT_S", 0.0)
    view.show_html(
        html_of(r"Late $$\frac{\frac{a}{b}}{\frac{c}{d}} + \unheardof$$ and $$\frac{\frac{a}{b}}{\frac{c}{d}}$$")
    )
    before = view.height()
    formulas.current().finish()
    assert view.height() > before
    assert copied_text(everything(view)).startswith(r"Late \frac{\frac{a}{b}}")


@pytest.mark.gui
def test_a_screen_reader_gets_formulas_in_words(view: Prose) -> None:
    show(view, r"Let $\frac{a}{b}$ be")
    assert view.accessibleDescription() == "Let a/b be"
    show(view, "Nothing")
    assert view.accessibleDescription() == ""


@pytest.mark.gui
def test_formulas_follow_the_theme_and_the_zoom(view: Prose, qapp: QApplication) -> None:
    def darkest() -> int:
        image = picture(view)
        return min(QColor(image.pixel(x, y)).lightness() for x in range(60) for y in range(image.height()))

    try:
        show(view, "$$H$$")
        light, small = darkest(), view.height()
        theme.apply(qapp, "dark", 1.5)
        assert light < 110
        assert view.height() > 1.2 * small
        image = picture(view)
        assert max(QColor(image.pixel(x, y)).lightness() for x in range(80) for y in range(image.height())) > 180
    finally:
        theme.apply(qapp, "light", 1.0)


@pytest.mark.gui
def test_a_wide_formula_shrinks_and_then_scrolls(view: Prose) -> None:
    def overhang(terms: int) -> int:
        show(view, "$$" + "+".join(["abcdef"] * terms) + "$$")
        return view.horizontalScrollBar().maximum()

    view.show()
    assert overhang(8) == 0
    assert overhang(9) == 0
    assert overhang(40) > 0


@pytest.mark.gui
def test_formulas_are_typeset_once_whatever_shows_them(view: Prose, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(formulas, "typeset", lambda source, words: asked.append(source) or typeset(source, words))
    for times in range(3):
        show(view, f"Once $q_{{17}}$, {times}")
    assert asked == ["$q_{17}$"]
