"""The window among its neighbours: the tray, logging out, other starts, a crash told at the next one, the report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from person import Arrive, Person
from PySide6.QtCore import QEvent
from PySide6.QtGui import QDesktopServices, QImage, QPainter
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from app.clients.engine_status import EngineStatus, Phase
from app.desktop import crash_notes
from app.desktop.desktop_integration import DesktopIntegration
from app.desktop.single_instance import LaunchRequest
from app.errors import StoreError
from app.models.model_rows import Preparing
from app.settings import AppSettings
from app.ui.look import theme
from app.ui.settings.crash_dialog import CrashDialog
from app.ui.tray import Tray, tray_icon
from app.ui.widgets.floating import Toast
from engine.library.records import Download

pytestmark = pytest.mark.gui
ROOT = Path(__file__).resolve().parents[3]


class Recorded:
    """A way of keeping a PC awake that only counts."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin(self, why: str) -> None:
        self.calls.append(why)

    def end(self) -> None:
        self.calls.append("end")


def desktop_of(person: Person) -> DesktopIntegration:
    desktop = person.hearth.desktop
    assert desktop is not None
    return desktop


def awake(person: Person) -> Recorded:
    """Takes the place of the system's way."""
    hold = Recorded()
    desktop_of(person).sleep._hold = hold
    return hold


