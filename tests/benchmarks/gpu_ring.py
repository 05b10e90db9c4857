"""How fast cold neurons come to the card through pinned buffers, by their size: filled, sent, and both at once.

    python tests/benchmarks/gpu_ring.py --threads 15 --row 10240 --gib 4

Rows of neurons lie in memory as a file has them; 60 % of them are cold. `plain` copies them with stores that leave them
in the processor's caches instead of going past them. Every rate is the best of three.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from engine.card import cold_stream  # noqa: E402 - found by the line above
from engine.card.cold_stream import ColdStream  # noqa: E402
from engine.hardware import default_threads, probe  # noqa: E402
from engine.model.weights import FfnWeights  # noqa: E402
from native_kernels.backend import I32, PackedMatrix  # noqa: E402
from native_kernels.cpu.call import Call  # noqa: E402
from native_kernels.cpu.gather import Gathering, copy_bytes  # noqa: E402
from native_kernels.cpu.jit import kernel  # noqa: E402
from native_kernels.cpu.pool import Pool  # noqa: E402
from native_kernels.cpu.simd import get_int, get_int32  # noqa: E402
from native_kernels.cuda.driver import Device, Stream  # noqa: E402
from native_kernels.cuda.upload_ring import UploadRing  # noqa: E402

COLD = 0.6
ROUNDS = 3


@kernel
def _plain(args: int, lo: int, hi: int, worker: int) -> None:
    """As the kernel of native_kernels/cpu/gather.py, with ordinary stores."""
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
    flags = parser.parse_args()
    device, pool = Device(0), Pool(flags.threads)
    device.enter()
    compute, copies = Stream(device), Stream(device)
    n = int(flags.gib * 2**30) // (3 * flags.row)
    gate, up, down_t = (
        PackedMatrix.view(np.full((n, flags.row), i, np.uint8), n, flags.row // 4, "f32") for i in range(3)
    )
    w = FfnWeights(up=up, gate=gate, down_t=down_t)
    ids = np.flatnonzero(np.random.default_rng(0).random(n) < COLD).astype(np.int32)
    n_bytes = 3 * flags.row * len(ids)
    for size in flags.buffers:
        for number in flags.number:
            for name, made_by in (("past caches", Gathering), ("plain", PlainGathering)):
                cold_stream.Gathering = made_by  # type: ignore[attr-defined]
                ring = UploadRing(device, compute, copies, size << 20, number)
                stream = ColdStream(ring, pool)
                rates = [stream.measure([(0, w, ids)], n) for _ in range(ROUNDS)]
                through = min(both(stream, ring, w, ids) for _ in range(ROUNDS))
                filling, bus = (max(getattr(one, what) for one in rates if one) for what in ("filling", "bus"))
                words = (f"{what} {rate / 1e9:.1f}" for what, rate in
                         (("filled", filling), ("sent", bus), ("both", n_bytes / through)))  # fmt: skip
                print(f"{number} buffers of {size:2} MiB, {name:11}: {', '.join(words)} GB/s", flush=True)
                stream.close()
                ring.close()
    pool.close()
    return 0


def both(stream: ColdStream, ring: UploadRing, w: FfnWeights, ids: I32) -> float:
    """Seconds until all of it has come, and nothing is done with it."""
    began = time.perf_counter()
    stream.begin([(0, w, ids)], len(ids))
    for _ in stream.pieces(0):
        pass
    ring._copy.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
