"""Finding text in all chats: with the index, without it, and with one that is behind or broken."""

from __future__ import annotations

import dataclasses
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.store import store_search
from app.chat.store.conversation import Attachment, Conversation, Message, MessageState, Role
from app.chat.store.store import Store
from app.chat.store.store_search import snippet
from app.errors import StoreError
from app.text.block_parser import parse
from app.text.markdown_blocks import Block
from app.text.plain_text import fold, marks_in


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    made = Store.open(file)
    yield made
    made.close()


def chat(store: Store, title: str, *texts: str, at: float = 1000.0) -> tuple[Conversation, list[Message]]:
    made = Conversation(title=title, created_at=at, updated_at=at)
    store.save_conversation(made)
    messages: list[Message] = []
    for text in texts:
        parent = messages[-1].id if messages else ""
        messages.append(Message(Role.USER, text, created_at=at + len(messages), parent=parent))
        store.append(made.id, messages[-1])
    return made, messages


def index_all(store: Store) -> int:
    steps = 1
    while store.grow_index():
        steps += 1
    return steps


def unknown(store: Store) -> int:
    """How many messages the index does not know."""
    query = "SELECT count(*) FROM message WHERE rowid NOT IN (SELECT message FROM search_entry)"
    return int(store._db.execute(query).fetchone()[0])


def found(store: Store, text: str) -> list[tuple[str, str]]:
    return [(hit.conversation.title, hit.message_id) for hit in store.search(text)]


LETTERS = [
    "a",
    "B",
    "ß",
    "é",
    "e\u0301",
    "İ",
    "火",
    "\U0001f525",
    '"',
    "'",
    "%",
    "_",
    "\\",
    "\0",
    " ",
    "\n",
    "ﬁ",
    "ά",
    "Σ",
    "ς",
]


@pytest.mark.parametrize("seed", range(6))
def test_the_index_finds_what_reading_everything_finds(file: Path, seed: int) -> None:
    dice = random.Random(seed)
    store = Store.open(file)
    for number in range(30):
        chat(store, f"{number}", *("".join(dice.choices(LETTERS, k=dice.randrange(40))) for _ in range(4)), at=number)
    every = [m.text for c in store.conversations() for m in store.messages(c.id)]
    needles = [text[at : at + dice.randrange(1, 12)] for text in every for at in [dice.randrange(len(text) + 1)]]
    needles += ["".join(dice.choices(LETTERS, k=3)) for _ in range(30)]
    before = [store.search(needle) for needle in needles]
    assert store.grow_index() is False
    assert unknown(store) == 0
    assert [store.search(needle) for needle in needles] == before
    assert sum(map(len, before)) > 100
    store.close()


def test_what_changes_after_it_was_indexed_is_found_as_it_is_now(store: Store) -> None:
    made, (first, second) = chat(store, "t", "the first sentence", "the second sentence")
    index_all(store)
    store.update_message(dataclasses.replace(second, text="rewritten"))
    assert found(store, "second sent") == []
    assert found(store, "rewritten") == [("t", second.id)]
    store.append(made.id, dataclasses.replace(first, text="written over"))
    assert found(store, "first sent") == []
    assert found(store, "written over") == [("t", first.id)]
    index_all(store)
    assert found(store, "rewritten") == [("t", second.id)]
    store.remove_message(second.id)
    assert found(store, "rewritten") == []
    store.put_back(second.id, first.id, [])
    assert found(store, "rewritten") == [("t", second.id)]


def test_an_answer_is_found_while_it_is_written_and_indexed_when_it_is_done(store: Store) -> None:
    made, _ = chat(store, "t", "question")
    answer = Message(Role.ASSISTANT, "growing words", state=MessageState.WRITING)
    store.append(made.id, answer)
    index_all(store)
    assert unknown(store) == 1
    assert found(store, "growing") == [("t", answer.id)]
    store.update_message(dataclasses.replace(answer, state=MessageState.COMPLETE))
    index_all(store)
    assert unknown(store) == 0


def test_attachments_are_searched_with_their_message(store: Store) -> None:
    made, _ = chat(store, "t")
    paper = Attachment("Grüße.pdf", 'Line one\nwith "quotes" and tab\t.', "pdf", 3)
    asked = Message(Role.USER, "What does it say?", attachments=(paper,))
    store.append(made.id, asked)
    for _ in range(2):
        assert found(store, 'one\nwith "quo') == found(store, "GRÜSSE.pdf") == [("t", asked.id)]
        assert found(store, "\\n") == []
        index_all(store)


