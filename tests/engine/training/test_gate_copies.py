"""Copies are rounded for the product on the inputs that come; what they say of their own error is true."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from engine.errors import Cancelled
from engine.job import Job
from engine.training.gate_copies import CopyFit, CopyMaker
from native_kernels.backend import F32, PackedMatrix
from native_kernels.codecs.copies import COPY_GROUP
from native_kernels.reference import ReferenceOperators

D, F = 160, 96  # the last group of 64 columns is ragged


def _layer(seed: int = 0) -> tuple[F32, F32, F32]:
    """Weights, bias and correlated inputs with a mean, as layers have them."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(F, D)).astype(np.float32)
    mixed = rng.normal(size=(D, D)) * np.geomspace(3, 0.05, D)
    x = rng.normal(size=(2000, D)) @ mixed.T / np.sqrt(D) + 0.7 * rng.normal(size=D)
    return w, rng.normal(size=F).astype(np.float32), x.astype(np.float32)


def _maker(w: F32, bias: F32 | None, x: F32, group: int = 64) -> CopyMaker:
    wide = x.astype(np.float64)
    return CopyMaker(w, bias, wide.mean(0), wide.T @ wide / len(wide), group=group)


def _error(fit: CopyFit, w: F32, bias: F32, x: F32) -> float:
    missed = x @ fit.values().T + fit.bias - (x @ w.T + bias)
    return float((missed**2).mean())


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_the_product_errs_far_less_than_with_the_nearest_levels(bits: int) -> None:
    w, bias, x = _layer()
    fitted = _error(_maker(w, bias, x).fit(bits), w, bias, x)
    nearest = PackedMatrix.pack(w, f"copy{bits}")
    plain = ReferenceOperators().rows(nearest, np.arange(F))
    missed = (x - x.mean(0)) @ (plain - w).T
    assert fitted < 0.5 * float((missed**2).mean())


def test_more_bits_err_less() -> None:
    w, bias, x = _layer()
    maker = _maker(w, bias, x)
    errors = [_error(maker.fit(bits), w, bias, x) for bits in (1, 2, 3, 4)]
    assert all(more < 0.6 * fewer for fewer, more in pairwise(errors))


def test_turns_improve_what_columns_alone_gave() -> None:
    w, bias, x = _layer()
    maker = _maker(w, bias, x)
    assert _error(maker.fit(1, turns=3), w, bias, x) < 0.97 * _error(maker.fit(1, turns=0), w, bias, x)


def test_noise_is_the_deviation_of_the_scores_and_their_mean_is_right() -> None:
    w, bias, x = _layer()
    fit = _maker(w, bias, x).fit(2)
    missed = x @ fit.values().T + fit.bias - (x @ w.T + bias)
    np.testing.assert_allclose(missed.mean(0), 0, atol=2e-3)
    np.testing.assert_allclose(missed.std(0), fit.noise, rtol=0.02)


def test_what_is_packed_gives_the_same_numbers() -> None:
    w, bias, x = _layer()
    fit = _maker(w, bias, x, COPY_GROUP).fit(3)
    rows = ReferenceOperators().rows(fit.packed(), np.arange(F))
    np.testing.assert_allclose(rows, fit.values(), rtol=1e-6)


def test_the_same_again_is_the_same() -> None:
    w, bias, x = _layer()
    one, two = (_maker(w, bias, x).fit(2) for _ in range(2))
    np.testing.assert_array_equal(one.codes, two.codes)
    np.testing.assert_array_equal(one.scales, two.scales)


def test_inputs_that_never_vary_and_weights_of_zero_are_no_trouble() -> None:
    w, bias, x = _layer()
    x[:, 10:60] = 1.5
    w[7] = 0
    fit = _maker(w, bias, x[:50]).fit(2)  # fewer positions than columns too
    assert np.isfinite(fit.values()).all()
    assert np.isfinite(fit.bias).all()
    assert np.isfinite(fit.noise).all()


def test_it_stops_when_asked_to_and_says_how_far_it_is() -> None:
    w, bias, x = _layer()
    seen: list[tuple[int, int]] = []
    _maker(w, bias, x).fit(1, job=Job(progress=lambda done, total: seen.append((done, total))))
    assert seen[-1] == (F, F)
    with pytest.raises(Cancelled):
        _maker(w, bias, x).fit(1, job=Job(lambda: True))
