"""Words for folders of documents and for sources."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from app.text.markdown_blocks import displayable
from app.translation import figure, tr, tr_n

if TYPE_CHECKING:
    from app.chat.store.conversation import Attachment
    from app.documents.indexing import FolderState

_WITHOUT_LINES = (".docx", ".docm", ".odt", ".html", ".htm", ".xhtml")
_SLIDES, _SHEETS = (".pptx", ".pptm", ".odp"), (".xlsx", ".xlsm", ".ods")
_NAMED = re.compile(r"\((.*)\)$", re.DOTALL)  # the end of Source.label: the name of the part


def name_of(folder: str) -> str:
    """Return a folder's name, in one line."""
    return _line(os.path.basename(folder) or folder)


def state_of(state: FolderState, is_paused: bool) -> str:
    """Return a folder's state: how many documents it has, or how many of them have been read."""
    if not state.is_there:
        return tr("Not available")
    read = state.n_files + state.n_failed
    if state.n_waiting:
        of = {"n": figure(read), "total": figure(read + state.n_waiting)}
        return tr("Paused at {n} of {total}", **of) if is_paused else tr("Reading {n} of {total}", **of)
    return tr_n("{n} document", "{n} documents", state.n_files, n=figure(state.n_files))


def failed_of(state: FolderState) -> str:
    """Return how many documents of a folder could not be read; empty if none."""
    n = state.n_failed
    return tr_n("{n} could not be read", "{n} could not be read", n, n=figure(n)) if n else ""


def place_of(source: Attachment) -> str:
    """Return where in its document a source is: "page 3", "line 12", "whole text". Empty where programs show the
    document without lines.
    """
    place = source.source
    if place is None or not place.part:
        return tr("whole text")
    suffix = os.path.splitext(place.path)[1].casefold()
    named = _NAMED.search(place.label)
    if suffix == ".pdf":
        return tr("page {n}", n=place.part)
    if suffix in _SLIDES:
        return tr("slide {n}", n=place.part)
    if suffix in _SHEETS:
        return tr("sheet {name}", name=_line(named[1])) if named else tr("sheet {n}", n=place.part)
    if suffix == ".epub":
        return _line(named[1]) if named else tr("chapter {n}", n=place.part)
    return "" if suffix in _WITHOUT_LINES or not place.line else tr("line {n}", n=place.line)


def source_words(source: Attachment) -> str:
    """Return a source in words: "[1] contract.pdf, page 3"."""
    number = source.source.number if source.source is not None else 0
    return f"[{number}] " + ", ".join(part for part in (_line(source.name), place_of(source)) if part)


def _line(text: str) -> str:
    return " ".join(displayable(text).split())
