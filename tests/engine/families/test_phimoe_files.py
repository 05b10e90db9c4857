"""What published files of Phi-3.5-MoE say, and what Hearth refuses of them."""

from __future__ import annotations

import pytest
from family_models import LONGROPE, SHAPE

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families import config_from_gguf, config_from_hf
from engine.placement.gpu_bytes import why_not_on_gpu

ROPE = {**LONGROPE, "short_mscale": 1.25, "long_mscale": 1.25, "original_max_position_embeddings": 24}
CONFIG = {
    **SHAPE, "model_type": "phimoe", "hidden_act": "silu", "num_local_experts": 4, "num_experts_per_tok": 2,
    "router_jitter_noise": 0.05, "attention_bias": True, "lm_head_bias": True, "sliding_window": 131072,
    "rope_scaling": ROPE,
}  # fmt: skip


def test_keys_of_published_files() -> None:
    config = config_from_hf(CONFIG, {})
    assert (config.router_margin, config.normed_routing, config.norm) == (0.1, False, "layer")
    assert config.biases == ("norm", "q", "k", "v", "o", "head")
    assert config.windows == ()  # as long as the context or longer
    assert config.rope_scaling is not None
    assert config.rope_scaling.attention_factor == 1.25
    assert why_not_on_gpu(config) == ""
    assert config_from_hf(CONFIG | {"sliding_window": 9}, {}).windows == (9, 9, 9)


def test_refused_configurations() -> None:
    with pytest.raises(UnsupportedModelError, match="differ"):
        config_from_hf(CONFIG | {"rope_scaling": ROPE | {"long_mscale": 1.5}}, {})
    with pytest.raises(ModelFormatError, match="lacks 'long_mscale'"):
        config_from_hf(CONFIG | {"rope_scaling": ROPE | {"long_mscale": None}}, {})
    with pytest.raises(UnsupportedModelError, match="short_mscale"):
        config_from_hf({**SHAPE, "model_type": "phi3", "hidden_act": "silu", "rope_scaling": ROPE}, {})
    with pytest.raises(UnsupportedModelError, match="lm_head_bias"):
        config_from_hf({**SHAPE, "model_type": "llama", "hidden_act": "silu", "lm_head_bias": True}, {})
    with pytest.raises(ModelFormatError, match="margin"):
        config_from_hf(CONFIG | {"router_jitter_noise": 1.0}, {})


def test_biases_of_gguf_files() -> None:
    shape = {"block_count": 2, "embedding_length": 32, "attention.head_count": 4, "feed_forward_length": 64,
             "context_length": 64, "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": 96,
             "expert_count": 4, "expert_used_count": 2, "attention.sliding_window": 64}  # fmt: skip
    metadata = {f"phimoe.{key}": value for key, value in shape.items()} | {"general.architecture": "phimoe"}
    config = config_from_gguf(metadata, {"blk.0.attn_q.bias"})
    assert (config.biases, config.router_margin, config.windows) == (("norm", "q"), 0.02, ())
    assert config_from_gguf(metadata, {"output.bias", "output.weight"}).biases == ("norm", "head")
