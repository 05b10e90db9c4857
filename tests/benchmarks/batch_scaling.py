"""Decode of several sequences at once: the rate of all of them together, by their number.

    python tests/benchmarks/batch_scaling.py                              the starter model, 1 to 16 sequences
    python tests/benchmarks/batch_scaling.py --mode exact --record        and write tests/benchmarks/results/
    python tests/benchmarks/batch_scaling.py --model 32b.gguf --device cuda --vram-budget 24 --threads 15 \
        --mode sparse --sizes 1,2,4,8,16,32 --record                      on a GPU and the CPU

On the CPU the sizes take turns, round by round, and the fastest round of each counts. Time is CPU time over
the number of threads, so that a machine which others use as well tells of the kernels alone. With a GPU each size is
measured by the clock as `engine bench --batch` does, all with one load of the model, which has room for the most
sequences. A size's floor is what its own step must read, over the GPU's speed and the RAM's: the RAM is read before
and behind each size, and the median of all readings is every size's.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gpu_anchors import found_in_memory  # noqa: E402 - found by the line above

from engine.config import EngineConfig  # noqa: E402
from engine.evaluation.bench import Floor, measured, ram_rate, run  # noqa: E402
from engine.evaluation.bench_batch import run_batch, whole_slots  # noqa: E402
from engine.machine.hardware import probe  # noqa: E402
from engine.session.batch import open_batch  # noqa: E402
from engine.session.generate import decode_batch, decode_one_token, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

RESULTS = Path(__file__).parent / "results"
PROMPT_TOKENS = 16
KEPT = (
    "batch", "decode_tok_s", "share_of_floor", "floor_s_per_token", "bytes_per_token", "ffn_bytes_per_token",
    "active_share", "fired_share", "gpu_neuron_load", "timings",
)  # fmt: skip
SETTLING_S = 60.0  # for what is done behind the load
GPU_PROMPT_TOKENS = 4  # read token by token, for every sequence of every size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="starter-chat")
    parser.add_argument("--mode", choices=("sparse", "exact", "dense"), default="exact")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", default="1,2,4,8,16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--vram-budget", type=float, metavar="GIB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gen-tokens", type=int, default=48)
    parser.add_argument(
        "--in-memory", action="store_true",
        help="the model's file lies in memory, as in /dev/shm: what it takes there counts as free",
    )  # fmt: skip
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    load_before = os.getloadavg()[0]
    sizes = [int(size) for size in flags.sizes.split(",")]
    on_gpu = flags.device == "cuda"
    config = EngineConfig(
        device=flags.device, mode=flags.mode, threads=flags.threads, sequences=max(sizes),
        context=whole_slots(GPU_PROMPT_TOKENS + flags.gen_tokens) if on_gpu else 256,
        vram_budget_gib=flags.vram_budget,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        if flags.in_memory:
            config = found_in_memory(config, Path(flags.model), folder)
        model = LoadedModel.load(flags.model, config)
        model.wait_for_weights(SETTLING_S)
        print(f"{model.device_reason}; {n_zero_copy(model)} neurons are read over the bus.", flush=True)
        found = on_a_gpu(model, sizes, flags) if on_gpu else on_the_cpu(model, sizes, flags)
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/batch_scaling.py", *sys.argv[1:]]),
            "hardware": {"cpu": probe().cpu.name, "logical_cpus": os.cpu_count(), "python": platform.python_version()},
            "load_before": load_before, "model": Path(flags.model).name, "mode": flags.mode, "threads": flags.threads,
            "device": model.device, "device_reason": model.device_reason, **found,
        }  # fmt: skip
        file = RESULTS / f"batch-scaling{'-gpu' if on_gpu else ''}-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0


def on_the_cpu(model: LoadedModel, sizes: list[int], flags: argparse.Namespace) -> dict[str, Any]:
    """The rate of each size, and alone, in CPU time."""
    best = dict.fromkeys(sizes, 0.0)
    alone = 0.0
    for _ in range(flags.rounds):
        alone = max(alone, rate_alone(model, flags.threads, flags.gen_tokens))
        for size in sizes:
            best[size] = max(best[size], rate_of_batch(model, flags.threads, size, flags.gen_tokens))
    print(f"alone, as answers are: {alone:7.1f} tok/s")
    for size, rate in best.items():
        print(f"{size:3d} sequences: {rate:7.1f} tok/s of all together")
    return {"alone_tok_s": alone, "rows": [{"batch": size, "decode_tok_s": rate} for size, rate in best.items()]}


def on_a_gpu(model: LoadedModel, sizes: list[int], flags: argparse.Namespace) -> dict[str, Any]:
    """The rate, the bytes and the share of the floor of each size, by the clock."""
    rows: list[dict[str, Any]] = []
    floors: list[Floor] = []
    for size in sizes:
        lengths: dict[str, Any] = {
            "prompt_tokens": GPU_PROMPT_TOKENS, "gen_tokens": flags.gen_tokens, "repeat": flags.rounds,
            "tell_floor": floors.append,
        }  # fmt: skip
        with model.undisturbed():
            result = run(model, **lengths) if size == 1 else run_batch(model, size, **lengths)
            behind = ram_rate(measured(model))
        before = result.hardware["cpu"]["bytes_per_s"]
        rows.append({name: getattr(result, name) for name in KEPT} | {"ram_readings_bytes_per_s": [before, behind]})
        stages = ", ".join(f"{name} {1e3 * value:.1f}" for name, value in result.timings.items())
        print(
            f"{size:3d} sequences: {result.decode_tok_s:7.1f} tok/s of all together; ms of a step: {stages}", flush=True
        )
    ram = statistics.median(reading for row in rows for reading in row["ram_readings_bytes_per_s"])
    print(f"The RAM was read at {ram / 1e9:.1f} GB/s.")
    for row, floor in zip(rows, floors, strict=True):
        row["floor_s_per_token"] = floor(ram)
        row["share_of_floor"] = floor(ram) * row["decode_tok_s"]
        print(f"{row['batch']:3d} sequences: {row['share_of_floor']:.2f} of the floor")
    found = {"vram_bytes": model.vram_bytes, "reached_neurons": n_zero_copy(model), "ram_bytes_per_s": ram}
    return {**found, "rows": rows}


def n_zero_copy(model: LoadedModel) -> int:
    """How many neurons a GPU reads over its bus."""
    return 0 if model.gpu is None else sum(map(len, model.gpu.placement.zero_copy))


def rate_alone(model: LoadedModel, threads: int, n_tokens: int) -> float:
    """Tokens a second of CPU time, of one sequence the usual way: a token is one program of the kernels."""
    transformer, tokens = model.transformer(), random_tokens(model, n_tokens, 1)
    cache = model.new_cache(PROMPT_TOKENS + n_tokens)
    prefill(transformer, random_tokens(model, PROMPT_TOKENS, 1)[:, 0].tolist(), cache)
    started = time.process_time()
    for token in tokens[:, 0].tolist():
        decode_one_token(transformer, token, cache)
    return n_tokens / (time.process_time() - started) * threads


def rate_of_batch(model: LoadedModel, threads: int, size: int, n_tokens: int) -> float:
    """The same of all sequences of a batch together."""
    together, transformer = open_batch(model, size), model.transformer()
    caches = [model.new_cache(PROMPT_TOKENS + n_tokens) for _ in range(size)]
    for row, cache in zip(random_tokens(model, PROMPT_TOKENS, size).T.tolist(), caches, strict=True):
        prefill(transformer, row, cache)
    rows = random_tokens(model, n_tokens, size).tolist()
    started = time.process_time()
    for row in rows:
        decode_batch(together, row, caches)
    return n_tokens * size / (time.process_time() - started) * threads


def random_tokens(model: LoadedModel, n_tokens: int, size: int) -> NDArray[np.int64]:
    """[n_tokens, size]; the same every time."""
    return np.random.default_rng(n_tokens + size).integers(0, model.opened.config.vocab_size, (n_tokens, size))


if __name__ == "__main__":
    sys.exit(main())
