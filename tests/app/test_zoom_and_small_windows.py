"""Every page at every text size and window size, in both orders of zooming and switching pages: nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import control_walk as walk
import pytest
from control_room import Room
from patient_bot import PatientBot
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QLineEdit, QScrollArea, QWidget
from pytestqt.qtbot import QtBot
from support.repetitions import slow, some_daily
from test_every_control import PLACES, end_answer

from app.tools.tool import Tool
from app.tools.tool_offer import ToolOffer
from app.ui.look import language, theme
from app.ui.widgets import floating
from app.ui.widgets.controls import Button, Label
from app.ui.window_frame import WindowFrame

pytestmark = pytest.mark.gui

SMALLEST = ((720, 560), 1.6)
OTHERS = (((720, 560), 0.8), ((1280, 832), 1.2), ((900, 600), 1.6))
SCREEN = QSize(800, 600)
RESIZABLE = ("settings", "about", "blind votes", "personas", "tokens of an answer")
PAGES = ("new chat", "chat", "models", "live")


@pytest.fixture(scope="module")
def shared_room(
    request: pytest.FixtureRequest, qapp: QApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Room]:
    room = Room(PatientBot(request), tmp_path_factory.mktemp("room"))
    yield room
    room.reset()
    room.leave()
    room.window.deleteLater()


@pytest.fixture
def room(shared_room: Room, qapp: QApplication) -> Iterator[Room]:
    yield shared_room
    theme.apply(qapp, "light", 1.0)  # tests of other modules may come between those of this one


def go(room: Room, page: str) -> None:
    if page == "new chat":
        room.new_chat()
    elif page == "chat":
        room.hearth.controller.open(room.talk.id)
        room.wait(lambda: room.hearth.controller.open_conversation == room.talk.id)
        room.window.show_chat()
        tools = tuple(Tool(f"tool_{n}", "Web search", "", {}) for n in range(12))
        room.page.composer.set_tools(ToolOffer(tools, frozenset(tool.name for tool in tools), 1_420, True))
    elif page == "models":
        room.window.show_models()
    else:
        room.window.show_live()
    walk.come_to_rest(room.window)


def zoom(room: Room, to: float) -> None:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    theme.apply(app, "light", to)
    walk.come_to_rest(room.window)


def in_window(room: Room, widget: QWidget) -> QRect:
    return QRect(widget.mapTo(room.window, QPoint(0, 0)), widget.size())


def faults(room: Room) -> list[str]:
    """What is cut at the sides, and what of the composer is not in view."""
    out = []
    for widget in walk.visible(room.window):
        if isinstance(widget, QAbstractButton | QLineEdit | Label):
            seen = widget.visibleRegion().boundingRect()
            if not seen.isEmpty() and seen.width() < widget.width():
                out.append(f"cut at a side: {walk.label_of(widget)}, {seen.width()} of {widget.width()} px")
            if type(widget) is Button and widget.text() and widget.width() < widget.minimumSizeHint().width():
                out.append(f"too narrow: {walk.label_of(widget)}")
        if isinstance(widget, Label) and widget.font().pixelSize() != theme.font(widget.role).pixelSize():
            out.append(f"written in {widget.font().pixelSize()} px: {walk.label_of(widget)}")
    composer = room.page.composer
    if composer.isVisible():
        page = in_window(room, room.page)
        for part in (composer, composer.send, composer.field):
            if not page.contains(in_window(room, part)):
                out.append(f"not in view: {walk.label_of(part)} {in_window(room, part).getRect()} of {page.getRect()}")
        if composer.field.font().pixelSize() != theme.font("body").pixelSize():
            out.append(f"the composer writes in {composer.field.font().pixelSize()} px")
        if composer.preset_button.font().pixelSize() != theme.font("button").pixelSize():
            out.append(f"the composer's buttons are written in {composer.preset_button.font().pixelSize()} px")
    return out


@pytest.mark.parametrize(
    ("size", "to"),
    [SMALLEST, *(slow(*one) for one in OTHERS)],
    ids=[f"{size[0]}x{size[1]} at {to:.0%}" for size, to in (SMALLEST, *OTHERS)],
)
def test_nothing_is_cut_in_any_order_of_zooming_and_switching_pages(
    room: Room, size: tuple[int, int], to: float
) -> None:
    found = []
    for away in ("models", "chat"):  # zoomed there, and then each page is shown for the first time at that size
        room.reset(size)
        zoom(room, 1.0)
        go(room, away)
        zoom(room, to)
        for page in ["models"] if away == "chat" else [one for one in PAGES if one != "models"]:
            go(room, page)
            found += [f"{page}, zoom first: {fault}" for fault in faults(room)]
    for page in PAGES:
        room.reset(size)
        zoom(room, 1.0)
        go(room, page)
        zoom(room, to)
        found += [f"{page}, page first: {fault}" for fault in faults(room)]
        go(room, "models" if page != "models" else "chat")
        go(room, page)
        found += [f"{page}, away and back: {fault}" for fault in faults(room)]
    assert not found, "\n".join(found)


def test_a_panel_that_zooming_lays_over_the_page_can_be_seen_to_lie_over_it(room: Room) -> None:
    room.reset((1280, 832))
    zoom(room, 1.2)
    sidebar = room.window.sidebar
    assert sidebar.is_rail
    assert not sidebar.is_over_page
    assert in_window(room, room.page).left() >= in_window(room, sidebar).right()
    zoom(room, 1.0)
    assert not sidebar.is_rail


def test_nothing_is_cut_in_german_in_the_smallest_window(qapp: QApplication, qtbot: QtBot, tmp_path: Path) -> None:
    language.use_language("de")
    try:
        room = Room(qtbot, tmp_path)
        try:
            room.reset((720, 560))
            zoom(room, 1.6)
            found = []
            for page in PAGES:
                go(room, page)
                found += [f"{page}: {fault}" for fault in faults(room)]
            assert not found, "\n".join(found)
        finally:
            theme.apply(qapp, "light", 1.0)
            room.reset()
            room.leave()
            room.window.deleteLater()
    finally:
        language.use_language("en")


@pytest.mark.parametrize("stored", ["", "of another screen"])
def test_the_first_window_fits_a_small_screen(qapp: QApplication, monkeypatch: pytest.MonkeyPatch, stored: str) -> None:
    monkeypatch.setattr(floating, "most_of_screen", lambda window: SCREEN * 0.9)
    window = WindowFrame()
    window.restore_geometry(stored)
    assert window.size().boundedTo(SCREEN) == window.size()


@pytest.mark.parametrize("place", some_daily(PLACES, RESIZABLE))
def test_every_dialog_fits_a_small_screen_at_the_largest_type(
    room: Room, qapp: QApplication, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(floating, "most_of_screen", lambda dialog: SCREEN * 0.9)
    room.reset()
    theme.apply(qapp, "light", theme.MAX_ZOOM)
    room.window.resize(SCREEN)
    walk.settle()
    try:
        root = PLACES[place](room)
        walk.come_to_rest(room.window)
        if isinstance(root, QDialog):
            needed = root.size().expandedTo(root.minimumSize()).expandedTo(root.minimumSizeHint())
            assert needed.boundedTo(SCREEN) == needed
            for area in root.findChildren(QScrollArea):
                scrolls = area.horizontalScrollBarPolicy() != Qt.ScrollBarPolicy.ScrollBarAlwaysOff
                assert scrolls or not area.isVisible() or area.horizontalScrollBar().maximum() <= 1
    finally:
        end_answer(room)
        room.reset()
