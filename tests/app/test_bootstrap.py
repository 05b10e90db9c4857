"""The start of the program by its flags, with and without a display, and its end."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot
from support.repetitions import some_daily

from app.desktop.single_instance import SingleInstance
from app.settings import AppSettings, load_settings
from app.startup import bootstrap, terminal
from app.startup.bootstrap import folders_in
from app.startup.command_line import main
from engine.service import protocol

ROOT = Path(__file__).resolve().parents[2]
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="displays of Linux")


def hearth(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}}
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        cwd=ROOT, input=stdin, capture_output=True, text=True, env={**kept, **environment}, timeout=600, check=False,
    )  # fmt: skip


def test_version() -> None:
    done = hearth("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Hearth 0.")


def test_the_version_needs_no_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as in the window's program on Windows
    assert main(["--version"]) == 0


@pytest.mark.parametrize("flags", [["--engine-host"], ["--engine-host", "--library"]])
def test_engine_host_speaks_the_protocol_and_loads_no_qt(flags: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['hearth', *{flags}]\n"
        "from app.startup.command_line import main\n"
        "code = main()\n"
        "assert 'PySide6' not in sys.modules\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, input=b"", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert isinstance(protocol.decode(done.stdout.splitlines()[0]), protocol.Hello)


def test_prompt_prints_one_answer_and_needs_no_display() -> None:
    done = hearth("--prompt", "What is the capital of France?")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@LINUX
def test_without_a_display_it_says_so_in_one_line_and_chats_in_the_terminal() -> None:
    done = hearth(stdin="", DISPLAY=":987")
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert "terminal" in first
    assert "987" in first or "is missing" in first


@LINUX
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "There is no display"),
        ({"DISPLAY": ":987"}, "987"),
        ({"WAYLAND_DISPLAY": "wayland-987", "XDG_RUNTIME_DIR": "/nowhere"}, "wayland-987"),
    ],
)
def test_the_display_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: str
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    reason = terminal.why_no_window()
    assert reason is not None
    assert words in reason or "is missing" in reason


@LINUX
def test_platforms_that_need_no_display_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen:size=800x600")
    assert terminal.why_no_window() is None
    monkeypatch.setenv("QT_QPA_PLATFORM", "xcb")
    assert terminal.why_no_window() is not None


@LINUX
def test_a_missing_system_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "libqxcb.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(terminal, "_plugin", lambda name: broken)
    monkeypatch.setenv("DISPLAY", ":987")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("QT_QPA_PLATFORM", raising=False)
    reason = terminal.why_no_window()
    assert reason is not None
    assert "is missing" in reason


def test_a_wrong_flag_is_a_usage_error() -> None:
    assert hearth("--engine", "elsewhere").returncode == 2


# --- the whole program, in a process of its own

# Drives the program from within: acts once the model is ready, and says what happens on stdout.
DRIVER = """
import sys
from PySide6.QtCore import QTimer
from app.startup import bootstrap
class Driven(bootstrap.Hearth):
    def start(self):
        super().start()
        self.engine.ready.connect(self.drive)
    def drive(self):
        self.engine.ready.disconnect(self.drive)
        print("ready", flush=True)
        {act}
bootstrap.Hearth = Driven
{before}
sys.exit(bootstrap.run({location!r}, None, __import__("pathlib").Path({folder!r})))
"""


@pytest.fixture
def programs() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


FAKE_ENGINE = "sys.path.append('tests/app'); import fake_host; fake_host.replace_engine()"


def program(
    started: list[subprocess.Popen[str]], folder: Path, act: str, location: str = "process", before: str = FAKE_ENGINE
) -> subprocess.Popen[str]:
    """Start it with a fake for the engine, unless before says otherwise."""
    code = DRIVER.format(act=act, location=location, folder=str(folder), before=before)
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )  # fmt: skip
    started.append(process)
    return process


@pytest.mark.gui
@pytest.mark.parametrize("location", some_daily(["process", "in-thread"], ["process"]))
def test_closing_the_window_ends_the_program_in_good_order(
    programs: list[subprocess.Popen[str]], tmp_path: Path, location: str
) -> None:
    act = "self.controller.send('Tell me a long story'); QTimer.singleShot(100, self.window.close)"
    process = program(programs, tmp_path, act, location, before="")
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert out == "ready\n"
    settings, problem = load_settings(tmp_path / "settings.json")
    assert problem is None
    assert settings.window_geometry
    assert settings.last_conversation
    assert settings.engine_location == AppSettings().engine_location, "a flag is for one run"
    assert "CRITICAL" not in (tmp_path / "logs" / "hearth.log").read_text()


@pytest.mark.gui
def test_cycles_are_collected_on_the_main_thread_alone(programs: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    """One that holds a Qt object would be destroyed in another thread, which crashes the program."""
    act = (
        "import gc, threading; seen = set(); "
        "gc.callbacks.append(lambda phase, info: seen.add(threading.current_thread().name)); "
        "make = lambda: [(one := []).append(one) for _ in range(20_000)]; "
        "made = threading.Thread(target=make); made.start(); made.join(); "
        "print(sorted(seen), flush=True); "
        "self.look = QTimer(interval=50); self.look.start(); self.look.timeout.connect("
        "lambda: seen and (self.look.stop(), print(sorted(seen), flush=True), self.window.close()))"
    )
    process = program(programs, tmp_path, act)
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert out.splitlines() == ["ready", "[]", "['MainThread']"]


@pytest.mark.gui
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_polite_kill_closes_it_too(programs: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    process = program(programs, tmp_path, "pass")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=600) == 0
    assert "closed in" in (tmp_path / "logs" / "hearth.log").read_text()


@pytest.mark.gui
def test_no_keyboard_interrupt_is_raised_while_qt_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(terminal, "why_no_window", lambda: "")
    monkeypatch.setattr(bootstrap, "run", lambda *_: seen.append(signal.getsignal(signal.SIGINT)) or 0)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main([]) == 0
    finally:
        signal.signal(signal.SIGINT, before)
        gc.enable()
    assert seen == [signal.SIG_DFL]


def test_damaged_settings_and_a_fault_of_our_own_are_told_and_the_program_goes_on(
    programs: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "settings.json").write_text("{ not json")
    act = (
        "print(self.window.page.banner.message.remedy_action, flush=True); "
        "self.controller.problem.connect(lambda m: print('told', m.title, flush=True)); "
        "QTimer.singleShot(0, lambda: 1 / 0); QTimer.singleShot(200, self.window.close)"
    )
    process = program(programs, tmp_path, act)
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "open-settings" in out
    assert json.loads((tmp_path / "settings.json").read_text())["theme"] == "system", "replaced by the defaults"
    assert "told " in out
    assert "ZeroDivisionError" in (tmp_path / "logs" / "crash.txt").read_text()
    assert "ZeroDivisionError" in (tmp_path / "logs" / "hearth.log").read_text()


@LINUX
@pytest.mark.gui
def test_a_second_start_says_where_its_window_is(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    first = SingleInstance(folders_in(tmp_path / "data").data)
    assert first.claim()
    first.listen()
    second = subprocess.Popen(
        [sys.executable, "-m", "app", "--data-dir", str(tmp_path / "data")], cwd=ROOT,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        qtbot.waitUntil(lambda: second.poll() is not None)
        out, _ = second.communicate()
        assert (second.returncode, "already running" in out) == (0, True)
    finally:
        if second.poll() is None:
            second.kill()
            second.communicate()
        first.close()
