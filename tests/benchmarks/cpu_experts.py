"""Decode of a model with experts without a GPU, as a share of its floor: the bytes of a token at the RAM's read rate.

    python tests/benchmarks/make_model.py dense /tmp/moe-q4_0.gguf --shape qwen3moe-1b --codec q4_0
    python tests/benchmarks/cpu_experts.py /tmp/moe-q4_0.gguf --threads 1,2 --record NAME
    chrt -f 1 python tests/benchmarks/cpu_experts.py ...      # where other programs use the CPUs

Reads by the pool's threads and single tokens alternate. With one thread, times are its CPU time; with several, a sample
counts only if the threads waited for a CPU for less than 2 % of it. Each share is the median over pairs of a token and
the mean of the reads before and after it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from cpu_kernels import RESULTS, waited_ns  # noqa: E402 - found above

from engine.config import EngineConfig  # noqa: E402
from engine.evaluation import bench  # noqa: E402
from engine.machine.hardware import probe  # noqa: E402
from engine.session.generate import decode_one_token  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from native_kernels.cpu.products.bandwidth import ReadProbe  # noqa: E402
from native_kernels.cpu.runtime import isa, pool  # noqa: E402

_MOST_WAIT = 0.02  # share of a sample
_REST_S = 0.03
_READS, _READ_BYTES = 4, 1 << 26  # buffers, read in turns, and the bytes of each


def measure(path: Path, threads: int, seconds: float) -> dict[str, Any]:
    model = LoadedModel.load(path, EngineConfig(device="cpu", threads=threads, context=1024))
    floors: list[bench.Floor] = []
    bench.run(model, 8, 4, 1, tell_floor=floors.append)
    kernels, transformer, cache = model.backend.kernels, model.transformer(), model.new_cache()
    assert kernels is not None, "the reference operators are not measured"
    assert transformer.decoder is not None, "the experts run as one program"
    kernels.pool._started().control[pool._SPINS] = 1 << 20  # a wait must not give the CPU to other programs
    reads = cycle([ReadProbe(kernels.pool, _READ_BYTES) for _ in range(_READS)])
    rng, vocabulary = np.random.default_rng(0), transformer.config.vocab_size
    n_bytes = floors[0](1.0)
    pairs, tokens, before, end = [], 0, _sample(next(reads).seconds, threads), time.perf_counter() + seconds
    while time.perf_counter() < end:
        if cache.length == 256:
            cache.truncate(0)
        token = int(rng.integers(vocabulary))
        taken = _sample(lambda token=token: decode_one_token(transformer, token, cache), threads)
        after = _sample(next(reads).seconds, threads)
        tokens += 1
        if taken and before and after:
            pairs.append((taken, 2 * _READ_BYTES / (before + after)))
        before = after
        if threads > 1:  # other programs, if they have less priority than this one
            time.sleep(_REST_S)
            before = _sample(next(reads).seconds, threads)
    shares = sorted(n_bytes / rate / token for token, rate in pairs)
    return {
        "model": path.stem,
        "threads": threads,
        "share_of_floor": round(statistics.median(shares), 3),
        "quartiles": [round(shares[len(shares) * k // 4], 3) for k in (1, 3)],
        "pairs": [len(pairs), tokens],
        "ms_per_token": round(1e3 * statistics.median(token for token, _ in pairs), 2),
        "read_gb_s": round(statistics.median(rate for _, rate in pairs) / 1e9, 2),
    }


def _sample(run: Any, threads: int) -> float | None:
    """The seconds that it takes: of one thread its CPU time, of several the time unless one waited for a CPU."""
    before, started, own = waited_ns(), time.perf_counter(), time.thread_time()
    run()
    if threads == 1:
        return time.thread_time() - own
    taken = time.perf_counter() - started
    return taken if waited_ns() - before < 1e9 * _MOST_WAIT * taken else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=15.0, help="for each model and number of threads")
    parser.add_argument("--record", help="write the figures to tests/benchmarks/results under this name")
    flags = parser.parse_args()
    rows = []
    for path in flags.paths:
        for threads in map(int, flags.threads.split(",")):
            rows.append(measure(path, threads, flags.seconds))
            print(json.dumps(rows[-1]), flush=True)
    if flags.record:
        about = {"cpu": probe().cpu.name, "instruction_set": isa.chosen().name, "date": time.strftime("%Y-%m-%d")}
        lines = ",\n".join(json.dumps(row) for row in rows)
        text = json.dumps(about)[:-1] + f', "rows": [\n{lines}\n]}}\n'
        (RESULTS / f"{flags.record}.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
