"""Which chats the engine may keep computed: those that exist, and none that is in the bin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from desk import Desk, MakeDesk

from app.chat.kept_chats import KeptChats
from engine.service import protocol


class Keeping:
    """A desk with chats, and what the engine was told and asked."""

    def __init__(self, desk: Desk, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.desk, self.sent = desk, list[Any]()
        real = desk.worker.submit
        monkeypatch.setattr(desk.worker, "submit", lambda request: (self.sent.append(request), real(request)))
        self.kept = KeptChats(desk.engine, desk.memory, folder, 8.0)

    def chat(self) -> str:
        self.desk.controller.new_chat()
        self.desk.say("words 3 pace 0")
        chat = self.desk.controller.open_conversation
        assert chat is not None
        return chat

    @property
    def told(self) -> list[tuple[list[str], int]]:
        keeps = [one for one in self.sent if isinstance(one, protocol.StorePrompts)]
        return [(one.chats, one.quota_bytes) for one in keeps]


@pytest.fixture
def keeping(make_desk: MakeDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeping:
    desk = make_desk()
    made = Keeping(desk, tmp_path / "prompts", monkeypatch)
    desk.wait_ready()
    desk.wait(lambda: made.told)
    return made


def test_a_question_carries_its_chat(keeping: Keeping) -> None:
    chats = [keeping.chat(), keeping.chat()]
    asked = [one.chat for one in keeping.sent if isinstance(one, protocol.Generate)]
    assert asked == chats


def test_a_deleted_chat_is_told_at_once_and_comes_back_from_the_bin(keeping: Keeping) -> None:
    assert keeping.told == [([], 8_000_000_000)]
    first, second = keeping.chat(), keeping.chat()
    keeping.desk.memory.rename(first, "Another name")
    assert len(keeping.told) == 1, "new chats and names need no word"
    keeping.desk.controller.delete(first)
    assert keeping.told[-1][0] == [second]
    keeping.desk.memory.restore(first)
    keeping.desk.controller.delete(second)
    assert keeping.told[-1][0] == [first]


def test_a_new_quota_is_told_and_a_new_process_hears_everything_again(keeping: Keeping) -> None:
    chat = keeping.chat()
    keeping.kept.set_quota(8.0)
    assert len(keeping.told) == 1
    keeping.kept.set_quota(0.5)
    assert keeping.told[-1] == ([chat], 500_000_000)
    keeping.desk.engine.restart()
    keeping.desk.wait(lambda: len(keeping.told) == 3)
    assert keeping.told[-1] == keeping.told[-2]
