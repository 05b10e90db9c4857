"""Low-bit copies times many tokens, equal bit by bit to the products of one token after another.

A predictor's threshold decides which neurons are computed, so prefill must make the same decisions as decode. The codes
of some rows are unpacked to bytes once for all tokens; the products are those of copy_dots.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba.core import cgutils
from numpy.typing import NDArray

from native_kernels.backend import F32, PackedMatrix
from native_kernels.codecs.copies import COPY_CODECS
from native_kernels.codecs.copies import planes as planes_of
from native_kernels.cpu.products.activations import QUANTISE, QUANTISE_ROWS, padded
from native_kernels.cpu.products.copy_dots import PARTS, add_scaled, codes_of, group_scale, level_offsets
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel
from native_kernels.cpu.runtime.simd import (
    I64,
    LANES,
    VB,
    VF,
    VI,
    add_up,
    constant,
    dot_unsigned,
    get_float,
    get_int,
    i64,
    load,
    load_part,
    number,
    offset,
    operation,
    put_float,
    store,
    void,
)

_TILE_ROWS = 4
_TILE_TOKENS = 4 if LANES == 16 else 1  # as many sums as fit in registers beside the tile's loads
_BLOCK_ROWS = 16  # rows unpacked at a time: with their scales 220 KB at a width of 12,288


def _emit_unpack(bits: int) -> Any:
    planes = planes_of(bits)

    @operation(void, *[i64] * 5)
    def unpack(b: Any, quants: Any, scales: Any, pieces: Any, codes_to: Any, scales_to: Any) -> None:
        """Unpack a superblock: codes as bytes in the input's order, scales as 16 float32; 0 for missing pieces."""
        whole = b.icmp_signed("==", pieces, number(16))
        with b.if_else(whole) as (all_there, ragged):
            for here, is_ragged in ((all_there, False), (ragged, True)):
                with here:
                    chunk = b.mul(pieces, number(4))
                    for part in range(PARTS):
                        first = LANES * part
                        n = b.sub(pieces, number(first)) if is_ragged else None
                        runs = []
                        for run in range(bits):
                            at = offset(b, b.add(quants, b.mul(chunk, number(run))), 4 * first)
                            runs.append(load(b, at, VB) if n is None else b.bitcast(load_part(b, at, n, VI), VB))
                        registers = [runs[sum(planes[:i]) : sum(planes[: i + 1])] for i in range(len(planes))]
                        for k in range(8):
                            codes = codes_of(b, registers, planes, k)
                            store(b, offset(b, codes_to, 64 * k + 4 * first), codes)
                        store(b, offset(b, scales_to, 4 * first), group_scale(b, scales, n))

    return unpack


def _emit_tile(bits: int, n_tokens: int) -> Any:
    @operation(void, *[i64] * 7)
    def tile(b: Any, codes: Any, scales: Any, row_pieces: Any, x: Any, x_step: Any, blocks: Any, out: Any) -> None:
        """Multiply _TILE_ROWS unpacked rows by n_tokens tokens -> out f32 [n_tokens, _TILE_ROWS].

        Rows and scales have row_pieces pieces of 32. x: the first token's buffer.
        """
        rows, tokens = range(_TILE_ROWS), range(n_tokens)
        n_padded = b.mul(blocks, number(512))
        places = [
            [[cgutils.alloca_once_value(b, constant(VF, 0.0)) for _ in range(PARTS)] for _ in rows] for _ in tokens
        ]
        with cgutils.for_range_slice(b, number(0), blocks, number(1), I64) as (block, _):
            at = [b.add(codes, b.add(b.mul(row_pieces, number(32 * r)), b.mul(block, number(512)))) for r in rows]
            scales_at = [b.add(scales, b.add(b.mul(row_pieces, number(4 * r)), b.mul(block, number(64)))) for r in rows]
            xs = [b.add(x, b.mul(x_step, number(t))) for t in tokens]
            x_bytes = [b.add(one, b.mul(block, number(512))) for one in xs]
            x_scales = [b.add(b.add(one, n_padded), b.mul(block, number(64))) for one in xs]
            x_sums = [b.add(one, b.udiv(n_padded, number(8))) for one in x_scales]
            for part in range(PARTS):
                first = LANES * part
                dots = [[constant(VI, 0) for _ in rows] for _ in tokens]
                for k in range(8):
                    of_rows = [load(b, offset(b, one, 64 * k + 4 * first), VB) for one in at]
                    for t in tokens:
                        values = load(b, offset(b, x_bytes[t], 64 * k + 4 * first), VB)
                        dots[t] = [dot_unsigned.emit(b, dots[t][r], of_rows[r], values) for r in rows]
                factors = [load(b, offset(b, one, 4 * first), VF) for one in scales_at]
                for t in tokens:
                    x_scale = load(b, offset(b, x_scales[t], 4 * first), VF)
                    offsets = level_offsets(b, load(b, offset(b, x_sums[t], 4 * first), VI), bits)
                    for r in rows:
                        place = places[t][r][part]
                        b.store(add_scaled(b, dots[t][r], offsets, factors[r], x_scale, b.load(place)), place)
        for t in tokens:
            for r in rows:
                store(b, offset(b, out, 4 * (_TILE_ROWS * t + r)), add_up(b, [b.load(place) for place in places[t][r]]))

    return tile


