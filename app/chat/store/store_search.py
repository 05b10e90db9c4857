"""Finding text in the chats' file: by an index of three-letter pieces where SQLite has FTS5, else by reading them all.

The index only says where the text may be; what is found was read and compared, so that an index that is behind, broken
or missing costs time and never a hit. It grows in small steps that store.py is asked for, and holds no text.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import sqlite3
import unicodedata
from typing import Any

SNIPPET_LENGTH = 80
PIECE = 3  # letters: what the index knows
MOST_PIECES = 24  # of a long text that is looked for; the rest is left to the comparison
STEP_CHARACTERS = 40_000  # taken in, or out, in one step: about 25 ms
LONGEST_INDEXED = 300_000  # characters of a message with its attachments; a longer one is read at every search

# What the index was made by: another Unicode table folds letters differently.
_MAKING = f"1, Unicode {unicodedata.unidata_version}"

Mark = tuple[int, int]  # from a character to the one behind its last


def fold(text: str) -> str:
    """The text as it is compared: upper and lower case alike, accents put together with their letters."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


class SearchIndex:
    """The index inside one open file. Whoever calls it holds the file's lock; what writes is inside a transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        db.create_function("said_in", 2, _said, deterministic=True)
        db.create_function("holds", 3, _holds, deterministic=True)
        self._usable = False
        with contextlib.suppress(sqlite3.Error):  # not made yet, made by another Unicode table, broken, or no FTS5 here
            db.execute("SELECT rowid FROM search LIMIT 0")
            self._usable = db.execute("SELECT making FROM search_making").fetchone() == (_MAKING,)

    # -------------------------------------------------------------- keeping it

    def grow(self) -> bool:
        """Takes in some of what it does not know; False when it knows all, or when this SQLite has no such index."""
        if not self._usable:
            try:
                self._make()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                    raise
                return False  # no FTS5 in it, or one without trigrams
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

    def forget(self, condition: str, values: tuple[object, ...]) -> bool:
        """Takes those messages out, to be called before their text changes or goes; True when a step was not enough."""
        if self._usable:
            try:
                return self._take_out(condition, values)
            except sqlite3.DatabaseError as error:
                self._give_up(error)
        self._db.execute("DROP TABLE IF EXISTS search_making")  # else another Hearth would believe what is left of it
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
        """A broken index is not used any more, and `grow` makes it anew. Damage to the chats shows without it."""
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise error
        self._usable = False

    def drop(self) -> None:
        """Throws the index away; `grow` makes it anew."""
        self._usable = False
        for table in ("search", "search_entry", "search_making"):
            self._db.execute(f"DROP TABLE IF EXISTS {table}")

    def _make(self) -> None:
        self.drop()
        self._db.execute(
            "CREATE VIRTUAL TABLE search USING fts5 "
            "(said, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1')"
        )
        self._db.execute("CREATE TABLE search_entry (message INTEGER PRIMARY KEY)")  # rows of it that are taken in
        self._db.execute("CREATE TABLE search_making (making TEXT NOT NULL)")
        self._db.execute("INSERT INTO search_making VALUES (?)", (_MAKING,))

    # -------------------------------------------------------------- asking it

    def find(self, needle: str, limit: int, head: str) -> list[tuple[Any, ...]]:
        """The columns `head` of the conversations that hold the folded text, newest first, and of each the newest
        message that does: its id and what is said in it, or None twice where only the title does."""
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
            "FROM message WHERE message.id = message_id) "
            f"FROM (SELECT {head}, rowid AS age, (SELECT id FROM message WHERE conversation_id = conversation.id "
            f"AND message.deleted_at IS NULL {among}"
            "AND holds(CAST(text AS BLOB), CAST(attachments AS BLOB), :needle) "
            "ORDER BY position DESC LIMIT 1) AS message_id FROM conversation WHERE deleted_at IS NULL) "
            "WHERE message_id IS NOT NULL OR holds(CAST(title AS BLOB), NULL, :needle) "
            "ORDER BY updated_at DESC, age DESC LIMIT :limit",
            {"needle": needle, "limit": limit, "pieces": _pieces(needle)},
        ).fetchall()


def _step(rows: sqlite3.Cursor) -> tuple[list[tuple[int, str]], bool]:
    """Rows with their text as it is indexed, as many as make a step, and whether these are all."""
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
    """What a text that holds the needle must have, in FTS5's words."""
    needle = _indexed(needle)
    last = len(needle) - PIECE
    places = range(last + 1) if last < MOST_PIECES else (last * n // MOST_PIECES for n in range(MOST_PIECES + 1))
    pieces = {needle[at : at + PIECE].replace('"', '""') for at in places}
    return " AND ".join(f'"{piece}"' for piece in sorted(pieces))


def _indexed(text: str) -> str:
    return fold(text).replace("\0", "\ufffd")  # FTS5 takes a zero for the end


# SQLite hands these functions bytes, as it refuses to hand over broken text.


def _said(text: bytes, attachments: bytes | None) -> str:
    said = text.decode("utf-8", "replace")
    if attachments:
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # damage; the chat shows it
            said = "\n".join((said, *(f"{one['name']}\n{one['text']}" for one in json.loads(attachments))))
    return said


def _holds(text: bytes, attachments: bytes | None, needle: str) -> bool:
    return needle in fold(_said(text, attachments))


# ------------------------------------------------------------------ what is shown of a hit


def marks_in(text: str, needle: str) -> tuple[Mark, ...]:
    """The places in a short text that hold the folded needle, none over another."""
    folded = fold(text)
    at = folded.find(needle) if needle else -1
    if at < 0:
        return ()
    owners = [piece for piece in _pieces_of(text) for _ in fold(text[piece[0] : piece[1]])]
    if len(owners) != len(folded):  # letters that join with their neighbours in a way of their own
        return ()
    marks = []
    while at >= 0:
        end = at + len(needle)
        marks.append((owners[at][0], owners[end - 1][1]))
        at = folded.find(needle, end)
    return tuple(marks)


def _pieces_of(text: str) -> list[Mark]:
    """A text in the smallest pieces that fold by themselves: a letter with the accents on it."""
    starts = [0]
    for at in range(1, len(text)):
        before, letter = text[starts[-1] : at], text[at]
        if not unicodedata.combining(letter) and fold(before + letter) == fold(before) + fold(letter):
            starts.append(at)
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


def snippet(text: str, needle: str) -> tuple[str, tuple[Mark, ...]]:
    """About SNIPPET_LENGTH characters around the first place, in one line, with … where it was cut; the marks in it."""
    text = unicodedata.normalize("NFC", text)
    folded = fold(text)
    at = folded.index(needle)
    if len(folded) == len(text):
        start = at
    else:  # one letter may fold to several (ß to ss): the last beginning that folds to no more than what is before
        start = bisect.bisect_right(range(len(text) + 1), at, key=lambda end: len(text[:end].casefold())) - 1
    begin = max(0, start - (SNIPPET_LENGTH - len(needle)) // 2)
    if begin and (space := text.find(" ", begin, start)) >= 0:
        begin = space + 1
    end = min(len(text), begin + SNIPPET_LENGTH)
    if end < len(text) and (space := text.rfind(" ", start + len(needle), end)) >= 0:
        end = space
    cut = ("…" if begin else "") + " ".join(text[begin:end].split()) + ("…" if end < len(text) else "")
    return cut, marks_in(cut, " ".join(needle.split()))
