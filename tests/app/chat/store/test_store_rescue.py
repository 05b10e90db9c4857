"""A file of chats after `kill -9` and after damage: nothing that was committed is lost, and the rest is rescued."""

from __future__ import annotations

import dataclasses
import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stored_chats import chat, damaged_files, tree

from app.chat.store import store_file
from app.chat.store.conversation import MessageState
from app.chat.store.store import Store
from app.errors import StoreError

ROOT = Path(store_file.__file__).parents[3]

# --- kill -9

WRITER = """
import dataclasses, sys, time
from pathlib import Path
from app.chat.store.conversation import Conversation, Message, MessageState, Role
from app.chat.store.store import Store
store = Store.open(Path(sys.argv[1]))
chat = Conversation(title="killed")
store.save_conversation(chat)
number = 0
while True:
    answer = Message(Role.ASSISTANT, "", state=MessageState.WRITING)
    store.append(chat.id, answer)
    for _ in range(40):
        number += 1
        store.update_message(dataclasses.replace(answer, text=f"{number} " + "word " * 300))
        print(number, flush=True)
        time.sleep(0.002)
    store.update_message(dataclasses.replace(answer, text=f"{number} done"))
    store.grow_index()
"""


def test_kill_nine_loses_nothing_that_a_call_had_returned_from(file: Path) -> None:
    committed = 0
    for attempt in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, cwd=ROOT, text=True
        ) as child:
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(3 + 17 * attempt)]  # killed at another moment each time
            time.sleep(0.0007 * attempt)
            child.kill()
            said += child.stdout.read().splitlines(keepends=True)
        committed = max(int(line) for line in said if line.endswith("\n"))
        store, report = Store.rescue(file)
        assert report is None
        assert store._db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        newest = store.conversations()[0]
        found = max(int(m.text.split()[0]) for m in store.messages(newest.id) if m.text)
        assert found >= committed
        assert store.mark_interrupted() >= 1
        assert {m.state for m in store.messages(newest.id)} == {MessageState.INTERRUPTED}
        store.close()
    assert committed > 40


# --- damage


def test_a_sound_file_is_not_rescued(filled: Path) -> None:
    store, report = Store.rescue(filled)
    assert report is None
    assert len(store.conversations()) == 59
    store.close()
    assert damaged_files(filled) == []


def rescued(file: Path) -> tuple[int, int]:
    """Rescues, checks that the damaged file is kept and that the new one can be used; conversations and messages."""
    before = file.read_bytes()
    store, report = Store.rescue(file)
    assert report is not None
    assert report.error.kind == "damaged"
    assert not store.in_memory
    assert report.kept_aside is not None
    assert damaged_files(file) == [report.kept_aside]
    assert report.kept_aside.read_bytes() == before
    found = [store.messages(c.id) for c in store.conversations()]
    for messages in found:
        numbers = [m.text.split()[1] for m in messages]
        assert numbers == sorted(numbers)
    chat(store, "after", "life goes on", at=9e9)
    store.close()
    store, again = Store.rescue(file)
    assert again is None
    assert store.conversations()[0].title == "after"
    assert store._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()
    assert {path.suffix for path in file.parent.iterdir()} == {".db"}
    return report.conversations, report.messages


def test_random_bytes_in_the_middle(filled: Path) -> None:
    data = bytearray(filled.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 3 * 4096] = os.urandom(3 * 4096)
    filled.write_bytes(data)
    conversations, messages = rescued(filled)
    assert conversations == 60
    assert 550 <= messages <= 600


