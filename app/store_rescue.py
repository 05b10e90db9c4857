"""Saving what can be saved when the chats' file is damaged or cannot be written.

Never deletes and never changes the file that it was called for: it reads from a copy. How a sound file is opened is
app/store_file.py.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.conversation import MessageState, Role, title_from
from app.store_file import StoreError, check, connect, create, failures, finish_rescue, migrate, open_file, prepare

CONVERSATION_COLUMNS = "id, title, created_at, updated_at, deleted_at"
MESSAGE_COLUMNS = "id, conversation_id, position, role, text, created_at, state, stats"


@dataclass(frozen=True)
class RescueReport:
    """What was met when the chats were opened, and what came of it."""

    error: StoreError  # its kind says which trouble it was
    conversations: int  # copied over
    messages: int
    kept_aside: Path | None = None  # where the damaged file lies now
    in_memory: bool = False  # nothing can be written: what is said from now on is lost at the end


def open_or_restore(path: Path) -> tuple[sqlite3.Connection, RescueReport | None]:
    """The file, checked; a damaged one is replaced by what could be read of it and kept aside. Raises StoreError."""
    try:
        db = open_file(path)
        try:
            check(db, path)
        except BaseException:
            db.close()
            raise
        return db, None
    except StoreError as error:
        if error.kind != "damaged":
            raise
        report = _restore(path, error)
        return open_file(path), report


def open_in_memory(path: Path, error: StoreError) -> tuple[sqlite3.Connection, RescueReport]:
    """A store without a file, holding what can be read of the one that cannot be used."""
    db = connect(":memory:")
    prepare(db, None)
    counts = (0, 0)
    if error.kind in {"full", "read-only", "damaged"}:  # a newer file is not understood, a locked one is in motion
        with contextlib.suppress(StoreError):  # no room for the copy: `error` already tells of the trouble
            counts = _salvage(path, db)
    return db, RescueReport(error, *counts, in_memory=True)


def _restore(path: Path, error: StoreError) -> RescueReport:
    with failures(path):
        unfinished = path.with_name(path.name + ".new")
        unfinished.unlink(missing_ok=True)
        db = connect(str(unfinished))
        try:
            migrate(db, path)
            counts = _salvage(path, db)
        finally:
            db.close()
        unfinished.replace(path.with_name(path.name + ".rescued"))
        return RescueReport(error, *counts, kept_aside=finish_rescue(path))


def _salvage(path: Path, target: sqlite3.Connection) -> tuple[int, int]:
    """Copies every readable chat of a file into `target`; returns how many conversations and messages."""
    with failures(path), tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        copy = Path(folder) / "copy.db"
        for suffix in ("", "-wal"):
            part = path.with_name(path.name + suffix)
            if part.is_file():
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
        if not copy.exists():
            return 0, 0
        counts = _copied(copy, target)
        if counts == (0, 0):  # perhaps only the first page is lost, which is the same in every file of ours
            _replace_first_page(copy)
            counts = _copied(copy, target)
        return counts


def _copied(copy: Path, target: sqlite3.Connection) -> tuple[int, int]:
    source = connect(str(copy))
    try:
        source.execute("PRAGMA writable_schema = ON")  # else a truncated file is refused as a whole
        return copy_rows(source, target)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode not in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
            raise
        return 0, 0
    finally:
        source.close()


def _replace_first_page(copy: Path) -> None:
    pattern = copy.with_name("pattern.db")
    create(pattern)
    page = bytearray(pattern.read_bytes())
    size = int.from_bytes(page[16:18], "big")
    del page[size:]
    page[28:32] = (copy.stat().st_size // size).to_bytes(4, "big")  # pages in the file
    page[32:40] = bytes(8)  # no free pages
    copy.with_name(copy.name + "-wal").unlink(missing_ok=True)
    with copy.open("r+b") as file:
        file.write(page)


def copy_rows(source: sqlite3.Connection, target: sqlite3.Connection) -> tuple[int, int]:
    """Copies every readable row, over what `target` already has of it, in one transaction; returns what it then holds.

    Messages whose conversation is lost get a new one, titled after their first words.
    """
    target.execute("BEGIN IMMEDIATE")
    try:
        known: set[str] = set()
        for row in _readable_rows(source, "conversation", CONVERSATION_COLUMNS):
            if _is_conversation(row):
                known.add(row[0])
                target.execute(
                    f"INSERT INTO conversation ({CONVERSATION_COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO "
                    "UPDATE SET title = excluded.title, updated_at = excluded.updated_at, "
                    "deleted_at = excluded.deleted_at",
                    row,
                )
        orphaned: set[str] = set()
        for row in _readable_rows(source, "message", MESSAGE_COLUMNS):
            if _is_message(row):
                if row[1] not in known:
                    known.add(row[1])
                    orphaned.add(row[1])
                    target.execute(
                        f"INSERT OR IGNORE INTO conversation ({CONVERSATION_COLUMNS}) VALUES (?, '', ?, ?, NULL)",
                        (row[1], row[5], row[5]),
                    )
                _put_message(target, row)
        for conversation_id in orphaned:
            _name_orphans(target, conversation_id)
        counts = tuple(target.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("conversation", "message"))
        target.execute("COMMIT")
        return counts[0], counts[1]
    finally:
        if target.in_transaction:
            target.execute("ROLLBACK")


def _put_message(target: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    statement = (
        f"INSERT INTO message ({MESSAGE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO "
        "UPDATE SET text = excluded.text, state = excluded.state, stats = excluded.stats"
    )
    try:
        target.execute(statement, row)
    except sqlite3.IntegrityError:  # the place is taken, as a damaged file may have it: then the next free one
        last = target.execute("SELECT max(position) FROM message WHERE conversation_id = ?", (row[1],)).fetchone()[0]
        target.execute(statement, (*row[:2], last + 1, *row[3:]))


def _name_orphans(target: sqlite3.Connection, conversation_id: str) -> None:
    first, latest = target.execute(
        "SELECT (SELECT text FROM message WHERE conversation_id = ?1 AND role = 'user' ORDER BY position LIMIT 1), "
        "max(created_at) FROM message WHERE conversation_id = ?1",
        (conversation_id,),
    ).fetchone()
    target.execute(
        "UPDATE conversation SET title = ?, updated_at = ? WHERE id = ?",
        (title_from(first or ""), latest, conversation_id),
    )


def _is_time(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _is_conversation(row: tuple[Any, ...]) -> bool:
    id_, title, created_at, updated_at, deleted_at = row
    return (
        isinstance(id_, str)
        and isinstance(title, str)
        and _is_time(created_at)
        and _is_time(updated_at)
        and (deleted_at is None or _is_time(deleted_at))
    )


def _is_message(row: tuple[Any, ...]) -> bool:
    id_, conversation_id, position, role, text, created_at, state, stats = row
    return (
        isinstance(id_, str)
        and isinstance(conversation_id, str)
        and isinstance(position, int)
        and role in set(Role)
        and isinstance(text, str)
        and _is_time(created_at)
        and state in set(MessageState)
        and (stats is None or isinstance(stats, str))
    )


# ------------------------------------------------------------------ reading around damage


def _readable_rows(db: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """Every row of a table that can be read. Where a page cannot, reading goes on behind it."""
    query = f"SELECT rowid, {columns} FROM {table} WHERE rowid > ? ORDER BY rowid"
    after: int | None = 0
    while after is not None:
        try:
            for row in db.execute(query, (after,)):
                yield row[1:]
                after = max(after, row[0])
            return
        except sqlite3.DatabaseError:
            after = _behind_damage(db, query + " LIMIT 1", after)


_FARTHEST = 1 << 40  # rows; no file of ours has more


def _behind_damage(db: sqlite3.Connection, query: str, after: int) -> int | None:
    """The first row number behind which a row can be read again (or the table ends), or None."""

    def works(step: int) -> bool:
        try:
            db.execute(query, (after + step,)).fetchone()
        except sqlite3.DatabaseError:
            return False
        return True

    fails, step = 0, 1
    while not works(step):
        fails, step = step, 2 * step
        if step > _FARTHEST:
            return None
    while step - fails > 1:
        middle = (fails + step) // 2
        fails, step = (fails, middle) if works(middle) else (middle, step)
    return after + step
