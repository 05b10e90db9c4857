"""The index of documents: what is put is found, and nothing is left of what is removed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.documents.index_file import IndexedFile, IndexFile
from app.documents.index_words import terms_of
from app.documents.passages import Passage


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexFile]:
    made = IndexFile(tmp_path / "documents.db")
    made.open()
    yield made
    made.close()


def put(index: IndexFile, path: str, *texts: str) -> int:
    passages = [Passage(n, "", "", 1, text) for n, text in enumerate(texts, 1)]
    index.put(IndexedFile(0, path, 10, 20, "text", len(texts)), passages)
    found = index.file(path)
    assert found is not None
    return found.id


def found(index: IndexFile, question: str) -> list[str]:
    files = [one.id for one in index.files().values()]
    hits = [index.passage(key) for key, _, _ in index.with_words(question, files, 10)]
    return [hit.passage.text for hit in hits if hit is not None]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("The deposit is three months' rent.", "how high is my deposit?"),
        ("The boiler was serviced in May.", "When were the boilers serviced"),
        ("Die Kündigungsfrist beträgt drei Monate.", "kündigungsfristen"),
        ("Überweisung an das Konto", "uberweisung"),
        ("我们的合同从五月开始", "合同"),
        ("Invoice 2024-117 of the roofer", "2024-117"),
        ("The dishwasher drains badly", "dishwahser"),
        ("Straße und Hausnummer", "hausnummer"),
        ("Turn up the heat.", "is the heating on?"),
        ("Der Chat der Eltern bleibt.", "Chatgruppe"),
        ("Eigenvektoren und ihre Längen", "Eigenwertproblem"),
        ("Die Miete steigt.", "Was kosten Mieten?"),
        ("Die Versicherte zahlt.", "Versicherung"),
        ("The battery of e-bikes", "ebike"),
        ("Below 0.8 bar it stops", "the gauge says 0.8"),
    ],
)
def test_words_are_found_in_other_forms(index: IndexFile, text: str, question: str) -> None:
    put(index, "/d/a.txt", text)
    put(index, "/d/b.txt", "Nothing of that kind, 火 or else, 0 of 8 or 1.8.")
    assert found(index, question)[:1] == [text]


@pytest.mark.parametrize(
    ("question", "words"), [("Who was in the war?", ["war"]), ("Wo war der Vertrag?", ["vertrag"]), ("war", ["war"])]
)
def test_function_words_are_those_of_the_language_of_the_question(question: str, words: list[str]) -> None:
    terms = terms_of(question, lambda query: True, lambda letter: [])
    assert [forms[0].strip('"') for forms in terms] == words


def test_a_question_is_never_a_query_of_its_own(index: IndexFile) -> None:
    put(index, "/d/a.txt", "some words")
    for question in ('"', "words AND", "NEAR(a b", "title: words", "(((", "*", "-words", "a OR b) --", "\0", ""):
        found(index, question)
    assert found(index, 'words" OR "x') == ["some words"]


def test_names_of_files_count(index: IndexFile) -> None:
    put(index, "/d/router_manual.txt", "Press the button for ten seconds.")
    put(index, "/d/boiler.txt", "Press the other button for two seconds.")
    assert found(index, "router manual: which button?")[0].startswith("Press the button")


def test_the_first_line_counts_for_all_passages_of_a_file(index: IndexFile) -> None:
    put(index, "/d/a.txt", "\nLEASE OF THE ATTIC\n\nRooms are", "The ladder goes to Dragomir.")
    put(index, "/d/b.txt", "Shopping\n\nWe need", "A ladder, and a ladder rack.")
    assert found(index, "Who gets the ladder by the lease?")[0].startswith("The ladder")
    index.remove(["/d/a.txt"])
    assert found(index, "attic lease") == []


def test_a_file_put_again_replaces_its_passages(index: IndexFile) -> None:
    put(index, "/d/a.txt", "old words", "older words")
    put(index, "/d/a.txt", "new words")
    assert found(index, "words") == ["new words"]
    index.remove(["/d/a.txt"])
    assert found(index, "words new old") == []
    assert index.files() == {}


def test_only_the_chosen_files_are_searched(index: IndexFile) -> None:
    first, second = put(index, "/d/a.txt", "same words"), put(index, "/e/b.txt", "same words")
    assert {file for _, file, _ in index.with_words("same", [second], 10)} == {second}
    assert {file for _, file, _ in index.with_words("same", [first, second], 10)} == {first, second}


@pytest.mark.expects_log("made again")
def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "documents.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    index = IndexFile(path)
    index.open()
    put(index, "/d/a.txt", "words")
    index.close()
    index.open()
    assert found(index, "words") == ["words"]
    index.close()


def test_a_locked_file_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "documents.db"
    index = IndexFile(path)
    index.open()
    put(index, "/d/a.txt", "words")
    index.close()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *of, **named: connect(*of, **named, timeout=0.0))
    other = connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError):
        index.open()
    other.close()
    index.open()
    assert found(index, "words") == ["words"]
    index.close()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_only_the_user_can_read_the_files(index: IndexFile, tmp_path: Path) -> None:
    put(index, "/d/a.txt", "words")
    files = list(tmp_path.glob("documents.db*"))
    assert len(files) > 1
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_vectors_are_kept_and_searched(index: IndexFile) -> None:
    put(index, "/d/a.txt", "first", "second")
    put(index, "/d/b.txt", "third")
    missing = index.without_vector("m", 10)
    assert [text for _, text in missing] == ["first", "second", "third"]
    rows = np.eye(4, dtype=np.float16)
    index.put_vectors(
        "m", [(key, rows[n].tobytes()) for n, (key, _) in enumerate(missing)] + [(999, rows[3].tobytes())]
    )
    assert index.n_without_vector("m") == 0
    assert index.n_without_vector("other") == 3
    files = [one.id for one in index.files().values()]
    near = index.near(np.array([0.1, 0.9, 0.2, 0], np.float32), "m", files, 2)
    assert [key for key, _, _ in near] == [missing[1][0], missing[2][0]]
    index.remove(["/d/a.txt"])
    assert [key for key, _, _ in index.near(np.array([0, 1, 0, 0], np.float32), "m", files, 9)] == [missing[2][0]]


def test_vectors_of_a_few_passages_are_not_searched(index: IndexFile) -> None:
    put(index, "/d/a.txt", *map(str, range(10)))
    files = [one.id for one in index.files().values()]
    question, data = np.array([1, 0], np.float32), np.array([1, 0], np.float16).tobytes()
    missing = [key for key, _ in index.without_vector("m", 10)]
    for n_read, n_found in ((8, 0), (9, 9), (10, 10)):
        index.put_vectors("m", [(key, data) for key in missing[:n_read]])
        assert len(index.near(question, "m", files, 99)) == n_found
    index.put_vectors("other", [(key, data) for key in missing[:5]])  # another model is chosen, which has read half
    assert index.near(question, "other", files, 99) == index.near(question, "m", files, 99) == []
