"""The incremental parser: any cutting of a text gives the blocks of the whole, and an append parses the tail alone."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text import block_parser, markdown_blocks, markdown_parser
from app.text.block_parser import BlockParser, parse
from app.text.markdown_blocks import (
    PAD,
    CodeBlock,
    ProseBlock,
    TableBlock,
    displayable,
    web_address,
    without_padding,
)

PIECES = [
    "a word ", "**bold** ", "`code` ", "\n", "\n\n", "# Title\n", "- item\n", "1. one\n", "   more\n", "\n  - nested\n",
    "```python\n", "```\n", "~~~\n", "````\n", "  ```\n", "   ```sh\n   x\n   ```\n", "x = 1\n", "    indented\n",
    "| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "> quote\n", "---\n", "===\n", "- ", "``", "`", "* * *\n", "\t",
    "\r\n", "\r", "<b>raw</b>", "![i](http://x.y/i.png)", "[l](https://x.y)", "日本語", "שלום", "e\u0301", "👩‍👩‍👧",
    "|", "\\",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def stream(text: str, cuts: list[int]) -> BlockParser:
    parser = BlockParser()
    position = 0
    for size in cuts:
        before = list(parser.blocks)
        changed = parser.append(text[position : position + size])
        assert parser.blocks[:changed] == before[:changed], "a block below the changed index changed"
        position += size
    parser.append(text[position:])
    return parser


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 30), max_size=60))
def test_any_cutting_ends_in_the_blocks_of_the_whole(text: str, cuts: list[int]) -> None:
    parser = stream(text + "\n", cuts)
    whole = parse(text + "\n")
    assert [b for b in parser.blocks[:-1] if not isinstance(b, CodeBlock)] == [
        b for b in whole[:-1] if not isinstance(b, CodeBlock)
    ], "what streaming settled is not what the whole says"
    streamed = [(b.language, b.code) for b in parser.blocks if isinstance(b, CodeBlock)]
    assert streamed == [(b.language, b.code) for b in whole if isinstance(b, CodeBlock)]
    parser.finish()
    assert parser.blocks == whole


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.lists(st.integers(1, 9), max_size=40))
def test_no_text_is_too_strange(text: str, cuts: list[int]) -> None:
    parser = stream(text, cuts)
    parser.finish()
    assert parser.blocks == parse(text)


def test_fences_of_every_kind() -> None:
    assert parse("~~~\na\n~~~") == [CodeBlock("", "a")]
    assert parse("````md\n```py\nx\n```\n````") == [CodeBlock("md", "```py\nx\n```")]
    assert parse("  ```js\n  a\n    b\n  ```") == [CodeBlock("js", "a\n  b")]
    assert parse("```{.python}\nx\n```") == [CodeBlock("python", "x")]
    assert parse("text\n```\nx\n```\nmore") == [
        ProseBlock("<p>text</p>"),
        CodeBlock("", "x"),
        ProseBlock("<p>more</p>"),
    ]


@pytest.mark.parametrize("mark", ["```", "~~~", "`````"])
def test_an_open_fence_grows_and_then_closes(mark: str) -> None:
    parser = BlockParser()
    parser.append(f"See:\n\n{mark}py\nx =")
    assert parser.blocks[1:] == [CodeBlock("py", "x =", closed=False)]
    parser.append(" 1\ny\n" + mark[:-1])
    assert parser.blocks[1:] == [CodeBlock("py", "x = 1\ny", closed=False)], "half a closing mark was shown as code"
    parser.append(mark[-1] + "\nDone")
    assert parser.blocks[1:] == [CodeBlock("py", "x = 1\ny"), ProseBlock("<p>Done</p>")]


def test_a_shorter_or_other_mark_does_not_close_a_fence() -> None:
    parser = BlockParser()
    for line in ("````\n", "```\n", "~~~~\n", "    ````\n", "```` x\n"):
        parser.append(line)
    assert parser.blocks == [CodeBlock("", "```\n~~~~\n    ````\n```` x", closed=False)]


def test_an_unclosed_fence_is_closed_by_the_end() -> None:
    parser = BlockParser()
    parser.append("```\nx")
    assert parser.blocks == [CodeBlock("", "x", closed=False)]
    assert parser.finish() == 0
    assert parser.blocks == [CodeBlock("", "x", closed=True)]


def test_a_fence_in_a_list_becomes_a_block_and_the_numbers_go_on() -> None:
    first, code, rest = parse("1. one\n\n   ```sh\n   ls\n   ```\n\n   then\n2. two\n")
    assert isinstance(first, ProseBlock)
    assert code == CodeBlock("sh", "ls", depth=1)
    assert isinstance(rest, ProseBlock)
    assert '<p class="in1">then</p>' in rest.html
    assert '<ol start="2">' in rest.html


def test_a_fence_in_a_nested_list_keeps_its_depth() -> None:
    blocks = parse("- a\n  - b\n    ```\n    x\n    ```\n  - c\n- d\n")
    assert [b.depth for b in blocks if isinstance(b, CodeBlock)] == [2]
    rest = blocks[-1]
    assert isinstance(rest, ProseBlock)
    assert '<ul style="-qt-list-indent: 2"><li>c</li>' in rest.html
    assert rest.html.count("<ul") == rest.html.count("</ul>") == 2


def test_html_stays_balanced_when_lists_are_cut() -> None:
    text = (
        "1. a\n   - b\n     ```\n     x\n     ```\n     after\n\n     > quote\n   - c\n\n   ```\n   y\n   ```\n2. d\n"
    )
    for block in parse(text):
        if isinstance(block, ProseBlock):
            assert_balanced(block.html)


def test_loose_lists_are_one_block() -> None:
    assert len(parse("- a\n\n- b\n\n  more of b\n\n- c\n")) == 1


def test_tables_and_strikethrough() -> None:
    (table,) = parse("| a | b |\n|---|--:|\n| 1 | ~~2~~ |\n")
    assert isinstance(table, TableBlock)
    assert "<s>2</s>" in table.html
    assert '<td align="right"><s>2</s></td>' in table.html


def test_line_breaks_of_a_paragraph_are_kept() -> None:
    assert parse("one\ntwo") == [ProseBlock("<p>one<br />two</p>")]


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "background"}]
        if tag not in {"br", "hr"}:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"br", "hr"}

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def assert_balanced(html: str) -> _Balance:
    balance = _Balance()
    balance.feed(html)
    assert balance.stack == []
    return balance


SCHEMES = ["http://ok.example/", "https://ok.example", "javascript:alert(1)", "file:///etc/passwd",
           "data:text/html,x", "vbscript:x", "//host/x", "relative.html", "mailto:a@b.c", "http:", "JaVaScRiPt:x",
           "\x01javascript:x"]  # fmt: skip


@pytest.mark.parametrize("url", SCHEMES)
@pytest.mark.parametrize(
    "form", ["[words]({})", "![words]({})", "<{}>", "[words][r]\n\n[r]: {}\n", "![words][r]\n\n[r]: {}\n"]
)
def test_only_web_links_stay_links_and_nothing_is_fetched(url: str, form: str) -> None:
    for block in parse(form.format(url)):
        assert isinstance(block, ProseBlock)
        seen = assert_balanced(block.html)
        assert "img" not in seen.tags
        assert all(re.match(r"https?://ok\.example", link) for link in seen.links)
    html = "".join(b.html for b in parse(form.format(url)) if isinstance(b, ProseBlock))
    if "](" in form:
        assert "words" in html
        assert ("<a " in html) == ("ok.example" in url)


def test_raw_html_is_shown_as_text() -> None:
    (block,) = parse('<img src="http://x.y/z.png"> <script>alert(1)</script>')
    assert isinstance(block, ProseBlock)
    assert assert_balanced(block.html).tags == {"p", "a"}
    assert "&lt;script&gt;" in block.html


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_html_is_balanced(text: str) -> None:
    for block in parse(text):
        if isinstance(block, ProseBlock | TableBlock):
            assert_balanced(block.html)


def test_web_address_judges() -> None:
    assert web_address("https://a.b/c?d") == "https://a.b/c?d"
    assert web_address("http://[") is None
    assert web_address("https://") is None
    assert web_address("ftp://a.b") is None


def test_what_a_layout_cannot_hold_is_replaced() -> None:
    assert displayable("a\x00b\ud800c\ufffcd\ufdd0e\r\nf\u2028g") == "a\ufffdb\ufffdc\ufffdd\ufffde\nf\ng"


def test_padding_of_inline_code_goes_when_text_is_copied() -> None:
    (block,) = parse("`code`")
    assert isinstance(block, ProseBlock)
    assert block.html.count(PAD) == 2
    assert without_padding(f"a {PAD}code{PAD} b") == "a code b"
    assert without_padding(f"a {PAD}code{PAD} b".replace("\u00a0", " ")) == "a code b"


def test_an_append_parses_the_tail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    real = markdown_parser._MD.parse

    def counting(text: str, env: dict[str, object]) -> list[object]:
        parsed.append(len(text))
        return real(text, env)  # type: ignore[return-value]

    monkeypatch.setattr(markdown_parser._MD, "parse", counting)

    def cost_of_the_next_word(paragraphs: int) -> int:
        parser = BlockParser()
        parser.append("Some words in a paragraph.\n\n" * paragraphs + "The tail ")
        parsed.clear()
        parser.append("word\n")
        return sum(parsed)

    assert cost_of_the_next_word(2) == cost_of_the_next_word(2000) < 200

    parser = BlockParser()
    parser.append("```\n" + "code\n" * 2000)
    parsed.clear()
    parser.append("more\n")
    assert parsed == [], "lines of an open fence need no parser"
    assert parser.tail_length == 0


@pytest.mark.parametrize("mark", ["> ", ">", "- ", "1. ", "> - ", "- > "])
def test_nesting_is_bounded_and_no_text_is_lost(mark: str) -> None:
    (block,) = parse(mark * 200 + "the words\n")
    assert isinstance(block, ProseBlock)
    assert "the words" in block.html
    assert block.html.count("<table") <= markdown_parser.QUOTES_DRAWN
    assert block.html.count("<ul") + block.html.count("<ol") <= markdown_parser.MAX_LEVEL // 2
    assert_balanced(block.html)


def test_lists_nested_line_by_line_keep_every_line() -> None:
    (block,) = parse("".join("  " * depth + f"- item{depth}.\n" for depth in range(50)))
    assert isinstance(block, ProseBlock)
    assert all(f"item{depth}." in block.html for depth in range(50))


def words_of(blocks: list[markdown_blocks.Block]) -> str:
    """The letters that are shown, without any of the marks."""
    html = "".join(b.code if isinstance(b, CodeBlock) else f"{b.html}{getattr(b, 'rest', '')}" for b in blocks)
    return re.sub(r"[^a-z]", "", re.sub(r"<[^>]*>|&\w+;|nbsp", "", html))


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 30), max_size=60))
def test_a_text_of_many_pieces_is_the_same_however_it_is_cut(text: str, cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("STEP", 60), ("STEP_LINES", 5), ("OPEN_STEP", 70)):
            patch.setattr(block_parser, name, value)
        parser = stream(text, cuts)
        parser.finish()
        assert parser.blocks == parse(text)


@pytest.mark.parametrize(
    "line",
    ["word{} and more words\n", "- item{}\n", "1. item{}\n", "> quote{}\n", "| cell{} | b |\n", "> - item{}\n",
     "# head{}\n", "- item{}\n\n  more\n\n", "    code{}\n", "text{}"],
)  # fmt: skip
def test_no_line_of_a_long_block_is_lost(line: str) -> None:
    head = "| a | b |\n|---|---|\n" if line.startswith("|") else ""
    names = [f"q{'abcdefghij'[i // 100]}{'abcdefghij'[i // 10 % 10]}{'abcdefghij'[i % 10]}q" for i in range(1000)]
    shown = words_of(parse(head + "".join(line.format(name) for name in names)))
    assert all(name in shown for name in names)


@pytest.mark.parametrize("before", ["", "- step\n  ", "1. one\n   - two\n     "])
def test_a_fence_of_many_pieces_stays_one_block(before: str) -> None:
    indent = " " * (len(before) - before.rfind("\n") - 1)
    lines = [f"x = {i}" for i in range(3000)]
    code = "".join(f"{indent}{line}\n" for line in lines)
    blocks = parse(f"{before}```py\n{code}{indent}```\nThe end\n")
    (block,) = (b for b in blocks if isinstance(b, CodeBlock))
    assert block.code.split("\n") == lines
    assert block.depth == (0 if not before else before.count("- ") + before.count("1. "))
    assert isinstance(blocks[-1], ProseBlock)
    assert "The end" in blocks[-1].html


def test_a_long_table_draws_its_first_rows_and_keeps_the_others() -> None:
    rows = "".join(f"| {i} | b |\n" for i in range(20_000))
    _, table, after = parse(f"Look:\n\n| n | b |\n|---|---|\n{rows}\nAfter\n")
    assert isinstance(table, TableBlock)
    drawn = table.html.count("<tr>") - 1
    assert 0 < drawn <= markdown_parser.MOST_CELLS
    assert table.rest == "".join(rows.splitlines(keepends=True)[drawn:])
    assert table.head == "| n | b |\n|---|---|\n"
    assert isinstance(after, ProseBlock)
    assert "After" in after.html


@pytest.mark.parametrize("unit", ["```\nx\n```\n", "$$\n{x}\n$$\n", "a\n\n    code\n\n"])
def test_a_step_settles_a_bounded_number_of_code_blocks_and_formulas(unit: str) -> None:
    parser = block_parser.BlockParser()
    parser.feed(unit * 200)
    parser.end()
    more, settled = True, [0]
    while more:
        more = parser.step()
        settled.append(len(parser.blocks))
    new = [after - before for before, after in itertools.pairwise(settled)]
    blocks_per_unit = len(parser.blocks) // 200
    assert len(parser.blocks) == 200 * blocks_per_unit
    assert max(new) <= blocks_per_unit * (block_parser.STEP_PARTS + 1)


def test_no_step_parses_more_than_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    real = markdown_parser._MD.parse

    def counting(text: str, env: dict[str, object]) -> list[object]:
        parsed.append(len(text))
        return real(text, env)  # type: ignore[return-value]

    monkeypatch.setattr(markdown_parser._MD, "parse", counting)
    for unit in ("x", "word ", "a\n", "- [a\n", "> ", "[a]: b\n\n"):  # three steps' worth, and as many lines and more
        parse(unit * (3 * block_parser.STEP // len(unit)))
    assert max(parsed) <= max(block_parser.STEP, block_parser.MOST_DEFINITIONS * (block_parser.DEFINITION_LENGTH + 2))


def test_a_definition_below_a_long_text_serves_the_links_above_it() -> None:
    text = "See [the page][p].\n\n" + "Words of a paragraph.\n\n" * 1000 + "[p]: https://x.y/\n"
    whole = parse(text)
    assert isinstance(whole[0], ProseBlock)
    assert 'href="https://x.y/"' in whole[0].html
    parser = BlockParser()
    parser.append(text)
    parser.finish()
    assert parser.blocks == whole


def test_the_source_of_every_block_is_known() -> None:
    text = "One\n\n- a\n  ```\n  x\n  ```\n  b\n\n| n |\n|---|\n" + "| 1 |\n" * 900 + "\n```py\ny\n```\nTwo\n"
    parser = BlockParser()
    parser.append(text)
    parser.finish()
    known = parser.sources()
    assert sum(count for _, count in known) == len(parse(text))
    assert "\n".join(source for source, _ in known).replace("\n", "") == text.replace("\n", "")
    assert [count for source, count in known if source.startswith("- a")] == [3]
    assert ("```py\ny\n```", 1) in known


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("see https://a.b/c.", "https://a.b/c"),
        ("(https://a.b/c)", "https://a.b/c"),
        ("https://a.b/c_(d)_e", "https://a.b/c_(d)_e"),
        ("(see https://a.b/c_(d))", "https://a.b/c_(d)"),
        ("**https://a.b**", "https://a.b"),
        ("http://a.b/x?y=1&z=2, and", "http://a.b/x?y=1&amp;z=2"),
        ("www.a.b/c!", "https://www.a.b/c"),
        ("见https://a.b/c。", "https://a.b/c"),
        ("https://a.b/c，然后", "https://a.b/c"),
        ("「https://a.b」", "https://a.b"),
        ("HTTPS://A.B/", "HTTPS://A.B/"),
        ("https://a.b/snake_case_name", "https://a.b/snake_case_name"),
        ("https://localhost:8080/x", "https://localhost:8080/x"),
    ],
)
def test_bare_addresses_are_links(text: str, address: str) -> None:
    (block,) = parse(text)
    assert isinstance(block, ProseBlock)
    assert re.findall('href="([^"]*)"', block.html) == [address]
    shown = re.sub("<[^>]*>", "", block.html)
    assert shown == re.sub("[*]", "", text).replace("&", "&amp;")


@pytest.mark.parametrize(
    "text",
    ["`https://a.b`", "ftp://a.b", "https://", "www.", "www.a", "xhttps://a.b", "me@www.a.b", "https://."],
)
def test_what_is_no_bare_address_stays_text(text: str) -> None:
    (block,) = parse(text)
    assert isinstance(block, ProseBlock)
    assert "<a " not in block.html


def test_an_address_within_a_link_is_not_linked_twice() -> None:
    (block,) = parse("[https://a.b](https://c.d) and <https://e.f>")
    assert isinstance(block, ProseBlock)
    assert re.findall('href="([^"]*)"', block.html) == ["https://c.d", "https://e.f"]
    assert_balanced(block.html)


def test_tasks_have_boxes() -> None:
    (block,) = parse("- [ ] open\n- [x] done\n- [X] **done** too\n- [y] no\n- [](x) no\n1. [ ] first\n")[:1]
    assert isinstance(block, ProseBlock)
    assert re.findall("<li([^>]*)>", block.html) == [' class="unchecked"', *[' class="checked"'] * 2, "", ""]
    assert "[ ]" not in block.html
    assert "[y] no" in block.html


def test_footnotes_are_numbered_by_their_first_use() -> None:
    text = "One[^b] two[^a] and [^b], not [^c] or `[^a]`.\n\n[^a]: First *note*.\n[^b]: Second\n  goes on.\n\nEnd\n"
    html = "".join(block.html for block in parse(text) if isinstance(block, ProseBlock))
    assert_balanced(html)
    assert re.findall(r'href="([^"]*)"', html) == ["#note-1", "#note-2", "#note-1", "#back-2", "#back-1"]
    assert html.count('name="note-1"') == html.count('name="back-1"') == 1
    assert "[^c]" in html
    assert "Second" in html
    assert "goes on." in html


def test_a_footnote_of_a_streamed_answer_is_found_at_its_end() -> None:
    text = "One[^1].\n\n" + "A paragraph.\n\n" * 600 + "[^1]: The note.\n"
    parser = stream(text, [7] * 300)
    parser.finish()
    assert isinstance(parser.blocks[0], ProseBlock)
    assert 'href="#note-1"' in parser.blocks[0].html
    assert parser.blocks == parse(text)


def test_every_character_that_a_layout_cannot_hold_is_replaced_wherever_it_stands() -> None:
    replaced = {"\r": "\n", "\u2028": "\n", "\u2029": "\n"}
    unshowable = [*range(0x20), 0x7F, *range(0xD800, 0xE000), *range(0xFDD0, 0xFDF0), 0xFFFC, 0xFFFE, 0xFFFF]
    replaced |= {letter: "\ufffd" for letter in map(chr, unshowable) if letter not in "\t\n\r"}
    for code in (*range(0x400), *range(0x2000, 0x2100), *range(0xD7F0, 0xE010), *range(0xFD00, 0x10010), 0x1F525):
        letter = chr(code)
        for around in ("", "a", "é"):
            expected = around + replaced.get(letter, letter) + around
            assert displayable(around + letter + around) == expected, hex(code)
