"""The sampler: greedy choice, each filter against a naive reference, the distribution, seeds, broken logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.config import SamplingConfig
from engine.session import sampling
from engine.session.sampling import BrokenLogitsError, _draw, _draw_from_all, _keep, largest, make_sampler

GREEDY = SamplingConfig(temperature=0)


def naive_distribution(logits: NDArray[np.float32], history: list[int], config: SamplingConfig) -> dict[int, float]:
    """The same distribution with one full sort and plain loops."""
    scores = [float(x) for x in logits]
    for token in set(history):
        punished = np.float32(logits[token])
        factor = np.float32(config.repeat_penalty)
        scores[token] = float(punished / factor if punished > 0 else punished * factor)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    if config.top_k:
        order = order[: config.top_k]
    weights = {i: float(np.exp((scores[i] - scores[order[0]]) / config.temperature)) for i in order}
    total = sum(weights.values())
    if config.top_p < 1:
        kept, reached = [], 0.0
        for i in order:
            kept.append(i)
            reached += weights[i] / total
            if reached >= config.top_p:
                break
        order = kept
    order = [i for i in order if weights[i] >= config.min_p * weights[order[0]]]
    total = sum(weights[i] for i in order)
    return {i: weights[i] / total for i in order}


def test_zero_temperature_takes_the_largest_and_the_lowest_id_among_equals() -> None:
    sample = make_sampler(GREEDY)
    assert sample(np.array([0.0, 3.0, 1.0, 3.0], np.float32), []) == 1
    assert sample(np.zeros(5, np.float32), []) == 0
    assert sample(np.array([-7.0], np.float32), []) == 0


def test_repeat_penalty_moves_greedy_away_from_the_history() -> None:
    logits = np.array([2.0, 1.9, -1.0], np.float32)
    sample = make_sampler(SamplingConfig(temperature=0, repeat_penalty=1.5))
    assert sample(logits, []) == 0
    assert sample(logits, [0, 0, 0]) == 1
    assert sample(np.array([-1.0, -1.2], np.float32), [0]) == 1  # a negative logit is multiplied
    assert logits[0] == 2.0, "the caller's logits stay as they are"


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 400),
    seed=st.integers(0, 2**32 - 1),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 40, 1000]),
    top_p=st.sampled_from([0.0, 0.3, 0.9, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_the_kept_tokens_equal_a_naive_reference(
    n: int, seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=n) * 3).astype(np.float32)
    config = SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ids, weights = _keep(logits, config)
    expected = naive_distribution(logits, [], config)
    assert set(ids.tolist()) == set(expected)
    for token, weight in zip(ids.tolist(), weights / weights.sum(), strict=True):
        assert weight == pytest.approx(expected[token], rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 32003])
@pytest.mark.parametrize("k", [1, 5, 40, 999])
def test_largest_equals_a_full_sort_with_many_ties(n: int, k: int) -> None:
    k = min(k, n)
    scores = np.random.default_rng(n).integers(0, 50, n).astype(np.float32)
    assert largest(scores, k).tolist() == np.argsort(-scores, kind="stable")[:k].tolist()


def test_a_nucleus_wider_than_the_first_look_is_found() -> None:
    logits = np.zeros(20000, np.float32)
    ids, weights = _keep(logits, SamplingConfig(temperature=1, top_k=0, top_p=0.5))
    assert ids.tolist() == list(range(10000))
    assert weights.tolist() == [1.0] * 10000


@pytest.mark.parametrize(
    "config",
    [
        SamplingConfig(temperature=1, top_k=0, top_p=1, seed=11),
        SamplingConfig(temperature=0.7, top_k=5, top_p=1, seed=12),
        SamplingConfig(temperature=1.3, top_k=0, top_p=0.8, seed=13),
        SamplingConfig(temperature=1, top_k=8, top_p=0.95, min_p=0.1, repeat_penalty=1.3, seed=14),
    ],
)
def test_draws_follow_the_distribution(config: SamplingConfig) -> None:
    """Chi-squared over 5,000 draws; the bound is its mean plus six standard deviations."""
    logits = np.array([2.0, 1.5, 1.5, 0.2, -1.0, 0.0, 3.0, -4.0, 1.0, 0.9], np.float32)
    history = [6, 6, 1]
    expected = naive_distribution(logits, history, config)
    sample = make_sampler(config)
    n = 5_000
    counts = np.bincount([sample(logits, history) for _ in range(n)], minlength=10)
    assert counts.sum() == sum(counts[i] for i in expected)
    chi2 = sum((counts[i] - n * p) ** 2 / (n * p) for i, p in expected.items())
    freedom = max(len(expected) - 1, 1)
    assert chi2 < freedom + 6 * np.sqrt(2 * freedom)


def test_a_seed_gives_one_sequence_and_these_very_ids() -> None:
    logits = np.linspace(0, 2, 50, dtype=np.float32)
    config = SamplingConfig(temperature=1, top_k=0, top_p=1, seed=42)
    first, second = make_sampler(config), make_sampler(config)
    ids = [first(logits, []) for _ in range(8)]
    assert ids == [second(logits, []) for _ in range(8)]
    assert ids == [44, 33, 46, 42, 11, 49, 44, 44]
    other = make_sampler(config.changed({"seed": 43}))
    assert ids != [other(logits, []) for _ in range(8)]


def test_without_a_seed_two_samplers_differ() -> None:
    logits = np.zeros(1000, np.float32)
    a, b = make_sampler(SamplingConfig(top_k=0)), make_sampler(SamplingConfig(top_k=0))
    assert [a(logits, []) for _ in range(20)] != [b(logits, []) for _ in range(20)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_broken_logits_are_named(bad: float, temperature: float) -> None:
    logits = np.zeros(100, np.float32)
    logits[7] = bad
    with pytest.raises(BrokenLogitsError, match=r"\b1 .*\b100 logits"):
        make_sampler(SamplingConfig(temperature=temperature))(logits, [])


def test_no_logits_are_an_error() -> None:
    with pytest.raises(BrokenLogitsError):
        make_sampler(GREEDY)(np.zeros(0, np.float32), [])


@pytest.mark.parametrize("temperature", [1e-300, 1e-320, 1e-9, 10.0])
def test_extreme_temperatures_and_logits_stay_sound(temperature: float) -> None:
    logits = np.array([-3e38, 3e38, 0.0, 1.0], np.float32)
    for top_k, top_p in ((0, 1.0), (2, 0.9), (0, 0.9)):
        assert make_sampler(SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p))(logits, []) == 1


def test_the_draw_never_leaves_the_kept_tokens() -> None:
    assert _draw(np.array([0.1, 0.0, 0.3]), 0.0) == 0
    assert _draw(np.array([0.1, 0.0, 0.3]), 0.25) == 2
    assert _draw(np.array([0.1, 0.2]), np.nextafter(1.0, 0)) == 1


def test_a_draw_never_falls_off_the_end_by_rounding() -> None:
    assert _draw(np.array([5e-324]), 0.9) == 0  # 0.9 of the smallest number is the smallest number
    assert _draw(np.array([0.0, 1.0, 0.0]), np.nextafter(1.0, 0.0)) == 1


def test_a_draw_from_all_is_the_inverse_of_their_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_PIECE", 4)
    logits = np.random.default_rng(5).standard_normal(23).astype(np.float32) * 3
    weights = np.exp(logits.astype(np.float64) / 0.7)
    ends = np.cumsum(weights) / weights.sum()
    for uniform in (0.0, *(ends - 1e-9), *(ends[:-1] + 1e-9), np.nextafter(1.0, 0.0)):
        expected = min(int(np.searchsorted(ends, uniform, side="right")), 22)
        assert _draw_from_all(logits, 0.7, float(uniform)) == expected


@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0])
def test_a_floor_loses_none_of_the_likely_tokens(temperature: float) -> None:
    logits = (np.linspace(-30, 30, 5000, dtype=np.float32) + np.float32(1000)).astype(np.float32)
    for min_p in (1e-6, 0.05, 1.0):
        config = SamplingConfig(temperature=temperature, top_k=0, top_p=1, min_p=min_p)
        weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
        np.testing.assert_array_equal(_keep(logits, config)[0], np.flatnonzero(weights >= min_p))
