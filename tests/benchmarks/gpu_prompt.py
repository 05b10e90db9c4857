"""Where the time of a long question goes on the GPU, kernel by kernel, and our products beside cuBLAS.

    python tests/benchmarks/gpu_prompt.py 70b-q4_0.gguf --budget 24 --in-memory
    python tests/benchmarks/gpu_prompt.py 32b-f16.gguf --budget 24 --tokens 512 --record
    python tests/benchmarks/gpu_prompt.py 32b-f16.gguf --budget 24 --own-products
    python tests/benchmarks/gpu_prompt.py --products --rows

Questions of random tokens are read until the cold neurons come as they will from then on. The quickest of some more is
the time that counts; after it one is read with marks around every kernel, which costs some percent. What the stream of
the products is not busy with kernels for, it waits: for cold neurons, or for Python to ask. `--products` multiplies
512 positions with matrices as large as they occur, by our kernels and, where PyTorch for CUDA has brought it, by cuBLAS
with all that belongs to a product. Without `--own-products` and `--library` the engine decides who multiplies.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from gpu_anchors import found_in_memory  # noqa: E402 - found by the lines above

from engine.config import EngineConfig  # noqa: E402
from engine.gpu.prefill import prompts  # noqa: E402
from engine.machine.hardware import probe  # noqa: E402
from engine.session.generate import prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from native_kernels.codecs import ROW_CODECS  # noqa: E402
from native_kernels.cuda.cublas_products import LibraryProducts  # noqa: E402
from native_kernels.cuda.cublas_trial import use_library  # noqa: E402
from native_kernels.cuda.gpu import GpuMatrix, GpuNorm  # noqa: E402
from native_kernels.cuda.layouts import PLANE_FIELDS, plane_row_bytes  # noqa: E402
from native_kernels.cuda.operands import Product  # noqa: E402
from native_kernels.cuda.prefill_ops import GpuPrefillOps, Tile  # noqa: E402
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, StoredMatrix  # noqa: E402
from native_kernels.cuda.runtime import cublas  # noqa: E402
from native_kernels.cuda.runtime.cublas import LibraryFile, LibraryUnavailableError  # noqa: E402
from native_kernels.cuda.runtime.driver import Device, Event, Function, Launch, Stream  # noqa: E402
from native_kernels.cuda.runtime.memory import DeviceMemory  # noqa: E402

RESULTS = Path(__file__).parent / "results"
SETTLING_S = 60.0  # for what is done behind the load
ROUNDS = 3
# Positions, outputs, depth: gate or up and down of 70B in pieces, queries of 70B and 32B, a whole gate.
PRODUCTS = ((512, 2048, 8192), (512, 4096, 8192), (512, 8192, 2048), (512, 8192, 4096), (512, 8192, 8192),
            (512, 5120, 5120), (512, 28672, 8192), (128, 4096, 8192))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--budget", type=float, metavar="GIB", help="default: what the GPU has free")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--in-memory", action="store_true", help="the model's file lies in memory: it counts as free")
    parser.add_argument("--products", action="store_true")
    by = parser.add_mutually_exclusive_group()
    by.add_argument("--own-products", action="store_true", help="as if there were no cuBLAS")
    by.add_argument("--library", action="store_true", help="by cuBLAS, even where it is not faster")
    parser.add_argument("--older", action="store_true", help="products as GPUs before compute capability 9.0 make them")
    parser.add_argument("--rows", action="store_true", help="kernels beside the products, as 70B needs them")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    if flags.own_products:
        cublas.find = without_library
    if flags.library:
        prompts.use_library = partial(use_library, is_forced=True)
    found: dict[str, Any] = {}
    if flags.products:
        found["products"] = products(flags.older)
    if flags.rows:
        found["rows"] = rows()
    if flags.model is not None:
        found["prompt"] = of_model(flags)
        print(in_words(found["prompt"]))
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/gpu_prompt.py", *sys.argv[1:]]),
            "hardware": probe().to_json(), **found,
        }  # fmt: skip
        of = "products" if flags.model is None else flags.model.stem
        file = RESULTS / f"gpu-prompt-{of}-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0


def without_library() -> LibraryFile:
    """In place of native_kernels.cuda.runtime.cublas.find."""
    raise LibraryUnavailableError("it is left out, as requested")


# --- a question


@dataclass
class Launches:
    """Marks around every kernel that is launched while `watched`."""

    device: Device
    of: dict[tuple[int, str], list[tuple[Event, Event]]] = field(default_factory=dict)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        usual, prepared, multiply = Function.launch, Launch.__call__, LibraryProducts.multiply

        def marked(stream: Stream, name: str, work: Callable[[], None]) -> None:
            before, after = Event(self.device), Event(self.device)
            before.record(stream)
            work()
            after.record(stream)
            self.of.setdefault((stream.handle, name), []).append((before, after))

        def launch(function: Function, stream: Stream, *args: Any, **named: Any) -> None:
            marked(stream, function.name, lambda: usual(function, stream, *args, **named))

        def again(one: Launch) -> None:
            marked(one.stream, one.function.name, lambda: prepared(one))

        def product(library: LibraryProducts, one: Product) -> None:
            marked(library.stream, f"cublas_{one.kind}", lambda: multiply(library, one))

        Function.launch = launch  # type: ignore[method-assign, assignment]
        Launch.__call__ = again  # type: ignore[method-assign, assignment]
        LibraryProducts.multiply = product  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Function.launch = usual  # type: ignore[method-assign]
            Launch.__call__ = prepared  # type: ignore[method-assign]
            LibraryProducts.multiply = multiply  # type: ignore[method-assign]

    def seconds(self) -> dict[int, dict[str, tuple[int, float]]]:
        """Of every stream: kernel -> how many, and seconds of all of them. The work must be done."""
        found: dict[int, dict[str, tuple[int, float]]] = {}
        for (stream, name), marks in self.of.items():
            took = sum(after.seconds_since(before) for before, after in marks)
            found.setdefault(stream, {})[name] = (len(marks), took)
        for marks in self.of.values():
            for pair in marks:
                for mark in pair:
                    mark.close()
        self.of.clear()
        return found


def of_model(flags: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a question, and of each kernel's launches in one."""
    engine = EngineConfig(
        device="cuda", threads=flags.threads, context=max(512, flags.tokens + 64), vram_budget_gib=flags.budget
    )
    with tempfile.TemporaryDirectory() as folder:
        if flags.in_memory:
            engine = found_in_memory(engine, flags.model, folder)
        model = LoadedModel.load(flags.model, engine)
    try:
        question(model, flags.tokens, 0)
        model.wait_for_weights(SETTLING_S)
        took = min(question(model, flags.tokens, i) for i in range(1, 1 + ROUNDS))
        assert model.gpu is not None, "it runs on a GPU"
        speed = model.gpu.streaming_speed
        rates = model.gpu.measure_streaming()
        launches = Launches(Device(0))
        with launches.watched():
            marked = question(model, flags.tokens, 1 + ROUNDS)
        streams = launches.seconds()
        gathering = {name: one for of in streams.values() for name, one in of.items() if name == "gather_rows"}
        kernels = {name: one for of in streams.values() for name, one in of.items() if name not in gathering}
        return {
            "model": model.name, "device": model.device_reason, "products": model.gpu.products,
            "threads": model.threads, "tokens": flags.tokens,
            "seconds": took, "marked_seconds": marked, "way": model.gpu.streaming_way,
            "cold_bytes": speed.cold_bytes if rates else 0, "bus_bytes_per_s": rates and rates.bus,
            "filling_bytes_per_s": rates and rates.filling,
            "kernels": {name: {"calls": n, "seconds": s} for name, (n, s) in kernels.items()},
            "gathering": {name: {"calls": n, "seconds": s} for name, (n, s) in gathering.items()},
        }  # fmt: skip
    finally:
        model.close()


