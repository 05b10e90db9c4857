"""The calls of a token's experts against plain NumPy: who is chosen, their products in every codec, and the sum."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Literal

import numpy as np
import pytest
from product_checks import NAMES, block_size, matrix, random
from support.repetitions import some_daily

from native_kernels.cpu.ffn import experts
from native_kernels.cpu.ffn.experts import ExpertMatrices, ExpertRows, ExpertVectors
from native_kernels.cpu.ffn.router import Chosen, choose_calls
from native_kernels.cpu.products.gemv import OVER
from native_kernels.cpu.products.linear import Vector
from native_kernels.cpu.products.row_dots import CODECS, rows_at_once
from native_kernels.cpu.products.row_sums import SUMS
from native_kernels.cpu.runtime import call
from native_kernels.cpu.runtime.call import aligned_empty
from native_kernels.cpu.runtime.side_by_side import kernels_for, side_by_side
from native_kernels.specs import ExpertGroups, Weighing

N_EXPERTS, N_USED, WORKERS = 7, 3, 3
CLOSE = {"f32": 1e-5, "f16": 1e-5, "bf16": 1e-5}  # of the largest; others are multiplied with vectors of bytes


def chosen_by(scores: Any, router: Literal["softmax", "sigmoid"], adds_up: bool, shared: float | None = None) -> Chosen:
    given, out = aligned_empty(len(scores)), Chosen.make(len(scores), N_USED)
    given[:] = scores
    score = None if shared is None else np.array([shared], np.float32)
    call.run(choose_calls(given, out, Weighing(router, adds_up), score), WORKERS)
    return out


@pytest.mark.parametrize("router", ["softmax", "sigmoid"])
@pytest.mark.parametrize("adds_up", [True, False])
@pytest.mark.parametrize("n_experts", [3, 8, 33, 128])
def test_the_choice_is_the_specification_s(router: Any, adds_up: bool, n_experts: int) -> None:
    rng = np.random.default_rng(n_experts)
    for _ in range(20):
        scores = rng.standard_normal(n_experts).astype(np.float32) * 4
        found = chosen_by(scores, router, adds_up, shared=0.7)
        ids = np.argsort(-scores, kind="stable")[:N_USED]
        exact = scores.astype(np.float64)
        shares = np.exp(exact) / np.exp(exact).sum() if router == "softmax" else 1 / (1 + np.exp(-exact))
        wanted = shares[ids] / (shares[ids].sum() if adds_up else 1)
        assert found.ids.tolist() == ids.tolist()
        np.testing.assert_allclose(found.weights[:N_USED], wanted, rtol=1e-5)
        assert found.weights[N_USED] == pytest.approx(1 / (1 + np.exp(-0.7)), rel=1e-5)
        assert found.counts.nonzero()[0].tolist() == sorted(ids.tolist())


@pytest.mark.parametrize(
    ("scores", "ids"),
    [
        ([1.0, 3.0, 3.0, 0.0, 3.0], [1, 2, 4]),  # of equal ones the first
        ([np.nan, 1.0, np.nan, 0.5, np.nan], [1, 3, 0]),  # what is not a number comes last
        ([np.nan] * 5, [0, 1, 2]),
        ([-np.inf, -np.inf, 2.0, -np.inf, -np.inf], [2, 0, 1]),
        ([-1e30, np.inf, 1e30, 0.0, -0.0], [1, 2, 3]),
    ],
)
def test_scores_that_are_equal_or_no_numbers_choose_different_experts(scores: list[float], ids: list[int]) -> None:
    with np.errstate(invalid="ignore"):
        assert np.argsort(-np.array(scores), kind="stable")[:N_USED].tolist() == ids
    assert chosen_by(scores, "softmax", True).ids.tolist() == ids


@pytest.mark.parametrize("by_two", [False, True])
@pytest.mark.parametrize(("groups", "used"), [(2, 1), (4, 2), (8, 5)])
def test_the_choice_among_the_best_groups(groups: int, used: int, by_two: bool) -> None:
    rng = np.random.default_rng(groups)
    for _ in range(20):
        scores, bias = (rng.standard_normal(24).astype(np.float32) for _ in range(2))
        given, out = aligned_empty(24), Chosen.make(24, N_USED)
        given[:] = scores
        some = ExpertGroups(groups, used, by_two)
        calls = choose_calls(given, out, Weighing("sigmoid", True), None, bias if by_two else None, 2.5, some)
        call.run(calls, WORKERS)
        wanted = (1 / (1 + np.exp(-scores)) + bias if by_two else scores).reshape(groups, -1)
        best = np.sort(wanted, axis=1)[:, -2 if by_two else -1 :].sum(axis=1)
        wanted[np.argsort(-best)[used:]] = -np.inf
        assert out.ids.tolist() == np.argsort(-wanted.reshape(-1), kind="stable")[:N_USED].tolist()
        shares = 1 / (1 + np.exp(-scores[out.ids]))
        np.testing.assert_allclose(out.weights[:N_USED], 2.5 * shares / shares.sum(), rtol=1e-5)


@pytest.mark.parametrize("margin", [0.02, 0.6, 1.9])
def test_shares_of_the_experts_near_the_chosen_one(margin: float) -> None:
    rng = np.random.default_rng(5)
    for n_experts in (3, 8, 33):
        scores = rng.standard_normal(n_experts).astype(np.float32) * 2 - 1
        given, out = aligned_empty(n_experts), Chosen.make(n_experts, N_USED)
        given[:] = scores
        call.run(choose_calls(given, out, Weighing("softmax", False, margin), None), WORKERS)
        left, wanted = dict(enumerate(scores.astype(np.float64))), []
        for _ in range(N_USED):
            best = max(left, key=left.__getitem__)
            own = left[best]
            near = [one for one in left.values() if (own - one) / max(abs(one), own) <= margin]
            wanted.append(1 / sum(np.exp(one - own) for one in near))
            del left[best]
        np.testing.assert_allclose(out.weights[:N_USED], wanted, rtol=1e-5)
        assert out.ids.tolist() == np.argsort(-scores, kind="stable")[:N_USED].tolist()


def of_experts(name: str, n_rows: int, n_cols: int) -> tuple[ExpertMatrices, np.ndarray]:
    made = [matrix(name, n_rows, n_cols, seed=seed) for seed in range(N_EXPERTS)]
    return ExpertMatrices.of([w for w, _ in made]), np.stack([values for _, values in made])


def a_choice() -> Chosen:
    found = Chosen.make(N_EXPERTS, N_USED)
    found.ids[:], found.weights[:] = (5, 0, 6), (0.5, 0.25, 0.125, 2.0)
    return found


def check(out: np.ndarray, wanted: np.ndarray, codec: str) -> None:
    assert np.abs(out - wanted).max() <= CLOSE.get(codec, 0.02) * np.abs(wanted).max()


def test_the_pages_of_chosen_experts_are_requested() -> None:
    ups, downs = of_experts("q4_0", 40, 4096)[0], of_experts("f32", 96, 1024)[0]
    found: list[tuple[int, int, int]] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    def advise(start: int, n_bytes: int, advice: int) -> int:
        found.append((start, n_bytes, advice))
        return 0

    function = np.zeros(1, np.int64)
    calls = experts.request_calls([ups, downs], a_choice(), function)
    call.run(calls, WORKERS)
    assert not found
    function[0] = ctypes.cast(advise, ctypes.c_void_p).value
    call.run(calls, WORKERS)
    pages = {at for start, n_bytes, _ in found for at in range(start, start + n_bytes, mmap.PAGESIZE)}
    wanted = set[int]()
    for one, size in ((ups, 40 * ups.first.row_bytes), (downs, 96 * 4096)):
        for start in one.addresses[[5, 0, 6]].tolist():
            wanted |= set(range(start - start % mmap.PAGESIZE, start + size, mmap.PAGESIZE))
    assert pages == wanted
    assert all(start % mmap.PAGESIZE == 0 and advice == 3 for start, _, advice in found)


# Products and sums of each codec's rows are tested without experts; every day one codec for each format of vectors.
DAILY = ("f32", "q4_0", "q4_0.lanes")


@pytest.mark.parametrize("name", some_daily([name for name in NAMES if name in OVER], DAILY))
def test_products_with_the_rows_of_the_chosen(name: str) -> None:
    n_rows, n_cols = 40, 2 * max(block_size(name), 80 // block_size(name) * block_size(name))
    matrices, values = of_experts(name, n_rows, n_cols)
    chosen, out = a_choice(), aligned_empty((N_USED, n_rows))
    x = Vector(aligned_empty(n_cols))
    x.values[:] = random(1, n_cols)[0]
    read, calls = x.as_read_by(name, "")
    for n_workers in (1, WORKERS):
        out[:] = np.nan
        call.run(calls + experts.product_calls(matrices, chosen, read, out), n_workers)
        check(out, values[chosen.ids] @ x.values, name)
    each = ExpertVectors(N_USED, n_cols)
    each.values[:] = random(N_USED, n_cols, seed=1)
    rows, calls = each.as_read_by(name)
    call.run(calls + experts.product_calls(matrices, chosen, rows, out), WORKERS)
    check(out, np.einsum("knd,kd->kn", values[chosen.ids], each.values), name)
    wide, target = (aligned_empty((N_USED, size + 3)) for size in (n_cols, n_rows))  # rows that lie apart
    wide[:, :n_cols], target[:] = each.values, 7.0
    apart = ExpertVectors(N_USED, n_cols, wide[:, :n_cols])
    rows, calls = apart.as_read_by(name)
    call.run(calls + experts.product_calls(matrices, chosen, rows, target[:, :n_rows]), WORKERS)
    np.testing.assert_array_equal(target[:, :n_rows], out)
    assert (target[:, n_rows:] == 7.0).all()


@pytest.mark.parametrize("name", some_daily(SUMS, DAILY))
@pytest.mark.parametrize("n_cols", [64, 2560])
def test_sums_of_the_rows_of_the_chosen(name: str, n_cols: int) -> None:
    matrices, values = of_experts(name, 48, n_cols)
    chosen, hidden = a_choice(), ExpertVectors(N_USED, 48)
    segments = experts.segments_of(matrices.first, N_USED)
    out = aligned_empty((N_USED * segments, n_cols))
    hidden.values[:] = random(N_USED, 48)
    wanted = np.einsum("kfd,kf->kd", values[chosen.ids], hidden.values)
    for n_workers in (1, WORKERS):
        out[:] = np.nan
        call.run(experts.sum_calls(matrices, chosen, ExpertRows.of_all(hidden), out, WORKERS), n_workers)
        check(out.reshape(N_USED, segments, n_cols).sum(axis=1), wanted, name)
    total, shared = aligned_empty(n_cols), random(1, n_cols)[0]
    call.run(experts.combine_calls(out, chosen, shared, total), WORKERS)
    check(total, chosen.weights @ np.concatenate([wanted, shared[None]]), name)


@pytest.mark.parametrize("name", some_daily([name for name in SUMS if name in OVER], DAILY))
@pytest.mark.parametrize("missing", [False, True])
def test_experts_of_several_tokens_are_those_of_each_alone(name: str, missing: bool) -> None:
    """To the bit; of tokens that are not in use nothing is computed. missing: those that a GPU chose and lacks."""
    most, n_rows, n_cols = 8, 104, 256
    (ups, _), (downs, _) = of_experts(name, n_rows, n_cols), of_experts(name, n_rows, n_cols)
    resident, heat = np.array([0, 1, 0, 0, 1, 0, 0], np.uint8), np.zeros(N_EXPERTS, np.float32)
    n_used, tokens, outs, numbers = np.ones(1, np.int64), [], [], []
    for token in range(most):
        scores, chosen = random(1, N_EXPERTS, seed=20 + token)[0], Chosen.make(N_EXPERTS, N_USED)
        x, hidden = Vector(aligned_empty(n_cols)), ExpertVectors(N_USED, n_rows)
        x.values[:] = random(1, n_cols, seed=token)[0]
        summed = aligned_empty((N_USED * experts.segments_of(downs.first, N_USED), n_cols))
        total, read = aligned_empty(n_cols), x.as_read_by(name, "")
        calls = experts.product_calls(ups, chosen, read[0], hidden.values)
        calls += experts.sum_calls(downs, chosen, ExpertRows.of_all(hidden), summed, 5)
        calls += experts.combine_calls(summed, chosen, None, total)
        if missing:
            ids = np.argsort(-scores)[:N_USED].astype(np.int32)
            published = np.concatenate([ids, np.ones(N_USED + 1, np.float32).view(np.int32)])
            numbers.append(np.zeros(1, np.int64))
            there = experts.Residency(resident, heat, np.ones(1, np.float32), numbers[-1])
            calls = experts.missing_calls(calls, chosen, None, published, there)
        else:
            calls = choose_calls(scores, chosen, Weighing("softmax", True), None) + calls
        tokens.append([*read[1], *calls])
        outs.append(total)
    for calls in tokens:
        call.run(calls)
    wanted, counted = np.stack(outs), [int(one[0]) for one in numbers]
    assert not missing or sorted(counted) != counted
    merged = side_by_side(tokens, n_used)
    for n, workers in ((1, 1), (2, 3), (5, 2), (8, 1), (8, 5)):
        n_used[0] = n
        for total in outs:
            total[:] = np.nan
        call.run(merged, workers)
        np.testing.assert_array_equal(np.stack(outs[:n]), wanted[:n])
        assert np.isnan(outs[n:]).all()
    assert {one.kernel for one in merged} <= {*kernels_for(tokens[0]), *(one.kernel for one in tokens[0])}


@pytest.mark.parametrize("name", some_daily(["f32", "f16", "q8_0", "q4_0", "q4_0.lanes"], DAILY))
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("relu", [True, False])
def test_neurons_that_do_not_fire_are_skipped(name: str, share: float, relu: bool) -> None:
    width, n_cols = 77, 128
    ups, up_values = of_experts(name, width, n_cols)
    downs, down_values = of_experts(name, width, n_cols)
    chosen, hidden, rows = a_choice(), ExpertVectors(N_USED, width), ExpertRows(N_USED, width)
    x, up, counts = Vector(aligned_empty(n_cols)), aligned_empty((N_USED, width)), np.zeros((WORKERS, 8), np.int64)
    x.values[:] = random(1, n_cols)[0]
    gate = np.maximum(random(N_USED, width, seed=2), 0) * (np.random.default_rng(1).random((N_USED, width)) < share)
    out = aligned_empty((N_USED * experts.segments_of(downs.first, N_USED), n_cols))
    read, calls = x.as_read_by(name, "")
    calls += experts.active_calls(hidden, rows, counts)
    calls += experts.listed_product_calls(ups, chosen, rows, read, up)
    calls += experts.fire_calls(hidden, up, relu, rows, counts)
    calls += experts.sum_calls(downs, chosen, rows, out, WORKERS)
    other = up_values[chosen.ids] @ x.values
    if relu:
        other = np.maximum(other, 0)
    for n_workers in (1, WORKERS):
        hidden.values[:], out[:], counts[:] = gate, np.nan, 0
        call.run(calls, n_workers)
        check(hidden.values, gate * other, name)
        fired = hidden.values != 0
        assert counts[:, :2].sum(axis=0).tolist() == [np.count_nonzero(gate), np.count_nonzero(fired)]
        assert [rows.ids[k, : rows.n[k]].tolist() for k in range(N_USED)] == [list(one.nonzero()[0]) for one in fired]
        wanted = np.einsum("kfd,kf->kd", down_values[chosen.ids], gate * other)
        check(out.reshape(N_USED, -1, n_cols).sum(axis=1), wanted, name)


@pytest.mark.parametrize("name", some_daily([name for name in NAMES if name in SUMS], DAILY))
@pytest.mark.parametrize("threshold", [-9.0, 0.4, 9.0])
def test_gates_of_the_neurons_whose_score_reaches_a_threshold(name: str, threshold: float) -> None:
    width, n_cols = 77, 128 if block_size(name) <= 128 else 256
    matrices, values = of_experts(name, width, n_cols)
    chosen, rows, x = a_choice(), ExpertRows(N_USED, width), Vector(aligned_empty(n_cols))
    scores, found, gates = (aligned_empty((N_USED, width)) for _ in range(3))
    scores[:], x.values[:], counts = (
        random(N_USED, width, seed=2),
        random(1, n_cols)[0],
        np.zeros((WORKERS, 8), np.int64),
    )
    scores[0, 5] = np.float32(threshold)  # reaches it
    read, calls = x.as_read_by(name, "")
    calls += experts.reached_calls(scores, threshold, gates, rows, counts)
    calls += experts.listed_product_calls(matrices, chosen, rows, read, found)
    calls += experts.spread_calls(found, rows, gates)
    for n_workers in (1, WORKERS):
        gates[:], counts[:] = np.nan, 0
        call.run(calls, n_workers)
        expected = scores >= np.float32(threshold)
        assert [rows.ids[k, : rows.n[k]].tolist() for k in range(N_USED)] == [
            list(one.nonzero()[0]) for one in expected
        ]
        assert counts.sum(axis=0).tolist() == [0, 0, np.count_nonzero(expected), 0, 0, 0, 0, 0]
        whole = values[chosen.ids] @ x.values
        assert (gates[~expected] == 0).all()
        assert np.abs(gates - whole)[expected].max() <= CLOSE.get(name, 0.02) * np.abs(whole).max()


def test_what_no_kernel_computes_is_said() -> None:
    f32, f16, q4 = (matrix(name, 12, 256)[0] for name in ("f32", "f16", "q4_0.lanes"))
    assert experts.why_not([f32, f32], summed=True) == []
    assert len(experts.why_not([f32, f16], summed=False)) == 1
    with pytest.raises(ValueError, match="differ"):
        ExpertMatrices.of([f32, f16])
    in_passes = not SUMS["q4_0.lanes"].whole_passes or 12 % rows_at_once(CODECS["q4_0.lanes"]) == 0
    assert (experts.why_not([q4], summed=True) == []) == in_passes
    assert experts.why_not([q4], summed=True, listed=True) == []
    assert len(experts.why_not([matrix("q6_k", 8, 256)[0]], summed=True)) == ("q6_k" not in SUMS)
