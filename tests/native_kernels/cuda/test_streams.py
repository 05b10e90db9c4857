"""The operators between several residual streams on a GPU, and the cut-off of gates, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.model.activations import activate
from engine.model.graph import FfnSpec
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.gpu import GpuStreams, GpuVector
from native_kernels.cuda.runtime.driver import Device
from native_kernels.reference import ReferenceOperators
from tests.native_kernels.cuda.on_gpu import OnGpu

pytestmark = pytest.mark.gpu
# streams, width, positions; the numbers between two streams are more than needed
SHAPES = [(4, 2048, 1), (2, 30, 1), (8, 193, 1), (4, 64, 5), (3, 2049, 17)]


@pytest.fixture
def on_gpu(device: Device) -> Iterator[OnGpu]:
    gpu = CudaGpu(device)
    found = OnGpu(gpu)
    yield found
    gpu.synchronize()
    found.free()
    gpu.close()


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Streams:
    """Streams on the GPU, with 12 numbers of no meaning after each."""

    def __init__(self, on_gpu: OnGpu, n: int, width: int, n_tokens: int) -> None:
        self._on_gpu, self._shape = on_gpu, (n, n_tokens, width)
        self.values, self.predicted = normal(n, n_tokens, width), normal(n, n_tokens, width, seed=1)
        places = [on_gpu.put(self._padded(one)) for one in (self.values, self.predicted)]
        self.x = GpuStreams(n, width, *places, n_tokens * width + 12, n_tokens)

    def _padded(self, values: Any) -> Any:
        n, n_tokens, width = self._shape
        found = np.full((n, n_tokens * width + 12), np.nan, np.float32)
        found[:, : n_tokens * width] = values.reshape(n, -1)
        return found

    def get(self, address: int, n: int = 0) -> Any:
        n_all, n_tokens, width = self._shape
        n = n or n_all
        found = self._on_gpu.get(address, (n, n_tokens * width + 12))
        assert np.isnan(found[:, n_tokens * width :]).all()
        return found[:, : n_tokens * width].reshape(n, n_tokens, width)


@pytest.mark.parametrize(("n", "width", "n_tokens"), SHAPES)
def test_streams_are_predicted(on_gpu: OnGpu, n: int, width: int, n_tokens: int) -> None:
    streams, scores, weights = Streams(on_gpu, n, width, n_tokens), normal(n_tokens, n, seed=2), normal(n * n, n)
    on_gpu.gpu.predict_streams(streams.x, on_gpu.put(scores), on_gpu.put(weights))
    mixture = (np.tanh(scores) @ weights.T).reshape(n_tokens, n, n)
    wanted = streams.values + np.einsum("tij,jtd->itd", mixture, streams.values)
    np.testing.assert_allclose(streams.get(streams.x.predicted), wanted, rtol=1e-5, atol=3e-5)
    found = streams.get(streams.x.values)
    assert np.array_equal(found[0], streams.get(streams.x.predicted)[0])
    assert np.array_equal(found[1:], streams.values[1:])


@pytest.mark.parametrize(("n", "width", "n_tokens"), SHAPES)
def test_streams_are_corrected(on_gpu: OnGpu, n: int, width: int, n_tokens: int) -> None:
    streams, scores, weights = Streams(on_gpu, n, width, n_tokens), normal(n_tokens, n, seed=2), normal(n, n)
    scale = normal(width, seed=3)
    to = on_gpu.vector(width) if n_tokens == 1 else GpuVector(width, on_gpu.room(4 * n_tokens * width))
    on_gpu.gpu.correct_streams(streams.x, on_gpu.put(scores), on_gpu.put(weights), on_gpu.put(scale), to)
    shares = 1 + np.tanh(scores) @ weights.T
    wanted = streams.predicted + shares.T[..., None] * (streams.values[0] - streams.predicted[0])
    found = streams.get(streams.x.values)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-5)
    assert np.array_equal(on_gpu.get(to.values, (n_tokens, width)), found[0] * scale)
    if to.bytes:
        on_gpu.check_bytes(to)
    else:
        rounded = on_gpu.vector(width)
        with pytest.raises(ValueError, match="positions"):
            on_gpu.gpu.correct_streams(streams.x, 0, 0, 0, rounded)


@pytest.mark.parametrize(("n", "width", "n_tokens"), SHAPES)
def test_something_is_added_beside_the_first_stream(on_gpu: OnGpu, n: int, width: int, n_tokens: int) -> None:
    streams, added = Streams(on_gpu, n, width, n_tokens), normal(n_tokens, width, seed=4)
    on_gpu.gpu.add_beside(streams.x, on_gpu.put(added))
    found = streams.get(streams.x.values)
    assert np.array_equal(found[0], streams.values[0])
    assert np.array_equal(found[1:], streams.values[1:] + added)


@pytest.mark.parametrize(("n", "width", "n_tokens"), SHAPES)
def test_streams_get_the_size_of_the_first(on_gpu: OnGpu, n: int, width: int, n_tokens: int) -> None:
    streams = Streams(on_gpu, n, width, n_tokens)
    others = streams.predicted[1:].copy()
    others[-1, -1] *= 1e-4  # so small that it counts as larger
    at, least = on_gpu.put(streams._padded(np.concatenate([others, others[:1]]))), 1e-5
    on_gpu.gpu.scale_alike(streams.x, at, least)
    size = np.sqrt(np.square(streams.values[0]).mean(axis=-1, keepdims=True))
    own = np.sqrt(np.maximum(np.square(others).mean(axis=-1, keepdims=True), least))
    found = streams.get(at)
    np.testing.assert_allclose(found[: n - 1], others * (size / own), rtol=1e-5)
    assert np.array_equal(found[n - 1], others[0])
    assert np.array_equal(streams.get(streams.x.values), streams.values)


@pytest.mark.parametrize(("n", "n_tokens", "apart"), [(16384, 1, 0), (1, 1, 0), (70, 3, 70), (8192, 5, 8200)])
def test_gates_are_cut_off(on_gpu: OnGpu, n: int, n_tokens: int, apart: int) -> None:
    gates = np.full((n_tokens, max(n, apart)), np.nan, np.float32)
    gates[:, :n] = 3 + normal(n_tokens, n)
    at, spec = on_gpu.put(gates), FfnSpec(n, True, "relu", 0.0, has_zeros=True, cutoff=1.6448536, routing=None)
    on_gpu.gpu.cut_off(at, n, spec.cutoff, n_tokens, apart)
    found, wanted = on_gpu.get(at, gates.shape), activate(spec, gates[:, :n], ReferenceOperators())
    np.testing.assert_allclose(found[:, :n], wanted, rtol=0, atol=1e-5)
    assert (found[:, :n] >= 0).all()
    assert np.isnan(found[:, n:]).all()
