"""Products of the CPU kernels against float64, with the errors that their arithmetic allows.

Run as a script it checks a few shapes in every codec for the instruction set of its process: tests start it once for
each. Errors: a sum of D products in float32 is off by at most (D + 8) 2^-24 times the sum of their magnitudes. Where
tokens are quantised to bytes, each number of a group of 32 is off by at most 1 / 254 of the group's largest magnitude,
so a product by at most that times the sum of the weights' magnitudes. Tiles round both factors to bfloat16, or leave
out what two bfloat16 do not hold and the product of their low parts.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import unpacked_rows
from numpy.typing import NDArray
from row_checks import input_of
from samples import random_blocks

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS, ROW_CODECS, lane_packing
from native_kernels.cpu.blocks import unpack
from native_kernels.cpu.gemm import gemm
from native_kernels.cpu.gemm.gemm_bytes import takes_bytes
from native_kernels.cpu.products import gemv, transposed
from native_kernels.cpu.products.k_quants import SMALL_BLOCKS, SUPER_BLOCKS
from native_kernels.cpu.runtime import call

LANES = ("q4_0.lanes", "q8_0.lanes")
NAMES = [name for name in unpack.UNPACKERS if name.removesuffix(".lanes") in CODECS]
# gemm reads all codecs with functions that check_rows tests. What it has of its own are dot products of plain numbers,
# two ways to few tokens, and on some CPUs a layout of bytes for each codec; that of q5_k is that of q4_k.
DAILY = [
    name for name in NAMES if name in ("f32", "f16", "bf16", "q8_0", "q4_0") or (takes_bytes(name) and name != "q5_k")
]
ROUNDING = 2.0**-24
TILE_ERRORS = {"tiles": 2.0**-7 + 2.0**-16, "split tiles": 3 * 2.0**-16}


def block_size(name: str) -> int:
    return CODECS[name.removesuffix(".lanes")].block_size


def guarded(n_bytes: int) -> NDArray[np.uint8]:
    """Memory with a page behind it that cannot be read, where the system has such a thing."""
    page = mmap.PAGESIZE
    whole = -(-n_bytes // page) * page
    memory = np.frombuffer(mmap.mmap(-1, whole + page), np.uint8)
    if sys.platform == "linux":
        forbidden = ctypes.c_void_p(memory.ctypes.data + whole)
        assert ctypes.CDLL(None, use_errno=True).mprotect(forbidden, ctypes.c_size_t(page), 0) == 0
    return memory[whole - n_bytes : whole]


def matrix(name: str, n_rows: int, n_cols: int, apart: int = 0, seed: int = 0) -> tuple[Any, NDArray[np.float64]]:
    """Random weights whose rows lie `apart` bytes further from each other than they are long, wherever that is; behind
    the last byte of the last row is memory that cannot be read."""
    plain = name.removesuffix(".lanes")
    data = random_blocks.weights(plain, n_rows, n_cols, seed)
    values = CODECS[plain].decode(data).astype(np.float64)
    if name in LANES:
        data = lane_packing.pack_rows(plain, data.reshape(n_rows, n_cols // 32, -1))
    width = data.shape[1]
    memory = guarded(n_rows * (width + apart) - apart)
    memory[:] = 255
    rows = np.lib.stride_tricks.as_strided(memory, (n_rows, width), (width + apart, 1))
    rows[:] = data
    return PackedMatrix.view(rows, n_rows, n_cols, name) if name in CODECS else _Lanes(
        rows, n_rows, n_cols, name
    ), values


class _Lanes:
    """Lane-interleaved rows, as far as the kernels look at a matrix."""

    def __init__(self, data: NDArray[np.uint8], n_rows: int, n_cols: int, codec: str) -> None:
        self.data, self.n_rows, self.n_cols, self.codec = data, n_rows, n_cols, codec
        self.row_bytes = data.shape[1]


def tokens_of(n: int) -> NDArray[np.int64]:
    return np.array([n], np.int64)


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def matmul(
    x: NDArray[np.float32], w: Any, n_workers: int = 1, max_tokens: int | None = None, of_prompt: bool = False
) -> NDArray[np.float32]:
    """What the kernels make of it, run as for so many workers; the buffers hold NaN before."""
    n_tokens, n_cols = x.shape
    room = max_tokens or n_tokens
    padded = call.aligned_empty((room, n_cols + 3))[:, :n_cols]  # rows that begin anywhere
    padded[:] = np.nan
    padded[:n_tokens] = x
    out = call.aligned_empty((room, w.n_rows + 5))[:, : w.n_rows]
    out[:] = np.nan
    tokens, panels = tokens_of(n_tokens), gemm.Panels.make(room, n_cols, gemm.form_of(w.codec, room, of_prompt))
    panels.values.view(np.uint8)[:] = 255
    scratch = gemm.Scratch.make(n_workers)
    scratch.memory[:] = 255
    packing = gemm.pack_calls(padded, tokens, panels)
    call.run([*packing, *gemm.matmul_calls(panels, w, tokens, out, scratch)], n_workers)
    assert np.isnan(out[n_tokens:]).all()  # rows of tokens that are none are not touched
    return out[:n_tokens].copy()


def matmul_t(h: NDArray[np.float32], w: Any, n_workers: int = 1) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The transposed product and the numbers of the neurons it read."""
    n_tokens, n_neurons = h.shape
    out = call.aligned_empty((n_tokens, w.n_cols + 5))[:, : w.n_cols]
    out[:] = np.nan
    firing, scratch = gemm.Firing.make(n_tokens, n_neurons, w.codec), gemm.Scratch.make(n_workers)
    firing.tiles[:], scratch.memory[:] = 255, 255
    call.run(gemm.matmul_t_calls(h, tokens_of(n_tokens), w, out, firing, scratch), n_workers)
    return out.copy(), firing.ids[: int(firing.count[0])].copy()


