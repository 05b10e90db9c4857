"""Every page, dialog and menu: each control has a name, a key that leads to it, words that are read whole, contrast.

A new page, dialog or menu needs one line in places_of_chats.py or places_beside_chats.py: its name, and how it is
opened in the room, which returns the widget that holds it. Without the line,
`test_everything_is_named_and_within_reach_of_the_keyboard` fails.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import control_walk as walk
import places_beside_chats
import places_of_chats
import pytest
from control_room import FIRST, NARROW, Room
from patient_bot import PatientBot
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QDialog, QMenu, QWidget
from pytestqt.qtbot import QtBot
from support.repetitions import slow, some_daily

import app.ui
from app.settings import described
from app.ui.keyboard.command_palette import CommandPalette
from app.ui.look import theme
from app.ui.settings.settings_dialog import SettingsDialog
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import ConfirmDialog, Menu
from app.ui.widgets.pick_menu import PickMenu
from app.ui.widgets.popover import Popover

pytestmark = pytest.mark.gui

PLACES = places_of_chats.PLACES | places_beside_chats.PLACES


def some_places(*turns: int) -> pytest.MarkDecorator:
    """Of six places in turn these every day, the others with `-m slow`. Cut words are looked for everywhere every day:
    in a small window or at the largest type."""
    daily = [place for i, place in enumerate(PLACES) if i % 6 in turns]
    return pytest.mark.parametrize("place", some_daily(PLACES, daily))


@pytest.fixture(scope="module")
def shared_room(
    request: pytest.FixtureRequest, qapp: QApplication, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Room]:
    room = Room(PatientBot(request), tmp_path_factory.mktemp("room"))
    yield room
    room.reset()
    room.leave()
    room.window.deleteLater()


@pytest.fixture(autouse=True)
def look_as_before() -> None:
    """The next test of this module sets the size of the type. A change takes the window 0.1 s and more."""


def end_answer(room: Room) -> None:
    if room.hearth.controller.status.answering:
        room.hearth.controller.stop()
        room.wait_ready()


def used(room: Room, app: QApplication, zoom: float, size: tuple[int, int]) -> Iterator[Room]:
    if theme.current().zoom != zoom:
        theme.apply(app, "light", zoom)
    room.reset(size)
    yield room
    end_answer(room)
    if theme.current().tokens is not theme.LIGHT:
        theme.apply(app, "light", zoom)


@pytest.fixture
def room(shared_room: Room, qapp: QApplication) -> Iterator[Room]:
    yield from used(shared_room, qapp, 1.0, FIRST)


@pytest.fixture
def narrow_room(shared_room: Room, qapp: QApplication) -> Iterator[Room]:
    yield from used(shared_room, qapp, 1.0, NARROW)


@pytest.fixture
def room_of_large_type(shared_room: Room, qapp: QApplication) -> Iterator[Room]:
    yield from used(shared_room, qapp, theme.MAX_ZOOM, NARROW)


def faults(*found: list[str]) -> None:
    """Fails with every fault on a line of its own."""
    lines = sorted({line for rule in found for line in rule})
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def test_everything_is_named_and_within_reach_of_the_keyboard(room: Room) -> None:
    """And has contrast, in every place; and each kind of dialog and popover is in one of them."""
    for module in pkgutil.walk_packages(app.ui.__path__, "app.ui."):
        importlib.import_module(module.name)
    shown: set[type] = set()
    found: list[str] = []
    for place, show in PLACES.items():
        room.reset()
        root = show(room)
        shown |= set(type(root).__mro__)
        rules = walk.without_a_name(root), walk.illegible(root), walk.out_of_reach(root), walk.too_small(root)
        found += [f"{place}: {fault}" for rule in rules for fault in rule]
        end_answer(room)
    faults(found)
    built_on = {Dialog, ConfirmDialog, Menu, PickMenu}  # others are made of these
    missing = [kind.__name__ for kind in _ours(QDialog, Popover) - shown - built_on]
    assert missing == [], "one line each in PLACES, please"


@some_places(1, 2, 4, 5)
def test_no_word_is_cut_in_a_small_window(narrow_room: Room, place: str) -> None:
    walk.settle()
    root = PLACES[place](narrow_room)
    faults(walk.cut(root))
    if not isinstance(root, QMenu):
        with walk.lengthened(root):
            faults(walk.cut(root))


@some_places(0, 3)
def test_no_word_is_cut_at_the_largest_type(room_of_large_type: Room, place: str) -> None:
    room = room_of_large_type
    walk.come_to_rest(room.window)  # the larger type is taken up in slices
    root = PLACES[place](room)
    walk.come_to_rest(root)
    faults(walk.cut(root))


@pytest.mark.parametrize("more", [False, True], ids=["dark", "more contrast"])
def test_words_have_contrast(room: Room, qapp: QApplication, monkeypatch: pytest.MonkeyPatch, more: bool) -> None:
    """In the dark theme, and with a desktop that asks for more contrast."""
    if more:
        monkeypatch.setattr(theme, "LIGHT", theme.with_more_contrast(theme.LIGHT))
    theme.apply(qapp, "light" if more else "dark", 1.0)
    found: list[str] = []
    for place in list(PLACES)[2::6]:
        room.reset()
        found += [f"{place}: {fault}" for fault in walk.illegible(PLACES[place](room))]
        end_answer(room)
    faults(found)


@pytest.mark.parametrize("place", some_daily(PLACES, list(PLACES)[2::36]))
def test_every_word_has_contrast(room: Room, qapp: QApplication, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Where the theme changes while it is open, which takes the window 0.2 s each time."""
    theme.apply(qapp, "dark", 1.0)
    root = PLACES[place](room)
    found = [f"dark: {fault}" for fault in walk.illegible(root)]
    theme.apply(qapp, "light", 1.0)
    found += [f"light: {fault}" for fault in walk.illegible(root)]
    monkeypatch.setattr(theme, "LIGHT", theme.with_more_contrast(theme.LIGHT))
    theme.apply(qapp, "light", 1.0)
    faults(found, [f"strong: {fault}" for fault in walk.illegible(root)])


