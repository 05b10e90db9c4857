"""Products and sums of stored rows by the CPU kernels against float64, with the errors that are allowed.

Run as a script it checks some shapes in the codecs it is given, for the instruction set of its process: a test starts
it once for each. Errors: a sum of n products in float32 is off by at most (n + 8) 2^-24 times the sum of their
magnitudes. Where x is quantised, the products are held to the quantised x, exactly known, and the quantising itself to
half a step: 1 / 254 of the largest magnitude of each group of 32. Sums that multiply bytes round the factor of each row
and group to 1 / 254 of the largest of a pass, so each row adds at most that times the largest weight of its group; and
they add up what is positive and take the rest away at the end, so the magnitudes are 3.1 times that weight.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import ROW_CODECS
from native_kernels.cpu.ffn import neuron_runs, sparse_ffn
from native_kernels.cpu.ffn.matrices import FfnMatrices
from native_kernels.cpu.products import activations, gemv
from native_kernels.cpu.products.row_dots import ROWS
from native_kernels.cpu.products.row_sums import SUMS
from native_kernels.cpu.runtime import call
from native_kernels.cpu.runtime.tallies import Counting

ROUNDING = 2.0**-24
CODECS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q8_0.lanes", "q4_0.lanes")
WIDTHS = {"f": (1, 33, 64, 515), "b": (32, 96, 992, 1056), "l": (20, 32, 500, 544, 1030)}
RUNS = {  # columns and neurons
    "f16": ((72, 1500), (544, 2100)),
    "q4_0.lanes": ((1024, 2600), (1030, 4700)),
    "q8_0.lanes": ((1024, 1400), (1030, 2500)),
}


def widths(codec: str) -> tuple[int, ...]:
    return WIDTHS["l" if codec.endswith(".lanes") else "b" if codec.startswith("q") else "f"]


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def matrix(codec: str, n_rows: int, n_cols: int, apart: int = 3, seed: int = 0) -> PackedMatrix:
    """Random weights at an odd address, the rows `apart` bytes further from each other than they are long."""
    data = np.ascontiguousarray(PackedMatrix.pack(random(n_rows, n_cols, seed=seed), codec).data)
    rows = data.view(np.uint8).reshape(n_rows, -1)
    width = rows.shape[1]
    memory = np.full(n_rows * (width + apart) + 65, 255, np.uint8)
    lying = memory[1 : 1 + n_rows * (width + apart)].reshape(n_rows, width + apart)[:, :width]
    lying[:] = rows
    return PackedMatrix.view(lying, n_rows, n_cols, codec)


def values_of(w: PackedMatrix) -> NDArray[np.float64]:
    rows = np.ascontiguousarray(w.data).view(np.uint8).reshape(w.n_rows, -1)
    return ROW_CODECS[w.codec].decode(rows).astype(np.float64)[:, : w.n_cols]


@dataclass
class Input:
    """A vector, the buffers that kernels read, and the numbers that these hold."""

    buffers: dict[str, NDArray[Any]]
    held: NDArray[np.float64]


def input_of(x: NDArray[np.float32], codec: str) -> Input:
    form = gemv.vector_format(codec)
    if form == "f32":
        return Input({"f32": x}, x.astype(np.float64))
    buffer = activations.quantised_empty(form, len(x))
    buffer[:] = 255
    call.run(activations.quantise_calls(x, buffer, form), 3)
    return Input({form: buffer}, dequantised(buffer, form, len(x)))


def dequantised(buffer: NDArray[np.uint8], form: str, d: int) -> NDArray[np.float64]:
    n = activations.padded(d)
    scales = buffer[n : n + n // 8].view(np.float32).astype(np.float64)
    quants = buffer[:n].view(np.int8).astype(np.float64)
    if form == "lanes":  # chunk k, group j, byte b -> column 32 j + 4 k + b of the superblock
        quants = quants.reshape(-1, 8, 16, 4).transpose(0, 2, 1, 3).reshape(-1)
    sums = buffer[n + n // 8 :].view(np.int32)
    expected = -8 * quants.reshape(-1, 32).sum(1) if form == "lanes" else quants.reshape(-1, 16).sum(1)
    np.testing.assert_array_equal(sums, expected)
    assert not quants[d:].any()
    found: NDArray[np.float64] = (quants.reshape(-1, 32) * scales[:, None]).reshape(-1)[:d]
    return found


def allowed(n: int, magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
    return (n + 8) * ROUNDING * magnitudes + 1e-30


def check_gemv(codec: str, n_cols: int, n_rows: int = 21, ids: NDArray[np.int32] | None = None) -> None:
    """Rows in range or by list, with and without bias, cut for 1 to 8 workers."""
    w, x = matrix(codec, n_rows, n_cols), random(n_cols, seed=1)
    given, weights, bias = input_of(x, codec), values_of(w), random(n_rows, seed=2)
    rows = np.arange(n_rows) if ids is None else ids
    listed = None if ids is None else call.Listed.of(ids)
    exact = weights[rows] @ given.held + bias[rows]
    most = np.abs(weights[rows]) @ np.abs(given.held) + np.abs(bias[rows])
    found = []
    for n_workers in (1, 2, 5, 8):
        out = np.full(len(rows) + 1, np.float32(7))
        calls = gemv.gemv_calls(w, given.buffers[gemv.vector_format(codec)], out, listed=listed, bias=bias)
        call.run(calls, n_workers)
        assert out[-1] == 7
        found.append(out[:-1])
        assert (found[-1] == found[0]).all(), "the result depends on the number of workers"
    assert (np.abs(found[0] - exact) <= allowed(n_cols, most)).all()


def largest_of_groups(w: PackedMatrix) -> NDArray[np.float64]:
    """The largest magnitude of each weight's group of 32."""
    padded = np.pad(np.abs(values_of(w)), ((0, 0), (0, -w.n_cols % 32))).reshape(w.n_rows, -1, 32)
    largest = np.broadcast_to(padded.max(axis=2, keepdims=True), padded.shape)
    found: NDArray[np.float64] = largest.reshape(w.n_rows, -1)[:, : w.n_cols]
    return found


