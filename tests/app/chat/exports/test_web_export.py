"""A chat as a web page: the same text, nothing that runs or loads, and every branch that was asked for."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.generated_messages import Maker, squeezed
from support.repetitions import slow

from app.chat.exports.outline import Scope, outline
from app.chat.exports.web_page import COLOURS, web_page, write_web_page
from app.chat.store.conversation import (
    Attachment,
    CallState,
    Conversation,
    Message,
    MessageState,
    Role,
    ToolCall,
    WholeChat,
)
from app.ui.look import theme

VOID = {"br", "hr", "meta", "path"}
HOSTILE = (
    "<script>alert(1)</script>", "</script><script>alert(1)</script>", "#include <iostream>", "</title></style></p>",
    "[x](javascript:alert(1))", "<img src=x onerror=alert(1)>", "![a](data:text/html,<script>alert(1)</script>)",
    "<svg onload=alert(1)>", "`</code><script>`", "```\n</code></pre><script>alert(1)</script>\n```",
    "<https://example.org/\"onmouseover=alert(1)>", "[a](https://example.org/\"><script>)",
    "$\\text{</title><script>}$",
    "| <b>a</b> | b |\n|---|---|\n| <i>c</i> | </table> |", "<!--", "<![CDATA[", "&#60;script&#62;", "\u202e<b>",
    "[x]: javascript:alert(1)\n\n[x]", "<meta http-equiv=refresh content=0>", "<style>*{display:none}</style>",
)  # fmt: skip


class Page(HTMLParser):
    """The text of each message, and all tags with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.articles: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "article":
            self.articles.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        while self.open and self.open[-1] != tag:  # <p> ends by itself
            assert self.open.pop() == "p"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "article" in self.open and self.open[-1] != "h2":
            self.articles[-1] += data


def chat_of(*messages: tuple[Role, str], title: str = "A chat") -> WholeChat:
    made: list[Message] = []
    for role, text in messages:
        made.append(Message(role, text, parent=made[-1].id if made else ""))
    return WholeChat(Conversation(title=title), tuple(made))


def tree() -> WholeChat:
    """Two versions of an answer, the first of which is shown and goes on; a third below the second."""
    asked = Message(
        Role.USER, "Ask", attachments=(Attachment("a <b>.txt", "kept out", "text"), Attachment("p.pdf", "-", "pdf", 3))
    )
    first = Message(Role.ASSISTANT, "<think>Hidden idea</think>One", parent=asked.id, stats={"model": "Pip"})
    second = Message(Role.ASSISTANT, "Two", parent=asked.id, state=MessageState.CANCELLED)
    call = ToolCall("1", "calculate", {"secret": 1}, CallState.REFUSED, result="long result")
    deeper = Message(Role.USER, "Below two", parent=second.id)
    last = Message(Role.ASSISTANT, "Last", parent=first.id, calls=(call,))
    return WholeChat(Conversation(title="Tree", leaf=last.id), (asked, first, second, deeper, last))


