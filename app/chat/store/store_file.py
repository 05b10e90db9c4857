"""The file of the chats: tables, versions, how it is opened, and what its failures mean.

store.py knows conversations, store_rescue.py saves damaged files.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from app.errors import StoreError, StoreErrorKind

KEPT_COPIES = 3
COPY_DAYS = 30  # as long as the bin keeps deleted chats, which a copy may still hold
BUSY_TIMEOUT_S = 0.5  # other programs rarely lock the file for longer than a transaction


# Statements for each step: step n leads from user_version n to n + 1 in one transaction.
# `position` orders a conversation's messages, never a clock. `deleted_at`: can be undone.
# `parent`: id of the message before it on its branch; '' if it is the first. NULL (files from before branches, or lost
# in a rescue): the message before it in position.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE conversation (
            id TEXT PRIMARY KEY, title TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
            deleted_at REAL)""",
        """CREATE TABLE message (
            id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            position INTEGER NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL, created_at REAL NOT NULL,
            state TEXT NOT NULL, stats TEXT, UNIQUE (conversation_id, position))""",
        "CREATE INDEX conversation_newest ON conversation (updated_at)",
        "CREATE INDEX message_writing ON message (state) WHERE state = 'writing'",
    ),
    (  # changes no row, so a large file is upgraded at once
        "ALTER TABLE conversation ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE conversation ADD COLUMN folder TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE conversation ADD COLUMN leaf TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE conversation ADD COLUMN draft TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE conversation ADD COLUMN choices TEXT",
        "ALTER TABLE message ADD COLUMN parent TEXT",
        "ALTER TABLE message ADD COLUMN attachments TEXT",
        "ALTER TABLE message ADD COLUMN deleted_at REAL",
        "CREATE TABLE note (name TEXT PRIMARY KEY, text TEXT NOT NULL)",  # what belongs to no chat
    ),
    (  # used to empty the bin; otherwise each start would read the whole file
        "CREATE INDEX conversation_deleted ON conversation (deleted_at) WHERE deleted_at IS NOT NULL",
        "CREATE INDEX message_deleted ON message (deleted_at) WHERE deleted_at IS NOT NULL",
        "ALTER TABLE conversation ADD COLUMN queued TEXT",
    ),
    ("ALTER TABLE message ADD COLUMN calls TEXT",),
    (),  # attachments may name their source, which earlier versions take for damage
    (
        "CREATE TABLE inspection (message_id TEXT PRIMARY KEY REFERENCES message (id) ON DELETE CASCADE, "
        "data BLOB NOT NULL)",
    ),
)

CONVERSATION_COLUMNS = "id, title, created_at, updated_at, deleted_at, pinned, folder, leaf, draft, choices, queued"
MESSAGE_COLUMNS = (
    "id, conversation_id, position, role, text, created_at, state, stats, parent, attachments, deleted_at, calls"
)
LATER_COLUMNS = {  # missing in files of the first version
    "pinned", "folder", "leaf", "draft", "choices", "queued", "parent", "attachments", "deleted_at", "calls",
}  # fmt: skip

BATCH_CACHE_KB = 64 << 10  # holds the index of ids, which are added in no order
_HEADER_BYTES = 100  # of an SQLite file; user_version is the big-endian number at 60
_LAST_CREDIBLE_VERSION = 9999  # a larger number is a damaged header, not a later version
_KINDS: dict[int, StoreErrorKind] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_CANTOPEN: "read-only",
    sqlite3.SQLITE_PERM: "read-only",
    sqlite3.SQLITE_IOERR: "read-only",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_PROTOCOL: "locked",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_FORMAT: "damaged",
    sqlite3.SQLITE_TOOBIG: "damaged",  # a length above 1 GB is a damaged one
}
_NO_ROOM_BYTES = 1 << 20  # with less free space an I/O error means a full disk: SQLite's shared memory file fails so


