"""The kind of a layer is that of the least predicted time; what costs more than exact is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.sparsity.predictor import LowRank
from engine.training.choosing import (
    Candidate,
    HeldOutLayer,
    LayerCost,
    MachineCost,
    choose_layer,
    copy_candidate,
    layer_candidates,
    low_rank_candidate,
)
from engine.training.gate_copies import CopyMaker
from native_kernels.backend import F32, PackedMatrix
from native_kernels.reference import ReferenceOperators

D, F, T = 64, 128, 400
FULL_F16 = LayerCost(2 * D * F, 2 * D * F, 2 * D * F, 0.1)
PLAIN = MachineCost(10e9, gathered=1.0, stage_s=0.0)


def _gate() -> tuple[F32, F32, F32]:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(F, D)).astype(np.float32) / 8
    x = (rng.normal(size=(T, D)) * np.geomspace(4, 0.2, D)).astype(np.float32)
    return w, np.full(F, -2.0, np.float32), x


@pytest.fixture(scope="module")
def held_out() -> HeldOutLayer:
    w, bias, x = _gate()
    first = x @ w.T + bias
    return HeldOutLayer(x, first, np.maximum(first, 0) * np.linspace(0.5, 1.5, F, dtype=np.float32))


@pytest.fixture(scope="module")
def candidates(held_out: HeldOutLayer) -> dict[str, Candidate]:
    w, bias, x = _gate()
    wide = x.astype(np.float64)
    maker = CopyMaker(w, bias, wide.mean(0), wide.T @ wide / len(wide))
    # An exact low rank part of the first 32 inputs, which vary most.
    a = np.concatenate([np.eye(32, D), -np.eye(32, D)]).astype(np.float32)
    b = np.concatenate([w[:, :32], -w[:, :32]], axis=1)
    low_rank = LowRank(PackedMatrix.pack(a, "f16"), PackedMatrix.pack(b, "f16"), None, bias)
    found = {f"copy{bits}": copy_candidate(maker.fit(bits), held_out, FULL_F16, PLAIN) for bits in (1, 2, 3)}
    found["cascade"] = copy_candidate(maker.fit(2), held_out, FULL_F16, PLAIN, low_rank)
    return found | {"low_rank": low_rank_candidate(low_rank, held_out)}


@pytest.mark.parametrize("kind", ["copy1", "copy3", "cascade", "low_rank"])
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_the_predictor_of_a_level_keeps_that_much(
    candidates: dict[str, Candidate], held_out: HeldOutLayer, kind: str, level: float
) -> None:
    candidate = candidates[kind]
    predictor, point = candidate.at(level), candidate.point(level)
    expected = predictor.expected(held_out.x, held_out.x, ReferenceOperators())
    kept = held_out.contribution[expected.mask].sum() / held_out.contribution.sum()
    assert level - 1e-4 <= kept <= level + 0.01
    assert expected.mask.mean() == pytest.approx(point.active, abs=1e-3)
    assert predictor.active_share == point.active
    assert predictor.recall == pytest.approx(kept, abs=1e-3)
    if kind == "cascade":
        assert predictor.kind == "cascade"
        assert expected.copied / expected.mask.size == pytest.approx(point.passed, abs=1e-3)


def test_a_level_between_two_is_rounded_up(candidates: dict[str, Candidate]) -> None:
    assert candidates["copy1"].point(0.991).level == 0.993
    assert candidates["copy1"].point(1.0).level == 0.9995


def test_more_bits_where_weights_are_dear_and_fewer_where_they_are_cheap(candidates: dict[str, Candidate]) -> None:
    copies = [candidates[f"copy{bits}"] for bits in (1, 2, 3)]
    dear = LayerCost(32 * D * F, 32 * D * F, 32 * D * F, 0.1)
    cheap = LayerCost(D * F // 2, D * F // 2, D * F // 2, 0.1)
    of_dear, of_cheap = (choose_layer(copies, 0.99, layer, PLAIN) for layer in (dear, cheap))
    assert of_dear is not None
    assert of_dear.bits == 3
    assert of_cheap is not None
    assert of_cheap.bits < 3


def test_bytes_are_those_of_the_parts_and_of_the_rows_that_are_opened(candidates: dict[str, Candidate]) -> None:
    copy, cascade = candidates["copy2"], candidates["cascade"]
    assert copy.copy is not None
    assert cascade.low_rank is not None
    point = copy.point(0.99)
    wanted = copy.copy.n_bytes + point.active * 2 * D * F + point.fired * 4 * D * F
    assert copy.seconds(point, FULL_F16, PLAIN) == pytest.approx(wanted / 10e9)
    point = cascade.point(0.99)
    wanted = cascade.low_rank.n_bytes + point.passed * copy.copy.n_bytes
    assert cascade.n_bytes(point) == wanted
    assert point.passed < 1


def test_a_down_stored_row_by_row_is_read_whole_by_everybody(candidates: dict[str, Candidate]) -> None:
    by_rows = replace(FULL_F16, down_is_row_wise=True)
    copy, point = candidates["copy2"], candidates["copy2"].point(0.99)
    more = copy.seconds(point, by_rows, PLAIN) - copy.seconds(point, FULL_F16, PLAIN)
    assert more == pytest.approx((1 - point.fired) * 2 * D * F / 10e9)
    more = PLAIN.exact_seconds(by_rows) - PLAIN.exact_seconds(FULL_F16)
    assert more == pytest.approx(0.9 * 2 * D * F / 10e9)


def test_what_costs_more_than_exact_is_refused(candidates: dict[str, Candidate]) -> None:
    everything = list(candidates.values())
    assert choose_layer(everything, 0.99, FULL_F16, PLAIN) is not None
    assert choose_layer(everything, 0.99, FULL_F16, replace(PLAIN, stage_s=1e-3)) is None  # hand-overs alone
    slow = replace(PLAIN, copy_weights_per_s={1: 1e6, 2: 1e6, 3: 1e6})  # arithmetic alone
    assert choose_layer([candidates["copy2"]], 0.99, FULL_F16, slow) is None
    assert choose_layer([], 0.99, FULL_F16, PLAIN) is None


def test_only_what_is_best_somewhere_is_kept(held_out: HeldOutLayer, candidates: dict[str, Candidate]) -> None:
    w, bias, x = _gate()
    wide = x.astype(np.float64)
    fits = [CopyMaker(w, bias, wide.mean(0), wide.T @ wide / len(wide)).fit(bits) for bits in (1, 2, 3)]
    levels = (0.95, 0.99)
    low_rank = candidates["low_rank"].low_rank
    assert low_rank is not None
    kept = layer_candidates(fits, [low_rank], held_out, FULL_F16, PLAIN, levels)
    assert 1 <= len(kept) <= 2
    for level in levels:
        best = choose_layer(kept, level, FULL_F16, PLAIN)
        assert best is not None
        least = min(one.seconds(one.point(level), FULL_F16, PLAIN) for one in candidates.values())
        assert best.seconds(best.point(level), FULL_F16, PLAIN) == pytest.approx(least, rel=0.02)
