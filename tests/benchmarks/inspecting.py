"""What recording the tokens of answers costs: decode rates with and without it, by turns, and the size of a record.

    python tests/benchmarks/inspecting.py            print the figures
    python tests/benchmarks/inspecting.py --record   and write them to tests/benchmarks/results/

Each pair answers one question twice with the same seed, once with the record and once without, in changing order. The
ratios are of each pair, so that other load on the PC affects both sides alike. whole: from the request to its end,
which includes the making of the record. recording_share: CPU time of the record in the engine's thread, as a share of
the time of decoding.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
QUESTION = "Tell me a long story about a shy robot called Bolt."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--model", default="starter-chat")
    flags = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    figures = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": "python tests/benchmarks/inspecting.py",
        "model": flags.model,
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        **cost(flags.model, flags.pairs),
    }
    print(json.dumps(figures, indent=2))
    if flags.record:
        file = RESULTS / f"inspecting-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def cost(model: str, pairs: int) -> dict[str, Any]:
    """Return the rates of both kinds of answers, their ratios, and the size of the records."""
    from app.chat.answers.inspection import Inspection
    from engine.service import protocol
    from engine.service.host import EngineHost
    from engine.service.inspection import Inspection as Inspecting

    events: list[Any] = []
    host = EngineHost(events.append)
    spent = [0.0]  # CPU seconds of the engine's thread in the record
    for name in ("token", "event"):
        setattr(Inspecting, name, _clocked(getattr(Inspecting, name), spent))

    def run(request: protocol.Request) -> float:
        events.clear()
        began = time.perf_counter()
        host.submit(request)
        host.run_pending()
        return time.perf_counter() - began

    run(protocol.Load("load", model))
    asked = [{"role": "user", "content": QUESTION}]
    rates: dict[bool, list[float]] = {False: [], True: []}
    whole: dict[bool, list[float]] = {False: [], True: []}
    tokens = sizes = 0
    decoded_s = 0.0
    for number in range(-1, pairs):  # the first pair warms caches and is not counted
        for inspect in (number % 2 == 0, number % 2 != 0):
            sampling = {"temperature": 0.8, "seed": max(number, 0)}
            took = run(protocol.Generate("answer", asked, sampling, inspect=inspect))
            if number < 0:
                spent[0] = 0.0
                continue
            decoded_s += events[-1].result["tokens"] / rate_of(events) if inspect else 0.0
            rates[inspect].append(rate_of(events))
            whole[inspect].append(took)
            for event in events:
                if isinstance(event, protocol.Inspected):
                    tokens += len(event.rows)
                    sizes += len(Inspection.of(event, model).to_bytes())
    host.close()
    ratios = sorted(on / off for off, on in zip(rates[False], rates[True], strict=True))
    of_whole = [off / on for off, on in zip(whole[False], whole[True], strict=True)]
    return {
        "pairs": pairs,
        "decode_tok_s": {
            "off": round(statistics.median(rates[False]), 1),
            "on": round(statistics.median(rates[True]), 1),
        },
        "decode_ratio": round(statistics.median(ratios), 3),
        "decode_ratio_quartiles": [round(one, 3) for one in statistics.quantiles(ratios, n=4)],
        "whole_ratio": round(statistics.median(of_whole), 3),
        "recording_share": round(spent[0] / decoded_s, 4),
        "bytes_per_token": round(sizes / tokens, 1),
    }


def rate_of(events: list[Any]) -> float:
    return float(events[-1].result["decode_tok_s"])


def _clocked(act: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def run(*given: Any) -> Any:
        began = time.thread_time()
        found = act(*given)
        spent[0] += time.thread_time() - began
        return found

    return run


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
