"""Converts the blocks of an answer to HTML for browsers, word processors and mail. No Qt.

markdown_blocks.py renders for Qt's rich text. Its tags are known and everything else in it is escaped, so that this
module can rewrite them one by one. No style attributes, and no addresses but http and https links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape, unescape

from app.text.block_parser import parse
from app.text.code_colours import coloured_parts
from app.text.markdown_blocks import FORMULA, PAD, STRUT, Block, CodeBlock, TableBlock
from app.text.math_typeset import Drawing, formula
from app.text.plain_text import rows_behind

Draw = Callable[[str], Drawing | None]  # lays out a formula with its delimiters
DrawDiagram = Callable[[str], str | None]  # returns a diagram as SVG that is safe in a page

_FORMULA = re.compile(f'<img src="{FORMULA}" alt="([^"]*)"/><img src="{STRUT}"[^>]*/>')
_CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)
_QUOTE = re.compile(r'<table class="quote"[^>]*><tr><td class="quote">\n?')
_HEADING = re.compile(r'<p class="h([1-3])">(.*?)</p>', re.DOTALL)
_LIST_INDENT = re.compile(r' style="-qt-list-indent: (\d)"')
_ANCHOR = re.compile(r'<a name="((?:note|back)-\d+)"></a>')
_TO_ANCHOR = re.compile(r'<a href="#((?:note|back)-\d+)">')
_ID = re.compile(r'(id="|url\(#)')
DIAGRAM = "mermaid"  # the language
_NO_BREAK = "\u00a0"


def blocks_html(
    blocks: Iterable[Block],
    draw: Draw | None = None,
    draw_diagram: DrawDiagram | None = None,
    top: int = 1,
    prefix: str = "",
) -> str:
    """Return the HTML of an answer.

    draw: without it, it is for other programs' documents: formulas are LaTeX, code has no colours, tables have borders.
    draw_diagram: without it, diagrams are code. top: level of its highest headings. prefix: of the names of its
    anchors, which must be unique in a document. Parts of code have classes named after the theme's colours.
    """
    out = []
    for number, block in enumerate(blocks):
        html = ""
        if isinstance(block, CodeBlock) and block.language == DIAGRAM and draw_diagram is not None:
            html = _diagram_html(draw_diagram(block.code), f"{prefix}{number}-", block.code)
        out.append(html or _block_html(block, draw, top, prefix))
    return "\n".join(out)


def _diagram_html(svg: str | None, prefix: str, code: str) -> str:
    """Return a diagram and its code; "" if it was not drawn. prefix: of its ids, which must be unique in a document."""
    if svg is None:
        return ""
    svg = _ID.sub(rf"\1{prefix}", svg)
    return f'<figure class="diagram">{svg}<details><summary>{DIAGRAM}</summary>{code_html(code)}</details></figure>'


def answer_html(text: str) -> str:
    """Return the HTML of an answer's Markdown for other programs' documents."""
    return blocks_html(parse(text))


def _block_html(block: Block, draw: Draw | None, top: int, prefix: str) -> str:
    if isinstance(block, CodeBlock):
        return code_html(block.code, block.language if draw else None)
    html = block.html
    if isinstance(block, TableBlock) and block.rest:
        ending = "</tbody></table>"
        html = html.rstrip().removesuffix(ending) + "".join(_rows(rows, ending) for rows in rows_behind(block)) + ending
    html = _HEADING.sub(lambda found: _heading(int(found[1]) + top - 1, found[2]), html)
    html = _QUOTE.sub("<blockquote>", html).replace("</td></tr></table>", "</blockquote>")
    table = "<table>" if draw else '<table border="1" cellspacing="0" cellpadding="4">'
    html = html.replace('<table width="100%" cellspacing="0" cellpadding="0">', table)
    html = _LIST_INDENT.sub(r' class="in\1"', html)
    for state, box in (("checked", "\u2611"), ("unchecked", "\u2610")):
        html = html.replace(f'<li class="{state}">', f'<li class="task">{box} ')
    html = html.replace(f'<span class="pad">{PAD}</span>', "")
    html = _CODE.sub(lambda found: f"<code>{found[1].replace(' ' + _NO_BREAK, '  ')}</code>", html)
    html = _ANCHOR.sub(rf'<a id="{prefix}\1"></a>', html)
    html = _TO_ANCHOR.sub(rf'<a href="#{prefix}\1">', html)
    return _FORMULA.sub(lambda found: formula_html(unescape(found[1]), draw), html)


def _heading(level: int, words: str) -> str:
    level = min(level, 6)
    return f"<h{level}>{words}</h{level}>"


def _rows(rows: str, ending: str) -> str:
    return rows.rstrip().removesuffix(ending).removeprefix("<tbody>")


def code_html(code: str, language: str | None = None) -> str:
    """Return code as HTML. language: its parts get classes named after the theme's colours; None: no colours."""
    parts = (
        f'<span class="{colour}">{escape(text, quote=False)}</span>' if colour else escape(text, quote=False)
        for text, colour in coloured_parts(language or "", code)
    )
    return f"<pre><code>{''.join(parts)}</code></pre>"


def formula_html(source: str, draw: Draw | None) -> str:
    """Return a formula with its delimiters as inline SVG, as code if it cannot be laid out, as LaTeX without `draw`.

    The class `dN` is the depth below the baseline in hundredths of the text's size: a strict policy forbids styles.
    """
    if draw is None:
        return escape(source, quote=False)
    drawing, (tex, _) = draw(source), formula(source)
    if drawing is None:
        return f"<code>{escape(tex, quote=False)}</code>"
    path = "".join(name + " ".join(f"{number:.3f}" for number in numbers) for name, numbers in drawing.steps)
    high = drawing.ascent + drawing.descent
    return (
        f'<svg class="formula d{drawing.descent * 100:.0f}" role="img" width="{drawing.width:.3f}em" '
        f'height="{high:.3f}em" viewBox="0 {-drawing.ascent:.3f} {drawing.width:.3f} {high:.3f}">'
        f'<title>{escape(source, quote=False)}</title><path d="{path}"/></svg>'
    )


def plain_html(text: str) -> str:
    """Return plain text as paragraphs, with its line ends and runs of spaces."""
    paragraphs = re.split(r"\n{2,}", text.strip("\n"))
    return "\n".join(f"<p>{_spaced(escape(one, quote=False)).replace(chr(10), '<br>')}</p>" for one in paragraphs)


def document_html(html: str) -> str:
    """Return HTML as a document for the clipboard, where some programs expect another encoding."""
    return f'<html><head><meta charset="utf-8"></head><body>{html}</body></html>'


def _spaced(text: str) -> str:
    return re.sub("^ | (?= )", _NO_BREAK, text, flags=re.MULTILINE)
