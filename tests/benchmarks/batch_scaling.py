"""Decode of several sequences at once on the processor: the rate of all of them together, by their number.

    python tests/benchmarks/batch_scaling.py                              the starter model, 1 to 16 sequences
    python tests/benchmarks/batch_scaling.py --mode exact --record        and write tests/benchmarks/results/

The sizes take turns, round by round, and the fastest round of each counts. Time is processor time over the number of
threads, so that a machine which others use as well tells of the kernels alone. `engine bench --batch` measures one
size by the clock, also on a card.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from engine.batch import open_batch  # noqa: E402 - found by the line above
from engine.config import EngineConfig  # noqa: E402
from engine.generate import decode_batch, decode_one_token, prefill  # noqa: E402
from engine.hardware import probe  # noqa: E402
from engine.session import LoadedModel  # noqa: E402

RESULTS = Path(__file__).parent / "results"
SIZES = (1, 2, 4, 8, 16)
PROMPT_TOKENS = 16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="starter-chat")
    parser.add_argument("--mode", choices=("sparse", "exact", "dense"), default="exact")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gen-tokens", type=int, default=48)
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    load_before = os.getloadavg()[0]
    config = EngineConfig(device="cpu", mode=flags.mode, threads=flags.threads, context=256, sequences=max(SIZES))
    model = LoadedModel.load(flags.model, config)
    best = dict.fromkeys(SIZES, 0.0)
    alone = 0.0
    for _ in range(flags.rounds):
        alone = max(alone, rate_alone(model, flags.threads, flags.gen_tokens))
        for size in SIZES:
            best[size] = max(best[size], rate_of_batch(model, flags.threads, size, flags.gen_tokens))
    print(f"alone, as answers are: {alone:7.1f} tok/s")
    for size, rate in best.items():
        print(f"{size:3d} sequences: {rate:7.1f} tok/s of all together")
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/batch_scaling.py", *sys.argv[1:]]),
            "hardware": {"cpu": probe().cpu.name, "logical_cpus": os.cpu_count(), "python": platform.python_version()},
            "load_before": load_before, "model": flags.model, "mode": flags.mode, "threads": flags.threads,
            "alone_tok_s": alone,
            "rows": [{"batch": size, "decode_tok_s": rate} for size, rate in best.items()],
        }  # fmt: skip
        file = RESULTS / f"batch-scaling-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0


def rate_alone(model: LoadedModel, threads: int, n_tokens: int) -> float:
    """Tokens a second of processor time, of one sequence the usual way: a token is one program of the kernels."""
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
