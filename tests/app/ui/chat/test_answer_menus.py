"""Preset, persona, sampling and mode of a chat, as a person chooses them in the window; and the comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QPlainTextEdit, QSlider, QWidget
from support.shown_text import numbers_in

from app.clients.answer_request import AnswerRequest
from app.settings import AppSettings
from app.ui.chat.answer_menus import AnswerMenus
from app.ui.composer.sampling_editor import escaped, unescaped
from app.ui.widgets.floating import Toast
from app.ui.widgets.pick_row import PickRow

pytestmark = pytest.mark.gui


def menus(person: Person) -> AnswerMenus:
    found = person.window.answer_menus
    assert found is not None
    return found


def ready(arrive: Arrive, **options: Any) -> Person:
    person = arrive("in-thread", **options)
    person.wait_ready()
    return person


def asked(person: Person, monkeypatch: pytest.MonkeyPatch) -> list[AnswerRequest]:
    requests: list[AnswerRequest] = []
    ask = person.hearth.engine.ask

    def record(request: AnswerRequest) -> None:
        requests.append(request)
        ask(request)

    monkeypatch.setattr(person.hearth.engine, "ask", record)
    return requests


def row(menu: QWidget, words: str) -> PickRow:
    return next(one for one in menu.findChildren(PickRow) if one.words == words and one.isVisibleTo(menu))


def toasts(owner: QWidget) -> list[str]:
    return [toast.words.words for toast in owner.findChildren(Toast)]


def press(person: Person, key: Qt.Key) -> None:
    QTest.keyPress(person.window.focusWidget(), key)


def test_a_preset_is_picked_with_the_keyboard_and_counts_for_this_chat_alone(
    arrive: Arrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = ready(arrive)
    requests, composer = asked(person, monkeypatch), person.page.composer
    assert composer.preset_button.text() == "Balanced"
    menus(person).open_presets()
    menu = menus(person).presets
    assert person.window.focusWidget() is row(menu, "Balanced"), "it begins at what is in force"
    press(person, Qt.Key.Key_Up)
    assert person.window.focusWidget() is row(menu, "Precise")
    press(person, Qt.Key.Key_Return)
    assert not menu.is_open
    assert composer.preset_button.text() == "Precise"
    person.ask("hello")
    assert requests[-1].sampling == {"temperature": 0.2, "top_p": 0.9}
    first = person.hearth.controller.open_conversation
    assert first is not None
    person.hearth.controller.new_chat()
    assert composer.preset_button.text() == "Balanced"
    person.ask("hello again")
    assert requests[-1].sampling == {}
    person.hearth.controller.open(first)
    assert composer.preset_button.text() == "Precise"
    kept = person.hearth.memory.conversation(first)
    assert kept is not None
    assert kept.choices == {"preset": "precise"}


def test_what_is_chosen_comes_back_at_the_next_start(arrive: Arrive, tmp_path: Path) -> None:
    person = ready(arrive)
    person.ask("hello")
    menus(person).setup.pick_persona("teacher")
    menus(person).setup.pick_mode("dense")
    menus(person).setup.set_sampling({"seed": 3})
    person.leave()
    again = ready(arrive, settings=AppSettings(last_conversation=person.hearth.controller.open_conversation or ""))
    again.wait(lambda: again.hearth.controller.open_conversation)
    chosen = menus(again).setup.chosen
    assert chosen.persona is not None
    assert (chosen.persona.id, chosen.mode, dict(chosen.sampling)) == ("teacher", "dense", {"seed": 3})
    preset, _, persona = again.page.composer.preset_button.text().partition(" · ")
    assert (preset.startswith("Balanced"), persona) == (True, chosen.persona.name)
    assert preset != "Balanced", "it was changed"
    again.wait(lambda: menus(again).setup.rates.to_json()["models"] == {})  # no answer was long enough to tell


def test_a_persona_speaks_before_the_chat(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = ready(arrive, settings=AppSettings(system_prompt="Be brief."))
    requests = asked(person, monkeypatch)
    person.ask("one")
    assert requests[-1].messages[0] == {"role": "system", "content": "Be brief."}
    menus(person).open_personas()
    menu = menus(person).personas
    assert row(menu, "No persona").is_picked
    for letter in "copy":
        QTest.keyPress(person.window.focusWidget(), letter)
    assert [one.words for one in menu.rows()] == ["Copy editor"]
    press(person, Qt.Key.Key_Return)
    person.ask("two")
    assert requests[-1].messages[0]["content"].startswith("Correct spelling")
    menus(person).open_personas()
    row(menu, "No persona").click()
    person.ask("three")
    assert requests[-1].messages[0]["content"] == "Be brief."


def test_a_typed_name_that_nobody_has_says_so(arrive: Arrive) -> None:
    person = ready(arrive)
    menus(person).open_personas()
    menu = menus(person).personas
    menu.field.setText("zzz")
    assert menu.rows() == []
    assert "zzz" in menu._nobody.words
    press(person, Qt.Key.Key_Escape)
    assert menu.is_open, "the first Esc empties the field"
    press(person, Qt.Key.Key_Escape)
    assert not menu.is_open


@pytest.mark.parametrize("model", ["fake", "fake-predictors"])
def test_the_mode_is_asked_for_and_sparse_only_where_it_can_be(
    arrive: Arrive, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    person = ready(arrive, model=model)
    requests = asked(person, monkeypatch)
    menus(person).open_presets()
    menu = menus(person).presets
    for mode in ("dense", "sparse", "exact", "auto"):
        menu.modes.buttons[mode].click()
        assert menu.is_open
        person.ask(f"in {mode}")
        expected = None if mode == "auto" or (mode == "sparse" and model == "fake") else mode
        assert requests[-1].mode == expected
        if mode == "sparse":
            assert ("no predictors" in menu.says.words) == (model == "fake")


def test_what_each_mode_costs_is_told_once_it_was_measured(arrive: Arrive) -> None:
    person = ready(arrive)
    menus(person).open_presets()
    menu = menus(person).presets
    assert numbers_in(menu.costs.words) == []
    person.ask("words 20 pace 0.0")
    assert numbers_in(menu.costs.words) == ["100 tok/s", "1"]
    assert person.window.preferences.notes["mode"].startswith("Fake ")
    assert "100 tok/s" in numbers_in(person.window.preferences.notes["mode"])
    person.leave()
    again = ready(arrive)
    assert menus(again).setup.offer.rates["exact"].answers == 1, "it is remembered"


def test_a_rate_of_another_mode_is_not_the_models(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = ready(arrive)
    usual: list[Any] = []
    menus(person).setup.usual_answer.connect(usual.append)
    person.ask("one")
    assert len(usual) == 1
    info = menus(person).setup._info
    assert info is not None
    monkeypatch.setattr(menus(person).setup, "_info", type(info)(**{**info.__dict__, "mode": "sparse"}))
    person.ask("two")
    assert len(usual) == 1


def test_the_choice_can_be_kept_for_every_chat_with_the_model(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = ready(arrive)
    requests, setup = asked(person, monkeypatch), menus(person).setup
    menus(person).open_presets()
    menu = menus(person).presets
    assert not menu.keep.isVisible(), "nothing was chosen yet"
    row(menu, "Creative").click()
    menus(person).open_presets()
    row(menu, "Use this for every chat with Fake").click()
    person.hearth.controller.new_chat()
    assert person.page.composer.preset_button.text() == "Creative"
    person.ask("hello")
    assert requests[-1].sampling["temperature"] == 1.0
    menus(person).open_presets()
    row(menu, "Stop using this for every Fake chat").click()
    assert person.page.composer.preset_button.text() == "Balanced"
    toast = person.page.findChild(Toast)
    assert toast is not None
    assert toast.button is not None
    toast.button.click()
    assert person.page.composer.preset_button.text() == "Creative"
    person.leave()
    again = ready(arrive)
    assert again.page.composer.preset_button.text() == "Creative"
    assert setup is not menus(again).setup


def test_sampling_is_changed_for_the_chat_saved_and_reset(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = ready(arrive, settings=AppSettings(top_p=0.8))
    requests = asked(person, monkeypatch)
    menus(person).open_sampling()
    popup = menus(person).sampling
    rows: Any = popup.editor.rows
    assert person.window.focusWidget() is rows["temperature"].slider
    assert rows["top_p"].figure.words == "0.80", "what is in force without a choice is shown"
    assert not popup.save.isVisible()
    rows["temperature"].slider.setValue(20)
    rows["seed"].field.setFocus()
    QTest.keyClicks(rows["seed"].field, "x7")
    assert rows["seed"].field.property("state") == "bad"
    rows["seed"].field.clear()
    QTest.keyClicks(rows["seed"].field, "7")
    rows["stop"].field.setPlainText("END\n\\n\\n\n\nEND")
    popup.dismiss()
    assert person.page.composer.preset_button.text() == "Balanced, changed"
    person.ask("hello")
    wanted = {"temperature": 1.0, "top_p": 0.8, "seed": 7, "stop": ["END", "\n\n"]}
    assert requests[-1].sampling == wanted
    menus(person).open_sampling()
    popup.save.click()
    assert person.window.focusWidget() is popup.name
    QTest.keyClicks(popup.name, "Mine")
    press(person, Qt.Key.Key_Return)
    assert person.page.composer.preset_button.text() == "Mine"
    person.ask("hello again")
    assert requests[-1].sampling == wanted
    menus(person).open_sampling()
    rows["temperature"].slider.setValue(2)
    popup.reset.click()
    assert person.page.composer.preset_button.text() == "Mine"
    assert rows["temperature"].figure.words == "1.00"
    again = type(menus(person).setup.choices.presets)(person.places.presets_file)
    person.wait(lambda: not person.hearth.reads.waiting())
    again.read()
    assert [preset.name for preset in again.own] == ["Mine"]


@pytest.mark.parametrize("stop", ["END", "\n", "\t\n", "\\n", "a\\\\b", "\\", "<|end|>"])
def test_a_stop_text_is_written_on_one_line_and_read_back(stop: str) -> None:
    assert "\n" not in escaped(stop)
    assert unescaped(escaped(stop)) == stop


# --- the shelves


def test_a_persona_is_made_changed_deleted_and_brought_back(arrive: Arrive) -> None:
    person = ready(arrive)
    store = menus(person).setup.choices.personas
    dialog = menus(person).edit_personas()
    person.wait(lambda: dialog.focusWidget() in dialog.rows())  # a space does not press Import
    editor: Any = dialog.editor
    assert not dialog.name.isEnabled(), "those of Hearth's stay as they are"
    assert editor.field.isReadOnly()
    dialog.new.click()
    assert dialog.focusWidget() is dialog.name
    QTest.keyClicks(dialog.name, "Pirate")
    editor.field.setPlainText("Arr.")
    dialog.flush()
    assert [(one.name, one.instructions) for one in store.own] == [("Pirate", "Arr.")]
    assert row(dialog, "Pirate").is_shown
    dialog.copy.click()
    assert [one.name for one in store.own] == ["Pirate", "Pirate 2"]
    dialog.name.clear()
    dialog.flush()
    assert [one.name for one in store.own] == ["Pirate", "Pirate 2"], "a thing without a name keeps its own"
    dialog.show_thing(store.own[0].id)
    menus(person).setup.pick_persona(store.own[0].id)
    assert person.page.composer.preset_button.text() == "Balanced · Pirate"
    dialog.delete.click()
    assert [one.name for one in store.own] == ["Pirate 2"]
    assert person.page.composer.preset_button.text() == "Balanced"
    toast = dialog.findChild(Toast)
    assert toast is not None
    assert toast.button is not None
    toast.button.click()
    assert [one.name for one in store.own] == ["Pirate", "Pirate 2"]
    assert person.page.composer.preset_button.text() == "Balanced · Pirate"
    dialog.close()
    person.wait(lambda: not person.hearth.reads.waiting())
    again = type(store)(person.places.personas_file)
    again.read()
    assert again.own == store.own


def test_presets_are_handed_out_and_taken_in(arrive: Arrive, tmp_path: Path) -> None:
    person = ready(arrive)
    store = menus(person).setup.choices.presets
    dialog = menus(person).edit_presets()
    assert not dialog.export_button.isEnabled(), "there is nothing of one's own yet"
    dialog.show_thing("creative")
    dialog.copy.click()
    editor: Any = dialog.editor
    editor.editor.rows["temperature"].slider.setValue(30)
    dialog.export_file(tmp_path / "out.json")
    assert "out.json" in toasts(dialog)[-1]
    assert numbers_in(toasts(dialog)[-1]) == ["1"]
    assert store.own[0].values["temperature"] == 1.5
    store.remove(store.own[0].id)
    dialog.import_file(tmp_path / "out.json")
    assert numbers_in(toasts(dialog)[-1]) == ["1"]
    assert [(one.name, one.values["temperature"]) for one in store.own] == [("Creative 2", 1.5)]
    dialog.import_file(tmp_path / "out.json")
    assert numbers_in(toasts(dialog)[-1]) == [], "none is new"
    assert len(store.own) == 1
    (tmp_path / "bad.json").write_text("{")
    dialog.import_file(tmp_path / "bad.json")
    assert toasts(dialog)[-1].startswith("bad.json ")
    dialog.close()


# --- every control

_CONTROLS = (QAbstractButton, QLineEdit, QPlainTextEdit, QSlider)


@pytest.mark.parametrize("part", ["presets", "personas", "sampling"])
def test_what_opens_from_the_composer_is_named_closes_and_gives_the_focus_back(arrive: Arrive, part: str) -> None:
    person = ready(arrive)
    person.page.focus_composer()
    menus(person).commands[part]()
    card: Any = getattr(menus(person), part)
    assert card.is_open
    assert card.isAncestorOf(person.window.focusWidget())
    _all_named(card)
    press(person, Qt.Key.Key_Escape)
    assert not card.is_open
    assert person.window.focusWidget() is person.page.composer.field


@pytest.mark.parametrize("act", ["compare", "edit_presets", "edit_personas"])
@pytest.mark.parametrize("size", [(1280, 832), (900, 600)])
def test_what_opens_as_a_dialog_is_named_and_cuts_no_words(arrive: Arrive, act: str, size: tuple[int, int]) -> None:
    person = ready(arrive)
    person.window.resize(*size)
    open_it: Callable[[], Any] = menus(person).commands[act]  # type: ignore[assignment]
    dialog = open_it()
    person.wait(dialog.isVisible)
    _all_named(dialog)
    for button in dialog.findChildren(QAbstractButton):
        if button.isVisible() and not isinstance(button, PickRow):
            assert button.width() >= button.minimumSizeHint().width()
    dialog.close()


def _all_named(root: QWidget) -> None:
    for kind in _CONTROLS:
        for control in root.findChildren(kind):
            if control.isVisible() and control.focusPolicy() != Qt.FocusPolicy.NoFocus:
                name = control.accessibleName() or (control.text() if isinstance(control, QAbstractButton) else "")
                assert name.strip(), control


def test_how_much_a_model_thinks_is_chosen_for_each_chat(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = ready(arrive, model="fake-thinker")
    requests, button = asked(person, monkeypatch), person.page.composer.thinking_button
    assert button.isVisible()
    assert "on" in button.accessibleName()
    person.ask("hello")
    assert "thinking" not in requests[-1].sampling, "the template's own"
    assert think(person, "off") == ["Off", "On"]
    assert "off" in button.accessibleName()
    assert button.glyph == "no_thinking"
    person.ask("hello")
    assert requests[-1].sampling["thinking"] == "off"
    person.hearth.controller.new_chat()
    assert "on" in button.accessibleName()
    think(person, "off")
    menus(person).setup.keep_default(True)
    person.hearth.controller.new_chat()
    assert "off" in button.accessibleName(), "the model's default"
    person.hearth.engine.load("fake-effort", {})
    person.wait(lambda: "low" in button.accessibleName())  # the nearest to off
    person.hearth.engine.load("fake", {})
    person.wait(lambda: not button.isVisible())
    menus(person).open_thinking()
    assert not menus(person).thinking.isVisible()


def test_a_choice_that_a_model_lacks_becomes_the_nearest(arrive: Arrive) -> None:
    person = ready(arrive, model="fake-effort")
    assert think(person, "high") == ["Low", "Medium", "High"]
    assert menus(person).setup.offer.thinking == "high"
    person.hearth.engine.load("fake-thinker", {})
    person.wait(lambda: menus(person).setup.offer.thinking_levels == ("off", "on"))
    assert menus(person).setup.offer.thinking == "on"


def think(person: Person, level: str) -> list[str]:
    """Click on the button and choose a level; return what was offered."""
    QTest.mouseClick(person.page.composer.thinking_button, Qt.MouseButton.LeftButton)
    menu = menus(person).thinking
    assert menu.isVisible()
    offered = menu.actions()
    next(action for action in offered if action.text().lower() == level).trigger()
    menu.hide()
    return [action.text() for action in offered]
