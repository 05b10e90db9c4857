"""What a batch's neurons take on the CPU's threads as the engine runs them: gate and up, and down, by sequences.

    python tests/benchmarks/cpu_union_parts.py --threads 15
    python tests/benchmarks/cpu_union_parts.py --threads 15 --codecs f16:5120 --tokens 2,32 --rounds 20
    python tests/benchmarks/cpu_union_parts.py --threads 8 --with needed_down.BUFFER_BYTES=0

All layers are one program of the pool that the engine uses, so that a call has the barrier and the sharing out that it
has there. Together they are several GB, each with needed neurons of its own, as cpu_union draws them. "alone" is the
calls of one sequence, as sparse_ffn has them. A rate is the bytes of needed rows, each once, over the time of the calls
up to the hidden values ("gate and up"), of those behind them ("down") and of both; in brackets its share of the
ceiling, a plain streaming read of the same memory by the same pool. Everything is run in turns, and the best of all
rounds is printed; then the microseconds that each call takes of a layer. --with measures with another value of a
constant that the calls are made with, in turns with the own one. A copy of this file in another state of the code, from
1.0 on, measures that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from cpu_kernels import Layer, Weights, arena_of, huge_bytes, stream  # noqa: E402
from cpu_union import Union  # noqa: E402

from native_kernels.cpu.ffn import sparse_ffn  # noqa: E402
from native_kernels.cpu.ffn.matrices import FfnMatrices  # noqa: E402
from native_kernels.cpu.products import activations, gemv  # noqa: E402
from native_kernels.cpu.runtime import isa  # noqa: E402
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty, arguments  # noqa: E402
from native_kernels.cpu.runtime.pool import Pool, Program  # noqa: E402

STREAM_BYTES = 64 << 20
ALONE = "alone"


@dataclass
class Variant:
    """A program of all layers, the calls of one by name, which of them belong to gate and up, and the bytes of needed
    rows of one of the three matrices, of all layers."""

    program: Program
    names: list[str]
    n_hidden: int
    n_bytes: int
    n_layers: int
    best: dict[str, float] | None = None

    def run(self, pool: Pool) -> None:
        """Once; keeps the seconds of the round in which all calls together took least."""
        self.program.reset_times()
        pool.run(self.program, timed=True)
        found = self.program.stage_seconds()
        if self.best is None or sum(found.values()) < sum(self.best.values()):
            self.best = found

    def seconds(self) -> tuple[float, float]:
        """Of gate and up, and of down."""
        assert self.best is not None, "it has been run"
        taken = [self.best[name] for name in self.names]
        return sum(taken[: self.n_hidden]), sum(taken[self.n_hidden :])


def variant_of(layers: list[list[Call]], n_bytes: int) -> Variant:
    names: list[str] = []
    for call in layers[0]:
        name = call.kernel.name.replace("needed_ffn.", "")
        names.append(name if name not in names else f"{name} {sum(n.startswith(name) for n in names) + 1}")
    calls = [replace(call, stage=name) for layer in layers for name, call in zip(names, layer, strict=True)]
    hidden = [k for k, name in enumerate(names) if "hidden" in name]
    return Variant(Program(calls), names, hidden[-1] + 1, n_bytes, len(layers))


def batch_variant(weights: Weights, d: int, f: int, n_tokens: int, n_threads: int, share: float) -> Variant:
    union = Union(weights, d, f, n_tokens, n_threads, share)
    return variant_of([run.calls for run in union.runs], sum(run.n_bytes for run in union.runs) // 3)


def alone_variant(weights: Weights, codec: str, d: int, f: int, n_threads: int, share: float) -> Variant:
    rng = np.random.default_rng(1)
    x: NDArray[np.float32] = aligned_empty(d)
    x[:] = rng.standard_normal(d)
    form = gemv.vector_format(codec)
    inputs: dict[str, NDArray[Any]] = {"f32": x}
    quantise: list[Call] = []
    if form != "f32":
        inputs[form] = activations.quantised_empty(form, d)
        quantise = activations.quantise_calls(x, inputs[form], form)
    buffers, out = sparse_ffn.Buffers.make(f, d, n_threads), aligned_empty(d)
    n, layers = 0, []

    def calls_of(layer: Layer) -> list[Call]:
        ids = np.flatnonzero(rng.random(f) < share).astype(np.int32)
        nonlocal n
        n += len(ids)
        ffn = FfnMatrices(layer.gate, layer.up, layer.down_t, "relu", -1e30)
        return quantise + sparse_ffn.ffn_calls(ffn, inputs, out, buffers, neurons=Listed.of(ids))

    layers = [calls_of(layer) for layer in weights.layers]
    return variant_of(layers, n * weights.row_bytes)


def ceiling(arena: NDArray[np.uint8], n_threads: int) -> Variant:
    sink, items = aligned_empty(16 * n_threads), STREAM_BYTES // 256
    starts = range(0, arena.size - STREAM_BYTES + 1, STREAM_BYTES)
    words = [arguments(arena[start : start + STREAM_BYTES], sink) for start in starts]
    calls = [Call(stream, one, items, 64, "stream", (sink,), shared=True) for one in words]
    return Variant(Program(calls), ["stream"], 1, len(calls) * STREAM_BYTES, 1)


@contextmanager
def constant(setting: str | None) -> Iterator[None]:
    """module.NAME=integer while calls are made."""
    if setting is None:
        yield
        return
    place, value = setting.split("=")
    module, name = place.split(".")
    of = import_module(f"native_kernels.cpu.{module}")
    own = getattr(of, name)
    setattr(of, name, int(value))
    try:
        yield
    finally:
        setattr(of, name, own)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codecs", default="f16:5120,q4_0:8192", help="with the width of a row")
    parser.add_argument("--tokens", default=f"{ALONE},1,2,4,8,16,32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--neurons", type=int, default=20000)
    parser.add_argument("--share", type=float, default=0.15, help="of the neurons that one sequence needs")
    parser.add_argument("--gib", type=float, default=4.2, help="of weights")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--with", dest="settings", action="append", default=[], help="module.NAME=integer")
    parser.add_argument("--small-pages", action="store_true", help="pages of 4 KB, as mapped files have")
    flags = parser.parse_args()
    arena = arena_of(int(flags.gib * (1 << 30)), not flags.small_pages)
    pool = Pool(flags.threads)
    print(f"{isa.chosen().name}, {flags.threads} threads; {flags.neurons} neurons, a sequence needs {flags.share:.0%}")
    for codec, width in (one.split(":") for one in flags.codecs.split(",")):
        d = int(width)
        weights = Weights(arena, codec, d, flags.neurons, np.random.default_rng(0), apart=True)
        variants: dict[tuple[str, str], Variant] = {}
        for tokens in flags.tokens.split(","):
            for setting in (None, *flags.settings):
                with constant(setting):
                    if tokens == ALONE:
                        made = alone_variant(weights, codec, d, flags.neurons, flags.threads, flags.share)
                    else:
                        made = batch_variant(weights, d, flags.neurons, int(tokens), flags.threads, flags.share)
                variants[tokens, setting or ""] = made
        top = ceiling(arena, flags.threads)
        for _ in range(flags.rounds):
            for variant in (top, *variants.values()):
                variant.run(pool)
        most = top.n_bytes / top.seconds()[0] / 1e9
        print(f"{codec}, {d} wide, {len(weights.layers)} layers: the ceiling is {most:.1f} GB/s", flush=True)
        for (tokens, setting), variant in variants.items():
            hidden, down = variant.seconds()
            rates = [n * variant.n_bytes / s / 1e9 for n, s in ((2, hidden), (1, down), (3, hidden + down))]
            cells = (f"{rate:6.1f} ({rate / most:.2f})" for rate in rates)
            assert variant.best is not None, "all were run"
            each = ", ".join(f"{name} {1e6 * variant.best[name] / variant.n_layers:.0f}" for name in variant.names)
            print(
                "{:>5}  gate and up {}  down {}  both {}  us: {} {}".format(tokens, *cells, each, setting), flush=True
            )
    print(f"{huge_bytes() / (1 << 30):.2f} GiB of the process lay in pages of 2 MB")
    pool.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