@contextlib.contextmanager
def failures(path: Path | None) -> Iterator[None]:
    """Convert failures of SQLite and the file system to StoreError. Bugs pass through."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        kind = _KINDS.get(code & 0xFF)
        if code in {sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}:
            kind = "damaged"
        if kind is None:
            raise
        free = _free_bytes(path)
        if code & 0xFF == sqlite3.SQLITE_IOERR and free is not None and free < _NO_ROOM_BYTES:
            kind = "full"
        raise StoreError(kind, f"{error}.", path, free if kind == "full" else None) from error
    except UnicodeDecodeError as error:  # sqlite3 found a broken name while it formatted an error
        raise StoreError("damaged", f"A name in the file is not text: {error}.", path) from error
    except OSError as error:
        full = error.errno in {28, 122}  # ENOSPC, EDQUOT
        message = f"{error.strerror or error}."
        raise StoreError("full" if full else "read-only", message, path, _free_bytes(path) if full else None) from error


def _free_bytes(path: Path | None) -> int | None:
    if path is None:
        return None
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return None


def open_file(path: Path, checked: bool = False) -> sqlite3.Connection:
    """Open or create the file, upgraded to the current version and writable.

    checked: look for damage first; reads the whole file. Raises StoreError. A newer version's file is not touched.
    """
    with failures(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        finish_rescue(path)  # finish a rescue that was interrupted in its last steps
        _drop_old_copies(path)
        if path.is_symlink() and not path.exists():  # the link's disk may only be away
            raise StoreError("missing", f"It is a link to {os.readlink(path)}, which is not there.", path)
        if not path.exists():
            create(path)
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if not header:
            raise StoreError("damaged", "The file is empty.", path)
        make_private(path)
        _refuse_newer(int.from_bytes(header[60:64], "big") if header.startswith(b"SQLite format 3\0") else 0, path)
        db = connect(str(path))
    try:
        with failures(path):
            prepare(db, path, checked)
    except BaseException:
        db.close()
        raise
    return db


def create(path: Path) -> None:
    """Create a file without chats.

    It gets its name only when complete, so an empty file is always a damaged one.
    """
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    db = connect_private(unfinished)
    try:
        migrate(db, path)
    finally:
        db.close()
    os.replace(unfinished, path)


def make_private(path: Path) -> None:
    """Keep other users of the PC from reading the file and its journals."""
    if os.name == "nt":
        return
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):  # another user's file, or missing: opening it reports that
            path.with_name(path.name + suffix).chmod(0o600)


def connect_private(path: Path) -> sqlite3.Connection:
    """Connect to a new file that only this user can read. SQLite gives its journals the same permissions."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    return connect(str(path))


def open_batch(path: Path) -> sqlite3.Connection:
    """Create a file to hand chats over in, without indexes. If the program is killed, it is lost."""
    db = connect_private(path)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    db.execute(f"CREATE TABLE conversation ({CONVERSATION_COLUMNS})")
    db.execute(f"CREATE TABLE message ({MESSAGE_COLUMNS})")
    return db


def finish_rescue(path: Path) -> Path | None:
    """Replace the damaged file by a complete rescue and keep it under a new name. Returns that name.

    A power cut may come after any step: the next start continues from there. The journals are moved first, because
    SQLite would replay one that it finds beside another file of that name.
    """
    rescued = path.with_name(path.name + ".rescued")
    if not rescued.exists():
        return None
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
    aside = path.with_name(f"{path.stem}-damaged-{stamp}{path.suffix}")
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            os.replace(part, aside.with_name(aside.name + suffix))
    os.replace(rescued, path)
    return aside


