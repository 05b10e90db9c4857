"""Full-text search in the chats' file: with a trigram index if SQLite has FTS5, else by reading all messages.

The index only says where a text may be; each candidate is read and compared. So an outdated, damaged or missing index
costs time, never a hit. It is updated in small steps and stores no text.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import unicodedata
from typing import Any

from app.text.block_parser import parse
from app.text.plain_text import Mark, block_text, fold, marks_in, places
from engine.text.thoughts import split

SNIPPET_LENGTH = 80
PIECE = 3  # letters in an index entry
MOST_PIECES = 24  # of a long search text; the comparison does the rest
AROUND = 300  # characters read as Markdown before and after a match for a snippet
MOST_TRIED = 5  # matches in Markdown syntax alone, before the snippet goes without a mark
STEP_CHARACTERS = 40_000  # added or removed in a step: about 25 ms
LONGEST_INDEXED = 300_000  # characters of a message with attachments; longer ones are read at every search

_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_MARKUP = re.compile(r"[*_`#|\[\]<>~\\$&]|^\s*(?:[-+]|\d+[.)])\s|^-{3,}|^={3,}", re.MULTILINE)

# Identifies the index's version: another Unicode table folds letters differently.
_MAKING = f"1, Unicode {unicodedata.unidata_version}"


class SearchIndex:
    """The index inside an open file. Callers hold the file's lock; writes are inside a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.create_function("said_in", 2, _said, deterministic=True)
        db.create_function("holds", 3, _holds, deterministic=True)
        self._usable = False
        with contextlib.suppress(sqlite3.Error):  # not created yet, another Unicode table, damaged, or no FTS5
            db.execute("SELECT rowid FROM search LIMIT 0")
            self._usable = db.execute("SELECT making FROM search_making").fetchone() == (_MAKING,)

    # --- keeping it

    def grow(self) -> bool:
        """Index some more messages. Returns False if all are indexed or this SQLite has no such index."""
        if not self._usable:
            try:
                self._make()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                    raise
                return False  # no FTS5, or one without trigrams
            self._usable = True
        rows = self._db.execute(
            "SELECT rowid, said_in(CAST(text AS BLOB), CAST(attachments AS BLOB)) FROM message "
            "WHERE rowid NOT IN (SELECT message FROM search_entry) AND state != 'writing' AND deleted_at IS NULL "
            "AND length(text) + coalesce(length(attachments), 0) <= ? ORDER BY rowid DESC",
            (LONGEST_INDEXED,),
        )
        step, is_all = _step(rows)
        self._db.executemany("INSERT INTO search (rowid, said) VALUES (?, ?)", step)
        self._db.executemany("INSERT INTO search_entry (message) VALUES (?)", [(rowid,) for rowid, _ in step])
        return not is_all

    def delete(self, condition: str, values: tuple[object, ...]) -> bool:
        """Remove messages from the index before their text changes. Returns True if one step was not enough."""
        if self._usable:
            try:
                return self._take_out(condition, values)
            except sqlite3.DatabaseError as error:
                self._give_up(error)
        self._db.execute("DROP TABLE IF EXISTS search_making")  # otherwise another Hearth would trust the rest of it
        return False

    def _take_out(self, condition: str, values: tuple[object, ...]) -> bool:
        rows = self._db.execute(
            "SELECT message.rowid, said_in(CAST(text AS BLOB), CAST(attachments AS BLOB)) FROM message "
            f"JOIN search_entry ON search_entry.message = message.rowid WHERE {condition}",
            values,
        )
        step, is_all = _step(rows)
        self._db.executemany("INSERT INTO search (search, rowid, said) VALUES ('delete', ?, ?)", step)
        self._db.executemany("DELETE FROM search_entry WHERE message = ?", [(rowid,) for rowid, _ in step])
        return not is_all

    def _give_up(self, error: sqlite3.DatabaseError) -> None:
        """Stop using a damaged index; `grow` rebuilds it. Damage to the chats shows up without it."""
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise error
        self._usable = False

    def drop(self) -> None:
        """Delete the index; `grow` rebuilds it."""
        self._usable = False
        for table in ("search", "search_entry", "search_making"):
            self._db.execute(f"DROP TABLE IF EXISTS {table}")

    def _make(self) -> None:
        self.drop()
        self._db.execute(
            "CREATE VIRTUAL TABLE search USING fts5 "
            "(said, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1')"
        )
        self._db.execute("CREATE TABLE search_entry (message INTEGER PRIMARY KEY)")  # indexed rows
        self._db.execute("CREATE TABLE search_making (making TEXT NOT NULL)")
        self._db.execute("INSERT INTO search_making VALUES (?)", (_MAKING,))

    # --- queries

    def find(self, needle: str, limit: int, head: str) -> list[tuple[Any, ...]]:
        """Return the columns `head` of conversations with the folded text, newest first, and of each its newest
        matching message: id and text, or None twice if only the title matches."""
        if self._usable and len(needle) >= PIECE:
            try:
                return self._found(needle, limit, head, indexed=True)
            except sqlite3.DatabaseError as error:
                self._give_up(error)
        return self._found(needle, limit, head, indexed=False)

    def _found(self, needle: str, limit: int, head: str, indexed: bool) -> list[tuple[Any, ...]]:
        candidates = "" if not indexed else (
            "WITH candidate AS (SELECT rowid AS number FROM search WHERE search MATCH :pieces UNION ALL "
            "SELECT rowid FROM message WHERE rowid NOT IN (SELECT message FROM search_entry)) "
        )  # fmt: skip
        among = "AND message.rowid IN (SELECT number FROM candidate) " if indexed else ""
        return self._db.execute(
            f"{candidates}SELECT {head}, message_id, (SELECT said_in(CAST(text AS BLOB), CAST(attachments AS BLOB)) "
            "FROM message WHERE message.id = message_id), (SELECT role FROM message WHERE message.id = message_id) "
            f"FROM (SELECT {head}, rowid AS age, (SELECT id FROM message WHERE conversation_id = conversation.id "
            f"AND message.deleted_at IS NULL {among}"
            "AND holds(CAST(text AS BLOB), CAST(attachments AS BLOB), :needle) "
            "ORDER BY position DESC LIMIT 1) AS message_id FROM conversation WHERE deleted_at IS NULL) "
            "WHERE message_id IS NOT NULL OR holds(CAST(title AS BLOB), NULL, :needle) "
            "ORDER BY updated_at DESC, age DESC LIMIT :limit",
            {"needle": needle, "limit": limit, "pieces": _pieces(needle)},
        ).fetchall()


