"""The self-report: each test with its result, a crash of one as one line, and nothing of the user in it."""

from __future__ import annotations

import getpass
import io
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot
from support.systems import is_alive

from app.settings import AppPaths
from app.startup import self_report
from app.startup.bootstrap import folders_in
from app.startup.command_line import main as command_line
from app.startup.self_report import Check, CheckError
from app.ui.settings.self_test_dialog import SelfTestDialog
from engine.machine import hardware
from engine.machine.hardware import probe

STATS = {"device": "cpu", "device_reason": None, "ttft_s": 0.5, "prefill_tok_s": 30.0, "decode_tok_s": None,
         "vram_bytes": 0, "ram_bytes": 10**9}  # fmt: skip


@pytest.fixture
def places(tmp_path: Path) -> AppPaths:
    return folders_in(tmp_path / "erna")


def use_engine(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(self_report, "engine_command", lambda: [sys.executable, "-c", script])


def test_a_test_that_fails_is_one_line_and_its_place(
    places: AppPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> str:
        raise OSError(28, "No space left", "/home/erna/secret.db")

    def refused() -> str:
        raise CheckError("Exit code 3.", "Fatal Python error: Aborted")

    tests = [Check("One", lambda: "12 MB/s"), Check("Two", broken), Check("Three", refused)]
    monkeypatch.setattr(self_report, "checks", lambda *given: tests)
    target = tmp_path / "report.txt"
    assert command_line(["--data-dir", str(places.data), "--self-report", str(target)]) == 1
    report = target.read_text(encoding="utf-8")
    lines = report[report.index("Tests") :].splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("ok", "FAILED"))] == ["ok", "FAILED", "FAILED"]
    assert "  OSError 28" in lines
    assert any(line.startswith("    app/startup/self_report.py:") for line in lines)
    assert lines[-1] == "1 of 3 tests passed."
    assert "erna" not in report
    del tests[1:]
    assert command_line(["--data-dir", str(places.data), "--self-report", str(target)]) == 0


