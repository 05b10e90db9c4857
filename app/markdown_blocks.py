"""Markdown to display blocks, while the text is still being written: an append parses the last open block, no more.

It makes HTML for Qt's rich text and plain code for code blocks; it knows nothing of Qt, colours or sizes, follows no
link and fetches nothing: images become their words, raw HTML is shown as text, only http and https links stay links.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from app import math_rules
from app.math_text import to_html

# Stands at both ends of inline code, whose box Qt cannot pad: a no-break space between two marks of no width that
# nobody types. `without_padding` takes it out of what is copied.
PAD = "\u2060\u00a0\u2060"
MAX_DEPTH = 6  # indents deeper than this look the same


@dataclass(frozen=True)
class ProseBlock:
    """One top-level piece of running text (paragraph, heading, list, quote), as HTML for Qt's rich text."""

    html: str


@dataclass(frozen=True)
class TableBlock:
    """One table, as HTML for Qt's rich text. Apart from prose because a wide one scrolls by itself."""

    html: str


@dataclass(frozen=True)
class CodeBlock:
    """One fence or indented code. `closed`: no more of it will come. `depth`: how many lists it stands in."""

    language: str
    code: str
    closed: bool = True
    depth: int = 0


Block = ProseBlock | TableBlock | CodeBlock

_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufdd0-\ufdef\ufffc\ufffe\uffff]")
_LINE_END = re.compile("\r\n|[\r\u2028\u2029]")
_CLOSING = {"`": re.compile(r" {0,3}(`{3,})[ \t]*$"), "~": re.compile(r" {0,3}(~{3,})[ \t]*$")}


def displayable(text: str) -> str:
    """The text with what a text layout cannot hold replaced: control characters, halves of characters, Qt's marks."""
    return _UNSHOWABLE.sub("\ufffd", _LINE_END.sub("\n", text))


def without_padding(text: str) -> str:
    """Copied text as it was written (Qt gives no-break spaces as plain ones)."""
    return text.replace(PAD, "").replace(PAD.replace("\u00a0", " "), "")


def web_address(url: str) -> str | None:
    """The address when it is one that may be opened (http or https with a host), else None."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return None
    return url if parts.scheme.lower() in {"http", "https"} and host else None


class _QtRenderer(RendererHTML):
    """HTML in the subset that Qt's rich text knows."""

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
        return to_html(tokens[idx].content) or self.code_inline(tokens, idx, options, env)

    def math_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        html = to_html(tokens[idx].content)
        return f'<p class="math">{html}</p>\n' if html else self.code_block(tokens, idx, options, env)

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

    def blockquote_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return '<table class="quote" width="100%" cellspacing="0" cellpadding="0"><tr><td class="quote">\n'

    def blockquote_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return "</td></tr></table>\n"

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        # A paragraph with a class: Qt multiplies the size of its own headings.
        return f'<p class="h{min(int(tokens[idx].tag[1]), 3)}">'

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]
    ) -> str:
        return "</p>\n"


def _spaced(code: str) -> str:
    """Inline code with its runs of spaces kept, which HTML would fold."""
    return escapeHtml(code).replace("  ", " \u00a0")


def _make_parser() -> MarkdownIt:
    md = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=_QtRenderer)
    md.enable(["table", "strikethrough"])
    math_rules.add_to(md)
    md.validateLink = lambda url: True  # type: ignore[method-assign]  # links are judged where they are rendered
    return md


_MD = _make_parser()


def parse(text: str) -> list[Block]:
    """The blocks of a finished answer. Cost: linear in the text."""
    blocks, _ = _parse(displayable(text), {}, finished=True)
    return blocks


def _parse(text: str, env: dict[str, Any], finished: bool) -> tuple[list[Block], list[Token]]:
    tokens = _MD.parse(text, env)
    blocks: list[Block] = []
    for group in _top_level(tokens):
        blocks += _blocks_of(group, env)
    last = blocks[-1] if blocks else None
    if isinstance(last, CodeBlock) and not finished and not _is_closed(tokens):
        blocks[-1] = CodeBlock(last.language, last.code, False, last.depth)
    return blocks, tokens


