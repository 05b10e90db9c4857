"""What the window costs: time to the first paint, lateness of its event loop while the engine works, tokens/s and TTFT.

    python tests/benchmarks/window.py            print the figures
    python tests/benchmarks/window.py --record   and write them to tests/benchmarks/results/
    ... --threads 8                              the engine computing with so many threads: as many as there are
                                                 processors leave none to the window

Every figure comes from the real window with the real engine and the starter model, without a screen (offscreen).
Lateness is that of a 10 ms timer on the window's thread. Machines are noisy: read p99 within a third, maxima as
indicative.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
PROBE_MS = 10
PAINT_RUNS = 5
QUESTIONS = (
    "Tell me a story about a shy robot called Bolt.",
    "Tell me a story about a fox who lived by the sea.",
    "Tell me a story about a girl called Mia.",
    "What is the capital of Peru?",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--threads", type=int, help="of the engine (default: its own choice)")
    parser.add_argument("--child", choices=("paint", "chat"), help=argparse.SUPPRESS)
    parser.add_argument("--engine", default="process", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        sys.path.insert(0, str(ROOT))
        paints = flags.child == "paint"
        print(json.dumps(paint(flags.folder) if paints else chat(flags.folder, flags.engine, flags.threads)))
        return 0
    figures = measure(flags.threads)
    print(json.dumps(figures, indent=2))
    if flags.record:
        which = "" if flags.threads is None else f"{flags.threads}-threads-"
        file = RESULTS / f"window-{which}{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(threads: int | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        empty, full = Path(name) / "empty", Path(name) / "full"
        fill(full, chats=5_000)
        return {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/window.py", *sys.argv[1:]]),
            "threads": threads,
            "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "hardware": {"cpu": cpu_name(), "logical_cpus": os.cpu_count(), "python": platform.python_version()},
            "painted_window_s": {
                "first_start": painted(empty),
                "median": statistics.median(painted(empty) for _ in range(PAINT_RUNS)),
                "median_with_5000_chats": statistics.median(painted(full) for _ in range(PAINT_RUNS)),
            },
            "process": child("chat", empty, "process", threads),
            "in_thread": child("chat", empty, "in-thread", threads),
        }


def cpu_name() -> str:
    from engine.machine.hardware import probe

    return probe().cpu.name


def child(what: str, folder: Path, engine: str = "process", threads: int | None = None) -> Any:
    command = [sys.executable, __file__, "--child", what, "--folder", str(folder), "--engine", engine]
    command += [] if threads is None else ["--threads", str(threads)]
    environment = {"QT_QPA_PLATFORM": "offscreen", "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return json.loads(done.stdout.splitlines()[-1])


def painted(folder: Path) -> float:
    """Seconds from starting the process to the first paint of its window."""
    began = time.time()
    return round(float(child("paint", folder)) - began, 3)


def fill(folder: Path, chats: int) -> None:
    """A data folder with so many chats."""
    sys.path.insert(0, str(ROOT))
    from app.chat.store.conversation import Conversation, Message, Role
    from app.chat.store.store import Store
    from app.startup.bootstrap import folders_in

    places = folders_in(folder)
    store, _ = Store.rescue(places.chats_file)
    for number in range(chats):
        chat = Conversation(title=f"Chat {number} about something", updated_at=time.time() - 3600 * number)
        store.save_conversation(chat)
        store.append(chat.id, Message(Role.USER, f"Question {number}?"))
    store.close()


def window(folder: Path, engine: str, threads: int | None = None) -> Any:
    from PySide6.QtWidgets import QApplication

    from app.settings import load_settings
    from app.startup.bootstrap import folders_in
    from app.startup.hearth import Hearth
    from app.ui.settings.window_settings import apply_look

    app = QApplication([])
    places = folders_in(folder)
    settings = replace(load_settings(places.settings_file)[0], theme="light", threads=threads)
    apply_look(settings)
    return app, Hearth(places, settings, engine)


def paint(folder: Path) -> float:
    """The time of day at the first paint."""
    gc.disable()  # as the command line does
    app, hearth = window(folder, "process")
    moments: list[float] = []
    hearth.painted.connect(lambda: moments.append(time.time()))
    hearth.painted.connect(app.quit)
    hearth.show()
    app.exec()
    hearth.close()
    return moments[0]


def chat(folder: Path, engine: str, threads: int | None = None) -> dict[str, Any]:
    """Lateness while loading, while answering and at rest; the rates that the answers carried."""
    from PySide6.QtCore import QEventLoop, Qt, QTimer

    from app.clients.engine_status import Phase

    _app, hearth = window(folder, engine, threads)
    late: list[float] = []
    last = [0.0]

    def beat() -> None:
        now = time.perf_counter()
        if last[0]:
            late.append(max(0.0, 1000 * (now - last[0]) - PROBE_MS))
        last[0] = now

    timer = QTimer(timerType=Qt.TimerType.PreciseTimer, interval=PROBE_MS)
    timer.timeout.connect(beat)
    status: list[Any] = []
    finished: list[Any] = []
    hearth.controller.status_changed.connect(status.append)
    hearth.controller.message_finished.connect(finished.append)

    def until(what: Callable[[], bool]) -> None:
        loop, watch = QEventLoop(), QTimer(interval=5)  # not the application's own loop: leaving it closes the window
        watch.timeout.connect(lambda: loop.quit() if what() else None)
        watch.start()
        loop.exec()
        watch.stop()

    def lateness() -> dict[str, float]:
        values = sorted(late)
        late.clear()
        return {
            "p50_ms": round(values[len(values) // 2], 1),
            "p99_ms": round(values[int(0.99 * (len(values) - 1))], 1),
            "max_ms": round(values[-1], 1),
            "samples": len(values),
        }

    hearth.show()
    timer.start()
    began = time.perf_counter()
    until(lambda: bool(status) and status[-1].phase is Phase.READY)
    ready_s = time.perf_counter() - began
    loading = lateness()
    last[0] = 0.0
    for _ in range(4):
        for question in QUESTIONS:
            count = len(finished)
            hearth.controller.send(question)
            until(lambda count=count: len(finished) > count)  # type: ignore[misc]
        hearth.controller.new_chat()
    answering = lateness()
    end = time.perf_counter() + 2
    until(lambda: time.perf_counter() > end)
    rest = lateness()
    hearth.close()
    stats = [message.stats for message in finished]
    return {
        "ready_s": round(ready_s, 2),
        "late_while_loading": loading,
        "late_while_answering": answering,
        "late_at_rest": rest,
        "decode_tok_s": round(statistics.median(s["decode_tok_s"] for s in stats), 1),
        "prefill_tok_s": round(statistics.median(s["prefill_tok_s"] for s in stats), 1),
        "ttft_s": round(statistics.median(s["ttft_s"] for s in stats), 4),
        "answers": len(stats),
    }


if __name__ == "__main__":
    sys.exit(main())