@pytest.mark.parametrize(("seed", "count"), [(1, 100), slow(2, 1000)])
def test_the_text_of_every_message_is_unchanged(seed: int, count: int) -> None:
    maker = Maker(seed)
    wanted, messages = [], []
    for _ in range(count // 2):
        question, (source, text) = maker.question(), maker.answer()
        messages += [(Role.USER, question), (Role.ASSISTANT, source)]
        wanted += [squeezed(question), text]
    page = Page(web_page(outline(chat_of(*messages), Scope())))
    assert [squeezed(one) for one in page.articles] == wanted


def test_formulas_become_drawings_with_their_source_as_title() -> None:
    html = web_page(outline(chat_of((Role.ASSISTANT, r"So $\frac{a}{b}$ and $\unknowncommand{x}$.")), Scope()))
    page = Page(html)
    assert page.articles == ["\n\nSo $\\frac{a}{b}$ and \\unknowncommand{x}.\n"]
    (drawing,) = (attributes for tag, attributes in page.tags if tag == "svg")
    assert float(str(drawing["width"]).removesuffix("em")) > 0.3
    depth = re.search(r"d(\d+)", str(drawing["class"]))
    assert depth is not None
    assert f".d{depth[1]} {{ vertical-align: -{int(depth[1]) / 100}em }}" in html


def test_diagrams_are_drawn_with_their_code_and_ids_of_their_own() -> None:
    svg = '<svg><defs><marker id="m"></marker></defs><path marker-end="url(#m)"/></svg>'
    text = "```mermaid\npie\n a : 1\n```\n\n```mermaid\nbroken\n```"
    chat = outline(chat_of((Role.ASSISTANT, text), (Role.ASSISTANT, text)), Scope())
    page = Page(web_page(chat, None, lambda source: None if source == "broken" else svg))
    ids = [str(a["id"]) for tag, a in page.tags if tag == "marker"]
    ends = [str(a["marker-end"]) for tag, a in page.tags if tag == "path"]
    assert len(set(ids)) == 2
    assert ends == [f"url(#{one})" for one in ids]
    assert sum(tag == "figure" for tag, _ in page.tags) == 2
    assert all("pie\n a : 1" in text and "broken" in text for text in page.articles)


@pytest.mark.parametrize("role", [Role.USER, Role.ASSISTANT])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(role: Role, text: str) -> None:
    html = web_page(outline(chat_of((role, text), title=text), Scope(thoughts=True)))
    page = Page(html)
    allowed = {"html", "head", "meta", "title", "style", "body", "header", "article", "h1", "h2", "p", "pre", "code",
               "span", "a", "br", "table", "thead", "tbody", "tr", "th", "td", "svg", "path"}  # fmt: skip
    assert {tag for tag, _ in page.tags} <= allowed
    for tag, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "style", "srcdoc")}
        if tag == "a" and "href" in attributes:
            assert str(attributes["href"]).startswith(("https://", "http://", "#"))


def test_the_policy_allows_its_own_style_sheet_and_nothing_else() -> None:
    html = web_page(outline(tree(), Scope(True, True)))
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policies = [a["content"] for tag, a in Page(html).tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"]
    assert "prefers-color-scheme: dark" in style[1]


def test_the_shown_branch_goes_along_alone_unless_others_are_asked_for() -> None:
    shown = Page(web_page(outline(tree(), Scope())))
    assert len(shown.articles) == 3
    assert not any("Two" in text or "Hidden idea" in text or "kept out" in text for text in shown.articles)
    whole = Page(web_page(outline(tree(), Scope(branches=True, thoughts=True))))
    assert [re.sub(r"\W+", " ", text).split()[-1] for text in whole.articles] == [
        "Ask",
        "One",
        "refused",
        "Stopped",
        "two",
    ]
    assert "Hidden idea" in whole.articles[1]
    anchors = {a["id"] for tag, a in whole.tags if tag == "article"}
    links = {str(a["href"])[1:] for tag, a in whole.tags if tag == "a" and str(a.get("href")).startswith("#")}
    assert links == {"m2", "m4"} <= anchors


def test_one_message_alone() -> None:
    chat = tree()
    page = Page(web_page(outline(chat, Scope(message_id=chat.messages[2].id))))
    assert len(page.articles) == 1
    assert "Two" in page.articles[0]


def test_every_branch_goes_along_once() -> None:
    chat = tree()
    parts = outline(chat, Scope(branches=True)).sections
    assert [[entry.number for entry in part.entries] for part in parts] == [[1, 2, 3], [2, 3]]
    assert [(entry.version, len(entry.versions)) for part in parts for entry in part.entries][1] == (1, 2)
    assert sorted(entry.id for part in parts for entry in part.entries) == sorted(m.id for m in chat.messages)


def test_rows_beyond_the_first_of_a_long_table_go_along() -> None:
    rows = "\n".join(f"| r{n} | {n} |" for n in range(900))
    page = Page(web_page(outline(chat_of((Role.ASSISTANT, f"| a | b |\n|---|---|\n{rows}")), Scope())))
    assert sum(tag == "tr" for tag, _ in page.tags) == 901
    assert "r899" in page.articles[0]


def test_the_colours_are_those_of_the_window() -> None:
    for name, light, dark in COLOURS:
        assert (light, dark) == (getattr(theme.LIGHT, name), getattr(theme.DARK, name)), name


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "chat.html"
    write_web_page(path, tree(), Scope())
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert list(tmp_path.iterdir()) == [path]
