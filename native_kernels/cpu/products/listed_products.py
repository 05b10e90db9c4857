"""Products of a few tokens with some rows of a matrix: x [T, D] times the listed rows of w [N, D].

Every worker copies some of its rows side by side and multiplies them by all tokens before it reads the next ones, so
that a row is read from memory once. The products are gemm's, in the same forms and with the same results. The list is
read when the calls run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.gemm import gemm_amx
from native_kernels.cpu.gemm.gemm import Form, Panels, Scratch, fitting_form
from native_kernels.cpu.gemm.gemm_bytes import byte_kernel
from native_kernels.cpu.gemm.gemm_floats import dot_kernel, float_kernel
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty, arguments
from native_kernels.cpu.runtime.gather import copy_bytes
from native_kernels.cpu.runtime.jit import Kernel, kernel
from native_kernels.cpu.runtime.simd import call_kernel, get_int, get_int32, prefetch, put_int

# Rows copied at a time: two panels of every form. With 8192 columns in float16 they take half a megabyte, which fits in
# a core's second-level cache.
ROWS = 32
_GAP = 64  # bytes after a row, so that rows do not share cache sets
_AHEAD = 2048  # bytes of the next row to prefetch while one is copied
_PRODUCT_WORDS = 10  # arguments of gemm's kernels
_OUT = 6  # index of the result's address among them
_WORDS_BYTES = 128  # before the rows: the arguments of their product


@dataclass(frozen=True, eq=False)
class RowBuffer:
    """Each worker's memory for copied rows; shared by all products of an engine, which run one after another."""

    memory: NDArray[np.uint8]

    @classmethod
    def make(cls, n_workers: int, row_bytes: int) -> RowBuffer:
        """Allocate for rows of up to row_bytes. Cost: 32 rows for each worker."""
        n_bytes = _WORDS_BYTES + ROWS * _step(row_bytes)
        return cls(aligned_empty((n_workers, -(-n_bytes // 4096) * 4096 + 256), np.uint8))


def _step(row_bytes: int) -> int:
    return -(-row_bytes // 64) * 64 + _GAP


@kernel
def listed(args: int, lo: int, hi: int, worker: int) -> None:
    """Items represent the listed rows proportionally.

    args: as gemm's product; then ids i32, their number (address), number of items, row bytes, stride of the copied
    rows, scratch, its stride, the product's machine code.
    """
    w, w_step, out = get_int(args), get_int(args + 8), get_int(args + 8 * _OUT)
    own = args + 8 * _PRODUCT_WORDS
    ids, n, of = get_int(own), get_int(get_int(own + 8)), get_int(own + 16)
    row_bytes, step = get_int(own + 24), get_int(own + 32)
    words, product = get_int(own + 40) + worker * get_int(own + 48), get_int(own + 56)
    rows = words + _WORDS_BYTES
    first, last = n * lo // of, n * hi // of
    for i in range(_PRODUCT_WORDS):
        put_int(words + 8 * i, get_int(args + 8 * i))
    put_int(words, rows)
    put_int(words + 8, step)
    for start in range(first, last, ROWS):
        n_rows = min(ROWS, last - start)
        for r in range(n_rows):
            following = w + get_int32(ids + 4 * min(start + r + 1, last - 1)) * w_step
            for line in range(0, min(_AHEAD, row_bytes), 64):
                prefetch(following + line)
            copy_bytes(rows + r * step, w + get_int32(ids + 4 * (start + r)) * w_step, row_bytes)
        put_int(words + 8 * _OUT, out + 4 * start)
        call_kernel(product, words, 0, n_rows, worker)


def _product(codec: str, form: Form) -> Kernel:
    if form == "bytes":
        return byte_kernel(codec)
    if form == "dots":
        return dot_kernel(codec)
    return float_kernel(codec) if form == "floats" else gemm_amx.tile_kernel(codec)


def listed_calls(
    panels: Panels,
    w: PackedMatrix,
    rows: Listed,
    tokens: I64,
    out: F32,
    scratch: Scratch,
    room: RowBuffer,
    stage: str = "",
) -> list[Call]:
    """Compute column i of out [max_tokens, N] = x times row rows.ids[i] of w [N, D], for the panels' tokens.

    Raises: ValueError if shapes do not match, or the panels' form is not that of `form_of`.
    """
    form = fitting_form(panels, w)
    if out.shape != (panels.max_tokens, w.n_rows) or len(rows.ids) != w.n_rows:
        raise ValueError(f"a result {out.shape} and {len(rows.ids)} places do not fit {w.n_rows} rows")
    row_step = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    places: tuple[Any, ...] = (panels.values, panels.meta if form == "bytes" else panels.values.strides[0])
    own = (*rows, w.n_rows, w.row_bytes, _step(w.row_bytes), room.memory, room.memory.strides[0])
    product = _product(w.codec, form)
    if _WORDS_BYTES + ROWS * _step(w.row_bytes) > room.memory.shape[1]:
        raise ValueError(f"the row buffer was made for rows shorter than {w.row_bytes} bytes")
    memory = (scratch.memory, scratch.memory.strides[0])
    args = arguments(w.data, row_step, w.n_cols, *places, tokens, out, out.strides[0], *memory, *own, product.address)
    keeps = (panels, w, rows, tokens, out, scratch, room, product)
    return [Call(listed, args, w.n_rows, 1, stage, keeps)]
