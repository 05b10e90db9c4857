"""What a batch's neurons take on the CPU, call by call, against the memory's speed: union_ffn, by sequences.

    python tests/benchmarks/cpu_union.py                          f16, 1 to 32 sequences, one thread and two
    python tests/benchmarks/cpu_union.py --threads 15 --record    and write tests/benchmarks/results/
    python tests/benchmarks/cpu_union.py --codecs q4_0 --tokens 8 --neurons 8192

Every sequence needs some of the neurons, drawn anew for each layer: neurons differ in how often they are needed (a
gamma distribution of shape 2 around --share), so the union grows as a batch's does. All that are needed fire. The
matrices lie apart, as in PowerInfer's files. The ceiling is a plain streaming read by the same threads, before the
calls and behind them; of those the whole lot is timed, and each by itself. A sample counts only if no thread waited
for a processor meanwhile; printed are medians. A share is that of the bytes of needed rows, each once, of the ceiling.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from cpu_kernels import Team, Weights, arena_of, ceiling, huge_bytes, rates, table_of, waited_ns  # noqa: E402

from native_kernels.cpu.ffn.matrices import FfnMatrices  # noqa: E402
from native_kernels.cpu.ffn.union_ffn import UnionBuffers, Workspace, row_buffer, union_calls  # noqa: E402
from native_kernels.cpu.gemm.gemm import Scratch  # noqa: E402
from native_kernels.cpu.runtime import isa  # noqa: E402
from native_kernels.cpu.runtime.call import Call, aligned_empty  # noqa: E402

RESULTS = Path(__file__).parent / "results"
MOST_WAIT_NS = 50_000
SKEW = 2.0  # shape of the distribution of how often neurons are needed


@dataclass
class Run:
    """One layer's calls, the tables of each of them and of all, and the bytes of the rows that are needed."""

    calls: list[Call]
    each: list[NDArray[np.int64]]
    whole: NDArray[np.int64]
    n_bytes: int


