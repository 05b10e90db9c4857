"""Files of chats from other versions, and disks that are full, read-only, locked or missing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from stored_chats import chat
from support.systems import needs_links

from app.chat.store import store_file
from app.chat.store.conversation import Message, Role, branch
from app.chat.store.store import Store
from app.chat.store.store_rescue import open_in_memory, use_copy
from app.errors import StoreError

# --- versions


def test_a_file_of_a_newer_version_is_refused_and_left_untouched(filled: Path) -> None:
    db = sqlite3.connect(filled)
    db.execute(f"PRAGMA user_version = {len(store_file.MIGRATIONS) + 1}")
    db.close()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in filled.parent.iterdir()}
    with pytest.raises(StoreError) as caught:
        Store.open(filled)
    assert caught.value.kind == "newer"
    store, report = Store.rescue(filled)
    assert report is not None
    assert report.error.kind == "newer"
    assert store.in_memory
    chat(store, "in memory", "text")
    store.close()
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in filled.parent.iterdir()} == before


def test_an_older_file_is_brought_up_step_by_step(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = (
        ("ALTER TABLE conversation ADD COLUMN colour INTEGER NOT NULL DEFAULT 0",),
        ("UPDATE conversation SET colour = 1 WHERE title = 'Chat 7'", "CREATE TABLE tag (name TEXT)"),
    )
    monkeypatch.setattr(store_file, "MIGRATIONS", store_file.MIGRATIONS + later)
    store = Store.open(filled)
    assert store._db.execute("PRAGMA user_version").fetchone() == (len(store_file.MIGRATIONS),)
    assert store._db.execute("SELECT title FROM conversation WHERE colour").fetchall() == [("Chat 7",)]
    assert len(store.conversations()) == 59
    store.close()
    Store.open(filled).close()


def test_a_migration_that_fails_changes_nothing(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        later = (("ALTER TABLE conversation ADD COLUMN colour INTEGER",), ("THIS IS NO SQL",))
        patched.setattr(store_file, "MIGRATIONS", store_file.MIGRATIONS + later)
        with pytest.raises(sqlite3.OperationalError):
            Store.open(filled)
    store = Store.open(filled)
    assert store._db.execute("PRAGMA user_version").fetchone() == (len(store_file.MIGRATIONS),)
    assert "colour" not in {row[1] for row in store._db.execute("PRAGMA table_info (conversation)")}
    store.close()


# What each version added to the file of the one before, from 2 on, as it was released. Never change a line here.
LATER_VERSIONS = (
    (
        "ALTER TABLE conversation ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE conversation ADD COLUMN folder TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE conversation ADD COLUMN leaf TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE conversation ADD COLUMN draft TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE conversation ADD COLUMN choices TEXT",
        "ALTER TABLE message ADD COLUMN parent TEXT",
        "ALTER TABLE message ADD COLUMN attachments TEXT",
        "ALTER TABLE message ADD COLUMN deleted_at REAL",
        "CREATE TABLE note (name TEXT PRIMARY KEY, text TEXT NOT NULL)",
        "UPDATE conversation SET folder = 'Work', pinned = 1 WHERE id = 'c7'",
        "UPDATE message SET parent = 'c8.0' WHERE id = 'c8.4'",
    ),
    (
        "CREATE INDEX conversation_deleted ON conversation (deleted_at) WHERE deleted_at IS NOT NULL",
        "CREATE INDEX message_deleted ON message (deleted_at) WHERE deleted_at IS NOT NULL",
        "ALTER TABLE conversation ADD COLUMN queued TEXT",
    ),
    ("ALTER TABLE message ADD COLUMN calls TEXT",),
    (),
    (
        "CREATE TABLE inspection (message_id TEXT PRIMARY KEY REFERENCES message (id) ON DELETE CASCADE, "
        "data BLOB NOT NULL)",
    ),
)


def old_file(file: Path, version: int) -> Path:
    """A file of an earlier version."""
    db = sqlite3.connect(first_file(file), isolation_level=None)
    for step in LATER_VERSIONS[: version - 1]:
        for statement in step:
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    return file


def schema(file: Path) -> set[tuple[str, str]]:
    db = sqlite3.connect(file)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")]
    found = {(name, column[1]) for name in names for column in db.execute(f"PRAGMA table_info ({name})")}
    db.close()
    return found | {(name, "") for name in names}


@pytest.mark.parametrize("version", range(1, len(LATER_VERSIONS) + 2))
def test_a_file_of_every_version_is_opened_and_copied_before(version: int, file: Path) -> None:
    assert len(LATER_VERSIONS) + 1 == len(store_file.MIGRATIONS), "add the new version's step to LATER_VERSIONS"
    before = schema(old_file(file, version))
    store = Store.open(file)
    assert len(store.conversations()) == 19
    assert [len(store.messages(f"c{number}")) for number in (1, 7, 8)] == [6, 6, 6]
    if version > 1:
        heads = {one.id: one for one in store.conversations()}
        assert (heads["c7"].folder, heads["c7"].pinned, heads["c9"].pinned) == ("Work", True, False)
        assert {m.id: m.parent for m in store.messages("c8")}["c8.4"] == "c8.0"
    chat(store, "new", "text")
    store.close()
    created = file.with_name("created.db")
    Store.open(created).close()
    assert schema(file) == schema(created)
    copies = store_file.copies(file)
    if version == len(store_file.MIGRATIONS):
        assert copies == []
        return
    ((copy, copied),) = copies
    assert (copied, schema(copy)) == (version, before)
    assert copy.stat().st_mode & 0o77 == 0 or os.name == "nt"
    Store.open(file).close()
    assert store_file.copies(file) == copies, "only before a migration"


def test_three_copies_are_kept_and_none_for_longer_than_the_bin(file: Path) -> None:
    old_file(file, 4)
    for number in range(5):
        file.parent.joinpath(f"chats-2026010{number}-000000-000000-version-1.db").touch()
    file.parent.joinpath("chats-mine-version-1.db").touch()
    killed = [file.parent / f"chats-20260109-000000-000000-version-1.db.new{end}" for end in ("", "-journal", "-wal")]
    for left in killed:
        left.touch()
    Store.open(file).close()
    names = [copy.name for copy, _ in store_file.copies(file)]
    assert not any(left.exists() for left in killed)
    assert (len(names), names[1:]) == (3, [f"chats-2026010{n}-000000-000000-version-1.db" for n in (4, 3)])
    os.utime(file.with_name(names[1]), (0, 0))
    Store.open(file).close()
    assert [copy.name for copy, _ in store_file.copies(file)] == [names[0], names[2]]
    assert file.with_name("chats-mine-version-1.db").exists()


def test_without_space_for_the_copy_nothing_is_migrated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(unfinished: Path) -> None:
        unfinished.touch()
        raise OSError(28, "No space left on device")

    before = old_file(file, 3).read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(store_file, "connect_private", full)
        with pytest.raises(StoreError) as caught:
            Store.open(file)
    assert caught.value.kind == "full"
    assert file.read_bytes() == before
    assert not list(file.parent.glob("*.new"))
    Store.open(file).close()


def test_one_click_goes_back_to_the_copy_from_before(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(old_file(file, 3)).close()
    db = sqlite3.connect(file)
    db.execute("UPDATE conversation SET title = 'of the newer version'")
    db.commit()
    db.close()
    with monkeypatch.context() as older:
        older.setattr(store_file, "MIGRATIONS", store_file.MIGRATIONS[:3])
        older.setattr(store_file, "MESSAGE_COLUMNS", store_file.MESSAGE_COLUMNS.removesuffix(", calls"))
        error = StoreError("newer", "", file)
        db, report = open_in_memory(file, error)
        assert (report.error.kind, report.in_memory) == ("newer", True)
        assert report.kept_aside == store_file.copies(file)[0][0]
        db.close()
        aside = use_copy(file)
        with contextlib.closing(store_file.open_file(file)) as db:
            assert "old 7" in {row[0] for row in db.execute("SELECT title FROM conversation")}
    with contextlib.closing(Store.open(aside)) as store:
        assert {c.title for c in store.conversations()} == {"of the newer version"}
    assert len(store_file.copies(file)) == 1, "it can be done again"


FIRST_VERSION = (  # as the first Hearth that kept chats made its file
    """CREATE TABLE conversation (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
        deleted_at REAL)""",
    """CREATE TABLE message (
        id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
        position INTEGER NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL, created_at REAL NOT NULL,
        state TEXT NOT NULL, stats TEXT, UNIQUE (conversation_id, position))""",
    "CREATE INDEX conversation_newest ON conversation (updated_at)",
    "CREATE INDEX message_writing ON message (state) WHERE state = 'writing'",
    "PRAGMA user_version = 1",
)


def first_file(file: Path, n_chats: int = 20) -> Path:
    """A file of the first version, with chats of six messages, the first of them deleted."""
    file.parent.mkdir(parents=True)
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    for statement in FIRST_VERSION:
        db.execute(statement)
    for number in range(n_chats):
        deleted_at = 5.0 if number == 0 else None
        db.execute(
            "INSERT INTO conversation VALUES (?, ?, 1.0, ?, ?)", (f"c{number}", f"old {number}", number, deleted_at)
        )
        for place in range(0, 12, 2):  # a message between was removed each time
            role = "user" if place % 4 == 0 else "assistant"
            row = (f"c{number}.{place}", f"c{number}", place, role, f"message {number}.{place} " + "word " * 150, 2.0,
                   "complete", '{"tokens": 7}')  # fmt: skip
            db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.close()
    return file


def check_first_file(store: Store, n_chats: int = 20) -> None:
    assert [c.title for c in store.conversations()] == [f"old {number}" for number in range(n_chats - 1, 0, -1)]
    for conversation in store.conversations():
        messages = store.messages(conversation.id)
        assert len(messages) == 6
        assert [m.parent for m in messages] == ["", *(m.id for m in messages[:-1])]
        assert branch(messages, conversation.leaf) == messages
        assert messages[1].stats == {"tokens": 7}
        assert (conversation.pinned, conversation.folder, conversation.draft, conversation.choices) == (
            False,
            "",
            "",
            {},
        )


def test_a_file_of_the_first_version_is_one_long_branch(file: Path) -> None:
    store = Store.open(first_file(file))
    check_first_file(store)
    assert store.conversation("c0") is None
    last = store.messages("c7")[-1]
    store.append("c7", Message(Role.USER, "more", id="new", parent=last.id))
    store.append("c7", Message(Role.USER, "edited", id="edit", parent="c7.2"))
    store.remove_message("c7.8")
    parents = {m.id: m.parent for m in store.messages("c7")}
    assert (parents["new"], parents["edit"], parents["c7.10"]) == (last.id, "c7.2", "c7.6")
    store.remove_message(last.id)
    parents = {m.id: m.parent for m in store.messages("c7")}
    assert (parents["new"], parents["edit"]) == ("c7.6", "c7.2")
    store.close()
    store, report = Store.rescue(file)
    assert report is None
    assert len(store.messages("c9")) == 6
    store.close()


def test_a_damaged_file_of_the_first_version_is_rescued(file: Path) -> None:
    data = first_file(file).read_bytes()
    assert b"CREATE INDEX conversation_newest" in data
    file.write_bytes(data.replace(b"CREATE INDEX conversation_newest", b"CREATE INDAX conversation_newest", 1))
    store, report = Store.rescue(file)
    assert report is not None
    assert (report.error.kind, report.conversations, report.messages) == ("damaged", 20, 120)
    check_first_file(store)
    store.close()


def test_a_file_of_the_first_version_without_its_beginning_is_rescued(file: Path) -> None:
    data = bytearray(first_file(file).read_bytes())
    data[:4096] = bytes(4096)
    file.write_bytes(data)
    store, report = Store.rescue(file)
    assert report is not None
    assert (report.conversations, report.messages) == (20, 120)
    check_first_file(store)
    store.close()


# --- full, read-only, locked


def test_a_full_disk_fails_one_call_and_harms_nothing(store: Store) -> None:
    made = chat(store, "full", "first")
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    big = Message(Role.USER, "word " * 5000)
    with pytest.raises(StoreError) as caught:
        store.append(made.id, big)
    assert caught.value.kind == "full"
    assert caught.value.path == store.path
    assert caught.value.free_bytes is not None
    assert [m.text for m in store.messages(made.id)] == ["first"]
    store._db.execute(f"PRAGMA max_page_count = {pages + 100}")
    store.append(made.id, big)
    assert [m.text for m in store.messages(made.id)] == ["first", big.text]


def test_a_locked_file_is_told_soon_and_works_again(store: Store, file: Path) -> None:
    made = chat(store, "locked", "first")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError) as caught:
        store.append(made.id, Message(Role.USER, "second"))
    assert caught.value.kind == "locked"
    assert [m.text for m in store.messages(made.id)] == ["first"]  # readers are not held up
    other.execute("ROLLBACK")
    other.close()
    store.append(made.id, Message(Role.USER, "second"))


def test_a_locked_file_at_start_gives_a_store_in_memory(filled: Path) -> None:
    other = sqlite3.connect(filled, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store, report = Store.rescue(filled)
    assert report is not None
    assert report.error.kind == "locked"
    assert store.in_memory
    made = chat(store, "meanwhile", "text")
    with pytest.raises(StoreError):
        store.repair()
    assert store.in_memory
    other.execute("ROLLBACK")
    other.close()
    assert store.repair() is None
    assert not store.in_memory
    store.close()
    store = Store.open(filled)
    assert len(store.conversations()) == 60
    assert [m.text for m in store.messages(made.id)] == ["text"]
    store.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file" / "chats.db"
    with pytest.raises(StoreError) as caught:
        Store.open(path)
    assert caught.value.kind == "read-only"
    store, report = Store.rescue(path)
    assert report is not None
    assert (report.error.kind, report.in_memory, report.conversations) == ("read-only", True, 0)
    made = chat(store, "in memory", "text")
    (tmp_path / "file").unlink()
    assert store.repair() is None
    assert [c.id for c in store.conversations()] == [made.id]
    store.close()
    store = Store.open(path)
    assert [m.text for m in store.messages(made.id)] == ["text"]
    store.close()


def read_only(database: str, **options: Any) -> sqlite3.Connection:
    """A connection as a read-only disk gives it: it opens, reads, begins a transaction and refuses the first write."""
    if database != ":memory:" and "hearth-" not in database:
        return real_connect(f"{Path(database).as_uri()}?mode=ro", uri=True, **options)
    return real_connect(database, **options)


real_connect = sqlite3.connect


def test_a_read_only_folder_is_read_into_memory(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(filled)
    unfinished = chat(store, "only in the journal", "written before the disk became read-only", at=8e9)
    journal = filled.with_name("chats.db-wal").read_bytes()
    main = filled.read_bytes()
    store.close()
    filled.write_bytes(main)
    filled.with_name("chats.db-wal").write_bytes(journal)

    monkeypatch.setattr(store_file.sqlite3, "connect", read_only)
    store, report = Store.rescue(filled)
    assert report is not None
    assert (report.error.kind, report.in_memory, report.kept_aside) == ("read-only", True, None)
    assert (report.conversations, report.messages) == (61, 601)
    assert store.conversations()[0] == dataclasses.replace(unfinished, updated_at=8e9)
    chat(store, "in memory", "text", at=9e9)
    with pytest.raises(StoreError):
        store.repair()
    monkeypatch.undo()
    assert store.repair() is None
    assert store.conversations()[0].title == "in memory"
    store.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_IOERR_SHMSIZE, "read-only"), (sqlite3.SQLITE_IOERR_SHORT_READ, "damaged"),
        (sqlite3.SQLITE_CANTOPEN, "read-only"), (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "read-only"), (sqlite3.SQLITE_CORRUPT_INDEX, "damaged"),
    ],
)  # fmt: skip
def test_every_failure_of_the_disk_has_a_kind(tmp_path: Path, code: int, kind: str) -> None:
    error = sqlite3.OperationalError("made up")
    error.sqlite_errorcode = code
    with pytest.raises(StoreError) as caught, store_file.failures(tmp_path / "chats.db"):
        raise error
    assert caught.value.kind == kind


def test_an_input_output_error_on_a_full_disk_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    monkeypatch.setattr(store_file, "_free_bytes", lambda path: 4096)
    with pytest.raises(StoreError) as caught, store_file.failures(tmp_path / "chats.db"):
        raise error
    assert (caught.value.kind, caught.value.free_bytes) == ("full", 4096)
    with pytest.raises(StoreError) as caught, store_file.failures(tmp_path / "chats.db"):
        raise OSError(28, "No space left on device")
    assert caught.value.kind == "full"


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a person's files by other means")
def test_nobody_else_reads_the_file_and_its_journals(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = tmp_path / "chats.db"
        store = Store.open(path)
        store.close()
        path.chmod(0o644)  # as an earlier version made it
        store = Store.open(path)
        chat(store, "private")
        files = sorted(tmp_path.glob("chats.db*"))
        assert {file.name: file.stat().st_mode & 0o777 for file in files} == {file.name: 0o600 for file in files}
        assert len(files) == 3
        store.close()
    finally:
        os.umask(before)


@needs_links
def test_a_link_that_leads_nowhere_is_not_replaced(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "chats.db", tmp_path / "disk" / "chats.db"
    path.symlink_to(elsewhere)
    store, report = Store.rescue(path)
    assert report is not None
    assert (report.error.kind, report.in_memory) == ("missing", True)
    store.close()
    assert path.is_symlink()
    assert not elsewhere.exists()
    assert os.listdir(tmp_path) == ["chats.db"]
