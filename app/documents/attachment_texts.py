"""Attached texts of files and long pastes, within limits, and how the model reads them. No Qt."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.store.conversation import Attachment
from app.documents.reading.document import Limits, Part, ReadError
from app.documents.reading.reader import DocumentReader, display_name
from app.text.markdown_blocks import displayable
from app.tools.call_text import one_line
from app.translation import tr

if TYPE_CHECKING:
    from engine.service.protocol import CountResult

PASTE_FROM_CHARS = 2_000  # a longer paste becomes an attachment
MOST_FILES = 8  # per message
MOST_CHARS = 1_000_000  # of one text; models can read far less
LONGEST_NAME = 200
PASTED = "Pasted text"
_LIMITS = Limits(file_bytes=64 << 20, characters=MOST_CHARS)
_REST = re.compile(r"\n\[The rest is left out: ([\d,]+) of ([\d,]+) tokens were taken\.\]\Z")


class AttachmentError(Exception):
    """A file that cannot be attached. `message` is one sentence with the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def pasted(text: str) -> Attachment:
    """Return a long paste as an attachment. Raises AttachmentError if it is too long."""
    return _bounded(Attachment(PASTED, displayable(text[: MOST_CHARS + 1]), "pasted"))


def of_server(name: str, server: str, address: str, text: str) -> Attachment:
    """Return a resource of an MCP server as an attachment that names its source. Raises AttachmentError if empty."""
    source = f"{one_line(name)} ({one_line(server)}, {one_line(address)})"
    return _bounded(Attachment(source[:LONGEST_NAME], displayable(text[: MOST_CHARS + 1]), "text"))


def read(path: Path, cancelled: Callable[[], bool] = lambda: False) -> Attachment:
    """Return a file's text. Each file has a process of its own, so that none waits for another one.

    Cost: 0.2 s and the time to read it; a PDF takes a few ms per page. Raises AttachmentError, Cancelled.
    """
    reader = DocumentReader(_LIMITS)
    try:
        document = reader.read(path, cancelled)
    except ReadError as error:
        raise AttachmentError(error.message) from error
    finally:
        reader.close()
    text = "\n\n".join(_with_name(part) for part in document.parts)
    name = display_name(path)
    if document.kind == "pdf":
        return _bounded(Attachment(name, text, "pdf", document.n_parts))
    return _bounded(Attachment(name, text, "text"))


def _with_name(part: Part) -> str:
    """Return a part's text, below the name of its sheet, chapter or slide if it does not begin with it."""
    is_named = not part.name or part.text.lstrip("# ").startswith(part.name)
    return part.text if is_named else f"# {part.name}\n\n{part.text}"


def _bounded(attachment: Attachment) -> Attachment:
    text = attachment.text.strip("\n\f ")
    if not text.strip():
        raise AttachmentError(tr("{name} contains no text.", name=attachment.name))
    return replace(attachment, text=text[:MOST_CHARS])


# --- what is sent


def cut(attachment: Attachment, chars: int, kept_tokens: int, tokens: int) -> Attachment:
    """Return the first `chars` characters and a last line that says so; the attachment itself if all of it is kept."""
    if chars >= len(attachment.text):
        return attachment
    rest = f"\n[The rest is left out: {kept_tokens:,} of {tokens:,} tokens were taken.]"
    return replace(attachment, text=attachment.text[:chars].rstrip() + rest)


def cut_to(attached: Sequence[Attachment], count: CountResult | None) -> tuple[Attachment, ...]:
    """Return the beginnings that fit the context, as the engine counted; whole texts if it could not count."""
    if count is None or len(count.text_tokens) != len(attached):
        return tuple(attached)
    figures = zip(attached, count.text_kept_chars, count.text_kept_tokens, count.text_tokens, strict=True)
    return tuple(cut(one, chars, kept, tokens) for one, chars, kept, tokens in figures)


def kept_of(attachment: Attachment) -> tuple[int, int] | None:
    """Return (tokens kept, tokens of the whole) of a shortened attachment, else None."""
    found = _REST.search(attachment.text[-200:])
    return None if found is None else (int(found[1].replace(",", "")), int(found[2].replace(",", "")))
