"""The command palette: what it finds for what is typed, keys and mouse in it, and what it offers in the real window."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from person import Arrive
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Conversation
from app.settings import AppSettings, described
from app.text.palette_search import Entry, folded, marks, matching
from app.ui.keyboard.command_palette import CommandPalette
from app.ui.keyboard.palette_entries import of_chats, of_settings
from app.ui.keyboard.shortcuts_dialog import ShortcutsDialog
from app.ui.look import theme
from app.ui.widgets.controls import Label

pytestmark = pytest.mark.gui


def entry(words: str, group: str = "Commands", **options: object) -> Entry:
    return Entry(group, words, lambda: None, **options)  # type: ignore[arg-type]


COMMANDS = [entry("New chat"), entry("Settings", also="preferences"), entry("Choose a model"), entry("Larger")]
CHATS = [entry("Modèles réduits", "Chats"), entry("A new garden", "Chats", is_first=False)]


def words(entries: list[Entry]) -> list[str]:
    return [one.words for one in entries]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", ["New chat", "Settings", "Choose a model", "Larger", "Modèles réduits"]),
        ("new", ["New chat", "A new garden"]),
        ("mod", ["Modèles réduits", "Choose a model"]),  # what begins with it comes first, and its group with it
        ("MODELES", ["Modèles réduits"]),
        ("pref", ["Settings"]),
        ("model choose", ["Choose a model"]),
        ("nothing", []),
        ("  ", ["New chat", "Settings", "Choose a model", "Larger", "Modèles réduits"]),
    ],
)
def test_every_word_must_be_met_and_the_better_entry_comes_first(typed: str, found: list[str]) -> None:
    assert words(matching([*COMMANDS, *CHATS], typed)) == found


def test_one_group_does_not_drown_the_others() -> None:
    many = [entry(f"Chat {n}", "Chats") for n in range(50)]
    assert [one.group for one in matching([*many, entry("New chat")], "chat")] == ["Chats"] * 6 + ["Commands"]


def test_folding_drops_case_and_accents() -> None:
    assert folded("Übergröße ÉTÉ") == "ubergrosse ete"


@pytest.mark.parametrize(
    ("said", "typed", "places"),
    [
        ("New chat", "ch new", ((0, 3), (4, 6))),
        ("Modèles", "mode", ((0, 4),)),
        ("Straße", "str", ()),  # folding makes it longer: no mark rather than a wrong one
        ("New chat", "preferences", ()),
        ("aaa", "a aa", ((0, 2),)),
    ],
)
def test_what_was_typed_is_marked(said: str, typed: str, places: tuple[tuple[int, int], ...]) -> None:
    assert marks(said, typed) == places


def test_five_thousand_chats_are_searched_between_two_key_strokes() -> None:
    chats = [Conversation(title=f"Chat {n} about gärten and machines") for n in range(5000)]
    entries = of_chats(chats, "", lambda _: None)
    matching(entries, "x")
    began = time.process_time()
    matching(entries, "about mach")
    assert time.process_time() - began < 20  # measured 6 ms


def test_settings_are_found_with_their_value() -> None:
    opened: list[str] = []
    found = {one.words: one for one in of_settings(AppSettings(), opened.append)}
    assert len(found) == len([setting for setting in described() if setting.group])
    assert found["Theme"].figure == "System"
    found["Theme"].run()
    assert opened == ["theme"]


# --- the card


@pytest.fixture
def window(qtbot: QtBot, qapp: QApplication) -> Iterator[QWidget]:
    theme.apply(qapp, "light", 1.0)
    made = QWidget()
    qtbot.addWidget(made)
    made.resize(900, 600)
    QLineEdit(made).setFocus()
    made.show()
    made.activateWindow()
    qtbot.waitUntil(made.isActiveWindow)
    yield made
    made.close()


def test_typing_filters_arrows_move_and_enter_does_it(window: QWidget) -> None:
    done: list[str] = []
    entries = [
        Entry("Commands", "One", lambda: done.append("one")),
        Entry("Chats", "Only", lambda: done.append("only")),
        Entry("Chats", "Two", lambda: done.append("two")),
    ]
    palette = CommandPalette(window, lambda: entries, lambda text: Entry("Messages", f"Search “{text}”", list))
    before = QApplication.focusWidget()
    palette.toggle()
    assert palette.field.hasFocus()
    assert palette.entries.rows == ["Commands", entries[0], "Chats", entries[1], entries[2]]
    QTest.keyClick(palette.field, Qt.Key.Key_Down)
    QTest.keyClick(palette.field, Qt.Key.Key_Down)
    QTest.keyClick(palette.field, Qt.Key.Key_Down)  # the end: it stays
    assert palette.entries.entry(palette.view.currentIndex().row()) == entries[2]
    QTest.keyClicks(palette.field, "on")
    assert [row if isinstance(row, str) else row.words for row in palette.entries.rows] == [
        "Commands", "One", "Chats", "Only", "Messages", "Search “on”"]  # fmt: skip
    QTest.keyClick(palette.field, Qt.Key.Key_Down)
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    assert done == ["only"]
    assert not palette.is_open
    assert QApplication.focusWidget() is before


def test_the_mouse_marks_and_chooses_and_words_of_groups_do_nothing(window: QWidget, qtbot: QtBot) -> None:
    done: list[str] = []
    entries = [Entry("Commands", "One", lambda: done.append("one")), Entry("Chats", "Two", lambda: done.append("two"))]
    palette = CommandPalette(window, lambda: entries, lambda text: entry(text))
    palette.toggle()
    view = palette.view

    def at(row: int) -> QPoint:
        return view.visualRect(palette.entries.index(row)).center()

    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at(2))
    assert palette.is_open
    assert done == []
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at(3))
    assert done == ["two"]
    assert not palette.is_open


def test_tab_goes_to_the_list_and_typing_back_to_the_field(window: QWidget) -> None:
    palette = CommandPalette(window, lambda: COMMANDS, entry)
    palette.toggle()
    QTest.keyClick(palette.field, Qt.Key.Key_Tab)
    assert palette.view.hasFocus()
    QTest.keyClick(palette.view, Qt.Key.Key_Down)
    assert palette.entries.entry(palette.view.currentIndex().row()) == COMMANDS[1]
    QTest.keyClick(palette.view, "l")
    assert palette.field.hasFocus()
    assert palette.field.text() == "l"
    QTest.keyClick(palette.field, Qt.Key.Key_Tab)
    QTest.keyClick(palette.view, Qt.Key.Key_Tab)
    assert palette.field.hasFocus()


def test_esc_closes_it_and_it_opens_empty_again(window: QWidget) -> None:
    palette = CommandPalette(window, lambda: COMMANDS, entry)
    palette.toggle()
    QTest.keyClicks(palette.field, "new")
    QTest.keyClick(palette.field, Qt.Key.Key_Escape)
    assert not palette.is_open
    palette.toggle()
    assert palette.field.text() == ""
    assert len(palette.entries.rows) == 5


def test_it_stays_within_a_small_window(window: QWidget) -> None:
    window.resize(420, 300)
    palette = CommandPalette(window, lambda: [entry(f"Command {n}") for n in range(40)], entry)
    palette.toggle()
    card = palette.geometry()
    assert card.left() >= -30
    assert card.right() <= 420 + 30  # the shadow alone reaches beyond
    assert palette.view.height() < 300


# --- in the window


def test_everything_is_found_from_the_keyboard_in_the_real_window(arrive: Arrive, qtbot: QtBot) -> None:
    person = arrive("in-thread")
    person.wait_ready()
    person.ask("Where do herons nest?")
    window, field = person.window, person.page.composer.field
    field.setFocus()
    QTest.keyClick(field, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    palette = window.finder.palette
    assert palette is not None
    assert palette.is_open
    shown = {row.words: row for row in palette.entries.rows if isinstance(row, Entry)}
    assert {"New chat", "Settings", "Delete this chat", "Models", "Copy the last answer"} <= set(shown)
    assert "Where do herons nest?" not in shown, "it is the one in view"
    assert shown["New chat"].figure == "Ctrl+N"
    QTest.keyClicks(palette.field, "new ch")
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    assert person.page.is_empty
    QTest.keyClick(field, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClicks(palette.field, "heron")
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    person.wait(lambda: not person.page.is_empty)
    QTest.keyClick(field, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClicks(palette.field, "zzqx")
    QTest.keyClick(palette.field, Qt.Key.Key_Return)  # the one row left: the search in what was said
    assert window.sidebar.panel.field.text() == "zzqx"
    QTest.keySequence(window, QKeySequence("F1"))
    dialog = window.findChild(ShortcutsDialog)
    assert dialog is not None
    QApplication.processEvents()
    for label in dialog.findChildren(Label):
        assert not label.elides, label.text()
    dialog.reject()


def test_a_dialog_closes_the_palette_behind_it(qtbot: QtBot) -> None:
    window = QWidget()
    window.resize(900, 600)
    qtbot.addWidget(window)
    window.show()
    palette = CommandPalette(window, lambda: COMMANDS, entry)
    palette.toggle()
    dialog = QDialog(window)
    dialog.open()
    assert not palette.is_open
    dialog.close()