def magnitudes_of(w: PackedMatrix) -> NDArray[np.float64]:
    return 3.1 * largest_of_groups(w) if SUMS[w.codec].whole_passes else np.abs(values_of(w))


def rounded_factors(w: PackedMatrix, ids: NDArray[Any], h: NDArray[Any]) -> NDArray[np.float64]:
    """By how much the sum of the rows times h may be off, column by column, because factors are rounded to bytes."""
    off = np.zeros(w.n_cols)
    if SUMS[w.codec].whole_passes:
        sizes = np.abs(h)[:, None] * largest_of_groups(w)[ids]
        for start in range(0, len(ids), ROWS):
            part = sizes[start : start + ROWS]
            off += len(part) * part.max(axis=0) / 254 * 1.01
    return off


def check_axpy(codec: str, n_cols: int, n_rows: int, n_active: int) -> None:
    """The weighted sum of some rows, the others full of values that are not numbers."""
    w = matrix(codec, n_rows, n_cols)
    ids = np.sort(np.random.default_rng(n_active).permutation(n_rows)[:n_active]).astype(np.int32)
    h = random(n_rows, seed=4)
    exact = h[:n_active].astype(np.float64) @ values_of(w)[ids]
    most = allowed(n_active, np.abs(h[:n_active].astype(np.float64)) @ magnitudes_of(w)[ids])
    most += rounded_factors(w, ids, h[:n_active])
    spoil(w, np.setdiff1d(np.arange(n_rows), ids))
    first = None
    for n_workers in (1, 2, 3, 8):
        buffers = sparse_ffn.Buffers.make(n_rows, n_cols, n_workers)
        buffers.h[:], buffers.n[0] = h, n_active
        buffers.ids[:n_active] = ids
        buffers.scratch[:] = 255
        out = np.full(n_cols + 1, np.float32(7))
        call.run(sparse_ffn.axpy_calls(w, buffers, out[:-1]), n_workers)
        assert out[-1] == 7
        first = out if first is None else first
        assert (out == first).all(), "the result depends on the number of workers"
    assert first is not None
    assert (np.abs(first[:-1] - exact) <= most).all()


def spoil(w: PackedMatrix, rows: NDArray[Any]) -> None:
    """Makes every number of these rows one that is none: all bits set."""
    data = w.data.view(np.uint8) if w.data.dtype == np.uint8 else w.data
    if data.dtype == np.uint8:
        data[rows] = 255
    else:
        data[rows] = np.nan


def check_ffn(codec: str, n_cols: int, n: int, *, gated: bool, active: int | None, threshold: float = 0.0) -> None:
    """The whole feed-forward part; neurons that are not predicted or do not fire hold NaN behind their first row.

    active: how many neurons are predicted; None: all, without a predictor.
    """
    gate, up, down = (matrix(codec, n, n_cols, seed=seed) for seed in (5, 6, 7))
    x = random(n_cols, seed=8)
    given, bias = input_of(x, codec), random(n_cols, seed=9)
    logits = random(n, seed=10)
    predicted, ids = None, np.arange(n)
    if active is not None:
        limit = np.sort(logits)[n - active] if active else logits.max() + 1
        predicted = sparse_ffn.Predicted(logits, float(limit))
        ids = np.flatnonzero(logits >= limit)
        assert len(ids) == active
    first = gate if gated else up
    pre = values_of(first) @ given.held
    error = allowed(n_cols, np.abs(values_of(first)) @ np.abs(given.held))
    clear = np.abs(pre - threshold) > error  # a neuron at the edge may fall to either side; a threshold jumps there
    assert clear.all()
    fires = np.isin(np.arange(n), ids) & (pre > threshold)
    ups = values_of(up) @ given.held
    up_error = allowed(n_cols, np.abs(values_of(up)) @ np.abs(given.held))
    h = np.where(fires, pre * ups if gated else pre, 0)
    h_error = np.where(fires, error * (np.abs(ups) + up_error) + up_error * np.abs(pre) if gated else error, 0)
    h_error += 4 * ROUNDING * np.abs(h)
    exact = h @ values_of(down) + bias
    most = h_error @ np.abs(values_of(down)) + allowed(n, (np.abs(h) + h_error) @ magnitudes_of(down) + np.abs(bias))
    active_ids = np.flatnonzero(fires)
    most += rounded_factors(down, active_ids, (np.abs(h) + h_error)[active_ids])
    spoil(down, np.flatnonzero(~fires))
    if gated:
        spoil(up, np.flatnonzero(~fires))
    spoil(first, np.setdiff1d(np.arange(n), ids))
    found = None
    for n_workers in range(1, 9):
        out, counts = np.full(n_cols, np.float32(7)), np.zeros(3, np.int64)
        buffers = sparse_ffn.Buffers.make(n, n_cols, n_workers)
        buffers.scratch[:] = 255
        ffn = FfnMatrices(gate if gated else None, up, down, "relu", threshold)
        calls = sparse_ffn.ffn_calls(
            ffn, given.buffers, out, buffers, neurons=predicted, down_bias=bias, counting=Counting(counts)
        )
        call.run(calls, n_workers)
        found = out if found is None else found
        assert (out == found).all(), "the result depends on the number of workers"
        assert counts[0] == len(ids)
        assert counts[2] == fires.sum()
    assert found is not None
    assert (np.abs(found - exact) <= most).all()


