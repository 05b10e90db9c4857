"""What the measurements of tests/benchmarks/desktop.py stand on: folders full of chats and models, and a window.

It measures nothing by itself. Nothing in here touches the folders of the person who runs it, nor the network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FAKE_ENGINE = ROOT / "tests" / "app" / "fake_host.py"
PROBE_MS = 10
LONGEST_WAIT_S = 120.0


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a process that keeps everything in `folder` and asks no hub. Python keeps what it has compiled there, as it
    does where a program is installed."""
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("DATA", "CONFIG", "CACHE", "STATE")}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "benchmarks")])
    quiet = {"HF_HUB_OFFLINE": "1", "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    return {**usual, **homes, **quiet, "QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": paths, **more}


# --- folders


def fill_chats(folder: Path, chats: int) -> None:
    """So many chats of one question each."""
    from app.chat.store.conversation import Conversation, Message, Role
    from app.chat.store.store import Store
    from app.startup.bootstrap import folders_in

    store, _ = Store.rescue(folders_in(folder).chats_file)
    for number in range(chats):
        chat = Conversation(title=f"Chat {number} about something", updated_at=time.time() - 3600 * number)
        store.save_conversation(chat)
        store.append(chat.id, Message(Role.USER, f"Question {number}: how do I make tea with needle{number % 100}?"))
    store.close()


def fill_long_chat(folder: Path, messages: int) -> str:
    """One chat of so many messages; its id. Every tenth answer has a table and code."""
    from app.chat.store.conversation import Conversation, Message, Role
    from app.chat.store.store import Store
    from app.startup.bootstrap import folders_in

    plain = "An answer of some length, as answers are: a few sentences that wrap once or twice in the column. " * 3
    rich = f"{plain}\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n```python\nfor i in range(10):\n    print(i)\n```\n"
    store, _ = Store.rescue(folders_in(folder).chats_file)
    chat = Conversation(title="A long chat")
    store.save_conversation(chat)
    parent = ""
    for number in range(messages):
        own = number % 2 == 0
        text = f"Question {number}" if own else rich if number % 20 == 1 else plain
        message = Message(Role.USER if own else Role.ASSISTANT, text)
        if hasattr(message, "parent"):
            message = replace(message, parent=parent)
        store.append(chat.id, message)
        parent = message.id
    store.close()
    return chat.id


def fill_models(folder: Path, models: int) -> None:
    """So many small models on the list of installed ones, where they lie."""
    from samples.tiny_model import make_tiny_gguf

    from engine.library.owned.installed import Library

    shelf = Library(folder / "data" / "Hearth" / "models")
    lying = folder / "lying about"
    lying.mkdir(parents=True)
    first = make_tiny_gguf(lying / "model.gguf")
    for number in range(models):
        place = shutil.copy(first, lying / f"model-{number}.gguf")
        shelf.add(Path(place), name=f"Model {number}")


def big_model(folder: Path) -> Path:
    """A synthetic model of 0.6 GB, made once: long enough to load that it can be stopped on the way."""
    from make_model import Recipe, make_model

    path = folder / "1b.gguf"
    if not path.exists():
        make_model(path, Recipe(shape="1b", codec="q4_0"))
    return path


# --- processes


@contextmanager
def hub_process(n_bytes: int, bytes_per_s: int) -> Iterator[str]:
    """A hub in a process of its own, so that its work is not the window's; its address. It has one model."""
    code = (
        "import sys, random; from fakes.hub import FakeHub\n"
        "hub = FakeHub(bytes_per_s=int(sys.argv[2]))\n"
        "data = b'GGUF' + random.Random(7).randbytes(int(sys.argv[1]) - 4)\n"
        "hub.add('maker/big-GGUF', {'big-q8_0.gguf': data})\n"
        "print(hub.url, flush=True)\n"
        "for line in sys.stdin: print(hub.sent_bytes('big-q8_0.gguf'), flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(n_bytes), str(bytes_per_s)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(Path("/nonexistent"))
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def tree_of(pid: int) -> list[Any]:
    """A process and all that it started, as psutil has them."""
    import psutil

    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def cpu_s(processes: Sequence[Any]) -> float:
    """CPU seconds that these processes used so far."""
    import psutil

    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


# --- the window


class Seat:
    """Somebody in front of the window of this process, who notes how late its event loop is."""

    def __init__(self, folder: Path, fake: bool = False, model: str | None = None, **settings: Any) -> None:
        """fake: the fake for the engine, which writes at any pace and computes nothing."""
        from PySide6.QtCore import Qt, QTimer
        from PySide6.QtWidgets import QApplication

        from app.clients.engine_process import ProcessHost, Timeouts
        from app.settings import load_settings
        from app.startup.bootstrap import folders_in
        from app.startup.hearth import Hearth
        from app.ui.look import theme

        app = QApplication.instance() or QApplication([])
        assert isinstance(app, QApplication)
        self.app, self.places = app, folders_in(folder)
        self.places.log.mkdir(parents=True, exist_ok=True)
        chosen = replace(load_settings(self.places.settings_file)[0], theme="light", **settings)
        theme.apply(app, "light", 1.0)
        command = [sys.executable, str(FAKE_ENGINE)]
        makers: Any = {"process": lambda emit: ProcessHost(emit, self.places.log, command, Timeouts())}
        self.hearth = Hearth(self.places, chosen, "process", "fake" if fake else model, makers if fake else None)
        self.window, self.page, self.chat = self.hearth.window, self.hearth.window.page, self.hearth.controller
        self.finished: list[Any] = []
        self.statuses: list[Any] = []
        self.painted_at = 0.0
        self.chat.message_finished.connect(self.finished.append)
        self.chat.status_changed.connect(self.statuses.append)
        self.hearth.painted.connect(lambda: setattr(self, "painted_at", time.time()))
        self._late: list[float] = []
        self._last = 0.0
        self._timer = QTimer(timerType=Qt.TimerType.PreciseTimer, interval=PROBE_MS)
        self._timer.timeout.connect(self._beat)

    def _beat(self) -> None:
        now = time.perf_counter()
        if self._last:
            self._late.append(max(0.0, 1000 * (now - self._last) - PROBE_MS))
        self._last = now

    def begin_probe(self) -> None:
        self._late.clear()
        self._last = 0.0
        self._timer.start()

    def lateness(self) -> dict[str, float]:
        """Of the event loop since `begin_probe`, in ms; ends the probe."""
        self._timer.stop()
        return spread(self._late)

    def show(self) -> Seat:
        self.hearth.show()
        self.until(lambda: self.painted_at > 0)
        return self

    def until(self, what: Callable[[], object], most_s: float = LONGEST_WAIT_S) -> float:
        """Let the window live until something is so, looked at every ms; the seconds it took. Raises: TimeoutError."""
        from PySide6.QtCore import QEventLoop, QTimer

        if what():
            return 0.0
        # Not the application's own loop: leaving that one closes the windows.
        loop, began, watch = QEventLoop(), time.perf_counter(), QTimer(interval=1)
        watch.timeout.connect(lambda: loop.quit() if what() or time.perf_counter() - began > most_s else None)
        watch.start()
        loop.exec()
        watch.stop()
        if not what():
            raise TimeoutError(f"not so after {most_s} s")
        return time.perf_counter() - began

    def rest(self, seconds: float) -> None:
        """Let the window live so long, and look at nothing."""
        from PySide6.QtCore import QEventLoop, QTimer

        loop = QEventLoop()
        QTimer.singleShot(int(1000 * seconds), loop.quit)
        loop.exec()

    def ready(self) -> None:
        from app.clients.engine_status import Phase

        self.until(lambda: self.chat.status.phase is Phase.READY)

    def say(self, text: str) -> Any:
        """Send, and wait for the end of the answer; the answer."""
        count = len(self.finished)
        self.chat.send(text)
        self.until(lambda: len(self.finished) > count)
        return self.finished[-1]

    def stream(self, words: int, pace_s: float = 0.01) -> None:
        """Have the fake write so many words, and come back once it does."""
        self.chat.send(f"words {words} pace {pace_s}")
        from app.clients.engine_status import Phase

        self.until(lambda: self.chat.status.phase is Phase.WRITING)

    def close(self) -> None:
        self.hearth.close()


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Middle, p99 and the largest of some measurements."""
    ordered = sorted(values) or [0.0]
    return {
        "p50": round(ordered[len(ordered) // 2], digits),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], digits),
        "max": round(ordered[-1], digits),
        "samples": len(values),
    }
