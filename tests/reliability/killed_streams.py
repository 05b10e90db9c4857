"""kill -9 in the middle of an answer, at random moments and many times: what the file of chats still has.

    python tests/reliability/killed_streams.py                   a thousand kills, the figures as JSON
    python tests/reliability/killed_streams.py --kills 20        so many

Each answer streams 100 words a second in a process of its own, with everything that stands behind the window, and the
fake for the engine. Linux: the processes are forks of one that has read the program's code already.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import selectors
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "app")]

QUESTION = "words 100000 pace 0.01"
TOLD = struct.Struct("<dI")  # time.monotonic(), words so far: far less than a pipe takes whole
STARTS_WITHIN_S = 120.0


@dataclass
class Stream:
    """A process that streams, and what it told. kill_at: time.monotonic(), from the first word on."""

    folder: Path
    pid: int
    pipe: int
    until: float
    kill_at: float | None = None
    told: list[tuple[float, int]] = field(default_factory=list)

    def hear(self) -> bool:
        """Take what was told; False: nothing more will come."""
        data = os.read(self.pipe, TOLD.size * 4096)
        self.told += [(at, words) for at, words in TOLD.iter_unpack(data)]
        return bool(data)


@dataclass(frozen=True)
class Kill:
    """What a kill cost. lost_s: the age of the oldest word that is gone. problem: what is wrong with the file."""

    streamed: int
    kept: int
    lost_s: float
    problem: str = ""


def stream(folder: Path, pipe: int) -> None:
    """The process that is killed: an answer grows, and every word is told."""
    from fake_host import FakeEngine
    from PySide6.QtCore import QCoreApplication, QTimer

    from app.chat.answers.answer_policy import AnswerPolicy
    from app.chat.chat_controller import ChatController
    from app.chat.chat_memory import ChatMemory
    from app.chat.store.operations import Operations
    from app.chat.store.store import Store
    from app.chat.tool_rounds import ToolRounds
    from app.clients.engine_client import EngineClient
    from app.clients.engine_worker import EngineWorker, InThreadHost
    from app.models.model_switch import ModelSwitch
    from app.settings import AppSettings
    from app.tools.consents import FolderConsents
    from app.tools.tool_box import ToolBox

    app = QCoreApplication([])
    saves, reads = Operations(), Operations()
    worker = EngineWorker("in-thread", {"in-thread": lambda emit: InThreadHost(emit, FakeEngine)})  # type: ignore[arg-type]
    engine = EngineClient(worker)
    memory = ChatMemory(lambda: Store.rescue(folder / "chats.db"), saves, reads)
    switch = ModelSwitch(engine, AppSettings(), "fake", lambda model: {})
    rounds = ToolRounds(memory, ToolBox(), FolderConsents(), lambda name, write: write())
    chat = ChatController(engine, memory, AnswerPolicy(AppSettings()), switch, rounds)
    words, opened = [0], list[bool]()

    def grew(_: str, text: str) -> None:
        words[0] += text.count(" ")
        os.write(pipe, TOLD.pack(time.monotonic(), words[0]))

    def ask() -> None:
        if opened and engine.is_ready:
            clock.stop()
            chat.send(QUESTION)

    chat.text_appended.connect(grew)
    memory.opened.connect(lambda: opened.append(True))
    clock = QTimer(interval=5)
    clock.timeout.connect(ask)
    clock.start()
    worker.start()
    chat.start()
    app.exec()


def begin(folder: Path) -> Stream:
    """Another process that streams."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            stream(folder, theirs)
        except BaseException:  # noqa: BLE001 - a fork must not come back into the code of its parent
            traceback.print_exc()
        os._exit(1)
    os.close(theirs)
    return Stream(folder, pid, ours, time.monotonic() + STARTS_WITHIN_S)


def end(running: Stream) -> Kill:
    """Kill it, and look into its file."""
    killed = time.monotonic()
    os.kill(running.pid, signal.SIGKILL)
    os.waitpid(running.pid, 0)
    while running.hear():
        pass
    os.close(running.pipe)
    streamed = running.told[-1][1] if running.told else 0
    kept, problem = look(running.folder)
    if not running.told:
        return Kill(0, kept, 0.0, problem or f"no word within {STARTS_WITHIN_S:.0f} s")
    oldest = next((at for at, words in running.told if words > kept), killed)
    return Kill(streamed, kept, max(killed - oldest, 0.0), problem)


def look(folder: Path) -> tuple[int, str]:
    """How many words of the answer are kept, and what else is wrong."""
    from app.chat.store.store import Store

    store, report = Store.rescue(folder / "chats.db")
    try:
        chats = store.conversations()
        messages = store.messages(chats[0].id) if chats else []
        if report is not None:
            return 0, f"the file had to be rescued: {report}"
        if not messages or messages[0].text != QUESTION:
            return 0, "the question is not there"
        words = messages[1].text.split() if len(messages) > 1 else []
        whole = words == [f"word{number}" for number in range(len(words))]
        return len(words), "" if whole else "the answer is not what was streamed"
    finally:
        store.close()


def kills(count: int, together: int, longest_s: float, seed: int) -> Iterator[Kill]:
    """So many kills, some at the same time, each up to `longest_s` after the first word."""
    chance, selector = random.Random(seed), selectors.DefaultSelector()
    running: list[Stream] = []
    with tempfile.TemporaryDirectory(prefix="hearth-kills-") as place:
        for number in range(count + together):
            while running and (len(running) == together or number >= count):
                for key, _ in selector.select(timeout=0.01):
                    one: Stream = key.data
                    one.hear()
                    if one.kill_at is None and one.told:
                        one.kill_at = one.told[0][0] + chance.uniform(0, longest_s)
                for one in [one for one in running if time.monotonic() >= (one.kill_at or one.until)]:
                    selector.unregister(one.pipe)
                    running.remove(one)
                    yield end(one)
            if number < count:
                folder = Path(place) / str(number)
                folder.mkdir()
                running.append(begin(folder))
                selector.register(running[-1].pipe, selectors.EVENT_READ, running[-1])


def figures(done: list[Kill]) -> dict[str, Any]:
    """What all the kills cost."""
    lost = sorted(kill.lost_s for kill in done)
    return {
        "kills": len(done),
        "problems": [kill.problem for kill in done if kill.problem],
        "words_streamed": sum(kill.streamed for kill in done),
        "words_kept": sum(kill.kept for kill in done),
        "lost_s": {"p50": round(lost[len(lost) // 2], 3), "p99": round(lost[int(0.99 * (len(lost) - 1))], 3),
                   "max": round(lost[-1], 3)},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--together", type=int, default=6, help="processes at the same time")
    parser.add_argument("--longest", type=float, default=3.0, help="seconds after the first word, at most")
    parser.add_argument("--seed", type=int, default=14)
    flags = parser.parse_args()
    import app.chat.chat_controller
    import app.chat.store.store  # noqa: F401 - read once, before the forks
    import engine.service.protocol  # noqa: F401

    began, load = time.monotonic(), os.getloadavg()[0]
    done = list(kills(flags.kills, flags.together, flags.longest, flags.seed))
    out = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": " ".join(["python", "tests/reliability/killed_streams.py", *sys.argv[1:]]),
        "hardware": {"logical_cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        **figures(done),
        "took_s": round(time.monotonic() - began, 1),
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)],
    }
    print(json.dumps(out, indent=2))
    return 0 if not out["problems"] else 1


if __name__ == "__main__":
    sys.exit(main())