def test_a_truncated_file(filled: Path) -> None:
    data = filled.read_bytes()
    filled.write_bytes(data[: len(data) * 2 // 3 - 1000])
    conversations, messages = rescued(filled)
    assert conversations >= 35
    assert 300 < messages < 600


def test_a_lost_beginning(filled: Path) -> None:
    data = bytearray(filled.read_bytes())
    data[:4096] = bytes(4096)
    filled.write_bytes(data)
    assert rescued(filled) == (60, 600)


@pytest.mark.parametrize(
    ("written", "spoilt"),
    [
        (b"CREATE TABLE message", b"CREATE TABLE massage"),
        (b"id TEXT PRIMARY KEY, title", b"id TEXT            , title"),
        (b"state TEXT NOT NULL, stats", b"state TEXT NOT NULL, st\xffts"),
    ],
    ids=["table", "key", "column"],
)
def test_a_spoilt_schema(filled: Path, written: bytes, spoilt: bytes) -> None:
    data = filled.read_bytes()
    assert written in data
    assert len(spoilt) == len(written)
    filled.write_bytes(data.replace(written, spoilt, 1))
    assert rescued(filled) == (60, 600)


def test_broken_text_costs_characters_and_not_the_chat(filled: Path) -> None:
    data = filled.read_bytes().replace(b"message 7.3 word", b"message 7.3 \xff\xfe\x80d")
    filled.write_bytes(data)
    store, report = Store.rescue(filled)
    assert report is None
    (hit,) = store.search("message 7.3")
    assert "message 7.3 \ufffd\ufffd\ufffdd" in hit.snippet
    assert len(store.messages(hit.conversation.id)) == 10
    store.close()


def test_lost_conversations_are_named_after_their_messages(filled: Path) -> None:
    db = sqlite3.connect(filled)
    root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'conversation'").fetchone()[0]
    db.close()
    data = bytearray(filled.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = os.urandom(4096)
    filled.write_bytes(data)
    store, report = Store.rescue(filled)
    assert report is not None
    assert report.messages == 600
    titles = {c.title for c in store.conversations()}
    assert len(titles) == 60
    assert all(title.startswith("message ") for title in titles)
    store.close()


@pytest.mark.parametrize("content", [b"", b"SQLite", b"<html>" * 5000, b"SQLite format 3\0" + bytes(5000)],
                         ids=["empty", "tiny", "no database", "zeros"])  # fmt: skip
def test_nothing_to_be_read(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        Store.open(file).close()
    assert caught.value.kind == "damaged"
    assert rescued(file) == (0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_broken_the_program_starts(filled: Path, seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(filled.read_bytes())
    for _ in range(dice.choice([1, 5, 40])):
        at, length = dice.randrange(len(data)), dice.choice([1, 20, 5000])
        data[at : at + length] = dice.randbytes(length)
    filled.write_bytes(data)
    store, report = Store.rescue(filled)
    for conversation in store.conversations():
        store.messages(conversation.id)
    store.search("word")
    chat(store, "after", "life goes on")
    if report is not None:
        assert damaged_files(filled)
    store.close()


def test_damage_that_is_met_later_can_be_repaired(filled: Path) -> None:
    store = Store.open(filled)
    data = bytearray(filled.read_bytes())
    for page in range(8, len(data) // 4096 - 1):
        data[page * 4096 : page * 4096 + 100] = os.urandom(100)
    filled.write_bytes(data)
    with pytest.raises(StoreError) as caught:
        store.search("no such word")
    assert caught.value.kind == "damaged"
    report = store.repair()
    assert report is not None
    store.search("no such word")
    chat(store, "after", "life goes on")
    store.close()


def test_a_role_that_is_none_is_damage(store: Store) -> None:
    made = chat(store, "odd", "text")
    store._db.execute("UPDATE message SET role = 'wizard'")
    with pytest.raises(StoreError) as caught:
        store.messages(made.id)
    assert caught.value.kind == "damaged"
    assert store.repair() is not None
    assert [m.text for m in store.messages(made.id)] == ["text"]


@pytest.mark.parametrize("step", ["-wal", "-shm", "", "last"])
def test_a_rescue_that_is_cut_off_is_finished_at_the_next_start(
    filled: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    filled.rename(filled.with_name("chats.db.rescued"))
    parts = {"": b"damaged", "-wal": b"journal", "-shm": b"shared"}
    for suffix, content in parts.items():
        filled.with_name(filled.name + suffix).write_bytes(content)
    real = os.replace

    def cut(source: Path, target: Path) -> None:
        if source.name == ("chats.db.rescued" if step == "last" else f"chats.db{step}"):
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(store_file.os, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        Store.rescue(filled)
    monkeypatch.setattr(store_file.os, "replace", real)
    store, report = Store.rescue(filled)
    assert report is None
    assert len(store.conversations()) == 59
    store.close()
    assert sorted(path.read_bytes() for path in damaged_files(filled)) == sorted(parts.values())


@pytest.mark.parametrize("lost", ["beginning", "schema"])
def test_everything_of_a_chat_is_rescued(filled: Path, lost: str) -> None:
    store = Store.open(filled)
    made, messages = tree(store)
    gone = store.messages(store.conversations()[5].id)[3]
    store.remove_message(gone.id)
    while store.grow_index():
        pass
    store.close()
    data = bytearray(filled.read_bytes())
    if lost == "beginning":
        data[:4096] = bytes(4096)
    else:
        data = data.replace(b"CREATE TABLE conversation", b"CREATE TABLE confersation", 1)
    filled.write_bytes(data)
    store, report = Store.rescue(filled)
    assert report is not None
    assert (report.conversations, report.messages) == (61, 604)
    assert store.conversation(made.id) == made
    assert store.messages(made.id) == messages
    assert sum(len(store.messages(c.id)) for c in store.conversations()) == 593
    assert len(store.search("word")) == 59
    store.close()


def test_an_index_that_names_another_row_is_damage(filled: Path) -> None:
    """SQLite believes its indexes: it would return a message of another chat."""
    store = Store.open(filled)
    last = store.conversations()[0]
    message = store.messages(last.id)[-1]
    (number,) = store._db.execute("SELECT rowid FROM message WHERE id = ?", (message.id,)).fetchone()
    store.close()
    data = bytearray(filled.read_bytes())
    entry = message.id.encode() + number.to_bytes(2, "big")  # in the index of ids
    data[data.index(entry) + len(entry) - 1] ^= 1
    filled.write_bytes(data)
    store, report = Store.rescue(filled)
    assert report is not None
    assert store.messages(last.id)[-1] == message
    assert len(store.search("word")) == 59
    store.close()


def test_a_lost_parent_is_the_message_before(filled: Path) -> None:
    store = Store.open(filled)
    made, messages = tree(store)
    store._db.execute("UPDATE message SET parent = 'lost', attachments = '[1', stats = '[' WHERE text = 'a2'")
    store._db.execute("UPDATE conversation SET choices = '{' WHERE title = 'tree'")
    assert store.repair() is not None
    assert [(m.text, m.parent) for m in store.messages(made.id)] == [
        ("q", ""), ("a1", messages[0].id), ("a2", messages[1].id), ("q2", messages[1].id)]  # fmt: skip
    found = store.conversation(made.id)
    assert found is not None
    assert (found.choices, found.folder) == ({}, "Work")
    store.close()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_broken_with_an_index_the_program_starts_and_searches(filled: Path, seed: int) -> None:
    store = Store.open(filled)
    while store.grow_index():
        pass
    store.close()
    dice = random.Random(seed)
    data = bytearray(filled.read_bytes())
    for _ in range(dice.choice([1, 5, 40])):
        at, length = dice.randrange(len(data)), dice.choice([1, 20, 5000])
        data[at : at + length] = dice.randbytes(length)
    filled.write_bytes(data)
    store, _ = Store.rescue(filled)
    for _ in range(4):  # as the window does: damage that only reading finds is repaired, and the work goes on
        try:
            changed = _write_anew(store)
            assert len(store.search("written anew")) == changed
            break
        except StoreError:
            store.repair()
    else:
        pytest.fail("it is never repaired")
    store.close()


def _write_anew(store: Store) -> int:
    """Change the last message of each chat, then index all. Returns the number of chats."""
    changed = 0
    for conversation in store.conversations():
        if messages := store.messages(conversation.id):
            message = messages[-1]
            store.update_message(dataclasses.replace(message, text=f"{message.text} written anew"))
            assert store.search(f"{message.text[-40:]} written anew")
            changed += 1
    while store.grow_index():
        pass
    return changed