def _ours(*bases: type) -> set[type]:
    found: set[type] = set()
    for base in bases:
        for kind in base.__subclasses__():
            found |= _ours(kind) | ({kind} if kind.__module__.startswith("app.") else set())
    return found


def test_the_walk_finds_what_is_wrong(qtbot: QtBot) -> None:
    """A rule that finds nothing in a bad window is no rule."""
    from PySide6.QtWidgets import QFrame, QLineEdit, QVBoxLayout

    from app.ui.widgets.controls import Button, IconButton, Label

    class Painted(QFrame):
        def paintEvent(self, event: object) -> None:
            pass

        def mousePressEvent(self, event: object) -> None:
            pass

    Painted.__module__ = "app.ui.bad"
    frame = QFrame()
    qtbot.addWidget(frame)
    column = QVBoxLayout(frame)
    nameless, unreachable, tight, pale = QLineEdit(), IconButton("stop", "Stop"), Label("Some words"), Label("Pale")
    unreachable.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    tight.setFixedWidth(20)
    pale.set_look("body", "edge")
    narrow = Button("Read me")
    narrow.setFixedSize(30, 12)
    for widget in (nameless, unreachable, tight, pale, narrow, Painted()):
        column.addWidget(widget)
    frame.show()
    walk.settle()
    assert "QLineEdit '' at" in walk.without_a_name(frame)[0]
    assert any("painted and says nothing" in fault for fault in walk.without_a_name(frame))
    reach = walk.out_of_reach(frame)
    assert any("IconButton 'Stop'" in fault for fault in reach)
    assert any("Painted" in fault and "mouse alone" in fault for fault in reach)
    assert len(walk.cut(frame)) >= 2
    assert any("'Pale'" in fault for fault in walk.illegible(frame))
    assert any("Read me" in fault for fault in walk.too_small(frame))


@pytest.mark.skipif("QT_SCALE_FACTOR" in os.environ, reason="this is the run at another scale")
@pytest.mark.parametrize(
    ("scale", "places"),
    [
        pytest.param("2", list(PLACES)[2::12], id="2"),
        slow("2", list(PLACES), id="2-everywhere"),
        slow("1.5", list(PLACES), id="1.5-everywhere"),
    ],
)
def test_no_word_is_cut_on_a_finer_screen(tmp_path: Path, scale: str, places: list[str]) -> None:
    """The same walk in a process of its own: Qt reads the scale once. The screen has the room of 1280 x 832."""
    screen = {"name": "fine", "x": 0, "y": 0, "width": int(1280 * float(scale)), "height": int(832 * float(scale))}
    config = tmp_path / "screens.json"
    config.write_text(json.dumps({"screens": [{**screen, "logicalDpi": 96, "logicalBaseDpi": 96, "dpr": 1.0}]}))
    finer = {"QT_SCALE_FACTOR": scale, "QT_QPA_PLATFORM": f"offscreen:configfile={config.name}"}
    tests = [f"{__file__}::{test_no_word_is_cut_in_a_small_window.__name__}[{place}]" for place in places]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *tests]
    finer["PYTHONPATH"] = str(Path(__file__).parents[2])
    # Qt would take the colon after a drive for the end of the file's name.
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **finer}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(places)} passed" in done.stdout


# --- the palette