def question(model: LoadedModel, n_tokens: int, seed: int) -> float:
    """Seconds until the last hidden state of a question is there."""
    tokens = np.random.default_rng([n_tokens, seed]).integers(0, model.opened.config.vocab_size, n_tokens)
    cache = model.new_cache()
    began = time.perf_counter()
    with model.undisturbed():
        prefill(model.transformer(), tokens.tolist(), cache)
    return time.perf_counter() - began


def in_words(found: dict[str, Any]) -> str:
    """The figures as lines."""
    marked, busy = found["marked_seconds"], sum(one["seconds"] for one in found["kernels"].values())
    lines = [
        f"{found['model']}: {found['tokens']} tokens in {1e3 * found['seconds']:.0f} ms, with marks "
        f"{1e3 * marked:.0f}; {found['device']}"
    ]
    if found.get("products"):
        lines.append(found["products"])
    if found["cold_bytes"]:
        least = found["cold_bytes"] / found["bus_bytes_per_s"]
        lines.append(
            f"cold neurons: {found['cold_bytes'] / 1e9:.1f} GB, {1e3 * least:.0f} ms over the bus; they came by: "
            f"{found['way']}"
        )
    for group in ("kernels", "gathering"):
        for name, one in sorted(found[group].items(), key=lambda item: -item[1]["seconds"]):
            each = 1e6 * one["seconds"] / one["calls"]
            share = one["seconds"] / marked
            lines.append(
                f"  {name:24} {one['calls']:6} x {each:8.1f} us = {1e3 * one['seconds']:7.1f} ms ({share:.0%})"
            )
    lines.append(f"  the products' stream waited {1e3 * (marked - busy):.1f} ms ({1 - busy / marked:.0%})")
    return "\n".join(lines)