@pytest.fixture
def with_tray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A desktop that has a tray."""
    monkeypatch.setattr(Tray, "can_be", staticmethod(lambda: True))
    yield
    QApplication.setQuitOnLastWindowClosed(True)


# --- work


def test_an_answer_keeps_the_pc_awake_and_its_end_lets_it_sleep(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive()
    person.wait_ready()
    hold = awake(person)
    person.send(f"words 40 until {tmp_path / 'go_on'}")
    person.wait(lambda: hold.calls == ["Hearth is answering"])
    (tmp_path / "go_on").touch()
    person.wait(lambda: bool(person.finished))
    person.qtbot.waitUntil(lambda: hold.calls[-1] == "end")


def test_downloads_that_go_on_and_preparing_do_too(arrive: Arrive) -> None:
    person = arrive()
    person.wait_ready()
    hold, desktop = awake(person), desktop_of(person)
    known = person.hearth.models.known
    download = Download("d", "a/b", "b", "a/b", "downloading", 1, 2)
    for state, there in (("downloading", True), ("paused", False), ("checking", True), ("failed", False)):
        known.downloads = [replace(download, state=state)]
        desktop._take_models()
        person.wait(lambda there=there: desktop.sleep.holds is there)
    known.preparing = Preparing("a/b")
    desktop._take_models()
    assert desktop.sleep.holds
    known.downloads, known.preparing = [], None
    desktop._take_models()
    person.wait(lambda: not desktop.sleep.holds)
    reasons = hold.calls[::2]
    assert hold.calls[1::2] == ["end"] * 3
    assert reasons[0] == reasons[1] != reasons[2], "downloading, downloading, preparing"


def test_whoever_switches_it_off_is_obeyed_at_once(arrive: Arrive) -> None:
    person = arrive(settings=AppSettings(stay_awake=False, notify=False))
    person.wait_ready()
    hold = awake(person)
    person.ask("words 5 pace 0.01")
    assert hold.calls == []
    assert not desktop_of(person).notices.allowed
    person.window.take_settings(replace(person.window.settings, stay_awake=True, notify=True))
    assert desktop_of(person).notices.allowed


def test_a_notice_leads_to_its_chat(arrive: Arrive) -> None:
    person = arrive()
    person.wait_ready()
    person.ask("words 3 pace 0.01")
    chat = person.hearth.controller.open_conversation
    person.window.sidebar.new_chat.emit()
    person.window.showMinimized()
    desktop_of(person).notices.wanted.emit(chat)
    assert person.hearth.controller.open_conversation == chat
    assert not person.window.isMinimized()


# --- tray


@pytest.mark.usefixtures("with_tray")
def test_closing_leaves_the_window_in_the_tray_and_quit_ends_it(arrive: Arrive) -> None:
    person = arrive(settings=AppSettings(tray=True))
    person.wait_ready()
    tray = desktop_of(person).tray
    person.window.close()
    assert not person.window.isVisible()
    tray.opened.emit()
    assert person.window.isVisible()
    closed: list[int] = []
    person.window.closing.connect(lambda: closed.append(1))
    person.window.close()
    assert closed == []
    tray.opened.emit()
    person.window.quit()
    assert closed == [1]


@pytest.mark.usefixtures("with_tray")
def test_logging_out_is_not_held_up_by_a_window_that_stays_in_the_tray(arrive: Arrive) -> None:
    person = arrive(settings=AppSettings(tray=True))
    assert person.window.stays_in_tray
    desktop, app = desktop_of(person), QApplication.instance()
    assert app is not None
    closed: list[int] = []
    person.window.closing.connect(lambda: closed.append(1))
    desktop._leave_session()  # a session manager cannot be made by hand
    person.window.close()
    assert (closed, person.window.isVisible()) == ([], False), "another program kept the session: as before"
    desktop.tray.opened.emit()
    desktop._leave_session()
    desktop.eventFilter(app, QEvent(QEvent.Type.Quit))  # sent to the application, it would end the tests
    person.window.close()
    assert closed == [1]


def test_a_desktop_without_a_tray_keeps_the_usual_close(arrive: Arrive) -> None:
    person = arrive(settings=AppSettings(tray=True))
    assert not person.window.stays_in_tray
    person.window.open_settings()
    from app.ui.settings.settings_dialog import SettingsDialog

    dialog = person.window.findChild(SettingsDialog)
    assert "tray" in dialog.rows["tray"].note.text()
    dialog.close()


@pytest.mark.usefixtures("with_tray")
def test_the_tray_says_what_is_going_on_and_acts(qtbot: QtBot) -> None:
    tray = Tray()
    tray.set_there(True)
    tray.set_status(EngineStatus(Phase.WRITING))
    assert tray._icon is not None
    assert tray._icon.toolTip() == "Hearth: Writing"
    assert tray._menu is not None
    words = [action.text() for action in tray._menu.actions() if not action.isSeparator()]
    assert words == ["Open Hearth", "New chat", "Stop the answer", "Quit"]
    with qtbot.waitSignals([tray.opened, tray.new_chat, tray.stop, tray.quit]):
        for action in tray._menu.actions():
            action.trigger()
    tray.set_status(EngineStatus(Phase.READY))
    assert tray._icon.toolTip() == "Hearth"
    assert not tray._menu.actions()[2].isEnabled()
    tray.set_there(False)
    assert not tray.is_wanted
    tray.close()


def test_the_tray_icon_draws_in_one_colour_at_every_size(qapp: QApplication) -> None:
    for size in (16, 22, 24, 48):
        image = QImage(size, size, QImage.Format.Format_ARGB32)
        image.fill(0)
        painter = QPainter(image)
        painter.drawPixmap(0, 0, tray_icon().pixmap(size, size))
        painter.end()
        colours = {image.pixelColor(x, y).name() for x in range(size) for y in range(size)
                   if image.pixelColor(x, y).alpha() == 255}  # fmt: skip
        assert len(colours) <= 2, "ink, and its rounding"
        assert any(image.pixelColor(x, y).alpha() > 128 for x in range(size) for y in range(size))


# --- look


def test_stillness_leaves_nothing_that_slides(arrive: Arrive) -> None:
    person = arrive(settings=AppSettings(motion="reduced"))
    assert theme.duration(160) == 0
    person.window.show_toast("Copied", None)
    toast = person.page.findChild(Toast)
    assert toast._move.state() is toast._move.State.Stopped
    width = person.window.sidebar.width()
    person.window.sidebar.toggle()
    assert person.window.sidebar.width() != width
    person.window.take_settings(replace(person.window.settings, motion="system"))
    assert theme.duration(160) == 160


@pytest.mark.parametrize("px", [10, 24])
def test_the_smallest_and_the_largest_text_reach_the_whole_window(arrive: Arrive, px: int) -> None:
    person = arrive()
    person.window.take_settings(replace(person.window.settings, text_px=px))
    assert theme.font("body").pixelSize() == px
    for step in (1, -1):
        person.window.preferences.resize_text(step)
    assert person.window.settings.text_px == (px if px == 24 else 10) - (1 if px == 24 else 0)
    person.window.preferences.resize_text(None)
    assert person.window.settings.text_px == 15
    theme.apply(QApplication.instance(), "light", 1.0)  # type: ignore[arg-type]


def test_high_contrast_makes_every_text_stronger(arrive: Arrive) -> None:
    person = arrive()
    before = theme.current().tokens
    person.window.take_settings(replace(person.window.settings, contrast="high"))
    now = theme.current().tokens
    for ground in ("page", "side", "card", "sunken", "bubble"):
        for token in ("ink2", "ink3"):
            ours = theme.contrast(getattr(now, token), getattr(now, ground))
            assert ours > theme.contrast(getattr(before, token), getattr(before, ground))
            assert ours >= 5.5
    person.window.take_settings(replace(person.window.settings, contrast="system"))
    assert theme.current().tokens == before


# --- other starts


def test_another_start_comes_forward_with_its_model(arrive: Arrive, tmp_path: Path) -> None:
    person = arrive()
    person.wait_ready()
    person.window.showMinimized()
    used: list[str] = []
    person.hearth.controller.switch.use = used.append  # type: ignore[method-assign]
    desktop_of(person).take_request(LaunchRequest(model="other"))
    assert not person.window.isMinimized()
    assert used == ["other"]


def test_what_is_given_is_opened_as_what_it_is(arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = arrive()
    person.wait_ready()
    taken: list[tuple[str, bool]] = []
    monkeypatch.setattr(person.hearth.models, "import_path", lambda path, copy: taken.append((path, copy)))
    folder = tmp_path / "a model"
    folder.mkdir()
    texts: list[list[str]] = []
    monkeypatch.setattr(person.page.composer, "attach", texts.append)
    desktop_of(person).open_files([str(tmp_path / "notes.txt"), str(tmp_path / "a.pdf")])
    assert texts == [[str(tmp_path / "notes.txt"), str(tmp_path / "a.pdf")]]
    assert person.window.pages.currentWidget() is person.page
    chats: list[Path] = []
    monkeypatch.setattr(person.hearth.folders, "import_chats", chats.append)
    desktop_of(person).open_files([str(tmp_path / "my chats.json")])
    assert chats == [tmp_path / "my chats.json"]
    desktop_of(person).open_files([str(tmp_path / "x.GGUF"), str(folder), str(folder / "w.safetensors")])
    assert taken == [(str(tmp_path / "x.GGUF"), False), (str(folder), False), (str(folder), False)]
    assert person.window.pages.currentWidget() is person.window.pages.models_page


# --- help


def test_a_report_is_saved_where_the_person_wants_it(
    arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = arrive()
    person.wait_ready()
    target = tmp_path / "отчёт.zip"
    asked: list[Any] = []

    def ask(*words: Any) -> tuple[str, str]:
        asked.append(words)
        return str(target), ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", ask)
    person.window.report_wanted.emit()
    person.wait(target.exists)
    assert asked[0][1] == "Save a report"
    with zipfile.ZipFile(target) as bundle:
        assert "Engine ready" in bundle.read("report.txt").decode()
    person.wait(lambda: person.page.findChild(Toast) is not None)
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *words: (str(tmp_path / "no" / "x.zip"), ""))
    person.window.report_wanted.emit()
    person.wait(lambda: any("the report: " in f"{toast.words.text()} {toast.accessibleName()}"
                            for toast in person.page.findChildren(Toast)))  # fmt: skip


def test_a_crash_is_told_with_what_a_report_would_hold(arrive: Arrive, monkeypatch: pytest.MonkeyPatch) -> None:
    person = arrive()
    person.wait_ready()
    person.places.log.joinpath(crash_notes.STACKS_BEFORE).write_text(
        f'Fatal Python error: Segmentation fault\n  File "{crash_notes.__file__}", line 3 in open_log\nsecret words\n'
    )
    desktop_of(person).tell_crash(crash_notes.LastRun(stacks=True))
    person.wait(lambda: person.window.findChild(CrashDialog) is not None)
    dialog = person.window.findChild(CrashDialog)
    assert dialog.isVisible()
    assert dialog.heading.words == "Your chats are safe", "their file was opened whole"
    assert not dialog.text.isVisible(), "the log is folded"
    dialog.details.click()
    assert dialog.text.isVisible()
    assert dialog.text.toPlainText().splitlines()[:2] == [
        "Fatal Python error: Segmentation fault", "    app/desktop/crash_notes.py:3 open_log"
    ]  # fmt: skip
    assert "secret" not in dialog.text.toPlainText()
    asked: list[str] = []
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: asked.append("report") or ("", ""))
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: asked.append(url.toLocalFile()))
    dialog.report.click()
    dialog.log.click()
    assert asked == ["report", person.places.log.as_posix()]
    assert QApplication.focusWidget() is dialog.close_button, "the safe button"
    dialog.reject()


def test_chats_are_called_safe_only_where_their_file_was_opened_whole(arrive: Arrive) -> None:
    person = arrive()
    memory = person.hearth.memory
    person.wait(lambda: memory.is_sound is not None)
    memory.is_sound = None
    desktop_of(person).tell_crash(crash_notes.LastRun(stacks=False))
    assert person.window.findChild(CrashDialog) is None, "it is not known yet"
    memory._is_not_open(StoreError("damaged", "It is damaged."))
    person.wait(lambda: person.window.findChild(CrashDialog) is not None)
    dialog = person.window.findChild(CrashDialog)
    assert "safe" not in f"{dialog.heading.words} {dialog.sentence.words}"
    dialog.reject()


# Starts the program, says whether a crash is told, and does something.
DRIVER = """
import os, signal, sys
from pathlib import Path
from PySide6.QtCore import QTimer
from app.startup import bootstrap
from app.desktop import desktop_integration as desktop
class Told(desktop.DesktopIntegration):
    def _show_crash(self, lines, has_stacks):
        super()._show_crash(lines, has_stacks)
        print("told", has_stacks, any("app/" in line for line in lines), flush=True)
    def listen(self, instance):
        super().listen(instance)
        QTimer.singleShot(500, self.act)
    def act(self):
        {act}
desktop.DesktopIntegration = Told
sys.path.append("tests/app")
import fake_host
fake_host.replace_engine()
sys.exit(bootstrap.run("in-thread", None, Path({folder!r})))
"""


def run(folder: Path, act: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER.format(act=act, folder=str(folder))], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"}, timeout=600, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_the_start_after_a_crash_tells_of_it_once(tmp_path: Path) -> None:
    assert run(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)") == (-signal.SIGSEGV, "")
    assert run(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)") == (-signal.SIGKILL, "told True True\n")
    assert run(tmp_path, "os.kill(os.getpid(), signal.SIGTERM)") == (0, "told False True\n")
    assert run(tmp_path, "self._window.quit()") == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_polite_kill_ends_it_in_the_tray_too(tmp_path: Path) -> None:
    act = (
        "self.tray.can_be = lambda: True; from dataclasses import replace; "
        "self._window.take_settings(replace(self._window.settings, tray=True)); self._window.close(); "
        "print('hidden', self._window.isHidden(), flush=True); os.kill(os.getpid(), signal.SIGTERM)"
    )
    assert run(tmp_path, act) == (0, "hidden True\n")