def test_what_was_purged_is_in_the_file_no_more(store: Store, file: Path) -> None:
    secret = "xylophonequartz"
    gone, _ = chat(store, "gone", f"before {secret} after")
    _, (message, _) = chat(store, "kept", f"again {secret} here", "other")
    index_all(store)
    store.delete(gone.id)
    store.remove_message(message.id)
    store.purge_deleted(time.time() + 1, time.time() + 1)
    assert found(store, secret) == []
    assert found(store, "other")
    pieces = {secret[at : at + 3] for at in range(len(secret) - 2)}
    for piece in pieces:
        assert store._db.execute("SELECT rowid FROM search WHERE search MATCH ?", (f'"{piece}"',)).fetchall() == []
    store.close()
    assert secret.encode() not in file.read_bytes()


def test_a_long_text_is_looked_for_by_a_few_of_its_pieces(store: Store) -> None:
    text = "".join(random.Random(1).choices("abcdefgh ", k=5000))
    _, (one,) = chat(store, "t", f"before {text} after")
    index_all(store)
    assert found(store, text) == [("t", one.id)]
    assert found(store, text + "x") == []


def test_a_very_long_message_is_found_without_the_index(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_search, "LONGEST_INDEXED", 100)
    _, (short, long) = chat(store, "t", "needle", "x" * 200 + "needle")
    index_all(store)
    assert unknown(store) == 1
    assert found(store, "needle") == [("t", long.id)]
    assert found(store, "xneedle") == [("t", long.id)]
    store.remove_message(long.id)
    assert found(store, "needle") == [("t", short.id)]


def test_a_large_purge_lets_others_to_the_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_search, "STEP_CHARACTERS", 1000)
    gone, _ = chat(store, "gone", *(f"message {number} " + "word " * 50 for number in range(40)))
    chat(store, "kept", "word")
    index_all(store)
    store.delete(gone.id)
    waits: list[float] = []
    monkeypatch.setattr("app.chat.store.store.time.sleep", waits.append)
    assert store.purge_deleted(time.time() + 1, time.time() + 1) == 1
    assert len(waits) >= 9
    assert found(store, "message") == []
    assert [title for title, _ in found(store, "word")] == ["kept"]


# --- marks


@pytest.mark.parametrize(
    ("text", "needle", "marked"),
    [
        ("Hearth by the hearth", "hearth", ["Hearth", "hearth"]),
        ("Straße und STRASSE", "strasse", ["Straße", "STRASSE"]),
        ("cafe\u0301 Café", "café", ["cafe\u0301", "Café"]), ("\U0001f525 fire \U0001f525", "fire", ["fire"]),
        ("aaaa", "aa", ["aa", "aa"]), ("ﬁne", "f", ["ﬁ"]), ("x\u0323y", "x", ["x\u0323"]),
        ("no", "yes", []), ("any", "", []),
        ("한국어 \u1112\u1161\u11ab", "한", ["한", "\u1112\u1161\u11ab"]),
    ],
)  # fmt: skip
def test_marks_are_places_in_the_text_as_it_is_shown(text: str, needle: str, marked: list[str]) -> None:
    assert [text[start:end] for start, end in marks_in(text, fold(needle))] == marked


def test_a_hit_carries_its_marks(store: Store) -> None:
    text = "ß" * 300 + " some words and\n\tthe  needle, then more words " + "and a Needle again " * 9
    _, (_, message) = chat(store, "A needle's eye", "the needle in an older message", text)
    for _ in range(2):
        (hit,) = store.search("NEEDLE")
        assert hit.message_id == message.id
        assert {hit.snippet[a:b].lower() for a, b in hit.marks} == {"needle"}
        assert [hit.conversation.title[a:b] for a, b in hit.title_marks] == ["needle"]
        (spaced,) = store.search("the  needle")
        assert [spaced.snippet[a:b] for a, b in spaced.marks] == ["the needle"]
        index_all(store)


# --- an index that is not what it should be


def test_a_python_that_folds_otherwise_makes_it_anew(store: Store, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, (one,) = chat(store, "t", "some words")
    index_all(store)
    store.close()
    monkeypatch.setattr(store_search, "_MAKING", "another")
    again = Store.open(file)
    assert found(again, "some words") == [("t", one.id)]
    again.update_message(dataclasses.replace(one, text="other words"))
    assert found(again, "other words") == [("t", one.id)]
    assert again._db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'search_making'").fetchone() is None
    index_all(again)
    assert found(again, "other words") == [("t", one.id)]
    assert found(again, "some words") == []
    again.close()


def test_a_broken_index_is_done_without_and_made_anew(store: Store) -> None:
    _, (one,) = chat(store, "t", "some words " * 500)
    index_all(store)
    store._db.execute("UPDATE search_data SET block = randomblob(50) WHERE id > 10")
    with pytest.raises(sqlite3.DatabaseError):
        store._db.execute("SELECT rowid FROM search WHERE search MATCH 'wor'").fetchall()
    assert found(store, "some words") == [("t", one.id)]
    store.update_message(dataclasses.replace(one, text="other words"))
    assert found(store, "other words") == [("t", one.id)]
    index_all(store)
    assert unknown(store) == 0
    assert found(store, "other words") == [("t", one.id)]
    assert found(store, "some words") == []


def test_without_fts5_every_text_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object) -> None:
        error = sqlite3.OperationalError("no such module: fts5")
        error.sqlite_errorcode = sqlite3.SQLITE_ERROR
        raise error

    monkeypatch.setattr(store_search.SearchIndex, "_make", refuse)
    store = Store.open(file)
    _, (one,) = chat(store, "t", "some words")
    assert store.grow_index() is False
    assert found(store, "some words") == [("t", one.id)]
    store.close()


