"""Saved prompts in the real window: found behind "/", inserted with the keyboard, filled in with Tab."""

from __future__ import annotations

from pathlib import Path

import pytest
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app.chat.answers.saved_prompts import MAX_TEXT, SavedPrompt, SavedPrompts, matching
from app.ui.chat.preset_store_dialog import PresetStoreDialog
from app.ui.look import theme
from app.ui.widgets.floating import PAD

pytestmark = pytest.mark.gui

OUTPUT = Path(__file__).parents[4] / "tests" / "output"


def names(person: Person) -> list[str]:
    card = person.page.composer.prompts.card
    return [row.words for row in card.rows()] if card is not None and card.isVisible() else []


def marked(person: Person) -> list[str]:
    card = person.page.composer.prompts.card
    return [row.words for row in card.rows() if row.is_shown] if card is not None and card.isVisible() else []


def selected(person: Person) -> str:
    return person.page.composer.field.textCursor().selectedText()


def picture(person: Person, name: str) -> None:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    OUTPUT.mkdir(exist_ok=True)
    choices: tuple[theme.Choice, ...] = ("light", "dark")
    for choice in choices:
        theme.apply(app, choice, 1.0)
        person.page.composer.prompts._typed()  # a new theme closes the menu
        person.qtbot.wait(60)
        assert person.window.grab().save(str(OUTPUT / f"{name}-{choice}.png"))
    theme.apply(app, "light", 1.0)


def ready(arrive: Arrive) -> Person:
    person = arrive("in-thread")
    person.wait_ready()
    prompts = person.hearth.setup.choices.prompts
    prompts.put(SavedPrompt("mine", "Email to a customer", "Write to {name} about {matter}. Sign as {name}."))
    person.hearth.setup.store_changed(prompts)
    person.page.focus_composer()
    person.wait(person.page.composer.field.hasFocus)
    return person


def test_typing_filters_and_enter_inserts(arrive: Arrive) -> None:
    person = ready(arrive)
    person.type("/")
    assert len(names(person)) == len(person.hearth.setup.choices.prompts.things)
    picture(person, "slash-prompts")
    person.type("ema")
    assert names(person) == marked(person) == ["Email to a customer"]
    person.press(Qt.Key.Key_Return)
    assert names(person) == []
    assert person.page.composer.text() == "Write to {name} about {matter}. Sign as {name}."
    assert selected(person) == "{name}"
    assert person.shown == [], "nothing was sent"


def test_tab_goes_through_the_variables_and_enter_sends_once_all_are_filled_in(arrive: Arrive) -> None:
    person = ready(arrive)
    person.type("/ema")
    person.press(Qt.Key.Key_Return)
    person.type("Ann")
    person.press(Qt.Key.Key_Tab)
    assert selected(person) == "{matter}"
    person.press(Qt.Key.Key_Backtab)
    assert selected(person) == "{name}", "backwards, around the beginning"
    person.type("Bob")
    person.press(Qt.Key.Key_Tab)
    assert selected(person) == "{matter}"
    person.type("tea")
    answer_to = "Write to Ann about tea. Sign as Bob."
    assert person.page.composer.text() == answer_to
    person.press(Qt.Key.Key_Return)
    person.wait(lambda: person.finished)
    assert person.shown[0].text == answer_to


def test_enter_asks_once_before_it_sends_a_variable_as_it_is(arrive: Arrive) -> None:
    person = ready(arrive)
    person.type("/ema")
    person.press(Qt.Key.Key_Return)
    person.type("Ann")
    person.press(Qt.Key.Key_Return)
    assert person.shown == []
    assert selected(person) == "{matter}"
    card = person.page.composer.prompts.card
    assert card is not None
    assert "{matter}" in card.line.words
    person.type("tea")
    assert not card.isVisible()
    person.press(Qt.Key.Key_Return)
    assert person.shown == [], "another one is left"
    person.press(Qt.Key.Key_Return)
    person.wait(lambda: person.finished)
    assert person.shown[0].text == "Write to Ann about tea. Sign as {name}."


def test_the_send_button_asks_too(arrive: Arrive) -> None:
    person = ready(arrive)
    person.type("/ema")
    person.press(Qt.Key.Key_Return)
    QTest.mouseClick(person.page.composer.send, Qt.MouseButton.LeftButton)
    assert person.shown == []
    QTest.mouseClick(person.page.composer.send, Qt.MouseButton.LeftButton)
    person.wait(lambda: person.finished)


def test_escape_leaves_the_text_and_the_menu_stays_closed(arrive: Arrive) -> None:
    person = ready(arrive)
    person.type("/e")
    assert names(person)
    person.press(Qt.Key.Key_Escape)
    assert names(person) == []
    person.type("x")
    person.press(Qt.Key.Key_Backspace)
    assert names(person) == []
    assert person.page.composer.text() == "/e"
    person.press(Qt.Key.Key_Backspace)
    person.press(Qt.Key.Key_Backspace)
    person.type("/")
    assert names(person), "a new beginning"