@cache
def batch_kernel(codec: str) -> Kernel:
    """Items: rows of w. args: w, its row stride, D, x, its token stride, tokens, out, its token stride, scratch, its
    stride.
    """
    bits = COPY_CODECS[codec].bits
    unpack, many, single = _emit_unpack(bits), _emit_tile(bits, _TILE_TOKENS), _emit_tile(bits, 1)

    def matmul(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, d = get_int(args), get_int(args + 8), get_int(args + 16)
        x, x_step, tokens = get_int(args + 24), get_int(args + 32), get_int(args + 40)
        out, out_step = get_int(args + 48), get_int(args + 56)
        found = get_int(args + 64) + worker * get_int(args + 72)
        codes = found + 4 * _TILE_ROWS * _TILE_TOKENS
        filled, blocks = (d + 63) // 64, (d + 511) // 512
        scales = codes + _BLOCK_ROWS * 512 * blocks
        for first in range(lo, hi, _BLOCK_ROWS):
            n_rows = min(_BLOCK_ROWS, hi - first)
            for r in range(n_rows):
                row = w + (first + r) * w_step
                for block in range(blocks):
                    unpack(
                        row + 64 * bits * block,
                        row + 8 * bits * filled + 2 * block,
                        min(16, 2 * filled - 16 * block),
                        codes + 512 * (blocks * r + block),
                        scales + 64 * (blocks * r + block),
                    )
            t = 0
            while t < tokens:
                together = _TILE_TOKENS if t + _TILE_TOKENS <= tokens else 1
                for r in range(0, n_rows, _TILE_ROWS):
                    of_rows, of_scales = codes + 512 * blocks * r, scales + 64 * blocks * r
                    if together == _TILE_TOKENS:
                        many(of_rows, of_scales, 16 * blocks, x + t * x_step, x_step, blocks, found)
                    else:
                        single(of_rows, of_scales, 16 * blocks, x + t * x_step, x_step, blocks, found)
                    for i in range(together):
                        for j in range(min(_TILE_ROWS, n_rows - r)):
                            value = get_float(found + 4 * (_TILE_ROWS * i + j))
                            put_float(out + (t + i) * out_step + 4 * (first + r + j), value)
                t += together

    return Kernel(matmul, f"copy_batch.matmul.{codec}")


def batch_calls(x: F32, w: PackedMatrix, out: F32, n_workers: int, stage: str = "") -> list[Call]:
    """Multiply x [T, D] by the rows of a copy [N, D] -> out [T, N].

    Cost: 1.4 bytes per number of x, and 18 bytes per column for each worker.
    Raises: ValueError if the shapes do not match.
    """
    n_tokens, d = x.shape
    if (d, out.shape) != (w.n_cols, (n_tokens, w.n_rows)) or x.dtype != np.float32 or out.dtype != np.float32:
        raise ValueError(f"{x.dtype} {x.shape} and {out.dtype} {out.shape} do not fit {w.codec} {w.n_rows, w.n_cols}")
    n = padded(d)
    as_bytes: NDArray[Any] = aligned_empty((n_tokens, n + n // 8 + n // 8), np.uint8)
    step = -(-(_BLOCK_ROWS * (n + n // 8) + 4 * _TILE_ROWS * _TILE_TOKENS) // 64) * 64
    scratch: NDArray[Any] = aligned_empty((n_workers, step), np.uint8)
    row_step = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    rounding = arguments(x, x.strides[0], as_bytes, as_bytes.strides[0], d)
    product = arguments(
        w.data, row_step, d, as_bytes, as_bytes.strides[0], n_tokens, out, out.strides[0], scratch, step
    )  # fmt: skip
    keeps = (x, w, out, as_bytes, scratch)
    return [
        Call(QUANTISE_ROWS["lanes"], rounding, n_tokens, 1, stage, keeps),
        Call(batch_kernel(w.codec), product, w.n_rows, _BLOCK_ROWS, stage, keeps),
    ]


def batch_kernels_of(codec: str) -> list[Kernel]:
    """Return the kernels that one or many tokens times a copy in this codec need, besides gemv's."""
    return [QUANTISE_ROWS["lanes"], QUANTISE["lanes"], batch_kernel(codec)]
