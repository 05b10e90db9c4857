"""Products of many tokens, in every codec and shape; product_checks says which errors are allowed."""

from __future__ import annotations

import numpy as np
import product_checks
import pytest
from product_checks import (
    DAILY,
    NAMES,
    check_matmul,
    check_matmul_t,
    check_rows,
    matmul,
    matmul_t,
    matrix,
    random,
    tokens_of,
)
from support.repetitions import some_daily

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.gemm import gemm
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime import call
from native_kernels.cpu.runtime.pool import Pool

NUMBERS = ("f32", "f16", "bf16")
SMALL_BLOCKS = [name for name in NAMES if name not in NUMBERS and product_checks.block_size(name) == 32]


@pytest.mark.parametrize("name", some_daily(NAMES, DAILY))
def test_products_of_every_codec(name: str) -> None:
    for n_tokens in (1, 2, 8, 17, 33):
        check_matmul(name, n_tokens, 75, 768, apart=5)
    check_matmul(name, 40, 130, 2304)  # several pieces of columns and blocks of rows
    check_rows(name, 7, 768)


# What they have of their own is the same in all codecs.
@pytest.mark.parametrize("name", some_daily(NAMES, ("f32", "f16", "q4_0", "q8_0", *product_checks.LANES, "q4_k")))
def test_transposed_products_of_every_codec(name: str) -> None:
    for n_tokens in (1, 5, 13):
        check_matmul_t(name, n_tokens, 300, 768, apart=5)


@pytest.mark.parametrize("n_tokens", range(1, 41))
def test_every_number_of_tokens(n_tokens: int) -> None:
    for name in ("f16", "q4_0"):
        check_matmul(name, n_tokens, 37, 96)
        check_matmul_t(name, n_tokens, 37, 96)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("n_cols", [1, 5, 16, 31, 255, 257, 1041])
def test_ragged_columns_of_plain_numbers(name: str, n_cols: int) -> None:
    for n_tokens, n_rows in ((1, 1), (3, 5), (19, 50), (35, 3)):
        check_matmul(name, n_tokens, n_rows, n_cols, apart=1)
        check_matmul_t(name, n_tokens, n_rows, n_cols, apart=1)


@pytest.mark.parametrize("name", some_daily(SMALL_BLOCKS, DAILY))
@pytest.mark.parametrize("groups", [1, 15, 17, 71])
def test_ragged_groups(name: str, groups: int) -> None:
    for n_tokens, n_rows in ((2, 1), (6, 33), (9, 140)):
        check_matmul(name, n_tokens, n_rows, 32 * groups, apart=3)
    check_matmul_t(name, 5, 40, 32 * groups, apart=3)


def test_more_tokens_than_are_summed_at_once() -> None:
    for name in ("f16", "q8_0"):
        check_matmul(name, 531, 60, 288)
        check_matmul_t(name, 531, 60, 288)


@pytest.mark.parametrize("name", some_daily(["f32", "f16", "q4_0", "q8_0", "q4_k"], DAILY))
def test_no_result_depends_on_how_rows_are_dealt_out(name: str) -> None:
    w, _ = matrix(name, 211, 768)
    for n_tokens in (3, 29):
        x, h = random(n_tokens, 768), random(n_tokens, 211)
        found, found_t = matmul(x, w), matmul_t(h, w)[0]
        for n_workers in range(2, 9):
            assert np.array_equal(matmul(x, w, n_workers), found)
            assert np.array_equal(matmul_t(h, w, n_workers)[0], found_t)


@pytest.mark.parametrize("name", some_daily(NAMES, DAILY))
def test_no_result_depends_on_how_tokens_are_split(name: str) -> None:
    w, _ = matrix(name, 75, 768)
    x, h = random(70, 768), random(70, 75)
    h[h < 0.5] = 0
    whole, transposed = matmul(x, w, of_prompt=True), matmul_t(h, w)[0]
    for first, n_tokens in ((0, 2), (1, 5), (3, 16), (9, 17), (30, 40)):
        rows = slice(first, first + n_tokens)
        np.testing.assert_array_equal(matmul(x[rows], w, of_prompt=True), whole[rows])
        if not gemm.form_of(name, 70).endswith("tiles"):  # these round by pairs of the neurons that fire
            np.testing.assert_array_equal(matmul_t(h[rows], w)[0], transposed[rows])