@pytest.mark.parametrize("text", ["/home/ann", "a /ema", " /ema", "/ema?"])
def test_a_slash_that_matches_nothing_is_plain_text(arrive: Arrive, text: str) -> None:
    person = ready(arrive)
    person.type(text)
    assert names(person) == []
    person.press(Qt.Key.Key_Return)
    person.wait(lambda: person.finished)
    assert person.shown[0].text == text.strip()


def test_arrows_and_the_mouse_choose(arrive: Arrive) -> None:
    person = ready(arrive)
    person.type("/")
    first = marked(person)
    person.press(Qt.Key.Key_Down)
    assert marked(person) != first
    person.press(Qt.Key.Key_Up)
    assert marked(person) == first
    person.press(Qt.Key.Key_Up)
    assert marked(person) == names(person)[-1:], "around"
    card = person.page.composer.prompts.card
    assert card is not None
    QTest.mouseClick(card.rows()[0], Qt.MouseButton.LeftButton)
    assert "{" in person.page.composer.text()
    assert person.page.composer.field.hasFocus()


def test_the_menu_stays_above_a_composer_that_shrinks(arrive: Arrive) -> None:
    person = ready(arrive)
    field, composer = person.page.composer.field, person.page.composer
    for _ in range(4):
        person.press(Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    person.qtbot.wait(50)
    high = composer.height()
    field.selectAll()
    person.type("/")
    person.wait(lambda: composer.height() < high)
    person.qtbot.wait(50)
    card = composer.prompts.card
    assert card is not None
    assert card.isVisible()
    top = composer.mapTo(person.window, composer.rect().topLeft()).y()
    assert top - 10 <= card.geometry().bottom() - PAD <= top
    person.window.resize(1100, 700)
    person.qtbot.wait(50)
    top = composer.mapTo(person.window, composer.rect().topLeft()).y()
    assert top - 10 <= card.geometry().bottom() - PAD <= top


def test_many_prompts_show_those_around_the_current_one(arrive: Arrive) -> None:
    person = ready(arrive)
    prompts = person.hearth.setup.choices.prompts
    for n in range(20):
        prompts.put(SavedPrompt(f"p{n}", f"Prompt {n:02}", "x"))
    person.hearth.setup.store_changed(prompts)
    person.type("/prompt")
    assert len(names(person)) == 7
    for _ in range(12):
        person.press(Qt.Key.Key_Down)
    assert marked(person) == ["Prompt 12"]
    person.press(Qt.Key.Key_Return)
    assert person.page.composer.text() == "x"


def test_braces_of_the_users_own_text_are_left_alone(arrive: Arrive) -> None:
    person = ready(arrive)
    person.type("what is {matter}?")
    person.press(Qt.Key.Key_Return)
    person.wait(lambda: person.finished)
    assert person.shown[0].text == "what is {matter}?"


def test_prompts_are_made_in_their_dialog(arrive: Arrive) -> None:
    person = ready(arrive)
    person.type("/")
    card = person.page.composer.prompts.card
    assert card is not None
    QTest.mouseClick(card.edit, Qt.MouseButton.LeftButton)
    person.wait(lambda: isinstance(QApplication.activeModalWidget(), PresetStoreDialog))
    dialog = QApplication.activeModalWidget()
    assert isinstance(dialog, PresetStoreDialog)
    QTest.mouseClick(dialog.new, Qt.MouseButton.LeftButton)
    QTest.keyClicks(dialog.name, "Riddle")
    dialog.editor.field.setPlainText("A riddle about {thing}.")  # type: ignore[attr-defined]
    dialog.close()
    assert person.page.composer.text() == ""
    person.page.focus_composer()
    person.type("/rid")
    person.press(Qt.Key.Key_Return)
    assert person.page.composer.text() == "A riddle about {thing}."


def test_saved_prompts_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    store = SavedPrompts(path)
    store.put(SavedPrompt("a", "Mine", "About {x y} and {1} and {} and {x y}"))
    store.save(store.to_json())
    again = SavedPrompts(path)
    again.read()
    assert again.own == store.own
    assert again.own[0].variables == ["x y"]
    with pytest.raises(ValueError, match="20,000"):
        store.from_json({"id": "b", "name": "b", "text": "x" * (MAX_TEXT + 1)})
    found = [SavedPrompt("1", "A tea", ""), SavedPrompt("2", "Tea", ""), SavedPrompt("3", "Rum", "")]
    assert [one.id for one in matching(found, "TE")] == ["2", "1"]
