"""How near the CPU kernels come to the memory's speed: every operator, codec and active share, as a ratio.

    python tests/benchmarks/cpu_kernels.py                       print the table, for one thread and for two
    python tests/benchmarks/cpu_kernels.py --record              and write it to tests/benchmarks/results/
    python tests/benchmarks/cpu_kernels.py --codecs q4_0.lanes --operators ffn --threads 1

A figure is the bytes of the weights that an operator has to read over the time it takes; the ceiling is a plain
streaming read by the same threads. Both are sampled in turns, 8 samples each, so that both see the same machine, and a
sample counts only if no thread of the process waited for a processor meanwhile (/proc/self/task/*/schedstat, less than
20 us). What is printed is the median of those. A sample reads at least 8 MB, each time elsewhere in memory: the neurons
are drawn anew, and all weights together are many times the last-level cache.

Operators: gemv (a whole matrix by itself), sparse_gemv (rows of a list), axpy (weighted sum of such rows), ffn (gate,
up and down of the neurons of a list, which all fire) and exact (every gate, then up and down of the share that fires).
The three rows of a neuron lie side by side as in a bundle, those of GGML's blocks, and with --apart all, in matrices of
their own.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import mmap
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
sys.path[:0] = [str(ROOT)]

import numba  # noqa: E402

from native_kernels.backend import PackedMatrix  # noqa: E402
from native_kernels.codecs import ROW_CODECS  # noqa: E402
from native_kernels.cpu.ffn import sparse_ffn  # noqa: E402
from native_kernels.cpu.ffn.matrices import FfnMatrices  # noqa: E402
from native_kernels.cpu.products import activations, gemv  # noqa: E402
from native_kernels.cpu.runtime import isa  # noqa: E402
from native_kernels.cpu.runtime.call import Call, Listed, address, aligned_empty, arguments, run  # noqa: E402
from native_kernels.cpu.runtime.jit import kernel  # noqa: E402
from native_kernels.cpu.runtime.simd import (  # noqa: E402
    add,
    atomic_add,
    atomic_get,
    atomic_put,
    call_kernel,
    floats,
    get_int,
    pause,
    put_float,
    put_int,
    total,
    zero,
)

SHARES = (1.0, 0.2, 0.1, 0.05)
SAMPLE_BYTES = 12 << 20
STREAM_BYTES = 16 << 20
AT_ONCE = 8
MOST_WAIT_NS = 20_000


# --- threads that wait spinning


@kernel
def stream(args: int, lo: int, hi: int, worker: int) -> None:
    """The ceiling: reads 256 bytes an item, in four running sums."""
    start = get_int(args)
    a, b, c, d = zero(), zero(), zero(), zero()
    for i in range(lo, hi):
        at = start + 256 * i
        a, b = add(a, floats(at)), add(b, floats(at + 64))
        c, d = add(c, floats(at + 128)), add(d, floats(at + 192))
    put_float(get_int(args + 8) + 64 * worker, total(add(add(a, b), add(c, d))))


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def run_table(control: int, table: int, n_calls: int, me: int, n: int) -> None:
    """Runs this thread's slice of every call; all threads meet after each."""
    for c in range(n_calls):
        row = table + 32 * c
        n_items, grain = get_int(row + 16), get_int(row + 24)
        pieces = (n_items + grain - 1) // grain
        lo, hi = min(n_items, grain * (pieces * me // n)), min(n_items, grain * (pieces * (me + 1) // n))
        if lo < hi:
            call_kernel(get_int(row), get_int(row + 8), lo, hi, me)
        if n > 1:
            atomic_add(control + 64, 1)
            while atomic_get(control + 64) < n * (c + 1):
                pause()


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def follow(control: int, me: int, n: int) -> None:
    seen = 0  # not what stands there now: the first table may be there already
    while True:
        while atomic_get(control) == seen:
            pause()
        seen = atomic_get(control)
        if seen < 0:
            return
        run_table(control, get_int(control + 192), get_int(control + 200), me, n)
        atomic_add(control + 256, 1)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def lead(control: int, table: int, n_calls: int, n: int) -> None:
    put_int(control + 192, table)
    put_int(control + 200, n_calls)
    put_int(control + 64, 0)
    atomic_put(control + 256, 0)
    atomic_add(control, 1)
    run_table(control, table, n_calls, 0, n)
    while atomic_get(control + 256) < n - 1:
        pause()


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def dismiss(control: int) -> None:
    atomic_put(control, -1)


class Team:
    """The calling thread and n - 1 others."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.control = aligned_empty(64, np.int64)
        for function, n_arguments in ((lead, 4), (follow, 3), (dismiss, 1)):
            function.compile((numba.types.int64,) * n_arguments)
        self.others = [
            threading.Thread(target=follow, args=(address(self.control), me, n), daemon=True) for me in range(1, n)
        ]
        for other in self.others:
            other.start()

    def run(self, table: NDArray[np.int64]) -> None:
        lead(address(self.control), address(table), len(table), self.n)

    def close(self) -> None:
        dismiss(address(self.control))
        for other in self.others:
            other.join()


def table_of(calls: list[Call]) -> NDArray[np.int64]:
    table: NDArray[np.int64] = aligned_empty((len(calls), 4), np.int64)
    for row, call in zip(table, calls, strict=True):
        row[:] = call.kernel.address, address(call.args), call.count(), call.grain
    return table


# --- measuring


@dataclass
class Variant:
    """What is timed: tables run in turns, each reading so many bytes of weights."""

    tables: list[NDArray[np.int64]]
    n_bytes: float
    keeps: list[Call]


def waited_ns() -> int:
    """Time that the threads of this process have waited for a processor so far; 0 where the system does not tell."""
    found = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            found += int(task.read_text().split()[1])
        except OSError:
            continue
    return found


def rates(team: Team, variants: dict[str, Variant], seconds: float) -> dict[str, tuple[float, int]]:
    """GB/s of each, the median of the samples that count, and how many those were."""
    kept: dict[str, list[float]] = {name: [] for name in variants}
    turn = dict.fromkeys(variants, 0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, variant in variants.items():
            for _ in range(AT_ONCE):
                table = variant.tables[turn[name] % len(variant.tables)]
                turn[name] += 1
                before = waited_ns()
                start = time.perf_counter_ns()
                team.run(table)
                taken = time.perf_counter_ns() - start
                if waited_ns() - before < MOST_WAIT_NS:
                    kept[name].append(variant.n_bytes / taken)
    return {name: (float(np.median(found)) if found else float("nan"), len(found)) for name, found in kept.items()}


def arena_of(n_bytes: int, huge_pages: bool) -> NDArray[np.uint8]:
    """Zeroed anonymous memory, backed by pages of 2 MB or of 4 KB as asked."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        memory = mmap.mmap(-1, n_bytes + (1 << 21))
    else:  # private: shared memory is not given large pages
        memory = mmap.mmap(-1, n_bytes + (1 << 21), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE if huge_pages else mmap.MADV_NOHUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    start = -whole.ctypes.data % (1 << 21)
    return whole[start : start + n_bytes]


def huge_bytes() -> int:
    """How much of this process lies in pages of 2 MB."""
    try:
        text = Path("/proc/self/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("AnonHugePages")), 0)


@dataclass
class Layer:
    gate: PackedMatrix
    up: PackedMatrix
    down_t: PackedMatrix


class Weights:
    """Layers of one codec in one arena, filled with bytes whose scales are small float16."""

    def __init__(
        self, arena: NDArray[np.uint8], codec: str, d: int, f: int, rng: np.random.Generator, apart: bool = False
    ) -> None:
        self.row_bytes = ROW_CODECS[codec].n_bytes(d)
        if codec in ("f32", "f16", "bf16"):
            values = (rng.standard_normal((64, d)) / 64).astype(np.float32)
            pattern = np.ascontiguousarray(PackedMatrix.pack(values, codec).data).view(np.uint8).reshape(-1)
        else:
            pattern = rng.integers(0, 256, 1 << 20, dtype=np.uint8) & np.uint8(0x2B)
        for start in range(0, arena.size, pattern.size):
            arena[start : start + pattern.size] = pattern[: arena.size - start]
        bundle = not apart and ("." in codec or codec in ("f32", "f16", "bf16"))
        padded = -(-self.row_bytes // 64) * 64 if bundle else self.row_bytes
        of_layer = 3 * padded * f
        whole = arena[: arena.size // (padded * f) * padded * f].reshape(-1, f, padded)
        self.matrices = [PackedMatrix(f, d, codec, self._typed(one[:, : self.row_bytes], codec)) for one in whole]
        self.layers = []
        for start in range(0, arena.size - of_layer + 1, of_layer):
            part = arena[start : start + of_layer]
            if bundle:  # the rows of a neuron side by side
                side = part.reshape(f, 3, padded)
                rows = [side[:, k, : self.row_bytes] for k in range(3)]
            else:
                rows = list(part.reshape(3, f, padded))
            self.layers.append(Layer(*(PackedMatrix(f, d, codec, self._typed(one, codec)) for one in rows)))

    @staticmethod
    def _typed(rows: NDArray[np.uint8], codec: str) -> NDArray[Any]:
        return rows.view({"f32": np.float32, "f16": np.float16}.get(codec, np.uint8))


class Bench:
    """The variants of one codec and one number of threads."""

    def __init__(self, weights: Weights, codec: str, d: int, f: int, n_threads: int, rng: np.random.Generator) -> None:
        self.weights, self.codec, self.d, self.f, self.rng = weights, codec, d, f, rng
        self.x = aligned_empty(d)
        self.x[:] = rng.standard_normal(d)
        form = gemv.vector_format(codec)
        self.inputs: dict[str, NDArray[Any]] = {"f32": self.x}
        if form != "f32":
            self.inputs[form] = activations.quantised_empty(form, d)
        self.form = form
        self.quantise = [] if form == "f32" else activations.quantise_calls(self.x, self.inputs[form], form)
        self.out = aligned_empty(max(d, f))
        self.n_threads = n_threads

    def _variant(self, n_bytes: float, make: Callable[[Layer], list[Call]]) -> Variant:
        """Tables of whole calls of about SAMPLE_BYTES, together half a GB of reading."""
        each = max(1, round(SAMPLE_BYTES / n_bytes))
        n_tables = max(4, round((1 << 29) / (each * n_bytes)))
        layers = itertools.cycle(self.weights.layers)
        programs = [[call for _ in range(each) for call in make(next(layers))] for _ in range(n_tables)]
        keeps = [call for program in programs for call in program]
        return Variant([table_of(program) for program in programs], each * n_bytes, keeps)

    def _draw(self, share: float) -> NDArray[np.int32]:
        k = max(1, round(self.f * share))
        drawn = np.arange(self.f) if k == self.f else np.sort(self.rng.permutation(self.f)[:k])
        return drawn.astype(np.int32)

    def _buffers(self) -> sparse_ffn.Buffers:
        return sparse_ffn.Buffers.make(self.f, self.d, self.n_threads)

    def gemv(self, share: float) -> Variant:
        x = self.inputs[self.form]
        n_bytes = self.f * self.weights.row_bytes
        matrices = itertools.cycle(self.weights.matrices)
        return self._variant(n_bytes, lambda _: self.quantise + gemv.gemv_calls(next(matrices), x, self.out))

    def sparse_gemv(self, share: float) -> Variant:
        x = self.inputs[self.form]
        n_bytes = len(self._draw(share)) * self.weights.row_bytes
        return self._variant(
            n_bytes,
            lambda one: self.quantise + gemv.gemv_calls(one.up, x, self.out, listed=Listed.of(self._draw(share))),
        )

    def axpy(self, share: float) -> Variant:
        shared = self._buffers()

        def make(one: Layer) -> list[Call]:
            ids = self._draw(share)
            h = self.rng.standard_normal(self.f).astype(np.float32)
            own = replace(shared, h=h, ids=np.resize(ids, self.f), n=np.array([len(ids)]))
            return sparse_ffn.axpy_calls(one.down_t, own, self.out[: self.d])

        return self._variant(len(self._draw(share)) * self.weights.row_bytes, make)

    def ffn(self, share: float) -> Variant:
        buffers = self._buffers()

        def make(one: Layer) -> list[Call]:
            ids = self._draw(share)
            ffn = FfnMatrices(one.gate, one.up, one.down_t, "relu", -1e30)
            calls = sparse_ffn.ffn_calls(ffn, self.inputs, self.out[: self.d], buffers, neurons=Listed.of(ids))
            return self.quantise + calls

        return self._variant(3 * len(self._draw(share)) * self.weights.row_bytes, make)

    def exact(self, share: float) -> Variant:
        """Thresholds at which the wanted share of the gates fires, found by running the gates once."""
        buffers = self._buffers()
        fired = len(self._draw(share))
        thresholds: dict[int, float] = {}

        def make(one: Layer) -> list[Call]:
            if id(one) not in thresholds:
                run(self.quantise + gemv.gemv_calls(one.gate, self.inputs[self.form], self.out[: self.f]))
                gates = np.sort(self.out[: self.f])
                thresholds[id(one)] = -1e30 if fired == self.f else float(gates[self.f - fired - 1])
            ffn = FfnMatrices(one.gate, one.up, one.down_t, "relu", thresholds[id(one)])
            return self.quantise + sparse_ffn.ffn_calls(ffn, self.inputs, self.out[: self.d], buffers)

        return self._variant((self.f + 2 * fired) * self.weights.row_bytes, make)


def ceiling(arena: NDArray[np.uint8]) -> Variant:
    sink = aligned_empty(1024)
    pieces = range(0, arena.size - STREAM_BYTES + 1, STREAM_BYTES)
    calls = [
        Call(stream, arguments(arena[start : start + STREAM_BYTES], sink), STREAM_BYTES // 256, keeps=(sink,))
        for start in pieces
    ]
    return Variant([table_of([call]) for call in calls], STREAM_BYTES, calls)


OPERATORS = ("gemv", "sparse_gemv", "axpy", "ffn", "exact")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--codecs", default="f16,q4_0.lanes,q8_0.lanes,q4_0,q8_0,bf16,f32")
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--neurons", type=int, default=11008)
    parser.add_argument("--gib", type=float, default=1.5, help="of weights")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each operator of a codec and its ceiling")
    parser.add_argument("--apart", action="store_true", help="a neuron's rows in matrices of their own, as files have")
    parser.add_argument("--small-pages", action="store_true", help="pages of 4 KB, as mapped files have")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    arena = arena_of(int(flags.gib * (1 << 30)), not flags.small_pages)
    rng = np.random.default_rng(0)
    rows = []
    print(f"{isa.chosen().name}; width {flags.width}, {flags.neurons} neurons; GB/s (share of the ceiling; samples)")
    for codec in flags.codecs.split(","):
        weights = Weights(arena, codec, flags.width, flags.neurons, rng, flags.apart)
        for n_threads in map(int, flags.threads.split(",")):
            bench = Bench(weights, codec, flags.width, flags.neurons, n_threads, rng)
            for operator in flags.operators.split(","):
                shares = SHARES[:1] if operator == "gemv" else SHARES
                variants = {"ceiling": ceiling(arena)}
                variants |= {f"{share:.0%}": getattr(bench, operator)(share) for share in shares}
                team = Team(n_threads)  # not before the tables are made: its threads spin
                found = rates(team, variants, flags.seconds)
                team.close()
                top = found["ceiling"][0]
                cells = {name: rate for name, rate in found.items() if name != "ceiling"}
                words = [f"{name}: {rate:5.1f} ({rate / top:.2f}; {n})" for name, (rate, n) in cells.items()]
                print(f"{codec:10} {n_threads} {operator:11} [{top:5.1f}]  {'  '.join(words)}", flush=True)
                rows.append(
                    {
                        "codec": codec,
                        "threads": n_threads,
                        "operator": operator,
                        "ceiling_gb_s": rounded(top, 2),
                        "gb_s": {name: rounded(rate, 2) for name, (rate, _) in cells.items()},
                        "of_ceiling": {name: rounded(rate / top, 3) for name, (rate, _) in cells.items()},
                        "samples": {name: n for name, (_, n) in found.items()},
                    }
                )
    print(f"{huge_bytes() / (1 << 30):.2f} GiB of the process lay in pages of 2 MB")
    if flags.record:
        record(flags, rows)
    return 0


def rounded(value: float, digits: int) -> float | None:
    """None where no sample counted."""
    return None if np.isnan(value) else round(value, digits)


def record(flags: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    from engine.machine.hardware import probe

    figures = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": " ".join(["python tests/benchmarks/cpu_kernels.py", *sys.argv[1:]]),
        "hardware": {"cpu": probe().cpu.name, "logical_cpus": os.cpu_count(), "python": platform.python_version()},
        "instruction_set": isa.chosen().name,
        "bytes_in_huge_pages": huge_bytes(),
        "width": flags.width,
        "neurons": flags.neurons,
        "rows": rows,
    }
    pages = "-small-pages" if flags.small_pages else ""
    file = RESULTS / f"cpu-kernels{pages}-{figures['date']}.json"
    file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
