"""Models that programs ask the local server for: the window loads them, never during an answer, and says who asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import Desk, MakeDesk
from person import Arrive

from app.clients.engine_status import Phase
from app.servers import client_loads
from app.servers.client_loads import ClientLoads

pytestmark = pytest.mark.gui

BAMBOO = "fake-as-Bamboo"


def loads_of(desk: Desk) -> tuple[ClientLoads, list[str]]:
    loads, said = ClientLoads(desk.engine, desk.controller), list[str]()
    loads.said.connect(lambda words, severity: said.append(words))
    desk.wait_ready()
    return loads, said


def test_a_program_has_another_model_loaded_until_the_user_chooses(make_desk: MakeDesk) -> None:
    desk = make_desk()
    loads, said = loads_of(desk)
    desk.engine.load_wanted.emit(BAMBOO, "openai-python")
    desk.wait(lambda: desk.engine.status.model == "Bamboo" and desk.engine.is_ready)
    assert (loads.model, loads.client) == (BAMBOO, "openai-python")
    assert "openai-python" in said[-1]
    desk.controller.use_model("fake")
    assert (loads.model, loads.client) == ("", "")
    desk.wait(lambda: desk.engine.status.model == "Fake" and desk.engine.is_ready)
    assert len(said) == 1


def test_it_waits_for_the_answers_that_run_and_wait(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    loads, said = loads_of(desk)
    desk.controller.send(f"words 20 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.engine.load_wanted.emit(BAMBOO, "")
    desk.qtbot.wait(2 * client_loads.LOOK_MS)
    assert (loads.client, desk.controller.switch.wanted, said) == ("", "fake", [])
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.engine.status.model == "Bamboo" and desk.engine.is_ready)
    assert desk.last.text.endswith("word19 ")
    assert (desk.last.stats or {})["model"] == "Fake"
    assert loads.client


def test_a_model_that_is_being_loaded_is_not_loaded_twice(make_desk: MakeDesk) -> None:
    desk = make_desk()
    _, said = loads_of(desk)
    desk.controller.use_model("fake-slow")
    desk.engine.load_wanted.emit("fake-slow", "a program")
    desk.wait(lambda: desk.engine.is_ready)
    assert (desk.controller.model, said) == ("fake-slow", [])


def test_a_model_that_cannot_be_loaded_leaves_the_user_with_the_one_before(make_desk: MakeDesk) -> None:
    desk = make_desk()
    loads, said = loads_of(desk)
    desk.engine.load_wanted.emit("fake-missing", "a program")
    desk.wait(lambda: desk.engine.is_ready and desk.engine.status.model == "Fake")
    assert len(said) == 2
    assert (loads.client, desk.controller.switch.wanted) == ("", "fake")
    desk.engine.load_wanted.emit(BAMBOO, "another program")
    desk.wait(lambda: desk.engine.is_ready and desk.engine.status.model == "Bamboo")
    desk.engine.load_wanted.emit("fake-missing", "a program")
    desk.wait(lambda: desk.engine.is_ready and desk.engine.status.model == "Bamboo" and len(said) == 5)
    assert (loads.model, loads.client) == (BAMBOO, "another program")


def test_an_unused_model_is_unloaded_and_the_next_message_brings_it_back(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    _, said = loads_of(desk)
    desk.controller.send(f"words 20 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.engine.unload_wanted.emit()
    assert not desk.engine.is_waiting
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.engine.is_ready)
    desk.engine.unload_wanted.emit()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    assert "Fake" in said[-1]
    assert desk.say("hello").text.strip() == "hello"


def test_the_model_that_a_program_asked_for_is_not_loaded_at_the_next_start(arrive: Arrive) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    engine = person.hearth.engine
    engine.load_wanted.emit(BAMBOO, "a program")
    person.wait(lambda: engine.status.model == "Bamboo" and engine.is_ready)
    assert person.hearth.local_server.loaded_for == (BAMBOO, "a program")
    assert person.window.settings.model == ""
    person.hearth.controller.use_model("fake-as-Oak")
    person.wait(lambda: person.window.settings.model == "fake-as-Oak")
