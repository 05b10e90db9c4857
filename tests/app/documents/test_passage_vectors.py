"""Passages get vectors while the engine is idle, and questions are compared with them."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Attachment
from app.documents import passage_vectors
from app.documents.documents import Documents
from app.documents.gathering import Given
from engine.service.protocol import EmbedResult

MEANINGS = ("rent", "heat", "pet")  # a number of the vector for each
WORDS = {"Miete": "rent", "deposit": "rent", "lease": "rent", "boiler": "heat", "warm": "heat", "dog": "pet"}


class FakeEngine:
    """Knows three meanings. answers: at once, or when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], str]] = []
        self.roles: list[str] = []
        self.waiting: list[Callable[[EmbedResult | None], None]] = []
        self.fails = self.holds = False

    def embed(
        self, texts: Sequence[str], model: str, then: Callable[[EmbedResult | None], None], role: str = ""
    ) -> None:
        self.roles.append(role)
        self.asked.append((list(texts), model))
        if self.holds:
            self.waiting.append(then)
            return
        then(None if self.fails else EmbedResult([self.vector(text) for text in texts], 1, model))

    @staticmethod
    def vector(text: str) -> str:
        found = np.full(len(MEANINGS), 0.01, "<f4")
        for word, meaning in WORDS.items():
            found[MEANINGS.index(meaning)] += text.count(word)
        return base64.b64encode((found / np.linalg.norm(found)).astype("<f4").tobytes()).decode()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def documents(qtbot: QtBot, tmp_path: Path, engine: FakeEngine) -> Iterator[Documents]:
    folder = tmp_path / "papers"
    folder.mkdir()
    for name, text in (("a", "The deposit is 900."), ("b", "The boiler needs water."), ("c", "A dog is allowed.")):
        (folder / f"{name}.txt").write_text(text)
    made = Documents(tmp_path / "documents.json", tmp_path / "documents.db", lambda name, write: write())
    made.use_engine(engine)
    made.read()
    assert made.add(folder)
    qtbot.waitUntil(lambda: made.is_idle)
    yield made
    made.close()


def find(qtbot: QtBot, documents: Documents, question: str) -> list[Attachment]:
    found: list[Any] = []
    documents.find(question, documents.folders, 60, Given(), found.append)
    qtbot.waitUntil(lambda: bool(found))
    return list(found[0])


def all_there(documents: Documents) -> bool:
    return documents.vectors is not None and documents.vectors.n_left == 0


def test_another_word_for_the_same_is_found(qtbot: QtBot, documents: Documents, engine: FakeEngine) -> None:
    assert find(qtbot, documents, "Miete?") == []
    assert engine.asked == [], "without a model nothing is asked"
    documents.set_model("local/m")
    qtbot.waitUntil(lambda: all_there(documents))
    assert find(qtbot, documents, "Miete?")[0].name == "a.txt"
    assert engine.roles == ["passage", "query"]


def test_new_passages_get_vectors_too(qtbot: QtBot, documents: Documents, tmp_path: Path) -> None:
    documents.set_model("local/m")
    qtbot.waitUntil(lambda: all_there(documents))
    (tmp_path / "papers" / "d.txt").write_text("warm warm warm")
    qtbot.waitUntil(lambda: len(documents._indexer.files(documents.folders)) == 4, timeout=20_000)
    qtbot.waitUntil(lambda: all_there(documents) and documents._index.n_without_vector("local/m") == 0)


def test_a_failure_leaves_the_words(qtbot: QtBot, documents: Documents, engine: FakeEngine) -> None:
    engine.fails = True
    documents.set_model("local/m")
    assert find(qtbot, documents, "deposit")[0].name == "a.txt"
    engine.fails = False
    assert documents.vectors is not None
    documents.vectors.go_on()
    qtbot.waitUntil(lambda: all_there(documents))


def test_a_slow_engine_does_not_hold_a_question(
    qtbot: QtBot, documents: Documents, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage_vectors, "WITHIN_MS", 20)
    engine.holds = True
    documents.set_model("local/m")
    assert find(qtbot, documents, "deposit")[0].name == "a.txt"
    for then in engine.waiting:  # too late, and no harm
        then(EmbedResult([engine.vector("deposit")], 1, "m"))


def test_nothing_is_asked_while_paused(qtbot: QtBot, documents: Documents, engine: FakeEngine) -> None:
    documents.pause(True)
    documents.set_model("local/m")
    qtbot.wait(50)
    assert engine.asked == []
    documents.pause(False)
    qtbot.waitUntil(lambda: all_there(documents))


def test_another_model_gives_other_vectors(qtbot: QtBot, documents: Documents, engine: FakeEngine) -> None:
    documents.set_model("local/m")
    qtbot.waitUntil(lambda: all_there(documents))
    documents.set_model("local/n")
    qtbot.waitUntil(lambda: all_there(documents))
    assert documents._index.n_without_vector("local/n") == 0
    documents.set_model("")
    assert find(qtbot, documents, "Miete?") == []


@pytest.mark.expects_log("get no vectors")
def test_a_fault_of_the_index_is_not_met_again_at_once(
    qtbot: QtBot, documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = []

    def fail(*of: object) -> None:
        failed.append(of)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(documents._index, "without_vector", fail)
    documents.set_model("other")
    qtbot.waitUntil(lambda: len(failed) > 0)
    qtbot.wait(100)
    assert len(failed) == 1


def test_vectors_that_come_after_the_end_are_dropped(qtbot: QtBot, documents: Documents, engine: FakeEngine) -> None:
    engine.holds = True
    found: list[object] = []
    documents.set_model("other")
    qtbot.waitUntil(lambda: len(engine.waiting) == 1)
    documents.find("deposit", documents.folders, 1_000, Given(), found.append)
    documents.close()
    for then in engine.waiting:
        then(None)
    assert len(engine.waiting) == 2
    assert found == []


def test_a_passage_that_the_model_cannot_read_holds_up_no_other(
    qtbot: QtBot, documents: Documents, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        engine, "embed", lambda texts, model, then, role, ask=engine.embed: (
            then(None) if any("boiler" in text for text in texts) else ask(texts, model, then, role)
        ),
    )  # fmt: skip
    documents.set_model("local/m")
    vectors = documents.vectors
    assert vectors is not None
    for _ in range(3):
        qtbot.waitUntil(lambda: vectors.is_waiting or vectors.n_left == 0)
        vectors._again.stop()
        vectors.go_on()
    qtbot.waitUntil(lambda: documents._index.n_without_vector("local/m") == 1)
    assert vectors.n_left == 0
