"""Files of LFM2 as they are published, and what Hearth refuses of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import CONTEXT, SHAPE, Reference

from engine.config import ModelConfig
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.library.estimate.shapes import config_of, shape_of
from engine.model.families import config_from_gguf, config_from_hf
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.placement.gpu_bytes import why_not_on_gpu
from native_kernels.reference import ReferenceOperators
from native_kernels.specs import ShortConvSpec

OPS = ReferenceOperators()
PUBLISHED = {
    **SHAPE, "model_type": "lfm2", "norm_eps": 1e-5, "block_ff_dim": 96, "block_multiple_of": 48, "conv_L_cache": 3,
    "block_ffn_dim_multiplier": 1.5, "full_attn_idxs": [1], "tie_embedding": False,
}  # fmt: skip


def test_the_text_part_of_models_with_pictures(references: Callable[[str], Reference], tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    reference = references("lfm2")
    text = json.loads((reference.folder / "config.json").read_text())
    outer = {"model_type": "lfm2_vl", "text_config": text, "vision_config": {"hidden_size": 4}}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    tensors = load_file(reference.folder / "model.safetensors")
    tensors = {name.replace("model.", "model.language_model.", 1): values for name, values in tensors.items()}
    towers = ("model.vision_tower.patch_embedding.weight", "model.multi_modal_projector.linear_1.weight")
    save_file(tensors | {name: np.ones((2, 2), np.float32) for name in towers}, tmp_path / "model.safetensors")
    opened = open_model(tmp_path)
    weights = load_weights(opened)
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    logits = model.logits(model.forward(reference.tokens, KVCache(opened.config, CONTEXT)))
    assert np.abs(logits - reference.logits).max() < 2e-4


def test_keys_of_published_files() -> None:
    config = config_from_hf(PUBLISHED, {})
    assert (config.delta_layers, config.short_conv) == ((0, 2), ShortConvSpec(32, 3))
    assert (config.d_ff, config.tied_embeddings, config.rope_theta) == (96, False, 1e6)
    assert config.state_size == 2 * 2 * 32
    assert config_from_hf(PUBLISHED | {"block_auto_adjust_ff_dim": False}, {}).d_ff == 96
    assert config_from_hf(PUBLISHED | {"block_ffn_dim_multiplier": None}, {}).d_ff == 64
    alone = config_from_hf(PUBLISHED | {"full_attn_idxs": None}, {})
    assert (alone.short_conv, alone.delta_layers) == (None, ())
    assert config_of(shape_of(config)).short_conv == config.short_conv
    assert not why_not_on_gpu(config)
    assert not why_not_on_gpu(alone)


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"conv_bias": True}, UnsupportedModelError), ({"layer_types": ["conv"]}, UnsupportedModelError),
     ({"layer_types": ["conv", "mamba", "full_attention"]}, UnsupportedModelError),
     ({"full_attn_idxs": []}, ModelFormatError), ({"block_multiple_of": 0}, ModelFormatError),
     ({"block_ffn_dim_multiplier": float("inf")}, ModelFormatError),
     ({"conv_L_cache": 0}, ModelFormatError), ({"conv_L_cache": 65}, ModelFormatError)],
)  # fmt: skip
def test_refused_configurations(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        config_from_hf(PUBLISHED | changes, {})


def test_refused_gguf_files_and_sizes() -> None:
    shape = {"block_count": 2, "embedding_length": 32, "attention.head_count": 4, "feed_forward_length": 64,
             "context_length": 64, "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": 96,
             "attention.head_count_kv": [0, 2], "shortconv.l_cache": 3}  # fmt: skip
    metadata = {f"lfm2.{key}": value for key, value in shape.items()} | {"general.architecture": "lfm2"}
    config: ModelConfig = config_from_gguf(metadata, set())
    assert (config.delta_layers, config.n_kv_heads) == ((0,), 2)
    with pytest.raises(ModelFormatError, match=r"lacks 'lfm2\.shortconv\.l_cache'"):
        config_from_gguf({key: value for key, value in metadata.items() if "l_cache" not in key}, set())
    with pytest.raises(UnsupportedModelError, match="sliding_window"):
        config_from_gguf(metadata | {"lfm2.attention.sliding_window": 9}, set())
    with pytest.raises(ModelFormatError, match="does not fit"):
        replace(config, short_conv=ShortConvSpec(16, 3))
    with pytest.raises(ModelFormatError, match="RMS norm"):
        replace(config, norms="output")