def connect(database: str) -> sqlite3.Connection:
    """Connect with transactions begun by hand. Any thread may use the connection, one at a time."""
    db = sqlite3.connect(database, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA secure_delete = ON")  # deleted texts are not left in free pages
    db.text_factory = lambda data: data.decode("utf-8", "replace")  # a flipped bit costs a character, not a chat
    return db


def prepare(db: sqlite3.Connection, path: Path | None, checked: bool = False) -> None:
    """Set journal, keys and version of a connection, and prove that the file can be read and written.

    checked: read the whole file first, so that nothing is written to a damaged one.
    """
    with _damage_if_not_understood(path):
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        # not quick_check, which does not see an index that names another row
        if checked and (problem := db.execute("PRAGMA integrity_check (1)").fetchone()[0]) != "ok":
            raise StoreError("damaged", f"{problem}.", path)
    _copy_before_migration(db, path)
    migrate(db, path)
    db.execute("PRAGMA foreign_keys = ON")
    with _damage_if_not_understood(path):  # EXPLAIN runs nothing but looks up all tables, columns and keys
        for table, columns in (("conversation", CONVERSATION_COLUMNS), ("message", MESSAGE_COLUMNS)):
            nothing = ", ".join("NULL" for _ in columns.split(","))
            db.execute(
                f"EXPLAIN INSERT INTO {table} ({columns}) VALUES ({nothing}) "
                "ON CONFLICT (id) DO UPDATE SET id = excluded.id"
            )
    # A write without effect: on a read-only disk everything before it succeeds.
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


@contextlib.contextmanager
def _damage_if_not_understood(path: Path | None) -> Iterator[None]:
    """Convert SQLite's plain "error" for an unknown file format or a missing table."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise StoreError("damaged", f"{error}.", path) from error


def _copy_before_migration(db: sqlite3.Connection, path: Path | None) -> None:
    """Copy the file if it has an older version. Without space for the copy nothing is migrated: StoreError "full"."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if path is None or not 0 < version < len(MIGRATIONS):
        return
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
    target = path.with_name(f"{path.stem}-{stamp}-version-{version}{path.suffix}")
    unfinished = target.with_name(target.name + ".new")
    try:
        copy = connect_private(unfinished)
        try:
            db.backup(copy)
        finally:
            copy.close()
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)
    _drop_old_copies(path)


def copies(path: Path) -> list[tuple[Path, int]]:
    """Return the copies that were made before migrations, newest first, with their versions."""
    form = re.compile(rf"{re.escape(path.stem)}-\d{{8}}-\d{{6}}-\d{{6}}-version-(\d{{1,4}}){re.escape(path.suffix)}")
    found = [(one, int(match[1])) for one in path.parent.iterdir() if (match := form.fullmatch(one.name))]
    return sorted(found, key=lambda one: one[0].name, reverse=True)


def copy_to_go_back_to(path: Path) -> Path | None:
    """Return the newest copy that this version can read."""
    return next((copy for copy, version in copies(path) if version <= len(MIGRATIONS)), None)


def _drop_old_copies(path: Path) -> None:
    for unfinished in path.parent.glob(f"{glob.escape(path.stem)}-*-version-*.new*"):  # Hearth was killed
        unfinished.unlink(missing_ok=True)
    for at, (copy, _) in enumerate(copies(path)):
        with contextlib.suppress(OSError):
            if at >= KEPT_COPIES or time.time() - copy.stat().st_mtime > COPY_DAYS * 24 * 3600:
                copy.unlink()


def migrate(db: sqlite3.Connection, path: Path | None) -> None:
    """Run all steps from the file's version to the current one in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    try:
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        _refuse_newer(version, path)
        for step in MIGRATIONS[version:]:
            for statement in step:
                db.execute(statement)
        if version != len(MIGRATIONS):
            db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _refuse_newer(version: int, path: Path | None) -> None:
    if not 0 <= version <= _LAST_CREDIBLE_VERSION:
        raise StoreError("damaged", f"The file says it has version {version}.", path)
    if version > len(MIGRATIONS):
        raise StoreError("newer", f"The file has version {version}; this Hearth reads up to {len(MIGRATIONS)}.", path)