@pytest.mark.parametrize("name", some_daily(["f32", "f16", "q4_0", "q8_0", "q6_k"], DAILY))
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_token(bad: float, name: str) -> None:
    w, _ = matrix(name, 40, 512)
    for n_tokens in (3, 20, 37):
        x = random(n_tokens, 512)
        clean = matmul(x, w)
        x[1, 77] = bad
        found = matmul(x, w)
        assert not np.isfinite(found[1]).any()
        others = np.arange(n_tokens) != 1
        assert np.array_equal(found[others], clean[others])


@pytest.mark.parametrize("name", some_daily(["f16", "q4_0", "q8_0", "q4_k"], DAILY))
def test_weights_that_are_not_finite_stay_in_their_row(name: str) -> None:
    w, _ = matrix(name, 70, 512)
    x = random(20, 512)
    clean = matmul(x, w)
    raw = w.data.view(np.uint8)
    raw[33, :2] = (0, 0x7C)  # an infinite float16
    found = matmul(x, w)
    assert not np.isfinite(found[:, 33]).any()
    others = np.arange(70) != 33
    assert np.array_equal(found[:, others], clean[:, others])


def test_the_largest_quants_do_not_overflow() -> None:
    for name in ("q4_0", "q8_0"):
        w, _ = matrix(name, 33, 512)
        raw = w.data.view(np.uint8).reshape(33, 16, -1)
        raw[:, :, :2] = np.array([1.0], "<f2").view(np.uint8)
        raw[:, :, 2:] = 0x80 if name == "q8_0" else 0x00  # the most negative quant
        lowest = -128 if name == "q8_0" else -8
        found = matmul(np.full((9, 512), 3.0, np.float32), w)
        np.testing.assert_allclose(found, 512 * 3.0 * lowest, rtol=1e-5)


def test_tiny_and_zero_tokens() -> None:
    for name in ("f32", "q4_0"):
        w, values = matrix(name, 20, 64)
        assert not matmul(np.zeros((5, 64), np.float32), w).any()
        x = random(5, 64) * np.float32(1e-41)  # below the smallest normal number
        assert np.abs(matmul(x, w) - x.astype(np.float64) @ values.T).max() <= 1e-39


def test_nothing_fires() -> None:
    w, _ = matrix("f16", 50, 96)
    found, ids = matmul_t(np.zeros((3, 50), np.float32), w)
    assert not found.any()
    assert len(ids) == 0
    assert np.isfinite(found).all()


def test_rows_of_neurons_that_do_not_fire_are_not_read() -> None:
    w, values = matrix("f16", 50, 96)
    h = random(3, 50)
    h[:, 10:] = 0
    w.data[10:] = np.nan
    assert np.abs(matmul_t(h, w)[0] - h[:, :10].astype(np.float64) @ values[:10]).max() < 1e-4


def test_the_number_of_tokens_is_read_when_it_runs() -> None:
    w, values = matrix("q4_0", 40, 96)
    x = random(12, 96)
    tokens, panels = tokens_of(0), gemm.Panels.make(12, 96, gemm.form_of("q4_0", 12))
    out, scratch = call.aligned_empty((12, 40)), gemm.Scratch.make(1)
    calls = [*gemm.pack_calls(x, tokens, panels), *gemm.matmul_calls(panels, w, tokens, out, scratch)]
    for count in (12, 3, 1, 7, 0):
        tokens[0] = count
        out[:] = np.nan
        call.run(calls)
        error = np.abs(out[:count] - x[:count].astype(np.float64) @ values.T)
        assert (error <= product_checks.allowed(x[:count], values, panels.form)).all()
        assert np.isnan(out[count:]).all()


def test_what_does_not_fit_is_refused() -> None:
    w, _ = matrix("f16", 40, 96)
    tokens, scratch, out = tokens_of(2), gemm.Scratch.make(1), call.aligned_empty((2, 40))
    panels = gemm.Panels.make(2, 64, "dots")
    with pytest.raises(ValueError, match="64 columns"):
        gemm.matmul_calls(panels, w, tokens, out, scratch)
    with pytest.raises(ValueError, match="expected"):
        gemm.pack_calls(random(2, 96), tokens, panels)
    with pytest.raises(ValueError, match="neurons"):
        gemm.matmul_t_calls(out, tokens, w, call.aligned_empty((2, 96)), gemm.Firing.make(2, 39, "f16"), scratch)


def test_rows_beyond_the_first_piece_are_summed_with_their_own_values() -> None:
    rng, pool = np.random.default_rng(4), Pool(1)
    w, h = (rng.standard_normal(shape).astype(np.float32) for shape in ((600, 64), (10, 600)))
    found = CpuOperators(pool).matmul_t(h, PackedMatrix.pack(w, "f32"))
    np.testing.assert_allclose(found, h @ w, atol=1e-3)
    pool.close()
