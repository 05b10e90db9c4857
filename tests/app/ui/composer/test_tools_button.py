"""The Tools button: when it is there, what its menu switches, and what it tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.clients.engine_status import EngineStatus, Phase
from app.tools.tool import Tool
from app.tools.tool_offer import ToolOffer
from app.ui.composer.composer import Composer
from app.ui.look import theme
from app.ui.widgets.controls import Label

pytestmark = pytest.mark.gui

TOOLS = (
    Tool("web_search", "Web search", "Searches the web", {}),
    Tool("clock", "Date and time", "", {}, is_local=True),
    Tool("files_read", "read \u202efile", "", {}, source="Files"),
)
OFFER = ToolOffer(TOOLS, frozenset({"clock"}), 420, True)


@pytest.fixture
def composer(qtbot: QtBot, qapp: QApplication) -> Iterator[Composer]:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)
    window, out = QWidget(), Composer()
    column = QVBoxLayout(window)
    column.addStretch(1)
    column.addWidget(out)
    window.resize(700, 600)
    qtbot.addWidget(window)
    out.set_status(EngineStatus(Phase.READY, "Pip"))
    out.set_tools(OFFER)
    window.show()
    out.field.setFocus()
    yield out
    window.close()


def picked(composer: Composer) -> list[list[str]]:
    out: list[list[str]] = []
    composer.tools_picked.connect(out.append)
    return out


@pytest.mark.parametrize(
    ("offer", "is_shown"),
    [(OFFER, True), (replace(OFFER, can_call=False), False), (replace(OFFER, tools=()), False), (ToolOffer(), False)],
)
def test_the_button_is_there_if_there_is_something_to_choose(
    composer: Composer, offer: ToolOffer, is_shown: bool
) -> None:
    composer.set_tools(offer)
    assert composer.tools_button.isHidden() is not is_shown


def test_the_button_tells_how_many_are_on(composer: Composer) -> None:
    button = composer.tools_button
    assert button.text() == "1"
    assert numbers_in(button.accessibleName()) == ["1"]
    composer.set_tools(replace(OFFER, on=frozenset({"clock", "files_read", "gone"})))
    assert button.text() == "2"
    composer.set_tools(replace(OFFER, on=frozenset()))
    assert button.text() == ""
    assert button.accessibleName()


def test_the_menu_lists_the_tools_by_their_source(composer: Composer, qtbot: QtBot) -> None:
    qtbot.mouseClick(composer.tools_button, Qt.MouseButton.LeftButton)
    menu = composer.tools_button.menu_of_tools
    assert menu.is_open
    rows = menu.rows()
    assert [row.tool for row in rows] == list(TOOLS)
    assert [row.toggle.isChecked() for row in rows] == [False, True, False]
    assert "\u202e" not in rows[2].title.words, "no name turns the text around it"
    heads = [part.words for part in menu.findChildren(Label) if part.role == "metastrong"]
    assert heads[1:] == ["Files"]
    assert numbers_in(menu.cost.words) == ["420"]


def test_each_switch_tells_all_names_that_are_on(composer: Composer, qtbot: QtBot) -> None:
    out = picked(composer)
    composer.set_tools(replace(OFFER, on=frozenset({"clock", "gone"})))
    composer.tools_button.open_menu()
    menu = composer.tools_button.menu_of_tools
    search, clock, read = menu.rows()
    search.toggle.click()
    qtbot.mouseClick(read, Qt.MouseButton.LeftButton)  # beside the switch
    clock.toggle.click()
    assert out == [
        ["web_search", "clock", "gone"],
        ["web_search", "clock", "files_read", "gone"],
        ["web_search", "files_read", "gone"],
    ]
    assert menu.is_open


def test_an_open_menu_takes_up_a_new_offer_and_keeps_its_rows(composer: Composer) -> None:
    composer.tools_button.open_menu()
    menu = composer.tools_button.menu_of_tools
    rows = menu.rows()
    composer.set_tools(replace(OFFER, on=frozenset({"web_search"}), tokens=None))
    assert menu.rows() == rows
    assert [row.toggle.isChecked() for row in rows] == [True, False, False]
    assert menu.cost.isHidden()
    composer.set_tools(replace(OFFER, tools=TOOLS[:1]))
    assert [row.tool for row in menu.rows()] == [TOOLS[0]]
    composer.set_tools(ToolOffer())
    assert not menu.is_open


def test_the_menu_works_with_the_keyboard(composer: Composer, qtbot: QtBot) -> None:
    out = picked(composer)
    composer.tools_button.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(composer.tools_button, Qt.Key.Key_Return)
    menu = composer.tools_button.menu_of_tools
    first = menu.rows()[0].toggle
    assert QApplication.focusWidget() is first
    assert first.accessibleName() == "Web search"
    qtbot.keyClick(first, Qt.Key.Key_Space)
    qtbot.keyClick(first, Qt.Key.Key_Return)
    assert out == [["web_search", "clock"], ["clock"]]
    wanted: list[bool] = []
    composer.tools_page_wanted.connect(lambda: wanted.append(True))
    for _ in range(3):
        qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Down)
    assert QApplication.focusWidget() is menu.manage
    qtbot.keyClick(menu.manage, Qt.Key.Key_Return)
    assert wanted == [True]
    assert not menu.is_open


def test_hiding_the_focused_button_gives_the_focus_to_the_field(composer: Composer) -> None:
    composer.tools_button.setFocus()
    composer.set_tools(ToolOffer())
    assert composer.field.hasFocus()
