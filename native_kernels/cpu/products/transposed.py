"""Transpose stored matrices: the same numbers for codecs without blocks, else 8-bit rows as bundles store them.

Blocks of the stored matrix span columns, so its columns as rows need scales of their own: Q8_0 by lanes
(docs/bundle.md, section 4), rounded as native_kernels.codecs does it, bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS, ROW_CODECS, codec_by_columns
from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.gemm.transposition import turn, turn_part, turn_shorts, turn_shorts_part
from native_kernels.cpu.products.gemv import stride_of
from native_kernels.cpu.runtime.call import ALIGNMENT, Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cpu.runtime.simd import (
    I16,
    LANES,
    VF,
    VI,
    Rows,
    call_same,
    constant,
    floats_to_halves,
    get_int,
    i64,
    load,
    offset,
    operation,
    put_floats,
    store,
    void,
    zero,
)

PLAIN = {"f32": 4, "f16": 2, "bf16": 2}  # codecs without blocks, which keep their numbers: bytes of one
_COLUMNS = 256  # of an item: a multiple of every block
_ROWS = 512  # read before the next columns: their pages stay in the TLB; a superblock of the result
_GROUP = 32
_VALUES = 4 * _COLUMNS * _GROUP  # scratch: f32 [32, 256]
_WORDS = 4 * _COLUMNS * 16 * 8  # scratch: four quants each, i32 [8 chunks, 16 groups, 256]
_SCRATCH = _VALUES + _WORDS + 2 * _COLUMNS + 128  # with scales f16 [256], and what unpacking may write beyond its end


@operation(void, i64, i64, i64)
def _quantise_columns(b: Any, values: Any, words: Any, scales: Any) -> None:
    """Quantise LANES columns of the group: values f32 [32, 256] -> words i32 [8, 16 x 256], scales f16.

    The scale of numbers that are not finite is NaN.
    """

    def row(i: int) -> Any:
        return load(b, offset(b, values, 4 * _COLUMNS * i), VF)

    largest = spoilt = constant(VF, 0.0)
    for i in range(_GROUP):
        value = row(i)
        size = call_same(b, "fabs", value)
        largest = b.select(b.fcmp_ordered(">", size, largest), size, largest)
        spoilt = b.fadd(spoilt, b.fmul(value, constant(VF, 0.0)))  # NaN where a number is not finite
    d = b.fadd(b.fdiv(largest, constant(VF, 127.0)), spoilt)
    store(b, scales, floats_to_halves(b, d))
    inverse = b.select(b.fcmp_ordered(">", d, constant(VF, 0.0)), b.fdiv(constant(VF, 1.0), d), constant(VF, 0.0))
    for chunk in range(8):
        word = None
        for i in range(4):
            scaled = b.fmul(row(4 * chunk + i), inverse)
            whole = b.fptosi(scaled, VI)
            rest = b.fsub(scaled, b.sitofp(whole, VF))
            whole = b.add(whole, b.fptosi(b.fadd(rest, rest), VI))  # halves go away from zero
            byte = b.shl(b.and_(whole, constant(VI, 255)), constant(VI, 8 * i))
            word = byte if word is None else b.or_(word, byte)
        store(b, offset(b, words, 4 * _COLUMNS * 16 * chunk), word)


@operation(void, i64, i64)
def _copy_short(b: Any, source: Any, target: Any) -> None:
    store(b, target, load(b, source, I16))


def _to_bytes(codec: str) -> Kernel:
    unpack = UNPACKERS[codec]

    def transpose(args: int, lo: int, hi: int, worker: int) -> None:
        """args: matrix, its stride, rows, columns, out, its stride, scratch of all workers. Items: 256 columns."""
        matrix, stride, n_rows, n_cols = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        out, out_stride = get_int(args + 32), get_int(args + 40)
        values = get_int(args + 48) + _SCRATCH * worker
        words, scales = values + _VALUES, values + _VALUES + _WORDS
        groups = (n_rows + 31) // 32
        for item in range(lo, hi):
            first = _COLUMNS * item
            n = min(_COLUMNS, n_cols - first)
            for start in range(0, groups, 16):
                some = min(16, groups - start)
                for j in range(some):
                    row = 32 * (start + j)
                    for i in range(32):
                        if row + i < n_rows:
                            unpack(matrix + (row + i) * stride, n_cols, first, n, values + 4 * _COLUMNS * i)
                        else:
                            for at in range(0, 4 * _COLUMNS, 4 * LANES):
                                put_floats(values + 4 * _COLUMNS * i + at, zero())
                    for at in range(0, n, LANES):
                        _quantise_columns(values + 4 * at, words + 4 * (_COLUMNS * j + at), scales + 2 * at)
                    for at in range(n):
                        target = out + (first + at) * out_stride + 32 * groups + 2 * (start + j)
                        _copy_short(scales + 2 * at, target)
                for at in range(0, n, LANES):
                    target = out + (first + at) * out_stride + 32 * start
                    for chunk in range(8):
                        for j in range(0, some, LANES):
                            source = words + 4 * (_COLUMNS * (16 * chunk + j) + at)
                            here = target + 4 * (some * chunk + j)
                            if n - at >= LANES and some - j >= LANES:
                                turn(source, 4 * _COLUMNS, here, out_stride)
                            else:
                                cols, rows = min(LANES, n - at), min(LANES, some - j)
                                turn_part(Rows(source, 4 * _COLUMNS), rows, cols, Rows(here, out_stride), cols, rows)

    return Kernel(transpose, f"transposed.bytes.{codec}")


def _same(size: int) -> Kernel:
    whole, part = {4: (turn, turn_part), 2: (turn_shorts, turn_shorts_part)}[size]

    def transpose(args: int, lo: int, hi: int, worker: int) -> None:
        """args and items: as above, without scratch."""
        matrix, stride, n_rows, n_cols = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        out, out_stride = get_int(args + 32), get_int(args + 40)
        for item in range(lo, hi):
            last = min(_COLUMNS * (item + 1), n_cols)
            for start in range(0, n_rows, _ROWS):
                stop = min(start + _ROWS, n_rows)
                for at in range(_COLUMNS * item, last, LANES):
                    for row in range(start, stop, LANES):
                        source, target = matrix + row * stride + size * at, out + at * out_stride + size * row
                        rows, cols = min(LANES, stop - row), min(LANES, last - at)
                        if rows == LANES and cols == LANES:
                            whole(source, stride, target, out_stride)
                        else:
                            part(Rows(source, stride), rows, cols, Rows(target, out_stride), cols, rows)

    return Kernel(transpose, f"transposed.same.{size}")


_KERNELS = {codec: _to_bytes(codec) for codec in UNPACKERS.keys() & CODECS.keys() - PLAIN.keys()} | {
    codec: same for size in (2, 4) for same in [_same(size)] for codec in PLAIN if PLAIN[codec] == size
}


def transposed_empty(w: PackedMatrix) -> PackedMatrix:
    """Return an empty matrix [n_cols, n_rows] for the transposed one, with its rows on cache lines."""
    codec = codec_by_columns(w.codec)
    n_bytes = ROW_CODECS[codec].n_bytes(w.n_rows)
    rows = aligned_empty((w.n_cols, -(-n_bytes // ALIGNMENT) * ALIGNMENT), np.uint8)[:, :n_bytes]
    return PackedMatrix.view(rows, w.n_cols, w.n_rows, codec)


def transposed(w: PackedMatrix, pool: Pool) -> PackedMatrix:
    """Return a copy with w's columns as rows, in the codec of `codec_by_columns`. w: in a codec of files.

    Cost: 0.7 billion numbers/s of a thread's CPU time, from Q4_0, Q4_K or F16 (Xeon, 2.8 GHz, AVX-512); 0.37 billion in
    a load of 7B in Q4_0, where all pages are touched for the first time.
    """
    out = transposed_empty(w)
    pool.run(Program(transpose_calls(w, out, pool.n_threads)))
    return out


def transpose_calls(w: PackedMatrix, out: PackedMatrix, n_workers: int, stage: str = "transpose") -> list[Call]:
    """Transpose w [R, C] into out [C, R] of `transposed_empty`. Items: 256 columns of w."""
    codec, scratch = codec_by_columns(w.codec), aligned_empty(_SCRATCH * n_workers, np.uint8)
    if (out.n_rows, out.n_cols, out.codec) != (w.n_cols, w.n_rows, codec):
        raise ValueError(f"out is {out.codec} ({out.n_rows}, {out.n_cols}); {codec} ({w.n_cols}, {w.n_rows}) is needed")
    words = arguments(w.data, stride_of(w), w.n_rows, w.n_cols, out.data, stride_of(out), scratch)
    keeps = (w.data, out.data, scratch)
    return [Call(_KERNELS[w.codec], words, -(-w.n_cols // _COLUMNS), 1, stage, keeps, shared=True)]
