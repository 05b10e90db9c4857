"""The plain text of messages as shown on the screen, and the matches of a search in it. No Qt.

Used for snippets of the search in all chats and for Find in a chat. app/ui/transcript/selection/selectable.py compares
it with the window's documents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from html import unescape

from app.text.block_parser import BlockParser, parse
from app.text.markdown_blocks import FORMULA, PAD, Block, CodeBlock, TableBlock, displayable
from app.text.text_pages import OWN_LINES, OWN_PAGE, broken, page_end, pages

Mark = tuple[int, int]  # first character, and the one after the last

ROWS_PAGE, ROWS = 4000, 60  # of a long table: characters and rows per step
BLOCKS_AT_ONCE = 20
_PRE = re.compile(r"<pre[^>]*>(.*?)</pre>", re.DOTALL)
_LINE = re.compile(r"</?(?:p|li|ul|ol|table|thead|tbody|tr|td|th|hr|br|div)\b[^>]*>")
_FORMULA = re.compile(rf'<img src="{FORMULA}" alt="([^"]*)"/>')
_TAG = re.compile(r"<[^>]*>")
_SPACES = re.compile(r"[ \t\r\n\f]+")


# --- comparing


def fold(text: str) -> str:
    """Return text for comparison: without case, accents joined with their letters."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


def places(text: str, needle: str) -> Iterator[Mark]:
    """Yield the non-overlapping matches of the folded needle in a text. Cost: linear, lazily."""
    folded = fold(text)
    if not needle or needle not in folded:
        return
    if len(folded) == len(text) and unicodedata.is_normalized("NFC", text):  # each character folds to one
        at = folded.find(needle)
        while at >= 0:
            yield at, at + len(needle)
            at = folded.find(needle, at + len(needle))
        return
    start = 0
    for line in text.split("\n"):
        if needle in fold(line):
            yield from ((start + first, start + end) for first, end in marks_in(line, needle))
        start += len(line) + 1


def marks_in(text: str, needle: str) -> tuple[Mark, ...]:
    """Return the non-overlapping matches of the folded needle in a short text."""
    folded = fold(text)
    at = folded.find(needle) if needle else -1
    if at < 0:
        return ()
    owners = [piece for piece in _pieces_of(text) for _ in fold(text[piece[0] : piece[1]])]
    if len(owners) != len(folded):  # characters that combine with their neighbours in an unusual way
        return ()
    marks = []
    while at >= 0:
        end = at + len(needle)
        marks.append((owners[at][0], owners[end - 1][1]))
        at = folded.find(needle, end)
    return tuple(marks)


def _pieces_of(text: str) -> list[Mark]:
    """Split a text into the smallest parts that fold independently: a letter with its accents."""
    starts = [0]
    for at in range(1, len(text)):
        before, letter = text[starts[-1] : at], text[at]
        if not unicodedata.combining(letter) and fold(before + letter) == fold(before) + fold(letter):
            starts.append(at)
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


# --- words


def html_text(html: str) -> str:
    """Return the text of HTML from markdown_blocks.py: a line for each paragraph, item and cell, formulas as LaTeX."""
    out = []
    for index, part in enumerate(_PRE.split(html)):
        if index % 2 == 0:
            part = _SPACES.sub(" ", _FORMULA.sub(lambda found: found[1].replace("&#10;", " "), part))
            part = _LINE.sub("\n", part)
        out.append(unescape(_TAG.sub("", part)))
    words = "\n".join(out).replace(PAD, "").replace("\u00a0", " ")
    return "\n".join(line for line in (line.strip(" ") for line in words.split("\n")) if line)


def block_text(block: Block) -> str:
    """Return the text of a block; of a long table only the rows that are drawn at once."""
    return broken(block.code) if isinstance(block, CodeBlock) else html_text(block.html)


def answer_pieces(thought: str, answer: str) -> Iterator[tuple[str, ...] | float]:
    """Yield the fraction that is read, 0 to 1, after every bounded step, and finally the texts of the thought and of
    each block of the answer."""
    parser = BlockParser()
    parser.feed(answer)
    parser.end()
    while parser.step():
        yield parser.share_read
    out = [thought_text(thought)]
    for index, block in enumerate(parser.blocks):
        words = [block_text(block)]
        if isinstance(block, TableBlock) and block.rest:
            for rows in rows_behind(block):
                words.append(html_text(rows))
                yield parser.share_read
        out.append("\n".join(words))
        if index % BLOCKS_AT_ONCE == 0:
            yield parser.share_read
    yield tuple(out)


def rows_behind(block: TableBlock) -> Iterator[str]:
    """Yield the HTML of the rows that are not drawn at once, some at a time."""
    columns = block.head.count("|", block.head.find("\n")) + 1
    at = 0
    while at < len(block.rest):
        end = page_end(block.rest, at, ROWS_PAGE, max(ROWS * 5 // columns, 1))
        for table in parse(block.head + block.rest[at:end]):
            if isinstance(table, TableBlock):
                yield table.html.partition("</thead>")[2]
        at = end


def thought_text(thought: str) -> str:
    """Return the text of a thought as shown."""
    return broken(displayable(thought))


def own_pieces(text: str) -> tuple[str, ...]:
    """Return the text of a user's message, page by page as shown."""
    return tuple(displayable(broken(page)) for page in pages(text, OWN_PAGE, OWN_LINES))
