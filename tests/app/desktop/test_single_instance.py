"""One Hearth for a person and a folder: real processes that hand over to each other, die, and come at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from app.desktop import single_instance
from app.desktop.single_instance import MAX_BYTES, MAX_FILES, LaunchRequest, SingleInstance, request_of_this_start

ROOT = Path(__file__).resolve().parents[3]

socket_file = pytest.mark.skipif(sys.platform == "win32", reason="the socket there is a named pipe, in no folder")

# Another process that claims a folder, says whether it got it, and prints what it hears until it is told to end.
OTHER = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication, QTimer
from app.desktop.single_instance import SingleInstance, LaunchRequest
app = QCoreApplication([])
instance = SingleInstance(Path(sys.argv[1]), Path(sys.argv[2]))
if not instance.claim():
    taken = instance.hand_over(LaunchRequest(("/a b/ü.gguf",), "m"), float(sys.argv[3]))
    print("handed over" if taken else "nobody", flush=True)
    sys.exit()
print("first", flush=True)
instance.requested.connect(lambda request: print(request.files, request.model, flush=True))
if len(sys.argv) < 5:
    instance.listen()
QTimer.singleShot(150_000, app.quit)
app.exec()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(data: Path, *more: str, within_s: float = 60.0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(data), str(tmp_path), str(within_s), *more], cwd=ROOT,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_process_hands_over_what_it_was_given(start: Start, tmp_path: Path) -> None:
    first = start(tmp_path / "data")
    assert line(first) == "first"
    second = start(tmp_path / "data")
    assert line(second) == "handed over"
    assert line(first) == "('/a b/ü.gguf',) m"
    assert second.wait(60) == 0


def test_another_folder_is_another_hearth(start: Start, tmp_path: Path) -> None:
    assert line(start(tmp_path / "one")) == "first"
    assert line(start(tmp_path / "two")) == "first"


def test_a_killed_one_leaves_the_place_to_the_next(start: Start, tmp_path: Path) -> None:
    first = start(tmp_path / "data")
    assert line(first) == "first"
    first.kill()
    first.wait()
    second = start(tmp_path / "data")
    assert line(second) == "first"
    assert line(start(tmp_path / "data")) == "handed over"


def test_of_several_at_once_exactly_one_is_first(start: Start, tmp_path: Path) -> None:
    processes = [start(tmp_path / "data") for _ in range(5)]
    said = [line(process) for process in processes]
    assert sorted(said) == ["first"] + ["handed over"] * 4


def test_one_that_does_not_answer_is_told_of(start: Start, tmp_path: Path) -> None:
    assert line(start(tmp_path / "data", "deaf")) == "first"
    assert line(start(tmp_path / "data", within_s=0.5)) == "nobody"


@socket_file
def test_lock_and_socket_are_this_persons_alone(qtbot: QtBot, tmp_path: Path) -> None:
    instance = SingleInstance(tmp_path / "data", tmp_path)
    assert instance.claim()
    instance.listen()
    (socket,) = tmp_path.glob("*.socket")
    assert socket.stat().st_mode & 0o077 == 0
    instance.close()
    assert list(tmp_path.glob("*.lock")) == []


@pytest.mark.expects_log("something else than Hearth called")
@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"{}\n", b'{"files": "a", "model": "", "activation": ""}\n',
     b'{"files": [1], "model": "", "activation": ""}\n', b"[" * 40_000 + b"\n",
     json.dumps({"files": ["x"] * (MAX_FILES + 1), "model": "", "activation": ""}).encode() + b"\n",
     b"x" * (MAX_BYTES * 3)],
    ids=["http", "list", "empty", "text", "number", "deep", "many", "long"],
)  # fmt: skip
def test_whatever_else_calls_is_hung_up_on(qtbot: QtBot, tmp_path: Path, sent: bytes) -> None:
    instance = SingleInstance(tmp_path / "data", tmp_path)
    heard: list[LaunchRequest] = []
    instance.requested.connect(heard.append)
    assert instance.claim()
    instance.listen()
    caller = QLocalSocket()
    caller.connectToServer(instance._socket)
    assert caller.waitForConnected(60_000)
    caller.write(sent)
    qtbot.waitUntil(lambda: caller.state() is QLocalSocket.LocalSocketState.UnconnectedState)
    assert heard == []
    instance.close()


@pytest.mark.expects_log("no lock can be made")
def test_a_folder_that_cannot_hold_a_lock_makes_everybody_first(tmp_path: Path) -> None:
    assert SingleInstance(tmp_path / "data", tmp_path / "missing").claim()


def test_files_are_handed_over_with_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_ACTIVATION_TOKEN", "leave")
    request = request_of_this_start(["a.gguf", "~/b"], "m")
    assert request == LaunchRequest((str(tmp_path / "a.gguf"), str(Path.home() / "b")), "m", "leave")
    assert LaunchRequest.from_bytes(request.to_bytes()) == request


def test_a_second_start_of_the_program_raises_the_window(tmp_path: Path) -> None:
    """The whole program twice; the first prints what its window is told."""
    code = (
        "import sys, pathlib\n"
        "from app.startup import bootstrap\n"
        "from app.desktop import desktop_integration as desktop\n"
        "class Told(desktop.DesktopIntegration):\n"
        "    def listen(self, instance):\n"
        "        super().listen(instance)\n"
        "        self._window.showMinimized()\n"
        "        self._models.import_path = lambda path, copy: print('import', path, copy, flush=True)\n"
        "        print('ready', flush=True)\n"
        "    def take_request(self, request):\n"
        "        super().take_request(request)\n"
        "        print('up', self._window.isVisible(), self._window.isMinimized(), flush=True)\n"
        "        self._window.quit()\n"
        "desktop.DesktopIntegration = Told\n"
        f"sys.exit(bootstrap.run('in-thread', '/no model', pathlib.Path({str(tmp_path)!r})))\n"
    )
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    first = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert line(first) == "ready"
        model = tmp_path / "some model.gguf"
        model.write_bytes(b"GGUF")
        second = subprocess.run(
            [sys.executable, "-m", "app", "--data-dir", str(tmp_path), str(model)],
            cwd=ROOT, env=environment, timeout=300, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert (second.returncode, second.stderr) == (0, "")
        assert line(first) == f"import {model} False"
        assert line(first) == "up True False"
        assert first.wait(60) == 0
    finally:
        first.kill()
        first.communicate()


def test_windows_without_a_user_name_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.setattr("getpass.getuser", refuse)
    assert single_instance._account(windows=True) == ""
    assert sys.platform == "win32" or single_instance._account(windows=False) == str(os.getuid())