def _top_level(tokens: list[Token]) -> list[list[Token]]:
    groups: list[list[Token]] = []
    depth = 0
    for token in tokens:
        if depth == 0:
            groups.append([])
        groups[-1].append(token)
        depth += token.nesting
    return groups


def _is_closed(tokens: list[Token]) -> bool:
    """Whether the last fence has its closing mark (which Markdown-it does not say): one line more than its content."""
    fence = next((t for t in reversed(tokens) if t.type in {"fence", "code_block"}), None)
    if fence is None or fence.type == "code_block" or fence.map is None:
        return False
    content_lines = fence.content.count("\n") + (1 if fence.content and not fence.content.endswith("\n") else 0)
    return fence.map[1] - fence.map[0] == content_lines + 2


def _code(token: Token, depth: int = 0) -> CodeBlock:
    words = token.info.split(maxsplit=1)
    language = words[0].strip("{}.").lower() if words else ""
    return CodeBlock(language, token.content.removesuffix("\n"), depth=min(depth, MAX_DEPTH))


def _blocks_of(group: list[Token], env: dict[str, Any]) -> list[Block]:
    first = group[0].type
    if first in {"fence", "code_block"}:
        return [_code(group[0])]
    if first == "math_block" and to_html(group[0].content) is None:
        return [CodeBlock("tex", group[0].content)]
    if first == "table_open":
        return [TableBlock(_render(group, env))]
    if first in {"bullet_list_open", "ordered_list_open"} and any(t.type == "fence" for t in group):
        return _ListSplitter(env).split(group)
    html = _render(group, env)
    return [ProseBlock(html)] if html.strip() else []


def _render(tokens: list[Token], env: dict[str, Any]) -> str:
    # Qt takes a line end between two tags for a space; in text a ">" is written "&gt;".
    return str(_MD.renderer.render(tokens, _MD.options, env)).replace(">\n", ">")


@dataclass
class _Level:
    """One list that is open in the source: what of it stands in the HTML that is being written now."""

    tag: str
    number: int  # of the item that comes next
    list_written: bool = False
    item_written: bool = False


