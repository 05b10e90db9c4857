"""Saves what can be saved if the chats' file is damaged or cannot be written.

It reads a copy and never deletes or changes the file itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.chat.store.conversation import MessageState, Role, ToolCall, new_id, title_from
from app.chat.store.store_file import (
    CONVERSATION_COLUMNS,
    LATER_COLUMNS,
    MESSAGE_COLUMNS,
    connect,
    connect_private,
    copy_to_go_back_to,
    create,
    failures,
    finish_rescue,
    migrate,
    open_file,
    prepare,
)
from app.errors import RescueReport, StoreError

_MAX_TEXT_BYTES = 64 << 20  # no message of ours is longer


def open_or_restore(path: Path) -> tuple[sqlite3.Connection, RescueReport | None]:
    """Open and check the file. A damaged one is renamed and replaced by what could be read. Raises StoreError."""
    try:
        return open_file(path, checked=True), None
    except StoreError as error:
        if error.kind != "damaged":
            raise
        return restore(path, error)


def open_in_memory(path: Path, error: StoreError) -> tuple[sqlite3.Connection, RescueReport]:
    """Return a store in memory with what can be read of an unusable file."""
    db = connect(":memory:")
    prepare(db, None)
    counts = (0, 0)
    if error.kind in {"full", "read-only", "damaged"}:  # a newer file is not understood, a locked one is changing
        with contextlib.suppress(StoreError):  # no space for the copy: `error` already reports it
            counts = _salvage(path, db)
    copy = copy_to_go_back_to(path) if error.kind == "newer" else None
    return db, RescueReport(error, *counts, kept_aside=copy, in_memory=True)


def use_copy(path: Path) -> Path:
    """Put the copy from before the last migration in the file's place, and rename the file. Returns its new name.

    Raises StoreError if there is none. A power failure loses neither file.
    """
    with failures(path):
        copy = copy_to_go_back_to(path)
        if copy is None:
            raise StoreError("newer", "There is no copy from before.", path)
        unfinished = path.with_name(path.name + ".new")
        unfinished.unlink(missing_ok=True)
        shutil.copy2(copy, unfinished)
        unfinished.replace(path.with_name(path.name + ".rescued"))
        aside = finish_rescue(path)
        assert aside is not None, "it was there"
        return aside


def restore(path: Path, error: StoreError) -> tuple[sqlite3.Connection, RescueReport]:
    """Copy what can be read to a new file in its place, and rename the old one. Raises StoreError."""
    with failures(path):
        unfinished = path.with_name(path.name + ".new")
        unfinished.unlink(missing_ok=True)
        db = connect_private(unfinished)
        try:
            migrate(db, path)
            counts = _salvage(path, db)
        finally:
            db.close()
        unfinished.replace(path.with_name(path.name + ".rescued"))
        report = RescueReport(error, *counts, kept_aside=finish_rescue(path))
    return open_file(path), report


def _salvage(path: Path, target: sqlite3.Connection) -> tuple[int, int]:
    """Copy every readable chat of a file to `target`. Returns the numbers of conversations and messages."""
    with failures(path), tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        copy = Path(folder) / "copy.db"
        for suffix in ("", "-wal"):
            part = path.with_name(path.name + suffix)
            if part.is_file():
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
        if not copy.exists():
            return 0, 0
        counts = _copied(copy, target)
        if 0 in counts or not _lists_tables(copy):  # the first page; the needed part is the same in all our files
            _replace_first_page(copy)
            counts = _copied(copy, target)
        return counts


def _copied(copy: Path, target: sqlite3.Connection) -> tuple[int, int]:
    source = connect(str(copy))
    try:
        source.execute("PRAGMA writable_schema = ON")  # otherwise a truncated file is rejected as a whole
        source.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_TEXT_BYTES)  # a damaged length would fill the memory
        return copy_rows(source, target)
    finally:
        source.close()


def _lists_tables(copy: Path) -> bool:
    source = connect(str(copy))
    try:
        found = {name for (name,) in source.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except _DAMAGE:
        return False
    finally:
        source.close()
    return found >= {"conversation", "message"}


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
    """Copy every readable row over those of `target` in one transaction. Returns what `target` then holds.

    Messages of a lost conversation get a new one, titled by their first words. A message with a lost parent follows the
    one before it in the file.
    """
    target.execute("BEGIN IMMEDIATE")
    try:
        known: set[str] = set()
        for row in _readable_rows(source, "conversation", CONVERSATION_COLUMNS):
            if _is_conversation(row):
                known.add(row[0])
                target.execute(_PUT_CONVERSATION, _mended_head(row))
        orphaned: set[str] = set()
        for found in _readable_rows(source, "message", MESSAGE_COLUMNS):
            message = _mended_message(found)
            if message is None:
                continue
            conversation_id, created_at = message[1], message[5]
            if conversation_id not in known:
                known.add(conversation_id)
                orphaned.add(conversation_id)
                target.execute(
                    "INSERT OR IGNORE INTO conversation (id, title, created_at, updated_at) VALUES (?, '', ?, ?)",
                    (conversation_id, created_at, created_at),
                )
            _put_message(target, message)
        for message_id, data in _readable_rows(source, "inspection", "message_id, data"):
            if isinstance(message_id, str) and isinstance(data, bytes):
                target.execute(
                    "INSERT OR REPLACE INTO inspection (message_id, data) SELECT id, ? FROM message WHERE id = ?",
                    (data, message_id),
                )
        for name, text in _readable_rows(source, "note", "name, text"):
            if isinstance(name, str) and isinstance(text, str):
                target.execute("INSERT OR REPLACE INTO note (name, text) VALUES (?, ?)", (name, text))
        for conversation_id in orphaned:
            _name_orphans(target, conversation_id)
        target.execute(
            "UPDATE message SET parent = NULL WHERE parent != '' AND NOT EXISTS (SELECT 1 FROM message AS one "
            "WHERE one.id = message.parent AND one.conversation_id = message.conversation_id "
            "AND one.position < message.position)"
        )
        counts = tuple(target.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("conversation", "message"))
        target.execute("COMMIT")
        return counts[0], counts[1]
    finally:
        if target.in_transaction:
            target.execute("ROLLBACK")


def _upsert(table: str, columns: str, *kept: str) -> str:
    names = columns.split(", ")
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in {"id", *kept})
    places = ", ".join("?" for _ in names)
    return f"INSERT INTO {table} ({columns}) VALUES ({places}) ON CONFLICT (id) DO UPDATE SET {changed}"


_PUT_CONVERSATION = _upsert("conversation", CONVERSATION_COLUMNS)
_PUT_MESSAGE = _upsert("message", MESSAGE_COLUMNS, "conversation_id", "position", "role", "created_at")


def _put_message(target: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    try:
        target.execute(_PUT_MESSAGE, row)
    except sqlite3.IntegrityError:  # the position is taken, as in a damaged file: use the next free one
        last = target.execute("SELECT max(position) FROM message WHERE conversation_id = ?", (row[1],)).fetchone()[0]
        target.execute(_PUT_MESSAGE, (*row[:2], last + 1, *row[3:]))


def _name_orphans(target: sqlite3.Connection, conversation_id: str) -> None:
    first, latest = target.execute(
        "SELECT (SELECT text FROM message WHERE conversation_id = :chat AND role = 'user' ORDER BY position LIMIT 1), "
        "max(created_at) FROM message WHERE conversation_id = :chat",
        {"chat": conversation_id},
    ).fetchone()
    target.execute(
        "UPDATE conversation SET title = ?, updated_at = ? WHERE id = ?",
        (title_from(first or ""), latest, conversation_id),
    )


def _is_time(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _is_conversation(row: tuple[Any, ...]) -> bool:
    id_, title, created_at, updated_at, deleted_at = row[:5]
    return (
        isinstance(id_, str)
        and isinstance(title, str)
        and _is_time(created_at)
        and _is_time(updated_at)
        and (deleted_at is None or _is_time(deleted_at))
    )


def _mended_head(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a conversation with damaged fields other than title and times repaired."""
    *first, pinned, folder, leaf, draft, choices, queued = row
    texts = (text if isinstance(text, str) else "" for text in (folder, leaf, draft))
    return (*first, pinned == 1, *texts, *(one if _is_json(one, dict) else None for one in (choices, queued)))


