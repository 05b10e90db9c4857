"""An empty store, and files with many chats."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_chats import chat

from app.chat.store.store import Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "Данные 数据　x" / "chats.db"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    made = Store.open(file)
    yield made
    made.close()


@pytest.fixture(scope="session")
def many_chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed file with 60 conversations of 10 messages, a few hundred pages. Copy it: damage it nowhere."""
    file = tmp_path_factory.mktemp("chats") / "chats.db"
    store = Store.open(file)
    store._db.execute("PRAGMA synchronous = OFF")
    for number in range(60):
        chat(store, f"Chat {number}", *(f"message {number}.{turn} " + "word " * 150 for turn in range(10)), at=number)
    store.delete(store.conversations()[0].id)
    store.close()
    return file


@pytest.fixture
def filled(many_chats: Path, file: Path) -> Path:
    """A copy of `many_chats`."""
    file.parent.mkdir(parents=True)
    return Path(shutil.copyfile(many_chats, file))
