"""What the desktop is asked over a real D-Bus with fakes for its services, and what happens where there is none."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.clients.engine_status import EngineStatus, Phase
from app.desktop import sleep_inhibitor
from app.desktop.desktop_bus import DesktopBus, Place
from app.desktop.desktop_motion import DesktopMotion
from app.desktop.notifications import LONG_S, AnswerNotices, DesktopPoster
from app.desktop.sleep_inhibitor import DesktopHold, SleepInhibitor, WindowsHold

BUS = pytest.mark.skipif(not shutil.which("dbus-daemon"), reason="needs dbus-daemon, a part of every Linux desktop")


class Desktop:
    """A bus with services on it, and what they were asked."""

    def __init__(self, bus: subprocess.Popen[str], address: str) -> None:
        self.address = address
        self._bus = bus
        self._services: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        self._said: queue.Queue[list[object]] = queue.Queue()

    def play(self, *parts: str) -> None:
        service = subprocess.Popen(
            [sys.executable, str(Path(__file__).parents[1] / "fake_bus.py"), *parts],
            env={**os.environ, "DBUS_SESSION_BUS_ADDRESS": self.address}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._services.append(service)

        def read() -> None:
            assert service.stdout is not None
            for line in service.stdout:
                self._said.put(json.loads(line))

        self._readers.append(threading.Thread(target=read))
        self._readers[-1].start()
        assert self._said.get(timeout=60) == ["up"]

    def said(self, within_s: float = 60.0) -> list[object]:
        """The next thing that a service was asked, while the event loop goes on."""
        ends = time.monotonic() + within_s
        while time.monotonic() < ends:
            QCoreApplication.processEvents()
            try:
                return self._said.get(timeout=0.01)
            except queue.Empty:
                continue
        raise AssertionError("no service was asked anything")

    def is_quiet(self, for_s: float = 0.5) -> bool:
        try:
            self.said(for_s)
        except AssertionError:
            return True
        return False

    def end(self) -> None:
        for process in (*self._services, self._bus):
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()
        for process in (*self._services, self._bus):
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def desktop(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desktop]:
    bus = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--print-address"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert bus.stdout is not None
    address = bus.stdout.readline().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
    out = Desktop(bus, address)
    yield out
    out.end()


@pytest.fixture
def hold() -> Iterator[DesktopHold]:
    out = DesktopHold()
    yield out
    out.close()


# --- sleep


@BUS
def test_sleep_is_held_off_while_there_is_work_and_let_go_behind_it(desktop: Desktop, hold: DesktopHold) -> None:
    desktop.play("screensaver", "login1")
    sleep = SleepInhibitor(hold)
    sleep.set_reason("answering", True)
    asked = [desktop.said(), desktop.said()]
    assert ["inhibit", "org.freedesktop.ScreenSaver", "Hearth", "Hearth is answering"] in asked
    assert ["login1", "idle", "Hearth", "Hearth is answering", "block"] in asked
    sleep.set_reason("downloading", True)
    sleep.set_reason("answering", False)
    assert desktop.is_quiet(), "one reason is left"
    sleep.set_reason("downloading", False)
    ended = [desktop.said(), desktop.said()]
    assert ["released"] in ended
    (uninhibited,) = [words for words in ended if words[0] == "uninhibit"]
    assert uninhibited[1] > 4_000_000_000  # type: ignore[operator]
    assert not sleep.holds


@BUS
def test_a_desktop_that_can_leave_the_screen_alone_is_asked_for_that(desktop: Desktop, hold: DesktopHold) -> None:
    desktop.play("power", "screensaver")
    sleep = SleepInhibitor(hold)
    sleep.set_reason("answering", True)
    assert desktop.said()[:2] == ["inhibit", "org.freedesktop.PowerManagement.Inhibit"]
    assert desktop.is_quiet(), "the screen saver is not asked besides"
    sleep.close()
    assert desktop.said()[0] == "uninhibit"


@BUS
def test_work_that_ends_before_the_desktop_answers_leaves_nothing_held(desktop: Desktop, hold: DesktopHold) -> None:
    desktop.play("power", "login1")
    sleep = SleepInhibitor(hold)
    sleep.set_reason("answering", True)
    sleep.close()
    said = sorted(str(desktop.said()[0]) for _ in range(4))
    assert said == ["inhibit", "login1", "released", "uninhibit"]


@BUS
def test_the_next_answer_of_a_queue_does_not_let_go_in_between(desktop: Desktop, hold: DesktopHold) -> None:
    desktop.play("screensaver")
    sleep = SleepInhibitor(hold)
    sleep.set_reason("answering", True)
    assert desktop.said()[0] == "inhibit"
    sleep.set_reason("answering", False)
    sleep.set_reason("answering", True)
    assert desktop.is_quiet(2 * sleep_inhibitor.RELEASE_AFTER_MS / 1000)
    sleep.close()


@BUS
def test_a_bus_that_dies_is_not_asked_again(desktop: Desktop, hold: DesktopHold, qtbot: QtBot) -> None:
    desktop.play("screensaver")
    sleep = SleepInhibitor(hold)
    sleep.set_reason("answering", True)
    assert desktop.said()[0] == "inhibit"
    desktop.end()
    qtbot.waitUntil(lambda: hold._session._bus is None)
    sleep.close()
    sleep.set_reason("answering", True)
    sleep.close()


def test_whoever_does_not_want_the_pc_kept_awake_has_it_sleep(qtbot: QtBot) -> None:
    class Counted:
        calls: list[str] = []  # noqa: RUF012 - of one test

        def begin(self, why: str) -> None:
            self.calls.append("begin")

        def end(self) -> None:
            self.calls.append("end")

    sleep = SleepInhibitor(Counted())
    sleep.set_allowed(False)
    sleep.set_reason("answering", True)
    assert not sleep.holds
    sleep.set_allowed(True)
    sleep.set_allowed(False)
    qtbot.waitUntil(lambda: not sleep.holds)
    sleep.close()
    assert Counted.calls == ["begin", "end"]


def test_windows_is_told_of_the_system_and_not_of_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    told: list[int] = []

    class Kernel:
        def SetThreadExecutionState(self, state: int) -> int:
            told.append(state)
            return 1

    class Dll:
        kernel32 = Kernel()

    monkeypatch.setattr(ctypes, "windll", Dll(), raising=False)
    hold = WindowsHold()
    hold.begin("Hearth is answering")
    hold.end()
    assert told == [0x80000001, 0x80000000]


# --- notifications


class Shown(QObject):
    """Keeps what is to be shown."""

    clicked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []
        self.n_withdrawn = 0

    def show(self, title: str, sentence: str) -> None:
        self.said.append((title, sentence))

    def withdraw(self) -> None:
        self.n_withdrawn += 1


@pytest.fixture
def shown(qtbot: QtBot) -> Shown:
    return Shown()


def answered(notices: AnswerNotices, chat: str, took_s: float, failed: bool = False) -> None:
    notices.set_status(EngineStatus(Phase.READY, model="Pip", tokens=1412))
    notices.set_running(chat)
    notices._began -= took_s
    notices.set_running(None)
    if failed:
        notices.set_failed()
    QCoreApplication.processEvents()


def test_a_long_answer_is_told_of_in_the_background_and_without_its_text(shown: Shown) -> None:
    notices = AnswerNotices(shown, lambda: False)
    answered(notices, "chat", 80)
    ((_, sentence),) = shown.said
    assert sentence.startswith("Pip ")
    assert numbers_in(sentence) == ["1,412", "1 min", "20 s"]
    wanted: list[str] = []
    notices.wanted.connect(wanted.append)
    shown.clicked.emit()
    shown.clicked.emit()
    assert wanted == ["chat"]


@pytest.mark.parametrize(
    ("took_s", "in_front", "allowed"), [(LONG_S / 2, False, True), (80, True, True), (80, False, False)]
)
def test_short_answers_and_people_who_watch_or_do_not_want_it_are_left_alone(
    shown: Shown, took_s: float, in_front: bool, allowed: bool
) -> None:
    notices = AnswerNotices(shown, lambda: in_front)
    notices.allowed = allowed
    answered(notices, "chat", took_s)
    assert shown.said == []


def test_a_failure_is_told_of_as_one_and_only_once(shown: Shown) -> None:
    notices = AnswerNotices(shown, lambda: False)
    answered(notices, "chat", 80, failed=True)
    answered(notices, "chat", 80)
    (failed, _), (finished, _) = shown.said
    assert failed != finished


def test_who_comes_back_has_it_withdrawn(shown: Shown) -> None:
    notices = AnswerNotices(shown, lambda: False)
    answered(notices, "chat", 80)
    notices.come_to_front(Qt.ApplicationState.ApplicationInactive)
    assert shown.n_withdrawn == 0
    notices.come_to_front(Qt.ApplicationState.ApplicationActive)
    notices.come_to_front(Qt.ApplicationState.ApplicationActive)
    assert shown.n_withdrawn == 1


@BUS
def test_a_notification_is_shown_replaced_and_withdrawn(desktop: Desktop) -> None:
    desktop.play("notifications")
    poster = DesktopPoster()
    poster.show("The answer is ready", "Pip wrote 4 tokens.")
    assert desktop.said() == ["notify", 0, "The answer is ready", "Pip wrote 4 tokens."]
    assert desktop.is_quiet(0.1)
    poster.show("The answer is ready", "Pip wrote 5 tokens.")
    _, replaced, *_ = desktop.said()
    assert replaced != 0
    desktop.is_quiet(0.1)
    poster.withdraw()
    assert desktop.said()[0] == "close"
    poster.close()


@BUS
def test_a_click_counts_and_one_on_another_programs_does_not(
    desktop: Desktop, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_ACTIVATION_TOKEN", "")
    desktop.play("notifications", "click")
    poster = DesktopPoster()
    clicks: list[int] = []
    poster.clicked.connect(lambda: clicks.append(1))
    poster.show("The answer is ready", "Pip wrote 4 tokens.")
    qtbot.waitUntil(lambda: bool(clicks))
    assert desktop.said()[0] == "notify"
    assert desktop.is_quiet(0.2)
    assert clicks == [1]
    assert os.environ["XDG_ACTIVATION_TOKEN"] == "leave"
    poster.close()


# --- motion, and no desktop at all


@BUS
def test_a_desktop_that_asks_for_stillness_gets_it(desktop: Desktop, qtbot: QtBot) -> None:
    desktop.play("portal")
    motion = DesktopMotion()
    told: list[bool] = []
    motion.ask(told.append)
    qtbot.waitUntil(lambda: told == [True])
    motion.close()


@pytest.mark.parametrize(
    "address", [None, "", "unix:path=/nowhere/bus", "tcp:host=127.0.0.1,port=1", "nonsense", "autolaunch:"]
)
def test_where_there_is_no_bus_nothing_happens(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, address: str | None
) -> None:
    for name in ("DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS"):
        if address is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, address)
    bus = DesktopBus("SESSION")
    failed: list[int] = []
    place = Place("org.example", "/org/example", "org.example")
    for _ in range(2):
        bus.call(place, "Do", otherwise=lambda: failed.append(1))
    assert failed == [1, 1]
    poster, sleep, motion = DesktopPoster(bus), SleepInhibitor(), DesktopMotion(bus)
    poster.show("a", "b")
    poster.withdraw()
    motion.ask(lambda still: failed.append(2))
    sleep.set_reason("answering", True)
    sleep.close()
    assert failed == [1, 1]
    bus.close()
