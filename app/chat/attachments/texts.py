"""Attached texts of files and long pastes, within limits, and how the model reads them. No Qt.

app/chat/attachments/pdf_text.py reads PDF files in a process of its own.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from app.chat.store.conversation import Attachment
from app.text.markdown_blocks import displayable
from app.translation import figure, tr
from engine.service.protocol import CountResult

PASTE_FROM_CHARS = 2_000  # a longer paste becomes an attachment
MOST_FILES = 8  # per message
MOST_FILE_BYTES = 64 << 20
MOST_CHARS = 1_000_000  # of one text; models can read far less
PASTED = "Pasted text"
_CHARSET_SAMPLE_BYTES = 256 << 10
_BINARY_SHARE = 0.02  # share of control characters above which data is not text
_SOUND_FOR_EACH_BROKEN = 20  # non-ASCII characters per broken one for data to count as UTF-8
_CONTROL = bytes({*range(0x20), 0x7F} - {*b"\t\n\r\f\x1b\b"})
_BOMS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32",
         b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # fmt: skip
# PNG, JPEG, GIF, ZIP (also docx, xlsx), gzip, xz, bzip2, 7z, RAR, ELF, SQLite, Matroska, Ogg, GGUF, Windows' programs
_BINARIES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"\xfd7zXZ", b"BZh9",
             b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a", b"\x7fELF", b"SQLite format 3\0", b"\x1aE\xdf\xa3", b"OggS\0", b"GGUF",
             b"MZ\x90\0")  # fmt: skip
_REST = re.compile(r"\n\[The rest is left out: ([\d,]+) of ([\d,]+) tokens were taken\.\]\Z")


class AttachmentError(Exception):
    """A file that cannot be attached. `message` is one sentence with the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def pasted(text: str) -> Attachment:
    """Return a long paste as an attachment. Raises AttachmentError if it is too long."""
    return _bounded(Attachment(PASTED, displayable(text[: MOST_CHARS + 1]), "pasted"))


def read(path: Path, cancelled: Callable[[], bool] = lambda: False) -> Attachment:
    """Return a file's text. Cost: the time to read it; a PDF takes a few ms per page.

    Raises AttachmentError if it is not a regular file, not text, too large or unreadable.
    """
    name = display_name(path)
    data = _bytes_of(path, name)
    if data.startswith(b"%PDF-") or b"%PDF-" in data[:1024]:
        from app.chat.attachments import pdf_text

        text, n_pages = pdf_text.read(data, name, cancelled)
        return _bounded(Attachment(name, displayable(text), "pdf", n_pages))
    return _bounded(Attachment(name, displayable(decoded(data, name)), "text"))


def display_name(path: Path) -> str:
    """Return a file's name in one line, also if it is not valid text."""
    return " ".join(displayable(path.name).split()) or "file"


def _bytes_of(path: Path, name: str) -> bytes:
    try:
        # Non-blocking: it may be a pipe that nobody writes to.
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(number, "rb") as file:
            what = os.fstat(number)
            if stat.S_ISDIR(what.st_mode):
                raise AttachmentError(tr("{name} is a folder. Attach the files in it.", name=name))
            if not stat.S_ISREG(what.st_mode):
                raise AttachmentError(tr("{name} is not a file.", name=name))
            if what.st_size > MOST_FILE_BYTES:
                raise AttachmentError(
                    tr(
                        "{name} has {size}\u202fMB. Files up to {most}\u202fMB are read.",
                        name=name,
                        size=figure(what.st_size / 1e6, ",.0f"),
                        most=figure(MOST_FILE_BYTES / 1e6, ".0f"),
                    )
                )
            data = file.read(MOST_FILE_BYTES + 1)
    except IsADirectoryError:
        raise AttachmentError(tr("{name} is a folder. Attach the files in it.", name=name)) from None
    except OSError as error:
        if path.is_dir():
            raise AttachmentError(tr("{name} is a folder. Attach the files in it.", name=name)) from None
        raise AttachmentError(tr("{name} could not be read: {why}.", name=name, why=error.strerror or error)) from error
    if not data.strip():
        raise AttachmentError(tr("{name} is empty.", name=name))
    return data


def decoded(data: bytes, name: str = "It") -> str:
    """Decode text: by its BOM, else as UTF-8, UTF-16 without a BOM, or the charset that it looks like.

    Raises AttachmentError if it is not text.
    """
    if data.startswith(_BINARIES):
        raise AttachmentError(tr("{name} is not a text file. Hearth reads text and PDF files.", name=name))
    for mark, encoding in _BOMS.items():
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if encoding := _unmarked_utf16(data):
        return data.decode(encoding, "replace")
    sample = data[:_CHARSET_SAMPLE_BYTES]
    if b"\0" in sample or len(sample) - len(sample.translate(None, _CONTROL)) > len(sample) * _BINARY_SHARE:
        raise AttachmentError(tr("{name} is not a text file. Hearth reads text and PDF files.", name=name))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        first = error.start
    as_utf8 = data.decode("utf-8", "replace")
    broken = as_utf8.count("\ufffd")
    if sum(char > "\x7f" for char in as_utf8) - broken > broken * _SOUND_FOR_EACH_BROKEN:
        return as_utf8
    from charset_normalizer import from_bytes

    at = max(first - _CHARSET_SAMPLE_BYTES // 4, 0)
    best = from_bytes(data[at : at + _CHARSET_SAMPLE_BYTES]).best()
    return data.decode(best.encoding if best is not None else "cp1252", "replace")


def _unmarked_utf16(data: bytes) -> str:
    """Decode UTF-16 without a BOM, recognized by zeros in every second byte."""
    sample = data[:4096]
    if len(sample) < 4:
        return ""
    even, odd = sample[0::2].count(0) / len(sample[0::2]), sample[1::2].count(0) / len(sample[1::2])
    if odd > 0.3 and even < 0.02:
        return "utf-16-le"
    return "utf-16-be" if even > 0.3 and odd < 0.02 else ""


def _bounded(attachment: Attachment) -> Attachment:
    text = attachment.text.strip("\n\f ")
    if not text.strip():
        raise AttachmentError(tr("{name} contains no text.", name=attachment.name))
    return replace(attachment, text=text[:MOST_CHARS])


# ------------------------------------------------------------------ what is sent


def cut(attachment: Attachment, chars: int, kept_tokens: int, tokens: int) -> Attachment:
    """Return the first `chars` characters and a last line that says so; the attachment itself if all of it is kept."""
    if chars >= len(attachment.text):
        return attachment
    rest = f"\n[The rest is left out: {kept_tokens:,} of {tokens:,} tokens were taken.]"
    return replace(attachment, text=attachment.text[:chars].rstrip() + rest)


def cut_to(attached: Sequence[Attachment], count: CountResult | None) -> tuple[Attachment, ...]:
    """Their beginnings that a context has room for, by what the engine counted; whole ones where it could not."""
    if count is None or len(count.text_tokens) != len(attached):
        return tuple(attached)
    figures = zip(attached, count.text_kept_chars, count.text_kept_tokens, count.text_tokens, strict=True)
    return tuple(cut(one, chars, kept, tokens) for one, chars, kept, tokens in figures)


def kept_of(attachment: Attachment) -> tuple[int, int] | None:
    """Return (tokens kept, tokens of the whole) of a shortened attachment, else None."""
    found = _REST.search(attachment.text[-200:])
    return None if found is None else (int(found[1].replace(",", "")), int(found[2].replace(",", "")))
