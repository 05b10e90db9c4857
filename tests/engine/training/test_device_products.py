"""Products through torch: equal to the operators', held for as long as they fit. A GPU is played by the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from samples.tiny_model import make_tiny_gguf
from support.walked_sequences import sequences_of

from engine.config import EngineConfig
from engine.errors import DeviceMemoryError, DeviceUnavailableError
from engine.model.weights import load_weights, open_model
from engine.session.loaded_model import LoadedModel
from engine.training import device_products
from engine.training.device_products import DeviceProducts, fits, offline_device, on_device
from engine.training.layer_walk import LayerBatch, ModelParts, walk_layers
from engine.training.profiler import profile
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators

torch = pytest.importorskip("torch")
OPS = ReferenceOperators()
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0", "q4_0"])
def test_products_are_those_of_the_operators(codec: str) -> None:
    w = PackedMatrix.pack(RNG.standard_normal((70, 64)).astype(np.float32), codec)
    x, h = (RNG.standard_normal((9, n)).astype(np.float32) for n in (64, 70))
    ours = DeviceProducts(OPS, "cpu", 1 << 20)
    np.testing.assert_allclose(ours.matmul(x, w), OPS.matmul(x, w), atol=0.02 if codec[0] == "q" else 1e-4)
    np.testing.assert_allclose(ours.matmul_t(h, w), OPS.matmul_t(h, w), atol=0.02 if codec[0] == "q" else 1e-4)
    assert (ours.matmul(x[:2], w) == OPS.matmul(x[:2], w)).all()
    assert ours.relu(x).min() == 0


def test_only_so_many_weights_are_held() -> None:
    matrices = [PackedMatrix.pack(RNG.standard_normal((32, 64)).astype(np.float32), "f32") for _ in range(4)]
    x = RNG.standard_normal((8, 64)).astype(np.float32)
    ours = DeviceProducts(OPS, "cpu", 2 * 32 * 64 * 4)
    for w in (*matrices, *matrices):
        np.testing.assert_allclose(ours.matmul(x, w), OPS.matmul(x, w), atol=1e-4)
        assert ours._held_bytes == sum(held.nbytes for _, held in ours._held.values()) <= 2 * 32 * 64 * 4
    assert list(ours._held) == [id(w) for w in matrices[2:]]


def test_a_model_walks_the_same_on_a_device(tmp_path: Path) -> None:
    opened = open_model(make_tiny_gguf(tmp_path / "m.gguf"))
    parts = ModelParts(opened.config, load_weights(opened, hold="f16"), OPS)
    there = on_device(parts, "cpu", 1 << 20)
    assert isinstance(there.operators, DeviceProducts)
    texts = sequences_of(opened.config)
    seen: list[LayerBatch] = []
    with walk_layers(parts, texts) as here, walk_layers(there, texts, seen.append) as other:
        np.testing.assert_allclose(other.logits(0, 59), here.logits(0, 59), atol=1e-3)
    assert len(seen) == opened.config.n_layers


def test_the_cpu_needs_none_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_model(make_tiny_gguf(tmp_path / "m.gguf"))
    parts = ModelParts(opened.config, load_weights(opened), OPS)
    assert on_device(parts, "cpu") is parts
    assert not fits(parts.weights, "cpu")
    assert offline_device("cpu") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert offline_device("auto") == "cpu"
    with pytest.raises(DeviceUnavailableError, match="torch finds none"):
        offline_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 1 << 30))
    assert offline_device("auto") == "cuda"
    assert fits(parts.weights, "cuda")
    assert isinstance(on_device(parts, "cuda").operators, DeviceProducts)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 10, 1 << 30))
    assert not fits(parts.weights, "cuda")


def test_memory_of_the_gpu_that_runs_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", full)
    w = PackedMatrix.pack(np.zeros((8, 32), np.float32), "f32")
    with pytest.raises(DeviceMemoryError, match="used up"):
        DeviceProducts(OPS, "cuda", 1 << 20).matmul(np.zeros((8, 32), np.float32), w)


def test_profiling_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LoadedModel.load(make_tiny_gguf(tmp_path / "m.gguf"), EngineConfig(backend="reference"))
    here = profile(model, tokens=150).stats
    monkeypatch.setattr(device_products, "offline_device", lambda wanted: "cpu")
    monkeypatch.setattr("engine.training.profiler.on_device", lambda parts, device: on_device(parts, device, 1 << 20))
    there = profile(model, tokens=150, device="auto").stats
    assert np.abs(here.counts - there.counts).sum() <= 0.001 * here.counts.sum()


@pytest.mark.gpu
def test_a_real_gpu_computes_the_same() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    w = PackedMatrix.pack(RNG.standard_normal((300, 512)).astype(np.float32), "f16")
    x = RNG.standard_normal((64, 512)).astype(np.float32)
    np.testing.assert_allclose(DeviceProducts(OPS, "cuda", 1 << 30).matmul(x, w), OPS.matmul(x, w), atol=1e-3)
