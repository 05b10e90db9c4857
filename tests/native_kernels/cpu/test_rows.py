"""Products and sums of rows as they are stored, quantised vectors, and the feed-forward part on its active neurons."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import row_checks
from support.repetitions import slow, some_daily

from native_kernels.backend import Activation
from native_kernels.cpu.ffn import down_parts, sparse_ffn
from native_kernels.cpu.ffn.matrices import FfnMatrices
from native_kernels.cpu.products import activations, gemv
from native_kernels.cpu.runtime import call, tallies
from native_kernels.cpu.runtime.pool import Pool, Program

CASES = [(codec, n_cols) for codec in row_checks.CODECS for n_cols in row_checks.widths(codec)]


@pytest.mark.parametrize(("codec", "n_cols"), CASES)
def test_rows_times_a_vector(codec: str, n_cols: int) -> None:
    row_checks.check_gemv(codec, n_cols)
    for n_ids in (0, 1, 8, 13):
        ids = np.sort(np.random.default_rng(n_ids).permutation(21)[:n_ids]).astype(np.int32)
        row_checks.check_gemv(codec, n_cols, ids=ids)


@pytest.mark.parametrize(("codec", "n_cols"), CASES)
def test_weighted_sums_of_rows(codec: str, n_cols: int) -> None:
    for n_active in (0, 1, 9, 30):
        row_checks.check_axpy(codec, n_cols, 30, n_active)


@pytest.mark.parametrize("codec", some_daily(row_checks.CODECS, ("f16", "q4_0", "q4_0.lanes")))
def test_large_sums_are_cut_both_ways(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_parts, "LEAST_BYTES", 0)
    monkeypatch.setattr(down_parts, "_PIECE_BYTES", 256)
    for n_cols, n_active in ((2080, 0), (2080, 1), (2080, 333), (1056, 70), (96, 300)):
        w = row_checks.matrix(codec, 1, n_cols)
        assert down_parts.most_segments(w) > 1
        assert down_parts.pieces_of(w) > 1 or n_cols < 2000
        row_checks.check_axpy(codec, n_cols, 350, n_active)


@pytest.mark.parametrize("codec", ["f16", "q4_0"])
def test_what_is_cut_both_ways_is_counted_once_and_shared_out(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_parts, "LEAST_BYTES", 0)
    n, d = 500, 1056
    gate, up, down = (row_checks.matrix(codec, n, d, seed=seed) for seed in (5, 6, 7))
    given = row_checks.input_of(row_checks.random(d, seed=8), codec)
    ids = np.arange(0, n, 2, dtype=np.int32)
    found = []
    for n_workers in (1, 3, 3):
        block, tallied = tallies.TallyBlock(), np.zeros(2 * n, np.uint8)
        block.set_counts(tallied)
        out, counts = np.zeros(d, np.float32), np.zeros(3, np.int64)
        buffers = sparse_ffn.Buffers.make(n, d, n_workers)
        neurons = call.Listed(np.concatenate([ids, ids]).astype(np.int32), np.array([len(ids)]))
        counting = tallies.Counting(counts, tallies.Tally(block, n))
        ffn = FfnMatrices(gate, up, down, "relu")
        calls = sparse_ffn.ffn_calls(ffn, given.buffers, out, buffers, neurons=neurons, counting=counting)
        pool = Pool(n_workers)
        try:
            pool.run(Program(calls))
        finally:
            pool.close()
        fired = np.zeros(2 * n, np.int64)
        fired[n + ids[buffers.h[: len(ids)] != 0]] = 1
        np.testing.assert_array_equal(tallied, fired)
        assert 60 < fired.sum() == counts[2]
        found.append(out)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


# It is made of the products and sums above: every day in one codec for each format of vectors, and where runs are
# tested. Without a gate the kernels are the same but for one product.
DAILY = [("f32", True), ("f16", True), ("q4_0", True), ("q4_0.lanes", True), ("f32", False)]
FEED_FORWARD = [(codec, gated) for gated in (True, False) for codec in row_checks.CODECS]


@pytest.mark.parametrize(("codec", "gated"), [one if one in DAILY else slow(*one) for one in FEED_FORWARD])
def test_the_feed_forward_part(codec: str, gated: bool) -> None:
    n_cols = row_checks.widths(codec)[-1]
    row_checks.check_ffn(codec, n_cols, 75, gated=gated, active=None)
    for active in (0, 1, 40, 75):
        row_checks.check_ffn(codec, n_cols, 75, gated=gated, active=active)
    row_checks.check_ffn(codec, n_cols, 75, gated=gated, active=None, threshold=0.5)


# The kernels of runs take longest to compile: every day in floats and in one of the codecs of bytes in lanes, which
# differ in how a group's bytes are read; `test_the_feed_forward_part` reads both.
RUNS = some_daily(row_checks.RUNS, ("f16", "q4_0.lanes"))


@pytest.mark.parametrize("codec", RUNS)
@pytest.mark.parametrize("threshold", [-1e30, 0.0])
def test_neurons_side_by_side_run_one_after_another(codec: str, threshold: float) -> None:
    for n_cols, n in row_checks.RUNS[codec]:
        row_checks.check_runs(codec, n_cols, n, threshold)


@pytest.mark.parametrize("codec", RUNS)
def test_few_neurons_side_by_side_are_cut_both_ways(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_parts, "LEAST_BYTES", 0)
    n_cols, n = row_checks.RUNS[codec][0]
    row_checks.check_runs(codec, n_cols, n, 0.0)  # as many as run one after another: down's sums come from there
    gate, up, down = row_checks.bundle(codec, n_cols, n)
    given = row_checks.input_of(row_checks.random(n_cols, seed=8), codec)
    ids = np.arange(0, n, 4, dtype=np.int32)
    bias, found = row_checks.random(n_cols, seed=9), []
    for n_workers in (0, 1, 3):
        buffers = sparse_ffn.Buffers.make(n, n_cols, max(1, n_workers))
        if n_workers == 0:
            buffers = replace(buffers, parts=None)
        out, counts = np.full(n_cols, np.float32(7)), np.zeros(3, np.int64)
        calls = sparse_ffn.ffn_calls(
            FfnMatrices(gate, up, down, "relu"), given.buffers, out, buffers, neurons=call.Listed.of(ids),
            down_bias=bias, counting=tallies.Counting(counts),
        )  # fmt: skip
        assert len(calls) == (2 if n_workers == 0 else 4)
        call.run(calls, max(1, n_workers))
        found.append((out, counts))
    by_columns, one, three = found
    assert (one[0] == three[0]).all()
    np.testing.assert_array_equal(by_columns[1], one[1])
    h = np.abs(buffers.h[: len(ids)])
    most = 2 * row_checks.allowed(len(ids), h @ row_checks.magnitudes_of(down)[ids] + np.abs(bias))
    most += 2 * row_checks.rounded_factors(down, ids, h)
    assert (np.abs(one[0] - by_columns[0]) <= most).all()


@pytest.mark.parametrize("form", ["q8", "lanes"])
@pytest.mark.parametrize("d", [1, 32, 33, 512, 1500])
def test_quantised_vectors_are_off_by_half_a_step(form: activations.Format, d: int) -> None:
    x = row_checks.random(d)
    if d > 100:
        x[64:96] = 0  # a group of nothing
    buffer = activations.quantised_empty(form, d)
    call.run(activations.quantise_calls(x, buffer, form))
    held = row_checks.dequantised(buffer, form, d)
    groups = np.pad(np.abs(x), (0, -d % 32)).reshape(-1, 32)
    half = np.repeat(groups.max(1) / 254, 32)[:d]
    assert (np.abs(held - x) <= half * (1 + 1e-5)).all()


@pytest.mark.parametrize("codec", row_checks.CODECS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_stays_none(codec: str, value: float) -> None:
    x = row_checks.random(64)
    x[40] = value
    out = np.zeros(10, np.float32)
    given = activations.quantised_empty("q8", 64)
    form = gemv.vector_format(codec)
    if form != "f32":
        given = activations.quantised_empty(form, 64)
        call.run(activations.quantise_calls(x, given, form))
    w = row_checks.matrix(codec, 10, 64)
    call.run(gemv.gemv_calls(w, x if form == "f32" else given, out))
    assert not np.isfinite(out).any()


def test_a_gate_that_is_no_number_shows_in_the_result() -> None:
    gate, up, down = (row_checks.matrix("f16", 12, 40, seed=seed) for seed in range(3))
    row_checks.spoil(gate, np.array([5]))
    out = np.zeros(40, np.float32)
    buffers = sparse_ffn.Buffers.make(12, 40, 1)
    x = {"f32": row_checks.random(40)}
    call.run(sparse_ffn.ffn_calls(FfnMatrices(gate, up, down, "relu"), x, out, buffers))
    assert np.isnan(out).all()


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu-tanh", "drelu"])
def test_activations_are_those_of_the_reference(activation: Activation) -> None:
    from native_kernels.reference import ReferenceOperators

    reference = ReferenceOperators()
    gate, up, down = (row_checks.matrix("f32", 50, 60, seed=seed) for seed in range(3))
    x = row_checks.random(60, seed=3)
    g, u = x @ row_checks.values_of(gate).T.astype(np.float32), x @ row_checks.values_of(up).T.astype(np.float32)
    h = (
        reference.relu(g) * reference.relu(u)
        if activation == "drelu"
        else getattr(reference, activation.replace("-", "_"))(g) * u
    )
    out = np.zeros(60, np.float32)
    ffn, buffers = FfnMatrices(gate, up, down, activation), sparse_ffn.Buffers.make(50, 60, 2)
    call.run(sparse_ffn.ffn_calls(ffn, {"f32": x}, out, buffers), 2)
    np.testing.assert_allclose(out, h @ row_checks.values_of(down), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("codec", ["f16", "q4_0", "q8_0.lanes"])
def test_a_predictor_is_two_products_with_a_relu_between(codec: str) -> None:
    fc1, fc2 = row_checks.matrix(codec, 64, 96, seed=1), row_checks.matrix(codec, 50, 64, seed=2)
    given = row_checks.input_of(row_checks.random(96), codec)
    logits = np.zeros(50, np.float32)
    form = gemv.vector_format(codec)
    call.run(sparse_ffn.predictor_calls(fc1, fc2, given.buffers[form], logits), 3)
    inner = np.maximum(row_checks.values_of(fc1) @ given.held, 0)
    held = row_checks.input_of(inner.astype(np.float32), codec).held
    most = np.abs(row_checks.values_of(fc2)) @ np.abs(held)
    np.testing.assert_array_less(np.abs(logits - row_checks.values_of(fc2) @ held), 0.01 * most + 1e-6)
