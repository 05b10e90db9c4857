"""The stream's operators on a GPU against NumPy: additions, norms, rotation, what goes into the keys and values."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from native_kernels import kv_blocks
from native_kernels.backend import Scoring
from native_kernels.cuda.gpu import GpuAngles, GpuHeads, GpuKv, GpuNorm, GpuScoring, GpuSequences, GpuVector
from native_kernels.kv_blocks import KvLayout
from native_kernels.reference import ReferenceOperators
from tests.native_kernels.cuda.on_gpu import OnGpu

pytestmark = pytest.mark.gpu
reference = ReferenceOperators()


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def normed(kind: str, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    x = x.astype(np.float64)
    if kind == "layer":
        x = x - x.mean()
    out = x / np.sqrt(np.mean(np.square(x)) + eps) * weight
    return out if bias is None else out + bias


SIZES = [
    (64, 0, 0), (1, 0, 1), (70, 3, 1), (100, 1, 2), (768, 8, 0), (2048, 9, 3), (4096, 0, 1), (5120, 33, 2),
    (8192, 64, 1), (8191, 130, 4), (12288, 2, 6),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(("n", "n_parts", "n_others"), SIZES)
def test_the_stream_goes_on_and_is_normed(on_gpu: OnGpu, n: int, n_parts: int, n_others: int, kind: str) -> None:
    stream, parts, others = normal(n), normal(n_parts, n, seed=1), normal(n_others, n, seed=2)
    stream += 3  # a mean that a careless variance would lose digits to
    weight, bias = normal(n, seed=3), normal(n, seed=4)
    pinned = on_gpu.pin(4 * n)
    addresses = [on_gpu.put(other) for other in others]
    if n_others:
        pinned.as_array(np.float32, n)[:] = others[-1]
        addresses[-1] = pinned.device_address
    bias_too = kind == "layer"
    norm = on_gpu.norm(kind, weight, bias if bias_too else None, 1e-5)
    found = []
    for _ in range(2):
        at, to = on_gpu.put(stream), on_gpu.vector(n)
        on_gpu.gpu.advance(at, n, on_gpu.put(parts), n_parts, addresses, norm, to)
        found.append((on_gpu.get(at, n), on_gpu.get(to.values, n)))
        on_gpu.check_bytes(to)
    wanted = stream.astype(np.float64) + parts.sum(axis=0, dtype=np.float64) + others.sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(found[0][0], wanted, rtol=1e-5, atol=1e-5)
    of_what_it_has = normed(kind, found[0][0], weight, bias if bias_too else None, 1e-5)
    np.testing.assert_allclose(found[0][1], of_what_it_has, rtol=1e-5, atol=2e-5)
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def test_a_sum_may_replace_the_stream_and_be_scaled(on_gpu: OnGpu) -> None:
    n = 300
    stream, parts, others = normal(n), normal(3, n, seed=1), normal(4, n, seed=2)
    addresses, added = [on_gpu.put(other) for other in others], parts.sum(axis=0) + others.sum(axis=0)
    at = on_gpu.put(stream)
    on_gpu.gpu.advance(at, n, on_gpu.put(parts), 3, addresses, factor=0.5)
    np.testing.assert_allclose(on_gpu.get(at, n), 0.5 * (stream + added), rtol=1e-5, atol=1e-5)
    on_gpu.gpu.total(at, n, on_gpu.put(parts), 3, addresses)
    np.testing.assert_allclose(on_gpu.get(at, n), added, rtol=1e-5, atol=1e-5)
    weight = normal(n, seed=3)
    on_gpu.gpu.total(at, n, 0, 0, addresses, on_gpu.norm("rms", weight, None, 1e-5))
    wanted = normed("rms", others.sum(axis=0), weight, None, 1e-5)
    np.testing.assert_allclose(on_gpu.get(at, n), wanted, rtol=1e-5, atol=2e-5)


def test_a_second_norm_is_as_good_as_the_first(on_gpu: OnGpu) -> None:
    n, weights = 700, normal(2, 700, seed=3)
    at, first, second, alone = on_gpu.put(normal(n)), on_gpu.vector(n), on_gpu.vector(n), on_gpu.vector(n)
    one, other = (on_gpu.norm("rms", weight, None, 1e-5) for weight in weights)
    on_gpu.gpu.norm(at, one, first)
    on_gpu.gpu.norm(at, other, second, again=True)
    on_gpu.gpu.norm(at, other, alone)
    assert np.array_equal(on_gpu.get(second.values, n), on_gpu.get(alone.values, n))
    on_gpu.check_bytes(second)


@pytest.mark.parametrize(("n_rows", "n"), [(1, 256), (35, 256), (3, 8), (4, 300)])
def test_rows_are_normed_and_added_to(on_gpu: OnGpu, n_rows: int, n: int) -> None:
    x, added, weight = 3 * normal(n_rows, n), normal(n_rows, n, seed=1), normal(n, seed=2)
    at, pinned = on_gpu.put(x), on_gpu.pin(added.nbytes)
    pinned.as_array(np.float32, added.size)[:] = added.reshape(-1)
    on_gpu.gpu.norm_rows(at, n_rows, n, on_gpu.norm("rms", weight, None, 0.03), pinned.device_address)
    wanted = np.stack([normed("rms", row, weight, None, 0.03) for row in x]) + added
    np.testing.assert_allclose(on_gpu.get(at, (n_rows, n)), wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="root mean square"):
        on_gpu.gpu.norm_rows(at, n_rows, n, on_gpu.norm("layer", weight, None, 0.03), pinned.device_address)


def test_a_large_mean_costs_the_deviation_no_digits(on_gpu: OnGpu) -> None:
    n = 4100
    x = (1000 + normal(n)).astype(np.float32)
    to = on_gpu.vector(n, in_bytes=False)
    on_gpu.gpu.norm(on_gpu.put(x), on_gpu.norm("layer", np.ones(n, np.float32), None, 1e-5), to)
    np.testing.assert_allclose(on_gpu.get(to.values, n), normed("layer", x, 1.0, None, 1e-5), rtol=0, atol=5e-4)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("n", [64, 200, 4096])
def test_a_norm_may_write_where_it_reads(on_gpu: OnGpu, n: int, kind: str) -> None:
    x, weight, bias = normal(n), normal(n, seed=1), normal(n, seed=2)
    at = on_gpu.put(x)
    rounded = on_gpu.vector(n)
    on_gpu.gpu.norm(at, on_gpu.norm(kind, weight, bias, 1e-6), GpuVector(n, at, rounded.bytes, rounded.scales))
    wanted = normed(kind, x, weight, bias, 1e-6)
    np.testing.assert_allclose(on_gpu.get(at, n), wanted, rtol=1e-5, atol=1e-5)
    on_gpu.check_bytes(GpuVector(n, at, rounded.bytes, rounded.scales))


def test_what_is_no_number_spoils_its_group_alone(on_gpu: OnGpu) -> None:
    n = 96
    x = normal(n)
    x[40] = np.inf
    at, to = on_gpu.put(np.zeros(n, np.float32)), on_gpu.vector(n)
    norm = on_gpu.norm("rms", np.ones(n, np.float32), x, 1e-5)
    on_gpu.gpu.norm(at, norm, to)
    scales = on_gpu.get(to.scales, (3, 2))
    assert np.isnan(scales[1]).all()
    assert np.isfinite(scales[[0, 2]]).all()
    assert not on_gpu.get(to.bytes, 96, np.int8)[32:64].any()


@pytest.mark.parametrize("n", [1, 7, 4096, 100_003])
@pytest.mark.parametrize("offset", [0, 4])
def test_words_are_copied_to_and_from_pinned_memory(on_gpu: OnGpu, n: int, offset: int) -> None:
    words = np.random.default_rng(n).integers(0, 1 << 32, n, np.uint32)
    there, back = on_gpu.pin(4 * n + 4), on_gpu.pin(4 * n + 4)
    there.as_array(np.uint32, n, offset)[:] = words
    memory = on_gpu.room(4 * n + 4)
    on_gpu.gpu.copy(there.device_address + offset, memory + offset, n)
    on_gpu.gpu.copy(memory + offset, back.device_address + offset, n)
    on_gpu.gpu.synchronize()
    assert np.array_equal(back.as_array(np.uint32, n, offset), words)
    assert on_gpu.get(memory + offset, n, np.uint32).tolist() == words.tolist()


@pytest.mark.parametrize("position", [0, 1, 4095, 131_071, 1_000_000])
def test_angles_are_exact_far_out(on_gpu: OnGpu, position: int) -> None:
    frequencies = 10000.0 ** (-np.arange(0, 128, 2) / 128)
    to = on_gpu.room(8 * 64)
    on_gpu.gpu.angles(on_gpu.put(np.array([position, 9], np.int32)), on_gpu.put(frequencies), 1.25, 64, to)
    angles = position * frequencies
    wanted = np.float32(1.25) * np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    np.testing.assert_allclose(on_gpu.get(to, (64, 2)), wanted, rtol=0, atol=2.5e-7)


@pytest.mark.parametrize("n", [1, 255, 50_001])
def test_a_softcap_is_a_tangent(on_gpu: OnGpu, n: int) -> None:
    x = 40 * normal(n)
    at = on_gpu.put(x)
    on_gpu.gpu.softcap(at, n, 30.0)
    np.testing.assert_allclose(on_gpu.get(at, n), reference.softcap(x, 30.0), rtol=1e-5, atol=1e-5)


KV_CODECS: list[Any] = ["f32", "f16", "q8_0"]
DTYPES = {"f32": np.float32, "f16": np.float16, "q8_0": np.int8}


def kv_of(on_gpu: OnGpu, codec: Any, n_kv_heads: int, head_dim: int, capacity: int) -> GpuKv:
    size, groups = n_kv_heads * capacity * head_dim * np.dtype(DTYPES[codec]).itemsize, -(-head_dim // 32)
    scale_bytes = 2 * n_kv_heads * capacity * groups if codec == "q8_0" else 0
    return GpuKv(
        codec, on_gpu.room(size), on_gpu.room(size), scale_bytes and on_gpu.room(scale_bytes),
        scale_bytes and on_gpu.room(scale_bytes), n_kv_heads, head_dim, capacity,
    )  # fmt: skip


def stored(on_gpu: OnGpu, kv: GpuKv, position: int) -> tuple[Any, Any]:
    """The keys and values of one position as floats, [H_kv, head_dim] each."""
    shape, groups = (kv.n_kv_heads, kv.capacity, kv.head_dim), -(-kv.head_dim // 32)
    found = []
    for at, scales_at in ((kv.keys, kv.key_scales), (kv.values, kv.value_scales)):
        values = on_gpu.get(at, shape, DTYPES[kv.codec])[:, position].astype(np.float32)
        if kv.codec == "q8_0":
            scales = on_gpu.get(scales_at, (*shape[:2], groups), np.float16)[:, position]
            values *= scales.astype(np.float32)[:, np.arange(kv.head_dim) // 32]
        found.append(values)
    return found[0], found[1]


ROTATIONS: list[Any] = [
    (4, 2, 64, 32, "halves", None), (3, 1, 80, 16, "interleaved", None), (8, 8, 128, 64, "interleaved", "q"),
    (8, 2, 96, 48, "halves", "both"), (2, 1, 256, 64, "halves", "both"), (5, 5, 40, 0, "halves", "k"),
    (2, 2, 8, 4, "interleaved", None), (4, 2, 100, 50, "halves", "both"), (4, 2, 512, 256, "halves", "both"),
    (3, 1, 576, 32, "interleaved", None),
]  # fmt: skip


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize(("n_heads", "n_kv_heads", "head_dim", "n_angles", "order", "norms"), ROTATIONS)
def test_heads_are_rotated_and_stored(
    on_gpu: OnGpu, n_heads: int, n_kv_heads: int, head_dim: int, n_angles: int, order: Any, norms: Any, codec: Any
) -> None:
    position, capacity = 37, 41
    qkv = normal(n_heads + 2 * n_kv_heads, head_dim)
    weights = normal(2, head_dim, seed=1)
    angles = np.float32(2 * np.pi) * np.random.default_rng(2).random((1, n_angles), np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    kv = kv_of(on_gpu, codec, n_kv_heads, head_dim, capacity)
    at = on_gpu.put(qkv)
    on_gpu.gpu.rotate_and_store(
        at,
        GpuHeads(
            n_heads,
            on_gpu.norm("rms", weights[0], None, 1e-6) if norms in ("q", "both") else None,
            on_gpu.norm("rms", weights[1], None, 1e-6) if norms in ("k", "both") else None,
        ),
        kv, on_gpu.put(np.array([position], np.int32)),
        GpuAngles(on_gpu.put(np.stack([cos[0], sin[0]], axis=1)), n_angles, order),
    )  # fmt: skip
    q, k, v = np.split(qkv, [n_heads, n_heads + n_kv_heads])
    if norms in ("q", "both"):
        q = reference.rms_norm(q, weights[0], 1e-6)
    if norms in ("k", "both"):
        k = reference.rms_norm(k, weights[1], 1e-6)
    q, k = (reference.rope(one[None], cos, sin, order)[0] for one in (q, k))
    found = on_gpu.get(at, qkv.shape)
    np.testing.assert_allclose(found, np.concatenate([q, k, v]), rtol=1e-5, atol=1e-5)
    layout = KvLayout(head_dim, codec)
    blocks = kv_blocks.allocate(1, n_kv_heads, 32, layout)[0]
    kept_k, kept_v = found[None, n_heads : n_heads + n_kv_heads], found[None, n_heads + n_kv_heads :]
    kv_blocks.write(blocks, layout, 0, kept_k, kept_v)
    wanted_keys, wanted_values = kv_blocks.read(blocks, layout, 1)
    keys, values = stored(on_gpu, kv, position)
    assert np.array_equal(keys, wanted_keys[0])
    assert np.array_equal(values, wanted_values[0])


@pytest.mark.parametrize("codec", KV_CODECS)
def test_values_may_be_keys_and_have_a_norm_without_weights(on_gpu: OnGpu, codec: Any) -> None:
    qkv, weights = normal(6, 512), normal(1, 512, seed=1)
    angles = np.float32(2 * np.pi) * np.random.default_rng(2).random((1, 64), np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    kv, at, state = kv_of(on_gpu, codec, 2, 512, 8), on_gpu.put(qkv), on_gpu.put(np.array([3], np.int32))
    turns = GpuAngles(on_gpu.put(np.stack([cos[0], sin[0]], axis=1)), 64, "halves")
    k_norm = on_gpu.norm("rms", weights[0], None, 1e-6)
    heads = GpuHeads(2, None, k_norm, GpuNorm("rms", 0, 0, 1e-6), v_is_k=True)
    on_gpu.gpu.rotate_and_store(at, heads, kv, state, turns)
    ones, (raw_k, v) = np.ones(512, np.float32), (qkv[2:4], kv_of(on_gpu, codec, 2, 512, 8))
    k = reference.rope(reference.rms_norm(raw_k, weights[0], 1e-6)[None], cos, sin, "halves")[0]
    values = on_gpu.put(np.concatenate([qkv[:2], k, reference.rms_norm(raw_k, ones, 1e-6)]))
    on_gpu.gpu.rotate_and_store(values, GpuHeads(2), v, state, GpuAngles(0, 0, "halves"))
    for found, wanted in zip(stored(on_gpu, kv, 3), stored(on_gpu, v, 3), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 if codec == "f32" else 0.03)


def test_queries_alone_leave_the_cache_as_it_is(on_gpu: OnGpu) -> None:
    kv, at = kv_of(on_gpu, "f32", 1, 64, 4), on_gpu.put(normal(2, 64))
    state = on_gpu.put(np.array([1], np.int32))
    on_gpu.gpu.rotate_and_store(at, GpuHeads(2, stored=False), kv, state, GpuAngles(0, 0, "halves"))
    assert (on_gpu.get(kv.keys, 256, np.uint32) == 0xFFFFFFFF).all()


def test_a_position_behind_the_capacity_is_not_stored(on_gpu: OnGpu) -> None:
    kv = kv_of(on_gpu, "f32", 1, 64, 4)
    at = on_gpu.put(normal(3, 64))
    on_gpu.gpu.rotate_and_store(at, GpuHeads(1), kv, on_gpu.put(np.array([4], np.int32)), GpuAngles(0, 0, "halves"))
    assert (on_gpu.get(kv.keys, 256, np.uint32) == 0xFFFFFFFF).all()


ATTENTIONS: list[Any] = [  # heads, heads of keys, head_dim, capacity, positions, window, softcap
    (4, 4, 128, 700, [0, 1, 30, 31, 32, 255, 699], None, None),
    (8, 1, 64, 300, [0, 17, 299], None, None),
    (6, 2, 80, 200, [5, 199], None, None),
    (14, 2, 96, 300, [100, 299], 64, None),
    (64, 8, 128, 1200, [511, 1199], None, None),
    (71, 1, 64, 520, [3, 519], None, None),
    (8, 4, 256, 600, [0, 77, 599], 100, 50.0),
    (4, 2, 112, 150, [149], None, 20.0),
    (40, 40, 128, 260, [259], None, None),
    (2, 1, 32, 2000, [1999], 1, None),
    (3, 3, 8, 90, [89], None, None),
    (8, 2, 100, 333, [0, 332], None, None),
    (3, 1, 12, 70, [69], None, None),
    (2, 2, 33, 40, [39], 20, None),
    (5, 1, 120, 5000, [4999], None, None),
    (8, 2, 512, 700, [0, 62, 63, 64, 699], None, None),
    (20, 1, 576, 400, [0, 255, 399], None, None),
    (16, 2, 512, 3000, [2999], 700, 30.0),
    (3, 1, 264, 90, [89], None, None),
    (2, 2, 300, 70, [69], None, None),
]


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize(("n_heads", "n_kv_heads", "head_dim", "capacity", "positions", "window", "cap"), ATTENTIONS)
def test_attention_sees_what_it_may(
    on_gpu: OnGpu, n_heads: int, n_kv_heads: int, head_dim: int, capacity: int, positions: list[int], window: Any,
    cap: Any, codec: Any,
) -> None:  # fmt: skip
    q, scale = normal(n_heads, head_dim), 1.3 / np.sqrt(head_dim)
    kv, keys, values = filled_kv(on_gpu, codec, n_kv_heads, head_dim, capacity)
    to, at = on_gpu.vector(n_heads * head_dim), on_gpu.put(q)
    sinks = None if n_heads % 4 else normal(n_heads)
    sinks_at = 0 if sinks is None else on_gpu.put(sinks)
    for position, chunked in product(positions, {False, window is not None}):
        found = []
        for _ in range(2):
            state = on_gpu.put(np.array([position, 123456], np.int32))
            on_gpu.gpu.attend(at, n_heads, kv, state, to, GpuScoring(float(scale), cap, window, sinks_at, chunked))
            found.append(on_gpu.get(to.values, to.n))
        how = Scoring(float(scale), cap, window, sinks, chunked=chunked)
        wanted = reference.attention(q[None], keys[: position + 1], values[: position + 1], how).ravel()
        np.testing.assert_allclose(found[0], wanted, rtol=2e-5, atol=2e-5)
        assert np.array_equal(*found)
        on_gpu.check_bytes(to)


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize(("n_heads", "n_kv_heads", "head_dim", "window", "cap", "chunked"), [
    (8, 2, 128, None, None, False), (71, 1, 64, None, None, False), (4, 4, 80, 20, 30.0, False),
    (10, 2, 128, 64, None, True),
])  # fmt: skip
def test_attention_of_several_sequences_at_once(
    on_gpu: OnGpu, n_heads: int, n_kv_heads: int, head_dim: int, window: Any, cap: Any, chunked: bool, codec: Any
) -> None:
    positions, slot, n, step = [0, 7, 130, 63, 200], 208, n_heads * head_dim, n_heads * head_dim + 8
    capacity = slot * len(positions) + 24
    q, scale = normal(len(positions), n_heads, head_dim), 1.3 / np.sqrt(head_dim)
    rows = np.full((len(positions), step), np.nan, np.float32)
    rows[:, :n] = q.reshape(len(positions), -1)
    kv, keys, values = filled_kv(on_gpu, codec, n_kv_heads, head_dim, capacity)
    at, states = on_gpu.put(rows), on_gpu.put(np.array(positions, np.int32))
    to = on_gpu.room(4 * len(positions) * step)
    found = []
    for _ in range(2):
        on_gpu.gpu.attend_each(
            at, step, GpuSequences(len(positions), slot, states), n_heads, kv, to, step,
            GpuScoring(float(scale), cap, window, chunked=chunked),
        )  # fmt: skip
        found.append(on_gpu.get(to, (len(positions), step))[:, :n])
    assert np.array_equal(*found)
    for t, position in enumerate(positions):
        own = slice(slot * t, slot * t + position + 1)
        how = Scoring(float(scale), cap, window, chunked=chunked)
        wanted = reference.attention(q[t][None], keys[own], values[own], how).ravel()
        np.testing.assert_allclose(found[0][t], wanted, rtol=2e-5, atol=2e-5)
    # What lies between the rows is nobody's.
    assert np.isnan(on_gpu.get(to, (len(positions), step))[:, n:]).all()


def filled_kv(on_gpu: OnGpu, codec: Any, n_kv_heads: int, head_dim: int, capacity: int) -> tuple[GpuKv, Any, Any]:
    """Keys and values in the codec on the GPU, and as floats [N, H_kv, head_dim]."""
    groups = -(-head_dim // 32)
    floats, addresses, scale_addresses = [], [], []
    for seed in (1, 2):
        x = normal(n_kv_heads, capacity, head_dim, seed=seed)
        if codec == "q8_0":
            quants = np.random.default_rng(seed).integers(-127, 128, x.shape, np.int8)
            scales = np.random.default_rng(seed + 9).random((n_kv_heads, capacity, groups)).astype(np.float16)
            scales *= np.float16(0.02)
            addresses.append(on_gpu.put(quants))
            scale_addresses.append(on_gpu.put(scales))
            x = quants * scales.astype(np.float32)[:, :, np.arange(head_dim) // 32]
        else:
            addresses.append(on_gpu.put(x.astype(DTYPES[codec])))
            scale_addresses.append(0)
            x = x.astype(DTYPES[codec]).astype(np.float32)
        floats.append(np.ascontiguousarray(x.transpose(1, 0, 2)))
    return GpuKv(codec, *addresses, *scale_addresses, n_kv_heads, head_dim, capacity), floats[0], floats[1]


def test_great_scores_do_not_overflow(on_gpu: OnGpu) -> None:
    kv, keys, values = filled_kv(on_gpu, "f32", 1, 64, 500)
    q, to = 100 * normal(2, 64), on_gpu.vector(128, in_bytes=False)
    on_gpu.gpu.attend(on_gpu.put(q), 2, kv, on_gpu.put(np.array([499], np.int32)), to, GpuScoring(1.0))
    wanted = reference.attention(q[None], keys, values, Scoring(1.0)).ravel()
    np.testing.assert_allclose(on_gpu.get(to.values, 128), wanted, rtol=1e-3, atol=1e-3)


def test_captured_work_reads_the_position_when_it_runs(on_gpu: OnGpu) -> None:
    kv, keys, values = filled_kv(on_gpu, "f16", 2, 64, 300)
    q, to = normal(4, 64), on_gpu.vector(256)
    state, at = on_gpu.put(np.array([0], np.int32)), on_gpu.put(q)
    work = on_gpu.gpu.captured(lambda: on_gpu.gpu.attend(at, 4, kv, state, to, GpuScoring(0.125)))
    for position in (0, 40, 299):
        now = np.array([position], np.int32)
        on_gpu.gpu.upload(state, now.ctypes.data, 4)
        on_gpu.gpu.launch(work)
        wanted = reference.attention(q[None], keys[: position + 1], values[: position + 1], Scoring(0.125)).ravel()
        np.testing.assert_allclose(on_gpu.get(to.values, 256), wanted, rtol=2e-5, atol=2e-5)
    work.close()
