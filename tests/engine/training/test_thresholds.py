"""Thresholds keep the contribution that was asked for; worth is the expected excess of a noisy score."""

from __future__ import annotations

import numpy as np
import pytest

from engine.training import thresholds
from engine.training.thresholds import Point, Seen, Worth, points
from native_kernels.backend import F32

T, F = 300, 64


def _scores(noise: float, seed: int = 0) -> tuple[F32, F32, F32]:
    """What goes into ReLU, a noisy guess at it, and the contribution."""
    rng = np.random.default_rng(seed)
    first = rng.normal(-1.2, 1, size=(T, F)).astype(np.float32)
    guess = first + rng.normal(0, noise, size=(T, F)).astype(np.float32)
    length = rng.uniform(0.5, 2, F).astype(np.float32)
    return first, guess, np.maximum(first, 0) * length


@pytest.mark.parametrize("level", [0.9, 0.99, 0.999])
def test_what_is_kept_is_what_was_asked_for_and_hardly_more(level: float) -> None:
    _, guess, contribution = _scores(0.3)
    (point,) = points(contribution, guess, None, levels=[level])
    passes = guess >= point.first
    kept = contribution[passes].sum() / contribution.sum()
    assert level - 1e-6 <= kept <= level + 0.002
    assert point.recall == pytest.approx(kept, abs=1e-6)
    assert point.active == pytest.approx(passes.mean(), abs=1e-6)
    assert point.precision == pytest.approx((contribution[passes] > 0).mean(), abs=1e-6)
    assert point.fired_recall == pytest.approx(passes[contribution > 0].mean(), abs=1e-6)


def test_a_sample_of_the_quiet_ones_is_close_to_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _, guess, contribution = _scores(0.5)
    whole = points(contribution, guess, None)
    monkeypatch.setattr(thresholds, "QUIET_SAMPLES", 3000)
    for one, other in zip(whole, points(contribution, guess, None), strict=True):
        assert one.first == other.first
        assert one.active == pytest.approx(other.active, abs=0.02)


def test_a_cascade_keeps_the_level_and_splits_the_loss_as_is_cheapest() -> None:
    _, rough, contribution = _scores(1.0)
    _, fine, _ = _scores(0.2)
    fine = fine + 0  # the same truth, less noise
    seen = Seen(contribution)

    def cost(point: Point) -> float:
        return 0.2 * point.passed + point.active

    (found,) = points(seen, rough, fine, cost, [0.98])
    passes = (rough >= found.first) & (fine >= found.second)
    assert contribution[passes].sum() / contribution.sum() >= 0.98 - 1e-6
    assert found.passed == pytest.approx((rough >= found.first).mean(), abs=1e-6)
    assert found.active <= found.passed
    (frugal,) = points(seen, rough, fine, lambda point: point.passed, [0.98])
    assert frugal.passed <= found.passed
    (narrow,) = points(seen, rough, fine, lambda point: point.active, [0.98])
    assert narrow.active <= found.active


def test_where_nothing_fired_everything_is_let_through() -> None:
    scores = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    (point,) = points(np.zeros((3, 4), np.float32), None, scores, levels=[0.99])
    assert point.active == 1
    assert (scores >= point.second).all()


@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_worth_is_what_the_neuron_contributes_in_the_mean(threshold: float) -> None:
    rng = np.random.default_rng(1)
    noise, weight = np.array([0.5, 2.0], np.float32), np.array([1.0, 3.0], np.float32)
    worth = Worth(noise, weight, threshold)
    for score in (-0.3, 0.0, 1.5, 9.0):
        truth = score + rng.normal(size=(200_000, 2)) * noise
        mean = (np.maximum(truth - threshold, 0) * weight).mean(0)
        said = np.exp(worth.of_scores(np.full((1, 2), score, np.float32))[0])
        np.testing.assert_allclose(said, mean, rtol=0.03)


def test_least_scores_are_where_the_worth_is_reached() -> None:
    rng = np.random.default_rng(2)
    worth = Worth(rng.uniform(0.1, 2, 50).astype(np.float32), rng.uniform(0.1, 5, 50).astype(np.float32), 0.1)
    for wanted in (-6.0, -1.0, 2.0, 5.0):
        reached = worth.of_scores(worth.least_scores(wanted)[None])[0]
        np.testing.assert_allclose(reached, wanted, atol=1e-3)


def test_far_below_zero_the_logarithm_stays_smooth() -> None:
    one = np.ones(1, np.float32)
    logs = Worth(one, one).of_scores(np.linspace(-12, -2, 400, dtype=np.float32)[:, None])[:, 0]
    steps = np.diff(logs)
    assert (steps > 0).all()
    assert np.abs(np.diff(steps)).max() < 0.05 * steps.max()


def test_neurons_with_more_noise_are_let_through_earlier_and_dead_ones_are_not_given_up() -> None:
    first, _, contribution = _scores(0.3)
    contribution[:, 5] = 0
    first[:, 5] = -1
    noise = np.where(np.arange(F) % 2, 1.0, 0.1).astype(np.float32)
    worth = Worth.of(noise, first, contribution)
    least = worth.least_scores(-2.0)
    assert least[1::2].mean() < least[::2].mean()
    assert np.isfinite(least).all()
    assert worth.weight.min() > 0
