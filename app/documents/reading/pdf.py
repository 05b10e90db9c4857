"""The text of PDF files, and pictures of their pages. Runs in the child process (reading_process.py).

PDFium finds the lines of a page in the order of the page's content. Here lines become paragraphs: words that are
divided at a line's end are joined, and a gap, a new column, an indent or another size begins a paragraph.
"""

from __future__ import annotations

import ctypes
import re
import struct
import time
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from app.documents.reading.document import Document, PagePicture, Part, TextLimit, Unreadable

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage, PdfTextPage

MOST_PAGES = 20_000
WITHIN_S = 40.0  # later pages are left out
MOST_PIXELS = 40_000_000  # of a picture
_HYPHEN = "\x02"  # PDFium's mark for a hyphen at a line's end
_LIGATURES = re.compile("[\ufb00-\ufb06\ufb13-\ufb17]")
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\xad\ufeff\ufffe\uffff]")
_ITEM = re.compile(r"([•◦▪■●○–—*·‣⁃▸►✓]|[-o] |\(?[0-9]{1,3}[.)] |\(?[a-zA-Z][.)] )")
_LEADER = re.compile(r"(\. ?){4,}[0-9ivxlc]*$")  # of a table of contents
_SHORTEST_OF_PROSE = 25  # columns of a line that continues in the next; shorter ones are rows of a table
_FEWEST_OF_PASSAGE = 12  # letters of a passage that are looked for
_PIECE = 48  # letters that are looked for one after another if the passage is not found as a whole
_SHARES = 1 << 20  # units of a page's width and height, to turn coordinates into shares


def load_library() -> None:
    """Load PDFium, before the process is confined."""
    import pypdfium2  # noqa: F401


def read(data: bytes, limit: TextLimit) -> Document:
    """Return the text of a PDF by pages. Cost: 1 to 10 ms per page. Raises Unreadable."""
    until = time.monotonic() + WITHIN_S
    document = _opened(data)
    n_pages = len(document)
    parts, n_scanned = [], 0
    for number in range(1, min(n_pages, MOST_PAGES) + 1):
        if limit.is_reached or time.monotonic() > until:
            limit.is_reached = True
            break
        page = _page(document, number)
        if page is None:
            continue
        if text := limit.take(_text_of(page).strip()):
            parts.append(Part(text, number))
        else:
            n_scanned += _has_picture(page)
        page.close()
    if not parts and n_scanned:
        raise Unreadable("scan")
    return Document("pdf", tuple(parts), n_pages, n_scanned, limit.is_reached or n_pages > MOST_PAGES)


def _opened(data: bytes) -> PdfDocument:
    import pypdfium2
    from pypdfium2 import raw

    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        locked = (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY)
        raise Unreadable("locked" if error.err_code in locked else "damaged") from None


def _page(document: PdfDocument, number: int) -> PdfPage | None:
    """Return a page, or None if it is damaged: others may still be read."""
    import pypdfium2

    try:
        return document[number - 1]
    except pypdfium2.PdfiumError:
        return None


def _has_picture(page: PdfPage) -> bool:
    from pypdfium2 import raw

    return next(page.get_objects(filter=(raw.FPDF_PAGEOBJ_IMAGE,), max_depth=4), None) is not None


# --- lines and paragraphs


@dataclass(frozen=True)
class _Line:
    """A line of a page. left, right, base, height: in points, from the bottom left."""

    text: str
    left: float
    right: float
    base: float
    height: float


def _text_of(page: PdfPage) -> str:
    text_page = page.get_textpage()
    try:
        return _paragraphs(list(_lines(text_page)))
    finally:
        text_page.close()


def _characters(text_page: PdfTextPage) -> list[str]:
    """Return the characters of a page by PDFium's index."""
    from pypdfium2 import raw

    n, read_one = text_page.count_chars(), raw.FPDFText_GetUnicode
    codes = (read_one(text_page, at) for at in range(n))
    return [chr(code) if code < 0xD800 or 0xE000 <= code < 0x110000 else "\ufffd" for code in codes]


