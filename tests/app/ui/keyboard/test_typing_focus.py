"""What is typed lands in the composer, whatever was clicked, closed or chosen before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from control_walk import controls, settle
from patient_bot import PatientBot
from person import Arrive, Person
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent, QInputMethodQueryEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QTextEdit, QWidget

from app.settings import AppSettings
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.own_message import OwnMessage
from app.ui.transcript.text.text_view import TextView
from app.ui.widgets.banner import Banner
from app.ui.widgets.popover import Popover
from app.user_messages import UserMessage

pytestmark = pytest.mark.gui

LEFT = Qt.MouseButton.LeftButton


def with_two_chats(person: Person) -> Person:
    """The window with two chats and an answer each; the second is shown."""
    person.wait_ready()
    for text in ("the first chat", "the second chat"):
        person.window.sidebar.new_chat.emit()
        person.ask(text)
    return person


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest, qapp: QApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Person]:
    made = Person(PatientBot(request), tmp_path_factory.mktemp("person"), "in-thread", "fake", AppSettings())
    yield made
    made.leave()
    made.window.deleteLater()


@pytest.fixture
def person(shared: Person) -> Person:
    shared.window.activateWindow()  # which another test's window was in front of
    for chat in shared.hearth.memory.conversations():
        shared.hearth.controller.delete(chat.id)
    shared.wait(lambda: not shared.hearth.memory.conversations())
    shared.finished.clear()
    shared.page.composer.set_text("")
    shared.window.sidebar.panel.close_search()
    return with_two_chats(shared)


def types(text: str) -> None:
    """Type wherever the focus is, as a keyboard does."""
    for letter in text:
        focus = QApplication.focusWidget()
        assert focus is not None, "nothing has the focus"
        QTest.keyClicks(focus, letter)


def assert_lands(person: Person, text: str = "hello there") -> None:
    settle()
    assert person.page.composer.field.hasFocus()
    person.page.composer.set_text("")
    types(text)
    assert person.page.composer.text() == text


def own_message(person: Person) -> OwnMessage:
    return next(view for view in person.page.transcript.views if isinstance(view, OwnMessage))


def prose(person: Person) -> TextView:
    answer = next(view for view in person.page.transcript.views if isinstance(view, AnswerView))
    return answer.findChildren(TextView)[0]


def first_row(person: Person) -> QPoint:
    """Where the row of the first chat is."""
    chats = person.window.sidebar.panel.list
    return chats.visualRect(chats.chats.index_of(person.hearth.memory.conversations()[1].id)).center()


# --- acts after which one types on


def test_after_an_edited_message_was_sent(person: Person) -> None:
    own_message(person)._edit.click()
    settle()
    types(" again")
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    assert_lands(person)
    person.wait(lambda: len(person.finished) == 3)
    assert_lands(person, "and more")


def test_after_an_edit_was_given_up(person: Person) -> None:
    own_message(person)._edit.click()
    settle()
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
    assert_lands(person)


def test_after_a_chat_was_chosen_with_the_mouse(person: Person) -> None:
    view = person.window.sidebar.panel.list
    QTest.mouseClick(view.viewport(), LEFT, pos=first_row(person))
    assert_lands(person)
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Delete)
    assert len(person.hearth.memory.conversations()) == 2, "Delete belongs to the text"


def test_after_a_chat_was_chosen_with_the_keyboard(person: Person) -> None:
    view = person.window.sidebar.panel.list
    view.setFocus(Qt.FocusReason.ShortcutFocusReason)
    settle()
    assert view.hasFocus(), "what the keyboard has reached keeps it"
    before = view.currentIndex().row()
    QTest.keyClick(view, Qt.Key.Key_Down)
    assert view.hasFocus()
    assert view.currentIndex().row() == before + 1
    QTest.keyClick(view, Qt.Key.Key_Return)
    assert_lands(person)
    assert person.shown[0].text == "the first chat"


def test_after_a_click_on_the_page(person: Person) -> None:
    QTest.mouseClick(person.page.transcript.viewport(), LEFT, pos=QPoint(8, 300))
    assert_lands(person)
    QTest.mouseClick(prose(person).viewport(), LEFT, pos=QPoint(4, 4))
    assert_lands(person)


def test_after_a_click_on_the_page_while_the_keyboard_was_in_the_list(person: Person) -> None:
    view = person.window.sidebar.panel.list
    for part, at in ((person.page.transcript.viewport(), QPoint(8, 300)), (person.page, QPoint(100, 10))):
        view.setFocus(Qt.FocusReason.ShortcutFocusReason)
        settle()
        assert view.hasFocus()
        QTest.mouseClick(part, LEFT, pos=at)
        assert_lands(person)


def test_a_click_on_the_page_leaves_the_search_and_not_an_editor(person: Person) -> None:
    person.window.sidebar.open_search()
    settle()
    QTest.mouseClick(person.page, LEFT, pos=QPoint(100, 10))
    assert_lands(person)
    own_message(person).start_editing()
    settle()
    QTest.mouseClick(person.page, LEFT, pos=QPoint(100, 10))
    settle()
    assert not person.page.composer.field.hasFocus(), "what is being edited goes on"


def test_after_a_popover_was_closed(person: Person) -> None:
    opened: list[Callable[[], object]] = [
        lambda: person.page.composer.preset_button.click(),
        lambda: QTest.mouseClick(person.page.composer.model_button, LEFT),
        lambda: QTest.mouseClick(person.page.composer.meter, LEFT),
        lambda: person.window.commands.run("palette"),
    ]
    for act in opened:
        act()
        settle()
        assert any(popover.is_open for popover in person.window.findChildren(Popover))
        assert not person.page.composer.field.hasFocus()
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Escape)
        assert not any(popover.is_open for popover in person.window.findChildren(Popover))
        assert_lands(person)


def test_what_is_typed_into_a_popover_without_a_field_goes_to_the_composer(person: Person) -> None:
    composer = person.page.composer
    answer = next(view for view in person.page.transcript.views if isinstance(view, AnswerView))
    for act in (composer.preset_button.click, composer.meter.click, answer.show_figures):
        composer.set_text("")
        act()
        settle()
        assert any(popover.is_open for popover in person.window.findChildren(Popover))
        types("hello there")
        assert not any(popover.is_open for popover in person.window.findChildren(Popover))
        assert composer.text() == "hello there"


def test_after_a_banner_was_closed(person: Person) -> None:
    person.page.show_banner(UserMessage("A title", "A sentence.", severity="warn"))
    banner = person.page.findChildren(Banner)[0]
    banner._close.setFocus(Qt.FocusReason.MouseFocusReason)
    QTest.mouseClick(banner._close, LEFT)
    assert_lands(person)


def test_after_a_dialog_was_closed(person: Person) -> None:
    QTest.mouseClick(person.window.sidebar.panel.settings, LEFT)
    settle()
    dialog = QApplication.activeModalWidget()
    assert dialog is not None
    dialog.close()
    person.window.activateWindow()  # a desktop does that by itself
    assert_lands(person)


def test_after_a_chat_was_renamed_in_the_list(person: Person) -> None:
    person.window.sidebar.rename(person.hearth.memory.conversations()[0].id)
    settle()
    types("a new name")
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    assert_lands(person)
    assert person.hearth.memory.conversations()[0].title == "a new name"


# --- wherever the focus is


def is_typed_in(widget: QWidget) -> bool:
    return isinstance(widget, QLineEdit | QTextEdit) and not widget.isReadOnly()


@pytest.mark.parametrize("reason", [Qt.FocusReason.MouseFocusReason, Qt.FocusReason.ShortcutFocusReason])
def test_a_letter_goes_to_the_composer_from_every_control(person: Person, reason: Qt.FocusReason) -> None:
    field = person.page.composer.field
    tried = 0
    for widget in controls(person.window.ground):
        if is_typed_in(widget) or not widget.isVisible() or not widget.isEnabled():
            continue
        field.set_text("")
        widget.setFocus(reason)
        if QApplication.focusWidget() is not widget:
            continue
        QTest.keyClicks(widget, "x")
        assert (field.text(), field.hasFocus()) == ("x", True), widget
        tried += 1
    assert tried > 15


def test_space_and_return_press_what_the_keyboard_has_reached(arrive: Arrive) -> None:
    person, pressed = with_two_chats(arrive("in-thread")), list[str]()
    button = person.page.composer.preset_button
    button.clicked.disconnect()
    button.clicked.connect(lambda: pressed.append("pressed"))
    button.setFocus(Qt.FocusReason.ShortcutFocusReason)
    settle()
    QTest.keyClick(button, Qt.Key.Key_Space)
    assert (pressed, button.hasFocus(), person.page.composer.text()) == (["pressed"], True, "")
    QTest.keyClick(button, Qt.Key.Key_Return)
    assert (pressed.pop(), button.hasFocus(), person.page.composer.text(), len(pressed)) == ("pressed", True, "", 1)
    person.page.composer.field.setFocus()
    button.setFocus(Qt.FocusReason.MouseFocusReason)
    QTest.keyClicks(button, " ")
    assert (pressed, person.page.composer.text()) == (["pressed"], " "), "a click does not make it the keyboard's"


def test_what_is_pasted_elsewhere_goes_to_the_composer(person: Person) -> None:
    QGuiApplication.clipboard().setText("from elsewhere")
    view = person.window.sidebar.panel.list
    view.setFocus(Qt.FocusReason.ShortcutFocusReason)
    QTest.keyClick(view, Qt.Key.Key_V, Qt.KeyboardModifier.ControlModifier)
    assert person.page.composer.text() == "from elsewhere"


def test_selected_text_is_copied_from_the_composer(person: Person) -> None:
    text = prose(person)
    QTest.mouseDClick(text.viewport(), LEFT, pos=text.cursorRect().center())
    QTest.mouseRelease(text.viewport(), LEFT, pos=text.cursorRect().center())
    settle()
    assert person.page.composer.field.hasFocus()
    QTest.keyClick(person.page.composer.field, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == text.toPlainText().split()[0]


def test_an_input_method_composes_into_the_composer_from_elsewhere(person: Person) -> None:
    text, field = prose(person), person.page.composer.field
    text.setFocus(Qt.FocusReason.MouseFocusReason)
    text.selectAll()
    settle()
    enabled = QInputMethodQueryEvent(Qt.InputMethodQuery.ImEnabled)
    QApplication.sendEvent(text, enabled)
    assert enabled.value(Qt.InputMethodQuery.ImEnabled), "else the system would not compose at all"
    assert text.hasFocus(), "a question moves nothing"
    QApplication.sendEvent(text, QInputMethodEvent("に", []))
    assert field.hasFocus()
    done = QInputMethodEvent()
    done.setCommitString("日本")
    QApplication.sendEvent(field, done)
    assert field.text() == "日本"


def test_fields_keep_what_is_typed_in_them(person: Person) -> None:
    person.window.sidebar.open_search()
    settle()
    types("second")
    assert person.window.sidebar.panel.field.text() == "second"
    own_message(person).start_editing()
    settle()
    types("!")
    editor = own_message(person)._editor
    assert editor is not None
    assert editor.field.text() == "the second chat!"
    assert person.page.composer.text() == ""


def test_commands_are_not_typed(person: Person) -> None:
    view = person.window.sidebar.panel.list
    view.setFocus(Qt.FocusReason.ShortcutFocusReason)
    for key in (Qt.Key.Key_Escape, Qt.Key.Key_F5, Qt.Key.Key_Down, Qt.Key.Key_Tab):
        QTest.keyClick(view, key)
    QTest.keyClick(view, Qt.Key.Key_X, Qt.KeyboardModifier.AltModifier)
    assert person.page.composer.text() == ""


def test_pages_without_a_composer_keep_their_focus(person: Person) -> None:
    person.window.show_live()
    settle()
    live = person.window.pages.live_page
    assert live is not None
    assert live.isAncestorOf(QApplication.focusWidget())
    types("x")
    assert person.page.composer.text() == ""
    person.window.show_models()
    settle()
    models = person.window.pages.models_page
    assert models is not None
    assert models.search.hasFocus()
    QTest.mouseClick(person.window.sidebar.panel.list.viewport(), LEFT, pos=first_row(person))
    assert_lands(person)


def test_a_window_that_comes_back_can_be_typed_into(person: Person) -> None:
    focus = QApplication.focusWidget()
    assert focus is not None
    focus.clearFocus()
    QApplication.sendEvent(person.window, QEvent(QEvent.Type.WindowActivate))
    assert_lands(person)


# --- arrow up


def test_up_in_an_empty_message_edits_the_last_one(person: Person) -> None:
    person.ask("the third question")
    person.press(Qt.Key.Key_Up)
    view = [view for view in person.page.transcript.views if isinstance(view, OwnMessage)][-1]
    assert view.is_editing
    settle()
    types(", put better")
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Return)
    person.wait(lambda: len(person.finished) == 4)
    assert person.shown[-2].text == "the third question, put better"
    assert_lands(person)


def test_up_belongs_to_what_is_written(person: Person) -> None:
    person.type("half a thought")
    person.press(Qt.Key.Key_Up)
    assert not own_message(person).is_editing
    assert person.page.composer.text() == "half a thought"


def test_up_edits_nothing_while_an_answer_is_written(person: Person) -> None:
    person.send("words 100000 pace 0.01")
    person.wait(person.writing("word3 "))
    person.press(Qt.Key.Key_Up)
    assert not any(view.is_editing for view in person.page.transcript.views)
    person.press(Qt.Key.Key_Escape)
    person.wait(lambda: len(person.finished) == 3)


def test_up_brings_the_last_message_of_a_long_answer_into_view(person: Person) -> None:
    person.ask("words 2000 pace 0")
    person.press(Qt.Key.Key_Up)
    settle()
    focus, area = QApplication.focusWidget(), person.page.transcript
    assert focus is not None
    assert focus is not person.page.composer.field
    top = focus.mapTo(area, QPoint(0, 0)).y()
    assert 0 <= top < area.height()
