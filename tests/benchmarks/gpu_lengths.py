"""Answers from end to end: tokens a second for short and long questions and answers, and the time to the first token.

    python tests/benchmarks/gpu_lengths.py 32b-f16.gguf --budget 24 --budget all --record
    python tests/benchmarks/gpu_lengths.py tiny.gguf --device cpu --context 64 --inputs 1,8 --outputs 4 --first 16

A rate counts reading the question too: tokens of the answer by the seconds from the question to its end, as the paper
does (section 8.2: inputs of 1, 64 and 128, outputs of 8, 128 and 512 tokens). The time to the first token of a long
question is held against what its cold bytes take: by the bus, or by filling the pinned memory before it, whichever is
slower, each measured by itself with the very rows and buffers behind the answers; whether they came that way, or were
gathered in place by the GPU, is told. With `all` as one of the budgets, each rate is also given as a share of that of
the whole GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from gpu_anchors import found_in_memory  # noqa: E402 - found by the lines above

from engine.config import EngineConfig, SamplingConfig  # noqa: E402
from engine.machine.hardware import probe  # noqa: E402
from engine.session.chat_session import ChatSession  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

RESULTS = Path(__file__).parent / "results"
FIRSTS = 3  # first tokens of which the quickest counts
SETTLING_S = 60.0  # for what is done behind the load, which answers hold up


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--budget", action="append", metavar="GIB", help="or `all`; may be repeated (default: all)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--mode", choices=("sparse", "exact", "dense", "auto"), default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--inputs", type=_numbers, default=(1, 64, 128))
    parser.add_argument("--outputs", type=_numbers, default=(8, 128, 512))
    parser.add_argument("--first", type=int, default=512, help="tokens of the question whose first token is timed")
    parser.add_argument(
        "--in-memory", action="store_true",
        help="the model's file lies in memory, as in /dev/shm: what it takes there counts as free",
    )  # fmt: skip
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    budgets = flags.budget or ["all"]
    runs = {budget: measured(flags, None if budget == "all" else float(budget)) for budget in budgets}
    for budget, found in runs.items():
        for one in found["answers"]:
            whole = next((o for o in runs.get("all", found)["answers"] if o["shape"] == one["shape"]), one)
            one["share_of_whole_gpu"] = one["tok_s"] / whole["tok_s"]
            print(f"{budget:>5}: {one['shape']:>8} {one['tok_s']:8.2f} tok/s, {one['share_of_whole_gpu']:.0%} of whole")
        floor = found["first_floor_s"]
        words = "" if not floor else f", {found['first_s'] / floor:.2f} of its {1e3 * floor:.0f} ms"
        if floor:
            words += f" ({found['cold_bytes'] / 1e9:.1f} GB; filled at {found['filling_bytes_per_s'] / 1e9:.1f} GB/s, "
            words += f"sent at {found['bus_bytes_per_s'] / 1e9:.1f}; they came by: {found['way']})"
        print(
            f"{budget:>5}: first token of {flags.first}: {1e3 * found['first_s']:.0f} ms{words}; at first "
            f"{1e3 * found['first_untouched_s']:.0f} ms; loaded in {found['load_s']:.1f} s"
        )
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/gpu_lengths.py", *sys.argv[1:]]),
            "hardware": probe().to_json(), "runs": runs,
        }  # fmt: skip
        file = RESULTS / f"gpu-lengths-{flags.model.stem}-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0


def measured(flags: argparse.Namespace, budget: float | None) -> dict[str, Any]:
    """All answers of one load, in seconds and tokens a second. Every question is new to the KV cache."""
    engine = EngineConfig(
        device=flags.device, mode=flags.mode, threads=flags.threads, context=flags.context, vram_budget_gib=budget
    )
    with tempfile.TemporaryDirectory() as folder:
        if flags.in_memory:
            engine = found_in_memory(engine, flags.model, folder)
        began = time.perf_counter()
        model = LoadedModel.load(flags.model, engine)
        load_s = time.perf_counter() - began
    try:
        answer(model, 4, 4)  # what is compiled or tried out at the first answer
        untouched_s = answer(model, flags.first, 1)  # the first that passes over all cold rows
        model.wait_for_weights(SETTLING_S)
        shapes = [(i, o) for i in flags.inputs for o in flags.outputs]
        answers = [{"shape": f"{i}+{o}", "tok_s": o / answer(model, i, o)} for i, o in shapes]
        first_s = min(answer(model, flags.first, 1, i) for i in range(1, 1 + FIRSTS))
        way = "" if model.gpu is None else model.gpu.streaming_way
        rates = None if model.gpu is None else model.gpu.measure_streaming()
        floor_s, cold_bytes = 0.0, 0
        if model.gpu is not None and rates is not None:
            cold_bytes = model.gpu.streaming_speed.cold_bytes
            floor_s = cold_bytes / min(rates.filling, rates.bus)
        return {
            "load_s": load_s, "device": model.device, "mode": model.mode, "vram_bytes": model.vram_bytes,
            "answers": answers, "first_s": first_s, "first_untouched_s": untouched_s, "first_floor_s": floor_s,
            "cold_bytes": cold_bytes, "filling_bytes_per_s": rates and rates.filling,
            "bus_bytes_per_s": rates and rates.bus, "way": way,
        }  # fmt: skip
    finally:
        model.close()


def answer(model: LoadedModel, n_in: int, n_out: int, seed: int = 0) -> float:
    """Seconds from a question of random tokens to the end of an answer of so many."""
    rng = np.random.default_rng([n_in, n_out, seed])
    prompt = rng.integers(0, model.opened.config.vocab_size, n_in).tolist()
    session = ChatSession(model)
    sampling = SamplingConfig(temperature=0.0, max_tokens=n_out)
    began = time.perf_counter()
    n = sum(event.token_id is not None for event in session.generate(prompt, sampling))
    taken = time.perf_counter() - began
    return taken * n_out / n  # one that ended early counts as far as it came


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
