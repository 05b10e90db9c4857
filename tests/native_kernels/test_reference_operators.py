"""The reference operators against naive loops in float64, at odd shapes and in every codec."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from native_kernels.backend import Codec, PackedMatrix, Scoring
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import Temperature

OPS = ReferenceOperators()
CODECS: tuple[Codec, ...] = ("f32", "f16")
# The last one spans several tiles of 1 MiB.
SHAPES = [(1, 1, 1), (3, 5, 7), (2, 17, 33), (1, 64, 31), (0, 4, 3), (2, 700, 1201)]


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def packed(n_rows: int, n_cols: int, codec: Codec) -> tuple[PackedMatrix, NDArray[np.float64]]:
    w = PackedMatrix.pack(random(n_rows, n_cols, seed=1), codec)
    return w, w.data.astype(np.float64)


def close(found: NDArray[np.float32], wanted: NDArray[np.float64]) -> None:
    assert found.dtype == np.float32
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("t", "n", "d"), SHAPES)
def test_matrix_products(t: int, n: int, d: int, codec: Codec) -> None:
    w, exact = packed(n, d, codec)
    x, h = random(t, d), random(t, n)
    close(OPS.matmul(x, w), np.array([[math.fsum(a * b) for b in exact] for a in x.astype(float)]).reshape(t, n))
    by_hand = np.zeros((t, d))
    for i in range(t):
        for j in range(n):
            by_hand[i] += float(h[i, j]) * exact[j]
    close(OPS.matmul_t(h, w), by_hand)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", ["none", "one", "some", "all"])
@pytest.mark.parametrize(("f", "d"), [(1, 1), (5, 7), (33, 17), (700, 1201)])
def test_sparse_products_touch_only_the_given_rows(f: int, d: int, kept: str, codec: Codec) -> None:
    w, exact = packed(f, d, codec)
    rows = {"none": [], "one": [f - 1], "some": range(0, f, 3), "all": range(f)}[kept]
    ids = np.array(rows, np.int32)
    x, values = random(d), random(len(ids), seed=2)
    w.data[np.setdiff1d(np.arange(f), ids)] = np.inf  # reading one of these would show
    close(OPS.sparse_gemv(w, x, ids), np.array([math.fsum(exact[i] * x.astype(float)) for i in ids]))
    by_hand = np.zeros(d)
    for value, i in zip(values, ids, strict=True):
        by_hand += float(value) * exact[i]
    close(OPS.sparse_axpy(w, values, ids), by_hand)


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_looked_up(codec: Codec) -> None:
    w, exact = packed(9, 5, codec)
    ids = np.array([8, 0, 8], np.int64)
    np.testing.assert_array_equal(OPS.rows(w, ids), exact[ids])
    assert OPS.rows(w, ids[:0]).shape == (0, 5)


def test_every_finite_float16_is_unpacked_exactly() -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = values[np.isfinite(values)].reshape(-1, 64)
    found = OPS.rows(PackedMatrix.pack(finite, "f16"), np.arange(len(finite), dtype=np.int64))
    np.testing.assert_array_equal(found.view(np.uint32), finite.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize(("t", "d"), [(1, 1), (4, 7), (0, 5), (3, 512)])
def test_rms_norm(t: int, d: int) -> None:
    x, weight = random(t, d), random(d, seed=3)
    by_hand = np.array(
        [[v / math.sqrt(math.fsum(u * u for u in row) / d + 1e-5) * g for v, g in zip(row, weight, strict=True)]
         for row in x.astype(float)]
    ).reshape(t, d)  # fmt: skip
    close(OPS.rms_norm(x, weight, 1e-5), by_hand)


def test_rope_turns_pairs_half_a_head_apart() -> None:
    x, positions = random(3, 2, 6), np.array([0, 5, 90_001], np.int64)
    cos, sin = OPS.rope_angles(positions, 6, 10000.0)
    by_hand = np.zeros(x.shape)
    for t, position in enumerate(positions):
        for i in range(3):
            angle = int(position) * 10000.0 ** (-2 * i / 6)
            for h in range(2):
                a, b = float(x[t, h, i]), float(x[t, h, i + 3])
                by_hand[t, h, i] = a * math.cos(angle) - b * math.sin(angle)
                by_hand[t, h, i + 3] = b * math.cos(angle) + a * math.sin(angle)
    close(OPS.rope(x, cos, sin), by_hand)


@pytest.mark.parametrize(("t", "n", "heads", "kv_heads"),
                         [(1, 1, 1, 1), (1, 9, 4, 2), (5, 5, 4, 1), (3, 10, 6, 3), (0, 4, 2, 2)])  # fmt: skip
def test_attention_is_causal_and_shares_heads(t: int, n: int, heads: int, kv_heads: int) -> None:
    q, k, v = random(t, heads, 6), random(n, kv_heads, 6, seed=4), random(n, kv_heads, 6, seed=5)
    close(OPS.attention(q, k, v), naive_attention(q, k, v))


@pytest.mark.parametrize("queries", [1, 2, 3, 5])
def test_attention_in_pieces_equals_attention_at_once(monkeypatch: pytest.MonkeyPatch, queries: int) -> None:
    q, k, v = random(11, 4, 6), random(20, 2, 6, seed=4), random(20, 2, 6, seed=5)
    monkeypatch.setattr("native_kernels.reference._SCORE_BYTES", 4 * 4 * 20 * queries)
    close(OPS.attention(q, k, v), naive_attention(q, k, v))


def test_the_scores_of_a_long_context_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = random(64, 4, 6), random(2048, 2, 6, seed=4), random(2048, 2, 6, seed=5)  # 2 MiB of scores at once
    monkeypatch.setattr("native_kernels.reference._SCORE_BYTES", 64 << 10)
    tracemalloc.start()
    try:
        OPS.attention(q, k, v)
        assert tracemalloc.get_traced_memory()[1] < 512 << 10
    finally:
        tracemalloc.stop()


def test_scores_far_beyond_what_exp_can_hold_are_attended_to() -> None:
    q, k, v = random(3, 4, 6) * 1000, random(5, 2, 6, seed=4), random(5, 2, 6, seed=5)
    close(OPS.attention(q, k, v), naive_attention(q, k, v))


def test_attention_reads_a_cache_that_is_longer_than_what_it_holds() -> None:
    cache = np.full((2, 8, 2, 6), np.nan, np.float32)
    cache[:, :5] = random(2, 5, 2, 6)
    q = random(2, 4, 6)
    close(OPS.attention(q, cache[0, :5], cache[1, :5]), naive_attention(q, cache[0, :5], cache[1, :5]))


def naive_attention(q: NDArray[np.float32], k: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.float64]:
    (t, heads, head_dim), (n, kv_heads, _) = q.shape, k.shape
    out = np.zeros(q.shape)
    for i in range(t):
        for h in range(heads):
            shared = h // (heads // kv_heads)
            scores = [
                math.fsum(q[i, h].astype(float) * k[j, shared]) / math.sqrt(head_dim) for j in range(n - t + i + 1)
            ]
            weights = np.exp(np.array(scores) - max(scores))
            for j, weight in enumerate(weights / weights.sum()):
                out[i, h] += weight * v[j, shared]
    return out


def test_activations() -> None:
    x = np.array([-1e30, -100, -1, -0.0, 0, 0.5, 100, 1e30], np.float32)
    np.testing.assert_array_equal(OPS.relu(x), [0, 0, 0, 0, 0, 0.5, 100, np.float32(1e30)])
    close(OPS.silu(x[1:7]), np.array([v / (1 + math.exp(-v)) for v in x[1:7].astype(float)]))
    assert OPS.silu(x)[0] == 0
    assert OPS.silu(x)[-1] == np.float32(1e30)


def test_a_packed_matrix_that_lies_is_refused() -> None:
    with pytest.raises(ValueError, match="was declared"):
        PackedMatrix(2, 3, "f32", np.zeros((3, 2), np.float32))
    with pytest.raises(ValueError, match="was declared"):
        PackedMatrix(2, 3, "f16", np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="one after another"):
        PackedMatrix(2, 3, "f32", np.zeros((3, 2), np.float32).T)


def test_it_runs_everywhere() -> None:
    assert OPS.why_unavailable() == []


@pytest.mark.parametrize("window", [1, 2, 5, 40])
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("sinks", [None, np.array([0.5, -2.0, 3.0, 0.0], np.float32)])
def test_attention_with_a_window_a_cap_and_sinks(
    monkeypatch: pytest.MonkeyPatch, window: int, softcap: float | None, pieces: int, sinks: Any
) -> None:
    q, k, v = random(11, 4, 6), random(20, 2, 6, seed=4), random(20, 2, 6, seed=5)
    if pieces > 1:
        monkeypatch.setattr("native_kernels.reference._SCORE_BYTES", 4 * 4 * 20 * 3)
    by_hand = np.zeros(q.shape)
    for i in range(11):
        for h in range(4):
            seen = range(max(0, 9 + i + 1 - window), 9 + i + 1)  # position 9 + i and the window - 1 before it
            scores = np.array([math.fsum(q[i, h].astype(float) * k[j, h // 2]) * 0.7 for j in seen])
            scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
            weights = np.exp(scores)
            total = weights.sum() + (0 if sinks is None else np.exp(sinks[h]))
            by_hand[i, h] = (weights / total) @ v[list(seen), h // 2]
    close(OPS.attention(q, k, v, Scoring(0.7, softcap, window, sinks)), by_hand)


@pytest.mark.parametrize("pieces", [1, 4])
def test_attention_in_chunks_with_queries_that_grow(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    q, k, v = random(11, 4, 6), random(20, 2, 6, seed=4), random(20, 2, 6, seed=5)
    if pieces > 1:
        monkeypatch.setattr("native_kernels.reference._SCORE_BYTES", 4 * 4 * 20 * 3)
    by_hand = np.zeros(q.shape)
    for i in range(11):
        place = 9 + i
        for h in range(4):
            seen = range(place - place % 7, place + 1)
            grown = q[i, h].astype(float) * (1 + 0.3 * math.log(1 + (place + 1) // 5)) * 0.7
            weights = np.exp([math.fsum(grown * k[j, h // 2]) for j in seen])
            by_hand[i, h] = (weights / weights.sum()) @ v[list(seen), h // 2]
    scoring = Scoring(0.7, window=7, temperature=Temperature(0.3, 5, offset=1), chunked=True)
    close(OPS.attention(q, k, v, scoring), by_hand)


def test_rope_on_a_part_of_a_head_with_slowed_waves() -> None:
    x, positions = random(2, 3, 10), np.array([7, 1000], np.int64)
    cos, sin = OPS.rope_angles(positions, 4, 100.0, np.array([2.0, 8.0], np.float32))
    turned = OPS.rope(x, cos, sin)
    np.testing.assert_array_equal(turned[..., 4:], x[..., 4:])
    angles = positions[:, None] * 100.0 ** np.array([0, -0.5]) / [2, 8]
    close(turned[:, 1, 0], x[:, 1, 0] * np.cos(angles[:, 0]) - x[:, 1, 2] * np.sin(angles[:, 0]))
    close(turned[:, 2, 3], x[:, 2, 3] * np.cos(angles[:, 1]) + x[:, 2, 1] * np.sin(angles[:, 1]))


def test_rope_turns_neighbours_where_heads_lie_interleaved() -> None:
    x, positions = random(3, 2, 10), np.array([0, 5, 90_001], np.int64)
    order = [0, 4, 1, 5, 2, 6, 3, 7, 8, 9]  # of eight rotated values: the two halves interleaved
    cos, sin = OPS.rope_angles(positions, 8, 10000.0)
    before = x.copy()
    np.testing.assert_array_equal(OPS.rope(x[..., order], cos, sin, "interleaved"), OPS.rope(x, cos, sin)[..., order])
    np.testing.assert_array_equal(x, before)


def test_layer_norm() -> None:
    x, weight, bias = random(3, 8), random(8, seed=4), random(8, seed=5)
    rows = x.astype(np.float64)
    by_hand = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 0.01) * weight + bias
    close(OPS.layer_norm(x, weight, bias, 0.01), by_hand)


def test_thresholds_gelu_and_caps() -> None:
    x = np.array([-1e30, -9, -1, -0.0, 0, 0.2, 0.5, 9, 1e30], np.float32)
    np.testing.assert_array_equal(OPS.relu(x, 0.2), [0, 0, 0, 0, 0, 0, 0.5, 9, np.float32(1e30)])
    middle = x[1:8].astype(float)
    close(OPS.gelu(x[1:8]), np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in middle]))
    tanh = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in middle]
    close(OPS.gelu_tanh(x[1:8]), np.array(tanh))
    close(OPS.softcap(x[1:8], 3.0), 3 * np.tanh(middle / 3))
    with np.errstate(over="ignore"):
        assert (OPS.gelu(x)[0], OPS.gelu(x)[-1]) == (0, np.float32(1e30))
