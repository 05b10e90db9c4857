"""Test whether cuBLAS multiplies exactly like the kernels here, and faster.

Small integers have exact sums in any order, so every result must be equal bit by bit. The timing uses a typical size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.cuda.cublas_products import LibraryProducts
from native_kernels.cuda.gpu import GpuMatrix
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile
from native_kernels.cuda.runtime.cublas import LEAST_POSITIONS, Cublas, LibraryError, LibraryUnavailableError
from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError, Event
from native_kernels.cuda.runtime.memory import DeviceMemory

log = logging.getLogger(__name__)

_TOKENS, _OUTPUTS, _DEPTH = LEAST_POSITIONS + 5, 136, 200
_STEP = 208  # row stride; differs from the row length
_LARGEST = 4  # largest number
# Positions, outputs, depth: 16 MiB of halves, and 128 blocks of 128 x 128.
_TIMED, _ROUNDS, _EACH = (512, 4096, 2048), 4, 4
# Largest share of our own kernels' time. A smaller gain is not worth sums that depend on the number of positions.
_MOST_SHARE = 1 / 1.15


def use_library(
    ops: GpuPrefillOps, opened: Callable[[GpuPrefillOps], Cublas] | None = None, is_forced: bool = False,
    shares: MutableMapping[str, float] | None = None,
) -> tuple[bool, str]:  # fmt: skip
    """Return whether ops should multiply by the library from now on, and the reason in one sentence.

    opened: opens the library. is_forced: use it even if it is not faster, for tests and benchmarks. shares: cache of
    measured shares of time, by library.

    The GPU must be entered. Cost: 0.15 to 0.5 s, and temporarily 27 MiB of GPU memory.
    Raises: CudaError; ops are then unchanged.
    """
    library = None
    try:
        library = Cublas(ops.device, ops.stream) if opened is None else opened(ops)
        products, name = ops.by_library(library), f"cuBLAS {_in_words(library.version)}"
        if not _multiplies_alike(ops, products):
            raise LibraryUnavailableError("it multiplies wrongly on this GPU")
        share = None if shares is None else shares.get(name)
        if share is None:
            share = round(_share_of_time(ops, products), 3)
            if shares is not None:
                shares[name] = share
        if not is_forced and share > _MOST_SHARE:
            raise LibraryUnavailableError(f"{name} takes {share:.0%} of their time")
    except BaseException as error:
        ops.library = None
        if library is not None:
            library.close()
        if not isinstance(error, (LibraryUnavailableError, LibraryError, CudaOutOfMemoryError)):
            raise
        words = f"Prompts are multiplied by the engine's own kernels and not by cuBLAS: {error}."
        log.info("%s", words)
        return False, words
    ops.library = products
    words = f"Prompts are multiplied by {name}, which came with PyTorch: it takes {share:.0%} of our own kernels' time."
    log.info("%s", words)
    return True, words


def _share_of_time(ops: GpuPrefillOps, products: LibraryProducts) -> float:
    """Return the library's time relative to our own kernels', for prefill's products by rows and by columns.

    Raises: LibraryError, CudaError.
    """
    try:
        own = _seconds(ops)
        ops.library = products
        theirs = _seconds(ops)
        if ops.library is not products:
            raise LibraryError(ops.failure)
        return theirs / own
    finally:
        ops.library = None


def _seconds(ops: GpuPrefillOps) -> float:
    """Return the best time of some rounds, of a product by rows and one by columns that is added."""
    n_tokens, n_out, depth = _TIMED
    sizes = 2 * n_tokens * depth, 2 * n_out * depth, 4 * n_tokens * n_out, 4 * n_tokens
    memory = DeviceMemory(ops.device, sum(sizes))
    marks = [Event(ops.device) for _ in range(2)]
    try:
        ops.stream.fill(memory.address, 0, memory.n_bytes)
        ones = np.ones(n_tokens, np.float32)
        x_at, w_at, out_at, factors = (memory.address + sum(sizes[:i]) for i in range(4))
        ops.stream.upload(factors, ones.ctypes.data, ones.nbytes)
        x, out, tile = RoundedRows(x_at, depth, factors), Rows(out_at, n_out), Tile(0, 0)
        rows, columns = GpuMatrix(n_out, depth, "f16", (w_at,)), GpuMatrix(depth, n_out, "f16", (w_at,))
        took = []
        for _ in range(_ROUNDS):
            marks[0].record(ops.stream)
            for _ in range(_EACH):
                ops.multiply(rows, x, n_tokens, out, tile)
                ops.multiply_transposed(columns, x, n_tokens, out, tile, adds=True)
            marks[1].record(ops.stream)
            marks[1].wait()
            took.append(marks[1].seconds_since(marks[0]))
        return min(took)
    finally:
        for mark in marks:
            mark.close()
        memory.free()


def _in_words(version: int) -> str:
    """Format a version: 130002 -> 13.0.2."""
    major, rest = divmod(version, 10000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _multiplies_alike(ops: GpuPrefillOps, products: LibraryProducts) -> bool:
    """Return whether all results equal those of our kernels. Raises: LibraryError, CudaError."""
    rng = np.random.default_rng(3)

    def some(*shape: int) -> NDArray[Any]:
        return rng.integers(-_LARGEST, _LARGEST + 1, shape)

    rows, out_numbers = max(_OUTPUTS, _DEPTH), _TOKENS * 2 * _STEP
    # Consecutive: x, two matrices, a factor per row, biases, and the previous content of out.
    parts: list[NDArray[Any]] = [
        some(_TOKENS, _STEP).astype(np.float16), some(2, rows, _STEP).astype(np.float16),
        np.where(np.arange(_TOKENS) % 3, 1.0, 2.0**-9).astype(np.float32), some(2, rows).astype(np.float32),
        some(out_numbers).astype(np.float32),
    ]  # fmt: skip
    offsets = np.cumsum([0, *(-(-part.nbytes // 256) * 256 for part in parts)]).tolist()
    memory = DeviceMemory(ops.device, offsets[-1])
    try:
        x_at, w_at, factors, bias, out = (memory.address + offset for offset in offsets[:-1])
        x, other_bias = RoundedRows(x_at, _STEP, factors), bias + 4 * rows
        first, second = (GpuMatrix(_OUTPUTS, _STEP, "f16", (w_at + 2 * i * rows * _STEP,)) for i in range(2))
        transposed = GpuMatrix(_DEPTH, _STEP, "f16", first.planes)
        tile, one, other = Tile(0, 0), Rows(out, 2 * _STEP), Rows(out + 4 * _STEP, 2 * _STEP)
        ways: list[Callable[[], None]] = [
            lambda: ops.multiply_columns(first, x, _TOKENS, one, tile, bias, True, range(_DEPTH)),
            lambda: ops.multiply_two((first, second), x, _TOKENS, (one, other), tile, (0, other_bias)),
            lambda: ops.multiply_transposed(transposed, x, _TOKENS, one, tile, 0, True),
        ]
        for way in ways:
            found = []
            for by, spared in ((None, 0), (products, 0), (products, 8)):
                for part, offset in zip(parts, offsets, strict=False):
                    ops.stream.upload(memory.address + offset, part.ctypes.data, part.nbytes)
                ops.library = by
                products.spare(spared)
                way()
                if ops.library is not by:
                    raise LibraryError(ops.failure)
                left = np.empty_like(parts[-1])
                ops.stream.download(left.ctypes.data, out, left.nbytes)
                ops.stream.synchronize()
                found.append(left)
            if any(not np.array_equal(found[0], one) for one in found[1:]):
                return False
        return True
    finally:
        products.spare(0)
        ops.library = None
        memory.free()