# What menus and pages call an act, and the command that the palette has for it.
IN_THE_PALETTE = {
    "All models": "models", "How it runs here": "placement", "Unload": "unload", "Unload Fake": "unload",
    "Copy chat as Markdown": "copy_chat", "Delete": "delete_chat", "Rename": "rename_chat", "Pin": "pin_chat",
    "Unpin": "pin_chat", "Export as Markdown": "export_markdown", "Export as JSON": "export_json",
    "Print or export": "print_chat",
    "Export all as JSON": "export_all", "Export all as Markdown": "export_all_markdown",
    "Import chats": "import_chats", "Bin": "bin", "New folder": "move_chat", "A GGUF file": "add_model_file",
    "A model folder": "add_model_folder", "A server": "add_server", "Add a server": "add_server",
    "Access token": "access_token", "Move the models folder": "move_models", "Refresh": "refresh_models",
    "Answer again": "answer_again", "Answer again with another model": "answer_other_model",
    "Copy": "copy_answer", "Inspect tokens": "inspect_answer", "Adjust sampling": "sampling",
    "Compare models": "compare_models", "Versions side by side": "side_by_side",
    "Compare with dense": "compare", "Compare": "compare", "Edit presets": "edit_presets", "Presets": "edit_presets",
    "Edit personas": "edit_personas", "Personas": "edit_personas", "System prompt and persona": "personas",
    "About Hearth": "about", "Add…": "add_tool_server",
    "Privacy": "privacy", "Open": "data_folder", "Move…": "move_models",
    "Delete everything…": "delete_everything", "Save a report": "report",
    "Show the log": "log", "Updates": "updates", "Test this PC": "self_test",
    "New chat": "new_chat",
    "Models": "models", "Live": "live", "Settings": "settings",
    "Search": "search_chats", "Hearth": "about", "Light": "theme_light", "Dark": "theme_dark",
    "System": "theme_system", "Auto": "presets", "Sparse": "presets", "Exact": "presets", "Dense": "presets",
    "Documents": "documents", "Manage documents…": "documents", "Add a folder…": "documents",
    "Drop oldest": "context", "Change its size": "context", "Keep the beginning": "context", "Stop": "context",
    "Summarise": "context", "New project…": "new_project", "Project settings…": "project_settings",
    "New chat here": "new_chat_here", "Instructions for this chat…": "chat_instructions", "Prompts": "edit_prompts",
}  # fmt: skip

# Acts on one of many things, asked at its row; and what only opens or narrows what is shown there.
AT_ITS_PLACE = {
    "Remove folder, keep chats", "Delete folder and chats",
    "Details", "Load", "Open its folder", "Open its page", "Copy the repository id",
    "Prepare for this PC", "Figures of this answer", "Why?", "Renew", "Advanced", "Add", "Recommended", "Name", "Size",
    "Speed here", "All", "Chat", "Download", "Family: any", "Fits the GPU", "Fits this PC", "On this PC", "Research",
    "Size: any", "Sort: recommended", "What would fit?", "Remove key", "Import from a file…",
}  # fmt: skip

# Places whose rows are the things themselves (folders, personas), and values of settings, which the palette lists.
THINGS = {"Notizen und Zusammenfassungen", "Work", "Balanced", "Creative", "Precise", "Concise", "Copy editor",
          "No persona", "Patient teacher", "Programmer"}  # fmt: skip


def _acts_of(shown: QWidget) -> set[str]:
    """What can be pressed there, in its words."""
    if isinstance(shown, QMenu):
        return {re.sub(r"\t.*", "", a.text()) for a in shown.actions() if a.text() and a.menu() is None}
    return {b.text().replace("&&", "&") for b in shown.findChildren(QAbstractButton) if b.isVisible() and b.text()}


def test_every_act_of_a_menu_or_a_page_is_in_the_palette(room: Room) -> None:
    missing: dict[str, set[str]] = {}
    values = {words for setting in described() for _, words in setting.choices}
    for place in PLACES:
        if place.startswith("menu") or place in ("models", "models: servers elsewhere", "live", "settings"):
            acts = _acts_of(PLACES[place](room)) - IN_THE_PALETTE.keys() - AT_ITS_PLACE - THINGS
            missing |= {place: acts - values} if acts - values else {}
            room.reset()
    assert missing == {}, "give it a command in app/shortcuts.py, or say here where else it is reached"
    window = room.window
    assert {act for act in IN_THE_PALETTE.values() if not window.commands.knows(act)} == set()


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("add", {"Add a model file", "Add a model folder", "Add a server"}),
        ("token", {"Access token"}),
        ("move models", {"Move the models folder"}),
        ("local server", {"Local server"}),
        ("system prompt", {"System prompt and persona"}),
        ("privacy", {"Privacy"}),
        ("pdf", {"Attach files", "Documents"}),
        ("find", {"Find in this chat", "Next match", "Search all chats"}),
        ("export", {"Export all chats as JSON"}),
        ("import", {"Import chats"}),
    ],
)
def test_the_palette_finds_acts_by_the_words_that_people_type(room: Room, typed: str, wanted: set[str]) -> None:
    palette = places_of_chats.open_palette(room, typed)
    assert isinstance(palette, CommandPalette)
    assert wanted <= {row.words for row in palette.entries.rows if not isinstance(row, str)}


def test_acts_of_the_models_page_run_from_the_palette(room: Room) -> None:
    dialog = room.opened(lambda: room.window.commands.run("access_token"))
    assert dialog.isVisible()
    assert room.window.pages.currentWidget() is room.window.pages.models_page
    room.reset()
    assert room.opened(lambda: room.window.commands.run("add_server")).isVisible()
    room.reset()
    dialog = room.opened(lambda: room.window.commands.run("local_server"))
    assert isinstance(dialog, SettingsDialog)
    assert dialog.rows["serve"].isAncestorOf(dialog.focusWidget() or dialog)