def _lines(text_page: PdfTextPage) -> Iterator[_Line]:
    characters = _characters(text_page)
    start = 0
    for at, character in enumerate([*characters, "\n"]):
        if character == "\n" or character == _HYPHEN:
            end = at + (character == _HYPHEN)
            text = "".join(characters[start:end]).strip()
            if text and text != _HYPHEN:
                while characters[start].isspace():
                    start += 1
                last = at - 1
                while characters[last].isspace():
                    last -= 1
                yield _line(text_page, text, start, max(last, start))
            start = at + 1


def _line(text_page: PdfTextPage, text: str, first: int, last: int) -> _Line:
    boxes = [_box(text_page, at) for at in (first, (first + last) // 2, last)]
    height = median(top - bottom for _, bottom, _, top in boxes)  # one of them may be raised, or of another font
    return _Line(text, boxes[0][0], boxes[2][2], median(box[1] for box in boxes), max(height, 0.1))


def _box(text_page: PdfTextPage, at: int) -> tuple[float, float, float, float]:
    """Return left, bottom, right and top of a character, with the space that its font keeps around it."""
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(text_page, at, ctypes.byref(box))
    return box.left, box.bottom, box.right, box.top


def _paragraphs(lines: Sequence[_Line]) -> str:
    """Return the text of a page's lines."""
    if not lines:
        return ""
    steps = [one.base - other.base for one, other in pairwise(lines)]
    usual = [step for step, line in zip(steps, lines, strict=False) if 0.5 * line.height < step < 2.5 * line.height]
    step = median(usual) if usual else 1.2 * lines[0].height
    parts = [lines[0].text]
    for at, (before, line) in enumerate(pairwise(lines)):
        if parts[-1].endswith(_HYPHEN):
            # A capital or a digit behind it: the hyphen belongs to the word.
            parts[-1] = parts[-1][:-1] + ("" if line.text[:1].islower() else "-")
            parts.append(line.text)
            continue
        is_short = before.right < _right_edge(lines, at) - 0.12 * max(_right_edge(lines, at) - before.left, 1.0)
        parts += (_between(before, line, step, is_short), line.text)
    text = "".join(parts).replace(_HYPHEN, "-")
    text = _LIGATURES.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    return _NO_TEXT.sub("", text)


def _right_edge(lines: Sequence[_Line], at: int) -> float:
    """Return where the lines around a line end, of those of its size that begin near it and so are in its column."""
    left, height = lines[at].left, lines[at].height
    return max(
        line.right
        for line in lines[max(at - 6, 0) : at + 7]
        if abs(line.left - left) < 4 * height and _is_of_size(line, height)
    )


def _is_of_size(line: _Line, height: float) -> bool:
    return 0.8 < line.height / height < 1.25


def _between(before: _Line, line: _Line, usual_step: float, is_short: bool) -> str:
    """Return what divides two lines: a space, a line break or a blank line."""
    step, height = before.base - line.base, max(before.height, line.height)
    if abs(step) < 0.4 * height:
        return " " if line.left >= before.right - 1 else "\n"
    if step < 0:  # upwards: another column
        return " " if line.text[:1].islower() and before.text[-1:] not in ".!?:" else "\n\n"
    if before.text.endswith("-") and before.text[-2:-1].isalnum() and line.text[:1].isalnum():
        return ""  # 2019-2020
    if step > 1.3 * max(usual_step, height * 0.8) or not _is_of_size(line, before.height):
        return "\n\n"
    if is_short or _columns(before.text) < _SHORTEST_OF_PROSE or _ITEM.match(line.text) or _LEADER.search(before.text):
        return "\n"
    if line.left > before.left + 0.8 * height and not _ITEM.match(before.text):
        return "\n\n"
    return "" if _is_ideograph(before.text[-1]) and _is_ideograph(line.text[0]) else " "


def _columns(text: str) -> int:
    """Return the width of a text in Latin letters."""
    return len(text) + sum(map(_is_ideograph, text[:_SHORTEST_OF_PROSE]))


def _is_ideograph(character: str) -> bool:
    """Return whether a character is Chinese or Japanese, where no spaces divide words."""
    return "\u2e80" <= character < "\uac00" or "\uf900" <= character < "\ufb00" or "\uff01" <= character < "\uff66"


# --- pictures


def page_picture(data: bytes, number: int, passage: str, width: int) -> PagePicture:
    """Return a picture of a page, `width` pixels wide, and the boxes of a passage's lines on it. Raises Unreadable."""
    document = _opened(data)
    page = _page(document, number) if 1 <= number <= len(document) else None
    if page is None:
        raise Unreadable("damaged")
    width = max(16, min(width, 4096))
    page_width, page_height = page.get_size()
    scale = width / max(page_width, 1.0)
    scale = min(scale, (MOST_PIXELS / max(page_width * page_height, 1.0)) ** 0.5)
    bitmap = page.render(scale=scale, rev_byteorder=True)
    png = _png(bitmap.buffer, bitmap.width, bitmap.height, bitmap.stride, bitmap.n_channels)
    text_page = page.get_textpage()
    characters = _characters(text_page)
    boxes = [box for first, n in _found(characters, passage) for box in _boxes(page, text_page, first, n)]
    return PagePicture(png, tuple(boxes))


def _png(pixels: Any, width: int, height: int, stride: int, n_channels: int) -> bytes:
    """Return a PNG file of RGB or grey pixels, or of RGBA ones."""
    view, row = memoryview(pixels).cast("B"), width * n_channels
    packer = zlib.compressobj(4)
    rows = [packer.compress(b"\0" + view[at * stride : at * stride + row].tobytes()) for at in range(height)]
    colour = {1: 0, 3: 2, 4: 6}[n_channels]
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)),
        (b"IDAT", b"".join(rows) + packer.flush()),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def _found(characters: Sequence[str], passage: str) -> list[tuple[int, int]]:
    """Return the ranges (first, number) of a passage on a page. Only letters and digits are compared. Of a passage that
    is only in part on the page, the pieces that are.
    """
    places: list[int] = []
    letters: list[str] = []
    for at, character in enumerate(characters):
        for letter in _letters(character):
            letters.append(letter)
            places.append(at)
    text, wanted = "".join(letters), _letters(passage)
    if not wanted:
        return []
    if (at := text.find(wanted)) >= 0:
        return [(places[at], places[at + len(wanted) - 1] - places[at] + 1)]
    ranges: list[tuple[int, int]] = []
    start = 0
    for piece in (wanted[at : at + _PIECE] for at in range(0, len(wanted), _PIECE)):
        at = text.find(piece, start) if len(piece) >= _FEWEST_OF_PASSAGE else -1
        if at >= 0:
            start = at + len(piece)
            first, n = places[at], places[start - 1] - places[at] + 1
            if ranges and ranges[-1][0] + ranges[-1][1] >= first - 3:
                first, n = ranges[-1][0], first + n - ranges.pop()[0]
            ranges.append((first, n))
    return ranges


