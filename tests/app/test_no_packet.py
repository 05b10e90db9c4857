"""Nothing leaves the machine by itself: a whole start with its processes, an answer, and a Markdown image in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.gui
def test_no_python_process_of_a_start_reaches_for_the_network(tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "servers.json").write_text(SERVERS)
    done = subprocess.run([sys.executable, "-c", DRIVER, str(tmp_path / "data")], cwd=ROOT, env=environment(report),
                          capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = report.read_text().splitlines()
    guarded = [line for line in lines if line.endswith(" guarded")]
    assert len(guarded) >= 3, "window, engine and library"
    assert [line for line in lines if line not in guarded] == []


@pytest.mark.gui
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace, to see what is no Python")
def test_no_system_call_of_a_start_reaches_for_the_network(tmp_path: Path) -> None:
    calls = tmp_path / "calls.txt"
    trace = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", str(calls)]
    if subprocess.run([*trace, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this system lets nobody trace")
    done = subprocess.run([*trace, sys.executable, "-c", DRIVER, str(tmp_path / "data")], cwd=ROOT,
                          env=environment(tmp_path / "report.txt"), capture_output=True, text=True, timeout=600,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line for line in calls.read_text(errors="replace").splitlines() if "AF_INET" in line] == []


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
