"""HTML to text: what is kept and left out, and pages that are made to take for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.reading.page_text import MAX_CHARACTERS, page_text
from engine.errors import Cancelled

ADDRESS = "https://example.org/docs/page"


def text_of(html: str, is_xhtml: bool = False) -> str:
    return page_text(html, ADDRESS, is_xhtml).text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h2>Big <em>news</em></h2><p>One\n two<br>three", "## Big news\n\nOne two\nthree"),
        ("<ul><li>a<li>b<ol start=3><li>c</li><li>d</ol></ul>", "- a\n- b\n  3. c\n  4. d"),
        ("<ul><li><p>a</p><p>b</p></li></ul>", "- a\n\n  b"),
        ("<ul><li><div></div>a</ul>", "- a"),
        ('<p>See <a href="x?a=1&amp;b=2">this</a>.', "See this (https://example.org/docs/x?a=1&b=2)."),
        ('<base href="/b/"><a href=c>c</a>', "c (https://example.org/b/c)"),
        ("<a href='#top'>top</a> <a href='javascript:x()'>js</a> <a href='data:a,b'>d</a>", "top js d"),
        ("<a href=https://e.org/>https://e.org/</a> <a href=https://e.org/>e.org</a>", "https://e.org/ e.org"),
        ("<a href=c><h3>Card</h3><p>more</p></a>", "### Card (https://example.org/docs/c)\n\nmore"),
        ("<a href=c><img src=x></a>x", "x"),
        ("<a href=c><img alt='a  cat'></a>", "[Image: a cat] (https://example.org/docs/c)"),
        ("<table><tr><th>A<th>B<tr><td>1|2<td><p>3<p>4</table>", "| A | B |\n| --- | --- |\n| 1\\|2 | 3 4 |"),
        ("<table><tr><td>x<td><table><tr><td>a<td>b</table></table>", "x\n\n| a | b |"),
        ("<table><tr><td>1<td><pre>a\n b</pre></table>", "1\n\n```\na\n b\n```"),
        ("<table><tr><td></table>", ""),
        ("<pre><code>def f():\n    return 1 &lt; 2\n</code></pre>", "```\ndef f():\n    return 1 < 2\n```"),
        ("<pre>```\nx</pre>", "````\n```\nx\n````"),
        ("use <code>a = 1</code>, x<sup>2</sup>", "use `a = 1`, x^2"),
        ("<blockquote><p>a<p>b</blockquote>c", "> a\n\n> b\n\nc"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<script>if (a</b>) '<p>no</p>'</script><style>p{}</style><p>yes", "yes"),
        ("<nav><ul><li>Home</ul></nav><div role=navigation>x</div><p>yes", "yes"),
        ("<p hidden>no<p>yes<span style='display : none'>no<b>no</b></span> <i aria-hidden=true>no</i>!", "yes !"),
        ("<textarea><p>no</textarea><select><option>no<option>no</select><template>no</template>yes", "yes"),
        ("<svg/>a<svg><text>no</text><path/></svg>b<!-- no --><!no><?no?>c", "abc"),
        ("a < b && c <3 &lt;i&gt; &#8364; &nosuch; &#x110000;", "a < b && c <3 <i> € &nosuch; \ufffd"),
        ('<p class="x"">a<p title=5">b', "a\n\nb"),
        ("<P>A<DIV>B</P></DIV>", "A\n\nB"),
        ("</p></div>a</table></ul></pre>b", "ab"),
        ("a<title>T</title>b<p title='<b>'>c", "ab\n\nc"),
        ("a\0b&#0;c", "ab\ufffdc"),
        ("text<a", "text"), ("text<a b='", "text"), ("text<!-- x", "text"), ("text<script>x", "text"), ("", ""),
    ],
)  # fmt: skip
def test_text(html: str, text: str) -> None:
    assert text_of(html) == text


def test_the_title_and_main() -> None:
    long = "word " * 60
    page = page_text(f"<title> A &amp;\n B</title><div>around</div><main><p>{long}</main><p>behind", ADDRESS, False)
    assert (page.title, page.text) == ("A & B", long.strip())
    assert "around" in text_of("<div>around</div><main>short</main>")


def test_xhtml_ends_elements_with_a_slash() -> None:
    html = "<div><script src='x'/><nav/><p>read</p></div>"
    assert text_of(html, is_xhtml=True) == "read"
    assert text_of(html) == ""


N = 200_000
BOMBS = {
    "nested tags": "<div>" * (N // 2),
    "nested lists": "<ul><li>x" * (N // 4),
    "nested quotes": "<blockquote>x" * (N // 4),
    "nested tables": "<table><tr><td>x" * (N // 8),
    "open links": "<a href=x>y" * (N // 4),
    "open comments": "<!--" * N,
    "open tags": '<a "' * N,
    "open quotes": '<a b="' * (N // 2),
    "open scripts": "<script></script" * (N // 4),
    "less than": "<" * 4 * N,
    "attributes": "<a " + "b=c " * N,
    "spaces": "<a b" + " " * 4 * N + "c>",
    "ampersands": "&" * 4 * N,
    "a number": "&#" + "9" * 4 * N,
    "ends of other elements": "<b>" * (N // 2) + "</i>" * N + "</b>" * N,
    "crossed elements": "<b><i>" * (N // 4) + "</b>" * (N // 2),
    "cells": "<table><tr>" + "<td>x" * (N // 4),
    "hidden": "<p hidden>" * (N // 4),
    "a long base": f"<base href='http://e.org/{'x' * N}'>" + "<a href=y>z</a>" * (N // 8),
}


@pytest.mark.timeout(120)  # a quadratic one takes minutes to hours
@pytest.mark.parametrize("html", BOMBS.values(), ids=BOMBS)
def test_bombs_take_linear_time(html: str) -> None:
    assert len(text_of(html)) <= 6 * len(html)


def test_links_cannot_blow_a_page_up() -> None:
    html = f"<base href='http://e.org/{'x' * 900}/'>" + "<p><a href=y>z</a>" * 20_000
    assert MAX_CHARACTERS < len(text_of(html)) < MAX_CHARACTERS + 30_000


def test_it_stops_when_it_is_cancelled() -> None:
    with pytest.raises(Cancelled):
        page_text("<p>" * 10, ADDRESS, False, lambda: True)


@given(st.lists(st.sampled_from([
    "<p>", "</p>", "<ul>", "</ul>", "<li>", "<table>", "</table>", "<tr>", "<td>", "</td>", "<pre>", "</pre>", "<nav>",
    "</nav>", "<a href=x>", "</a>", "<h1>", "</h1>", "<b hidden>", "</b>", "<main>", "</main>", "<br>", "</br>", "x",
    " ", "\n", "<svg/>", "<blockquote>", "</blockquote>", "&amp;", "<", "<!--", "-->", "<code>", "</code>", "</li>",
    "</tr>",
]), max_size=40).map("".join))  # fmt: skip
def test_no_page_breaks_it(html: str) -> None:
    text = text_of(html)
    assert "\0" not in text
    assert text_of(html + "</script></div>") == text or "<!--" in html
