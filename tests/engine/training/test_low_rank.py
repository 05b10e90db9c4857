"""Low-rank predictors: what they are stored as, the cut gate, and what training makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.errors import Cancelled
from engine.job import Job
from engine.training import low_rank
from engine.training.gate_copies import CopyMaker
from engine.training.low_rank import Codec, GateCuts, LowRankFitter, LowRankMap, Recipe
from native_kernels.backend import F32
from native_kernels.reference import ReferenceOperators

D, F, N = 64, 96, 1500
SHORT = Recipe(steps=60, batch=128)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Layer:
    """A gate, inputs, and what its neurons contribute; about a tenth fire.

    The inputs are made of few features at a time, or are normally distributed with a falling spectrum.
    """

    def __init__(self, features: bool) -> None:
        rng = np.random.default_rng(0)
        if features:
            present = rng.exponential(1, (N, 48)) * (rng.random((N, 48)) < 0.06)
            made = present @ (rng.standard_normal((48, D)) * np.arange(1, 49)[:, None] ** -0.3)
            made += 0.05 * rng.standard_normal((N, D))
        else:
            turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
            made = (rng.standard_normal((N, D)) * np.arange(1, D + 1) ** -0.7) @ turn
        self.x: F32 = made.astype(np.float32) + rng.standard_normal(D).astype(np.float32) * 0.3
        self.mean = self.x.mean(0)
        self.w: F32 = rng.standard_normal((F, D)).astype(np.float32)
        values = self.x @ self.w.T
        self.bias: F32 = -np.quantile(values, rng.uniform(0.8, 0.97, F), axis=1).diagonal().astype(np.float32)
        self.gate = values + self.bias
        self.contribution = np.maximum(self.gate, 0).astype(np.float16)
        x = self.x.astype(np.float64)
        self.cuts = GateCuts(self.w, self.bias, x.mean(0), x.T @ x / N)


@pytest.fixture(scope="module")
def layer() -> Layer:
    return Layer(features=True)


@pytest.fixture(scope="module")
def smooth() -> Layer:
    return Layer(features=False)


def share_at(scores: F32, contribution: NDArray[np.float16], recall: float) -> float:
    """The smallest share of the neurons, by falling score, that keeps so much of what all contribute."""
    kept = contribution.astype(np.float64).ravel()[np.argsort(-scores, axis=None)].cumsum()
    return float((np.searchsorted(kept, recall * kept[-1]) + 1) / kept.size)


@pytest.mark.parametrize("codec", ["q4_0", "q8_0", "f16"])
def test_it_is_trained_on_the_values_that_are_stored(layer: Layer, codec: Codec) -> None:
    fitted = LowRankFitter(layer.x, layer.contribution).fit(layer.cuts.cut(32, codec), Recipe(steps=5, batch=64))
    for values, packed in zip((fitted.a, fitted.b), fitted.packed(), strict=True):
        assert packed.codec == codec
        np.testing.assert_array_equal(ReferenceOperators().rows(packed, np.arange(packed.n_rows)), values)


def test_a_rank_that_is_no_whole_block_is_stored_in_16_bits(layer: Layer) -> None:
    cut = layer.cuts.cut(24, "q4_0")
    assert [(w.codec, w.n_bytes) for w in cut.packed()] == [("q4_0", 24 * 36), ("f16", F * 48)]


def test_the_gate_cut_to_nothing_less_is_the_gate(smooth: Layer) -> None:
    scores = smooth.cuts.cut(D, "f16").scores(smooth.x)
    unit = (scores * smooth.gate).sum() / (smooth.gate**2).sum()
    np.testing.assert_allclose(scores / unit, smooth.gate, atol=0.02 * np.abs(smooth.gate).max())


def test_a_cut_keeps_what_matters_on_real_inputs(smooth: Layer) -> None:
    """Cutting W alone, without the inputs' covariance, is worse at the same rank."""
    cut = smooth.cuts.cut(8, "f16").scores(smooth.x)
    left, size, right = np.linalg.svd(smooth.w, full_matrices=False)
    plain = (smooth.x - smooth.mean) @ ((left[:, :8] * size[:8]) @ right[:8]).T + smooth.w @ smooth.mean + smooth.bias
    ours, theirs = (share_at(scores, smooth.contribution, 0.99) for scores in (cut, plain))
    assert ours < 0.8 * theirs


