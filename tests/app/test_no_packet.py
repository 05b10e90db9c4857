"""Nothing leaves the machine by itself: a whole start with its processes, an answer, and a Markdown image in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.systems import ON_WINDOWS

ROOT = Path(__file__).resolve().parents[2]
GUARD = Path(__file__).with_name("socket_guard")

# Starts with engine and library in processes of their own, asks once, shows a link to a picture, and ends.
DRIVER = """
import sys
from pathlib import Path
from PySide6.QtCore import QTimer
from app.startup import bootstrap
from app.chat.store.conversation import Conversation, Message, Role
class Driven(bootstrap.Hearth):
    def start(self):
        super().start()
        self.models.rows_changed.connect(self.go_on)
        self.engine.answered.connect(self.go_on)
        self.engine.ready.connect(self.ask)
        self.seen = set()
    def ask(self):
        self.engine.ready.disconnect(self.ask)
        self.controller.send('Hello ![p](http://192.0.2.1/p.png) <img src="http://192.0.2.1/q.png"> http://192.0.2.1/')
    def go_on(self, what):
        self.seen.add("rows" if isinstance(what, list) else "answer")
        if self.seen == {"rows", "answer"}:
            self.models.rows_changed.disconnect(self.go_on)
            self.window.show_models()
            QTimer.singleShot(1500, self.end)
    def end(self):
        self.window.show_chat()
        self.window.page.add_message(Message(Role.ASSISTANT, "![p](http://192.0.2.1/p.png) <img src='//192.0.2.1/q'>"))
        QTimer.singleShot(500, self.window.quit)
bootstrap.Hearth = Driven
sys.exit(bootstrap.run("process", None, Path(sys.argv[1])))
"""

# A server elsewhere that was entered, and that no chat has chosen.
SERVERS = (
    '{"schema_version": 1, "servers": [{"id": "s", "name": "Rack", "address": "https://192.0.2.1/v1", "models": ["m"], '
    '"has_key": true}]}'
)


def environment(report: Path) -> dict[str, str]:
    return {
        **os.environ,
        "QT_QPA_PLATFORM": "offscreen",
        "PYTHONPATH": os.pathsep.join((str(GUARD), str(ROOT))),
        "SOCKET_GUARD_REPORT": str(report),
    }


class Start(NamedTuple):
    """What the guard wrote, and the traced system calls; None where nobody may trace."""

    guard: list[str]
    calls: list[str] | None


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """One start for both tests."""
    folder = tmp_path_factory.mktemp("start")
    report, calls = folder / "report.txt", folder / "calls.txt"
    (folder / "data").mkdir()
    (folder / "data" / "servers.json").write_text(SERVERS)
    trace = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", str(calls)]
    if not shutil.which("strace") or subprocess.run([*trace, "true"], check=False, capture_output=True).returncode:
        trace = []
    names = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME",
             "WIN_PD_OVERRIDE_LOCAL_APPDATA", "WIN_PD_OVERRIDE_APPDATA")  # fmt: skip
    home = {name: str(folder / "home" / name.lower()) for name in names}
    done = subprocess.run(
        [*trace, sys.executable, "-c", DRIVER, str(folder / "data")], cwd=ROOT, env={**environment(report), **home},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    traced = calls.read_text(errors="replace").splitlines() if trace else None
    return Start(report.read_text().splitlines(), traced)


@pytest.mark.gui
def test_no_python_process_of_a_start_reaches_for_the_network(start: Start) -> None:
    guarded = [line for line in start.guard if line.endswith(" guarded")]
    assert len(guarded) >= 3, "window, engine and library"
    reached = [line for line in start.guard if line not in guarded]
    assert [line for line in reached if not (ON_WINDOWS and "connect (('127.0.0.1'" in line)] == []  # a socket pair


@pytest.mark.gui
def test_no_system_call_of_a_start_reaches_for_the_network(start: Start) -> None:
    """Of processes that are no Python too."""
    if start.calls is None:
        pytest.skip("needs strace, and a system that lets it trace")
    assert [line for line in start.calls if "AF_INET" in line] == []


def test_the_guard_sees_what_it_is_there_for(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    code = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.connect(('127.0.0.1', 9))\n"
        "socket.getaddrinfo('127.0.0.1', 9)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(report), check=True)
    words = report.read_text()
    assert "socket.connect" in words
    assert "socket.getaddrinfo" in words