# --- products


def products(older: bool = False) -> list[dict[str, Any]]:
    """Operations a second of our products, and of cuBLAS's with what belongs to them; positions and rows of halves."""
    device = Device(0)
    device.enter()
    stream, copies = Stream(device), Stream(device)
    ops = GpuPrefillOps(device, stream, copies)
    if older:
        ops.wgmma = None
    print(use_library(ops, is_forced=True)[1])
    library, found = ops.library, []
    for n_tokens, n_out, depth in PRODUCTS:
        work = 2 * n_tokens * n_out * depth
        row: dict[str, Any] = {"positions": n_tokens, "outputs": n_out, "depth": depth}
        words = f"{n_tokens} x {depth} x {n_out}, TFLOP/s:"
        for whose, ops.library in (("own", None), ("cublas", library))[: 1 if library is None else 2]:
            words += f" {whose}"
            for name, seconds in own_seconds(device, ops, stream, n_tokens, n_out, depth).items():
                row[f"{whose}_{name}_flop_per_s"] = work / seconds
                words += f" {name} {work / seconds / 1e12:.0f} ({1e6 * seconds:.0f} us)"
        found.append(row)
        print(words, flush=True)
    ops.close()
    return found


def rows(n_tokens: int = 512, n: int = 8192, n_neurons: int = 2048) -> list[dict[str, Any]]:
    """Seconds and bytes a second of what makes halves: of neurons' rows in each codec, of hidden values and of rows."""
    device = Device(0)
    device.enter()
    stream, copies = Stream(device), Stream(device)
    ops = GpuPrefillOps(device, stream, copies)
    space = DeviceMemory(device, 1 << 28)
    stream.fill(space.address, 0, space.n_bytes)
    at, to = space.address, space.address + (1 << 27)
    halves, counts, factors = to, to + (1 << 25), to + (1 << 25) + (1 << 20)
    hidden, up, wide = (Rows(at + i * (1 << 25), step) for i, step in ((0, n_neurons), (1, n_neurons), (2, n)))
    norm = GpuNorm("rms", at, 0, 1e-5)
    work: dict[str, tuple[Any, float]] = {
        "activate_rows": (
            lambda: ops.activate(
                hidden, up, n_tokens, n_neurons, "silu", 0.0, RoundedRows(halves, n_neurons, factors), counts
            ),
            14 * n_tokens * n_neurons,
        ),
        "round_rows": (lambda: ops.round(wide, n_tokens, n, RoundedRows(halves, n, factors), norm), 6 * n_tokens * n),
    }
    for codec in (*PLANE_FIELDS, "q4_0.lanes"):
        row_bytes = ROW_CODECS[codec].n_bytes(n)
        stored = StoredMatrix(n_neurons, n, codec, at, -(-row_bytes // 16) * 16)
        size = n_neurons * (row_bytes + 2.0 * n)
        work[f"stored_{codec}"] = (lambda w=stored: ops.dequantise(w, 0, n_neurons, 0, n, to, n)), size
        if not codec.endswith(".lanes"):
            planes = tuple(at + i * (1 << 25) for i in range(len(plane_row_bytes(codec, n))))
            placed = GpuMatrix(n_neurons, n, codec, planes)
            work[f"dequantise_{codec}"] = (lambda w=placed: ops.dequantise(w, 0, n_neurons, 0, n, to, n)), size
    found = []
    for name, (one, n_bytes) in work.items():
        seconds = timed(device, stream, one)
        found.append({"kernel": name, "seconds": seconds, "bytes_per_s": n_bytes / seconds})
        print(f"{name}: {1e6 * seconds:.1f} us, {n_bytes / seconds / 1e9:.0f} GB/s", flush=True)
    ops.close()
    space.free()
    return found


def own_seconds(
    device: Device, ops: GpuPrefillOps, stream: Stream, n_tokens: int, n_out: int, depth: int
) -> dict[str, float]:
    """By the rows of a matrix, by its columns, and two matrices of half as many rows side by side."""
    with own_ways(device, ops, stream, n_tokens, n_out, depth) as ways:
        return {name: timed(device, stream, way) for name, way in ways.items()}


@contextlib.contextmanager
def own_ways(
    device: Device, ops: GpuPrefillOps, stream: Stream, n_tokens: int, n_out: int, depth: int
) -> Iterator[dict[str, Callable[[], None]]]:
    """Each as what multiplies once."""
    sizes = [2 * n_tokens * depth, 2 * n_out * depth, 4 * n_tokens * n_out, 4 * n_tokens]
    memory = [DeviceMemory(device, size) for size in sizes]
    rng = np.random.default_rng(0)
    some = rng.standard_normal(1 << 20, np.float32).astype(np.float16)
    for part, size in zip(memory[:2], sizes, strict=False):
        values = np.resize(some, size // 2)
        stream.upload(part.address, values.ctypes.data, size)
        stream.synchronize()
    ones = np.ones(n_tokens, np.float32)
    stream.upload(memory[3].address, ones.ctypes.data, ones.nbytes)
    stream.synchronize()
    x, out = RoundedRows(memory[0].address, depth, memory[3].address), Rows(memory[2].address, n_out)
    whole = GpuMatrix(n_out, depth, "f16", (memory[1].address,))
    half = n_out // 2
    halves = [GpuMatrix(half, depth, "f16", (memory[1].address + 2 * i * half * depth,)) for i in (0, 1)]
    columns = GpuMatrix(depth, n_out, "f16", (memory[1].address,))
    tile = Tile(0, 0)
    outs = (Rows(out.address, half), Rows(out.address + 4 * n_tokens * half, half))
    yield {
        "rows": lambda: ops.multiply(whole, x, n_tokens, out, tile),
        "two": lambda: ops.multiply_two((halves[0], halves[1]), x, n_tokens, outs, tile),
        "columns": lambda: ops.multiply_transposed(columns, x, n_tokens, out, tile, adds=True),
    }
    for part in memory:
        part.free()


def timed(device: Device, stream: Stream, work: Any, n: int = 20, rounds: int = 4) -> float:
    """The shortest of some rounds, each of n calls behind each other."""
    start, end, best = Event(device), Event(device), np.inf
    for _ in range(rounds):
        start.record(stream)
        for _ in range(n):
            work()
        end.record(stream)
        end.wait()
        best = min(best, end.seconds_since(start) / n)
    return float(best)


if __name__ == "__main__":
    sys.exit(main())