def bundle(codec: str, n_cols: int, n: int) -> list[PackedMatrix]:
    """Gate, up and down with the three rows of a neuron side by side, each filled up to 64 bytes."""
    packed = [PackedMatrix.pack(random(n, n_cols, seed=seed), codec) for seed in (5, 6, 7)]
    rows = [np.ascontiguousarray(one.data).view(np.uint8).reshape(n, -1) for one in packed]
    width = rows[0].shape[1]
    memory = np.zeros((n, 3, -(-width // 64) * 64), np.uint8)
    for k, one in enumerate(rows):
        memory[:, k, :width] = one
    return [PackedMatrix.view(memory[:, k, :width], n, n_cols, codec) for k in range(3)]


def check_runs(codec: str, n_cols: int, n: int, threshold: float) -> None:
    """The feed-forward part of nine in ten neurons, run by run, against how it runs where they lie apart.

    Both are off from float64 by what `check_ffn` allows; here the sums differ only in their order, and in which rows
    share the rounding of their factors.
    """
    gate, up, down = bundle(codec, n_cols, n)
    assert neuron_runs.side_by_side(gate, up, down)
    assert neuron_runs.words(gate, down, np.zeros(1))[0] <= n * 9 // 10, "too few neurons to run so"
    given = input_of(random(n_cols, seed=8), codec)
    ids = np.sort(np.random.default_rng(1).permutation(n)[: n * 9 // 10]).astype(np.int32)
    bias, gate_bias, up_bias = random(n_cols, seed=9), random(n, seed=10) / 8, random(n, seed=11) / 8
    found = []
    for n_workers in (0, 1, 2, 3, 5, 7, 8):
        buffers = sparse_ffn.Buffers.make(n, n_cols, max(1, n_workers))
        buffers.scratch[:] = 255
        assert buffers.shared is not None
        buffers.shared[:] = 255
        if n_workers == 0:
            buffers = replace(buffers, shared=None)
        out, counts = np.full(n_cols, np.float32(7)), np.zeros(3, np.int64)
        ffn = FfnMatrices(gate, up, down, "relu", threshold, gate_bias, up_bias)
        calls = sparse_ffn.ffn_calls(
            ffn, given.buffers, out, buffers, neurons=call.Listed.of(ids), down_bias=bias, counting=Counting(counts)
        )
        call.run(calls, max(1, n_workers))
        found.append((out, counts, buffers.h[: len(ids)].copy()))
    apart, together = found[0], found[1]
    for one in found[1:]:
        assert (one[0] == together[0]).all(), "the result depends on the number of workers"
    for one in found:
        assert (one[1] == apart[1]).all()
        assert (one[2] == apart[2]).all()
    h = np.abs(apart[2])
    most = 2 * allowed(len(ids), h @ magnitudes_of(down)[ids] + np.abs(bias))
    if SUMS[codec].whole_passes:  # two roundings, each to 1 / 254 of the largest of a pass, whatever its rows are
        most += 2 * len(ids) * (h[:, None] * largest_of_groups(down)[ids]).max(axis=0) / 254 * 1.01
    assert (np.abs(together[0] - apart[0]) <= most).all()


def check_products(codecs: Sequence[str]) -> None:
    """Products and sums of rows, of which the feed-forward part is made."""
    for codec in codecs:
        for n_cols in widths(codec):
            check_gemv(codec, n_cols)
            check_axpy(codec, n_cols, 30, 11)


if __name__ == "__main__":
    check_products(sys.argv[1:])
    for name in {*RUNS} & {*sys.argv[1:]}:
        check_ffn(name, widths(name)[-1], 75, gated=True, active=40)
        check_runs(name, *RUNS[name][0], 0.0)