def _mended_message(row: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return a message with damaged fields other than its text repaired; None if text or position is lost."""
    id_, conversation_id, position, role, text, created_at, state, stats, parent, attachments, deleted_at, calls = row
    if not (isinstance(conversation_id, str) and isinstance(position, int) and isinstance(text, str)):
        return None
    return (
        id_ if isinstance(id_, str) else new_id(),
        conversation_id,
        position,
        role if role in set(Role) else Role.ASSISTANT,
        text,
        created_at if _is_time(created_at) else 0.0,
        state if state in set(MessageState) else MessageState.COMPLETE,
        stats if _is_json(stats, dict) else None,
        parent if isinstance(parent, str) else None,
        attachments if _is_json(attachments, list) else None,
        deleted_at if _is_time(deleted_at) else None,
        calls if _are_calls(calls) else None,
    )


def _are_calls(text: object) -> bool:
    try:
        return _is_json(text, list) and all(ToolCall.from_dict(one) for one in json.loads(str(text)))
    except (TypeError, ValueError):
        return False


def _is_json(text: object, kind: type) -> bool:
    try:
        return isinstance(json.loads(text), kind) if isinstance(text, str) else False
    except (ValueError, RecursionError):
        return False


# --- reading around damage


# SQLite's own errors, and: a broken name in an error's text, a length beyond all memory.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)
_FARTHEST = 1 << 40  # rows; no file of ours has more


def _there(db: sqlite3.Connection, table: str, columns: str) -> str:
    """Return the columns, with NULL for those that files of earlier versions lack."""
    try:
        found = {name for _, name, *_ in db.execute(f"PRAGMA table_info ({table})")}
    except _DAMAGE:
        return columns
    return ", ".join(name if name in found or name not in LATER_COLUMNS else "NULL" for name in columns.split(", "))


def _readable_rows(db: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield every readable row of a table, one query for each, so that a damaged row does not affect others.

    Where rows cannot be read, the next readable one is found by doubling and halving the distance.
    """
    query = f"SELECT rowid, {_there(db, table, columns)} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT 1"

    def behind(number: int) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = db.execute(query, (number,)).fetchone()
        if row is not None and row[0] <= number:
            raise sqlite3.DatabaseError("the pages form a cycle")
        return row

    def works(number: int) -> bool:
        try:
            behind(number)
        except _DAMAGE:
            return False
        return True

    after = 0
    while True:
        try:
            row = behind(after)
        except _DAMAGE:
            fails, step = 0, 1
            while not works(after + step):
                fails, step = step, 2 * step
                if step > _FARTHEST:
                    return
            while step - fails > 1:
                middle = (fails + step) // 2
                fails, step = (fails, middle) if works(after + middle) else (middle, step)
            after += step
            row = behind(after)
        if row is None:
            return
        yield row[1:]
        after = row[0]