def allowed(x: NDArray[np.float32], values: NDArray[np.float64], form: str) -> NDArray[np.float64]:
    """The largest errors of x [T, D] times values [N, D] in this form."""
    sizes, n_cols = np.abs(x.astype(np.float64)), x.shape[1]
    error = (n_cols + 8) * ROUNDING * (sizes @ np.abs(values).T)
    if form.endswith("tiles"):
        error = 3.01 * error if form == "split tiles" else 1.01 * error
        error += TILE_ERRORS[form] * (sizes @ np.abs(values).T) + n_cols * 2.0**-126
    if form == "bytes":
        groups = -(-n_cols // 32)
        grouped = np.zeros((x.shape[0], 32 * groups))
        grouped[:, :n_cols] = sizes
        weights = np.zeros((values.shape[0], 32 * groups))
        weights[:, :n_cols] = np.abs(values)
        largest = grouped.reshape(-1, groups, 32).max(axis=2)
        summed = weights.reshape(-1, groups, 32).sum(axis=2)
        # Minima and offsets are rounded, too; they are at most as large as the row's largest number.
        reach = summed + 32 * np.abs(values).max(axis=1, keepdims=True)
        error = error * 1.01 + (largest / 254 * 1.001) @ summed.T + n_cols * ROUNDING * (largest @ reach.T)
    return error + 1e-30


def check_matmul(name: str, n_tokens: int, n_rows: int, n_cols: int, apart: int = 0) -> None:
    w, values = matrix(name, n_rows, n_cols, apart)
    x = random(n_tokens, n_cols)
    found = matmul(x, w, 1, n_tokens + 9)
    wanted = x.astype(np.float64) @ values.T
    worst = np.abs(found - wanted) / allowed(x, values, gemm.form_of(name, n_tokens + 9))
    assert worst.max() <= 1, (name, n_tokens, n_rows, n_cols, float(worst.max()))
    for n_workers in (2, 5):
        again = matmul(x, w, n_workers, n_tokens + 9)
        assert np.array_equal(again, found), (name, n_tokens, n_workers)


def check_matmul_t(name: str, n_tokens: int, n_neurons: int, n_cols: int, apart: int = 0) -> None:
    w, values = matrix(name, n_neurons, n_cols, apart)
    h = random(n_tokens, n_neurons)
    fires = np.random.default_rng(n_neurons).random(n_neurons) < 0.6
    h[:, ~fires] = 0
    found, ids = matmul_t(h, w)
    assert np.array_equal(ids, np.flatnonzero(fires)), (name, n_tokens)
    error = np.abs(found - h.astype(np.float64) @ values)
    form = gemm.form_of(name, n_tokens)
    bound = allowed(h[:, fires], values[fires].T, "floats" if form == "bytes" else form)
    assert (error <= bound).all(), (name, n_tokens, n_neurons, n_cols, float((error / bound).max()))
    for n_workers in (2, 5):
        assert np.array_equal(matmul_t(h, w, n_workers)[0], found), (name, n_tokens, n_workers)


def check_rows(name: str, n_rows: int, n_cols: int) -> None:
    w, values = matrix(name, n_rows, n_cols, 3)
    ids = np.array([n_rows - 1, 0, 0, n_rows // 2], np.int64)
    out = call.aligned_empty((len(ids), n_cols + 32))[:, :n_cols]
    call.run(unpacked_rows.rows_calls(w, ids, out), 2)
    assert np.array_equal(out, values[ids].astype(np.float32)), name


def check_transposed(name: str, n_rows: int, n_cols: int, n_threads: int = 2) -> None:
    """The columns as rows: the same numbers, or the bytes that the reference encodes, with rows on cache lines."""
    w, values = matrix(name, n_rows, n_cols, 3)
    out = transposed.transposed_empty(w)
    call.run(transposed.transpose_calls(w, out, n_threads), n_threads)
    plain = transposed.PLAIN.get(name)
    kind, columns = {4: np.uint32, 2: np.uint16, None: np.uint8}[plain], np.ascontiguousarray(values.T, np.float32)
    wanted = w.data.view(kind).T if plain else ROW_CODECS["q8_0.lanes"].encode(columns)
    assert (out.n_rows, out.n_cols, out.codec) == (n_cols, n_rows, name if plain else "q8_0.lanes"), name
    assert np.array_equal(out.data.view(kind), wanted), (name, n_rows, n_cols)
    assert out.n_rows == 1 or not out.data.strides[0] % 64


def as_read_by(codec: str, x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """x [D] in the format that rows of this codec read, and the numbers that this stands for."""
    given = input_of(x, codec)
    return given.buffers[gemv.vector_format(codec)], given.held


def check_gemv(name: str, n_rows: int, n_cols: int, apart: int = 0) -> None:
    """Rows times one quantised vector, all and by list.

    Errors: each of 16 lanes adds up n_cols / 64 rounded products, and scales, minima and offsets are rounded a few
    times; these are at most as large as the row's largest number, since random quants reach both ends.
    """
    w, values = matrix(name, n_rows, n_cols, apart)
    buffer, exact = as_read_by(name, random(n_cols))
    out = call.aligned_empty(n_rows)
    out[:] = np.nan
    call.run(gemv.gemv_calls(w, buffer, out))
    sizes = np.abs(values) + np.abs(values).max(axis=1, keepdims=True)
    bound = (n_cols / 64 + 24) * ROUNDING * (sizes @ np.abs(exact)) + 1e-30
    error = np.abs(out - values @ exact)
    assert (error <= bound).all(), (name, n_rows, n_cols, float((error / bound).max()))
    for n_workers in range(2, 9):
        again = np.full(n_rows, np.nan, np.float32)
        call.run(gemv.gemv_calls(w, buffer, again), n_workers)
        assert np.array_equal(again, out), (name, n_workers)
    ids = np.flatnonzero(np.random.default_rng(n_rows).random(n_rows) < 0.4).astype(np.int32)
    some = np.full(len(ids), np.nan, np.float32)
    call.run(gemv.gemv_calls(w, buffer, some, listed=call.Listed.of(ids)), 3)
    assert np.array_equal(some, out[ids]), name


def check_batches(name: str) -> None:
    """A few shapes of products of many tokens."""
    block = block_size(name)
    odd = 3 * block if block > 1 else 301
    for n_tokens in (1, 3, 9, 20, 35):
        check_matmul(name, n_tokens, 53, odd, apart=7)
    check_matmul(name, 4, 2, 5 * block)
    for n_tokens in (2, 14):
        check_matmul_t(name, n_tokens, 300, odd, apart=7)


if __name__ == "__main__":
    for codec in sys.argv[1:]:
        check_batches(codec)
        check_rows(codec, 5, 3 * max(block_size(codec), 32))
        if codec in {**SUPER_BLOCKS, **SMALL_BLOCKS}:
            check_gemv(codec, 23, 3 * block_size(codec), apart=7)
