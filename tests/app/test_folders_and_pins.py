"""Pins and folders in the list of chats: grouped, opened, renamed, dragged to and kept; and the marks of hits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from person import Arrive
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDropEvent, QFontMetricsF
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLineEdit, QMenu
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat.store.conversation import Conversation, SearchHit
from app.ui.look import theme
from app.ui.sidebar import chat_drag
from app.ui.sidebar.chat_list import ChatList
from app.ui.sidebar.chat_model import ChatRow, FolderRow, Row, grouped
from app.ui.sidebar.folder_dialog import FolderDialog
from app.ui.sidebar.sidebar import Sidebar
from app.ui.widgets.marked_line import in_sight

pytestmark = pytest.mark.gui

TODAY = date(2025, 11, 20)


def chat(name: str, days_ago: float = 0.0, pinned: bool = False, folder: str = "") -> Conversation:
    noon = datetime(TODAY.year, TODAY.month, TODAY.day, 12).astimezone()
    at = (noon - timedelta(days=days_ago)).timestamp()
    return Conversation(name, name.capitalize(), at, at, pinned, folder)


CHATS = [
    chat("heap"),
    chat("regex", 1),
    chat("sky", 4, pinned=True),
    chat("rent", 40, pinned=True, folder="Home"),
    chat("cat", 2, folder="Home"),
    chat("sofa", 1.5, folder="Home"),
    chat("sql", 3, folder="archive"),
]
OPEN = ["Pinned", "sky", "rent", "Folders", "[archive 1]", "sql", "[Home 2]", "sofa", "cat", "Today", "heap",
        "Yesterday", "regex"]  # fmt: skip


def shown(rows: list[Row]) -> list[str]:
    return [
        f"[{row.name} {row.count}]"
        if isinstance(row, FolderRow)
        else row
        if isinstance(row, str)
        else row.conversation.id
        for row in rows
    ]


def test_pins_come_first_then_folders_by_name_then_the_rest_by_date() -> None:
    assert shown(grouped(CHATS, TODAY)) == OPEN


def test_a_closed_folder_keeps_its_head_and_its_count() -> None:
    rows = shown(grouped(CHATS, TODAY, {"Home", "gone"}))
    assert rows == [row for row in OPEN if row not in ("sofa", "cat")]


@pytest.fixture
def view(qtbot: QtBot, qapp: QApplication) -> Iterator[ChatList]:
    theme.apply(qapp, "light", 1.0)
    window = QFrame()
    qtbot.addWidget(window)
    row = QHBoxLayout(window)
    row.setContentsMargins(0, 0, 0, 0)
    bar = Sidebar()
    window.bar = bar  # type: ignore[attr-defined]
    bar.panel.list.chats.today = lambda: TODAY
    row.addWidget(bar)
    row.addWidget(QFrame(), 1)
    window.resize(1280, 900)
    window.show()
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    bar.set_conversations(CHATS)
    QApplication.processEvents()
    yield bar.panel.list
    window.close()


def at(view: ChatList, name: str) -> QPoint:
    index = view.chats.index_of(name) if view.chats.index_of(name).isValid() else view.chats.folder_index(name)
    assert index.isValid(), name
    return view.visualRect(index).center()


def said_by(menu: QMenu) -> list[str]:
    return [re.sub(r"\t.*", "", action.text()) for action in menu.actions() if action.text()]


def test_a_click_on_a_folder_closes_and_opens_it(view: ChatList, qtbot: QtBot) -> None:
    with qtbot.waitSignal(view.closed_changed) as told, qtbot.assertNotEmitted(view.opened):
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at(view, "Home"))
    assert told.args == [["Home"]]
    assert not view.chats.index_of("cat").isValid()
    with qtbot.waitSignal(view.closed_changed) as told:
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at(view, "Home"))
    assert told.args == [[]]
    assert shown(view.chats.rows) == OPEN


def test_arrows_and_enter_work_a_folder_from_the_keyboard(view: ChatList) -> None:
    view.setFocus()
    view.setCurrentIndex(view.chats.folder_index("Home"))
    for key, closed in ((Qt.Key.Key_Left, True), (Qt.Key.Key_Left, True), (Qt.Key.Key_Right, False),
                        (Qt.Key.Key_Return, True), (Qt.Key.Key_Space, False)):  # fmt: skip
        QTest.keyClick(view, key)
        assert ("Home" in view.chats.closed) is closed
        assert view.chats.folder(view.currentIndex()).name == "Home"
    QTest.keyClick(view, Qt.Key.Key_Up)
    assert view.chats.chat(view.currentIndex()).conversation.id == "sql"


def test_a_folder_says_what_it_is(view: ChatList) -> None:
    def spoken(name: str) -> str:
        return str(view.chats.folder_index(name).data(Qt.ItemDataRole.AccessibleTextRole))

    assert spoken("Home").startswith("Home,")
    assert numbers_in(spoken("Home")) == ["2"]
    opened = spoken("archive")
    view.toggle_folder("archive")
    assert numbers_in(spoken("archive")) == ["1"]
    assert spoken("archive") != opened, "open or closed is said"


def test_f2_renames_a_folder_in_its_row(view: ChatList, qtbot: QtBot) -> None:
    view.setFocus()
    view.setCurrentIndex(view.chats.folder_index("Home"))
    QTest.keyClick(view, Qt.Key.Key_F2)
    field = view.findChild(QLineEdit)
    assert field.accessibleName() == "New name"
    field.setText("  House ")
    with qtbot.waitSignal(view.folder_renamed) as told:
        QTest.keyClick(field, Qt.Key.Key_Return)
    assert told.args == ["Home", "House"]


def test_renaming_a_chat_opens_the_folder_that_hides_it(view: ChatList) -> None:
    view.toggle_folder("Home")
    view.rename("cat")
    assert view.findChild(QLineEdit).text() == "Cat"


def test_the_menu_of_a_chat_pins_and_moves(view: ChatList, qtbot: QtBot) -> None:
    menu = view.menu_for(view.chats.rows[view.chats.index_of("sql").row()])
    assert said_by(menu)[:3] == ["Rename", "Pin", "Move to folder"]
    with qtbot.waitSignal(view.placed) as told:
        menu.actions()[1].trigger()
    assert told.args == ["sql", True, "archive"]
    inner = menu.actions()[2].menu()
    assert said_by(inner) == ["archive", "Home", "New folder", "Remove from folder"]
    with qtbot.waitSignal(view.placed) as told:
        inner.actions()[1].trigger()
    assert told.args == ["sql", False, "Home"]
    with qtbot.waitSignal(view.asked) as told:
        next(action for action in inner.actions() if action.text() == "New folder").trigger()
    assert told.args == ["new_folder", "sql"]
    menu.deleteLater()


def test_the_neighbours_are_those_in_sight(view: ChatList) -> None:
    view.set_current("sql")
    assert (view.neighbour(1), view.neighbour(-1)) == ("sofa", "rent")
    view.toggle_folder("Home")
    assert view.neighbour(1) == "heap"
    view.set_current("regex")
    assert view.neighbour(1) == ""
    view.set_current("")
    assert view.neighbour(1) == "sky"


# --- dragging


@pytest.mark.parametrize(
    ("over", "place"),
    [
        ("[Home 2]", chat_drag.Place(folder="Home")),
        ("sofa", chat_drag.Place(folder="Home")),
        ("Pinned", chat_drag.Place(pinned=True)),
        ("rent", chat_drag.Place(pinned=True)),
        ("Today", chat_drag.Place()),
        ("regex", chat_drag.Place()),
        ("Folders", None),
    ],
)
def test_where_a_chat_is_dropped_says_what_becomes_of_it(
    view: ChatList, over: str, place: chat_drag.Place | None
) -> None:
    assert chat_drag.place_of(view.chats, shown(view.chats.rows).index(over)) == place


def test_dropping_a_chat_on_a_folder_moves_it_there(view: ChatList, qtbot: QtBot) -> None:
    data = QMimeData()
    data.setData(chat_drag.MIME, b"heap")
    drop = QDropEvent(QPointF(at(view, "Home")), Qt.DropAction.MoveAction, data, Qt.MouseButton.LeftButton,
                      Qt.KeyboardModifier.NoModifier)  # fmt: skip
    with qtbot.waitSignal(view.placed) as told:
        view.dropEvent(drop)
    assert told.args == ["heap", False, "Home"]
    plain = QMimeData()
    plain.setText("heap")
    drop = QDropEvent(QPointF(at(view, "Home")), Qt.DropAction.CopyAction, plain, Qt.MouseButton.LeftButton,
                      Qt.KeyboardModifier.NoModifier)  # fmt: skip
    with qtbot.assertNotEmitted(view.placed):
        view.dropEvent(drop)


def test_a_whole_folder_lights_up_under_a_dragged_chat(view: ChatList) -> None:
    rows = chat_drag.rows_of(view.chats, chat_drag.Place(folder="Home"))
    assert [shown(view.chats.rows)[row] for row in sorted(rows)] == ["[Home 2]", "sofa", "cat"]


# --- in the window


def test_a_new_folder_is_named_and_the_whole_outlives_a_restart(arrive: Arrive, qtbot: QtBot, tmp_path: Path) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    person.ask("Where do herons nest?")
    window = person.window
    chat_id = window.shown_chat
    window.commands.run("move_chat")
    dialog = window.findChild(FolderDialog)
    assert not dialog.confirm.isEnabled()
    QTest.keyClicks(dialog.field, "Birds & co")
    dialog.confirm.click()
    view = window.sidebar.panel.list
    person.wait(lambda: any(isinstance(row, FolderRow) for row in view.chats.rows))
    assert view.chats.conversation(chat_id).folder == "Birds & co"
    view.toggle_folder("Birds & co")
    person.saved()
    person.leave()
    again = arrive("in-thread", settings=window.settings)
    again.wait(lambda: again.window.sidebar.panel.list.chats.rows)
    assert shown(again.window.sidebar.panel.list.chats.rows) == ["Folders", "[Birds & co 1]"]


# --- hits


def test_a_hit_opens_at_the_message_that_was_found(view: ChatList, qtbot: QtBot) -> None:
    bar = view.window().bar
    bar.open_search()
    bar.panel.field.setText("heap")
    bar.set_search_hits(
        "heap", [SearchHit(CHATS[0], "a heap of\nk + 1 items", ((2, 6),), ((0, 4),), "m7"), SearchHit(CHATS[1])]
    )
    row = view.chats.rows[0]
    assert isinstance(row, ChatRow)
    assert (row.snippet, row.snippet[slice(*row.marks[0])]) == ("a heap of k + 1 items", "heap")
    with qtbot.waitSignal(bar.hit_selected) as told, qtbot.assertNotEmitted(bar.conversation_selected):
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at(view, "heap"))
    assert told.args == ["heap", "m7", "heap"]
    with qtbot.waitSignal(bar.conversation_selected) as told:
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at(view, "regex"))
    assert told.args == ["regex"]


def test_a_mark_is_seen_in_the_picture(view: ChatList) -> None:
    bar = view.window().bar
    bar.open_search()
    bar.panel.field.setText("heap")
    bar.set_search_hits("heap", [SearchHit(CHATS[0], "a heap of items", (), (), "m")])
    plain = view.viewport().grab().toImage()
    bar.set_search_hits("heap", [SearchHit(CHATS[0], "a heap of items", ((2, 6),), (), "m")])
    assert view.viewport().grab().toImage() != plain


@pytest.mark.parametrize(
    "words", ["word " * 40 + "needle in it", "語" * 60 + "needle針", "needle " + "x" * 200, "needle"]
)
def test_the_first_mark_is_in_sight_whatever_stands_before_it(qapp: QApplication, words: str) -> None:
    font, room = theme.font("meta"), 180
    start = words.index("needle")
    cut, marks = in_sight(words, [(start, start + 6)], font, room)
    assert QFontMetricsF(font).horizontalAdvance(cut) <= room
    assert cut[slice(*marks[0])] == "needle"


def test_undoing_an_import_leaves_the_chat_that_is_gone(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive()
    person.wait_ready()
    person.ask("hello")
    path, folders, controller = tmp_path / "all.json", person.hearth.folders, person.hearth.controller
    said: list[tuple[str, Any]] = []
    folders.toast.connect(lambda words, undo: said.append((words, undo)))
    person.saved()
    folders.export_chats(path)
    person.wait(lambda: said)
    chat = person.hearth.memory.conversations()[0].id
    controller.delete(chat)
    person.hearth.memory.erase([chat])
    folders.import_chats(path)
    person.wait(lambda: len(said) == 2)
    controller.open(chat)
    person.wait(lambda: controller.open_conversation == chat)
    said[-1][1]()
    assert controller.open_conversation is None
    assert person.page.is_empty
