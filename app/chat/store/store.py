"""The chats in their SQLite file. Each call is one transaction; failures are StoreErrors.

Synchronous, without Qt; operations.py runs it in the background. See also store_file.py (the file itself),
store_rescue.py and store_search.py. If the program is killed, no call that had returned is lost.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.chat.store.chat_files import plain
from app.chat.store.conversation import (
    Attachment,
    BinnedChat,
    Conversation,
    Message,
    MessageState,
    Role,
    SearchHit,
    Staged,
    ToolCall,
    Unsent,
    WholeChat,
)
from app.chat.store.store_file import (
    BATCH_CACHE_KB,
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    failures,
    open_batch,
    open_file,
)
from app.chat.store.store_rescue import copy_rows, open_in_memory, open_or_restore, restore, use_copy
from app.chat.store.store_search import SearchIndex, snippet
from app.errors import RescueReport, StoreError, StoreErrorKind
from app.text.plain_text import fold, marks_in

__all__ = ["RescueReport", "Store", "StoreError", "StoreErrorKind"]

_HEAD = "id, title, created_at, updated_at, pinned, folder, leaf, draft, choices, queued"
_PUT_HEAD = f"INSERT INTO conversation ({_HEAD}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MESSAGE = "id, role, text, created_at, state, stats, parent, attachments, calls"
_PUT_MESSAGE = (
    f"INSERT INTO message ({_MESSAGE}, conversation_id, position) VALUES "
    "(:id, :role, :text, :created_at, :state, :stats, :parent, :attachments, :calls, :chat, :position)"
)
# The deleted_at of chats that are being imported: nobody sees them, emptying the bin leaves them, and the next start
# removes those of an import that did not end.
_STAGED = 1.0
_DAY_S = 24 * 3600
_STARTS = "starts"  # the note of the first start on each of the last two days with one
_EDIT = "edit:"  # begins the names of notes of edits; a message's id follows
_IS_EDIT = f"name LIKE '{_EDIT}%'"
_DROPPED_AT_ONCE = 200  # chats, in one transaction


class Store:
    """Conversations and messages on disk, or in memory if `in_memory` is True. Thread-safe."""

    def __init__(self, db: sqlite3.Connection, path: Path, in_memory: bool = False) -> None:
        self._lock = threading.RLock()
        self.path = path
        self._adopt(db, in_memory)

    def _adopt(self, db: sqlite3.Connection, in_memory: bool) -> None:
        self._db = db
        self.in_memory = in_memory
        self._index = SearchIndex(db)

    # --- opening

    @classmethod
    def open(cls, path: Path) -> Store:
        """Open or create the store in a file. Raises StoreError."""
        return cls(open_file(path), path)

    @classmethod
    def rescue(cls, path: Path) -> tuple[Store, RescueReport | None]:
        """Return a usable store, whatever the state of the file, and what was wrong with it.

        A damaged file is renamed and its readable contents are copied. If nothing can be written, the store is in
        memory. Cost: reads the whole file once.
        """
        try:
            db, report = open_or_restore(path)
            return cls(db, path), report
        except StoreError as error:
            db, memory_report = open_in_memory(path, error)
            return cls(db, path, in_memory=True), memory_report

    def repair(self, from_copy: bool = False) -> RescueReport | None:
        """After a "damaged" StoreError: copy what can be read to a new file and keep the old one under another name.

        A store in memory is written back to disk instead. from_copy: in place of a newer version's file, the copy from
        before its migration. Raises StoreError if that is not possible yet; nothing changes then.
        """
        with self._lock:
            report: RescueReport | None
            if from_copy:
                use_copy(self.path)
            if self.in_memory:
                db, report = open_or_restore(self.path)
                try:
                    with failures(self.path):
                        SearchIndex(db).drop()  # its texts are about to be overwritten
                        copy_rows(self._db, db)
                except BaseException:
                    db.close()
                    raise
                self._db.close()
            else:
                self._db.close()
                try:
                    db, report = restore(self.path, StoreError("damaged", "Met while it was read.", self.path))
                except StoreError as error:
                    db, report = open_in_memory(self.path, error)
            self._adopt(db, in_memory=report is not None and report.in_memory)
            return report

    def close(self) -> None:
        """Close the file. May be called twice."""
        with self._lock, failures(self.path):
            self._db.close()

    # --- conversations

    def conversations(self) -> list[Conversation]:
        """Return all conversations that are not deleted, newest first."""
        with self._reading() as db:
            rows = db.execute(
                f"SELECT {_HEAD} FROM conversation WHERE deleted_at IS NULL ORDER BY updated_at DESC, rowid DESC"
            ).fetchall()
        return [_conversation(row) for row in rows]

    def conversation(self, conversation_id: str) -> Conversation | None:
        """Return a conversation that is not deleted, or None."""
        with self._reading() as db:
            row = db.execute(
                f"SELECT {_HEAD} FROM conversation WHERE id = ? AND deleted_at IS NULL", (conversation_id,)
            ).fetchone()
        return _conversation(row) if row else None

    def save_conversation(self, conversation: Conversation) -> None:
        """Add a conversation, or overwrite all its fields."""
        with self._transaction() as db:
            db.execute(
                f"{_PUT_HEAD} ON CONFLICT (id) DO UPDATE SET "
                "title = excluded.title, updated_at = excluded.updated_at, pinned = excluded.pinned, "
                "folder = excluded.folder, leaf = excluded.leaf, draft = excluded.draft, choices = excluded.choices, "
                "queued = excluded.queued",
                _head_row(conversation),
            )

    def add_chats(self, chats: Sequence[WholeChat]) -> list[Conversation]:
        """Import chats, all or none. Returns those that did not exist.

        A chat whose id exists with other content, or one of whose messages is in another chat, is imported as a copy
        with new ids.
        """
        added: list[Conversation] = []
        with self._transaction() as db:
            for chat in chats:
                there = self._whole_chat(chat.conversation.id)
                if there is not None and plain(there) == plain(chat):
                    continue
                taken = self._is_taken("conversation", chat.conversation.id) or any(
                    self._is_taken("message", message.id) for message in chat.messages
                )
                new = chat.with_new_ids() if taken else chat
                _put(db, new)
                added.append(new.conversation)
        return added

    # --- imports in batches

    @staticmethod
    def write_batch(path: Path, chats: Sequence[WholeChat]) -> None:
        """Write chats with different ids to a new file, for `stage`. Raises StoreError."""
        with failures(path), contextlib.closing(open_batch(path)) as db:
            db.execute("BEGIN")
            for chat in sorted(chats, key=lambda one: one.conversation.id):  # in the order of the indexes
                _put(db, chat)
            db.execute("COMMIT")

    def stage(self, batch: Path) -> Staged:
        """Take in the chats of a file that `write_batch` wrote, unseen until `show_staged`. Those that exist stay.

        One transaction. A file that was removed, because the import ended, adds nothing. Raises StoreError.
        """
        if not batch.is_file():
            return Staged()
        with self._lock, failures(self.path):
            self._db.execute("ATTACH DATABASE ? AS batch", (str(batch),))
            cache = self._db.execute("PRAGMA main.cache_size").fetchone()[0]
            self._db.execute(f"PRAGMA main.cache_size = -{BATCH_CACHE_KB}")
            try:
                with self._transaction() as db:
                    known = "id IN (SELECT id FROM main.conversation WHERE deleted_at IS {})"
                    here = db.execute(f"DELETE FROM batch.conversation WHERE {known.format('NULL')}").rowcount
                    binned = db.execute(f"DELETE FROM batch.conversation WHERE {known.format('NOT NULL')}").rowcount
                    heads = CONVERSATION_COLUMNS.replace("deleted_at", str(_STAGED))
                    chats = db.execute(
                        f"INSERT INTO main.conversation ({CONVERSATION_COLUMNS}) SELECT {heads} "
                        "FROM batch.conversation ORDER BY rowid"
                    ).rowcount
                    messages = db.execute(
                        f"INSERT INTO main.message ({MESSAGE_COLUMNS}) SELECT {MESSAGE_COLUMNS} FROM batch.message "
                        "WHERE conversation_id IN (SELECT id FROM batch.conversation) ORDER BY rowid"
                    ).rowcount
            finally:
                self._db.execute("DETACH DATABASE batch")
                self._db.execute(f"PRAGMA main.cache_size = {cache}")
        return Staged(chats, messages, here, binned)

    def show_staged(self) -> list[Conversation]:
        """Make all staged chats visible at once. Returns them."""
        with self._transaction() as db:
            rows = db.execute(f"SELECT {_HEAD} FROM conversation WHERE deleted_at = ?", (_STAGED,)).fetchall()
            db.execute("UPDATE conversation SET deleted_at = NULL WHERE deleted_at = ?", (_STAGED,))
        return [_conversation(row) for row in rows]

    def drop_staged(self) -> None:
        while True:
            with self._transaction() as db:
                some = "SELECT rowid FROM conversation WHERE deleted_at = ? LIMIT ?"
                values = (_STAGED, _DROPPED_AT_ONCE)
                if not db.execute(f"UPDATE conversation SET deleted_at = 0 WHERE rowid IN ({some})", values).rowcount:
                    return
            self.purge_deleted(0.0, _STAGED)

    def _is_taken(self, table: str, id_: str) -> bool:
        return self._db.execute(f"SELECT 1 FROM {table} WHERE id = ?", (id_,)).fetchone() is not None

    def _whole_chat(self, conversation_id: str) -> WholeChat | None:
        conversation = self.conversation(conversation_id)
        return None if conversation is None else WholeChat(conversation, tuple(self.messages(conversation_id)))

    def delete(self, *conversation_ids: str, at: float | None = None) -> None:
        """Move conversations to the bin, until they are restored, erased or purged. at: seconds since the epoch; now
        by default, but no earlier than the last two days with a start."""
        with self._transaction() as db:
            at = max(time.time() if at is None else at, *_days_with_a_start(db))
            db.executemany(
                "UPDATE conversation SET deleted_at = ? WHERE id = ?", [(at, one) for one in conversation_ids]
            )

    def empty_bin(self, now: float, days: int) -> int:
        """Record a start. Delete for good every removed message, and chats that were deleted more than `days` ago both
        now and at the start on another day before, so that a clock that is ahead for a day empties no bin. Returns the
        number of chats. `now`: seconds since the epoch."""
        with self._transaction() as db:
            earlier, latest = _days_with_a_start(db)
            if abs(now - latest) >= _DAY_S:
                earlier, latest = latest, now
                _put_note(db, _STARTS, f"{earlier} {latest}")
        return self.purge_deleted(now, max(min(now, earlier) - days * _DAY_S, 2 * _STAGED))

    def binned(self) -> list[BinnedChat]:
        """Return the conversations in the bin, last deleted first."""
        with self._reading() as db:
            rows = db.execute(
                f"SELECT deleted_at, {_HEAD} FROM conversation WHERE deleted_at > ? ORDER BY deleted_at DESC",
                (_STAGED,),
            ).fetchall()
        return [BinnedChat(_conversation(head), deleted_at) for deleted_at, *head in rows]

    def restore(self, *conversation_ids: str) -> None:
        """Undo `delete`."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE conversation SET deleted_at = NULL WHERE id = ?", [(one,) for one in conversation_ids]
            )

    def erase(self, conversation_ids: Sequence[str]) -> None:
        """Delete conversations in the bin for good."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE conversation SET deleted_at = 0 WHERE id = ? AND deleted_at IS NOT NULL",
                [(one,) for one in conversation_ids],
            )
        self.purge_deleted(0.0, _STAGED)

    def purge_deleted(self, messages_before: float, chats_before: float) -> int:
        """Delete for good what was deleted before these times, chats with all their messages. Returns the number of
        chats.

        Messages deleted in the future go too, as they cannot be restored; chats stay, so that a wrong clock does not
        empty the bin. Units: seconds since the epoch.
        """
        old = "deleted_at IS NOT NULL AND (deleted_at < ? OR deleted_at > ?)"  # lets SQLite use the indexes
        gone = "deleted_at IS NOT NULL AND deleted_at < ?"
        messages, chats = (messages_before, time.time()), (chats_before,)
        words = (
            f"message.rowid IN (SELECT rowid FROM message WHERE {old} UNION ALL SELECT rowid FROM message "
            f"WHERE conversation_id IN (SELECT id FROM conversation WHERE {gone}))"
        )
        while True:
            with self._transaction() as db:
                if not self._index.delete(words, messages + chats):
                    db.execute(f"DELETE FROM message WHERE {old}", messages)
                    count = db.execute(f"DELETE FROM conversation WHERE {gone}", chats).rowcount
                    db.execute(
                        f"DELETE FROM note WHERE {_IS_EDIT} AND NOT EXISTS "
                        f"(SELECT 1 FROM message WHERE id = substr(name, {len(_EDIT) + 1}))"
                    )
                    return count
            time.sleep(0.01)  # let others use the file between steps

    def draft(self) -> str:
        """Return the draft of the new chat."""
        with self._reading() as db:
            row = db.execute("SELECT text FROM note WHERE name = 'draft'").fetchone()
        return str(row[0]) if row else ""

    def save_draft(self, text: str) -> None:
        with self._transaction() as db:
            _put_note(db, "draft", text)

    def edits(self) -> dict[str, str]:
        """Return the texts of messages that are being edited, by id."""
        with self._reading() as db:
            rows = db.execute(f"SELECT name, text FROM note WHERE {_IS_EDIT}").fetchall()
        return {name.removeprefix(_EDIT): text for name, text in rows}

    def save_edit(self, message_id: str, text: str) -> None:
        """Save the text of a message that is being edited, until the message is purged; empty: it no longer is."""
        with self._transaction() as db:
            if text:
                _put_note(db, _EDIT + message_id, text)
            else:
                db.execute("DELETE FROM note WHERE name = ?", (_EDIT + message_id,))

    # --- messages

    def messages(self, conversation_id: str) -> list[Message]:
        """Return all messages of a conversation, of every branch, in the order in which they were added."""
        with self._reading() as db:
            rows = db.execute(
                f"SELECT {_MESSAGE} FROM message WHERE conversation_id = ? AND deleted_at IS NULL ORDER BY position",
                (conversation_id,),
            ).fetchall()
        found: list[Message] = []
        for row in rows:
            found.append(self._message(row, found[-1].id if found else ""))
        return found

    def append(self, conversation_id: str, message: Message) -> None:
        """Append a message, show its branch, and make its conversation the newest.

        A message that exists is overwritten, so that a failed call can be repeated.
        """
        with self._transaction() as db:
            self._index.delete("message.id = ?", (message.id,))
            db.execute(
                f"INSERT INTO message ({_MESSAGE}, conversation_id, position) VALUES "
                "(:id, :role, :text, :created_at, :state, :stats, :parent, :attachments, :calls, :chat, "
                "(SELECT coalesce(max(position), -1) + 1 FROM message WHERE conversation_id = :chat)) "
                "ON CONFLICT (id) DO UPDATE SET text = excluded.text, state = excluded.state, stats = excluded.stats, "
                "parent = excluded.parent, attachments = excluded.attachments, calls = excluded.calls",
                _row(message) | {"chat": conversation_id},
            )
            db.execute(
                "UPDATE conversation SET updated_at = max(updated_at, ?), leaf = ? WHERE id = ?",
                (message.created_at, message.id, conversation_id),
            )

    def update_message(self, message: Message) -> bool:
        """Update text, state, statistics, attachments and calls of a message. Returns False if it does not exist."""
        with self._transaction() as db:
            self._index.delete("message.id = ?", (message.id,))
            changed = db.execute(
                "UPDATE message SET text = :text, state = :state, stats = :stats, attachments = :attachments, "
                "calls = :calls WHERE id = :id",
                _row(message),
            ).rowcount
        return changed > 0

    def remove_message(self, message_id: str) -> None:
        """Hide a message until it is put back or purged. Its followers attach to the message before it."""
        with self._transaction() as db:
            gone = db.execute(
                "SELECT conversation_id, coalesce(parent, (SELECT id FROM message AS one WHERE one.conversation_id = "
                "message.conversation_id AND one.position < message.position AND one.deleted_at IS NULL "
                "ORDER BY one.position DESC LIMIT 1), '') FROM message WHERE id = ?",
                (message_id,),
            ).fetchone()
            if gone is None:
                return
            db.execute(
                "UPDATE message SET parent = ? WHERE conversation_id = ? AND parent = ? AND deleted_at IS NULL",
                (gone[1], gone[0], message_id),
            )
            db.execute("UPDATE message SET deleted_at = ? WHERE id = ?", (time.time(), message_id))

    def put_back(self, message_id: str, parent: str, followers: Sequence[str]) -> None:
        """Undo `remove_message`: restore the message after its parent and before its followers."""
        with self._transaction() as db:
            db.execute("UPDATE message SET deleted_at = NULL, parent = ? WHERE id = ?", (parent, message_id))
            db.executemany("UPDATE message SET parent = ? WHERE id = ?", [(message_id, one) for one in followers])

    def mark_interrupted(self) -> int:
        """Mark messages that were being written when the program ended. Call it at the start. Returns their number."""
        with self._transaction() as db:
            return db.execute(
                "UPDATE message SET state = ? WHERE state = ?", (MessageState.INTERRUPTED, MessageState.WRITING)
            ).rowcount

    def inspection(self, message_id: str) -> bytes | None:
        """Return the recorded tokens of an answer; None: not recorded."""
        with self._reading() as db:
            row = db.execute("SELECT data FROM inspection WHERE message_id = ?", (message_id,)).fetchone()
        return bytes(row[0]) if row and isinstance(row[0], bytes) else None

    def save_inspection(self, message_id: str, data: bytes) -> None:
        """Keep what was recorded of an answer's tokens until the answer is deleted for good."""
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO inspection (message_id, data) SELECT id, ? FROM message WHERE id = ?",
                (data, message_id),
            )

    # --- search

    def search(self, text: str, limit: int = 100) -> list[SearchHit]:
        """Return conversations with the text in their title or a message, ignoring case, newest first.

        One hit for each conversation. The snippet is from its newest matching message; empty if only the title matches.
        Attachments count as part of their message. Cost: 30 ms for 60,000 indexed messages; others are read. One or two
        letters are searched everywhere: at most 0.12 s.
        """
        needle = fold(text.strip())
        if not needle:
            return []
        with self._reading():
            rows = self._index.find(needle, limit, _HEAD)
        return [_hit(row, needle) for row in rows]

    def grow_index(self) -> bool:
        """Index some more messages. Returns whether there may be more. Cost: about 25 ms."""
        try:
            with self._transaction():
                return self._index.grow()
        except BaseException:
            self._index = SearchIndex(self._db)  # its steps were rolled back
            raise

    # --- inside

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, failures(self.path):
            yield self._db

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, failures(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _message(self, row: tuple[Any, ...], before: str) -> Message:
        message_id, role, text, created_at, state, stats, parent, attachments, calls = row
        try:
            return Message(
                Role(role), text, message_id, created_at, MessageState(state),
                None if stats is None else json.loads(stats), before if parent is None else parent,
                tuple(map(Attachment.from_dict, json.loads(attachments))) if attachments else (),
                tuple(ToolCall.from_dict(one) for one in json.loads(calls)) if calls else (),
            )  # fmt: skip
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError("damaged", f"Message {message_id} is damaged: {error}.", self.path) from error


def _conversation(row: Sequence[Any]) -> Conversation:
    id_, title, created_at, updated_at, pinned, folder, leaf, draft, choices, queued = row
    try:
        chosen = json.loads(choices) if choices else {}
    except (ValueError, RecursionError):  # choices can be made again; the chat is not lost for them
        chosen = {}
    return Conversation(
        id_,
        title,
        created_at,
        updated_at,
        bool(pinned),
        folder,
        leaf,
        draft,
        chosen if isinstance(chosen, dict) else {},
        _unsent(queued),
    )


def _unsent(queued: str | None) -> Unsent | None:
    try:
        found = json.loads(queued) if queued else None
        return Unsent(found["text"], tuple(map(Attachment.from_dict, found["attachments"]))) if found else None
    except (
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
    ):  # damaged statistics; the chat itself is not lost for them
        return None


def _hit(row: Sequence[Any], needle: str) -> SearchHit:
    *head, message_id, said, role = row
    conversation = _conversation(head)
    cut, marks = snippet(said, needle, role == Role.ASSISTANT) if said else ("", ())
    return SearchHit(conversation, cut, marks, marks_in(conversation.title, needle), message_id or "")


def _put(db: sqlite3.Connection, chat: WholeChat) -> None:
    """Add a chat that does not exist."""
    c = chat.conversation
    db.execute(_PUT_HEAD, _head_row(c))
    db.executemany(_PUT_MESSAGE, [_row(m) | {"chat": c.id, "position": at} for at, m in enumerate(chat.messages)])


def _head_row(c: Conversation) -> tuple[Any, ...]:
    return (c.id, _storable(c.title), c.created_at, c.updated_at, c.pinned, _storable(c.folder), c.leaf,
            _storable(c.draft), _json(c.choices or None), _json(asdict(c.queued) if c.queued else None))  # fmt: skip


def _row(m: Message) -> dict[str, Any]:
    attachments = _json([asdict(one) for one in m.attachments] or None)
    return {"id": m.id, "role": m.role, "text": _storable(m.text), "created_at": m.created_at, "state": m.state,
            "stats": _json(m.stats), "parent": m.parent, "attachments": attachments,
            "calls": _json([asdict(one) for one in m.calls] or None)}  # fmt: skip


def _put_note(db: sqlite3.Connection, name: str, text: str) -> None:
    db.execute("INSERT OR REPLACE INTO note (name, text) VALUES (?, ?)", (name, _storable(text)))


def _days_with_a_start(db: sqlite3.Connection) -> tuple[float, float]:
    """Return the first start on each of the last two days with one, in seconds since the epoch; 0: unknown."""
    row = db.execute("SELECT text FROM note WHERE name = ?", (_STARTS,)).fetchone()
    try:
        earlier, latest = map(float, str(row[0]).split())
    except (TypeError, ValueError):  # none yet, or damaged
        return 0.0, 0.0
    return earlier, latest


def _storable(text: str) -> str:
    """Return text that UTF-8 can hold: surrogate pairs, which Qt lets through, are joined or replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _json(value: object) -> str | None:
    return None if value is None else _storable(json.dumps(value, ensure_ascii=False))
