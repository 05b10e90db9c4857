"""Probabilities: what was counted is taken as it is, what is not known is assumed and said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from samples.placement_cases import a_config, some_stats
from support.shown_text import numbers_in

from engine.placement.activity import activity_of, expert_shares, scaled_to
from engine.placement.model_bytes import PredictorBytes
from engine.sparsity.stats import NeuronStats


def predictors(*shares: float | None, gate: bool = False) -> PredictorBytes:
    ones = np.ones(4, np.int64)
    return PredictorBytes(ones, ones, ("f16",) * 4, shares, np.full(4, gate))


@given(arrays(np.float32, st.integers(1, 40), elements=st.floats(0, 1, width=32)), st.floats(0, 1))
def test_scaled_to_a_mean(values: np.ndarray, mean: float) -> None:
    scaled = scaled_to(values, mean)
    assert ((scaled >= 0) & (scaled <= 1)).all()
    possible = mean if values.sum() <= 0 else min(mean, np.count_nonzero(values) / len(values))
    if values.sum() <= 0 or values[values > 0].min() > 1e-6:
        assert scaled.mean() == pytest.approx(possible, abs=1e-4)
    order = np.argsort(values, kind="stable")
    assert (np.diff(scaled[order]) >= -1e-6).all()


def test_counts_are_probabilities() -> None:
    config = a_config()
    stats = some_stats(config)
    activity = activity_of(config, "exact", stats)
    np.testing.assert_allclose(activity.fired, stats.counts / 1000, rtol=1e-6)
    assert (activity.active == 1).all()
    np.testing.assert_array_equal(activity.opened, activity.fired)
    assert activity.source == "measured"
    assert activity.notes == ()
    assert activity.fired_share == pytest.approx(stats.counts.mean() / 1000)


@pytest.mark.parametrize(("activation", "share"), [("relu", 0.05), ("relu-glu", 0.3), ("drelu-glu", 0.13)])
def test_without_statistics_all_are_alike(activation: str, share: float) -> None:
    activity = activity_of(a_config(activation), "exact")
    assert activity.fired == pytest.approx(share)
    assert activity.source == "none"
    assert f"{share:.0%}" in activity.notes[0]
    if activation == "drelu-glu":
        assert (activity.opened > activity.fired).all()


def test_no_zeros_means_everything() -> None:
    activity = activity_of(a_config("silu-glu"), "dense", some_stats(a_config()))
    for part in (activity.active, activity.opened, activity.fired, activity.computed):
        assert (part == 1).all()
    assert (activity_of(a_config(), "dense").computed == 1).all()


def test_counts_of_an_unknown_number_of_tokens_keep_their_proportions() -> None:
    config = a_config()
    known = some_stats(config)
    stats = NeuronStats(known.counts * 7, None, "shipped", "published")
    activity = activity_of(config, "exact", stats)
    assert activity.fired.mean(axis=1) == pytest.approx(0.3, abs=1e-3)
    assert "do not say" in activity.notes[0]
    assert (np.diff(activity.fired[0][np.argsort(known.counts[0])]) >= 0).all()
    nothing = NeuronStats(np.zeros_like(known.counts), None, "shipped", "published")
    assert activity_of(config, "exact", nothing).fired == pytest.approx(0.3)


def test_what_predictors_expect() -> None:
    config = a_config()
    stats = some_stats(config)
    measured = activity_of(config, "sparse", stats, predictors(0.3, 0.3, 0.25, 0.22))
    assert measured.active.mean(axis=1) == pytest.approx([0.3, 0.3, 0.25, 0.22], abs=1e-3)
    assert (measured.fired <= measured.active).all()
    assert measured.notes == ()
    guessed = activity_of(config, "sparse", stats, predictors(None, None, None, None))
    assert guessed.active.mean() == pytest.approx(1.3 * stats.counts.mean() / 1000, rel=1e-2)
    assert len(guessed.notes) == 1
    seen = replace(predictors(None, 0.3, None, None), expected_to_fired=1.1)
    by_tokens = activity_of(config, "sparse", stats, seen)
    fired = stats.counts.mean(axis=1) / 1000
    assert by_tokens.active.mean(axis=1) == pytest.approx(
        [1.1 * fired[0], 0.3, 1.1 * fired[2], 1.1 * fired[3]], rel=1e-2
    )
    assert [numbers_in(note) for note in by_tokens.notes] == [["1.10"]]
    gates = activity_of(config, "sparse", stats, predictors(None, None, None, None, gate=True))
    np.testing.assert_array_equal(gates.computed, gates.opened)
    assert (gates.active == 1).all()


def test_predictors_of_experts_tell_of_those_that_a_token_uses() -> None:
    config = a_config(d_ff=64, n_experts=40, n_experts_used=4)
    exact = activity_of(config, "exact")
    some = predictors(0.5, 0.5, 0.5, None)
    some = replace(some, is_true_gate=np.array([False, False, True, False]))
    sparse = activity_of(config, "sparse", predictors=some)
    chosen = exact.active.mean()
    assert sparse.active.mean(axis=1) == pytest.approx([0.5 * chosen] * 2 + [chosen, 0.39 * chosen], rel=1e-3)
    assert (sparse.active <= exact.active + 1e-6).all()
    assert (sparse.computed[2] == exact.computed[2]).all()


def test_experts_are_chosen_as_often_as_was_published() -> None:
    """Few experts take most choices; those of the shared expert are not placed."""
    config = a_config(d_ff=64, n_experts=40, n_experts_used=4, shared_d_ff=32)
    activity = activity_of(config, "exact")
    shares = expert_shares(40, 4)
    np.testing.assert_allclose(activity.active[0, ::64], shares)
    assert activity.active.shape == (4, 40 * 64)
    assert (np.diff(shares) <= 1e-6).all()
    np.testing.assert_allclose(shares.sum(), 4, rtol=1e-5)
    np.testing.assert_allclose([shares[:4].sum() / 4, shares[:20].sum() / 4], [0.47, 0.91], atol=0.01)
    assert (expert_shares(4, 3) <= 1).all()


def test_learned_heat_outweighs_what_is_usual() -> None:
    """The more tokens it is of; layers of which nothing was learned are as usual."""
    config, usual = a_config(d_ff=64, n_experts=8, n_experts_used=2), expert_shares(8, 2)
    learned = np.array([0, 0, 0, 0, 100, 60, 30, 10], np.float32)
    heat = np.stack([learned, 0.01 * learned, np.zeros(8, np.float32), learned[::-1]])
    chosen = activity_of(config, "dense", heat=heat).active[:, ::64]
    np.testing.assert_allclose(chosen.sum(axis=1), 2, rtol=1e-5)
    np.testing.assert_allclose(chosen[2], usual)
    assert chosen[3].argmax() == 3
    assert chosen[0].argmax() == chosen[1].argmax() == 4
    assert abs(chosen[0][5] - 0.6) < abs(chosen[1][5] - 0.6)
