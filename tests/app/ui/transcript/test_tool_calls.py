"""Calls of tools under an answer: what is shown of them, what asks for consent, and what their changes leave alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication, QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot
from shown_messages import STATS, answer, at_end, chat, question, settle, show, start_answer, wheel

from app.chat.message_action import MessageAction
from app.chat.store.conversation import CallState, Message, ToolCall
from app.ui.look import theme
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.message_column import text_column
from app.ui.transcript.tool_call_view import ConsentButton, ToolCallView
from app.ui.transcript.transcript import Transcript
from app.ui.widgets import tab_order

pytestmark = pytest.mark.gui

ARGUMENTS = {"url": "https://docs.example.org/a?b=c", "note": "x " * 3000, "n": 5}
RESULT = "\n".join(f"Line {n} of a foreign page" for n in range(60))


def call(state: CallState = CallState.ASKING, call_id: str = "c1", **more: Any) -> ToolCall:
    values: dict[str, Any] = {"tool": "read_page", "arguments": ARGUMENTS, "scope": "docs.example.org"}
    return ToolCall(call_id, state=state, **(values | more))


def calling(*calls: ToolCall, text: str = "") -> Message:
    return replace(answer(text, **STATS), calls=calls)


def views_of(transcript: Transcript, index: int = -1) -> list[ToolCallView]:
    view = transcript.views[index]
    assert isinstance(view, AnswerView)
    assert view.calls is not None
    return view.calls.views


def acts(transcript: Transcript) -> list[MessageAction]:
    out: list[MessageAction] = []
    transcript.acted.connect(out.append)
    return out


def stats_shown(transcript: Transcript, index: int) -> bool:
    view = transcript.views[index]
    assert isinstance(view, AnswerView)
    return not view.stats.isHidden()


@pytest.fixture(autouse=True)
def no_earlier_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsentButton, "_answered_at", float("-inf"))


# --- rows


def test_each_call_has_a_row_with_title_server_and_state(transcript: Transcript) -> None:
    transcript.set_tool_titles({"read_page": "Web page"})
    calls = (
        call(CallState.DONE, "1", seconds=1.24, result="ok"),
        call(CallState.FAILED, "2", tool="write_file", source="Files", result="No such folder"),
        call(CallState.RUNNING, "3"),
    )
    show(transcript, [question(), calling(*calls, text="Let me see.")])
    done, failed, running = views_of(transcript)
    assert [view.head.text() for view in (done, failed, running)] == ["Web page", "write_file", "Web page"]
    assert done.state.words == "1.2\u202fs"
    assert (failed.source.words, failed.source.isHidden(), done.source.isHidden()) == ("Files", False, True)
    assert failed.state.token == "bad"
    assert not running._dot.isHidden()
    assert done._dot.isHidden()
    assert not any(view.is_open for view in (done, failed, running))
    assert len({view.state.words for view in (done, failed, running)}) == 3


def test_a_title_that_comes_later_is_shown(transcript: Transcript) -> None:
    show(transcript, [question(), calling(call())])
    view = views_of(transcript)[0]
    assert view.head.text() == "read_page"
    transcript.set_tool_titles({"read_page": "Web & page"})
    assert view.head.text() == "Web && page"
    assert "Web & page" in view.details.question.words


def test_an_answer_without_text_is_its_calls_alone(transcript: Transcript) -> None:
    show(transcript, [question(), calling(call(CallState.RUNNING))])
    view = transcript.views[-1]
    assert isinstance(view, AnswerView)
    assert view.parts() == []
    assert not stats_shown(transcript, -1)
    assert view.height() <= views_of(transcript)[0].height() + theme.px(2)


def test_an_unfolded_call_shows_all_that_was_asked_for_and_a_bounded_result(transcript: Transcript) -> None:
    show(transcript, [question(), calling(call(CallState.DONE, arguments={"n": 5}, result=RESULT))])
    view = views_of(transcript)[0]
    view.head.click()
    settle(transcript)
    assert json.loads(view.details.arguments.text.text) == {"n": 5}
    assert view.details.result.text.toPlainText() == RESULT
    assert view.details.result.text.height() < 300
    assert view.details.result.text.verticalScrollBar().maximum() > 0, "the rest scrolls"
    assert view.details.result.text.focusPolicy() & Qt.FocusPolicy.TabFocus, "with the keyboard, too"


# --- consent


def test_a_call_that_asks_is_open_and_hides_no_argument(transcript: Transcript) -> None:
    hidden = ARGUMENTS | {"last": "the \u202eend"}
    show(transcript, [question(), calling(call(arguments=hidden))])
    view = views_of(transcript)[0]
    text = view.details.arguments.text
    assert view.is_open
    assert json.loads(text.text) == hidden
    assert "\u202e" not in text.toPlainText()
    assert text.height() > 600
    assert text.height() >= text.document().size().height(), "nothing scrolls away"
    assert "docs.example.org" in view.details.receiver.words
    assert view.details.refuse.y() >= view.details.once.y()
    assert view.details.buttons.y() > view.details.arguments.y(), "the buttons come after the last argument"


def test_a_tool_of_a_server_says_to_which_server_it_sends(transcript: Transcript) -> None:
    show(transcript, [question(), calling(call(source="Files of the\n team\u202e", scope="write_file"))])
    assert "Files of the team\\u202e" in views_of(transcript)[0].details.receiver.words


@pytest.mark.parametrize("has_folder", [True, False])
def test_each_button_gives_its_answer_with_the_id_of_the_call(transcript: Transcript, has_folder: bool) -> None:
    transcript.set_has_folder(has_folder)
    message = calling(call(call_id="a"), call(call_id="b"))
    show(transcript, [question(), message])
    out = acts(transcript)
    view = views_of(transcript)[1]
    buttons = [view.details.once, view.details.in_chat, view.details.in_folder, view.details.refuse]
    assert [not button.isHidden() for button in buttons] == [True, True, has_folder, True]
    assert all("docs.example.org" in button.text() for button in (view.details.in_chat, view.details.in_folder))
    for button in buttons:
        button.click()
    assert out == [
        MessageAction(act, message.id, call_id="b")  # type: ignore[arg-type]
        for act in ("allow_once", "allow_in_chat", "allow_in_folder", "refuse")
    ]


def test_the_folder_is_offered_once_the_chat_is_in_one(transcript: Transcript) -> None:
    show(transcript, [question(), calling(call())])
    view = views_of(transcript)[0]
    assert view.details.in_folder.isHidden()
    transcript.set_has_folder(True)
    assert not view.details.in_folder.isHidden()


def test_only_the_first_question_has_a_primary_button(transcript: Transcript) -> None:
    message = calling(call(call_id="a"), call(call_id="b"))
    show(transcript, [question(), message])
    assert [view.details.once.look for view in views_of(transcript)] == ["primary", "secondary"]
    transcript.update_message(replace(message, calls=(call(CallState.RUNNING, "a"), call(call_id="b"))))
    assert views_of(transcript)[1].details.once.look == "primary"


def test_the_second_half_of_a_double_click_answers_no_other_question(transcript: Transcript, qtbot: QtBot) -> None:
    show(transcript, [question(), calling(call(call_id="a", arguments={}), call(call_id="b", arguments={}))])
    out = acts(transcript)
    first, second = views_of(transcript)
    qtbot.mouseClick(first.details.once, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(second.details.once, Qt.MouseButton.LeftButton)
    assert [act.call_id for act in out] == ["a"]
    ConsentButton._answered_at = float("-inf")
    qtbot.mouseClick(second.details.once, Qt.MouseButton.LeftButton)
    assert [act.call_id for act in out] == ["a", "b"]


def test_a_question_is_answered_with_the_keyboard_and_takes_no_focus(transcript: Transcript, qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    column, field = QVBoxLayout(window), QLineEdit()
    column.addWidget(transcript)
    column.addWidget(field)
    window.resize(800, 700)
    window.show()
    field.setFocus()
    message = calling(call(CallState.RUNNING, arguments={"n": 1}))
    show(transcript, [question(), message])
    transcript.update_message(replace(message, calls=(call(arguments={"n": 1}),)))
    settle(transcript)
    assert QApplication.focusWidget() is field
    out = acts(transcript)
    view = views_of(transcript)[0]
    stops = [stop for stop in tab_order.stops(transcript) if view.isAncestorOf(stop)]
    assert stops == [view.head, view.details.once, view.details.in_chat, view.details.refuse]
    assert all(stop.accessibleName() or stop.text() for stop in stops)  # type: ignore[attr-defined]
    view.details.refuse.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(view.details.refuse, Qt.Key.Key_Return)
    assert [act.act for act in out] == ["refuse"]
    transcript.update_message(replace(message, calls=(call(CallState.REFUSED, arguments={"n": 1}),)))
    assert QApplication.focusWidget() is view.head, "not on a button that is gone"
    transcript.setParent(None)  # its fixture closes it


# --- changes


def test_a_change_of_state_keeps_the_rows_the_folds_and_the_place(transcript: Transcript) -> None:
    calls = (call(CallState.DONE, "a", result=RESULT), call(CallState.RUNNING, "b"))
    message = calling(*calls, text="Some words.")
    show(transcript, [*chat(6), question(), message, *chat(3)])
    view = transcript.views[13]
    assert isinstance(view, AnswerView)
    parts, rows = view.parts(), views_of(transcript, 13)
    rows[0].head.click()
    settle(transcript)
    transcript.show_message(message.id)
    settle(transcript)
    rows[0].details.result.text.verticalScrollBar().setValue(40)
    top = view.mapTo(transcript, QPoint(0, 0)).y()
    transcript.update_message(replace(message, calls=(calls[0], call(CallState.DONE, "b", seconds=2.0, result="ok"))))
    settle(transcript)
    assert transcript.views[13] is view
    assert view.parts() == parts
    assert views_of(transcript, 13) == rows
    assert [row.is_open for row in rows] == [True, False]
    assert rows[0].details.result.text.verticalScrollBar().value() == 40
    assert rows[1].state.words == "2.0\u202fs"
    assert view.mapTo(transcript, QPoint(0, 0)).y() == top
    assert transcript.messages[13].calls[1].result == "ok"


def test_a_question_opens_and_closes_its_row_unless_the_user_opened_it(transcript: Transcript) -> None:
    message = calling(call(CallState.RUNNING))
    show(transcript, [question(), message])
    view = views_of(transcript)[0]
    assert not view.is_open
    transcript.update_message(replace(message, calls=(call(),)))
    assert view.is_open
    transcript.update_message(replace(message, calls=(call(CallState.RUNNING),)))
    assert not view.is_open
    assert view.details.buttons.isHidden()
    view.head.click()
    transcript.update_message(replace(message, calls=(call(CallState.DONE, result="ok", seconds=0.2),)))
    assert view.is_open
    assert view.details.result.text.text == "ok"
    transcript.update_message(message)
    transcript.update_message(replace(message, calls=(call(),)))
    for _ in range(2):
        view.head.click()
    transcript.update_message(replace(message, calls=(call(CallState.REFUSED),)))
    assert view.is_open, "the user opened it while it asked"


def test_the_view_follows_a_question_at_the_end(transcript: Transcript) -> None:
    show(transcript, chat(8))
    message = start_answer(transcript, "Let me look that up.")
    done = replace(message, text="Let me look that up.", state=answer("").state, calls=(call(arguments={"n": 1}),))
    transcript.finish_message(done)
    settle(transcript)
    assert at_end(transcript)
    assert not views_of(transcript)[0].details.refuse.visibleRegion().isEmpty()


def test_a_change_in_another_branch_is_ignored(transcript: Transcript) -> None:
    show(transcript, chat(1))
    transcript.update_message(calling(call()))
    assert len(transcript.messages) == 2


# --- one answer in several messages


def test_an_answer_that_goes_on_after_its_calls_has_one_line_of_figures(transcript: Transcript) -> None:
    first, second = calling(call(CallState.DONE), text="First"), answer("Second", **STATS)
    show(transcript, [question(), first])
    assert stats_shown(transcript, 1)
    transcript.add_message(second)
    settle(transcript)
    assert [stats_shown(transcript, index) for index in (1, 2)] == [False, True]
    above, below = transcript.views[1:]
    assert below.y() - above.y() - above.height() <= theme.px(16)
    transcript.show_branch([transcript.messages[0], first])
    settle(transcript)
    assert stats_shown(transcript, 1), "its last part has the buttons"


def test_an_answer_with_other_versions_still_leads_to_them(transcript: Transcript) -> None:
    first = calling(call(CallState.DONE), text="First")
    show(transcript, [question(), first, answer("Second", **STATS)])
    transcript.set_versions({first.id: (1, 2)})
    assert stats_shown(transcript, 1)


def test_answers_without_calls_keep_their_lines(transcript: Transcript) -> None:
    show(transcript, [question(), answer("One", **STATS), answer("Two", **STATS)])
    assert [stats_shown(transcript, index) for index in (1, 2)] == [True, True]


# --- selection, search, look


def test_copying_and_searching_a_chat_with_calls_still_works(transcript: Transcript, qtbot: QtBot) -> None:
    calls = (call(CallState.DONE, result="needle of a page"),)
    show(transcript, [question("needle"), calling(*calls, text="A needle here"), answer("needle, again")])
    views_of(transcript, 1)[0].head.click()
    transcript.selection.select_all()
    transcript.selection.select_all()
    assert transcript.selection.plain_text().split() == ["needle", "A", "needle", "here", "needle,", "again"]
    transcript.text_find.seek("needle")
    qtbot.waitUntil(lambda: not transcript.text_find.is_counting)
    assert transcript.text_find.total == 3
    for _ in range(3):
        transcript.text_find.step(1)
        settle(transcript)
    assert transcript.text_find.number == 1


def test_a_result_is_selected_by_itself(transcript: Transcript, qtbot: QtBot) -> None:
    show(transcript, [question(), calling(call(CallState.DONE, result="foreign words"), text="Own words")])
    view = views_of(transcript)[0]
    view.head.click()
    settle(transcript)
    transcript.selection.select_all()
    assert not transcript.selection.is_empty
    text = view.details.result.text
    text.setFocus(Qt.FocusReason.MouseFocusReason)
    qtbot.mouseDClick(text.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(8, 8))
    assert text.textCursor().selectedText() == "foreign"
    assert transcript.selection.is_empty, "only one text is selected at a time"
    QTest.keyClick(text, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "foreign"
    transcript.setFocus(Qt.FocusReason.MouseFocusReason)
    assert not text.textCursor().hasSelection()


def test_foreign_text_stays_text(transcript: Transcript) -> None:
    page = '<img src="file:///etc/passwd"><a href="https://x.example">go</a> **bold** \x00'
    show(transcript, [question(), calling(call(CallState.DONE, result=page))])
    view = views_of(transcript)[0]
    view.head.click()
    assert view.details.result.text.toPlainText() == page.replace("\x00", "\ufffd")
    cursor = QTextCursor(view.details.result.text.document())
    cursor.select(QTextCursor.SelectionType.Document)
    assert not cursor.charFormat().isAnchor()


def test_the_wheel_scrolls_a_result_and_at_its_ends_the_page(transcript: Transcript) -> None:
    show(transcript, [question(), calling(call(CallState.DONE, arguments={}, result=RESULT))])
    view = views_of(transcript)[0]
    view.head.click()
    settle(transcript)
    text = view.details.result.text
    assert not wheel(text.viewport(), 120)
    assert wheel(text.viewport(), -120)
    assert text.verticalScrollBar().value() > 0
    text.verticalScrollBar().setValue(text.verticalScrollBar().maximum())
    assert not wheel(text.viewport(), -120)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("zoom", [1.0, theme.MAX_ZOOM])
def test_no_text_is_cut_at_a_side(transcript: Transcript, qapp: QApplication, zoom: float, mirrored: bool) -> None:
    theme.apply(qapp, "dark", zoom)
    transcript.setLayoutDirection(
        Qt.LayoutDirection.RightToLeft if mirrored else Qt.LayoutDirection.LeftToRight
    )  # fmt: skip
    transcript.set_has_folder(True)
    long = "accounts.example.com." + "a" * 80 + ".example"
    show(transcript, [question(), calling(call(scope=long, tool="t" * 200), call(CallState.DONE, "b", result=RESULT))])
    asking, done = views_of(transcript)
    done.head.click()
    settle(transcript)
    transcript.set_tool_titles({"read_page": "Web page"})  # lays the open rows out again
    settle(transcript)
    assert asking.width() <= text_column(transcript.width())[1]
    for text in (asking.details.arguments.text, done.details.arguments.text, done.details.result.text):
        assert text.horizontalScrollBar().maximum() == 0
    for button in (asking.details.once, asking.details.in_chat, asking.details.in_folder, asking.details.refuse):
        assert asking.details.buttons.rect().contains(button.geometry())
    assert ".example" in asking.details.in_chat.text(), "the end of the name says whose it is"
