"""Feed-forward parts of several tokens on the neurons that any of them needs, against every token by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from product_checks import matrix, random
from support.repetitions import slow, some_daily

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.ffn import down_parts, needed_down, needed_ffn
from native_kernels.cpu.ffn.matrices import FfnMatrices
from native_kernels.cpu.ffn.union_ffn import UnionBuffers, Workspace, row_buffer, union_calls
from native_kernels.cpu.gemm.gemm import Scratch
from native_kernels.cpu.runtime import call, jit
from native_kernels.cpu.runtime.call import Listed, aligned_empty
from native_kernels.cpu.runtime.pool import Pool, Program

F, D = 120, 384
CLOSE = {"f32": 1e-5, "f16": 1e-5, "q8_0": 0.03, "q4_0": 0.03}  # of the largest; tokens are rounded to bytes


def activated(x: np.ndarray, activation: str, threshold: float) -> np.ndarray:
    return x / (1 + np.exp(-x)) if activation == "silu" else np.where(x > threshold, x, 0)


def computed(name: str, batch: int, activation: Any, needed: np.ndarray | None, n_workers: int, **how: Any) -> Any:
    """out [T, D], what it should be, and counts."""
    d = how.get("d", D)
    (gate, gates), (up, ups), (down, downs) = (matrix(name, F, d, seed=seed) for seed in range(3))
    gated, listed, threshold = how.get("gated", True), how.get("listed"), how.get("threshold", 0.0)
    x = random(batch, d)
    work = Workspace(Scratch.make(n_workers), row_buffer([gate, up], n_workers), UnionBuffers.make(batch, F))
    out, counts, tokens = aligned_empty((batch, d)), np.zeros(5, np.int64), np.array([batch])
    bias = random(1, F)[0]
    words = None
    if needed is not None:
        words = (needed.astype(np.uint32) << np.arange(batch, dtype=np.uint32)[:, None]).sum(0, dtype=np.uint32)
    tally = np.zeros(F, np.int64)
    work.buffers.tally[0] = tally.ctypes.data
    ffn = FfnMatrices(
        gate if gated else None, up, down, activation, threshold, bias if gated else None, None if gated else bias
    )
    calls = union_calls(ffn, x, tokens, out, work, needed=listed if words is None else words, counts=counts)
    out[:] = np.nan
    if how.get("pool"):
        pool = Pool(n_workers)
        try:
            pool.run(Program(calls))
        finally:
            pool.close()
    else:
        call.run(calls, n_workers)
    first = activated(x @ (gates if gated else ups).T + bias, activation, threshold)
    mask = np.ones((batch, F), bool) if needed is None else needed
    if listed is not None:
        mask = mask & np.isin(np.arange(F), listed[0][: listed[1][0]])
    first = np.where(mask, first, 0)
    h = first * (x @ ups.T) if gated else first
    return out, h @ downs, counts, (mask.sum(), (first != 0).sum()), tally


# Every day plain numbers, and blocks that are multiplied with tokens rounded to bytes.
DAILY = ("f32", "q8_0")
OTHERS = ("f16", "q4_0")


@pytest.mark.parametrize("name", some_daily((*DAILY, *OTHERS), DAILY))
@pytest.mark.parametrize("batch", [2, 17, 32])
def test_every_token_has_its_own_neurons(name: str, batch: int) -> None:
    needed = np.random.default_rng(batch).random((batch, F)) < 0.1
    for activation in ("relu", "silu"):
        outs = []
        for n_workers in (1, 3):
            out, wanted, counts, (n_needed, opened), tally = computed(name, batch, activation, needed, n_workers)
            assert np.abs(out - wanted).max() < CLOSE[name] * np.abs(wanted).max()
            assert counts[0] == n_needed
            assert counts[3] == needed.any(axis=0).sum() >= counts[4]
            if name == "f32":
                assert counts[1] == counts[2] == tally.sum() == opened
            outs.append(out)
        assert np.array_equal(*outs)


def test_all_neurons_or_those_listed_and_without_a_gate() -> None:
    ids = np.zeros(F, np.int32)
    ids[:40] = np.arange(0, F, 3)
    for how in ({}, {"listed": Listed(ids, np.array([40]))}, {"gated": False}, {"threshold": 0.3}):
        out, wanted, counts, (n_needed, opened), _ = computed("f32", 5, "relu", None, 2, **how)
        assert np.abs(out - wanted).max() < 1e-5 * np.abs(wanted).max()
        assert counts[:3].tolist() == [n_needed, opened, opened]
        assert counts[3] == (40 if "listed" in how else F) >= counts[4] > 0


@pytest.mark.parametrize("names", some_daily((DAILY, OTHERS), (DAILY,)))
def test_neurons_of_several_blocks_and_many_rows_of_one(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needed_down, "_BLOCK", 16)
    rng = np.random.default_rng(3)
    needed = rng.random((32, F)) < rng.random(F) ** 4
    needed[:, 7] = needed[3] = True
    for name in names:
        found = [computed(name, 32, "relu", needed, n_workers) for n_workers in (1, 2, 7)]
        for out, wanted, counts, (n_needed, _), _ in found:
            assert np.abs(out - wanted).max() < CLOSE[name] * np.abs(wanted).max()
            assert counts[0] == n_needed
            assert np.array_equal(out, found[0][0])


@pytest.mark.parametrize(
    ("batch", "name"), [slow(1, "f16"), slow(1, "q4_0.lanes"), (1, "q8_0"), slow(3, "f16"), (3, "f32"), slow(3, "q4_0")]
)
def test_down_is_cut_both_ways(monkeypatch: pytest.MonkeyPatch, batch: int, name: str) -> None:
    monkeypatch.setattr(needed_down, "_BUFFER_SHARE", 1)
    monkeypatch.setattr(needed_down, "_SHORTEST", 8)
    monkeypatch.setattr(needed_down, "_SHORTEST_OF_TOKEN", 1)
    monkeypatch.setattr(needed_down, "_BLOCK", 16)
    d = 4256  # the last piece is shorter
    needed = np.random.default_rng(batch).random((batch, F)) < 0.5
    pieces, most = needed_down.cut_of(matrix(name, F, d)[0], batch)
    assert pieces > 1
    assert most > 1
    found = [computed(name, batch, "relu", needed, n_workers, d=d) for n_workers in (1, 2, 7, 15)]
    for out, wanted, *_ in found:
        assert np.abs(out - wanted).max() < CLOSE[name.removesuffix(".lanes")] * np.abs(wanted).max()
        assert np.array_equal(out, found[0][0])


def test_a_program_of_many_threads_finds_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needed_down, "_BUFFER_SHARE", 1)
    needed = np.random.default_rng(4).random((4, F)) < 0.5
    for name in DAILY:
        outs = [computed(name, 4, "relu", needed, 1, d=1120)[0]]
        outs += [computed(name, 4, "relu", needed, 5, d=1120, pool=True)[0] for _ in range(3)]
        assert all(np.array_equal(out, outs[0]) for out in outs)


def test_machine_code_can_be_loaded_without_a_runtime() -> None:
    for one in (needed_down.parts_kernel("f32"), needed_ffn.hidden_kernel("f32", "f32")):
        assert one.address
        path = one._path()
        found = None if path is None else jit._read(path)
        assert found is not None
        assert b"NRT_" not in found[1], "it would be found when compiled, and not when read from the cache"


def test_room_for_sums_is_bounded() -> None:
    for d, codec, dtype, width in (
        (5120, "f16", np.float16, 5120),
        (8192, "q4_0", np.uint8, 4608),
        (64, "f32", np.float32, 64),
    ):
        w = PackedMatrix(28672, d, codec, np.zeros((28672, width), dtype))
        for batch in (1, 2, 8, 16, 32):
            pieces, segments = needed_down.cut_of(w, batch)
            assert 4 * segments * batch * d <= needed_down.BUFFER_BYTES
            assert down_parts.pieces_of(w) <= pieces
            assert pieces * segments <= down_parts.ITEMS
            buffers = needed_down.DownBuffers.make(batch, w, 2)
            assert buffers.parts.shape == (segments, batch, d)


def test_nobody_needs_anything() -> None:
    out, *_ = computed("f32", 3, "relu", np.zeros((3, F), bool), 2)
    assert not out.any()


def test_more_tokens_than_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 32"):
        UnionBuffers.make(33, 8)
