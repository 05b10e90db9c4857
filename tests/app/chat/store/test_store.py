"""The chats on disk: what is kept, in which order, what is undone, and what a search finds."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_chats import chat, tree

from app.chat.store.conversation import Attachment, Message, MessageState, Role, Unsent, branch
from app.chat.store.store import Store

# --- keeping


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


# --- branches, heads


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


# --- search


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