class Union:
    """The layers of one codec for so many sequences and threads."""

    def __init__(self, weights: Weights, d: int, f: int, n_tokens: int, n_threads: int, share: float) -> None:
        rng = np.random.default_rng(n_tokens)
        x, out = aligned_empty((n_tokens, d)), aligned_empty((n_tokens, d))
        x[:] = rng.standard_normal((n_tokens, d))
        tokens, counts = np.array([n_tokens]), np.zeros(5, np.int64)
        one = weights.layers[0]
        work = Workspace(
            Scratch.make(n_threads), row_buffer([one.gate, one.up], n_threads), UnionBuffers.make(n_tokens, f)
        )
        often = np.minimum(0.9, rng.gamma(SKEW, share / SKEW, f))
        self.runs = []
        self.union = self.pairs = 0.0
        for layer in weights.layers:
            needed = rng.random((n_tokens, f)) < often
            words = (needed.astype(np.uint64) << np.arange(n_tokens, dtype=np.uint64)[:, None]).sum(0).astype(np.uint32)
            ffn = FfnMatrices(layer.gate, layer.up, layer.down_t, "relu", -1e30)
            calls = union_calls(ffn, x, tokens, out, work, needed=words, counts=counts)
            n_union = int((words != 0).sum())
            self.runs.append(
                Run(calls, [table_of([call]) for call in calls], table_of(calls), 3 * n_union * weights.row_bytes)
            )
            self.union += n_union / f / len(weights.layers)
            self.pairs += needed.sum() / n_union / len(weights.layers)

    def names(self) -> list[str]:
        """Of the calls, with a number where a kernel runs again."""
        seen: dict[str, int] = defaultdict(int)
        found = []
        for call in self.runs[0].calls:
            seen[call.kernel.name] += 1
            found.append(call.kernel.name + (f" {seen[call.kernel.name]}" if seen[call.kernel.name] > 1 else ""))
        return found

    def measure(self, team: Team, seconds: float) -> tuple[float, dict[str, float]]:
        """GB/s of all calls together, and the microseconds of each."""
        together: list[float] = []
        single: dict[str, list[float]] = defaultdict(list)
        end, turn = time.perf_counter() + seconds, 0
        names = self.names()
        while time.perf_counter() < end or turn < 3:
            run = self.runs[turn % len(self.runs)]
            turn += 1
            before, start = waited_ns(), time.perf_counter_ns()
            team.run(run.whole)
            taken = time.perf_counter_ns() - start
            if waited_ns() - before < MOST_WAIT_NS:
                together.append(run.n_bytes / taken)
            run = self.runs[turn % len(self.runs)]
            turn += 1
            for name, table in zip(names, run.each, strict=True):
                before, start = waited_ns(), time.perf_counter_ns()
                team.run(table)
                taken = time.perf_counter_ns() - start
                if waited_ns() - before < MOST_WAIT_NS:
                    single[name].append(taken / 1000)
        found = {name: float(np.median(single[name])) if single[name] else float("nan") for name in names}
        return float(np.median(together)) if together else float("nan"), found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codecs", default="f16")
    parser.add_argument("--tokens", default="1,2,4,8,16,32")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--width", type=int, default=5120)
    parser.add_argument("--neurons", type=int, default=4096)
    parser.add_argument("--share", type=float, default=0.072, help="of the neurons that one sequence needs")
    parser.add_argument("--gib", type=float, default=1.5, help="of weights")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each number of sequences")
    parser.add_argument("--small-pages", action="store_true", help="pages of 4 KB, as mapped files have")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    arena = arena_of(int(flags.gib * (1 << 30)), not flags.small_pages)
    rows: list[dict[str, Any]] = []
    print(f"{isa.chosen().name}; {flags.neurons} neurons of width {flags.width}, a sequence needs {flags.share:.1%}")
    for codec in flags.codecs.split(","):
        weights = Weights(arena, codec, flags.width, flags.neurons, np.random.default_rng(0), apart=True)
        for n_threads in map(int, flags.threads.split(",")):
            for n_tokens in map(int, flags.tokens.split(",")):
                union = Union(weights, flags.width, flags.neurons, n_tokens, n_threads, flags.share)
                top = {"ceiling": ceiling(arena)}
                team = Team(n_threads)
                first = rates(team, top, flags.seconds / 4)["ceiling"][0]
                rate, each = union.measure(team, flags.seconds)
                second = rates(team, top, flags.seconds / 4)["ceiling"][0]
                team.close()
                most = float(np.nanmax([first, second, 0.0])) or float("nan")
                print(
                    f"{codec} {n_threads} threads, {n_tokens:2d} sequences (union {union.union:.2f}, "
                    f"{union.pairs:.2f} each): "
                    f"{rate:6.2f} of {most:6.2f} GB/s ({rate / most:.2f})  us: "
                    + ", ".join(f"{name} {value:.0f}" for name, value in each.items()),
                    flush=True,
                )
                rows.append(
                    {
                        "codec": codec, "threads": n_threads, "sequences": n_tokens, "union": round(union.union, 4),
                        "sequences_each": round(union.pairs, 3), "gb_s": _number(rate), "ceiling_gb_s": _number(most),
                        "of_ceiling": _number(rate / most),
                        "us": {name: _number(value) for name, value in each.items()},
                    }
                )  # fmt: skip
    if flags.record:
        _record(flags, rows)
    return 0


def _number(value: float) -> float | None:
    """None where no sample counted."""
    return None if np.isnan(value) else round(value, 3)


def _record(flags: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    from engine.machine.hardware import probe

    figures = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": " ".join(["python tests/benchmarks/cpu_union.py", *sys.argv[1:]]),
        "hardware": {"cpu": probe().cpu.name, "logical_cpus": os.cpu_count(), "python": platform.python_version()},
        "instruction_set": isa.chosen().name,
        "bytes_in_huge_pages": huge_bytes(),
        "width": flags.width, "neurons": flags.neurons, "share": flags.share,
        "rows": rows,
    }  # fmt: skip
    file = RESULTS / f"cpu-union-{figures['date']}.json"
    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(f"Written to {file}.")


if __name__ == "__main__":
    raise SystemExit(main())
