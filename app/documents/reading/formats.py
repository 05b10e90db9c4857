"""Recognizes a file's kind by its bytes, and reads it. Runs in the child process (reading_process.py)."""

from __future__ import annotations

from app.documents.reading import pdf, plain_text
from app.documents.reading.document import Document, Read, TextLimit, Unreadable


def read(data: bytes, suffix: str, limit: TextLimit) -> Document:
    """Return a file's text. suffix: the end of its name, in lower case. Raises Unreadable."""
    if not data.strip():
        raise Unreadable("empty")
    document = _reader_for(data, suffix)(data, limit)
    if not document.parts:
        raise Unreadable("empty")
    return document


def _reader_for(data: bytes, suffix: str) -> Read:
    if b"%PDF-" in data[:1024]:
        return pdf.read
    return plain_text.read