def test_training_lets_fewer_neurons_through_for_the_same_contribution(layer: Layer) -> None:
    train, held = slice(0, 1200), slice(1200, None)
    start = layer.cuts.cut(8, "q4_0")
    fitted = LowRankFitter(layer.x[train].astype(np.float16), layer.contribution[train]).fit(start, Recipe(200, 256))
    before, after = (share_at(m.scores(layer.x[held]), layer.contribution[held], 0.99) for m in (start, fitted))
    assert after < 0.85 * before


def test_neurons_count_by_what_they_contribute(layer: Layer) -> None:
    """With half of the neurons made a hundred times as heavy, the others are what is missed."""
    heavy = layer.contribution * np.where(np.arange(F) % 2, 100, 1).astype(np.float16)
    scores = LowRankFitter(layer.x, heavy).fit(layer.cuts.cut(8, "q8_0"), SHORT).scores(layer.x)
    passed = scores >= np.quantile(scores, 0.75)
    all_of_it = layer.contribution.astype(np.float64)
    kept = [(all_of_it * passed)[:, part::2].sum() / all_of_it[:, part::2].sum() for part in (0, 1)]
    assert kept[1] > 0.98
    assert kept[1] > kept[0] + 0.03


def test_the_same_seed_gives_the_same(layer: Layer) -> None:
    first, again, other = (
        LowRankFitter(layer.x, layer.contribution).fit(layer.cuts.cut(32, "q4_0"), Recipe(8, 64, seed=seed))
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.a, again.a)
    np.testing.assert_array_equal(first.b_bias, again.b_bias)
    assert (first.a != other.a).any()


def test_it_can_be_stopped_and_says_how_far_it_is(layer: Layer) -> None:
    seen: list[tuple[int, int]] = []
    with pytest.raises(Cancelled):
        LowRankFitter(layer.x, layer.contribution).fit(
            layer.cuts.cut(32, "q4_0"), SHORT,
            job=Job(lambda: len(seen) == 3, lambda done, total: seen.append((done, total))),
        )  # fmt: skip
    assert seen == [(1, 60), (2, 60), (3, 60)]


def test_odd_layers_are_fitted_too() -> None:
    """Inputs that never change in some places, a layer where nothing fires, and fewer positions than a batch."""
    x = np.zeros((7, 32), np.float32)
    x[:, 3] = np.arange(7)
    w = np.ones((40, 32), np.float32)
    moments = x.astype(np.float64).mean(0), x.T.astype(np.float64) @ x / 7
    for contribution in (np.zeros((7, 40), np.float16), np.ones((7, 40), np.float16)):
        fitted = LowRankFitter(x, contribution).fit(GateCuts(w, None, *moments).cut(32, "q4_0"), Recipe(steps=4))
        assert np.isfinite(fitted.scores(x)).all()
    assert isinstance(fitted, LowRankMap)


def test_rounding_is_the_codecs(layer: Layer) -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((20, 64)).astype(np.float32) * rng.uniform(1e-4, 10, (20, 1)).astype(np.float32)
    values[3] = 0
    values[4, :32] = 0
    for codec in ("q4_0", "q8_0", "f16"):
        rounded = low_rank._rounded(torch.from_numpy(values), codec).numpy()
        packed = low_rank.PackedMatrix.pack(values, codec)
        np.testing.assert_array_equal(rounded, ReferenceOperators().rows(packed, np.arange(20)))


@pytest.mark.parametrize("spread", [0.0, 1e-7, 1.0])
def test_inputs_that_hardly_differ_have_finite_cuts_and_copies(spread: float) -> None:
    """Collapsed hidden states: a covariance of nothing but rounding, or with directions that never occur."""
    rng = np.random.default_rng(1)
    x = 30 * rng.standard_normal(D) + spread * rng.standard_normal((N, 2)) @ rng.standard_normal((2, D))
    part = x.astype(np.float32)  # summed up as LayerSamples.moments does
    mean, second = part.sum(0, dtype=np.float64) / N, (part.T @ part).astype(np.float64) / N
    w: F32 = rng.standard_normal((F, D)).astype(np.float32)
    cut = GateCuts(w, None, mean, second).cut(32, "f16")
    copy = CopyMaker(w, None, mean, second).fit(2)
    for values in (cut.a, cut.a_bias, cut.b, cut.b_bias, copy.bias, copy.noise):
        assert np.isfinite(values).all()
    at_mean = w @ mean
    np.testing.assert_allclose((w - copy.values()) @ mean - copy.bias, 0, atol=1e-3 * np.abs(at_mean).max())
