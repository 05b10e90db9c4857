"""Comparing models in the window: the dialog, the columns, and the choice of the answer that the chat goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_library import FakeLibrary, installed
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat.answers.comparison import verdict
from app.chat.side_by_side import FAILURE, ModelChoice
from app.chat.store.conversation import Message, MessageState, Role
from app.clients.engine_status import Phase
from app.settings import AppSettings
from app.ui.chat.answer_columns import AnswerColumn, AnswerColumns
from app.ui.chat.compare_models_dialog import CompareModelsDialog
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.own_message import MessageEditor

pytestmark = pytest.mark.gui


def library() -> FakeLibrary:
    out = FakeLibrary(0)
    names = (("Fake", "fake"), ("Bamboo", "fake-as-Bamboo"), ("Gone", "fake-missing"))
    out.models = [installed(name, id=path) for name, path in names]
    return out


def with_models(arrive: Arrive) -> Person:
    person = arrive(library=library(), location="in-thread")
    person.wait_ready()
    person.hearth.models.refresh()
    person.wait(lambda: person.hearth.models.rows)
    return person


def dialog_of(person: Person) -> CompareModelsDialog:
    person.window.commands.run("compare_models")
    found = person.window.findChildren(CompareModelsDialog)
    return next(one for one in found if one.isVisible())


def columns_of(person: Person) -> list[AnswerColumn]:
    menus = person.window.answer_menus
    assert menus is not None
    assert menus.comparing.columns is not None
    return menus.comparing.columns.columns


def choose(dialog: CompareModelsDialog, row: int, model: str) -> None:
    dialog.rows[row]._take(next(choice for choice in dialog._offered if choice.model == model))


def compared(person: Person, text: str = "one two", *models: str) -> None:
    """Compare, and wait for the end."""
    if text:
        person.type(text)
    dialog = dialog_of(person)
    while len(dialog.rows) < len(models):
        dialog.more.click()
    for row, model in enumerate(models):
        choose(dialog, row, model)
    dialog.go.click()
    run = person.hearth.setup.side_by_side
    person.wait(lambda: not run.is_running and person.hearth.engine.is_ready)


def test_a_model_that_could_not_be_loaded_is_not_offered_as_the_loaded_one(arrive: Arrive) -> None:
    person = with_models(arrive)
    person.hearth.controller.switch.use("fake-missing")
    person.wait(lambda: person.hearth.controller.status.phase is Phase.FAILED)
    assert [choice.model for choice in dialog_of(person)._offered].count("fake-missing") == 1


def test_the_draft_is_answered_by_three_and_one_is_chosen(arrive: Arrive) -> None:
    person = with_models(arrive)
    compared(person, "one two", "fake", "fake-missing", "fake-as-Bamboo")
    columns = columns_of(person)
    assert [column.title.words for column in columns] == ["Fake", "Gone", "Bamboo"]
    assert [column.why.isHidden() for column in columns] == [True, False, True]
    assert [column.choose.isHidden() for column in columns] == [True, True, False], "the first is in the chat already"
    assert "100" in columns[2].facts.words
    assert person.page.composer.text() == ""
    assert person.window.settings.model == "", "the next start loads no model of a comparison"
    assert person.page.transcript.isHidden()
    columns[2].choose.click()
    assert not person.page.transcript.isHidden()
    assert (person.shown[-1].stats or {})["model"] == "Bamboo"
    assert person.ask("history").text.count("one two") == 2, "the question and the chosen answer"


@pytest.mark.parametrize("place", ["chat", "live"])
def test_compare_with_dense_offers_the_loaded_model_in_both_modes(arrive: Arrive, place: str) -> None:
    person = with_models(arrive)
    person.ask("one two")
    menus = person.window.answer_menus
    assert menus is not None
    if place == "live":
        person.window.show_live()
        assert person.window.pages.live_page is not None
        person.window.pages.live_page.compare.click()
    else:
        menus.open_presets()
        menus.presets.compare.click()
    dialog = next(one for one in person.window.findChildren(CompareModelsDialog) if one.isVisible())
    assert [(choice.model, choice.mode) for choice in dialog.choices] == [("fake", None), ("fake", "dense")]
    dialog.go.click()
    run = person.hearth.setup.side_by_side
    person.wait(lambda: not run.is_running and len(run.made) == 2)
    assert person.window.pages.currentWidget() is person.page
    assert all("100" in column.facts.words for column in columns_of(person)), "both rates"
    columns = menus.comparing.columns
    assert columns is not None
    assert numbers_in(columns.heading.words) == ["3"], "the answer from before is a version too"


def test_without_a_model_there_is_nothing_to_compare_and_it_says_so(arrive: Arrive) -> None:
    person = with_models(arrive)
    person.type("one two")
    person.hearth.controller.unload()
    person.wait(lambda: person.hearth.engine.status.phase is Phase.OFF)
    menus = person.window.answer_menus
    assert menus is not None
    dialog = menus.comparing.open_with_dense()
    assert not dialog.go.isEnabled()
    assert dialog.note.words == "No model is loaded."
    dialog.reject()
    menus.open_presets()
    assert not menus.presets.compare.isEnabled()


def test_two_answers_are_summed_up() -> None:
    def made(text: str, tok_s: float, mode: str, model: str = "Fake") -> Message:
        return Message(Role.ASSISTANT, text, stats={"model": model, "mode": mode, "decode_tok_s": tok_s})

    sparse = made("<think>a b</think>The cat sat", 30.0, "sparse")
    assert verdict(sparse, made("The cat lay", 20.0, "dense")) == (
        "The first 2 words are the same; then they differ. Sparse is 1.5 times as fast as Dense here."
    )
    assert numbers_in(verdict(sparse, made("The cat sat", 30.1, "dense"))) == []
    assert "Bamboo is 2.0 times as fast as Fake" in verdict(sparse, made("Dogs", 60.0, "exact", "Bamboo"))
    assert verdict(made("", 0, "dense"), made("", 0, "sparse")) == ""


def test_versions_of_an_earlier_run_are_shown_again(arrive: Arrive, tmp_path: Path) -> None:
    person = with_models(arrive)
    compared(person, "one two", "fake", "fake-missing")
    chat = person.hearth.controller.open_conversation or ""
    person.leave()
    back = arrive(library=library(), location="in-thread", settings=AppSettings(last_conversation=chat))
    back.wait(lambda: back.page.transcript.views)
    view = back.page.transcript.views[-1]
    assert isinstance(view, AnswerView)
    view.do("side_by_side")
    fake, gone = columns_of(back)
    assert fake.chosen.isVisibleTo(fake)
    assert gone.why.words == (gone.message.stats or {})[FAILURE] if gone.message else False


def test_without_a_draft_the_last_question_is_answered_and_narrow_pages_stack(arrive: Arrive) -> None:
    person = with_models(arrive)
    person.ask("one two")
    compared(person, "", "fake-as-Bamboo", "fake-missing")
    columns = columns_of(person)
    assert [column.title.words for column in columns] == ["Fake", "Bamboo", "Gone"]
    person.wait(lambda: len({column.y() for column in columns}) == 1)
    person.window.resize(720, 700)
    person.wait(lambda: len({column.x() for column in columns}) == 1)
    QTest.keyClick(columns[0].parentWidget(), Qt.Key.Key_Escape)
    assert not person.page.transcript.isHidden()


def test_an_answer_in_progress_is_in_its_column_and_stop_ends_the_comparison(arrive: Arrive, tmp_path: Path) -> None:
    person = with_models(arrive)
    person.type(f"words 9 until {tmp_path / 'never'}")
    dialog_of(person).go.click()
    person.wait(lambda: columns_of(person)[0].answer.text if columns_of(person)[0].answer else "")
    first, second = columns_of(person)
    assert first.dot.isVisibleTo(first)
    assert second.message is None
    assert first.choose.isHidden()
    person.press(Qt.Key.Key_Escape)
    person.wait(lambda: not person.hearth.setup.side_by_side.is_running)
    (left,) = columns_of(person)
    assert left.message is not None
    assert left.message.state is MessageState.CANCELLED


def test_equal_rows_and_no_question_cannot_be_compared(arrive: Arrive) -> None:
    person = with_models(arrive)
    dialog = dialog_of(person)
    assert not dialog.go.isEnabled(), "there is no question"
    dialog.reject()
    person.type("one")
    dialog = dialog_of(person)
    assert dialog.go.isEnabled()
    choose(dialog, 1, dialog.choices[0].model)
    assert not dialog.go.isEnabled()
    segments = dialog.rows[1].segments
    assert segments is not None
    segments.buttons["dense"].click()
    assert dialog.go.isEnabled()
    assert dialog.choices == [ModelChoice("Fake", "fake"), ModelChoice("Fake", "fake", "dense")]
    assert "sparse" not in segments.buttons, "the loaded model has no predictors"


def test_the_keyboard_leaves_the_columns(arrive: Arrive) -> None:
    person = with_models(arrive)
    compared(person, "one two", "fake", "fake-as-Bamboo")
    person.press(Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert person.page.transcript.selection.is_empty, "hidden messages are not selected"
    person.press(Qt.Key.Key_Escape)
    assert not person.page.transcript.isHidden()
    person.window.commands.run("side_by_side")
    assert person.page.transcript.isHidden()
    person.press(Qt.Key.Key_Up)
    assert not person.page.transcript.isHidden(), "the question is edited where it can be seen"
    assert person.page.findChildren(MessageEditor)


def test_an_answer_that_is_continued_grows_in_its_column(arrive: Arrive, tmp_path: Path) -> None:
    person = with_models(arrive)
    person.type(f"words 9 until {tmp_path / 'go_on'}")
    dialog_of(person).go.click()
    person.wait(lambda: columns_of(person)[0].answer.text if columns_of(person)[0].answer else "")
    person.press(Qt.Key.Key_Escape)
    person.wait(lambda: not person.hearth.setup.side_by_side.is_running)
    person.wait_ready()
    person.window.commands.run("continue_answer")
    (column,) = columns_of(person)
    assert column.answer is not None
    assert column.answer.is_writing
    (tmp_path / "go_on").touch()
    person.wait_ready()


def test_the_question_is_as_high_as_its_text_again(qtbot: QtBot) -> None:
    columns = AnswerColumns()
    qtbot.addWidget(columns)
    columns.resize(1200, 600)
    columns.show_answers("word " * 40, [Message(Role.ASSISTANT, "x")], [], "", is_running=False)
    columns.show()
    before = columns.question.height()
    columns.resize(330, 600)
    qtbot.waitUntil(lambda: columns.question.height() > before)
    columns.resize(1200, 600)
    qtbot.waitUntil(lambda: columns.question.height() == before)


def test_text_in_the_columns_is_selected_and_copied(arrive: Arrive) -> None:
    person = with_models(arrive)
    compared(person, "one two", "fake", "fake-as-Bamboo")
    left, right = columns_of(person)
    for column, word in ((left, "one"), (right, "two")):
        assert column.answer is not None
        assert column.selection is not None
        text = next(one for one in column.answer.texts() if one is not None)
        cursor = text.document().find(word)
        cursor.setPosition(cursor.selectionStart() + 1)
        QTest.mouseDClick(text.viewport(), Qt.MouseButton.LeftButton, pos=text.cursorRect(cursor).center())
        assert column.selection.plain_text() == word
        QTest.keyClick(text, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
        person.wait(lambda word=word: QApplication.clipboard().text() == word)
    assert left.selection is not None
    assert left.selection.is_empty, "there is one selection at a time"
