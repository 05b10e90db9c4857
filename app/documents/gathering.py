"""Choose what of the documents goes along with a question: whole texts where they fit, else passages. No Qt."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.chat.store.conversation import Attachment, Source
from app.documents.index_file import Found, IndexedFile, IndexFile
from app.documents.index_words import weight
from app.documents.reading.reader import display_name
from app.documents.search import Asked, search

MOST_FILES = 5
_MOST_PASSAGE_CHARS = 16_000  # of all passages with a question; more dilutes what is asked
_FRAME_CHARS = 100  # around each text: its number, name and place
_LONGEST_QUESTION = 10_000  # characters in which names of files are looked for
_WHOLE_SHARE = 0.7  # of the free context that whole documents may take
_PARTS = {"pdf": "page", "pptx": "slide", "odp": "slide", "xlsx": "sheet", "ods": "sheet", "epub": "chapter"}
_PASSAGE_SHARE = 0.5  # of it that passages may take


@dataclass(frozen=True)
class Given:
    """Document texts in earlier messages. whole: texts of whole documents by path. passages: (path, part, line).
    n: how many.
    """

    whole: Mapping[str, str] = field(default_factory=dict)
    passages: frozenset[tuple[str, int, int]] = frozenset()
    n: int = 0

    @classmethod
    def by(cls, attachments: Sequence[Attachment]) -> Given:
        """Return what these attachments of earlier messages give."""
        found = [(one.source, one.text) for one in attachments if one.source is not None]
        return cls(
            {source.path: text for source, text in found if not source.part},
            frozenset((source.path, source.part, source.line) for source, _ in found if source.part),
            max((source.number for source, _ in found), default=0),
        )


def gathered(
    index: IndexFile,
    question: str,
    files: Collection[IndexedFile],
    space: int,
    given: Given,
    asked: Asked | None = None,
) -> list[Attachment]:
    """Return attachments for a question, numbered on from those that were given. Raises: sqlite3.Error.

    files: to choose from. space: free characters of the context, as index_words.weight counts them.
    """
    new = [one for one in files if one.chars and not _is_given(index, one, given)]
    if not new:
        return []
    if sum(map(_taken, new)) <= space * _WHOLE_SHARE:
        whole = sorted(new, key=lambda one: one.path)
        return [_whole(index, one, number) for number, one in enumerate(whole, given.n + 1)]
    found: list[Attachment] = []
    left, words = space, question[:_LONGEST_QUESTION].casefold()
    for one in new:
        if _is_named(one.path, words) and _taken(one) <= left * _WHOLE_SHARE:
            found.append(_whole(index, one, given.n + len(found) + 1))
            left -= _taken(one)
    there = {one.source.path for one in found if one.source is not None}
    left = min(int(left * _PASSAGE_SHARE), _MOST_PASSAGE_CHARS)
    within = {one.id for one in new if one.path not in there}
    for hit in search(index, question, within, MOST_FILES, asked):
        for pieces in _with_neighbours(index, hit.passages, left // 2):
            first, text = pieces[0], "".join(one.passage.text for one in pieces).strip()
            place = (hit.path, first.passage.part, first.passage.line)
            if weight(text) > left or place in given.passages:
                continue
            left -= weight(text)
            found.append(_passage(first, text, given.n + len(found) + 1))
    return found


def _is_given(index: IndexFile, file: IndexedFile, given: Given) -> bool:
    """Whether a whole document was given as it is now."""
    return file.path in given.whole and given.whole[file.path] == _text(index, file)


def _taken(file: IndexedFile) -> int:
    """Return what a whole document takes of the context, with the lines around it."""
    return file.chars + weight(os.path.basename(file.path)) + _FRAME_CHARS


def _is_named(path: str, words: str) -> bool:
    """Whether a casefolded question names a file: by its whole name, or by its stem if that is not a common word.

    Cost: 50,000 files take 0.13 s with a short question, and 0.3 s with a long one.
    """
    name = os.path.basename(path).casefold()
    stem = os.path.splitext(name)[0]
    if stem not in words:
        return False
    distinct = len(stem) >= 5 and re.search(r"[\d_\-. ]", stem) is not None
    return name in words or (distinct and re.search(rf"(?<!\w){re.escape(stem)}(?!\w)", words) is not None)


def _whole(index: IndexFile, file: IndexedFile, number: int) -> Attachment:
    text = _text(index, file)
    n_pages = file.n_parts if file.kind == "pdf" else 0
    return Attachment(
        display_name(Path(file.path)), text, "document", n_pages, Source(number, file.path, label="the whole text")
    )


def _text(index: IndexFile, file: IndexedFile) -> str:
    parts: dict[int, str] = {}
    for one in index.passages(file.id):
        parts[one.passage.part] = parts.get(one.passage.part, "") + one.passage.text
    return "\n\n".join(text.strip() for text in parts.values())


def _passage(first: Found, text: str, number: int) -> Attachment:
    one, file = first.passage, first.file
    word = _PARTS.get(file.kind)
    label = f"{word} {one.part}" if word else f"line {one.line}"
    source = Source(number, file.path, one.part, one.line, f"{label} ({one.name})" if one.name else label)
    return Attachment(display_name(Path(file.path)), text, "document", source=source)


def _with_neighbours(index: IndexFile, passages: Sequence[Found], most: int) -> list[list[Found]]:
    """Return runs of neighbouring passages of one file: each passage found, with the one before it and after it.

    most: characters of all runs. The best passages come first; runs that touch are joined.
    """
    best, places, chars = passages[:3], set[int](), 0
    for one in best:
        around = index.passages(one.file.id, one.place - 1, one.place + 1)
        around = [near for near in around if near.passage.part == one.passage.part and near.place not in places]
        if chars + sum(len(near.passage.text) for near in around) > most:
            around = [near for near in around if near.place == one.place]
        if chars and chars + sum(len(near.passage.text) for near in around) > most:
            break
        places |= {near.place for near in around}
        chars += sum(len(near.passage.text) for near in around)
    runs: list[list[Found]] = []
    for place in sorted(places):
        for near in index.passages(best[0].file.id, place, place):
            follows = bool(runs) and runs[-1][-1].place == place - 1
            if follows and runs[-1][-1].passage.part == near.passage.part:
                runs[-1].append(near)
            else:
                runs.append([near])
    return runs
