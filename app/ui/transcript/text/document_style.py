"""The style sheets of an answer's documents, for the current theme, and the direction of their tables and quotes."""

from __future__ import annotations

import re

from app.text.markdown_blocks import MAX_DEPTH
from app.ui.look import theme
from app.ui.look.direction import is_right_to_left

LIST_INDENT, PARAGRAPH_GAP = 28, 10  # px


def style_sheet(tokens: theme.Tokens | None = None) -> str:
    """Return the style sheet of an answer's document. tokens: its colours, by default the current theme's."""
    t, px = tokens or theme.current().tokens, theme.px
    mono = ", ".join(f"'{family}'" for family in theme.families(mono=True))

    def lines(role: str) -> str:
        kind = theme.ROLES[role]
        return (
            f"font-size: {px(kind.px)}px; font-weight: {kind.weight}; -qt-line-height-type: minimum; "
            f"line-height: {theme.line_height(role)}px; color: {getattr(t, kind.token)};"
        )

    step = px(LIST_INDENT)
    indents = "".join(f".in{depth} {{ margin-left: {depth * step}px; }}" for depth in range(1, MAX_DEPTH + 1))
    return f"""
    p, li {{ {lines("body")} margin: 0 0 {px(PARAGRAPH_GAP)}px 0; }}
    li {{ margin-bottom: {px(4)}px; }}
    ul, ol {{ margin: 0 0 {px(6)}px 0; }}
    .h1 {{ {lines("h1")} margin: {px(20)}px 0 {px(10)}px 0; }}
    .h2 {{ {lines("h2")} margin: {px(18)}px 0 {px(8)}px 0; }}
    .h3 {{ {lines("h3")} margin: {px(14)}px 0 {px(6)}px 0; }}
    hr {{ background-color: {t.edge}; margin: {px(10)}px 0 {px(16)}px 0; }}
    code, pre {{ font-family: {mono}; font-size: {px(13)}px; }}
    code {{ background-color: {t.bubble}; }}
    strong, b {{ font-weight: 600; }}
    .pad {{ font-size: {px(6)}px; }}
    .note {{ {lines("small")} margin: 0 0 {px(4)}px 0; }}
    .note a, .note em, .note strong, .note s {{ font-size: {px(theme.ROLES["small"].px)}px; }}
    pre {{ margin: 0 0 {px(10)}px 0; }}
    .math {{ margin: {px(8)}px 0 {px(10)}px {step}px; }}
    a {{ color: {t.cold}; text-decoration: underline; }}
    table.quote {{ margin: {px(10)}px 0 {px(12)}px 0; }}
    td.quote {{ border-left: 2px solid {t.edge}; padding: 0 0 0 {px(14)}px; }}
    td.leftwards {{ border-right: 2px solid {t.edge}; padding: 0 {px(14)}px 0 0; }}
    td.quote p, td.quote li, td.leftwards p, td.leftwards li {{ color: {t.ink2}; }}
    {indents}
    """


def table_sheet(tokens: theme.Tokens | None = None) -> str:
    """Return the style sheet of a table's document. tokens: as in `style_sheet`."""
    t, px = tokens or theme.current().tokens, theme.px
    head, cell = theme.ROLES["smallstrong"], theme.ROLES["cell"]
    pad = f"padding: {px(7)}px {px(16)}px {px(7)}px 0;"
    return f"""{style_sheet(tokens)}
    table {{ border-collapse: collapse; margin: 0; }}
    th {{ font-size: {px(head.px)}px; font-weight: {head.weight}; color: {t.ink2}; text-align: left; {pad}
          border-bottom: 1px solid {t.edge}; }}
    td {{ font-size: {px(cell.px)}px; color: {t.ink}; {pad} border-bottom: 1px solid {t.line}; }}
    table.leftwards th, table.leftwards td {{ padding: {px(7)}px 0 {px(7)}px {px(16)}px; }}
    """


_TABLE = re.compile(r'<table(?: class="quote")?')


_TURNED_QUOTE = re.compile(r'(<table class="quote" dir="rtl"[^>]*><tr><td class=")quote')


_TAG = re.compile(r"<[^>]*>")


def directed(html: str) -> str:
    """Set the direction of tables and quotes by their first words; Qt does it for paragraphs."""
    if "<table" not in html:
        return html

    def turned(found: re.Match[str]) -> str:
        if not is_right_to_left(_TAG.sub("", html[found.start() : found.start() + 500])):
            return found[0]
        return f'{found[0]} dir="rtl"' if "quote" in found[0] else '<table class="leftwards" dir="rtl"'

    html = _TABLE.sub(turned, html)
    return _TURNED_QUOTE.sub(r"\1leftwards", html)
