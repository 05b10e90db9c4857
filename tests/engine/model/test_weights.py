"""Opening and loading models: the layout of the weights, both formats, memory, progress, cancellation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.errors import Cancelled, HostMemoryError, ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.job import Job
from engine.model import weights as weights_module
from engine.model.families import sampling_from_gguf, sampling_from_hf
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from native_kernels.reference import ReferenceOperators


def logits(path: Path) -> np.ndarray:
    opened = open_model(path)
    loaded, ops = load_weights(opened), ReferenceOperators()
    model = Transformer(opened.config, loaded, DenseExecutor(opened.config, loaded, ops), ops)
    return model.logits(model.forward(np.arange(12, dtype=np.int64) * 7, KVCache(opened.config, 16)))


def free_ram(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=n_bytes, available=n_bytes))


def test_down_is_stored_neuron_by_neuron(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    loaded = load_weights(opened)
    down = opened.source.read_f32("model.layers.1.mlp.down_proj.weight")
    np.testing.assert_array_equal(loaded.layers[1].down_t.data, down.T)
    assert loaded.layers[1].down_t.data.flags.c_contiguous


def test_tied_and_own_heads(tmp_path: Path) -> None:
    tied = load_weights(open_model(make_tiny_model(tmp_path / "tied")))
    own_model = open_model(make_tiny_model(tmp_path / "own", tied=False))
    own = load_weights(own_model)
    assert tied.head is tied.embedding
    np.testing.assert_array_equal(own.head.data, own_model.source.read_f32("lm_head.weight"))
    assert own.n_bytes - tied.n_bytes == own.head.n_bytes
    assert own_model.parameters * 4 == own.n_bytes


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_a_gguf_file_gives_what_its_source_gives(tmp_path: Path, activation: str, tied: bool) -> None:
    source = logits(make_tiny_model(tmp_path / "m", activation=activation, tied=tied))
    packed = logits(make_tiny_gguf(tmp_path / "m.gguf", activation=activation, tied=tied))
    assert 0 < np.abs(packed - source).max() < 0.15 * np.abs(source).max()  # 8 bits are near; swapped rows would not be
    opened = open_model(tmp_path / "m.gguf")
    assert replace(opened.config, rope_order="halves") == open_model(tmp_path / "m").config
    assert (opened.name, opened.description, opened.sampling) == ("Tiny", "Random numbers.", {"temperature": 0.5})
    assert set(opened.codecs) == {"q8_0", "f32"}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_stored_precision_does_not_matter(tmp_path: Path, dtype: str) -> None:
    base = logits(make_tiny_model(tmp_path / "base"))
    np.testing.assert_allclose(logits(make_tiny_model(tmp_path / "m", dtype=dtype)), base, atol=0.02)


def test_little_ram_means_sixteen_bits_and_too_little_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_model(tmp_path / "m")
    opened = open_model(path)
    largest = opened.config.vocab_size * opened.config.d_model
    spare = weights_module.MARGIN_BYTES + 8 * largest
    wide = logits(path)
    free_ram(monkeypatch, opened.parameters * 4 + spare)
    assert load_weights(opened).hold == "f32"
    assert load_weights(opened, extra_bytes=1).hold == "f16"
    assert load_weights(opened, mapped_bytes=1).hold == "f16"
    assert load_weights(opened, mapped_bytes=1 << 50).hold == "mapped"
    free_ram(monkeypatch, opened.parameters * 2 + spare)
    loaded = load_weights(opened)
    assert (loaded.hold, loaded.layers[0].gate.codec, loaded.layers[0].down_t.data.dtype) == ("f16", "f16", np.float16)
    np.testing.assert_allclose(logits(path), wide, atol=0.05)
    free_ram(monkeypatch, opened.parameters * 2 + spare - 1)
    loaded = load_weights(opened)
    assert loaded.hold == "mapped"
    assert "file" in loaded.hold_reason
    np.testing.assert_allclose(logits(path), wide, atol=0.05)
    free_ram(monkeypatch, loaded.ram_bytes + weights_module.MARGIN_BYTES)
    assert load_weights(opened).hold == "mapped"
    free_ram(monkeypatch, loaded.ram_bytes + weights_module.MARGIN_BYTES - 1)
    with pytest.raises(HostMemoryError, match=r"\d GiB .*\d GiB "):
        load_weights(opened)


def test_values_beyond_sixteen_bits_are_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = np.full((64, 32), 1e6, np.float32)
    opened = open_model(make_tiny_model(tmp_path / "m", tensors={"model.layers.0.mlp.up_proj.weight": big}))
    assert load_weights(opened).hold == "f32"
    free_ram(
        monkeypatch,
        opened.parameters * 2 + weights_module.MARGIN_BYTES + 8 * opened.config.vocab_size * opened.config.d_model,
    )
    with pytest.raises(UnsupportedModelError, match=r"layers\.0\.mlp\.up_proj"):
        load_weights(opened)


def test_progress_counts_bytes_up_to_the_end(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    seen: list[tuple[int, int]] = []
    load_weights(opened, Job(progress=lambda done, total: seen.append((done, total))))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (sum(opened.codecs.values()),) * 2


def test_cancelling_stops_between_two_tensors(tmp_path: Path) -> None:
    seen: list[int] = []
    with pytest.raises(Cancelled):
        load_weights(
            open_model(make_tiny_model(tmp_path / "m")),
            job=Job(lambda: len(seen) >= 3, lambda done, total: seen.append(done)),
        )
    assert len(seen) == 3


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.mlp.gate_proj.weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, name: str, value: float) -> None:
    shape = (32,) if name == "model.norm.weight" else (64, 32)
    broken = np.ones(shape, np.float32)
    broken[-1] = value
    opened = open_model(make_tiny_model(tmp_path / "m", tensors={name: broken}))
    with pytest.raises(ModelFormatError, match=name):
        load_weights(opened)


def test_a_download_padded_with_zeros_is_refused(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m", tensors={"model.norm.weight": np.zeros(32, np.float32)}))
    with pytest.raises(ModelFormatError, match=r"model\.norm\.weight .*zeros"):
        load_weights(opened)


def test_the_memory_of_a_container_counts_not_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free_ram(monkeypatch, 64 << 30)
    (tmp_path / "memory.max").write_text(f"{256 << 20}\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    opened = open_model(make_tiny_model(tmp_path / "m"))
    monkeypatch.setattr(weights_module, "memory_limits", lambda: (tmp_path,))
    with pytest.raises(HostMemoryError, match=r"0\.2 GiB are free"):
        load_weights(opened)


def test_heads_need_not_fill_the_width_where_the_file_says_how_wide_they_are(tmp_path: Path) -> None:
    rng, d, head_dim = np.random.default_rng(1), 32, 4
    shapes = {"q": (3 * head_dim, d), "k": (head_dim, d), "v": (head_dim, d), "o": (d, 3 * head_dim)}
    tensors = {
        f"model.layers.{layer}.self_attn.{name}_proj.weight": rng.standard_normal(shape).astype(np.float32)
        for layer in range(2)
        for name, shape in shapes.items()
    }
    config = {"head_dim": head_dim, "num_attention_heads": 3, "num_key_value_heads": 1}  # 32 is not a multiple of 3
    folder = make_tiny_model(tmp_path / "m", config=config, tensors=tensors)
    assert open_model(folder).config.head_dim == head_dim
    assert np.isfinite(logits(folder)).all()
    make_tiny_model(folder, config={**config, "head_dim": None}, tensors=tensors)
    with pytest.raises(ModelFormatError, match=r"\b3\b"):
        open_model(folder)


def test_a_copy_of_the_tied_head_and_rotary_tables_may_lie_in_the_file(tmp_path: Path) -> None:
    plain = logits(make_tiny_model(tmp_path / "plain"))
    surplus = {
        "lm_head.weight": np.ones((270, 32), np.float32),
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32),
    }
    np.testing.assert_array_equal(logits(make_tiny_model(tmp_path / "surplus", tensors=surplus)), plain)


def test_a_model_that_does_not_sample_is_greedy() -> None:
    assert sampling_from_hf({"do_sample": False, "temperature": 0.7}) == {"temperature": 0.0}
    assert sampling_from_hf({"do_sample": True, "temperature": 0.7}) == {"temperature": 0.7}
    assert sampling_from_hf({}) == {}


def test_recommended_sampling_of_both_formats() -> None:
    said = {"temperature": 0.7, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "repeat_penalty": 1.1}
    generation = {**said, "repetition_penalty": 1.1, "eos_token_id": [1, 2], "max_new_tokens": 20}
    assert sampling_from_hf(generation) == said
    keys = {"temp": 0.7, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "penalty_repeat": 1.1}
    f32 = {f"general.sampling.{key}": float(np.float32(v)) if key != "top_k" else v for key, v in keys.items()}
    assert sampling_from_gguf(f32) == said
    with pytest.raises(ModelFormatError):
        sampling_from_gguf({"general.sampling.temp": -1.0})