def test_the_report_of_this_pc_names_nobody(places: AppPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    use_engine(monkeypatch, f"print({json.dumps(json.dumps({'text': 'Hi.', 'stats': STATS}))})")
    monkeypatch.setattr(self_report, "measure", lambda machine: hardware.measure(machine, n_bytes=1 << 20))
    lines = list(self_report.lines_of(places))
    report = "\n".join(lines)
    assert [line for line in lines if line.startswith("FAILED")] == []
    assert "first token after 0.50 s, 30 tok/s prefill, 0 tok/s decode" in report
    for secret in (str(Path.home()), str(places.data), socket.gethostname(), "erna"):
        assert secret not in report
    if getpass.getuser() != "root":
        assert getpass.getuser() not in report
    assert list(places.data.iterdir()) == []


def test_the_engine_opens_no_console_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def run(command: list[str], **options: Any) -> Any:
        given.update(options)
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 0x08000000, raising=False)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(CheckError):
        self_report._answer(tmp_path, "cpu")
    assert given["creationflags"] == 0x08000000


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("import sys; print('The GPU is lost.\\n/home/erna/x.gguf is cut off.', file=sys.stderr); sys.exit(1)",
         ("Exit code 1.", "The GPU is lost.")),
        ("import platform, sys; print('The GPU is lost.\\nNothing is free in /erna.\\nOn', platform.node(),"
         " 'it failed.', file=sys.stderr); sys.exit(1)", ("Exit code 1.", "The GPU is lost.")),
        ("import os; os.abort()", ("Exit code -6.",)),
        (f"print({json.dumps(json.dumps({'text': ' ', 'stats': STATS}))})", ("The answer is empty.",)),
    ],
)  # fmt: skip
def test_an_engine_that_fails_or_crashes(
    script: str, shown: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "win32" and "abort" in script:
        pytest.skip("Windows has another exit code")
    use_engine(monkeypatch, script)
    with pytest.raises(CheckError) as failed:
        self_report._answer(tmp_path, "cpu")
    assert failed.value.lines == shown


def test_each_device_answers_twice_without_and_with_compiled_kernels(places: AppPaths, tmp_path: Path) -> None:
    names = [check.name for check in self_report.checks(places, probe(), tmp_path)]
    n_devices = 2 if any(gpu.usable for gpu in probe().gpus) else 1
    assert sum("nswer" in name for name in names) == 2 * n_devices
    assert len(names) == len(set(names)) == 4 + 2 * n_devices


@pytest.mark.slow
def test_the_starter_answers(tmp_path: Path) -> None:
    assert "tok/s decode" in self_report._answer(tmp_path, "cpu")
    assert any((tmp_path / "kernels").rglob("*"))


@pytest.mark.gui
def test_the_dialog_shows_the_report_as_it_is_made(qtbot: QtBot) -> None:
    from PySide6.QtGui import QGuiApplication
    from PySide6.QtWidgets import QWidget

    window = QWidget()
    qtbot.addWidget(window)
    script = "import sys; print('ok one', flush=True); sys.stdin.read(1); print('ok two')"
    dialog = SelfTestDialog(window, [sys.executable, "-c", script])
    dialog.open()
    qtbot.waitUntil(lambda: "ok one" in dialog.text.toPlainText())
    assert not dialog.copy.isEnabled()
    dialog.process.write(b"x")
    qtbot.waitUntil(dialog.copy.isEnabled)
    dialog.copy.click()
    assert QGuiApplication.clipboard().text().split() == ["ok", "one", "ok", "two"]
    failing = SelfTestDialog(window, ["/nowhere/hearth"])
    qtbot.waitUntil(failing.copy.isEnabled)
    assert failing.text.toPlainText()
    failing.reject()


@pytest.mark.gui
def test_lines_arrive_whole_and_closing_ends_what_runs(qtbot: QtBot, tmp_path: Path) -> None:
    from PySide6.QtWidgets import QWidget

    window = QWidget()
    qtbot.addWidget(window)
    split = "import sys; w = sys.stdout; w.write('o'); w.flush(); sys.stdin.read(1); w.write('k\\n\\nTests')"
    dialog = SelfTestDialog(window, [sys.executable, "-c", split])
    qtbot.waitUntil(lambda: dialog.process.bytesAvailable() > 0)
    dialog.process.write(b"x")
    qtbot.waitUntil(dialog.copy.isEnabled)
    assert dialog.text.toPlainText() == "ok\n\nTests"
    dialog.reject()


def test_a_pipe_of_any_encoding_gets_the_report(places: AppPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="cp1252"))
    for name in ("signal.signal", "end_children_with_it"):  # of the process that runs this test
        monkeypatch.setattr(f"app.startup.self_report.{name}", lambda *_: None)
    monkeypatch.setattr(self_report, "lines_of", lambda places: iter(["24\u202fGB", "1 of 1 passed"]))
    assert self_report.main(places, None) == 0
    assert pipe.getvalue().split()[-4:] == [b"1", b"of", b"1", b"passed"]


def test_a_report_that_is_ended_ends_the_engine(places: AppPaths, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    engine = f"import os, pathlib, time; pathlib.Path({str(file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    script = (
        "import sys; from app.startup import self_report as r; from app.startup.bootstrap import folders_in;"
        f"r.engine_command = lambda: [sys.executable, '-c', {engine!r}];"
        "r.checks = lambda places, machine, scratch: [r.Check('One', lambda: r._answer(scratch, 'cpu'))];"
        f"r.main(folders_in(r.Path({str(places.data)!r})), None)"
    )
    report = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    while not (file.exists() and file.read_text()):
        assert report.poll() is None
        time.sleep(0.05)
    report.terminate()
    report.wait(60)
    for _ in range(200):  # Windows ends it a moment later
        if not is_alive(int(file.read_text())):
            return
        time.sleep(0.05)
    pytest.fail("the engine goes on")
