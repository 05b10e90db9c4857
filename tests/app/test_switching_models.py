"""Another model in mid-chat, none at all, and a load that is not wanted any more: every chat stays as it is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import MakeDesk
from fake_library import FakeLibrary, installed
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in
from support.systems import kill

from app.chat.message_action import MessageAction
from app.chat.store.conversation import Message, MessageState, Role
from app.clients.engine_status import EngineStatus, Phase
from app.models import model_switch
from app.models.model_switch import LOAD_LAST
from app.settings import AppSettings
from app.shortcuts import command
from app.ui.composer.composer import Composer
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.message_builder import NEWEST
from app.ui.transcript.transcript import Transcript
from app.ui.widgets.engine_card import EngineCard
from app.user_messages import Action
from engine.service import protocol

pytestmark = pytest.mark.gui


# --- the controller


@pytest.mark.parametrize("location", ["in-thread", "process"])
def test_the_chat_goes_on_with_another_model_which_names_itself(make_desk: MakeDesk, location: str) -> None:
    desk = make_desk(location=location)
    changed: list[str] = []
    desk.controller.model_changed.connect(changed.append)
    desk.wait_ready()
    first = desk.say("hello")
    desk.controller.use_model("fake-as-Bamboo")
    desk.wait(lambda: desk.engine.is_ready and desk.engine.status.model == "Bamboo")
    second = desk.say("history")
    assert (first.stats or {})["model"] == "Fake"
    assert (second.stats or {})["model"] == "Bamboo"
    assert "hello" in second.text, "the new model sees what was said to the old one"
    assert len(desk.shown) == 4
    assert desk.controller.model == changed[-1] == "fake-as-Bamboo"


def test_a_switch_waits_for_the_answer_that_runs(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.switch.learn_names({"fake-as-Bamboo": "Bamboo"})
    desk.controller.send(f"words 20 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.use_model("fake-as-Bamboo")
    assert desk.toasts[-1][0].startswith("Bamboo ")
    assert desk.controller.model == "fake", "which answers now"
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.engine.status.model == "Bamboo" and desk.engine.is_ready)
    assert desk.last.text.endswith("word19 "), "not cut short"
    assert (desk.last.stats or {})["model"] == "Fake"


def test_the_model_that_answers_chosen_again_is_kept(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    loads = [status for status in desk.statuses if status.phase is Phase.LOADING]
    desk.controller.use_model("fake")
    desk.controller.send(f"words 20 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.use_model("fake-as-Bamboo")
    desk.controller.use_model("fake")
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    desk.qtbot.wait(100)
    assert [status for status in desk.statuses if status.phase is Phase.LOADING] == loads
    assert desk.engine.status.model == "Fake"


@pytest.mark.parametrize("location", ["in-thread", "process"])
def test_an_unloaded_model_comes_back_on_a_press_and_the_chat_is_there(make_desk: MakeDesk, location: str) -> None:
    desk = make_desk(location=location)
    desk.wait_ready()
    desk.say("hello")
    desk.controller.unload()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    assert desk.chat_statuses[-1].can_load == "Fake"
    assert desk.chat_statuses[-1].takes_messages, "the next message loads it"
    assert desk.engine.status.vram_bytes is None
    assert len(desk.shown) == 2
    desk.controller.load_last()
    desk.wait_ready()
    assert desk.say("again").state is MessageState.COMPLETE
    assert desk.problems == []


@pytest.mark.parametrize("location", ["in-thread", "process"])
def test_a_message_without_a_model_loads_the_last_one_and_is_answered(make_desk: MakeDesk, location: str) -> None:
    desk = make_desk(location=location)
    desk.wait_ready()
    desk.controller.use_model("fake-as-Bamboo")
    desk.wait(lambda: desk.engine.status.model == "Bamboo")
    desk.say("hello")
    desk.controller.unload()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    desk.controller.send("again")
    assert desk.chat_statuses[-1].phase is Phase.LOADING, "that is seen, and can be cancelled"
    desk.wait(lambda: len(desk.shown) == 4 and desk.last.state is MessageState.COMPLETE)
    assert (desk.last.stats or {})["model"] == "Bamboo"
    assert desk.problems == []


def test_a_load_that_a_message_began_is_cancelled_and_the_message_stays(make_desk: MakeDesk) -> None:
    desk = make_desk(model="fake-endless")
    desk.controller.cancel_load()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    desk.controller.send("are you there")
    desk.wait(lambda: desk.engine.status.total)
    desk.controller.cancel_load()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    assert desk.shown[0].text == "are you there"
    desk.controller.switch.wanted = "fake"
    desk.controller.load_model()
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)


def test_an_answer_asked_for_anew_loads_a_model_too(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    first = desk.say("hello")
    desk.controller.unload()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    desk.controller.act(MessageAction("regenerate", first.id))
    desk.wait(lambda: desk.last.id != first.id and desk.last.state is MessageState.COMPLETE)


def test_unloading_waits_for_the_answer_that_runs(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send(f"words 20 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.unload()
    assert desk.toasts[-1][0].startswith("Fake ")
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    assert desk.last.text.endswith("word19 ")
    assert desk.last.state is MessageState.COMPLETE


def test_what_is_set_while_no_model_is_loaded_loads_none(make_desk: MakeDesk) -> None:
    before = AppSettings(engine_location="in-thread")
    desk = make_desk(settings=before)
    desk.wait_ready()
    desk.controller.unload()
    desk.controller.settings_changed(replace(before, device="cpu"))
    desk.controller.settings_changed(replace(before, device="cpu", threads=2))
    desk.qtbot.wait(3 * model_switch.TYPING_MS)
    assert desk.engine.status.phase is Phase.OFF
    desk.controller.settings_changed(replace(before, device="cpu", threads=2, engine_location="process"))
    desk.wait(lambda: desk.pid)
    desk.qtbot.wait(3 * model_switch.TYPING_MS)
    assert desk.engine.status.phase is Phase.OFF
    desk.controller.load_last()
    desk.wait_ready()


@pytest.mark.parametrize("location", ["in-thread", "process"])
def test_a_load_is_cancelled(make_desk: MakeDesk, location: str) -> None:
    desk = make_desk(location=location)
    desk.wait_ready()
    desk.controller.use_model("fake-endless")
    desk.wait(lambda: desk.engine.status.total)
    desk.controller.cancel_load()
    assert desk.engine.status.word == "Stopping"
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    assert desk.chat_statuses[-1].can_load == "Fake", "what was there before"
    desk.controller.load_last()
    desk.wait_ready()
    assert desk.controller.model == "fake"


def test_an_engine_that_does_not_let_go_of_a_load_is_ended(make_desk: MakeDesk) -> None:
    desk = make_desk(location="process")
    desk.wait_ready()
    before = desk.pid
    desk.controller.use_model("fake-stuck")
    desk.controller.cancel_load()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    desk.wait(lambda: desk.pid not in (0, before))
    assert desk.engine.status.phase is Phase.OFF, "a new process alone loads nothing"
    assert desk.problems == []
    desk.controller.load_last()
    desk.wait_ready()


def test_a_load_that_is_done_before_it_hears_of_the_cancel_is_let_go(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.use_model("fake-as-Bamboo")
    desk.engine._set(cancelling=True)
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    assert not desk.engine.has_model


def test_a_switch_that_waits_is_cancelled_and_the_model_stays(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send(f"words 20 until {tmp_path / 'go_on'}")
    desk.wait(lambda: desk.last.text)
    desk.controller.use_model("fake-as-Bamboo")
    desk.controller.cancel_load()
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    desk.qtbot.wait(100)
    assert desk.engine.status.model == "Fake"
    assert desk.engine.is_ready


def test_a_question_waits_for_the_model_that_is_chosen_next(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.use_model("fake-endless")
    desk.controller.send("are you there")
    desk.controller.cancel_load()
    desk.wait(lambda: desk.engine.status.phase is Phase.OFF)
    assert desk.last.state is MessageState.WRITING, "it is not thrown away"
    assert desk.chat_statuses[-1].can_load
    desk.controller.use_model("fake-as-Bamboo")
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert (desk.last.stats or {})["model"] == "Bamboo"


def test_a_model_that_does_not_load_offers_the_one_that_did(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.use_model("/models/fake-missing")
    desk.wait(lambda: desk.problem)
    problem = desk.problem
    assert problem is not None
    assert "fake-missing" in problem.title
    assert problem.remedy.endswith(" Fake")
    assert problem.second is not None
    assert problem.second[1] == Action.RETRY_LOAD
    assert desk.chat_statuses[-1].can_load == "Fake"
    assert problem.remedy_action == LOAD_LAST
    desk.controller.remedy(problem.remedy_action)
    desk.wait_ready()
    assert desk.problem is None
    assert desk.controller.model == "fake"


def test_an_engine_that_dies_without_a_model_is_no_news(make_desk: MakeDesk) -> None:
    desk = make_desk(location="process")
    desk.wait_ready()
    desk.controller.unload()
    pid = desk.pid
    kill(pid)
    desk.wait(lambda: desk.pid != pid)
    desk.qtbot.wait(200)
    assert desk.engine.status.phase is Phase.OFF
    assert desk.problems == []


def test_what_is_remembered_for_a_model_is_asked_of_the_engine(make_desk: MakeDesk) -> None:
    desk = make_desk(settings=AppSettings(context=256))
    desk.wait_ready()
    assert desk.engine.status.context_total == 256
    desk.engine_options = {"context": 1024, "vram_budget_gib": None}
    desk.controller.load_model()
    desk.wait(lambda: desk.engine.is_ready)
    assert desk.engine.status.context_total == 1024


def test_news_of_the_model_are_shown_and_said(make_desk: MakeDesk) -> None:
    desk = make_desk(model="fake-gpu")
    desk.wait_ready()
    note = "Another program took memory of the GPU: 1.5 GB of neurons lie in RAM now."
    news = {"placement": {"line": "less"}, "notes": [note], "device": "cuda", "device_reason": "30% fit",
            "gpu": "GeForce RTX 4090", "vram_bytes": 5}  # fmt: skip
    desk.engine._on_event(protocol.News("model", news))
    status = desk.engine.status
    assert (status.placement["line"], status.vram_bytes, status.gpu) == ("less", 5, "GeForce RTX 4090")
    assert status.device_reason.startswith("30% fit. Another program took memory")
    said = len(desk.toasts)
    assert desk.toasts[-1][0].startswith("Another program")
    desk.engine._on_event(protocol.News("model", {**news, "placement": {"line": "more"}}))
    assert len(desk.toasts) == said, "once is enough"
    desk.engine._on_event(protocol.News("model", {**news, "device": "cpu", "notes": [note, "The GPU is gone."]}))
    assert (desk.engine.status.gpu, desk.engine.status.device) == ("", "CPU, 1 thread")
    assert desk.toasts[-1][0] == "The GPU is gone"
    desk.controller.unload()
    desk.engine._on_event(protocol.News("model", {"placement": {"line": "old"}, "notes": []}))
    assert desk.engine.status.placement == {}


# --- who answered


def said(model: str) -> list[Message]:
    stats = {"model": model, "decode_tok_s": 39.1, "tokens": 12} if model else None
    return [Message(Role.USER, "?"), Message(Role.ASSISTANT, f"by {model}", stats=stats)]


def names(transcript: Transcript) -> list[str]:
    views = [view for view in transcript.views if isinstance(view, AnswerView)]
    labels = [view.stats._model for view in views]
    return [label.words if label and not label.isHidden() else "" for label in labels]


def test_an_answer_names_its_model_where_another_one_gave_the_one_before(qtbot: QtBot) -> None:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.resize(900, 700)
    transcript.show()
    transcript.show_messages([*said("Pip"), *said("Pip"), *said("Bamboo"), *said(""), *said("Bamboo"), *said("Pip")])
    qtbot.waitUntil(lambda: len(names(transcript)) == 6)
    assert names(transcript) == ["", "", "Bamboo", "", "", "Pip"]
    question, answer = said("Bamboo")
    transcript.add_message(question)
    transcript.add_message(Message(Role.ASSISTANT, "", answer.id, state=MessageState.WRITING))
    assert names(transcript)[-1] == ""
    transcript.finish_message(answer)
    assert names(transcript)[-1] == "Bamboo"
    assert transcript.views[-1].findChildren(QWidget)
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    assert view.stats.words().startswith("Bamboo ")
    assert numbers_in(view.stats.words()) == ["39.1 tok/s", "12"]
    assert "Bamboo" in view.stats.accessibleName()


def test_older_answers_of_a_long_chat_are_named_as_well(qtbot: QtBot) -> None:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.resize(900, 500)
    transcript.show()
    chat = [message for i in range(NEWEST) for message in said("Pip" if i % 3 else "Bamboo")]
    transcript.show_messages(chat)
    transcript.show_message(chat[0].id)
    qtbot.waitUntil(lambda: transcript.views[0].message.id == chat[0].id)
    wanted = ["" if i == 0 or i % 3 == 2 else "Pip" if i % 3 else "Bamboo" for i in range(NEWEST)]
    qtbot.waitUntil(lambda: len(names(transcript)) > 3)
    found = names(transcript)
    assert found == wanted[: len(found)]


# --- composer and card


@pytest.fixture
def composer(qtbot: QtBot) -> Composer:
    out = Composer()
    out.resize(700, 90)
    qtbot.addWidget(out)
    out.show()
    return out


def test_the_composer_stops_a_load_and_brings_a_model_back(composer: Composer, qtbot: QtBot) -> None:
    heard: list[str] = []
    composer.load_stop_requested.connect(lambda: heard.append("stop"))
    composer.load_requested.connect(lambda: heard.append("load"))
    composer.model_menu_requested.connect(lambda: heard.append("menu"))
    composer.set_status(EngineStatus(Phase.LOADING, "Bamboo", done=1, total=2))
    assert composer._stop_load.isVisible()
    qtbot.mouseClick(composer._stop_load, Qt.MouseButton.LeftButton)
    composer.set_status(EngineStatus(Phase.LOADING, "Bamboo", done=1, total=2, cancelling=True))
    assert composer._stop_load.isHidden()
    assert composer._model.words == "Stopping"
    composer.set_status(EngineStatus(Phase.OFF, can_load="Bamboo & friends"))
    assert composer._model.words == "No model"
    assert composer._load.text().endswith(" Bamboo && friends")
    qtbot.mouseClick(composer._model, Qt.MouseButton.LeftButton)
    composer._load.setFocus()
    qtbot.mouseClick(composer._load, Qt.MouseButton.LeftButton)
    assert heard == ["stop", "menu", "load"]
    composer.set_status(EngineStatus(Phase.READY, "Bamboo"))
    assert composer._load.isHidden()
    assert composer.field.hasFocus(), "what had the focus has gone"


@pytest.mark.parametrize("width", [440, 520, 720])
def test_a_long_name_leaves_the_other_parts_their_room(composer: Composer, qtbot: QtBot, width: int) -> None:
    name = "Donaudampfschifffahrtsgesellschaftskapitänsmütze 13B, fein abgestimmt und auf vier Bit gerundet"
    composer.resize(width, 90)
    for status in (
        EngineStatus(Phase.READY, name, context_used=300, context_total=4096),
        EngineStatus(Phase.OFF, can_load=name, context_used=300, context_total=4096),
    ):
        composer.set_status(status)
        qtbot.wait(10)
        assert composer.width() == width
        assert composer.send.geometry().right() < width
        shown = [part for part in (composer._model, composer._load, composer.meter) if part.isVisible()]
        edges = [(part.geometry().left(), part.geometry().right()) for part in shown]
        assert all(a[1] < b[0] for a, b in itertools.pairwise(edges)), edges


def test_the_engines_card_is_a_button_with_a_stop_of_its_own(qtbot: QtBot) -> None:
    card = EngineCard()
    qtbot.addWidget(card)
    card.resize(236, 66)
    card.show()
    heard: list[str] = []
    card.clicked.connect(lambda: heard.append("card"))
    card.load_stop_requested.connect(lambda: heard.append("stop"))
    card.set_status(EngineStatus(Phase.READY, "Bamboo", load_s=1.0))
    assert card.stop.isHidden()
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton)
    qtbot.keyClick(card, Qt.Key.Key_Space)
    card.set_status(EngineStatus(Phase.LOADING, "Bamboo", done=1, total=2))
    qtbot.mouseClick(card.stop, Qt.MouseButton.LeftButton)
    assert heard == ["card", "card", "stop"]
    assert card.stop.accessibleName() == "Stop loading"
    assert card.accessibleName() == "Bamboo, Loading, 50%"


# --- the window


@pytest.fixture
def person(arrive: Arrive) -> Person:
    person = arrive("in-thread")
    person.wait_ready()
    return person


def test_a_person_unloads_and_goes_on(person: Person) -> None:
    person.ask("hello")
    person.hearth.controller.unload()
    composer = person.page.composer
    person.wait(lambda: composer._load.isVisible())
    person.type("a draft that stays")
    assert composer.send.isEnabled(), "Return loads it too"
    person.qtbot.mouseClick(composer._load, Qt.MouseButton.LeftButton)
    person.wait_ready()
    assert composer.text() == "a draft that stays"
    person.press(Qt.Key.Key_Return)
    person.wait(lambda: len(person.finished) == 2)


def test_a_person_switches_from_the_keyboard_and_the_next_answer_names_its_model(person: Person) -> None:
    library = person.hearth.library
    assert isinstance(library, FakeLibrary)
    library.models.append(installed("Bamboo", id="fake-as-Bamboo"))
    person.hearth.models.refresh()
    person.wait(lambda: any(row.name == "Bamboo" for row in person.hearth.models.rows))
    person.ask("hello")
    person.press(Qt.Key.Key_L, Qt.KeyboardModifier.ControlModifier)
    person.qtbot.keyClicks(QApplication.focusWidget(), "bam")
    person.qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    person.wait(lambda: person.page.composer._model.words == "Bamboo")
    person.wait_ready()
    person.ask("history")
    person.page.transcript.flush()
    assert names(person.page.transcript) == ["", "Bamboo"]
    assert "hello" in person.last_text()
    person.wait(lambda: person.window.settings.model == "fake-as-Bamboo")
    assert [row.name for row in person.hearth.models.rows if row.in_use] == ["Bamboo"]


def test_a_question_is_answered_again_by_another_model_beside_the_first_answer(person: Person) -> None:
    library = person.hearth.library
    assert isinstance(library, FakeLibrary)
    library.models.append(installed("Bamboo", id="fake-as-Bamboo"))
    person.hearth.models.refresh()
    person.wait(lambda: any(row.name == "Bamboo" for row in person.hearth.models.rows))
    first = person.ask("hello")
    transcript, menu = person.page.transcript, person.window.chat_models.menu
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    row = next(row for row in view.make_menu().actions() if row.text() == command("answer_other_model").words)
    row.trigger()
    assert menu.is_open
    menu.dismiss()
    assert [message.id for message in person.shown][-1] == first.id, "nothing was chosen"
    person.window.commands.run("answer_other_model")
    person.qtbot.keyClicks(QApplication.focusWidget(), "bam")
    person.qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    person.wait(lambda: len(person.finished) == 2)
    person.wait_ready()
    assert (person.finished[-1].stats or {})["model"] == "Bamboo"
    assert person.finished[-1].parent == first.parent
    assert names(transcript) == ["Bamboo"]
    person.hearth.controller.act(MessageAction("switch", person.finished[-1].id, step=-1))
    person.wait(lambda: person.shown[-1].id == first.id)
    assert names(transcript) == ["Fake"], "each version says which model wrote it"
    person.press(Qt.Key.Key_L, Qt.KeyboardModifier.ControlModifier)
    person.qtbot.keyClicks(QApplication.focusWidget(), "bam")
    person.qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    person.qtbot.wait(50)
    assert len(person.finished) == 2, "an ordinary choice answers nothing"


def test_a_chat_opened_while_nothing_is_loaded_says_so(person: Person) -> None:
    empty = person.page.empty
    loaded = empty._title.words
    person.hearth.controller.unload()
    person.wait(lambda: empty._title.words != loaded)
    assert "Fake" in empty._about.words, "the model that the next message loads"


def test_another_draft_is_chosen_without_loading_the_model_again(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, sent = make_desk(), list[Any]()
    desk.wait_ready()
    real = desk.worker.submit
    monkeypatch.setattr(desk.worker, "submit", lambda request: (sent.append(request), real(request)))
    desk.worker.happened.emit(protocol.News("draft", {"model": "", "reason": "It takes 3.0 GiB."}))
    assert desk.engine.status.draft_reason == "It takes 3.2\u202fGB."
    desk.worker.happened.emit(protocol.News("draft", {"model": "Small", "reason": ""}))
    assert (desk.engine.status.draft, desk.engine.status.draft_reason) == ("Small", "")
    desk.controller.choose_draft("off")
    desk.controller.choose_draft("")
    assert [type(one) for one in sent] == [protocol.ChooseDraft] * 2
    assert [one.draft for one in sent] == ["off", "auto"]
    desk.controller.send("words 100000 pace 0.01")
    desk.wait(lambda: desk.engine.status.phase is Phase.WRITING)
    desk.controller.load_model()  # it waits for the answer, and is for the same model
    desk.engine_options = {"draft": "off"}
    desk.controller.choose_draft("off")
    desk.controller.stop()
    desk.wait(lambda: isinstance(sent[-1], protocol.Load))
    assert sent[-1].engine["draft"] == "off"
