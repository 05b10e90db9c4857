"""Attention over a KV cache against the reference: every shape and codec, any number of threads."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import attention_cases
import numpy as np
import pytest
from attention_cases import TOLERANCE, Case, cached, calls, found
from support.repetitions import slow

from native_kernels import kv_blocks
from native_kernels.backend import Scoring
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.kv_blocks import KV_CODECS, KvCodec, KvLayout
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import Temperature

# Keys that are values too are read as the others of their codec: every day in one codec.
SHAPES = [(case, codec) for case in attention_cases.CASES for codec in KV_CODECS]


@pytest.mark.parametrize(
    ("case", "codec"), [slow(*one) if one[0].shared and one[1] != "f32" else one for one in SHAPES], ids=str
)
def test_every_shape(case: Case, codec: KvCodec) -> None:
    attention_cases.check([codec], [case])


@pytest.mark.parametrize(
    "case", [Case(8, 2, 64, 700), Case(3, 1, 80, 40), Case(6, 2, 64, 10, 70), Case(32, 32, 64, 90)]
)
def test_the_number_of_workers_changes_no_bit(case: Case) -> None:
    alone, blocks = found(case)
    for workers in range(2, 9):
        out, others = found(case, workers)
        np.testing.assert_array_equal(out, alone)
        np.testing.assert_array_equal(others, blocks)


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize(
    "case",
    [Case(2, 2, 64, 0, 300), Case(6, 2, 64, 0, 300), Case(14, 2, 64, 0, 300, sinks=True), Case(33, 1, 40, 0, 150),
     Case(12, 2, 80, 0, 300, window=40), Case(4, 2, 64, 0, 300, softcap=3.0), Case(6, 1, 64, 0, 300, shared=True)],
    ids=str,
)  # fmt: skip
def test_no_result_depends_on_how_a_prompt_is_cut(case: Case, codec: KvCodec) -> None:
    q, k, v = case.inputs()
    layout, pool = replace(case, codec=codec).layout, Pool(1)
    ops, results = CpuOperators(pool), []
    for ends in ([], [2], [5, 129], [33, 37, 64, 97, 130], range(2, case.tokens - 1, 3)):
        blocks, parts = kv_blocks.allocate(1, case.kv_heads, case.tokens, layout)[0], []
        for first, end in pairwise([0, *ends, case.tokens]):
            rows = slice(first, end)
            parts.append(ops.cached_attention(q[rows], k[rows], v[rows], blocks, layout, first, case.scoring))
        results.append((np.concatenate(parts), blocks))
    pool.close()
    for out, blocks in results[1:]:
        np.testing.assert_array_equal(out, results[0][0])
        np.testing.assert_array_equal(blocks, results[0][1])


def test_threads_that_race_for_a_heads_end_agree_with_one() -> None:
    case = Case(8, 2, 64, 500)
    alone, _ = found(case)
    pool = Pool(3)
    try:
        place, blocks = cached(case)
        out = np.zeros_like(alone)
        program = Program(calls(case, place, out, 3))
        for _ in range(200):
            out[:] = 0
            pool.run(program)
            np.testing.assert_array_equal(out, alone)
            assert blocks.any()  # and has lived so long
    finally:
        pool.close()


@pytest.mark.parametrize("codec", KV_CODECS)
def test_token_by_token_and_all_at_once_agree(codec: KvCodec) -> None:
    """Prefill and decode, and a cache that was cut back and written anew."""
    whole = Case(6, 2, 64, 0, 40, window=25, codec=codec)
    at_once, blocks = found(whole)
    q, k, v = whole.inputs()
    layout = KvLayout(64, codec)
    anew = kv_blocks.allocate(1, 2, 40, layout)[0]
    pool = Pool(2)
    try:
        ops = CpuOperators(pool)
        ops.cached_attention(q[:30] * 2, k[:30] * 3, v[:30] + 1, anew, layout, 0)  # forgotten again
        ops.cached_attention(q[:10], k[:10], v[:10], anew, layout, 0)
        for i in range(10, 40):
            one = ops.cached_attention(q[i : i + 1], k[i : i + 1], v[i : i + 1], anew, layout, i, Scoring(window=25))
            np.testing.assert_allclose(one[0], at_once[i], rtol=0, atol=TOLERANCE)
    finally:
        pool.close()
    np.testing.assert_array_equal(anew, blocks)


@pytest.mark.parametrize("window", [25, 40, 300])
def test_chunks_at_once_and_token_by_token(window: int) -> None:
    whole = Case(6, 2, 64, 0, 330)
    q, k, v = whole.inputs()
    layout, scoring = KvLayout(64, "f32"), Scoring(window=window, temperature=Temperature(0.2, 30, 1), chunked=True)
    wanted = ReferenceOperators().attention(q, k, v, scoring)
    pool, kept = Pool(2), kv_blocks.allocate(1, 2, 330, layout)[0]
    try:
        ops = CpuOperators(pool)
        at_once = ops.cached_attention(q, k, v, kv_blocks.allocate(1, 2, 330, layout)[0], layout, 0, scoring)
        ops.cached_attention(q[:280], k[:280], v[:280], kept, layout, 0)
        one_by_one = [
            ops.cached_attention(q[i : i + 1], k[i : i + 1], v[i : i + 1], kept, layout, i, scoring)
            for i in range(280, 330)
        ]
    finally:
        pool.close()
    np.testing.assert_allclose(at_once, wanted, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(np.concatenate(one_by_one), wanted[280:], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("n_tokens", [1, 40, 330])
def test_queries_see_all_positions_of_a_text(n_tokens: int) -> None:
    q, k, v = Case(6, 2, 20, 0, n_tokens).inputs()
    layout, scoring = KvLayout(20, "f32"), Scoring(causal=False)
    scores = np.einsum("thd,nhd->htn", q, k.repeat(3, axis=1)) * 20**-0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    wanted = np.einsum("htn,nhd->thd", weights / weights.sum(axis=-1, keepdims=True), v.repeat(3, axis=1))
    pool = Pool(2)
    try:
        blocks = kv_blocks.allocate(1, 2, n_tokens, layout)[0]
        found = CpuOperators(pool).cached_attention(q, k, v, blocks, layout, 0, scoring)
    finally:
        pool.close()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(ReferenceOperators().attention(q, k, v, scoring), wanted, rtol=0, atol=TOLERANCE)


def test_what_is_no_number_reaches_those_who_see_it_and_nobody_else() -> None:
    case = Case(2, 1, 64, 0, 40, codec="f32")
    q, k, v = case.inputs()
    k[20] = np.nan
    layout = KvLayout(64, "f32")
    pool = Pool(1)
    try:
        results = [
            ops.cached_attention(q, k, v, kv_blocks.allocate(1, 1, 40, layout)[0], layout, 0, Scoring(window=10))
            for ops in (CpuOperators(pool), ReferenceOperators())
        ]
    finally:
        pool.close()
    for out in results:
        assert np.isnan(out[20:30]).all()
        assert np.isfinite(out[:20]).all()
        assert np.isfinite(out[30:]).all()
    large = found(replace(case, scale=1e30))[0]  # differences of scores beyond every exponent: one weight is 1
    assert np.isfinite(large).all()
