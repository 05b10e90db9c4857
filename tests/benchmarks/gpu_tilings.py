"""Which way to cut a product of many positions into blocks is the quickest, shape by shape, on compute capability 9.0.

python tests/benchmarks/gpu_tilings.py
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from gpu_prompt import PRODUCTS, own_seconds  # noqa: E402 - found by the lines above

from native_kernels.cuda.driver import Device, Stream  # noqa: E402
from native_kernels.cuda.prefill_ops import CardPrefillOps  # noqa: E402
from native_kernels.cuda.wgmma_products import WIDTHS, Tiling, most_stages, tiling_for  # noqa: E402

SHOWN = 6


def main() -> int:
    device = Device(0)
    device.enter()
    stream = Stream(device)
    ops = CardPrefillOps(device, stream, Stream(device))
    if ops.wgmma is None:
        print("This card has no warpgroup products.")
        return 1
    for n_tokens, n_out, depth in PRODUCTS:
        work = 2 * n_tokens * n_out * depth
        rates: dict[str, list[tuple[float, str]]] = {}
        for width, cluster, beside in product(WIDTHS, [(1, 1), (2, 1), (1, 2), (2, 2)], (1, 2)):
            if beside == 2 and width == WIDTHS[-1]:
                continue
            tiling = Tiling(width, cluster, most_stages(width, beside))
            ops.wgmma.tiling_for = lambda *_, tiling=tiling: tiling
            for way, seconds in own_seconds(device, ops, stream, n_tokens, n_out, depth).items():
                words = f"{width}/{cluster[0]}x{cluster[1]}/{tiling.stages}"
                rates.setdefault(way, []).append((work / seconds / 1e12, words))
        print(f"{n_tokens} x {depth} x {n_out}:")
        for way, found in rates.items():
            products = 2 if way == "two" else 1
            usual = tiling_for(n_tokens, n_out // products, products, device.n_multiprocessors)
            best = ", ".join(f"{words} {rate:.0f}" for rate, words in sorted(found, reverse=True)[:SHOWN])
            print(f"  {way:8} {best}; usual: {usual.width}/{usual.cluster[0]}x{usual.cluster[1]}/{usual.stages}")
        sys.stdout.flush()
    ops.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