def test_a_step_that_finds_no_room_is_taken_back(store: Store) -> None:
    _, (one,) = chat(store, "t", "some words " * 3000)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError) as caught:
        store.grow_index()
    assert caught.value.kind == "full"
    assert found(store, "some words") == [("t", one.id)]
    store.update_message(dataclasses.replace(one, text="other"))
    store._db.execute(f"PRAGMA max_page_count = {pages + 500}")
    index_all(store)
    assert found(store, "other") == [("t", one.id)]


def test_large_chats_are_indexed_in_steps_and_found_soon(store: Store) -> None:
    dice = random.Random(3)
    words = ["".join(dice.choices("etaoinshrdlu", k=dice.randrange(2, 9))) for _ in range(3000)]
    chats = [(f"c{number}", [" ".join(dice.choices(words, k=60)) for _ in range(10)]) for number in range(300)]
    with store._transaction() as db:
        for number, (name, texts) in enumerate(chats):
            db.execute(
                "INSERT INTO conversation (id, title, created_at, updated_at) VALUES (?, ?, 0, ?)", (name, name, number)
            )
            db.executemany(
                "INSERT INTO message (id, conversation_id, position, role, text, created_at, state) "
                "VALUES (?, ?, ?, 'user', ?, 0, 'complete')",
                [(f"{name}.{place}", name, place, text) for place, text in enumerate(texts)],
            )
    needles = [chats[dice.randrange(300)][1][dice.randrange(10)][50:70] for _ in range(10)]
    before = [store.search(needle) for needle in needles]
    assert index_all(store) > 10
    started = time.process_time()
    assert [store.search(needle) for needle in needles] == before
    assert (time.process_time() - started) / len(needles) < 2


# --- snippets


@pytest.mark.parametrize(
    ("text", "needle", "words"),
    [
        ("<think>\nLet me recall.\n</think>\n\nUse **Timsort**, as `list.sort` does.", "timsort",
         "Use [Timsort], as list.sort does."),
        ("## Sorting\n\n- **Timsort** is stable\n- heaps are not", "timsort", "[Timsort] is stable heaps are not"),
        ("| Name | Stable |\n| --- | --- |\n| Timsort | yes |", "timsort", "Name Stable [Timsort] yes"),
        ("<think>Timsort?</think>It sorts.", "timsort", "[Timsort]?"),
        ("```python\nprint(1)\n```\n\nThat was Python.", "python", "That was [Python]."),
        ("Read [the docs](https://example.com/timsort) first.", "timsort", "Read the docs first."),
        ("```\na = b * c * d  # timsort\n\ne = f * g * timsort\n```", "g * timsort", "e = f * [g * timsort] ```"),
        ("It is **bold**.", "**", "It is bold."),
        ("A &amp; B, x < y, timsort", "timsort", "A & B, x < y, [timsort]"),
    ],
)  # fmt: skip
def test_a_snippet_of_an_answer_has_plain_words(store: Store, text: str, needle: str, words: str) -> None:
    made, _ = chat(store, "t", "What?")
    store.append(made.id, Message(Role.ASSISTANT, text, created_at=1001.0))
    (hit,) = store.search(needle)
    shown = hit.snippet
    for start, end in reversed(hit.marks):
        shown = f"{shown[:start]}[{shown[start:end]}]{shown[end:]}"
    assert shown == words


def test_a_snippet_of_your_own_message_shows_what_you_typed(store: Store) -> None:
    chat(store, "t", "Is **this** bold?")
    assert store.search("this")[0].snippet == "Is **this** bold?"


def test_a_snippet_reads_only_what_is_around_the_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counting(text: str) -> list[Block]:
        read.append(len(text))
        return parse(text)

    monkeypatch.setattr(store_search, "parse", counting)
    filler = "Some *words* of a very long answer, with `code` in them.\n\n" * 20_000
    cut, marks = snippet(filler + "Use **Timsort** here.\n\n" + filler, "timsort", is_answer=True)
    assert (cut, [cut[a:b] for a, b in marks]) == ("Use Timsort here.", ["Timsort"])
    one_line = "`word` " * 100_000
    assert "needle" in snippet(one_line + "needle" + one_line, "needle", is_answer=True)[0]
    assert snippet("**" * 10_000 + filler, "**", is_answer=True)[1] == ()
    assert 0 < max(read) < 3 * store_search.AROUND
    assert len(read) < 10