def _step(rows: sqlite3.Cursor) -> tuple[list[tuple[int, str]], bool]:
    """Return rows with their indexed text, as many as fit a step, and whether these are all."""
    step: list[tuple[int, str]] = []
    taken = 0
    for rowid, said in rows:
        step.append((rowid, _indexed(said)))
        taken += len(said) + 100
        if taken >= STEP_CHARACTERS:
            rows.close()
            return step, False
    return step, True


def _pieces(needle: str) -> str:
    """Return the FTS5 query that a text with the needle must match."""
    needle = _indexed(needle)
    last = len(needle) - PIECE
    places = range(last + 1) if last < MOST_PIECES else (last * n // MOST_PIECES for n in range(MOST_PIECES + 1))
    pieces = {needle[at : at + PIECE].replace('"', '""') for at in places}
    return " AND ".join(f'"{piece}"' for piece in sorted(pieces))


def _indexed(text: str) -> str:
    return fold(text).replace("\0", "\ufffd")  # FTS5 takes a zero as the end


# SQLite passes bytes, as it refuses to pass broken text.


def _said(text: bytes, attachments: bytes | None) -> str:
    said = text.decode("utf-8", "replace")
    if attachments:
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # damage; the chat shows it
            said = "\n".join((said, *(f"{one['name']}\n{one['text']}" for one in json.loads(attachments))))
    return said


def _holds(text: bytes, attachments: bytes | None, needle: str) -> bool:
    return needle in fold(_said(text, attachments))


# --- what is shown of a hit


def snippet(text: str, needle: str, is_answer: bool = False) -> tuple[str, tuple[Mark, ...]]:
    """Return about SNIPPET_LENGTH characters around the first match in one line, with … where it was cut, and the marks
    in it. For an answer: its plain text; no mark if only its Markdown matches."""
    text = unicodedata.normalize("NFC", _passage(text, needle) if is_answer else text)
    start, behind = next(places(text, needle), (0, 0))
    begin = max(0, start - (SNIPPET_LENGTH - len(needle)) // 2)
    if begin and (space := text.find(" ", begin, start)) >= 0:
        begin = space + 1
    end = min(len(text), begin + SNIPPET_LENGTH)
    if end < len(text) and (space := text.rfind(" ", behind, end)) >= 0:
        end = space
    cut = ("…" if begin else "") + " ".join(text[begin:end].split()) + ("…" if end < len(text) else "")
    return cut, marks_in(cut, " ".join(needle.split()))


def _passage(text: str, needle: str) -> str:
    """Return the plain text around the first match of an answer that still matches without Markdown.

    The answer comes before the thought. If only Markdown matches: the text around the first match.
    """
    reply = split(text)
    around = ""
    for part, is_markdown in ((reply.answer, True), (reply.thought, False)):
        behind = tried = 0
        for start, end in places(part, needle):
            if start < behind:
                continue
            begin, behind = _bounds(part, start, end)
            words = _words(part, begin, behind) if is_markdown else part[begin:behind]
            if needle in fold(" ".join(words.split())):
                return words
            around, tried = around or words, tried + 1
            if tried == MOST_TRIED:
                break
    return around or _words(reply.answer, 0, SNIPPET_LENGTH)


def _bounds(text: str, start: int, end: int) -> Mark:
    """Return the passage around a match: its paragraph, at most AROUND characters on each side."""
    first, last = max(start - AROUND, 0), min(end + AROUND, len(text))
    if (gap := text.rfind("\n\n", first, start)) >= 0:
        first = gap + 2
    elif first and (space := max(text.find(" ", first, start), text.find("\n", first, start))) >= 0:
        first = space + 1
    gap = text.find("\n\n", end, last)
    return first, gap if gap >= 0 else last


def _words(text: str, begin: int, end: int) -> str:
    """Return the plain text of part of a Markdown text; code stays as it is."""
    passage = text[begin:end]
    if not _MARKUP.search(passage) or len(_FENCE.findall(text, 0, begin)) % 2:
        return passage
    return "\n".join(block_text(block) for block in parse(passage))
