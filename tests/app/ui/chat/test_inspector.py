"""The inspector in the window: recorded answers are shown token by token, kept, and answered anew from any of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from person import Arrive, Person
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog

from app.chat.answers.inspection import Inspection
from app.chat.store.conversation import Message
from app.chat.store.store import Store
from app.settings import AppSettings
from app.ui.inspector.inspector_dialog import InspectorDialog
from app.ui.look import theme

pytestmark = pytest.mark.gui


def ready(arrive: Arrive, inspect: bool = True, **more: Any) -> Person:
    person = arrive("in-thread", settings=AppSettings(inspect=inspect, offer_dismissed=True), **more)
    person.wait_ready()
    return person


def say(person: Person, text: str) -> Message:
    person.hearth.controller.send(text)
    person.wait_ready()
    person.wait(lambda: last(person).state == "complete" and last(person).text)
    return last(person)


def last(person: Person) -> Message:
    return messages(person)[-1]


def messages(person: Person) -> list[Message]:
    chat = person.hearth.controller.open_conversation
    return (person.hearth.memory.messages(chat) if chat else None) or []


def opened(person: Person) -> InspectorDialog:
    person.window.commands.run("inspect_answer")
    dialog = person.window.findChildren(InspectorDialog)[-1]
    person.wait(lambda: not dialog.empty.isHidden() or not dialog.stack.isHidden())
    return dialog


def shown(dialog: InspectorDialog) -> list[tuple[str, str]]:
    """The alternatives, with their probabilities."""
    return [(row.words, row.figure) for row in dialog.details.rows if row.isVisibleTo(dialog)]


def facts(dialog: InspectorDialog) -> dict[str, str]:
    return {name.words: value.words for name, value in dialog.details.facts if name.words}


def test_an_answer_is_shown_as_its_tokens(arrive: Arrive) -> None:
    person = ready(arrive)
    say(person, "one two three")
    dialog = opened(person)
    assert dialog.answer.toPlainText() == "one two three "
    assert dialog.answer.current == 0
    assert shown(dialog) == [("one·", "60.0%"), ("other·", "30.0%")]
    assert facts(dialog) == {"Time": "1,500\u202fµs"}
    assert dialog.details.note.words
    QTest.keyClick(dialog.answer, Qt.Key.Key_Right)
    assert shown(dialog)[0] == ("two·", "60.0%")
    assert {"Bytes read": "5.0\u202fMB", "Neurons active": "31.2%"}.items() <= facts(dialog).items()
    assert "two" in dialog.answer.accessibleDescription()
    for key, place in ((Qt.Key.Key_End, 2), (Qt.Key.Key_Right, 2), (Qt.Key.Key_Home, 0), (Qt.Key.Key_Left, 0)):
        QTest.keyClick(dialog.answer, key)
        assert dialog.answer.current == place
    middle = dialog.answer.cursorRect(dialog.answer.textCursor()).center()
    QTest.mouseClick(dialog.answer.viewport(), Qt.MouseButton.LeftButton, pos=middle + middle * 0)
    assert dialog.answer.current == 0
    dialog.answer.setFocus()
    dialog.focusNextPrevChild(True)
    assert dialog.focusWidget() is dialog.details.rows[0], "Tab goes from the text to what is beside it"
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    for look in ("dark", "light"):
        theme.apply(app, look, 1.0)
    person.wait(lambda: len(dialog.answer.findChildren(QTextDocument)) == 1)


def test_the_neurons_of_a_layer_are_shown_and_copied(arrive: Arrive) -> None:
    person = ready(arrive)
    say(person, "one two three")
    dialog = opened(person)
    neurons = dialog.details.neurons
    assert neurons.isHidden(), "prefill does not count the first token's neurons"
    dialog.answer.choose(2)
    assert (neurons.strips.layer, neurons.ids.toPlainText()) == (0, "0")
    QTest.keyClick(neurons.strips, Qt.Key.Key_Down)
    QTest.keyClick(neurons.strips, Qt.Key.Key_Down)
    assert (neurons.strips.layer, neurons.ids.toPlainText()) == (1, "0 1 2 3")
    neurons.copy.click()
    assert QApplication.clipboard().text() == "0 1 2 3"
    assert facts(dialog)["Active before too"] == "100.0%"
    dialog.answer.choose(1)
    assert neurons.strips.layer == 1, "the layer stays from token to token"
    assert "Active before too" not in facts(dialog)
    image = neurons.grid.grab().toImage()
    cell = neurons.grid._cell
    lit = [image.pixelColor(cell * at + cell // 2, cell // 2) for at in range(3, 5)]
    assert lit[1] == theme.colour("sunken") != lit[0]


def test_the_neurons_follow_the_zoom(arrive: Arrive) -> None:
    person = ready(arrive)
    say(person, "one two three")
    dialog = opened(person)
    dialog.answer.choose(2)
    neurons = dialog.details.neurons

    def sizes() -> tuple[int, ...]:
        return neurons.strips.height(), neurons.grid.height(), neurons.ids.height(), neurons.ids.font().pixelSize()

    theme.apply(theme.application(), "light", 1.5)
    zoomed = sizes()
    dialog.answer.choose(1)
    dialog.answer.choose(2)
    assert zoomed == sizes()


def test_only_the_last_tokens_have_their_neurons(arrive: Arrive) -> None:
    person = ready(arrive)
    say(person, "one")
    dialog = opened(person)
    row = {"id": 1, "p": 0.5, "top": [[1, 0.5]], "us": 1, "run": 1, "fired": [1, 4]}
    kept = row | {"active": "AQ8=", "hot": 0}
    dialog.show_record(Inspection([1], [row, kept], {"1": "a"}, 8, hot=["AAM="]))
    neurons = dialog.details.neurons
    assert (neurons.grid.isHidden(), neurons.line.isHidden()) == (True, False)
    dialog.answer.choose(1)
    neurons.strips._choose(1)
    assert not neurons.grid.isHidden()
    assert neurons.ids.toPlainText() == "0 1 2 3"
    assert neurons.line.words.count("2") == 2, "two neurons on each device"


def test_the_prompt_is_searched_and_copied(arrive: Arrive) -> None:
    person = ready(arrive)
    say(person, "one")
    dialog = opened(person)
    dialog.show_record(Inspection([1, 2, 3], [{"id": 1, "p": 0.5, "top": [[1, 0.5]], "us": 1}],
                                  {"1": "<s>", "2": "You are", "3": "\n kind"}))  # fmt: skip
    dialog.views.buttons["prompt"].click()
    dialog.search.setText("are")
    QTest.keyClick(dialog.search, Qt.Key.Key_Return)
    assert dialog.prompt.current == 1
    dialog.copy_ids.click()
    assert QApplication.clipboard().text() == "1 2 3"
    dialog.copy_text.click()
    assert QApplication.clipboard().text() == "<s>You are\n kind"
    dialog.prompt.selectAll()
    dialog.prompt.copy()
    assert QApplication.clipboard().text() == "<s>You are\n kind"
    dialog.search.setText("nowhere")
    QTest.keyClick(dialog.search, Qt.Key.Key_Return)
    assert dialog.prompt.current == 1


def test_an_alternative_makes_another_version_that_the_model_continues(arrive: Arrive) -> None:
    person = ready(arrive)
    answer = say(person, "one two three")
    dialog = opened(person)
    dialog.answer.choose(1)
    next(row for row in dialog.details.rows if row.words == "other·").click()
    person.wait_ready()
    person.wait(lambda: last(person).id != answer.id and last(person).state == "complete")
    assert last(person).text == "one other three "
    assert last(person).parent == answer.parent
    again = opened(person)
    assert again.answer.toPlainText() == "one other three "
    again.answer.choose(1)
    assert shown(again) == [("two·", "60.0%"), ("other·", "30.0%")]
    assert not facts(again)


def test_without_recording_the_inspector_offers_it(arrive: Arrive) -> None:
    person = ready(arrive, inspect=False)
    say(person, "one")
    dialog = opened(person)
    assert dialog.stack.isHidden()
    dialog.empty.first.click()
    assert person.hearth.controller.records_tokens
    say(person, "two three")
    assert opened(person).answer.toPlainText() == "two three "
    person.window.commands.run("record_tokens")
    assert not person.hearth.controller.records_tokens
    person.hearth.controller.new_chat()
    assert not person.hearth.controller.records_tokens


def test_alternatives_wait_for_the_model_that_wrote_the_answer(arrive: Arrive) -> None:
    person = ready(arrive)
    say(person, "one two")
    person.hearth.controller.unload()
    person.wait(lambda: not person.hearth.engine.has_model)
    dialog = opened(person)
    assert not any(row.isEnabled() for row in dialog.details.rows)
    assert dialog.details.hint.words


def test_a_record_is_kept_with_its_answer_and_goes_with_it(arrive: Arrive) -> None:
    person = ready(arrive)
    answer = say(person, "one two")
    path = person.hearth.memory._stored.path
    person.leave()
    store = Store.open(path)
    data = store.inspection(answer.id)
    assert data is not None
    record = Inspection.from_bytes(data)
    assert record is not None
    assert (len(record.rows), record.model) == (2, "Fake")
    store.remove_message(answer.id)
    store.purge_deleted(1e12, 0.0)
    assert store._db.execute("SELECT count(*) FROM inspection").fetchone() == (0,)
    store.close()


def test_a_record_is_rescued_from_a_damaged_file(tmp_path: Path) -> None:
    from app.chat.store.conversation import Conversation, Role
    from app.chat.store.store_rescue import copy_rows

    source, target = Store.open(tmp_path / "a.db"), Store.open(tmp_path / "b.db")
    chat, answer = Conversation(), Message(Role.ASSISTANT, "x")
    source.save_conversation(chat)
    source.append(chat.id, answer)
    source.save_inspection(answer.id, b"data")
    source.save_inspection("nobody", b"data")
    copy_rows(source._db, target._db)
    assert target.inspection(answer.id) == b"data"
    assert target.inspection("nobody") is None
    source.close()
    target.close()


def test_the_export_is_a_file_of_json_lines(arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = ready(arrive)
    say(person, "one two")
    file = tmp_path / "tokens.jsonl"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(file), ""))
    person.window.commands.run("export_tokens")
    person.wait(file.exists)
    head, *tokens = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert head["format"] == "hearth-inspection"
    assert [token["text"] for token in tokens] == ["one ", "two "]


def test_alternatives_are_there_as_soon_as_the_model_can_continue(arrive: Arrive, tmp_path: Path) -> None:
    person = ready(arrive)
    say(person, "one two")
    answered = person.hearth.controller.open_conversation or ""
    person.hearth.controller.new_chat()
    person.hearth.controller.send(f"words 3 until {tmp_path / 'go_on'}")
    person.hearth.controller.open(answered)
    dialog = opened(person)
    dialog.answer.choose(1)
    assert not any(row.isEnabled() for row in dialog.details.rows)
    (tmp_path / "go_on").touch()
    person.wait(lambda: dialog.details.rows[0].isEnabled())
    assert dialog.answer.current == 1