def _letters(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFKC", text).casefold() if letter.isalnum())


def _boxes(page: PdfPage, text_page: PdfTextPage, first: int, n: int) -> Iterator[tuple[float, float, float, float]]:
    """Yield the boxes of a range's lines, as shares of the page."""
    from pypdfium2 import raw

    edges = [ctypes.c_double() for _ in range(4)]
    line: tuple[float, float, float, float] | None = None
    for index in range(raw.FPDFText_CountRects(text_page, first, n)):
        raw.FPDFText_GetRect(text_page, index, *(ctypes.byref(edge) for edge in edges))
        left, top, right, bottom = (edge.value for edge in edges)
        x0, y0 = _share(page, left, top)
        x1, y1 = _share(page, right, bottom)
        box = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        if line is not None:
            common = min(line[3], box[3]) - max(line[1], box[1])
            if common > 0.5 * min(line[3] - line[1], box[3] - box[1]):
                line = (min(line[0], box[0]), min(line[1], box[1]), max(line[2], box[2]), max(line[3], box[3]))
                continue
            yield _sized(line)
        line = box
    if line is not None:
        yield _sized(line)


def _sized(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    return box[0], box[1], box[2] - box[0], box[3] - box[1]


def _share(page: PdfPage, x: float, y: float) -> tuple[float, float]:
    """Return a point as shares of the page's width and height, from the top left, as the page is shown."""
    from pypdfium2 import raw

    across, down = ctypes.c_int(), ctypes.c_int()
    raw.FPDF_PageToDevice(page, 0, 0, _SHARES, _SHARES, 0, x, y, ctypes.byref(across), ctypes.byref(down))
    return (min(max(across.value / _SHARES, 0.0), 1.0), min(max(down.value / _SHARES, 0.0), 1.0))
