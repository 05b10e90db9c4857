"""Files of Llama 4 as they are published, and what Hearth refuses of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import CONTEXT, SHAPE, Reference

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.library.estimate.shapes import config_of, shape_of
from engine.loading.backends import choose_backend
from engine.model.families import config_from_gguf, config_from_hf
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.placement.gpu_bytes import why_not_on_gpu
from engine.session.generate import decode_one_token
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import Temperature

OPS = ReferenceOperators()
PUBLISHED = {
    **SHAPE, "model_type": "llama4_text", "hidden_act": "silu", "head_dim": 8, "intermediate_size_mlp": 96,
    "num_local_experts": 4, "num_experts_per_tok": 1, "num_hidden_layers": 8, "no_rope_layers": [],
    "attn_temperature_tuning": 4, "interleave_moe_layer_step": 2, "use_qk_norm": False,
}  # fmt: skip


def test_the_text_part_of_models_with_pictures(references: Callable[[str], Reference], tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    reference = references("llama4")
    text = json.loads((reference.folder / "config.json").read_text())
    outer = {"model_type": "llama4", "text_config": text, "vision_config": {"hidden_size": 4}}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    tensors = load_file(reference.folder / "model.safetensors")
    tensors = {f"language_model.{name}": values for name, values in tensors.items()}
    towers = ("vision_model.patch_embedding.weight", "multi_modal_projector.linear_1.weight")
    save_file(tensors | {name: np.ones((2, 2), np.float32) for name in towers}, tmp_path / "model.safetensors")
    opened = open_model(tmp_path)
    weights = load_weights(opened)
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    logits = model.logits(model.forward(reference.tokens, KVCache(opened.config, CONTEXT)))
    assert np.abs(logits - reference.logits).max() < 2e-4


def test_two_experts_whose_weights_multiply_their_inputs(references: Callable[[str], Reference]) -> None:
    """No published model has more than one; the program, the batch and the reference agree all the same."""
    reference, kernels = references("llama4"), choose_backend("kernels", 2)
    opened = open_model(reference.folder)
    config = replace(opened.config, n_experts_used=2)
    weights = load_weights(opened, hold="mapped")
    plain = Transformer(config, weights, DenseExecutor(config, weights, OPS), OPS)
    wanted = plain.logits(plain.forward(reference.tokens, KVCache(config, CONTEXT)))
    executor = DenseExecutor(config, weights, kernels.operators)
    decoder = kernels.decoder(config, weights, "dense", executor.counters, None)
    model, cache = Transformer(config, weights, executor, kernels.operators, decoder), KVCache(config, CONTEXT)
    found = model.logits(model.forward(reference.tokens[:40], cache))
    np.testing.assert_allclose(found, wanted[:40], atol=2e-4)
    for place in range(40, 60):
        one = decode_one_token(model, int(reference.tokens[place]), cache)
        np.testing.assert_allclose(one, wanted[place], atol=2e-4)


def test_keys_of_published_files() -> None:
    config = config_from_hf(PUBLISHED, {})
    assert config.windows == (8192, 8192, 8192, 0) * 2
    assert (config.unrotated, config.qk_norm) == ((3, 7), False)
    assert config.attention_temperature == Temperature(0.1, 8192, 1)
    assert [config.ffn_width(layer) for layer in range(4)] == [96, 80, 96, 80]
    assert (config.dense_d_ff, config.shared_d_ff, config.rope_order) == (96, 80, "interleaved")
    assert config_from_hf(PUBLISHED | {"attn_temperature_tuning": False}, {}).attention_temperature is None
    assert config_of(shape_of(config)).experts_every == 2
    assert why_not_on_gpu(config_of(shape_of(config))) == why_not_on_gpu(config) == ""
    scout = config_from_hf(PUBLISHED | {"interleave_moe_layer_step": 1}, {})
    assert (scout.dense_d_ff, scout.experts_every) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"moe_layers": [0, 3]}, UnsupportedModelError), ({"interleave_moe_layer_step": 9}, ModelFormatError),
     ({"interleave_moe_layer_step": 0}, UnsupportedModelError),
     ({"no_rope_layers": [1, 2]}, ModelFormatError), ({"no_rope_layer_interval": 0}, ModelFormatError),
     ({"layer_types": ["sliding_attention"] * 8}, UnsupportedModelError),
     ({"attention_bias": True}, UnsupportedModelError), ({"floor_scale": 0}, ModelFormatError)],
)  # fmt: skip
def test_refused_configurations(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        config_from_hf(PUBLISHED | changes, {})


def test_gguf_files_without_chunks() -> None:
    shape = {"block_count": 4, "embedding_length": 32, "attention.head_count": 4, "feed_forward_length": 96,
             "context_length": 64, "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": 96,
             "expert_count": 128, "expert_used_count": 1, "expert_feed_forward_length": 64,
             "interleave_moe_layer_step": 2}  # fmt: skip
    metadata = {f"llama4.{key}": value for key, value in shape.items()} | {"general.architecture": "llama4"}
    maverick = config_from_gguf(metadata, set())
    assert (maverick.windows, maverick.unrotated, maverick.qk_norm) == ((8192, 8192, 8192, 0), (3,), False)
    whole = config_from_gguf(metadata | {"llama4.attention.sliding_window": 0}, set())
    assert (whole.windows, whole.unrotated, whole.attention_temperature) == ((), (), None)
    with pytest.raises(UnsupportedModelError, match="runs llama4 with experts"):
        config_from_gguf(metadata | {"llama4.interleave_moe_layer_step": 0}, set())
    with pytest.raises(ModelFormatError, match="every layer of 5"):
        replace(maverick, experts_every=5)
    with pytest.raises(ModelFormatError, match="inputs"):
        replace(maverick, biases=("router",))
