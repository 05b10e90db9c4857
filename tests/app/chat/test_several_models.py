"""One question, answered by several models and modes: what is stored, what fails, what Stop and another choice do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from desk import Desk, MakeDesk

from app.chat.side_by_side import FAILURE, ModelChoice, SideBySide
from app.chat.store.conversation import Message, MessageState, Role
from app.clients.answer_request import AnswerRequest
from app.clients.engine_status import Phase

pytestmark = pytest.mark.gui

FAKE, BAMBOO = ModelChoice("Fake", "fake"), ModelChoice("Bamboo", "fake-as-Bamboo")
DENSE = ModelChoice("Fake", "fake", "dense")


def begin(desk: Desk, choices: Sequence[ModelChoice], text: str = "one two", question: str = "") -> SideBySide:
    run = SideBySide(desk.controller, desk.engine, desk.memory)
    assert run.start(choices, text, question=question)
    return run


def answers(desk: Desk, run: SideBySide) -> list[Message]:
    return [m for m in desk.memory.messages(run.chat) or [] if m.role is Role.ASSISTANT]


@pytest.mark.parametrize("location", ["in-thread", "process"])
def test_each_answers_once_as_a_version_and_the_first_model_comes_back(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    desk = make_desk(location=location)
    desk.wait_ready()
    requests: list[AnswerRequest] = []
    ask = desk.engine.ask
    monkeypatch.setattr(desk.engine, "ask", lambda request: (requests.append(request), ask(request)))
    run = begin(desk, [FAKE, DENSE, BAMBOO])
    desk.wait(lambda: not run.is_running and desk.engine.is_ready and desk.engine.status.model == "Fake")
    made = answers(desk, run)
    assert [m.parent for m in made] == [desk.shown[0].id] * 3
    assert [(m.stats or {})["model"] for m in made] == ["Fake", "Fake", "Bamboo"]
    assert {m.state for m in made} == {MessageState.COMPLETE}
    assert [r.mode for r in requests] == [None, "dense", None]
    assert len({r.sampling["seed"] for r in requests}) == 1
    assert all(r.fresh and len(r.messages) == 1 for r in requests), "none reads another's answer"
    assert desk.last.id == made[0].id, "the chat goes on with the first"
    assert desk.versions[made[0].id] == (1, 3)
    assert desk.controller.switch.wanted == "fake"
    assert [m.state for m in desk.stored()] == [MessageState.COMPLETE] * 4
    assert not run.start([FAKE, BAMBOO], question="deleted meanwhile")


@pytest.mark.parametrize("bad", [ModelChoice("Gone", "fake-missing"), ModelChoice("Crash", "fake-crash")])
def test_a_model_that_cannot_be_loaded_says_why_and_the_others_go_on(make_desk: MakeDesk, bad: ModelChoice) -> None:
    desk = make_desk(location="process")
    desk.wait_ready()
    run = begin(desk, [bad, BAMBOO])
    desk.wait(lambda: not run.is_running and desk.engine.status.model == "Fake" and desk.engine.is_ready)
    failed, good = answers(desk, run)
    assert (failed.state, good.state) == (MessageState.FAILED, MessageState.COMPLETE)
    assert (failed.stats or {})[FAILURE]
    assert (failed.stats or {})["model"] == bad.name
    assert desk.last.id == good.id
    assert desk.problem is None


@pytest.mark.parametrize("words", ["fail after 3", "card after 3", "crash after 3"])
def test_an_answer_that_fails_keeps_its_text_and_says_why(make_desk: MakeDesk, words: str) -> None:
    desk = make_desk(location="process")
    desk.wait_ready()
    run = begin(desk, [FAKE, BAMBOO], words)
    desk.wait(lambda: not run.is_running)
    made = answers(desk, run)
    assert len(made) == 2
    assert all("word2" in m.text and (m.stats or {})[FAILURE] for m in made)
    assert [(m.stats or {})["model"] for m in made] == ["Fake", "Bamboo"]


def test_stop_ends_all_of_it_and_keeps_what_was_written(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    run = begin(desk, [BAMBOO, FAKE], f"words 20 until {tmp_path / 'never'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.stop()
    desk.wait(lambda: not run.is_running and desk.engine.is_ready)
    (made,) = answers(desk, run)
    assert made.state is MessageState.CANCELLED
    assert made.text
    assert desk.engine.status.model == "Fake"


@pytest.mark.parametrize("stopped", ["", "answer", "load"])
def test_without_a_model_before_none_stays_loaded(make_desk: MakeDesk, tmp_path: Path, stopped: str) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.unload()
    last = ModelChoice("Endless", "fake-endless") if stopped == "load" else BAMBOO
    run = begin(desk, [DENSE, last], f"words 20 until {tmp_path / 'never'}" if stopped == "answer" else "one")
    if stopped == "answer":
        desk.wait(lambda: desk.last.text)
    elif stopped == "load":
        desk.wait(lambda: len(run.made) == 2 and desk.engine.status.phase is Phase.LOADING)
    if stopped:
        desk.controller.stop()
    desk.wait(lambda: not run.is_running and desk.engine.status.phase is Phase.OFF)
    assert not desk.engine.has_model
    assert desk.controller.switch.wanted == "fake"
    desk.controller.send("model")
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE and desk.last.text)
    assert desk.engine.status.model == "Fake", "the next message loads what was there before"


def test_without_a_model_before_an_answer_that_waits_gets_the_one_from_before(
    make_desk: MakeDesk, tmp_path: Path
) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.unload()
    run = begin(desk, [BAMBOO], f"words 5 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.new_chat()
    desk.controller.send("of another chat")
    (tmp_path / "go_on").touch()
    desk.wait(lambda: not run.is_running and desk.last.state is MessageState.COMPLETE)
    desk.wait(lambda: desk.engine.status.model == "Fake")


def test_stop_during_a_load_loads_the_first_model_again(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    run = begin(desk, [ModelChoice("Endless", "fake-endless"), FAKE])
    desk.wait(lambda: desk.engine.status.phase is Phase.LOADING)
    desk.controller.stop()
    assert not run.is_running
    desk.wait_ready()
    assert desk.engine.status.model == "Fake"


def test_a_model_that_the_user_chooses_meanwhile_stays(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    run = begin(desk, [ModelChoice("Slow", "fake-slow"), FAKE])
    desk.wait(lambda: desk.engine.status.phase is Phase.LOADING)
    desk.controller.use_model("fake-as-Bamboo")
    desk.wait(lambda: desk.engine.is_ready)
    assert not run.is_running
    assert desk.engine.status.model == "Bamboo"
    assert [m.state for m in answers(desk, run)] == [MessageState.CANCELLED]
    assert desk.toasts, "it says that the comparison ended"


def test_a_model_that_the_user_chooses_during_an_answer_follows_it(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    run = begin(desk, [FAKE, DENSE], f"words 5 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.use_model("fake-as-Bamboo")
    (tmp_path / "go_on").touch()
    desk.wait(lambda: not run.is_running and desk.engine.is_ready)
    assert desk.engine.status.model == "Bamboo"
    assert [m.state for m in answers(desk, run)] == [MessageState.COMPLETE, MessageState.CANCELLED]


def test_a_message_written_meanwhile_is_sent_after_the_last_answer(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    run = begin(desk, [FAKE, BAMBOO], f"words 5 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.send("history")
    (tmp_path / "go_on").touch()
    desk.wait(lambda: len(desk.shown) == 4 and desk.last.state is MessageState.COMPLETE)
    assert not run.is_running
    assert desk.shown[1].id == answers(desk, run)[0].id


def test_closing_keeps_what_was_made(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    begin(desk, [FAKE, BAMBOO], f"words 5 until {tmp_path / 'never'}")
    desk.wait(lambda: desk.last.text)
    desk.close()
    question, answer = desk.stored()
    assert answer.state is MessageState.INTERRUPTED
    assert answer.text.startswith("word0")
    assert answer.parent == question.id


def test_a_question_of_another_chat_is_not_asked_here(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    run = SideBySide(desk.controller, desk.engine, desk.memory)
    assert not run.start([FAKE, BAMBOO], question="gone")
    assert not run.is_running
    assert not desk.conversations


def test_the_model_that_comes_next_may_be_chosen_meanwhile(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    run = begin(desk, [FAKE, BAMBOO], f"words 5 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.use_model("fake-as-Bamboo")
    (tmp_path / "go_on").touch()
    desk.wait(lambda: not run.is_running and desk.engine.is_ready)
    assert [m.state for m in answers(desk, run)] == [MessageState.COMPLETE] * 2
    assert desk.engine.status.model == "Bamboo"
