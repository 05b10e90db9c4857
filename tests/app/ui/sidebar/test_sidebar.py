"""The sidebar: groups by date, selecting, renaming, deleting, searching, the rail."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLineEdit, QMenu, QPushButton, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat.store.conversation import Conversation, SearchHit
from app.clients.engine_status import EngineStatus, Phase
from app.ui.look import theme
from app.ui.sidebar import chat_list, chat_model
from app.ui.sidebar.chat_model import ChatModel, ChatRow, grouped
from app.ui.sidebar.sidebar import Sidebar

pytestmark = pytest.mark.gui

TODAY = date(2025, 11, 20)


def chat(name: str, days_ago: float = 0.0, title: str | None = None) -> Conversation:
    noon = datetime(TODAY.year, TODAY.month, TODAY.day, 12).astimezone()
    at = (noon - timedelta(days=days_ago)).timestamp()
    return Conversation(id=name, title=name.capitalize() if title is None else title, created_at=at, updated_at=at)


CHATS = [chat("heap"), chat("dinner", 0.1), chat("regex", 1), chat("sky", 4), chat("rent", 40), chat("cat", 400)]


def shown(model: ChatModel) -> list[str]:
    return [row if isinstance(row, str) else row.conversation.id for row in model.rows]


@pytest.fixture(autouse=True)
def plain_theme(qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)


@pytest.fixture
def sidebar(qtbot: QtBot) -> Iterator[Sidebar]:
    window = QFrame()
    window.setProperty("kind", "page")
    qtbot.addWidget(window)
    row = QHBoxLayout(window)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(0)
    bar = Sidebar()
    bar.panel.list.chats.today = lambda: TODAY
    row.addWidget(bar)
    row.addWidget(QFrame(), 1)
    window.resize(1280, 800)
    window.show()
    window.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is window)
    bar.set_conversations(CHATS)
    QApplication.processEvents()
    yield bar
    window.close()


def said_by(menu: QMenu) -> list[str]:
    return [re.sub(r"\t.*", "", action.text()) for action in menu.actions() if action.text()]


def click(bar: Sidebar, name: str, at: QPoint | None = None) -> None:
    view = bar.panel.list
    row = view.visualRect(view.chats.index_of(name))
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at or row.center())


# --- groups


def test_chats_stand_under_the_word_for_their_time() -> None:
    rows = [row if isinstance(row, str) else row.conversation.id for row in grouped(CHATS, TODAY)]
    assert rows == ["Today", "heap", "dinner", "Yesterday", "regex", "Last 7 days", "sky", "October", "rent",
                    "October 2024", "cat"]  # fmt: skip


def test_a_chat_of_a_wrong_clock_is_listed_where_no_local_time_is_before_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    local, seconds = time.localtime, time.mktime

    def localtime(when: float) -> time.struct_time:
        if when < 0:
            raise OSError(22, "Invalid argument")
        return local(when)

    def mktime(day: Any) -> float:
        if (found := seconds(day)) < 86_400:  # as east of Greenwich
            raise OverflowError("mktime argument out of range")
        return found

    monkeypatch.setattr(chat_model, "time", SimpleNamespace(localtime=localtime, mktime=mktime))
    wrong = [replace(CHATS[0], updated_at=at) for at in (5_000_000.0, 1.0, -1.0, -1e12)]
    kinds = [isinstance(row, str) for row in grouped([*CHATS, *wrong], TODAY)]
    assert kinds[-6:] == [True, False, True, False, False, False]


def test_groups_are_newest_first_whatever_the_order_given() -> None:
    assert grouped(CHATS[::-1], TODAY) == grouped(CHATS, TODAY)


def test_a_new_day_moves_chats_to_yesterday(sidebar: Sidebar) -> None:
    model = sidebar.panel.list.chats
    model.today = lambda: TODAY + timedelta(days=1)
    model.regroup()
    assert shown(model)[:3] == ["Yesterday", "heap", "dinner"]


def test_an_untitled_chat_has_a_name(sidebar: Sidebar) -> None:
    sidebar.set_conversations([chat("x", title="")])
    model = sidebar.panel.list.chats
    assert model.index_of("x").data() == "New chat"


def test_five_thousand_chats_are_painted_only_where_they_show(sidebar: Sidebar) -> None:
    painted: list[int] = []

    class Counting(chat_list.ChatDelegate):
        def paint(self, painter, option, index):  # type: ignore[no-untyped-def]
            painted.append(index.row())
            super().paint(painter, option, index)

    sidebar.panel.list.setItemDelegate(Counting(sidebar.panel.list))
    sidebar.set_conversations([chat(f"c{i}", i / 50) for i in range(5000)])
    sidebar.panel.list.viewport().grab()
    assert 0 < len(set(painted)) < 40
    assert sidebar.panel.list.uniformItemSizes()


def test_a_list_that_only_changed_its_words_is_not_reset(sidebar: Sidebar, qtbot: QtBot) -> None:
    model = sidebar.panel.list.chats
    with qtbot.assertNotEmitted(model.modelReset), qtbot.waitSignal(model.dataChanged):
        sidebar.set_conversations([chat("heap", title="Another title"), *CHATS[1:]])
    assert model.index_of("heap").data() == "Another title"


def test_a_new_chat_keeps_the_scroll_position_and_the_cursor(sidebar: Sidebar) -> None:
    many = [chat(f"c{i}", 0.001 * i) for i in range(200)]
    sidebar.set_conversations(many)
    view = sidebar.panel.list
    view.setCurrentIndex(view.chats.index_of("c90"))
    view.verticalScrollBar().setValue(1500)
    sidebar.set_conversations([chat("new", -0.001), *many])
    assert view.verticalScrollBar().value() == 1500
    assert view.chats.chat(view.currentIndex()).conversation.id == "c90"


def test_no_chats_say_so(sidebar: Sidebar) -> None:
    sidebar.set_conversations([])
    assert sidebar.panel.empty.isVisible()
    assert sidebar.panel.empty.line.text()
    sidebar.set_conversations(CHATS)
    assert sidebar.panel.list.isVisible()


# --- mouse and keys


def test_a_click_opens_a_chat_and_a_section_does_nothing(sidebar: Sidebar, qtbot: QtBot) -> None:
    with qtbot.waitSignal(sidebar.conversation_selected) as told:
        click(sidebar, "regex")
    assert told.args == ["regex"]
    head = sidebar.panel.list.visualRect(sidebar.panel.list.chats.index(0)).center()
    with qtbot.assertNotEmitted(sidebar.conversation_selected):
        QTest.mouseClick(sidebar.panel.list.viewport(), Qt.MouseButton.LeftButton, pos=head)


def test_arrows_pass_over_sections_and_enter_opens(sidebar: Sidebar, qtbot: QtBot) -> None:
    view = sidebar.panel.list
    view.setFocus()
    view.setCurrentIndex(view.chats.index_of("dinner"))
    QTest.keyClick(view, Qt.Key.Key_Down)
    assert view.chats.chat(view.currentIndex()).conversation.id == "regex"
    with qtbot.waitSignal(sidebar.conversation_selected) as told:
        QTest.keyClick(view, Qt.Key.Key_Return)
    assert told.args == ["regex"]


def test_delete_asks_to_delete_the_chat_under_the_cursor(sidebar: Sidebar, qtbot: QtBot) -> None:
    view = sidebar.panel.list
    view.setCurrentIndex(view.chats.index_of("sky"))
    with qtbot.waitSignal(sidebar.delete_requested) as told:
        QTest.keyClick(view, Qt.Key.Key_Delete)
    assert told.args == ["sky"]


def editor_of(bar: Sidebar) -> QLineEdit:
    return bar.panel.list.viewport().findChild(QLineEdit)


def test_f2_renames_in_place(sidebar: Sidebar, qtbot: QtBot) -> None:
    view = sidebar.panel.list
    view.setFocus()
    view.setCurrentIndex(view.chats.index_of("heap"))
    QTest.keyClick(view, Qt.Key.Key_F2)
    editor = editor_of(sidebar)
    assert editor.accessibleName()
    assert (editor.text(), editor.selectedText()) == ("Heap", "Heap")
    QTest.keyClicks(editor, "  Sorting   data ")
    with qtbot.waitSignal(sidebar.rename_requested) as told:
        QTest.keyClick(editor, Qt.Key.Key_Return)
    assert told.args == ["heap", "Sorting data"]
    assert view.chats.index_of("heap").data() == "Sorting data"


@pytest.mark.parametrize(("typed", "end"), [("Other", Qt.Key.Key_Escape), ("   ", Qt.Key.Key_Return)])
def test_a_rename_given_up_or_empty_changes_nothing(sidebar: Sidebar, qtbot: QtBot, typed: str, end: Qt.Key) -> None:
    sidebar.rename("heap")
    editor = editor_of(sidebar)
    QTest.keyClicks(editor, typed)
    with qtbot.assertNotEmitted(sidebar.rename_requested):
        QTest.keyClick(editor, end)
    assert sidebar.panel.list.chats.index_of("heap").data() == "Heap"


def test_a_new_list_waits_for_the_end_of_a_rename(sidebar: Sidebar, qtbot: QtBot) -> None:
    sidebar.rename("heap")
    editor = editor_of(sidebar)
    sidebar.set_conversations([chat("brand new", -0.1), *CHATS])
    assert editor.isVisible()
    assert "brand new" not in shown(sidebar.panel.list.chats)
    QTest.keyClick(editor, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: "brand new" in shown(sidebar.panel.list.chats))


def test_the_more_button_opens_a_menu_and_does_not_open_the_chat(sidebar: Sidebar, qtbot: QtBot) -> None:
    view = sidebar.panel.list
    row = view.row_box(view.visualRect(view.chats.index_of("dinner")))
    with qtbot.assertNotEmitted(sidebar.conversation_selected):
        click(sidebar, "dinner", view.delegate.more_rect(row).center())
    menu = view.findChild(QMenu)
    assert said_by(menu) == [
        "Rename", "Pin", "Move to a new folder", "Print or export", "Export as Markdown", "Export as JSON", "Delete",
    ]  # fmt: skip
    with qtbot.waitSignal(sidebar.delete_requested) as told:
        menu.actions()[-1].trigger()
    assert told.args == ["dinner"]
    menu.close()


def test_after_delete_the_neighbour_has_the_cursor(sidebar: Sidebar, qtbot: QtBot) -> None:
    view = sidebar.panel.list
    view.setFocus()
    left = list(CHATS)

    def delete(conversation_id: str) -> str:
        with qtbot.waitSignal(sidebar.delete_requested) as told:
            QTest.keyClick(view, Qt.Key.Key_Delete)
        assert told.args == [conversation_id]
        left[:] = [one for one in left if one.id != conversation_id]
        sidebar.set_conversations(left)
        row = view.chats.chat(view.currentIndex())
        return row.conversation.id if row is not None else ""

    order = [row.conversation.id for row in view.chats.rows if isinstance(row, ChatRow)]
    view.setCurrentIndex(view.chats.index_of(order[2]))
    assert delete(order[2]) == order[3]
    assert delete(order[3]) == order[4]
    view.setCurrentIndex(view.chats.index_of(order[-1]))
    assert delete(order[-1]) == order[-2]


def test_the_menu_key_opens_the_menu_of_the_cursor(sidebar: Sidebar) -> None:
    view = sidebar.panel.list
    view.setCurrentIndex(view.chats.index_of("regex"))
    event = QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, QPoint(0, 0), QPoint(0, 0))
    QApplication.sendEvent(view.viewport(), event)
    menu = view.findChild(QMenu)
    assert menu.isVisible()
    menu.close()


def test_the_running_chat_has_a_dot_that_is_also_spoken(sidebar: Sidebar) -> None:
    view = sidebar.panel.list
    before = view.viewport().grab().toImage()
    sidebar.set_running("dinner")
    spoken = view.chats.index_of("dinner").data(Qt.ItemDataRole.AccessibleTextRole)
    assert spoken == "Dinner, writing"
    assert view.viewport().grab().toImage() != before
    sidebar.set_running(None)
    assert view.viewport().grab().toImage() == before


def test_a_chat_that_waits_for_the_user_has_a_mark_that_is_also_spoken(sidebar: Sidebar) -> None:
    view = sidebar.panel.list
    before = view.viewport().grab().toImage()
    sidebar.set_running("dinner")
    running = view.viewport().grab().toImage()
    sidebar.set_waiting("dinner", True)
    assert view.chats.index_of("dinner").data(Qt.ItemDataRole.AccessibleTextRole) == "Dinner, waiting for you"
    assert view.viewport().grab().toImage() not in (before, running)
    sidebar.set_running(None)
    sidebar.set_waiting("dinner", False)
    assert view.viewport().grab().toImage() == before


def test_the_chat_of_the_page_is_marked_and_comes_into_view(sidebar: Sidebar) -> None:
    sidebar.set_conversations([chat(f"c{i}", 0.001 * i) for i in range(300)])
    view = sidebar.panel.list
    sidebar.set_current("c250")
    assert view.viewport().rect().contains(view.visualRect(view.chats.index_of("c250")))
    sidebar.set_current(None)
    assert view.current_id == ""


# --- search


def test_search_turns_into_a_field_and_tells_what_is_typed(sidebar: Sidebar, qtbot: QtBot) -> None:
    sidebar.panel.search_button.click()
    assert sidebar.panel.field.hasFocus()
    with qtbot.waitSignal(sidebar.search_changed) as told:
        QTest.keyClicks(sidebar.panel.field, "heap")
    assert told.args == ["heap"]
    sidebar.set_search_hits("heap", [SearchHit(CHATS[0], "a heap of\nk + 1 items")])
    row = sidebar.panel.list.chats.rows[0]
    assert isinstance(row, ChatRow)
    assert (row.title, row.snippet) == ("Heap", "a heap of k + 1 items")


def test_a_search_without_hits_says_so(sidebar: Sidebar) -> None:
    sidebar.open_search()
    sidebar.panel.field.setText("thermostat")
    sidebar.set_search_hits("thermostat", [])
    assert "“thermostat”" in sidebar.panel.empty.title.text()


def test_a_chat_that_is_deleted_leaves_the_hits_and_comes_back_with_undo(sidebar: Sidebar, qtbot: QtBot) -> None:
    sidebar.open_search()
    with qtbot.waitSignal(sidebar.search_changed):
        sidebar.panel.field.setText("d")
    sidebar.set_search_hits("d", [SearchHit(CHATS[1]), SearchHit(CHATS[0])])
    rows = sidebar.panel.list.chats
    sidebar.set_conversations([chat for chat in CHATS if chat.id != CHATS[1].id])
    assert [row.conversation.id for row in rows.rows] == [CHATS[0].id]
    assert rows.searching
    sidebar.set_conversations(CHATS)
    assert [row.conversation.id for row in rows.rows] == [CHATS[1].id, CHATS[0].id]


def test_hits_that_come_too_late_are_passed_over(sidebar: Sidebar) -> None:
    sidebar.open_search()
    sidebar.panel.field.setText("dinner")
    sidebar.set_search_hits("din", [SearchHit(CHATS[2])])
    assert not sidebar.panel.list.chats.searching


def test_esc_closes_the_search_and_shows_everything_again(sidebar: Sidebar, qtbot: QtBot) -> None:
    sidebar.open_search()
    with qtbot.waitSignal(sidebar.search_changed):
        QTest.keyClicks(sidebar.panel.field, "heap")
    sidebar.set_search_hits("heap", [SearchHit(CHATS[0])])
    with qtbot.waitSignal(sidebar.search_changed) as told:
        QTest.keyClick(sidebar.panel.field, Qt.Key.Key_Escape)
    assert told.args == [""]
    assert not sidebar.panel.searching
    assert len(shown(sidebar.panel.list.chats)) == 11


def test_up_and_down_choose_a_hit_from_the_field_and_return_opens_it(sidebar: Sidebar, qtbot: QtBot) -> None:
    sidebar.open_search()
    field, view = sidebar.panel.field, sidebar.panel.list
    with qtbot.waitSignal(sidebar.search_changed):
        QTest.keyClicks(field, "d")
    sidebar.set_search_hits("d", [SearchHit(CHATS[1], "", (), (), "m1"), SearchHit(CHATS[0]), SearchHit(CHATS[2])])

    def marked() -> str:
        row = view.chats.chat(view.currentIndex())
        return row.conversation.id if row is not None else ""

    assert marked() == CHATS[1].id
    picture = view.viewport().grab().toImage()
    for key, expected in (("Down", 0), ("Down", 2), ("Down", 2), ("Up", 0), ("Up", 1), ("Up", 1)):
        QTest.keyClick(field, getattr(Qt.Key, f"Key_{key}"))
        assert marked() == CHATS[expected].id
        assert field.accessibleDescription().startswith(CHATS[expected].title)
        assert field.hasFocus()
    QTest.keyClick(field, Qt.Key.Key_Down)
    assert view.viewport().grab().toImage() != picture
    with qtbot.waitSignal(sidebar.conversation_selected) as told:
        QTest.keyClick(field, Qt.Key.Key_Return)
    assert told.args == [CHATS[0].id]
    QTest.keyClick(field, Qt.Key.Key_Up)
    with qtbot.waitSignal(sidebar.hit_selected) as told:
        QTest.keyClick(field, Qt.Key.Key_Enter)
    assert told.args == [CHATS[1].id, "m1", "d"]


def test_f2_in_the_search_field_renames_the_marked_hit(sidebar: Sidebar, qtbot: QtBot) -> None:
    sidebar.open_search()
    field, view = sidebar.panel.field, sidebar.panel.list
    with qtbot.waitSignal(sidebar.search_changed):
        QTest.keyClicks(field, "d")
    sidebar.set_search_hits("d", [SearchHit(CHATS[1]), SearchHit(CHATS[0])])
    QTest.keyClick(field, Qt.Key.Key_Down)
    QTest.keyClick(field, Qt.Key.Key_F2)
    (editor,) = view.viewport().findChildren(QLineEdit)
    assert editor.text() == CHATS[0].title
    editor.setText("Dogs")
    with qtbot.waitSignal(sidebar.rename_requested) as told:
        QTest.keyClick(editor, Qt.Key.Key_Return)
    assert told.args == [CHATS[0].id, "Dogs"]


def test_return_opens_the_first_hit_of_what_was_typed_even_before_it_is_found(sidebar: Sidebar, qtbot: QtBot) -> None:
    sidebar.open_search()
    field = sidebar.panel.field
    QTest.keyClicks(field, "dinn")
    with qtbot.waitSignal(sidebar.search_changed, timeout=50) as told:  # before the delay is over
        QTest.keyClick(field, Qt.Key.Key_Return)
    assert told.args == ["dinn"]
    with qtbot.waitSignal(sidebar.conversation_selected) as told:
        sidebar.set_search_hits("dinn", [SearchHit(CHATS[2])])
    assert told.args == [CHATS[2].id]
    with qtbot.assertNotEmitted(sidebar.conversation_selected):
        QTest.keyClicks(field, "e")
        QTest.keyClick(field, Qt.Key.Key_Return)
        QTest.keyClicks(field, "r")  # something else is wanted now
        sidebar.set_search_hits("dinne", [SearchHit(CHATS[2])])
        sidebar.set_search_hits("dinner", [SearchHit(CHATS[2])])


def test_the_cursor_of_the_search_is_marked_only_while_the_field_has_the_focus(sidebar: Sidebar) -> None:
    sidebar.open_search()
    sidebar.panel.field.setText("d")
    sidebar.set_search_hits("d", [SearchHit(CHATS[1]), SearchHit(CHATS[0])])
    view = sidebar.panel.list
    assert view.is_led
    sidebar.panel.new_chat.setFocus()
    assert not view.is_led


# --- panel, rail, card


def test_every_button_of_the_sidebar_asks_for_its_thing(sidebar: Sidebar, qtbot: QtBot) -> None:
    for part in (sidebar.panel, sidebar.rail):
        for button, signal in (
            (part.new_chat, sidebar.new_chat),
            (part.models, sidebar.models_requested),
            (part.live, sidebar.live_requested),
            (part.settings, sidebar.settings_requested),
            (part.brand, sidebar.about_requested),
        ):
            with qtbot.waitSignal(signal):
                button.click()


def test_everything_focusable_in_the_sidebar_has_a_name(sidebar: Sidebar) -> None:
    for widget in sidebar.findChildren(QWidget):
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and not widget.objectName().startswith("qt_"):
            said = widget.accessibleName() or (widget.text() if isinstance(widget, QPushButton) else "")
            assert said, widget


def test_it_is_a_rail_below_1080_and_a_panel_above(sidebar: Sidebar) -> None:
    assert sidebar.width() == 256
    sidebar.window().resize(1079, 700)
    assert sidebar.width() == sidebar.rail.width_in(sidebar.window().size()) < 90
    assert sidebar.rail.isVisible()
    assert not sidebar.panel.isVisible()
    sidebar.window().resize(1080, 700)
    assert sidebar.width() == 256


def test_it_closes_and_opens_and_that_is_remembered(sidebar: Sidebar, qtbot: QtBot) -> None:
    with qtbot.waitSignal(sidebar.collapsed_changed) as told:
        sidebar.panel.hide_button.click()
    assert told.args == [True]
    qtbot.waitUntil(lambda: sidebar.width() < 90 and sidebar.rail.isVisible())
    with qtbot.waitSignal(sidebar.collapsed_changed) as told:
        sidebar.rail.open_button.click()
    assert told.args == [False]
    qtbot.waitUntil(lambda: sidebar.width() == 256 and not sidebar.rail.isVisible())


def test_in_a_narrow_window_the_panel_opens_over_the_page(sidebar: Sidebar, qtbot: QtBot) -> None:
    window = sidebar.window()
    window.resize(900, 600)
    with qtbot.assertNotEmitted(sidebar.collapsed_changed):
        sidebar.toggle()
    assert sidebar.is_over_page
    assert sidebar.width() == sidebar.rail.width_in(sidebar.window().size()) < 90
    assert sidebar.panel.parent() is window
    qtbot.waitUntil(lambda: sidebar.panel.x() == 0)
    with qtbot.waitSignal(sidebar.conversation_selected):
        click(sidebar, "heap")
    assert not sidebar.is_over_page
    assert sidebar.panel.parent() is sidebar


@pytest.mark.parametrize("way", ["escape", "outside", "widen", "toggle", "page", "new chat"])
def test_the_panel_over_the_page_goes_away(sidebar: Sidebar, way: str) -> None:
    window = sidebar.window()
    window.resize(900, 600)
    sidebar.toggle()
    if way == "escape":
        QTest.keyClick(sidebar.panel.new_chat, Qt.Key.Key_Escape)
    elif way == "outside":
        QTest.mouseClick(sidebar._overlay, Qt.MouseButton.LeftButton, pos=QPoint(700, 300))
    elif way == "widen":
        window.resize(1300, 600)
        assert sidebar.panel.isVisible()
    elif way == "page":  # by its keys
        sidebar.set_page("models")
    elif way == "new chat":
        sidebar.new_chat.emit()
    else:
        sidebar.toggle()
    assert not sidebar.is_over_page


def test_it_slides_between_its_two_widths_after_it_was_over_the_page_without_motion(
    sidebar: Sidebar, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    window, full, widths = sidebar.window(), sidebar.width(), list[int]()
    monkeypatch.setattr(theme.current(), "still", True)
    window.resize(900, 600)
    sidebar.toggle()
    sidebar.toggle()
    window.resize(1300, 600)
    monkeypatch.setattr(theme.current(), "still", False)
    monkeypatch.setattr(sidebar, "setFixedWidth", lambda w: (widths.append(w), QFrame.setFixedWidth(sidebar, w)))
    sidebar.toggle()
    qtbot.waitUntil(sidebar.rail.isVisible)
    assert (min(widths), max(widths)) == (sidebar.width(), full)


def test_search_from_the_rail_opens_the_panel_with_its_field(sidebar: Sidebar) -> None:
    sidebar.window().resize(900, 600)
    sidebar.rail.search.click()
    assert sidebar.is_over_page
    assert sidebar.panel.searching


@pytest.mark.parametrize(
    ("status", "token", "figures"),
    [
        (EngineStatus(Phase.READY, "Pip", load_s=0.8), "ok", ["800 ms"]),
        (EngineStatus(Phase.WRITING, "Pip", tok_s=38.64), "hot_fill", ["38.6 tok/s"]),
        (EngineStatus(Phase.LOADING, "Pip", done=42, total=100), "hot_fill", ["42%"]),
        (EngineStatus(Phase.LOADING, "Pip", done=11, total=14, compiling=True), "hot_fill", ["12", "14"]),
        (EngineStatus(Phase.FAILED, "Pip"), "bad", []),
        (EngineStatus(Phase.OFF), "control", []),
    ],
)
def test_the_card_tells_the_state(sidebar: Sidebar, status: EngineStatus, token: str, figures: list[str]) -> None:
    sidebar.set_status(status)
    card = sidebar.panel.engine
    assert (card.dot.token, card.dot.working) == (token, status.working)
    line = card.line.words
    assert line
    assert numbers_in(line) == figures
    assert "…" not in card.line.text()
    assert card.progress.isVisible() == (status.phase is Phase.LOADING)
    assert line in card.accessibleName()
    assert line in sidebar.rail.dot.toolTip()


def test_switching_theme_and_zoom_keeps_the_sidebar_whole(sidebar: Sidebar, qapp: QApplication) -> None:
    light = sidebar.grab().toImage()
    theme.apply(qapp, "dark", 1.0)
    assert sidebar.grab().toImage() != light
    sidebar.window().resize(1900, 900)
    theme.apply(qapp, "dark", 1.5)
    assert sidebar.width() == 384


def test_nothing_burns_beside_a_figure_that_waits(sidebar: Sidebar) -> None:
    def burns() -> bool:
        image = sidebar.panel.models.grab().toImage()
        ember = theme.colour("hot_fill")
        return any(image.pixelColor(x, y) == ember for x in range(image.width()) for y in range(image.height()))

    sidebar.set_models_work("12%", working=True)
    assert burns()
    sidebar.set_models_work("12%", working=False)
    assert not burns()
    assert sidebar.panel.models.figure == "12%"


def test_the_rail_names_its_icons_where_the_window_is_high_enough(sidebar: Sidebar) -> None:
    window, rail = sidebar.window(), sidebar.rail
    window.resize(900, 700)
    QApplication.processEvents()
    named = [rail.new_chat, rail.search, rail.chat, rail.models, rail.live, rail.settings]
    assert all(button.labelled for button in named)
    assert all(button.label_width() < button.width() for button in named), "no name is cut"
    assert all(rail.rect().contains(button.geometry()) for button in named)
    before = sidebar.width()
    window.resize(900, 330)
    QApplication.processEvents()
    assert not any(button.labelled for button in named)
    assert sidebar.width() == theme.px(56) < before
    assert all(rail.rect().contains(button.geometry()) for button in named)
    window.resize(700, 700)
    QApplication.processEvents()
    assert sidebar.width() == theme.px(56), "the page needs the room itself"
