"""How fast cold neurons come to the GPU through pinned buffers, by their size: filled, sent, and both at once; and how
fast where the GPU gathers them itself from where they lie, by itself and beside the products of a prompt.

    python tests/benchmarks/gpu_ring.py --threads 15 --row 10240 --gib 4
    python tests/benchmarks/gpu_ring.py --row 10240 --gib 4 --blocks 8 16 32 --block-threads 256 1024

Rows of neurons lie in memory as a file has them; 60 % of them are cold. `plain` copies them with stores that leave them
in the CPU's caches instead of going past them. Every rate is the best of three. With --blocks only the ways of
gathering are compared, in six buffers of 32 MiB.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from engine.gpu.prefill import cold_buffers  # noqa: E402 - found by the line above
from engine.gpu.prefill.cold_buffers import ColdTile, Neurons  # noqa: E402
from engine.gpu.prefill.cold_stream import ColdStream  # noqa: E402
from engine.gpu.prefill.pinned_weights import PinnedWeights, pinnable_spans  # noqa: E402
from engine.machine.hardware import default_threads, probe  # noqa: E402
from engine.model.prefetch import Prefetch  # noqa: E402
from engine.model.weights import FfnWeights  # noqa: E402
from native_kernels.backend import I32, PackedMatrix  # noqa: E402
from native_kernels.cpu.runtime.call import Call  # noqa: E402
from native_kernels.cpu.runtime.gather import Gathering, copy_bytes  # noqa: E402
from native_kernels.cpu.runtime.jit import kernel  # noqa: E402
from native_kernels.cpu.runtime.pool import Pool  # noqa: E402
from native_kernels.cpu.runtime.simd import get_int, get_int32  # noqa: E402
from native_kernels.cuda.prefill_ops import GpuPrefillOps, Tile  # noqa: E402
from native_kernels.cuda.prompt_rows import RoundedRows, Rows  # noqa: E402
from native_kernels.cuda.runtime.driver import Device, Stream  # noqa: E402
from native_kernels.cuda.runtime.memory import DeviceMemory  # noqa: E402
from native_kernels.cuda.runtime.upload_ring import UploadRing  # noqa: E402

FFN = (0, "ffn")
COLD = 0.6
ROUNDS = 3


@kernel
def _plain(args: int, lo: int, hi: int, worker: int) -> None:
    """As the kernel of native_kernels/cpu/runtime/gather.py, with ordinary stores."""
    for i in range(lo, hi):
        row = get_int(args + 8) + get_int(args + 24) * get_int32(get_int(args) + 4 * i)
        copy_bytes(get_int(args + 32) + get_int(args + 40) * i, row, get_int(args + 16))


class PlainGathering(Gathering):
    """With that kernel."""

    def __init__(self, stage: str = "ring") -> None:
        super().__init__(stage)
        self.call = Call(_plain, self.call.args, self.call.n_items, self.call.grain, stage, barrier=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=default_threads(probe()))
    parser.add_argument("--row", type=int, default=10240, help="bytes of a neuron's row in each matrix")
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--buffers", type=int, nargs="+", default=[4, 8, 16, 32], help="MiB of each")
    parser.add_argument("--number", type=int, nargs="+", default=[3, 5], help="of buffers")
    parser.add_argument("--blocks", type=int, nargs="+", help="in which the GPU gathers")
    parser.add_argument("--block-threads", type=int, nargs="+", default=[1024])
    flags = parser.parse_args()
    device, pool = Device(0), Pool(flags.threads)
    device.enter()
    compute, copies = Stream(device), Stream(device, urgent=True)
    n = int(flags.gib * 2**30) // (3 * flags.row)
    gate, up, down_t = (
        PackedMatrix.view(np.full((n, flags.row), i, np.uint8), n, flags.row // 2, "f16") for i in range(3)
    )
    w = FfnWeights(up=up, gate=gate, down_t=down_t)
    ids = np.flatnonzero(np.random.default_rng(0).random(n) < COLD).astype(np.int32)
    n_bytes = 3 * flags.row * len(ids)
    if flags.blocks:
        compare(flags, GpuPrefillOps(device, compute, copies), pool, w, ids)
        return 0
    for size in flags.buffers:
        for number in flags.number:
            for name, made_by in (("past caches", Gathering), ("plain", PlainGathering)):
                cold_buffers.Gathering = made_by  # type: ignore[attr-defined]
                ring = UploadRing(device, compute, copies, size << 20, number)
                stream = ColdStream(ring, pool)
                rates = [stream.measure([(FFN, Neurons(w, ids))], n) for _ in range(ROUNDS)]
                through = min(both(stream, ring, w, ids) for _ in range(ROUNDS))
                filling, bus = (max(getattr(one, what) for one in rates if one) for what in ("filling", "bus"))
                words = (f"{what} {rate / 1e9:.1f}" for what, rate in
                         (("filled", filling), ("sent", bus), ("both", n_bytes / through)))  # fmt: skip
                print(f"{number} buffers of {size:2} MiB, {name:11}: {', '.join(words)} GB/s", flush=True)
                stream.close()
                ring.close()
    pool.close()
    return 0


def compare(flags: argparse.Namespace, ops: GpuPrefillOps, pool: Pool, w: FfnWeights, ids: I32) -> None:
    """The ring against the GPU, alone and with the products of 512 positions with every tile."""
    device, n_bytes = ops.device, 3 * flags.row * len(ids)
    place = PinnedWeights(device)
    free, began = device.memory()[0], time.perf_counter()
    place.begin(pinnable_spans(w.matrices), w, Prefetch([], None), lambda is_pinned: True)
    place.wait()
    taken = time.perf_counter() - began
    print(f"{place.n_bytes / 1e9:.1f} GB registered in {taken:.2f} s, half of which it waits; "
          f"{(free - device.memory()[0]) / 1e6:.0f} MB of the GPU are gone")  # fmt: skip
    ring = UploadRing(device, ops.stream, ops.copy_stream, 32 << 20, 6)
    products = Products(ops, flags.row // 2)
    ways: list[tuple[str, PinnedWeights | None, tuple[int, int]]] = [("ring", None, (0, 0))]
    ways += [(f"{b} blocks of {t}", place, (b, t)) for b in flags.blocks for t in flags.block_threads]
    for name, reach, shape in ways:
        ops.gathering = shape
        stream = ColdStream(ring, pool, ops, reach)
        alone = min(both(stream, ring, w, ids) for _ in range(ROUNDS))
        beside = min(both(stream, ring, w, ids, products.run) for _ in range(ROUNDS))
        tile = products.tile
        assert tile is not None
        pieces = stream.gathered + stream.filled
        began = time.perf_counter()
        for _ in range(pieces):
            products.run(tile)
        ops.stream.synchronize()
        only = time.perf_counter() - began
        print(f"{name:20}: {n_bytes / alone / 1e9:.1f} GB/s; beside products {n_bytes / beside / 1e9:.1f}, which alone "
              f"would take {n_bytes / only / 1e9:.1f}", flush=True)  # fmt: skip
        stream.close()
    began = time.perf_counter()
    place.close()
    print(f"let go of in {time.perf_counter() - began:.2f} s")


class Products:
    """What a prompt of 512 positions does with a tile."""

    def __init__(self, ops: GpuPrefillOps, width: int, most: int = 4096) -> None:
        self._ops, t = ops, 512
        self.tile: ColdTile | None = None
        sizes = (2 * t * width, 2 * t * most, 4 * t, 4 * t * most, 4 * t * most, 4 * t * width)
        self._memory = [DeviceMemory(ops.device, size) for size in sizes]
        for memory, size in zip(self._memory, sizes, strict=True):
            ops.stream.fill(memory.address, 0, size)
        x, h, factors, first, up, out = (memory.address for memory in self._memory)
        self._x, self._h = RoundedRows(x, width, factors), RoundedRows(h, most, factors)
        self._hidden, self._out = (Rows(first, most), Rows(up, most)), Rows(out, width)
        self._tile, self._n = Tile(0, 0), t

    def run(self, tile: ColdTile) -> None:
        assert tile.gate is not None
        assert tile.down_t is not None
        self.tile = tile
        self._ops.multiply_two((tile.gate, tile.up), self._x, self._n, self._hidden, self._tile)
        self._ops.multiply_transposed(tile.down_t, self._h, self._n, self._out, self._tile, adds=True)


def both(
    stream: ColdStream, ring: UploadRing, w: FfnWeights, ids: I32, use: Callable[[ColdTile], None] | None = None
) -> float:
    """Seconds until all of it has come; use: what is done with it."""
    began = time.perf_counter()
    stream.begin([(FFN, Neurons(w, ids))], 4096 if use else len(ids))
    for tile in stream.tiles(FFN):
        if use:
            use(tile)
    ring._copy.synchronize()
    ring._compute.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
