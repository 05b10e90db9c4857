"""Updates in the window: nothing is asked without the user, each step waits for a click, and a failure is shown."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.desktop.updates import Updates
from app.settings import AppSettings
from app.ui.settings.settings_dialog import SettingsDialog
from app.ui.settings.updates_dialog import UpdatesDialog
from app.user_messages import Action
from engine.library.updates import installed, release
from engine.service import protocol

pytestmark = pytest.mark.gui
OFFER = {"version": "9.1", "notes": "Faster.", "page": "https://example.org/9.1", "size": 300_000_000}


class Window(QWidget):
    updates_wanted = Signal()
    quits = 0

    def quit(self) -> None:
        self.quits += 1


class Library:
    """The library's process: keeps the callbacks of the last job, and which jobs were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.cancelled: list[str] = []

    def ask(self, job: str, arguments: dict[str, Any], done: Any, failed: Any, progress: Any = None) -> str:
        self.asked.append((job, arguments))
        self.done, self.failed, self.progress = done, failed, progress
        return str(len(self.asked))

    def cancel(self, request: str) -> None:
        self.cancelled.append(request)


class Room:
    def __init__(self, qtbot: QtBot) -> None:
        self.window, self.library = Window(), Library()
        qtbot.addWidget(self.window)
        self.updates = Updates(self.window, self.library)  # type: ignore[arg-type]
        self.told: list[Any] = []
        self.updates.found.connect(self.told.append)

    def dialog(self) -> UpdatesDialog:
        self.window.updates_wanted.emit()
        found: UpdatesDialog = self.window.findChild(UpdatesDialog)
        return found


@pytest.fixture
def room(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Room:
    """A build that offers updates, and installs tarballs. Version 0.0.1 lies beside it."""
    monkeypatch.setattr(release, "feed", lambda: "https://example.org/latest")
    monkeypatch.setattr(installed, "platform", lambda: "linux-x86_64-tarball")
    monkeypatch.setattr(installed, "previous", lambda: "0.0.1")
    return Room(qtbot)


def shown(dialog: UpdatesDialog) -> set[str]:
    """The buttons that are offered beside Close."""
    buttons = {"act": dialog.act, "cancel": dialog.cancel, "back": dialog.back, "web": dialog.web}
    return {name for name, button in buttons.items() if not button.isHidden()}


def test_a_newer_version_is_told_once_where_that_is_allowed(room: Room) -> None:
    room.updates.take_settings(AppSettings())
    assert room.library.asked == []
    for _ in range(2):
        room.updates.take_settings(AppSettings(look_for_updates=True))
    assert room.library.asked == [("update_look", {})]
    room.library.done({**OFFER, "version": "0.0.1"})
    assert room.told == []
    assert room.updates.state.phase == "newest"
    room.library.done(OFFER)
    assert [("9.1" in one.title, one.remedy_action) for one in room.told] == [(True, Action.OPEN_UPDATES)]


def test_each_step_waits_for_a_click(room: Room) -> None:
    dialog = room.dialog()
    assert room.library.asked == []
    assert shown(dialog) == {"act", "back"}
    dialog.act.click()
    assert shown(dialog) == {"cancel"}
    room.library.done(OFFER)
    assert shown(dialog) == {"act", "back", "web"}
    assert dialog.notes.text() == "Faster."
    dialog.act.click()
    assert room.library.asked[1:] == [("update_download", {"version": "9.1"})]
    room.library.progress(protocol.Progress("2", "download", 150_000_000, 300_000_000))
    assert dialog.progress.done == 0.5
    dialog.cancel.click()
    assert room.library.cancelled == ["2"]
    room.library.done({"cancelled": True})
    dialog.act.click()
    file = {"path": "/u/hearth.tar.xz", "sha256": "ab"}
    room.library.done(file)
    assert (len(room.library.asked), shown(dialog)) == (3, {"act", "web"})
    dialog.act.click()
    assert room.library.asked[3:] == [("update_install", file)]
    room.library.done({})
    assert (room.updates.starts_again, room.window.quits) == (True, 1)


def test_a_refused_update_is_told_and_can_be_tried_again(room: Room) -> None:
    dialog = room.dialog()
    dialog.act.click()
    room.library.failed(protocol.Failed("1", "UpdateError", "It is not signed.", "Try again later."))
    assert (dialog.failure.isHidden(), shown(dialog)) == (False, {"act", "back"})
    dialog.act.click()
    assert dialog.failure.isHidden()
    room.library.done({**OFFER, "version": "0.0.1"})
    assert "web" not in shown(dialog)


def test_one_click_goes_back(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    went: list[str] = []
    monkeypatch.setattr(installed, "go_back", went.append)
    room.dialog().back.click()
    assert (went, room.updates.starts_again, room.window.quits) == (["0.0.1"], True, 1)


def test_a_deb_is_handed_to_the_system(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(release, "feed", lambda: "https://example.org/latest")
    monkeypatch.setattr(installed, "platform", lambda: "linux-x86_64-deb")
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: bool(opened.append(url.toLocalFile())) or True)
    room = Room(qtbot)
    dialog = room.dialog()
    for values in (OFFER, {"path": "/u/hearth.deb", "sha256": "ab"}):
        dialog.act.click()
        room.library.done(values)
    dialog.act.click()
    assert (opened, room.window.quits) == (["/u/hearth.deb"], 0)


@pytest.mark.parametrize(("way", "size"), [("", 1000), ("win32-AMD64-", 1000), ("linux-x86_64-deb", 0)])
def test_what_cannot_be_installed_here_is_not_offered(
    way: str, size: int, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "feed", lambda: "https://example.org/latest")
    monkeypatch.setattr(installed, "platform", lambda: way)
    room = Room(qtbot)
    dialog = room.dialog()
    dialog.act.click()
    room.library.done({**OFFER, "size": size})
    assert shown(dialog) == {"web"}


def test_a_build_without_keys_asks_nothing_and_offers_nothing(qtbot: QtBot) -> None:
    room = Room(qtbot)
    room.updates.take_settings(AppSettings(look_for_updates=True))
    assert shown(room.dialog()) == set()
    assert room.library.asked == []
    settings = SettingsDialog(AppSettings())
    qtbot.addWidget(settings)
    assert "look_for_updates" not in settings.rows


def test_the_switch_is_there_in_a_build_with_keys(room: Room, qtbot: QtBot) -> None:
    settings = SettingsDialog(AppSettings())
    qtbot.addWidget(settings)
    assert "look_for_updates" in settings.rows
