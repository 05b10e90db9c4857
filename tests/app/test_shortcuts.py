"""The one table of commands: its keys are its own, tooltips read it, and every key of the window comes from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

import app.ui
from app.shortcuts import COMMANDS, caps, command, keys, shown, tooltip
from app.ui.keyboard.commands import Commands
from app.ui.look.icons import PATHS

pytestmark = pytest.mark.gui


def test_no_act_and_no_keys_stand_twice() -> None:
    acts = Counter(known.act for known in COMMANDS)
    bound = Counter(one for known in COMMANDS if not known.where for one in known.keys)
    assert {name for name, n in acts.items() if n > 1} == set()
    assert {one for one, n in bound.items() if n > 1} == set()


@pytest.mark.parametrize("known", COMMANDS, ids=lambda known: known.act)
def test_a_command_has_words_a_sign_and_keys_that_qt_knows(known) -> None:  # type: ignore[no-untyped-def]
    assert known.words[0].isupper()
    assert not known.words.endswith(".")
    assert known.glyph in PATHS
    for one in known.keys:
        assert QKeySequence(one).toString(QKeySequence.SequenceFormat.PortableText) == one


def test_a_tooltip_names_the_keys() -> None:
    assert tooltip("new_chat") == "New chat  (Ctrl+N)"
    assert tooltip("model_menu", "Choose a model") == "Choose a model  (Ctrl+L)"
    assert tooltip("about") == "About Hearth"
    assert keys("import_chats") == ""
    assert command("zoom_in").keys == ("Ctrl++", "Ctrl+=")


def test_keys_are_bound_nowhere_else() -> None:
    folder = Path(next(iter(app.ui.__path__)))
    ours = {f'QKeySequence("{one}")' for known in COMMANDS if not known.where for one in known.keys}
    found = {
        path.name: [one for one in ours if one in path.read_text(encoding="utf-8")] for path in folder.rglob("*.py")
    }
    assert {name: keys for name, keys in found.items() if keys} == {}


def test_keys_do_what_is_bound_and_only_while_it_can_be_done(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.show()
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)
    commands, done, able = Commands(window), [], [False]
    commands.bind("zoom_in", lambda: done.append("in"), lambda: able[0])
    commands.bind("stop", lambda: done.append("stop"))
    QTest.keySequence(window, QKeySequence("Ctrl+="))
    assert (done, commands.can("zoom_in"), commands.can("models")) == ([], False, False)
    able[0] = True
    QTest.keySequence(window, QKeySequence("Ctrl+="))
    QTest.keySequence(window, QKeySequence("Esc"))  # whoever answers hears it: no key of the window
    assert done == ["in"]
    assert [known.act for known in commands.listed()] == ["stop", "zoom_in"]
    with pytest.raises(ValueError, match="bound already"):
        commands.bind("stop", list)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Ctrl+N", ["Ctrl", "N"]),
        ("Ctrl++", ["Ctrl", "+"]),
        ("Ctrl+-", ["Ctrl", "-"]),
        ("Shift+Return", ["Shift", "Enter"]),
        ("F1", ["F1"]),
    ],
)
def test_keys_are_drawn_one_by_one(written: str, shown: list[str]) -> None:
    assert caps(written) == shown


def test_keys_have_one_name_everywhere() -> None:
    assert [shown(one) for one in ("Ctrl+PgUp", "Return", "Ctrl++")] == ["Ctrl+Page up", "Enter", "Ctrl++"]
    assert caps("Ctrl++") == ["Ctrl", "+"]
