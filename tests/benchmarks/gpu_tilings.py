"""Which way to cut a product of many positions into blocks is the quickest, shape by shape, on compute capability 9.0.

    python tests/benchmarks/gpu_tilings.py
    python tests/benchmarks/gpu_tilings.py --gathering

With `--gathering` rows come from the host's memory meanwhile, by the kernel that brings cold neurons in prompts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from gpu_prompt import PRODUCTS, own_ways, timed  # noqa: E402 - found by the lines above

from native_kernels.cuda.prefill_ops import GpuPrefillOps, HostRows  # noqa: E402
from native_kernels.cuda.runtime.driver import Device, Stream  # noqa: E402
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory  # noqa: E402
from native_kernels.cuda.wgmma_products import WIDTHS, Tiling, most_stages, tiling_for  # noqa: E402

SHOWN = 7
ROW_BYTES, N_ROWS = 4608, 1 << 16  # of what is gathered at once: 6 ms over a bus of 50 GB/s
GATHERING = ((8, 512), (16, 256), (16, 192), (22, 192), (32, 192), (32, 128))  # blocks and threads that are tried


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gathering", action="store_true")
    parser.add_argument("--blocks", type=int, nargs=2, metavar=("N", "THREADS"), help="of the kernel that gathers")
    flags = parser.parse_args()
    device = Device(0)
    device.enter()
    stream, copies = Stream(device), Stream(device, urgent=True)
    ops = GpuPrefillOps(device, stream, copies)
    if ops.wgmma is None:
        print("This GPU has no warpgroup products.")
        return 1
    gathering = Gathering(device, ops) if flags.gathering else None
    if gathering is not None:
        for shape in (*GATHERING, tuple(flags.blocks or ops.gathering)):
            ops.gathering = shape
            print(f"{shape[0]} x {shape[1]} threads gather {gathering.rate() / 1e9:.1f} GB/s")
    for n_tokens, n_out, depth in PRODUCTS:
        work = 2 * n_tokens * n_out * depth
        print(f"{n_tokens} x {depth} x {n_out}:")
        with own_ways(device, ops, stream, n_tokens, n_out, depth) as ways:
            for name, way in ways.items():
                rates = []
                for tiling in tilings():
                    ops.wgmma.tiling_for = lambda *_, tiling=tiling: tiling
                    if gathering is not None:
                        gathering.start()
                    seconds = timed(device, stream, way, 10, 2)
                    device.synchronize()
                    rates.append((work / seconds / 1e12, in_words(tiling)))
                products = 2 if name == "two" else 1
                chosen = tiling_for(n_tokens, n_out // products, products, device.n_multiprocessors)
                usual = in_words(chosen)
                best = ", ".join(f"{words} {rate:.0f}" for rate, words in sorted(rates, reverse=True)[:SHOWN])
                its = next((f"{rate:.0f}" for rate, words in rates if words == usual), "?")
                print(f"  {name:8} {best}; usual: {usual} {its}", flush=True)
    ops.close()
    return 0


def tilings() -> Iterator[Tiling]:
    """All that are tried."""
    for width, cluster, beside in product(WIDTHS, [(1, 1), (2, 1), (2, 2)], (1, 2)):
        if beside == 1 or width <= 128:
            yield Tiling(width, cluster, most_stages(width, beside))


def in_words(tiling: Tiling) -> str:
    return f"{tiling.width}/{tiling.cluster[0]}x{tiling.cluster[1]}/{tiling.stages}"


class Gathering:
    """Rows of the host's memory, again and again."""

    def __init__(self, device: Device, ops: GpuPrefillOps) -> None:
        self._ops = ops
        self._host, self._gpu = PinnedMemory(device, ROW_BYTES * N_ROWS), DeviceMemory(device, ROW_BYTES * N_ROWS)
        self._ids = DeviceMemory(device, 4 * N_ROWS)
        ids = np.arange(N_ROWS, dtype=np.int32)
        ops.stream.upload(self._ids.address, ids.ctypes.data, ids.nbytes)
        ops.stream.synchronize()

    def start(self) -> None:
        rows = HostRows(self._host.device_address, ROW_BYTES, ROW_BYTES, self._gpu.address, ROW_BYTES)
        self._ops.gather([rows], self._ids.address, N_ROWS)

    def rate(self) -> float:
        """Bytes a second, with nothing beside."""
        return ROW_BYTES * N_ROWS / timed(self._ops.device, self._ops.copy_stream, self.start, 2, 3)


if __name__ == "__main__":
    sys.exit(main())
