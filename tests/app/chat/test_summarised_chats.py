"""Chats whose oldest messages are summarised: what is sent instead, what invalidates it, and how it is undone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from desk import Desk, MakeDesk
from pytestqt.qtbot import QtBot

from app.chat.answers.answer_settings import request_for
from app.chat.message_action import MessageAction
from app.clients.engine_status import EngineStatus, Phase
from app.clients.servers import Place, Server
from app.ui.transcript.context_mark import ContextMark
from app.ui.widgets.controls import Button, Label
from engine.service import protocol


class Summarising:
    """A chat that summarises, and what the engine was asked."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.desk, self.sent = desk, list[Any]()
        real = desk.worker.submit
        monkeypatch.setattr(desk.worker, "submit", lambda request: (self.sent.append(request), real(request)))
        desk.controller.choices.set(overflow="summarise")
        for number in range(3):
            desk.say(f"Question {number}")

    def ask(self, text: str) -> protocol.Generate:
        """Return the request that this question made."""
        self.desk.say(text)
        return next(one for one in reversed(self.sent) if isinstance(one, protocol.Generate))

    @property
    def chat(self) -> str:
        chat = self.desk.controller.open_conversation
        assert chat is not None
        return chat

    def act(self, act: Any, at: int, **more: Any) -> None:
        self.desk.controller.act(MessageAction(act, self.desk.shown[at].id, **more))


@pytest.fixture
def room(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> Summarising:
    desk = make_desk()
    desk.wait_ready()
    return Summarising(desk, monkeypatch)


def contents(request: protocol.Generate) -> list[str]:
    return [message["content"].strip() for message in request.messages]


def test_a_summary_is_sent_instead_of_the_messages_that_it_stands_for(room: Summarising) -> None:
    first = room.ask("fold 4")
    assert (first.summary, first.summarised, len(first.messages)) == ("", 0, 7)
    second = room.ask("And now?")
    assert (second.summary, second.summarised) == ("Of cats. ", 4)
    assert contents(second) == ["Question 2", "Question 2", "fold 4", "fold 4", "And now?"]
    third = room.ask("fold 2")
    assert (third.summary, third.summarised) == ("Of cats. ", 4)
    assert room.ask("Now?").summarised == 6
    assert room.desk.last.stats is not None
    assert room.desk.last.stats["summary"] == "Of cats. Of cats. "


def test_it_survives_a_restart(room: Summarising, make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    room.ask("fold 4")
    chat = room.chat
    room.desk.close()
    again = make_desk()
    again.wait_ready()
    again.controller.open(chat)
    again.wait(lambda: again.shown)
    request = again.controller.next_request("And?")
    assert (request.summary, request.summarised, len(request.messages)) == ("Of cats. ", 4, 5)


def test_another_branch_and_a_deleted_message_do_not_use_it(room: Summarising) -> None:
    room.ask("fold 4")
    room.act("delete", 2)
    changed = room.ask("And?")
    assert (changed.summary, changed.summarised) == ("", 0)
    assert "Question 0" in contents(changed)
    room.act("edit", 2, text="Another question 2")
    room.desk.wait(lambda: room.desk.engine.is_ready)
    assert room.ask("Then?").summary == ""


def test_another_policy_sends_the_messages_themselves(room: Summarising) -> None:
    room.ask("fold 4")
    room.desk.controller.choices.set(overflow="middle")
    assert room.ask("And?").summary == ""
    room.desk.controller.choices.set(overflow="summarise")
    room.act("regenerate", -1)
    room.desk.wait(lambda: room.desk.engine.is_ready)
    assert (
        room.sent[-1].summarised == 4 or [one for one in room.sent if isinstance(one, protocol.Generate)][-1].summarised
    )


def test_a_server_is_sent_the_whole_chat(room: Summarising) -> None:
    room.ask("fold 4")
    place = Place(Server("s", "Server", "http://127.0.0.1:1/v1"), "model")
    settings = replace(room.desk.controller.settings_for(room.desk.memory.conversation(room.chat)), place=place)
    branch = room.desk.memory.branch_of(room.chat) or []
    request = request_for(branch, branch[-2].id, settings)
    assert (request.summary, len(request.messages)) == ("", 7)


def test_undoing_it_sends_the_messages_again(room: Summarising) -> None:
    room.ask("fold 4")
    room.act("unsummarise", 4)
    assert not any((message.stats or {}).get("summary") for message in room.desk.shown)
    after = room.ask("And?")
    assert (after.summary, after.overflow) == ("", "roll")
    assert contents(after)[0] == "Question 0"


def test_counting_includes_the_summary(room: Summarising) -> None:
    room.ask("fold 4")
    request = room.desk.controller.next_request("And?")
    assert request.with_summary[0]["role"] == "system"
    assert "Of cats." in request.with_summary[0]["content"]
    assert request.with_summary[1:] == request.messages


def test_the_status_says_what_the_wait_is_for() -> None:
    reading = EngineStatus(Phase.READING, done=5, total=10)
    assert replace(reading, summarising=True).word != reading.word
    assert "10" not in replace(reading, summarising=True).word


def test_the_mark_shows_the_summary_and_offers_to_undo_it(qtbot: QtBot) -> None:
    mark = ContextMark()
    qtbot.addWidget(mark)
    mark.resize(600, 60)
    mark.show()
    mark.set_left_out(4, summary="Of cats and their names.")
    assert "4" in mark.words.text()
    card = mark.explain()
    assert "Of cats and their names." in [label.words for label in card.findChildren(Label)]
    with qtbot.waitSignal(mark.unsummarised):
        card.findChildren(Button)[-1].click()
    mark.set_left_out(4)
    assert not mark.explain().findChildren(Button)
