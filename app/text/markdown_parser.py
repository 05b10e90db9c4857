"""Converts Markdown to display blocks. block_parser.py feeds it bounded chunks, also while the text grows.

Fetches nothing: images become their alternative text, raw HTML is shown as text, and only http and https links stay
links. No Qt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, blockquote, list_block, table
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline, image, link
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from app.text import markdown_marks, math_rules
from app.text.markdown_blocks import (
    FORMULA,
    MAX_DEPTH,
    PAD,
    SOURCE,
    STRUT,
    Block,
    CodeBlock,
    ProseBlock,
    TableBlock,
    web_address,
)
from app.text.math_typeset import formula, is_bounded

QUOTES_DRAWN = 3  # nested quotes; deeper ones look the same, because Qt lays out each level of tables twice
MOST_COLUMNS, MOST_CELLS = 50, 600  # of a table that is drawn at once
MOST_MARKS = 300  # brackets of a paragraph with links, or dollar signs of one with formulas
MAX_LEVEL = 24  # of nested quotes (1 each) and lists (2 each); deeper marks are text

InlineRule = Callable[[StateInline, bool], bool]
BlockRule = Callable[[StateBlock, int, int, bool], bool]


class _QtRenderer(RendererHTML):
    """Renders HTML in the subset that Qt's rich text supports."""

    def code_inline(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return (
            f'<code><span class="pad">{PAD}</span>{_spaced(tokens[idx].content)}<span class="pad">{PAD}</span></code>'
        )

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        return f"<pre>{escapeHtml(tokens[idx].content.rstrip(chr(10)))}</pre>\n"

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        return self.code_block(tokens, idx, options, env)

    def math_inline(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return _formula_html(tokens[idx].content)

    def math_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        if tokens[idx].info == math_rules.OPEN or not is_bounded(formula(tokens[idx].content)[0]):
            return self.code_block(tokens, idx, options, env)
        return f'<p class="math">{_formula_html(tokens[idx].content)}</p>\n'

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        token = tokens[idx]
        words = self.renderInlineAsText(token.children, options, env) if token.children else ""
        address = web_address(str(token.attrs.get("src", "")))
        if address is None:
            return escapeHtml(words)
        shown = escapeHtml(address)
        return f'{escapeHtml(words)} (<a href="{shown}">{shown}</a>)' if words else f'<a href="{shown}">{shown}</a>'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        address = web_address(str(tokens[idx].attrs.get("href", "")))
        return f'<a href="{escapeHtml(address)}">' if address else "<span>"

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        opening, depth = idx, 0
        while opening >= 0:
            depth += tokens[opening].type == "link_close"
            depth -= tokens[opening].type == "link_open"
            if depth == 0:
                break
            opening -= 1
        return "</a>" if web_address(str(tokens[opening].attrs.get("href", ""))) else "</span>"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        return '<table width="100%" cellspacing="0" cellpadding="0">\n'

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        # In Qt a cell with a style of its own loses the style sheet's lines and padding.
        side = str(tokens[idx].attrs.get("style", "")).removeprefix("text-align:")
        return f'<{tokens[idx].tag} align="{side}">' if side else f"<{tokens[idx].tag}>"

    th_open = td_open

    def footnote_ref(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        number = tokens[idx].meta["number"]
        used = env.setdefault("used_notes", {})  # the back link leads to the first use
        anchor = f'<a name="back-{number}"></a>' if number not in used else ""
        used[number] = True
        return f'{anchor}<a href="#note-{number}"><sup>{number}</sup></a>'

    def source_ref(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        return f'<a href="{SOURCE}{tokens[idx].meta["number"]}">{tokens[idx].content}</a>'

    def footnote_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        number = markdown_marks.note_number(env, tokens[idx].meta["label"])
        return f'<p class="note"><a name="note-{number}"></a>{number}. '

    def footnote_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        number = markdown_marks.note_number(env, tokens[idx].meta["label"])
        return f' <a href="#back-{number}">\u21a9\ufe0e</a></p>\n'

    def blockquote_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        if tokens[idx].meta.get("depth", 1) > QUOTES_DRAWN:
            return ""
        return '<table class="quote" width="100%" cellspacing="0" cellpadding="0"><tr><td class="quote">\n'

    def blockquote_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return "" if tokens[idx].meta.get("depth", 1) > QUOTES_DRAWN else "</td></tr></table>\n"

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        # A paragraph with a class: Qt changes the size of its own headings.
        return f'<p class="h{min(int(tokens[idx].tag[1]), 3)}">'

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return "</p>\n"


def _formula_html(source: str) -> str:
    """Return a formula with its delimiters as two images for Qt, or as code if it is out of bounds."""
    tex, _ = formula(source)
    if not is_bounded(tex):
        return f"<code>{_spaced(tex)}</code>"
    attribute = escapeHtml(source).replace("\n", "&#10;")
    strut = f'<img src="{STRUT}" title="{attribute}" style="vertical-align: middle"/>'
    return f'<img src="{FORMULA}" alt="{attribute}"/>{strut}'


def _spaced(code: str) -> str:
    """Keep runs of spaces in inline code, which HTML would collapse."""
    return escapeHtml(code).replace("  ", " \u00a0")


def _bounded(rule: BlockRule) -> BlockRule:
    """Limit a rule to nesting levels up to MAX_LEVEL."""

    def within(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        return state.level < MAX_LEVEL and rule(state, start, end, silent)

    return within


def _where_few(rule: InlineRule, *marks: str) -> InlineRule:
    """Limit a rule to texts with at most MOST_MARKS: the cost of brackets is quadratic, and formulas are laid out one
    by one."""

    def within(state: StateInline, silent: bool) -> bool:
        return _are_few(state.src, marks) and rule(state, silent)

    return within


@lru_cache(maxsize=8)  # called at every character of a text
def _are_few(text: str, marks: tuple[str, ...]) -> bool:
    return sum(map(text.count, marks)) <= MOST_MARKS


def _bounded_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The table rule, which leaves rows beyond MOST_CELLS unread, and tables beyond MOST_COLUMNS as text.

    The token of a table with more rows gets `cut`, its own number of lines.
    """
    if start + 2 > end:
        return False
    columns = state.src[state.bMarks[start + 1] : state.eMarks[start + 1]].count("|") + 1
    if columns > MOST_COLUMNS:
        return False
    place, bound = len(state.tokens), min(end, start + 2 + max(MOST_CELLS // columns, 1))
    if not table(state, start, bound, silent):
        return False
    if not silent and state.line == bound < end and not state.isEmpty(bound):
        state.tokens[place].meta["cut"] = bound - start
    return True


def _mark_quotes(state: StateCore) -> None:
    """Write the nesting level of each quote into its tokens."""
    depth = 0
    for token in state.tokens:
        if token.type == "blockquote_open":
            depth += 1
        if token.type in {"blockquote_open", "blockquote_close"}:
            token.meta["depth"] = depth
        if token.type == "blockquote_close":
            depth -= 1


def _make_parser() -> MarkdownIt:
    # Markdown-it drops what is nested deeper than maxNesting. MAX_LEVEL keeps blocks from getting there.
    options = {"html": False, "breaks": True, "maxNesting": 2 * MAX_LEVEL}
    md = MarkdownIt("commonmark", options, renderer_cls=_QtRenderer)
    md.enable(["table", "strikethrough"])
    alternatives = ["paragraph", "reference", "blockquote", "list"]
    md.block.ruler.at("blockquote", _bounded(blockquote), {"alt": alternatives})
    md.block.ruler.at("list", _bounded(list_block), {"alt": alternatives[:3]})
    md.block.ruler.at("table", _bounded_table, {"alt": alternatives[:2]})
    md.inline.ruler.at("link", _where_few(link, "["))
    md.inline.ruler.at("image", _where_few(image, "["))
    md.core.ruler.after("block", "mark_quotes", _mark_quotes)
    math_rules.add_to(md)
    md.inline.ruler.at("math_inline", _where_few(math_rules.find_inline, "$", "\\("))
    markdown_marks.add_to(md)
    md.validateLink = lambda url: True  # type: ignore[method-assign]  # links are judged where they are rendered
    return md


_MD = _make_parser()


def read(text: str, env: dict[str, Any]) -> list[list[Token]]:
    """Parse displayable text. Return the tokens of each top-level block.

    env: link definitions, known and new. Cost: linear for what people and models write, quadratic for some texts; the
    caller limits the length.
    """
    tokens = _MD.parse(text, env)
    env.pop("duplicate_refs", None)  # grows with every parse and is not read
    groups: list[list[Token]] = []
    depth = 0
    for token in tokens:
        if depth == 0:
            groups.append([])
        groups[-1].append(token)
        depth += token.nesting
    return groups


def is_closed(tokens: list[Token]) -> bool:
    """Return whether the last fence has its end mark (Markdown-it does not say)."""
    fence = next((t for t in reversed(tokens) if t.type in {"fence", "code_block"}), None)
    if fence is None or fence.type == "code_block" or fence.map is None:
        return False
    content_lines = fence.content.count("\n") + (1 if fence.content and not fence.content.endswith("\n") else 0)
    return fence.map[1] - fence.map[0] == content_lines + 2  # one line for each mark


def code_of(token: Token, depth: int = 0) -> CodeBlock:
    """Return the block of a fence or of indented code. depth: number of lists around it."""
    words = token.info.split(maxsplit=1)
    language = words[0].strip("{}.").lower() if words else ""
    return CodeBlock(language, token.content.removesuffix("\n"), depth=min(depth, MAX_DEPTH))


def blocks_of(group: list[Token], env: dict[str, Any]) -> list[Block]:
    """Return the blocks of one top-level block: several if fences are in a list."""
    first = group[0].type
    if first in {"fence", "code_block"}:
        return [code_of(group[0])]
    if first == "math_block" and group[0].info != math_rules.OPEN and not is_bounded(formula(group[0].content)[0]):
        return [CodeBlock("tex", formula(group[0].content)[0])]
    if first == "table_open":
        return [TableBlock(_render(group, env))]
    if first in {"bullet_list_open", "ordered_list_open"} and any(t.type == "fence" for t in group):
        return _ListSplitter(env).split(group)
    html = _render(group, env)
    return [ProseBlock(html)] if html.strip() else []


def _render(tokens: list[Token], env: dict[str, Any]) -> str:
    # Qt treats a line end between two tags as a space; in text ">" is written "&gt;".
    return str(_MD.renderer.render(tokens, _MD.options, env)).replace(">\n", ">")


@dataclass
class _Level:
    """An open list of the source: how much of it is in the HTML that is being written."""

    tag: str
    number: int  # of the next item
    list_written: bool = False
    item_written: bool = False


class _ListSplitter:
    """Cuts a list at the fences in its items, so that each becomes a code block with title and Copy like any other.

    Text after a fence continues the same item: the list is reopened with its next number, and paragraphs without a
    marker get a class for their indent.
    """

    def __init__(self, env: dict[str, Any]) -> None:
        self._env = env
        self._blocks: list[Block] = []
        self._html: list[str] = []
        self._levels: list[_Level] = []

    def split(self, group: list[Token]) -> list[Block]:
        index = 0
        while index < len(group):
            token = group[index]
            if token.type in {"bullet_list_open", "ordered_list_open"}:
                self._levels.append(_Level(token.tag, int(token.attrs.get("start", 1))))
            elif token.type in {"bullet_list_close", "ordered_list_close"}:
                level = self._levels.pop()
                if level.list_written:
                    self._html.append(f"</{level.tag}>")
            elif token.type == "list_item_open":
                self._open_item(str(token.attrs.get("class", "")))
            elif token.type == "list_item_close":
                if self._levels[-1].item_written:
                    self._html.append("</li>")
                self._levels[-1].item_written = False
            elif token.type == "fence":
                self._flush()
                self._blocks.append(code_of(token, len(self._levels)))
            else:
                end = _end_of(group, index)
                self._add_content(_render(group[index : end + 1], self._env))
                index = end
            index += 1
        self._flush()
        return self._blocks

    def _open_item(self, kind: str) -> None:
        depth, level = len(self._levels), self._levels[-1]
        if not level.list_written:
            nested = depth > 1 and self._levels[-2].item_written
            start = f' start="{level.number}"' if level.tag == "ol" else ""
            indent = "" if nested or depth == 1 else f' style="-qt-list-indent: {min(depth, MAX_DEPTH)}"'
            self._html.append(f"<{level.tag}{start}{indent}>")
            level.list_written = True
        level.number += 1
        level.item_written = True
        self._html.append(f'<li class="{kind}">' if kind else "<li>")

    def _add_content(self, html: str) -> None:
        if html.strip() and not self._levels[-1].item_written:
            indent = f' class="in{min(len(self._levels), MAX_DEPTH)}"'
            marked = re.sub(r"^<(p|h\d|pre)>", rf"<\1{indent}>", html)
            html = marked if marked != html or html.startswith("<table") else f"<p{indent}>{html}</p>"
        self._html.append(html)

    def _flush(self) -> None:
        for level in reversed(self._levels):
            if level.item_written:
                self._html.append("</li>")
            if level.list_written:
                self._html.append(f"</{level.tag}>")
            level.list_written = level.item_written = False
        html = "".join(self._html)
        self._html = []
        if "<li" in html or html.strip():
            self._blocks.append(ProseBlock(html))


def _end_of(tokens: list[Token], start: int) -> int:
    depth = 0
    for index in range(start, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    return len(tokens) - 1
