"""Deleting what is stored, from the settings to the next start: what is asked, in which order, and what is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from person import Arrive, Person
from pytestqt.qtbot import QtBot

from app.desktop.erasing import Erasing, command_of_a_start
from app.settings import AppSettings
from app.stored_data import GROUPS, Erased, Undeleted
from app.ui.settings.erase_dialogs import EraseDialog, ErasingDialog
from app.ui.widgets.controls import Label
from app.ui.widgets.floating import ConfirmDialog

pytestmark = pytest.mark.gui
ROOT = Path(__file__).resolve().parents[3]


def opened(person: Person) -> EraseDialog:
    """The list, with all sizes."""
    person.window.commands.run("delete_everything")
    person.wait(lambda: person.window.findChild(EraseDialog) is not None)
    dialog: EraseDialog = person.window.findChild(EraseDialog)
    person.wait(lambda: all(label.words != "–" for label in dialog.sizes.values()))
    return dialog


def of(person: Person) -> Erasing:
    assert person.hearth.erasing is not None
    return person.hearth.erasing


def confirmed(dialog: EraseDialog) -> ConfirmDialog:
    dialog.delete.click()
    return next(child for child in dialog.children() if isinstance(child, ConfirmDialog))


def test_each_group_shows_its_size_and_can_be_left_out(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = arrive()
    person.wait_ready()
    dialog = opened(person)
    assert dialog.sizes["models"].words == "Empty"
    assert dialog.sizes["chats"].words != "Empty"
    for name in dialog.toggles:
        if name != "chats":
            dialog.toggles[name].click()
    assert dialog.names == ["chats"]
    question = confirmed(dialog)
    assert "Chats" in question.accessibleDescription()
    question.reject()
    assert of(person).names == [], "nothing yet"
    dialog.toggles["chats"].click()
    assert not dialog.delete.isEnabled()


def test_keys_go_through_the_library_before_the_window_closes(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = arrive(settings=AppSettings(model="maker/one"))
    person.wait_ready()
    person.hearth.servers.add("Rack", "http://127.0.0.1:9/v1", "secret", ["m"])
    quits: list[bool] = []
    monkeypatch.setattr(person.window, "quit", lambda: quits.append(True))
    dialog = opened(person)
    confirmed(dialog).accept()
    person.wait(lambda: quits)
    asked = [(job, given) for job, given in person.library.asked if given.get("set") == ""]
    assert {job for job, _ in asked} == {"token", "own_key", "server_key"}
    assert of(person).names == [group.name for group in GROUPS]
    assert person.window.settings.model == "", "the next start looks for none that is gone"
    dialog.reject()
    assert dialog.isVisible(), "it has begun"


def test_a_key_that_stays_is_named(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = arrive()
    person.wait_ready()
    monkeypatch.setattr(person.window, "quit", lambda: None)
    eraser = of(person)
    person.library.fail("token")
    eraser.begin(["servers"])
    person.wait(lambda: eraser.names)
    assert [one.what for one in eraser._keys_left] == ["Key of Access token"]


def test_what_could_not_be_deleted_is_shown_before_the_next_start(qtbot: QtBot) -> None:
    dialog = ErasingDialog(1000)
    qtbot.addWidget(dialog)
    dialog.show()
    dialog.reject()
    assert dialog.isVisible(), "it is deleting"
    dialog.show_done(500)
    assert dialog.progress.done == 0.5
    dialog.finish(Erased(900, [Undeleted("/x/settings.json", "Permission denied.")]))
    assert dialog.isVisible()
    assert dialog.again.isVisible()
    qtbot.wait(20)
    named = [label for label in dialog.findChildren(Label) if label.words == "/x/settings.json"]
    assert [label.visibleRegion().isEmpty() for label in named] == [False], "it is in sight"
    assert not dialog.progress.isVisible()


def test_without_anything_left_it_goes_on_by_itself(qtbot: QtBot) -> None:
    dialog = ErasingDialog(10)
    results: list[int] = []
    dialog.finished.connect(results.append)
    dialog.show()
    dialog.finish(Erased(10))
    assert results == [ErasingDialog.DialogCode.Accepted]


def test_the_next_start_has_the_same_folder_and_nothing_to_open(tmp_path: Path) -> None:
    command = command_of_a_start("in-thread", tmp_path)
    assert command[-4:] == ["--engine", "in-thread", "--data-dir", str(tmp_path)]
    assert command[0] == sys.executable


# Deletes everything from a window that has answered; the start that follows is only noted.
DRIVER = """
import sys
from pathlib import Path
from PySide6.QtCore import QTimer
from app.startup import bootstrap
from app.desktop import erasing
erasing.start_again = lambda command: print("AGAIN", *command[1:], flush=True)
class Driven(bootstrap.Hearth):
    def start(self):
        super().start()
        self.engine.ready.connect(self.ask)
        self.engine.answered.connect(lambda _: QTimer.singleShot(200, self.end))
    def ask(self):
        self.engine.ready.disconnect(self.ask)
        self.controller.send("What is the capital of Peru?")
    def end(self):
        self.erasing.begin([group.name for group in erasing.GROUPS])
bootstrap.Hearth = Driven
sys.exit(bootstrap.run(None, None, Path(sys.argv[1])))
"""


def test_after_everything_was_deleted_nothing_is_left_and_hearth_starts_again(tmp_path: Path) -> None:
    home = tmp_path / "hearth"
    done = subprocess.run([sys.executable, "-c", DRIVER, str(home)], cwd=ROOT, capture_output=True, text=True,
                          timeout=240, env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(ROOT)},
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("AGAIN ")[1].split()[-2:] == ["--data-dir", str(home)]
    assert not home.exists()
