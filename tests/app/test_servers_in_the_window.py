"""Servers elsewhere as a person meets them in the window: the mark wherever words are written, and what is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_room import Room
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.answers.answer_labels import facts_of, figures_of
from app.chat.message_action import MessageAction
from app.chat.store.conversation import Message, MessageState, Role
from app.clients.servers import Place
from app.ui.models.server_actions import ServerActions
from app.ui.transcript.own_message import OwnMessage
from app.ui.widgets.controls import Chip, Label, Toggle
from app.ui.widgets.floating import ConfirmDialog
from app.user_messages import Action, UserMessage

pytestmark = pytest.mark.gui


def actions_of(room: Room) -> ServerActions:
    acts = room.window.server_actions
    assert acts is not None
    return acts


def enter(room: Room) -> Place:
    server = actions_of(room).servers.add("Rack", "http://192.168.1.20:8000/v1", "sk-x", ["big", "small"])
    return Place(server, "big")


def question(room: Room) -> ConfirmDialog:
    room.wait(lambda: any(isinstance(w, ConfirmDialog) and w.isVisible() for w in QApplication.topLevelWidgets()))
    return next(w for w in QApplication.topLevelWidgets() if isinstance(w, ConfirmDialog) and w.isVisible())


def a_chat_of_this_pc_is_sent_elsewhere_only_after_a_question(room: Room) -> None:
    place, composer = enter(room), room.page.composer
    assert composer.destination.isHidden()
    actions_of(room).send_there(place)
    asked = question(room)
    asked.reject()
    assert room.hearth.controller.place is None
    actions_of(room).send_there(place)
    question(room).accept()
    room.wait(lambda: composer.destination.words() == "Sent to Rack")
    assert room.hearth.controller.place == place
    assert composer.model_button.words == "big"
    assert "not on this PC" in composer.field.accessibleDescription()
    composer.destination.back.click()
    room.wait(lambda: composer.destination.isHidden())
    assert room.hearth.controller.place is None


def a_question_is_answered_again_by_a_server_after_the_same_question(room: Room) -> None:
    place, controller = enter(room), room.hearth.controller
    asked: list[MessageAction] = []
    room.page.add_message(Message(Role.USER, "What burns?"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controller, "act", asked.append)
        actions_of(room).send_there(place, again="answer-1")
        question(room).reject()
        assert (controller.place, asked) == (None, [])
        actions_of(room).send_there(place, again="answer-1")
        question(room).accept()
        assert (controller.place, asked) == (place, [MessageAction("regenerate", "answer-1")])
    room.hearth.servers.choose(None)


def the_mark_stands_wherever_a_message_is_written(room: Room) -> None:
    place = enter(room)
    room.page.add_message(Message(Role.USER, "What burns?"))
    room.hearth.servers.choose(place)
    views = [view for view in room.page.transcript.findChildren(OwnMessage) if view.message.text == "What burns?"]
    views[0].start_editing()
    editor = views[0]._editor
    assert editor is not None
    assert editor.mark.words() == "Sent to Rack"
    room.hearth.servers.choose(None)
    assert editor.mark.words() == "", "also in a field that is open"
    views[0].stop_editing()
    room.hearth.controller.new_chat()
    assert room.page.composer.destination.isHidden(), "a new chat begins on this PC"


def what_is_attached_goes_whole_and_uncounted(room: Room) -> None:
    room.hearth.servers.choose(enter(room))
    composer = room.page.composer
    assert composer.draft.add_paste("word " * 1000)
    room.wait(lambda: composer.send.isEnabled())
    (item,) = composer.draft.items
    assert item.measure is not None
    assert item.attachment is not None
    assert item.measure.kept_chars == len(item.attachment.text)
    assert "token" not in composer.attached.chips[item.id].facts.words
    assert not composer.meter.isVisible(), "only the server can count"


def the_menu_tells_here_from_elsewhere(room: Room) -> None:
    place, menus = enter(room), room.window.chat_models
    assert menus is not None
    menus.open_menu()
    menu = menus.menu
    listed = menu.models
    assert [row.model for row in listed.rows if isinstance(row, Place)] == ["big", "small"]
    at = listed.index(listed.row_like(place))
    assert "not on this PC" in str(listed.data(at))
    menu.field.setText("smal")
    assert [row.model for row in listed.rows if isinstance(row, Place)] == ["small"]
    menu.field.setText("big")
    room.hearth.controller.new_chat()
    assert menu.view.marked == place
    QTest.keyClick(menu.field, Qt.Key.Key_Return)
    assert room.hearth.controller.place == place, "nothing was said yet, so nothing is asked"
    assert "sent to Rack" in room.page.empty._privacy.words
    menus.open_menu()
    assert menu.view.marked == place, "the one row that is in use"
    QTest.keyClick(menu.view, Qt.Key.Key_Up)
    QTest.keyClick(menu.view, Qt.Key.Key_Return)
    assert room.hearth.controller.place is None, "a model of this PC answers here"
    assert "leaves this computer" in room.page.empty._privacy.words


def the_models_page_lists_servers_apart(room: Room) -> None:
    place = enter(room)
    room.window.show_models()
    page = room.window.pages.models_page
    assert page is not None
    assert page.servers.isVisible()
    rows = page.servers.findChildren(Chip)
    actions_of(room).servers.changed.emit()
    assert page.servers.findChildren(Chip) == rows, "what says the same is not made anew"
    page.servers.chosen.emit(place)
    assert room.window.pages.currentWidget() is room.page
    assert room.hearth.controller.place == place
    assert room.hearth.controller.open_conversation is None


def return_goes_on_and_never_drops_what_was_entered(room: Room) -> None:
    acts = actions_of(room)
    acts.add()
    dialog = acts._dialog
    assert dialog is not None
    QTest.keyClicks(dialog.address, "localhost:8000")
    QTest.keyClick(dialog.address, Qt.Key.Key_Return)
    room.wait(lambda: "2 models" in dialog.says.words)
    dialog.filter.setFocus()
    QTest.keyClicks(dialog.filter, "SMA")
    QTest.keyClick(dialog.filter, Qt.Key.Key_Return)
    assert (dialog.picked, dialog.filter.text()) == (["small"], ""), "the only model shown is picked"
    dialog._pick("small", False)
    QTest.keyClicks(dialog.filter, "typed-by-hand")
    QTest.keyClick(dialog.filter, Qt.Key.Key_Return)
    assert (dialog.isVisible(), dialog.picked, dialog.filter.text()) == (True, ["typed-by-hand"], "")
    QTest.keyClick(dialog.filter, Qt.Key.Key_Tab)
    toggle = QApplication.focusWidget()
    assert isinstance(toggle, Toggle), "what was listed comes before Cancel"
    QTest.keyClick(toggle, Qt.Key.Key_Space)
    assert dialog.picked == []
    QTest.keyClick(toggle, Qt.Key.Key_Space)
    dialog.look.setFocus()
    QTest.keyClick(dialog.look, Qt.Key.Key_Return)
    assert dialog.isVisible()
    dialog.keep.setFocus()
    QTest.keyClick(dialog.keep, Qt.Key.Key_Return)
    (server,) = acts.servers.book.servers
    assert server.models == ("typed-by-hand",)
    acts.servers.remove(server.id)


def a_server_is_entered_with_the_models_that_were_picked(room: Room) -> None:
    acts = actions_of(room)
    acts.add()
    dialog = acts._dialog
    assert dialog is not None
    assert not dialog.keep.isEnabled()
    dialog.address.setText("localhost:8000")
    dialog.key.setText("sk-1")
    dialog.look.click()
    room.wait(lambda: "2 models" in dialog.says.words)
    assert ("server_models", {"address": "http://localhost:8000/v1", "name": "localhost:8000", "key": "sk-1"}) in (
        room.library.asked
    )
    dialog._pick("small", True)
    dialog.filter.setText("typed-by-hand")
    dialog.filter.returnPressed.emit()
    dialog.keep.click()
    (server,) = acts.servers.book.servers
    assert (server.name, server.models, server.has_key) == ("localhost:8000", ("small", "typed-by-hand"), True)
    assert "sk-1" not in room.places.servers_file.read_text() if room.places.servers_file.exists() else True
    acts.edit(server.id)
    again = acts._dialog
    assert again is not None
    assert again.address.isReadOnly()
    again.show_looked(UserMessage("Couldn't ask the server", "It cannot be reached."))
    assert again.says.words == "It cannot be reached."
    again.remove.click()
    question(room).accept()
    assert acts.servers.book.servers == []
    assert room.library.asked[-1] == ("server_key", {"address": "http://localhost:8000/v1", "set": ""})


def an_answer_says_where_it_came_from(room: Room) -> None:
    stats = {"model": "big", "server": "Rack", "tokens": 12, "total_s": 2.0}
    room.page.add_message(Message(Role.ASSISTANT, "Hello", state=MessageState.COMPLETE, stats=stats))
    view = room.page.transcript.last_answer()
    assert view is not None
    line = next(v for v in room.page.transcript._column.views if v.message.id == view.id)
    assert "Rack" in line.stats.words()


def a_program_on_this_pc_is_nowhere_called_elsewhere(room: Room) -> None:
    server = actions_of(room).servers.add("Ollama", "http://127.0.0.1:11434/v1", "", ["llama3"])
    place, composer, menus = Place(server, "llama3"), room.page.composer, room.window.chat_models
    room.hearth.controller.new_chat()
    room.hearth.servers.choose(place)
    assert not composer.destination.isHidden()
    assert (composer.destination._glyph.name, composer.destination._where.token) == ("chip", "ink2"), (
        "no cloud, no violet"
    )
    assert composer.property("away") == "false"
    said = [composer.destination.accessibleName(), composer.field.accessibleDescription(), room.page.empty._about.words]
    assert menus is not None
    menus.open_menu()
    listed = menus.menu.models
    said.append(str(listed.data(listed.index(listed.row_like(place)))))
    assert "Other programs on this PC" in listed.rows
    menus.menu.dismiss()
    stats = {"model": "llama3", "server": "Ollama", "server_here": True, "tokens": 12, "total_s": 2.0}
    said += [facts_of(stats)[0], *(name for name, value in figures_of(stats) if value == "Ollama")]
    assert all("this pc" in words.lower() for words in said), said
    room.window.show_models()
    page = room.window.pages.models_page
    assert page is not None
    chips = {chip.text(): chip.tone for chip in page.servers.findChildren(Chip) if chip.isVisible()}
    assert chips["On this PC"] != "away"
    said += [label.words for label in room.window.findChildren(Label) if label.isVisible()]
    assert not any("not on this pc" in words.lower() for words in said), said
    actions_of(room).servers.remove(server.id)


def a_key_that_is_refused_is_asked_for(room: Room) -> None:
    room.hearth.servers.choose(enter(room))
    room.window._window_action(Action.ENTER_KEY)
    dialog = actions_of(room)._dialog
    assert dialog is not None
    assert dialog.server is not None
    assert dialog.server.name == "Rack"
    dialog.reject()


def test_servers_elsewhere_in_one_window(qtbot: QtBot, tmp_path: Path) -> None:
    """One window for all of it: to open one costs more than what is looked at."""
    room = Room(qtbot, tmp_path)
    for walk in (
        a_chat_of_this_pc_is_sent_elsewhere_only_after_a_question,
        a_question_is_answered_again_by_a_server_after_the_same_question,
        the_mark_stands_wherever_a_message_is_written,
        what_is_attached_goes_whole_and_uncounted,
        the_menu_tells_here_from_elsewhere,
        the_models_page_lists_servers_apart,
        return_goes_on_and_never_drops_what_was_entered,
        a_server_is_entered_with_the_models_that_were_picked,
        an_answer_says_where_it_came_from,
        a_program_on_this_pc_is_nowhere_called_elsewhere,
        a_key_that_is_refused_is_asked_for,
    ):
        room.reset()
        walk(room)
    room.leave()
    room.window.deleteLater()


def test_the_rate_of_reading_a_few_tokens_is_left_out() -> None:
    stats = {"prompt_tokens": 500, "prefill_tok_s": 28.9}
    assert "Reading" in dict(figures_of(stats))
    assert "Reading" not in dict(figures_of({**stats, "reused_tokens": 499}))


def test_guessed_tokens_are_told_where_there_are_any() -> None:
    stats = {"tokens": 60, "guessed_tokens": 41, "accepted_tokens": 34}
    (told,) = (value for name, value in figures_of(stats) if "34" in value)
    assert "41" in told
    assert len(figures_of({**stats, "guessed_tokens": 0})) == len(figures_of(stats)) - 1
    by_draft = dict(figures_of({**stats, "guesses": {"lookup": [11, 9], "draft": [30, 25]}}))
    assert len(by_draft) == len(figures_of(stats)) + 1
    assert any("25" in value and "30" in value for value in by_draft.values())
