"""The chats on disk: what is kept, found and undone, and what a killed program or a hostile disk does to it."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.chat.store import store_file
from app.chat.store.conversation import Attachment, Conversation, Message, MessageState, Role, Unsent, branch
from app.chat.store.store import Store
from app.errors import StoreError

ROOT = Path(store_file.__file__).parents[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "Данные 数据　x" / "chats.db"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    made = Store.open(file)
    yield made
    made.close()


def chat(store: Store, title: str, *texts: str, at: float = 1000.0) -> Conversation:
    """A stored conversation of alternating turns."""
    made = Conversation(title=title, created_at=at, updated_at=at)
    store.save_conversation(made)
    parent = ""
    for number, text in enumerate(texts):
        role = Role.USER if number % 2 == 0 else Role.ASSISTANT
        message = Message(role, text, created_at=at + number, parent=parent)
        store.append(made.id, message)
        parent = message.id
    return dataclasses.replace(made, leaf=parent)


# ------------------------------------------------------------------ keeping


def test_everything_comes_back_after_a_restart(file: Path) -> None:
    store = Store.open(file)
    made = chat(store, "Grüße")
    question = Message(Role.USER, "Wie geht's? 火 \U0001f525 \x00 end", created_at=5.5)
    answer = Message(
        Role.ASSISTANT,
        "**Gut**",
        created_at=6.5,
        state=MessageState.LENGTH,
        stats={"tokens": 3, "decode_tok_s": None},
        parent=question.id,
    )
    store.append(made.id, question)
    store.append(made.id, answer)
    store.close()
    store.close()
    store = Store.open(file)
    made = dataclasses.replace(made, leaf=answer.id)
    assert store.conversations() == [made]
    assert store.conversation(made.id) == made
    assert store.messages(made.id) == [question, answer]
    store.close()


def test_the_newest_conversation_is_first_and_a_message_makes_it_so(store: Store) -> None:
    old, middle, new = (chat(store, title, at=at) for title, at in [("old", 1.0), ("middle", 2.0), ("new", 3.0)])
    assert store.conversations() == [new, middle, old]
    store.append(old.id, Message(Role.USER, "again", created_at=9.0))
    store.append(middle.id, Message(Role.USER, "a clock that was set back", created_at=0.5))
    assert [c.title for c in store.conversations()] == ["old", "new", "middle"]
    store.save_conversation(dataclasses.replace(middle, title="renamed"))
    assert [c.title for c in store.conversations()] == ["old", "new", "renamed"]


def test_messages_keep_their_order_whatever_the_clock_says(store: Store) -> None:
    made = chat(store, "clock")
    for number, at in enumerate([50.0, 10.0, 30.0, 10.0]):
        store.append(made.id, Message(Role.USER, str(number), created_at=at))
    assert [m.text for m in store.messages(made.id)] == ["0", "1", "2", "3"]
    store.remove_message(store.messages(made.id)[1].id)
    store.append(made.id, Message(Role.USER, "4", created_at=0.0))
    assert [m.text for m in store.messages(made.id)] == ["0", "2", "3", "4"]


def test_the_same_act_may_be_repeated(store: Store) -> None:
    made = chat(store, "twice")
    first, second = Message(Role.USER, "a"), Message(Role.ASSISTANT, "b", state=MessageState.WRITING)
    for _ in range(2):
        chat(store, "private")
        store.append(made.id, first)
        store.append(made.id, second)
    store.append(made.id, dataclasses.replace(second, text="bb"))
    assert [m.text for m in store.messages(made.id)] == ["a", "bb"]


def test_an_answer_grows_in_place(store: Store) -> None:
    made = chat(store, "grow", "question")
    answer = Message(Role.ASSISTANT, "", state=MessageState.WRITING)
    store.append(made.id, answer)
    done = dataclasses.replace(answer, text="All of it.", state=MessageState.CANCELLED, stats={"tokens": 3})
    assert store.update_message(done) is True
    assert store.messages(made.id)[1] == done
    assert store.update_message(Message(Role.USER, "never stored")) is False


def test_what_was_being_written_is_marked_at_the_next_start(store: Store) -> None:
    made = chat(store, "killed", "question")
    store.append(made.id, Message(Role.ASSISTANT, "half an ans", state=MessageState.WRITING))
    assert store.mark_interrupted() == 1
    assert store.mark_interrupted() == 0
    assert [(m.text, m.state) for m in store.messages(made.id)] == [
        ("question", MessageState.COMPLETE), ("half an ans", MessageState.INTERRUPTED)]  # fmt: skip


def test_delete_can_be_undone_until_it_is_purged(store: Store) -> None:
    kept, gone = chat(store, "kept", "a"), chat(store, "gone", "b", "c")
    store.delete(gone.id)
    assert [c.id for c in store.conversations()] == [kept.id]
    assert store.conversation(gone.id) is None
    assert store.search("b") == []
    store.restore(gone.id)
    assert len(store.conversations()) == 2
    assert [m.text for m in store.messages(gone.id)] == ["b", "c"]
    store.delete(gone.id)
    assert store.purge_deleted(time.time() - 60, time.time() - 60) == 0
    assert store.purge_deleted(time.time() + 1, time.time() + 1) == 1
    assert store.messages(gone.id) == []
    store.restore(gone.id)
    assert [c.id for c in store.conversations()] == [kept.id]
    assert [m.text for m in store.messages(kept.id)] == ["a"]


def test_the_bin_holds_deleted_chats_longer_than_deleted_messages(store: Store) -> None:
    kept, gone = chat(store, "kept", "a", "b"), chat(store, "gone", "c")
    store.remove_message(store.messages(kept.id)[1].id)
    store.delete(gone.id)
    assert [(one.conversation.title, one.deleted_at <= time.time()) for one in store.binned()] == [("gone", True)]
    assert store.purge_deleted(time.time() + 1, time.time() - 60) == 0
    assert store._db.execute("SELECT count(*) FROM message WHERE conversation_id = ?", (kept.id,)).fetchone() == (1,)
    store.restore(gone.id)
    assert store.binned() == []
    assert [m.text for m in store.messages(gone.id)] == ["c"]


def test_a_chat_in_the_bin_is_erased_with_its_words_and_no_other(store: Store) -> None:
    kept = chat(store, "kept", "a")
    gone, binned = chat(store, "gone", "secret words"), chat(store, "binned", "b")
    store.grow_index()
    store.delete(gone.id)
    store.delete(binned.id)
    store.erase([gone.id, kept.id])
    assert [one.conversation.id for one in store.binned()] == [binned.id]
    assert [c.id for c in store.conversations()] == [kept.id], "what is not in the bin stays"
    assert store._db.execute("SELECT count(*) FROM message WHERE text LIKE '%secret%'").fetchone() == (0,)


def test_emptying_the_bin_looks_rows_up_and_reads_no_others(store: Store) -> None:
    for table in ("message", "conversation"):
        plan = store._db.execute(
            f"EXPLAIN QUERY PLAN DELETE FROM {table} "
            "WHERE deleted_at IS NOT NULL AND (deleted_at < 1 OR deleted_at > 2)"
        ).fetchall()
        assert f"{table}_deleted" in " ".join(str(row) for row in plan)


def test_a_queued_message_is_kept_with_what_is_attached(store: Store) -> None:
    queued = Unsent("next", (Attachment("notes.txt", "words", "text"),))
    made = chat(store, "chat", "a")
    store.save_conversation(dataclasses.replace(made, queued=queued))
    found = store.conversation(made.id)
    assert found is not None
    assert found.queued == queued
    store._db.execute("UPDATE conversation SET queued = '{\"text\": 1'")
    found = store.conversation(made.id)
    assert found is not None
    assert found.queued is None, "damage costs what was queued, not the chat"


def test_a_clock_that_was_set_back_does_not_empty_the_bin(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, gone = chat(store, "kept", "a", "b"), chat(store, "gone", "c")
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: 4e9)
        store.delete(gone.id)
        store.remove_message(store.messages(kept.id)[1].id)
    assert store.purge_deleted(time.time() - 60, time.time() - 60) == 0
    assert store._db.execute("SELECT count(*) FROM message WHERE conversation_id = ?", (kept.id,)).fetchone() == (1,)
    store.restore(gone.id)
    assert {c.id for c in store.conversations()} == {kept.id, gone.id}


def test_halves_of_characters_are_stored_and_not_lost(store: Store) -> None:
    made = chat(store, "half \ud83d")
    store.append(made.id, Message(Role.USER, "joined \ud83d\udd25, alone \ud83d, after"))
    assert store.messages(made.id)[0].text == "joined \U0001f525, alone \ufffd, after"
    assert store.conversations()[0].title == "half \ufffd"


def test_a_message_without_its_conversation_is_a_mistake_of_ours(store: Store) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store.append("nowhere", Message(Role.USER, "lost"))


def test_many_threads_may_call(store: Store) -> None:
    made = chat(store, "threads")

    def write(name: int) -> None:
        for number in range(20):
            store.append(made.id, Message(Role.USER, f"{name}.{number}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.messages(made.id)) == 80


def test_ten_thousand_messages_are_found_by_index(store: Store) -> None:
    made = chat(store, "long")
    other = chat(store, "other", "x")
    with store._transaction() as db:
        db.executemany(
            "INSERT INTO message (id, conversation_id, position, role, text, created_at, state) "
            "VALUES (?, ?, ?, 'user', 'text', 0.0, 'complete')",
            [(f"m{number}", made.id, number) for number in range(10_000)],
        )
    assert [m.id for m in store.messages(made.id)] == [f"m{number}" for number in range(10_000)]
    assert len(store.messages(other.id)) == 1
    plan = store._db.execute(
        "EXPLAIN QUERY PLAN SELECT text FROM message WHERE conversation_id = ? ORDER BY position", ("x",)
    ).fetchall()
    assert "USING INDEX" in plan[0][3]
    assert len(plan) == 1, "a sort besides the index"


def test_ten_thousand_messages_are_read_soon(store: Store) -> None:
    made = chat(store, "long")
    with store._transaction() as db:
        db.executemany(
            "INSERT INTO message (id, conversation_id, position, role, text, created_at, state, parent, stats) "
            "VALUES (?, ?, ?, 'user', ?, 0.0, 'complete', ?, ?)",
            [(f"m{n}", made.id, n, "word " * 60, f"m{n - 1}" if n else "", '{"tokens": 3}') for n in range(10_000)],
        )
    best = min(timed(lambda: branch(store.messages(made.id), "m9999")) for _ in range(3))
    assert best < 5, f"{best:.3f} s"


def timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


# ------------------------------------------------------------------ branches, heads


def tree(store: Store) -> tuple[Conversation, list[Message]]:
    """A stored chat with everything that a chat can have: two versions of an answer, attachments, choices."""
    paper = Attachment("a.pdf", "page \U0001f525\n" * 3, "pdf", 2)
    asked = Message(Role.USER, "q", attachments=(paper, Attachment("Pasted", "x", "pasted")))
    first = Message(Role.ASSISTANT, "a1", parent=asked.id, stats={"tokens": 3})
    second = Message(Role.ASSISTANT, "a2", parent=asked.id)
    follow = Message(Role.USER, "q2", parent=first.id)
    made = Conversation(title="tree", pinned=True, folder="Work", draft="half a", choices={"mode": "exact", "n": [1]})
    store.save_conversation(made)
    for message in (asked, first, second, follow):
        store.append(made.id, message)
    made = dataclasses.replace(made, leaf=second.id, updated_at=follow.created_at)
    store.save_conversation(made)
    return made, [asked, first, second, follow]


def test_a_chat_with_everything_comes_back(file: Path) -> None:
    store = Store.open(file)
    made, messages = tree(store)
    store.close()
    store = Store.open(file)
    assert store.conversation(made.id) == made
    assert store.messages(made.id) == messages
    store.close()


def test_a_message_that_goes_is_bridged_and_comes_back(store: Store) -> None:
    made, messages = tree(store)
    first = messages[1]
    store.remove_message(first.id)
    assert [(m.text, m.parent) for m in store.messages(made.id)] == [
        ("q", ""), ("a2", messages[0].id), ("q2", messages[0].id)]  # fmt: skip
    store.put_back(first.id, messages[0].id, [messages[3].id])
    assert store.messages(made.id) == messages
    store.remove_message(messages[0].id)
    assert [m.parent for m in store.messages(made.id)] == ["", "", first.id]
    assert store.purge_deleted(time.time() + 1, time.time() + 1) == 0
    store.put_back(messages[0].id, "", [])
    assert len(store.messages(made.id)) == 3


def test_the_draft_of_a_chat_that_is_not_begun(store: Store) -> None:
    assert store.draft() == ""
    for text in ("half \ud83d", "whole", ""):
        store.save_draft(text)
        assert store.draft() == text.replace("\ud83d", "\ufffd")


# ------------------------------------------------------------------ search


def test_search_finds_titles_and_messages_newest_first(store: Store) -> None:
    titled = chat(store, "About a Hearth", "nothing here", at=10.0)
    said = chat(store, "Other", "first hearth", "the second HEARTH of this chat", at=20.0)
    chat(store, "Third", "neither", at=30.0)
    hits = store.search(" hEaRtH ")
    assert [hit.conversation.id for hit in hits] == [said.id, titled.id]
    assert [hit.snippet for hit in hits] == ["the second HEARTH of this chat", ""]
    assert [hit.conversation.id for hit in store.search("hearth", limit=1)] == [said.id]
    assert store.search("") == store.search("  \n") == store.search("no such word") == []


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("100% sure", "0% s", "0x s"), ("snake_case", "e_c", "exc"), ("C:\\path", ":\\p", ":\\\\p"),
        ("it's \"quoted\"", "'s \"q", "''s"), ("ПРИВЕТ мир", "привет МИР", "приветмир"),
        ("Straße", "STRASSE", "STRASE"),
        ("ÉTÉ", "e\u0301te\u0301", "ete"), ("I*[a-z]?", "*[A-Z]?", "ia"), ("İstanbul", "İSTANBUL", "ostanbul"),
    ],
)  # fmt: skip
def test_search_takes_every_character_literally_and_ignores_case(
    store: Store, text: str, wanted: str, unwanted: str
) -> None:
    made = chat(store, "t", f"Before that, {text} was said.")
    (hit,) = store.search(wanted)
    assert hit.conversation.id == made.id
    assert hit.snippet == f"Before that, {text} was said."
    assert store.search(unwanted) == []


def test_a_snippet_shows_the_hit_in_its_surroundings(store: Store) -> None:
    chat(store, "long", "ß" * 30 + " many words before\n\tand the  needle, " + "then many words after it " * 20)
    (hit,) = store.search("NEEDLE")
    assert "and the needle, then" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert 40 <= len(hit.snippet) <= 82
    chat(store, "one word", "x" * 500 + "Needle" + "y" * 500)
    assert "Needle" in store.search("needley")[0].snippet
    chat(store, "longer than a snippet", "z" * 300)
    assert store.search("z" * 200)[0].snippet


# ------------------------------------------------------------------ kill -9

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


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX's")
def test_kill_nine_loses_nothing_that_a_call_had_returned_from(file: Path) -> None:
    committed = 0
    for attempt in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, cwd=ROOT, text=True
        ) as child:
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(3 + 17 * attempt)]  # killed at another moment each time
            time.sleep(0.0007 * attempt)
            os.kill(child.pid, signal.SIGKILL)
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


# ------------------------------------------------------------------ damage


@pytest.fixture
def filled(file: Path) -> Path:
    """A closed file with 60 conversations of 10 messages, a few hundred pages."""
    store = Store.open(file)
    store._db.execute("PRAGMA synchronous = OFF")
    for number in range(60):
        chat(store, f"Chat {number}", *(f"message {number}.{turn} " + "word " * 150 for turn in range(10)), at=number)
    store.delete(store.conversations()[0].id)
    store.close()
    return file


def damaged_files(file: Path) -> list[Path]:
    return sorted(path for path in file.parent.iterdir() if "-damaged-" in path.name)


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


# ------------------------------------------------------------------ versions


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


# ------------------------------------------------------------------ full, read-only, locked


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


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
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
