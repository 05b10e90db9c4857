"""Under an answer of the starter model that is probably bad, a larger model is offered, once in each chat."""

from __future__ import annotations

import pytest
from fake_library import FakeLibrary, installed
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from support.shown_text import numbers_in

from app.chat.message_action import MessageAction
from app.chat.store.conversation import MessageState
from app.settings import AppSettings

pytestmark = pytest.mark.gui
BEYOND, WITHIN = "Rewrite politely: Give me the report now.", "What is the capital of Peru?"


def begun(arrive: Arrive, model: str = "starter-chat", library: FakeLibrary | None = None) -> Person:
    """In front of the starter model, when the recommended model is known."""
    settings = AppSettings(temperature=0.0)  # else an answer may be of any length
    person = arrive("in-thread", model=model, library=library or FakeLibrary(), settings=settings)
    person.wait_ready()
    models = person.hearth.models
    models.refresh()
    person.wait(lambda: models.rows and not models.is_loading)
    return person


def test_it_comes_once_in_a_chat_and_only_where_the_question_is_beyond_the_model(arrive: Arrive) -> None:
    person = begun(arrive)
    offer = person.page.offer
    person.ask(WITHIN)
    assert offer.isHidden()
    person.ask(BEYOND)
    person.wait(offer.isVisible)
    assert "Bamboo DPO 7B" in offer.title.words
    assert numbers_in(offer.line.words) == ["39 tok/s", "14.6 GB"]
    assert person.page.composer.send.isVisible(), "nothing is blocked"
    person.ask(BEYOND)
    assert offer.isHidden(), "not again in this chat"
    person.hearth.controller.new_chat()
    person.ask(BEYOND)
    person.wait(offer.isVisible)
    QTest.mouseClick(offer.close_button, Qt.MouseButton.LeftButton)
    assert offer.isHidden()
    assert person.page.composer.field.hasFocus()


def test_it_comes_under_an_answer_that_was_cut_too(arrive: Arrive) -> None:
    """The starter model repeats itself without end at times, just where it knows nothing."""
    person = begun(arrive)
    person.hearth.controller.choices.set(sampling={"max_tokens": 1})
    assert person.ask(BEYOND).state is MessageState.LENGTH
    person.wait(person.page.offer.isVisible)


def test_it_is_fetched_from_there_and_goes_with_the_chat(arrive: Arrive) -> None:
    library = FakeLibrary()
    person = begun(arrive, library=library)
    offer = person.page.offer
    person.hearth.models.dismiss_offer()  # that of the first launch
    person.ask(BEYOND)
    person.wait(offer.isVisible)
    QTest.mouseClick(offer.get, Qt.MouseButton.LeftButton)
    person.wait(lambda: library.jobs("download") == [{"catalogue_id": "bamboo-dpo-7b"}])
    person.wait(offer.progress.isVisible)
    person.ask(WITHIN)
    assert offer.isVisible(), "a download stays in sight"
    person.hearth.controller.new_chat()
    assert offer.isHidden()


def test_other_models_and_people_with_models_get_none(arrive: Arrive) -> None:
    person = begun(arrive, model="fake")
    person.ask(BEYOND)
    assert person.page.offer.isHidden()
    person.leave()
    library = FakeLibrary()
    library.models.append(installed("Other", id="local/other"))
    person = begun(arrive, library=library)
    person.ask(BEYOND)
    assert person.page.offer.isHidden()


def test_a_chat_remembers_its_offer(arrive: Arrive) -> None:
    person = begun(arrive)
    person.ask(BEYOND)
    person.wait(person.page.offer.isVisible)
    person.leave()
    again = arrive("in-thread", model="starter-chat", library=FakeLibrary(), settings=AppSettings(temperature=0.0))
    again.wait_ready()
    again.hearth.models.refresh()
    again.wait(lambda: again.hearth.models.rows and not again.hearth.models.is_loading)
    (chat,) = again.hearth.memory.conversations()
    again.hearth.controller.open(chat.id)
    again.wait(lambda: again.hearth.controller.open_conversation == chat.id)
    again.ask(BEYOND)
    assert again.page.offer.isHidden()


def test_an_older_question_that_is_answered_again_is_judged_itself(arrive: Arrive) -> None:
    person = begun(arrive)
    controller = person.hearth.controller
    person.ask(BEYOND)
    person.wait(person.page.offer.isVisible)
    chat = controller.open_conversation
    assert chat is not None
    controller.choices.set(offered=False)
    controller.new_chat()
    person.ask(WITHIN)
    controller.open(chat)
    person.wait(lambda: controller.open_conversation == chat)
    assert person.page.offer.isHidden()
    answer = person.hearth.memory.branch_of(chat)[-1]
    controller.act(MessageAction("regenerate", answer.id))
    person.wait(person.page.offer.isVisible)
