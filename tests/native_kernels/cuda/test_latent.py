"""Latent attention's operators on a GPU against NumPy: for one position and for many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from native_kernels.backend import Scoring
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.gpu import GpuAngles, GpuKv, GpuLatent, GpuScoring, GpuSequences
from native_kernels.cuda.latent import GpuLatentOps
from native_kernels.cuda.prompt_rows import RowAngles, Rows
from native_kernels.cuda.runtime.driver import Device
from native_kernels.reference import ReferenceOperators, factors_of
from native_kernels.specs import LatentSpec, Temperature
from tests.native_kernels.cuda.on_gpu import OnGpu
from tests.native_kernels.cuda.prefill_on_gpu import PrefillOnGpu
from tests.native_kernels.cuda.test_token_ops import KV_CODECS, filled_kv, kv_of, stored

pytestmark = pytest.mark.gpu
REFERENCE = ReferenceOperators()
# rank, key_dim, rotated numbers, heads
SHAPES = [(512, 192, 64, 5), (24, 16, 8, 3), (256, 64, 64, 4), (512, 128, 64, 16)]
NEAR = {"f32": 1e-5, "f16": 2e-3, "q8_0": 0.05}


@pytest.fixture
def on_gpu(device: Device) -> Iterator[OnGpu]:
    gpu = CudaGpu(device)
    found = OnGpu(gpu)
    yield found
    gpu.synchronize()
    found.free()
    gpu.close()


def shared(kv: GpuKv) -> GpuKv:
    return replace(kv, values=kv.keys, value_scales=kv.key_scales)


class Numbers:
    """T positions, on the GPU too, and what becomes of them."""

    def __init__(self, on_gpu: OnGpu, shape: tuple[int, int, int, int], n: int, start: int, order: Any) -> None:
        rank, key_dim, rotated, n_heads = shape
        rng = np.random.default_rng(rank + n)
        q, k, weight = (
            rng.standard_normal(size).astype(np.float32)
            for size in ((n, n_heads, key_dim + rotated), (n, 1, rank + rotated), rank)
        )
        angles = np.float32(2 * np.pi) * rng.random((n, rotated // 2), np.float32)
        self.cos, self.sin, self.temperature = np.cos(angles), np.sin(angles), Temperature(0.3, 8, 1)
        self.x = GpuLatent(
            LatentSpec(rank, key_dim, 12), n_heads, rotated, on_gpu.put(q), on_gpu.put(k),
            on_gpu.room(4 * n * n_heads * (rank + rotated)), on_gpu.norm("rms", weight, None, 1e-6),
        )  # fmt: skip
        q = q * factors_of(self.temperature, np.arange(start, start + n))[:, None, None]
        self.plain, self.rotated = q[..., :key_dim], REFERENCE.rope(q[..., key_dim:], self.cos, self.sin, order)
        of_key = REFERENCE.rope(k[..., rank:], self.cos, self.sin, order)
        self.keys = np.concatenate([REFERENCE.rms_norm(k[..., :rank], weight, 1e-6), of_key], axis=-1)

    def check(self, on_gpu: OnGpu, kv: GpuKv, start: int, slot: int = 0) -> None:
        rank = self.x.spec.rank
        queries = on_gpu.get(self.x.queries, (len(self.keys), self.x.n_heads, kv.head_dim))
        np.testing.assert_allclose(queries[..., rank:], self.rotated, rtol=1e-5, atol=1e-5)
        for t, wanted in enumerate(self.keys):
            keys, values = stored(on_gpu, kv, start + t + slot * t)
            np.testing.assert_allclose(keys, wanted, rtol=1e-3, atol=NEAR[kv.codec])
            assert np.array_equal(keys, values)


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_position_is_placed(on_gpu: OnGpu, shape: tuple[int, int, int, int], codec: Any) -> None:
    order, position = "interleaved" if shape[0] == 24 else "halves", 19
    numbers = Numbers(on_gpu, shape, 1, position, order)
    kv = shared(kv_of(on_gpu, codec, 1, shape[0] + shape[2], 32))
    plain = on_gpu.vector(shape[3] * shape[1], in_bytes=shape[1] % 32 == 0)
    turns = on_gpu.put(np.stack([numbers.cos[0], numbers.sin[0]], axis=1))
    angles = GpuAngles(turns, shape[2] // 2, order, temperature=numbers.temperature)  # type: ignore[arg-type]
    on_gpu.gpu.place_latent(numbers.x, plain, kv, on_gpu.put(np.array([position], np.int32)), angles)
    numbers.check(on_gpu, kv, position)
    np.testing.assert_allclose(on_gpu.get(plain.values, numbers.plain.shape), numbers.plain, rtol=1e-5, atol=1e-6)
    if plain.bytes:
        on_gpu.check_bytes(plain)


@pytest.mark.parametrize("codec", KV_CODECS)
def test_positions_of_several_sequences_are_placed(on_gpu: OnGpu, codec: Any) -> None:
    (rank, key_dim, rotated, n_heads), n, start, slot = SHAPES[0], 3, 5, 16
    numbers = Numbers(on_gpu, SHAPES[0], n, start, "halves")
    kv = shared(kv_of(on_gpu, codec, 1, rank + rotated, n * slot))
    latest = GpuSequences(n, slot, on_gpu.put(np.arange(start, start + n, dtype=np.int32)))
    angles = RowAngles(
        on_gpu.put(numbers.cos), on_gpu.put(numbers.sin), rotated // 2, "halves", temperature=numbers.temperature
    )
    latent = GpuLatentOps(on_gpu.gpu.device, on_gpu.gpu.stream)
    latent.place_latents(numbers.x, n, kv, latest, angles)
    numbers.check(on_gpu, kv, start, slot)
    q = on_gpu.get(numbers.x.q, (n, n_heads, key_dim + rotated))
    np.testing.assert_allclose(q[..., :key_dim], numbers.plain, rtol=1e-5, atol=1e-5)
    latent.close()


@pytest.mark.parametrize("codec", KV_CODECS)
def test_many_positions_are_placed_and_attended(codec: Any) -> None:
    """The queries' other numbers are put behind the rotated ones here, as products would."""
    setting = PrefillOnGpu()
    gpu = CudaGpu(setting.device)
    on_gpu = OnGpu(gpu)
    latent = GpuLatentOps(setting.device, gpu.stream)
    for shape, n in zip(SHAPES, (70, 41, 50, 33), strict=True):
        rank, key_dim, rotated, n_heads = shape
        width, start = rank + rotated, 3
        numbers = Numbers(on_gpu, shape, n, start, "interleaved")
        kv = shared(kv_of(on_gpu, codec, 1, width, start + n))
        early = Numbers(on_gpu, shape, start, 0, "interleaved")
        for one, first in ((early, 0), (numbers, start)):
            angles = RowAngles(
                on_gpu.put(one.cos), on_gpu.put(one.sin), rotated // 2, "interleaved", temperature=one.temperature
            )
            latent.place_latents(one.x, len(one.keys), kv, first, angles)
            one.check(on_gpu, kv, first)
        q = on_gpu.get(numbers.x.q, (n, n_heads, key_dim + rotated))
        np.testing.assert_allclose(q[..., :key_dim], numbers.plain, rtol=1e-5, atol=1e-6)
        queries = np.random.default_rng(5).standard_normal((n, n_heads, width)).astype(np.float32)
        out = Rows(on_gpu.room(queries.nbytes), n_heads * width)
        at, scale = Rows(on_gpu.put(queries), n_heads * width), 1.5 * width**-0.5
        setting.ops.attend(at, n, n_heads, kv, start, out, GpuScoring(scale))
        setting.arrays.stream.synchronize()
        keys = np.stack([stored(on_gpu, kv, t)[0] for t in range(start + n)])
        wanted = REFERENCE.attention(queries, keys, keys, Scoring(scale, None, None, None))
        error = np.abs(on_gpu.get(out.address, queries.shape) - wanted)
        assert error.max() < (2e-4 if codec == "f32" else 2e-2)
        assert error.mean() < (1e-5 if codec == "f32" else 1e-3)
    gpu.synchronize()
    on_gpu.free()
    for thing in (latent, setting.ops, setting.arrays, setting.copies, gpu):
        thing.close()


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize(("n_heads", "width", "value_dim", "capacity"), [
    (20, 576, 512, 400), (16, 576, 512, 3000), (5, 40, 32, 90), (9, 320, 256, 300), (4, 128, 100, 64),
])  # fmt: skip
def test_attention_leaves_out_the_last_numbers_of_values(
    on_gpu: OnGpu, n_heads: int, width: int, value_dim: int, capacity: int, codec: Any
) -> None:
    kv, keys, _ = filled_kv(on_gpu, codec, 1, width, capacity)
    q = np.random.default_rng(7).standard_normal((1, n_heads, width)).astype(np.float32)
    to, scoring = on_gpu.vector(n_heads * value_dim), Scoring(1.3 * width**-0.5, None, None, None)
    for position in (0, 63, capacity - 1):
        state = on_gpu.put(np.array([position], np.int32))
        on_gpu.gpu.attend(on_gpu.put(q), n_heads, shared(kv), state, to, GpuScoring(scoring.scale))
        seen = keys[: position + 1]
        wanted = REFERENCE.attention(q, seen, seen, scoring)[0, :, :value_dim].ravel()
        np.testing.assert_allclose(on_gpu.get(to.values, to.n), wanted, rtol=2e-5, atol=2e-5)
        on_gpu.check_bytes(to)
