"""What recording the tokens of answers costs, and the size of a record.

    python tests/benchmarks/inspecting.py            print the figures
    python tests/benchmarks/inspecting.py --record   and write them to tests/benchmarks/results/

Within each answer, BLOCK tokens are recorded and BLOCK are not, by turns, so that other load on the PC affects both
alike; the first of each is not timed, since it was computed before the change.
Times are CPU time of the thread that decodes. decode_ratio: median time of such blocks without the record to that with
it, of each answer. end_share: the time to make the record after an answer, as a share of the time of decoding.
bytes_per_token: of one answer, on the disk.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
QUESTION = "Tell me a long story about a shy robot called Bolt."
BLOCK = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--model", default="starter-chat")
    flags = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    figures = {
        "date": date, "command": "python tests/benchmarks/inspecting.py", "model": flags.model, "device": "cpu",
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        **cost(flags.model, flags.answers),
    }  # fmt: skip
    print(json.dumps(figures, indent=2))
    if flags.record:
        (RESULTS / f"inspecting-{date}.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def cost(name: str, n_answers: int) -> dict[str, Any]:
    """Return the times of tokens, their ratios, and the size of the records."""
    from app.chat.answers.inspection import Inspection as Record
    from engine.config import EngineConfig, SamplingConfig
    from engine.service.inspection import Inspection
    from engine.session.chat_session import ChatSession
    from engine.session.loaded_model import LoadedModel

    model = LoadedModel.load(name, EngineConfig(device="cpu"))
    session, prompt = ChatSession(model), model.tokenizer.encode_chat([{"role": "user", "content": QUESTION}])
    ratios, n_bytes, end_s, all_s = [], 0.0, 0.0, 0.0
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(-1, n_answers):  # the first answer warms caches and is not counted
        inspection, own = Inspection(session, prompt), {False: list[float](), True: list[float]()}
        started = 0.0
        for place, event in enumerate(session.generate(prompt, SamplingConfig(temperature=0.8, seed=max(number, 0)))):
            inspects = number < 0 or (place // BLOCK + number) % 2 == 0
            if event.token_id is not None and inspects:
                inspection.token(event)
            if place % BLOCK == 0:
                started = time.thread_time()
            elif place % BLOCK == BLOCK - 1:
                if number >= 0:
                    inspection.close()
                own[inspects].append((time.thread_time() - started) / (BLOCK - 1))
        last = time.thread_time()
        record = inspection.event("a")
        ended = time.thread_time() - last
        inspection.close()
        if number < 0:  # recorded as a whole: a token after a pause has no neurons of its own
            n_bytes = len(Record.of(record, name).to_bytes()) / len(record.rows)
            continue
        ratios.append(statistics.median(own[False]) / statistics.median(own[True]))
        for inspects, some in own.items():
            times[inspects] += some
        end_s, all_s = end_s + ended, all_s + (BLOCK - 1) * sum(own[True])
    model.close()
    return {
        "answers": n_answers,
        "tokens": (BLOCK - 1) * sum(map(len, times.values())),
        "token_ms": {
            "off": round(1e3 * statistics.median(times[False]), 3), "on": round(1e3 * statistics.median(times[True]), 3)
        },
        "decode_ratio": round(statistics.median(ratios), 3),
        "decode_ratio_quartiles": [round(one, 3) for one in statistics.quantiles(ratios, n=4)],
        "end_share": round(end_s / all_s, 4),
        "bytes_per_token": round(n_bytes, 1),
    }  # fmt: skip


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