class _ListSplitter:
    """Cuts a list at the fences in its items, so that each becomes a code block with head and Copy like any other.

    What follows a fence goes on in the same item: the list is opened again with its next number, and paragraphs that
    have lost their marker carry a class for their indent.
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
                self._open_item()
            elif token.type == "list_item_close":
                if self._levels[-1].item_written:
                    self._html.append("</li>")
                self._levels[-1].item_written = False
            elif token.type == "fence":
                self._flush()
                self._blocks.append(_code(token, len(self._levels)))
            else:
                end = _end_of(group, index)
                self._add_content(_render(group[index : end + 1], self._env))
                index = end
            index += 1
        self._flush()
        return self._blocks

    def _open_item(self) -> None:
        depth, level = len(self._levels), self._levels[-1]
        if not level.list_written:
            nested = depth > 1 and self._levels[-2].item_written
            start = f' start="{level.number}"' if level.tag == "ol" else ""
            indent = "" if nested or depth == 1 else f' style="-qt-list-indent: {min(depth, MAX_DEPTH)}"'
            self._html.append(f"<{level.tag}{start}{indent}>")
            level.list_written = True
        level.number += 1
        level.item_written = True
        self._html.append("<li>")

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
        if "<li>" in html or html.strip():
            self._blocks.append(ProseBlock(html))


def _end_of(tokens: list[Token], start: int) -> int:
    depth = 0
    for index in range(start, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    return len(tokens) - 1


class BlockParser:
    """Blocks of an answer that grows.

    `blocks` is always what can be shown now. A block is settled when complete lines have opened another one after it;
    settled text is never parsed again until `finish`, which parses the whole once, as `parse` does.

    Cost of an append: the length of the last open block; of an open fence, the length of what was appended.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._env: dict[str, Any] = {}
        self._pieces: list[str] = []  # everything, for finish
        self._held = ""  # a carriage return whose line feed may follow
        self._tail = ""  # what is not settled; in an open fence, its last incomplete line
        self._settled = 0  # number of settled blocks
        self._fence: _OpenFence | None = None  # while the tail is one open fence

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def tail_length(self) -> int:
        """Characters that the next append parses again."""
        return len(self._tail)

    def append(self, text: str) -> int:
        """Take more text; returns the index of the first block that may have changed (len(blocks): none did)."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = displayable(text.removesuffix("\r"))
        if not text:
            return len(self.blocks)
        self._pieces.append(text)
        self._tail += text
        changed = self._settled
        unread_lines = "\n" in text
        while unread_lines:
            unread_lines = self._read_fence(self._fence) if self._fence else self._settle()
        if self._fence:
            self.blocks[self._settled :] = [self._fence.block(self._tail)]
        else:
            self.blocks[self._settled :], _ = _parse(self._tail, _copied(self._env), finished=False)
        return changed

    def finish(self) -> int:
        """The answer is complete: parse it once as a whole. Returns the index of the first block that changed."""
        self._pieces.append(displayable(self._held))
        before, self.blocks = self.blocks, parse(self.text)
        self._held, self._tail, self._fence, self._settled = "", "", None, len(self.blocks)
        same = 0
        while same < min(len(before), len(self.blocks)) and before[same] == self.blocks[same]:
            same += 1
        return same

    def _settle(self) -> bool:
        """Settle what complete lines have closed: all top-level blocks but the last. True when that one is a fence."""
        lines = self._tail.split("\n")
        groups = _top_level(_MD.parse("\n".join(lines[:-1]) + "\n", self._env))
        self._env.pop("duplicate_refs", None)  # grows with every parse and is not read
        start = groups[-1][0].map if groups else None
        if start is None:
            return False
        blocks = [block for group in groups[:-1] for block in _blocks_of(group, self._env)]
        self.blocks[self._settled :] = blocks
        self._settled = len(self.blocks)
        self._tail = "\n".join(lines[start[0] :])
        token = groups[-1][0]
        if token.type != "fence" or _is_closed(groups[-1]) or not self._tail.startswith(token.markup):
            return False  # an indented fence stays with the parser
        self._fence = _OpenFence(token.markup[0], len(token.markup), _code(token).language)
        self._tail = self._tail.split("\n", 1)[1]
        return True

    def _read_fence(self, fence: _OpenFence) -> bool:
        """Move complete lines from the tail into the fence. True when it closed and text follows."""
        *lines, partial = self._tail.split("\n")
        for index, line in enumerate(lines):
            if fence.is_closed_by(line):
                self.blocks[self._settled :] = [fence.block("", closed=True)]
                self._settled += 1
                self._fence = None
                self._tail = "\n".join([*lines[index + 1 :], partial])
                return "\n" in self._tail
            fence.code += line + "\n"
        self._tail = partial
        return False


class _OpenFence:
    """A fence whose end has not come: its lines need no parser."""

    def __init__(self, mark: str, length: int, language: str) -> None:
        self._closing = re.compile(rf" {{0,3}}{re.escape(mark)}{{{length},}}[ \t]*")
        self._mark = mark
        self._language = language
        self.code = ""

    def is_closed_by(self, line: str) -> bool:
        return self._closing.fullmatch(line) is not None

    def block(self, partial: str, closed: bool = False) -> CodeBlock:
        """The block as it stands; a last line that may become the closing mark is not shown yet."""
        shown = "" if partial and not partial.strip().strip(self._mark) else partial
        return CodeBlock(self._language, (self.code + shown) if shown else self.code.removesuffix("\n"), closed)


def _copied(env: dict[str, Any]) -> dict[str, Any]:
    """An environment to parse a half-written tail in: what it defines is not kept."""
    return {**env, "references": dict(env["references"])} if "references" in env else {}
