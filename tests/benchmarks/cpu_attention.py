"""Attention of one token over long KV caches: bytes of keys and values per second, as a share of streaming reads.

    python tests/benchmarks/cpu_attention.py                     shapes of 1B, 7B, 70B and Falcon 7B, every codec
    python tests/benchmarks/cpu_attention.py --positions 32768 --threads 2 --record

A sample runs attention over layers that lie together in about 16 MB of a cache far larger than the last-level cache,
or reads as many bytes in one stream, which is the ceiling; both with the same threads of the engine's own pool, in
turns. A sample counts if the process's threads waited for a processor for less than 20 us, or 2 % of a longer one.
Medians are given, and the fastest tenth of both, which neighbours on the machine disturb least. The last figure of a
row is the compiled prefill attention of 512 tokens, in billions of multiplications and additions a second (causal:
half of all pairs), without a ceiling.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
sys.path[:0] = [str(ROOT)]

from native_kernels import kv_blocks  # noqa: E402 - found by the line above
from native_kernels.cpu.attention.attention import attention_buffers, attention_calls  # noqa: E402
from native_kernels.cpu.attention.kv_store import CachePlace  # noqa: E402
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments  # noqa: E402
from native_kernels.cpu.runtime.jit import kernel  # noqa: E402
from native_kernels.cpu.runtime.pool import Pool, Program  # noqa: E402
from native_kernels.cpu.runtime.simd import LANES, add, floats, get_int, put_float, total, zero  # noqa: E402
from native_kernels.kv_blocks import KV_CODECS, KvCodec, KvLayout  # noqa: E402

SAMPLE_BYTES = 16 << 20
CACHE_BYTES = 512 << 20
WAITED_NS = 20_000
WAITED_SHARE = 0.02  # of a sample that is longer than a few ms


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int


SHAPES = {
    "1b": Shape(32, 4, 64),
    "7b": Shape(32, 32, 128),
    "70b": Shape(64, 8, 128),
    "falcon-7b": Shape(71, 1, 64),
}


@kernel
def stream(args: int, lo: int, hi: int, worker: int) -> None:
    """Reads 256 bytes an item, in four running sums. args: from where, a number for each worker."""
    a, b, c, d = zero(), zero(), zero(), zero()
    for i in range(lo, hi):
        at = get_int(args) + 256 * i
        for o in range(0, 256, 16 * LANES):
            a, b = add(a, floats(at + o)), add(b, floats(at + o + 4 * LANES))
            c, d = add(c, floats(at + o + 8 * LANES)), add(d, floats(at + o + 12 * LANES))
    put_float(get_int(args + 8) + 64 * worker, total(add(add(a, b), add(c, d))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--codec", choices=KV_CODECS, action="append")
    parser.add_argument("--positions", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    pool = Pool(flags.threads)
    rows = []
    print(f"{flags.threads} threads, {flags.positions} positions: GB/s of keys and values, share of streaming reads")
    for name in flags.shape or SHAPES:
        for codec in flags.codec or KV_CODECS:
            row = measure(pool, SHAPES[name], codec, flags.positions, flags.seconds)
            rows.append({"shape": name, "codec": codec, **row})
            print(
                f"{name:10} {codec:5} {row['gb_s']:6.1f} of {row['ceiling_gb_s']:6.1f}: {row['share']:.2f}, "
                f"fastest tenth {row['share_fastest_tenth']:.2f} ({row['samples']} samples)   "
                f"prefill {row['prefill_g_per_s']:.0f} G/s"
            )
    pool.close()
    if flags.record:
        from engine.machine.hardware import probe

        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/cpu_attention.py", *sys.argv[1:]]),
            "hardware": {"cpu": probe().cpu.name, "logical_cpus": os.cpu_count(), "python": platform.python_version()},
            "threads": flags.threads,
            "positions": flags.positions,
            "rows": rows,
        }
        file = RESULTS / f"cpu-attention-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(pool: Pool, shape: Shape, codec: KvCodec, positions: int, seconds: float) -> dict[str, Any]:
    layout = KvLayout(shape.head_dim, codec)
    layer_bytes = shape.kv_heads * layout.n_blocks(positions) * layout.block_bytes
    per_sample = max(1, round(SAMPLE_BYTES / layer_bytes))
    n_layers = max(2, CACHE_BYTES // (layer_bytes * per_sample)) * per_sample
    blocks = kv_blocks.allocate(n_layers, shape.kv_heads, positions, layout)
    filled = np.random.default_rng(1).standard_normal((positions, shape.kv_heads, shape.head_dim), np.float32)
    kv_blocks.write(blocks[0], layout, 0, filled, filled[::-1].copy())
    blocks[1:] = blocks[0]
    words = np.array([positions - 1, blocks.ctypes.data, layer_bytes], np.int64)
    place = CachePlace(words[:1], words[1:2], words[2:], layout, shape.kv_heads)
    q = np.random.default_rng(2).standard_normal((1, shape.heads, shape.head_dim), np.float32)
    buffers = attention_buffers(shape.heads, shape.kv_heads, layout, 1, pool.n_threads)
    out, sums = np.empty_like(q), aligned_empty((pool.n_threads, 16))
    n_bytes = per_sample * layer_bytes

    def attend(first: int) -> list[Call]:
        return [call for i in range(per_sample) for call in attention_calls(q, out, place, first + i, buffers)]

    def read(first: int) -> list[Call]:
        args = arguments(blocks[first], sums)
        return [Call(stream, args, n_bytes // 256, 64, "", (blocks, sums))]

    starts = range(0, n_layers, per_sample)
    programs = [[Program(make(start)) for start in starts] for make in (attend, read)]
    kept: list[list[float]] = [[], []]
    waited_less(lambda: [pool.run(one) for both in programs for one in both])
    until, turn = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for which in range(2):  # each over its own half of the turn, so that neither finds what the other has read
            at = (turn + which * (len(starts) // 2)) % len(starts)
            taken = waited_less(lambda which=which, at=at: pool.run(programs[which][at]))  # type: ignore[misc]
            if taken is not None:
                kept[which].append(taken)
        turn += 1
    rates = [n_bytes / statistics.median(times) / 1e9 if times else float("nan") for times in kept]
    fastest = [n_bytes / sorted(times)[len(times) // 10] / 1e9 if times else float("nan") for times in kept]
    return {
        "gb_s": rates[0],
        "ceiling_gb_s": rates[1],
        "share": rates[0] / rates[1],
        "share_fastest_tenth": fastest[0] / fastest[1],
        "samples": min(map(len, kept)),
        "prefill_g_per_s": prefill_rate(pool, shape, place, words, seconds / 4),
    }


def prefill_rate(pool: Pool, shape: Shape, place: CachePlace, words: np.ndarray, seconds: float) -> float:
    """Of the 512 first tokens, keys and values being there."""
    words[0], n = 0, 512
    q = np.random.default_rng(3).standard_normal((n, shape.heads, shape.head_dim), np.float32)
    out = np.empty_like(q)
    buffers = attention_buffers(shape.heads, place.n_kv_heads, place.layout, n, pool.n_threads)
    program = Program(attention_calls(q, out, place, 0, buffers))
    times, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        taken = waited_less(lambda: pool.run(program))
        times += [] if taken is None else [taken]
    products = 2 * shape.heads * shape.head_dim * n * (n + 1) / 2
    return products / statistics.median(times) / 1e9 if times else float("nan")


def waited_less(work: Callable[[], object]) -> float | None:
    """Seconds that it took; None where a thread waited for a processor meanwhile."""
    waited, started = waited_ns(), time.perf_counter()
    work()
    taken = time.perf_counter() - started
    return taken if waited_ns() - waited < max(WAITED_NS, WAITED_SHARE * 1e9 * taken) else None


def waited_ns() -> int:
    total_ns = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        total_ns += int(task.read_text(encoding="ascii").split()[1])
    return total_ns


if __name__ == "__main__":
    sys.exit(main())
