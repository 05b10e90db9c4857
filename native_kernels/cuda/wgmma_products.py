"""Products of many positions on GPUs of compute capability 9.0: tensor maps, tiling, and launches of gemm_wgmma.cu.

The tiling depends only on sizes, and no sum depends on the tiling.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int, c_uint, c_uint64
from functools import cache
from typing import NamedTuple

from native_kernels.cuda.operands import Operand, Product
from native_kernels.cuda.runtime.driver import Device, Function, Launch, Launches, Stream

CAPABILITY = (9, 0)
WIDTHS = (64, 128, 192)  # outputs of a block
KERNELS = tuple(f"multiply_{kind}_{width}" for kind in ("rows", "columns") for width in WIDTHS)
_POSITIONS, _BOX, _THREADS = 128, 64, 288  # per block: positions; halves and rows of a copied box; threads
_BOX_BYTES = _BOX * _BOX * 2
_MOST_SHARED = 226 << 10  # per block, and for all blocks of a multiprocessor
_RESERVED = 1 << 10  # per block, by the driver
_MOST_MAPS = 4096
# Arguments of cuTensorMapEncodeTiled (cuda.h): halves, rows of 128 bytes swizzled, 256 bytes at once into the
# second-level cache.
_HALVES, _PLAIN, _SWIZZLED, _PROMOTED, _ZEROS = 6, 0, 3, 3, 0


class TensorMap(ctypes.Structure):
    """CUtensorMap: a matrix of halves whose boxes the GPU copies itself."""

    _fields_ = (("words", c_uint64 * 16),)


class Tiling(NamedTuple):
    """A block computes 128 positions x `width` outputs with `stages` stages in shared memory.

    cluster: neighbouring blocks over positions and over outputs, 1 or 2 each.
    """

    width: int
    cluster: tuple[int, int]
    stages: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: its stages, and two barriers for each."""
        return self.stages * stage_bytes(self.width) + 16 * self.stages


def stage_bytes(width: int) -> int:
    """Return the bytes of one stage of 64 columns: 128 positions and `width` outputs."""
    return (_POSITIONS // _BOX + width // _BOX) * _BOX_BYTES


def most_stages(width: int, n_blocks: int) -> int:
    """Return how many stages fit if n_blocks blocks share a multiprocessor."""
    return min(8, (_MOST_SHARED // n_blocks - _RESERVED) // (stage_bytes(width) + 16))


@cache
def tiling_for(n_tokens: int, n_out: int, n_products: int, n_multiprocessors: int) -> Tiling:
    """Return the tiling that keeps the GPU busiest, of those measured on an H200 (tests/benchmarks/gpu_tilings.py).

    One block per multiprocessor, also on those that gather rows, and if possible all blocks at once.
    tests/benchmarks/gpu_prompt.py --products records the results.
    """
    over_tokens = -(-n_tokens // _POSITIONS)

    def n_blocks(width: int) -> int:
        return over_tokens * -(-n_out // width) * n_products

    alone = (1, 1)
    beside = (2, 1) if over_tokens % 2 == 0 else alone  # they share weights
    width, cluster = 128, beside
    if n_blocks(128) <= n_multiprocessors // 2:
        width, cluster = 64, alone  # more and shorter blocks
    elif n_blocks(192) <= n_multiprocessors < n_blocks(128):
        width, cluster = 192, (beside[0], 2)
    return Tiling(width, cluster, most_stages(width, 1))


class WgmmaProducts:
    """Launches the products. function: a kernel by name. The GPU must be entered. Raises: CudaError."""

    def __init__(self, device: Device, function: Callable[[str], Function]) -> None:
        self._device = device
        self._functions = {name: function(name) for name in KERNELS}
        for one in self._functions.values():
            one.allow_shared(_MOST_SHARED - _RESERVED)
        self._maps: dict[Operand, TensorMap] = {}
        self._launches = Launches()
        self._n_multiprocessors = device.n_multiprocessors
        self.tiling_for: Callable[[int, int, int, int], Tiling] = tiling_for

    def launch(self, stream: Stream, product: Product) -> None:
        """Compute the product. The chunks of a long prompt are alike, and so are most of their launches."""
        n_products = 2 if product.other else 1
        tiling = self.tiling_for(product.n_tokens, product.n_out, n_products, self._n_multiprocessors)
        key = stream.handle, product, tiling
        self._launches.run(key, lambda: self._prepared(stream, product, tiling))

    def _prepared(self, stream: Stream, product: Product, tiling: Tiling) -> Launch:
        kind, x, factors, w, result, adds, other = product
        n_out = product.n_out
        other_w, other_result = other or (w, result)
        blocks = (-(-x.n_rows // _POSITIONS), -(-n_out // tiling.width))
        grid = [-(-n // size) * size for n, size in zip(blocks, tiling.cluster, strict=True)]
        return self._functions[f"multiply_{kind}_{tiling.width}"].prepared(
            stream, (*grid, 2 if other else 1), (_THREADS,), self._map(x), self._map(w), self._map(other_w),
            c_uint64(result.address), c_uint64(result.step), c_uint64(factors), c_uint64(result.bias),
            c_int(x.n_rows), c_int(n_out), c_int(x.n_cols), c_int(adds), c_uint64(other_result.address),
            c_uint64(other_result.bias), c_int(tiling.stages), shared_bytes=tiling.shared_bytes,
            cluster=tiling.cluster if tiling.cluster != (1, 1) else None,
        )  # fmt: skip

    def _map(self, of: Operand) -> TensorMap:
        """Return a cached tensor map, because buffers recur and creating a map takes as long as a launch."""
        found = self._maps.get(of)
        if found is None:
            if len(self._maps) >= _MOST_MAPS:
                self._maps.clear()
            found = self._maps[of] = self._made(of)
        return found

    def _made(self, of: Operand) -> TensorMap:
        # The driver requires 64-byte alignment.
        space = (ctypes.c_ubyte * 192)()
        aligned = TensorMap.from_buffer(space, -ctypes.addressof(space) % 64)
        sizes, steps = (c_uint64 * 2)(of.n_cols, of.n_rows), (c_uint64 * 1)(2 * of.step)
        box, ones = (c_uint * 2)(_BOX, _BOX), (c_uint * 2)(1, 1)
        self._device.driver.call(
            "cuTensorMapEncodeTiled", byref(aligned), _HALVES, 2, of.address, byref(sizes), byref(steps), byref(box),
            byref(ones), _PLAIN, _SWIZZLED, _PROMOTED, _ZEROS,
        )  # fmt: skip
        return TensorMap.from_buffer_copy(aligned)
