"""Calls of several tokens side by side give each token what it gets alone, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import product_checks
import pytest
from support.repetitions import some_daily

from native_kernels.backend import ShortConvInput
from native_kernels.cpu.attention.delta_net import StatePlace, short_conv_calls
from native_kernels.cpu.ffn.active_rows import list_calls, take_calls
from native_kernels.cpu.products.gemv import GRAIN, tile_of
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty, run
from native_kernels.cpu.runtime.side_by_side import MOST_TOKENS as MOST
from native_kernels.cpu.runtime.side_by_side import kernels_for, run_side_by_side, side_by_side
from native_kernels.specs import ShortConvSpec


def vectors(n: int, d: int) -> list[Vector]:
    found = [Vector(aligned_empty(d)) for _ in range(n)]
    for seed, vector in enumerate(found):
        vector.values[:] = product_checks.random(d, seed=seed)
    return found


@pytest.mark.parametrize("codec", some_daily(product_checks.NAMES, ("f16", "q8_0", "q4_0", "q4_k", "q6_k")))
@pytest.mark.parametrize(("n_rows", "width", "apart"), [(70, 1, 0), (5, 3, 0), (33, 9, 34)])
def test_products_with_the_vectors_of_several_tokens(codec: str, n_rows: int, width: int, apart: int) -> None:
    """Behind the last row is memory that cannot be read."""
    n_cols = width * max(256, product_checks.block_size(codec)) + (0 if product_checks.block_size(codec) > 32 else 32)
    w, _ = product_checks.matrix(codec, n_rows, n_cols, apart)
    bias = product_checks.random(n_rows, seed=9)
    xs, outs, n_used = vectors(MOST, n_cols), aligned_empty((MOST, n_rows)), aligned_empty(1, np.int64)
    tokens = [Products(1).calls(w, x, out, "", bias=bias) for x, out in zip(xs, outs, strict=True)]
    for calls in tokens:
        run(calls)
    alone = outs.copy()
    merged = side_by_side(tokens, n_used)
    for n, n_workers in [*((n, 1) for n in range(1, MOST + 1)), (7, 3)]:
        outs[:] = np.nan
        n_used[0] = n
        run(merged, n_workers)
        np.testing.assert_array_equal(outs[:n], alone[:n])
        assert np.isnan(outs[n:]).all()


def test_a_tile_is_a_whole_number_of_grains() -> None:
    for codec, n_cols in (("f32", 20_000), ("q4_0", 64), ("q8_0", 4096)):
        w, _ = product_checks.matrix(codec, 2, n_cols)
        assert tile_of(w) % GRAIN == 0
        assert tile_of(w) >= GRAIN


def test_tokens_with_lists_of_their_own() -> None:
    """Their calls have numbers of items that are known when they run."""
    values = product_checks.random(MOST, 300)
    values[values < 0.8] = 0.0
    n_used, outs, tokens = aligned_empty(1, np.int64), np.full((MOST, 300), np.nan, np.float32), []
    for row, out in zip(values, outs, strict=True):
        listed = Listed.empty(300)
        tokens.append([*list_calls(row, listed), *take_calls(row, listed, out)])
    merged = side_by_side(tokens, n_used)
    assert [call.barrier for call in merged] == [True] + [False] * (MOST - 1) + [True]
    n_used[0] = 5
    run(merged, 2)
    for token in range(MOST):
        wanted = values[token][values[token] != 0] if token < 5 else []
        np.testing.assert_array_equal(outs[token][: len(wanted)], wanted)
        assert np.isnan(outs[token][len(wanted) :]).all()


def test_a_chained_call_waits_for_the_token_before_it() -> None:
    spec, channels = ShortConvSpec(70, 3), 70
    states = product_checks.random(MOST + 1, spec.state_size)
    conv, tokens, outs = product_checks.random(channels, 3), [], np.empty((MOST, 1, channels), np.float32)
    for token, out in enumerate(outs):
        x = ShortConvInput(*(product_checks.random(1, channels, seed=3 * token + i) for i in range(3)))
        tokens.append(short_conv_calls(x, out, conv, spec, StatePlace.of(states[token], states[token + 1]), 0))
    for calls in tokens:
        run(calls)
    alone, kept = outs.copy(), states.copy()
    states[1:], outs[:] = np.nan, np.nan
    merged = side_by_side(tokens, np.array([MOST], np.int64))
    assert [call.barrier for call in merged] == [True] * MOST
    run(merged, 2)
    np.testing.assert_array_equal(outs, alone)
    np.testing.assert_array_equal(states, kept)


def test_the_kernels_that_are_added_are_named() -> None:
    w, _ = product_checks.matrix("f16", 4, 64)
    calls: list[Call] = Products(1).calls(w, vectors(1, 64)[0], aligned_empty(4), "")
    added: list[Any] = kernels_for(calls)
    assert run_side_by_side in added
    assert {call.kernel for call in side_by_side([calls, calls], np.ones(1, np.int64))} <= set(added)
