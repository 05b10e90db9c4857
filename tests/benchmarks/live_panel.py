"""What the live panel costs: the window's thread while it is shown and hidden, at rest and while answers are written,
and what the engine spends on telling what it does.

    python tests/benchmarks/live_panel.py            print the figures
    python tests/benchmarks/live_panel.py --record   and write them to tests/benchmarks/results/

The real window with the real engine in its process and the starter model, without a screen (offscreen). The window's
cost is CPU time of its main thread, as a share of one core; hidden, another page is shown that does as little.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
QUESTION = "Tell me a long story about a shy robot called Bolt."
SETTLE_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    flags = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    sys.path.insert(0, str(ROOT))
    figures = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": "python tests/benchmarks/live_panel.py",
        "seconds": flags.seconds,
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "engine": engine_cost(flags.seconds),
        "window": window_cost(flags.seconds),
    }
    print(json.dumps(figures, indent=2))
    if flags.record:
        file = RESULTS / f"live-panel-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def engine_cost(seconds: float) -> dict[str, Any]:
    """CPU time in LiveFeed per second of answering, watched and not, and the rates that the answers carried."""
    from engine.service import protocol
    from engine.service.host import EngineHost

    events: list[Any] = []
    host = EngineHost(events.append)
    spent = [0.0]

    def clocked(act: Callable[..., None]) -> Callable[..., None]:
        def run(*given: Any) -> None:
            began = time.thread_time()
            act(*given)
            spent[0] += time.thread_time() - began

        return run

    def run(request: protocol.Request) -> None:
        host.submit(request)
        host.run_pending()

    feed = host._live
    for name in ("begin", "token", "end"):
        setattr(feed, name, clocked(getattr(feed, name)))
    run(protocol.Load("load", "starter-chat"))
    found = {}
    for watched in (False, True, False, True):
        run(protocol.Watch("watch", watched))
        spent[0], began, rates, told = 0.0, time.perf_counter(), [], len(events)
        while time.perf_counter() - began < seconds / 2:
            run(protocol.Generate("answer", [{"role": "user", "content": QUESTION}], {"temperature": 0.8}))
            rates.append(events[-1].result["decode_tok_s"])
        lives = sum(isinstance(event, protocol.Live) for event in events[told:])
        found["watched" if watched else "unwatched"] = {
            "share_of_a_core": round(spent[0] / (time.perf_counter() - began), 5),
            "decode_tok_s": round(sorted(rates)[len(rates) // 2], 1),
            "events_per_s": round(lives / (time.perf_counter() - began), 2),
        }
    host.close()
    return found


def window_cost(seconds: float) -> dict[str, float]:
    """Share of a core that the window's thread takes."""
    from PySide6.QtCore import QEventLoop, QTimer
    from PySide6.QtWidgets import QApplication

    from app.settings import AppSettings
    from app.startup.bootstrap import folders_in
    from app.startup.hearth import Hearth
    from app.ui.look import theme

    app = QApplication([])
    theme.apply(app, "light", 1.0)
    with tempfile.TemporaryDirectory() as name:
        places = folders_in(Path(name))
        places.log.mkdir(parents=True)
        hearth = Hearth(places, AppSettings(theme="light", temperature=0.8, offer_dismissed=True), "process")
        hearth.window.resize(1280, 832)
        hearth.show()

        def wait(for_s: float) -> None:
            loop = QEventLoop()
            QTimer.singleShot(int(for_s * 1000), loop.quit)
            loop.exec()

        def measured() -> float:
            wait(SETTLE_S)
            wall, used = time.perf_counter(), time.thread_time()
            wait(seconds)
            return round((time.thread_time() - used) / (time.perf_counter() - wall), 5)

        while not hearth.engine.is_ready:
            wait(0.1)
        found: dict[str, float] = {}
        for state in ("at_rest", "answering"):
            if state == "answering":  # one answer after another
                hearth.engine.ready.connect(lambda: QTimer.singleShot(0, ask))

                def ask() -> None:
                    if hearth.engine.is_ready:
                        hearth.controller.send(QUESTION)

            for live in (False, True):
                (hearth.window.show_live if live else hearth.window.show_models)()
                if state == "answering":
                    ask()
                found[f"{state}_{'shown' if live else 'hidden'}"] = measured()
            found[f"{state}_panel"] = round(found[f"{state}_shown"] - found[f"{state}_hidden"], 5)
        hearth.window.close()
        hearth.close()
    return found


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
