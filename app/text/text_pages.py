"""Plain text in pages that take no long layout: limited in characters, lines and line length."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST_LINE = 2000  # Qt lays out a line as a whole, and a wrapped word in quadratic time
OWN_PAGE, OWN_LINES = 12_000, 250  # of a user's message that are shown at first


def page_end(text: str, start: int, characters: int, lines: int) -> int:
    """Return the end of the page that begins at `start`: after a line or word if possible."""
    most = min(start + characters, len(text))
    end = start
    for _ in range(lines):
        end = text.find("\n", end, most) + 1
        if end == 0:
            break
    else:
        return end
    if most == len(text):
        return most
    middle = start + characters // 2
    end = text.rfind("\n", middle, most) + 1 or text.rfind(" ", middle, most) + 1 or most
    return end - 1 if text[end - 1 : end + 1] == "\r\n" else end  # the two are one line end


def pages(text: str, characters: int, lines: int) -> Iterator[str]:
    """Yield the text page by page. An empty text is one page."""
    end = page_end(text, 0, characters, lines)
    yield text[:end]
    while end < len(text):
        start, end = end, page_end(text, end, characters, lines)
        yield text[start:end]


def page_start(text: str, least: int, characters: int, lines: int) -> int:
    """Return where the last page of a text starts, from `least` on: with a line end or a word where there is one."""
    first = max(least, len(text) - characters)
    start = len(text)
    for _ in range(lines):
        start = text.rfind("\n", first, start)
        if start < 0:
            if first == 0:
                return 0
            middle = (first + len(text)) // 2
            start = text.find("\n", first, middle)
            if start < 0:
                return text.find(" ", first, middle) + 1 or first
            break
    return start - 1 if start > least and text[start - 1 : start + 1] == "\r\n" else start


def broken(text: str) -> str:
    """Return the text with a line end after every LONGEST_LINE characters of a line."""
    return re.sub(rf"[^\n]{{{LONGEST_LINE}}}(?=[^\n])", "\\g<0>\n", text)


def unbroken(shown: str, text: str) -> str:
    """Remove the line ends that `broken` added from the shown text or a beginning of it."""
    if max(map(len, shown.split("\n"))) < LONGEST_LINE:
        return shown
    out, place = [], 0
    for line in shown.splitlines(keepends=True):
        if line.endswith("\n") and text[place + len(line) - 1 : place + len(line)] != "\n":
            line = line[:-1]
        out.append(line)
        place += len(line)
    return "".join(out)
