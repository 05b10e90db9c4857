"""Files of models with latent attention: what is refused, what is cached and estimated, and files from before 2025."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf_models
import numpy as np
import pytest
from family_models import CASES, CONTEXT, Reference, make_reference
from gguf_models import write_gguf

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.library.estimate.shapes import config_of, shape_of
from engine.model.families import config_from_gguf, config_from_hf
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.placement.gpu_bytes import why_not_on_gpu
from engine.placement.model_bytes import ModelBytes
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
HF: dict[str, Any] = {"model_type": "deepseek_v3", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80,
      "num_hidden_layers": 3, "num_attention_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 3,
      "moe_intermediate_size": 64, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
      "v_head_dim": 12, "q_lora_rank": None, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), [
    ({"topk_method": "greedy"}, "router with sigmoid and greedy"), ({"scoring_func": "softmax"}, "router with softmax"),
    ({"model_type": "deepseek_v2", "norm_topk_prob": True}, "read differently"),
    ({"moe_layer_freq": 2}, "without experts"), ({"mlp_layer_types": ["sparse", "dense", "sparse"]}, "then sparse"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "a part of qk_rope_head_dim"),
    ({"attention_bias": True}, "attention_bias"), ({"qk_rope_head_dim": 7}, "odd"), ({"kv_lora_rank": 0}, "invalid"),
    ({"v_head_dim": 1 << 20}, "value_dim is"), ({"n_group": 3, "topk_group": 1}, "groups of 8 experts"),
    ({"n_group": 4, "topk_group": 1}, "too few"), ({"q_lora_rank": -1}, "query_rank is -1"),
    ({"model_type": "deepseek_v32"}, "yet"),
    ({"model_type": "mistral4", "n_group": 2, "topk_group": 1, "topk_method": "greedy"}, "one group of experts, not 2"),
])  # fmt: skip
def test_what_a_config_cannot_say(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((UnsupportedModelError, ModelFormatError), match=words):
        config_from_hf({**HF, **changes}, {})


def test_kimi_and_glm_are_read_like_deepseek_v3() -> None:
    plain = config_from_hf(HF, {})
    assert config_from_hf({**HF, "model_type": "kimi_k2", "topk_method": "noaux_tc"}, {}) == plain
    assert config_from_hf({**HF, "model_type": "glm4_moe_lite", "num_nextn_predict_layers": 1}, {}) == plain


def test_a_token_takes_one_vector_per_layer(references: Callable[[str], Reference], tmp_path: Path) -> None:
    """24 numbers and 8 rotated ones, once for 4 heads with keys of 24 and values of 12."""
    opened = open_model(write_gguf(references("deepseek-v3").folder, tmp_path / "m.gguf", CASES["deepseek-v3"]))
    config = opened.config
    for codec, of_position in (("f32", 4 * 32), ("f16", 2 * 32), ("q8_0", 32 + 2)):
        assert KVCache.bytes_for(config, 320, codec) == 3 * 320 * of_position
        assert KVCache(config, 320, codec).n_bytes == 3 * 320 * of_position
        assert ModelBytes.of(opened).kv_of_layer(320, codec).tolist() == [320 * of_position] * 3
    again = config_of(shape_of(config))
    assert (again.latent, again.rotated, again.kv_layout("f16")) == (config.latent, 8, config.kv_layout("f16"))
    assert why_not_on_gpu(config) == ""
    spec = config.latent
    assert spec is not None
    assert "576" in why_not_on_gpu(replace(config, latent=replace(spec, rank=768), head_dim=776))
    assert why_not_on_gpu(replace(config, latent=replace(spec, key_dim=17)))


def test_what_gguf_metadata_cannot_say(references: Callable[[str], Reference], tmp_path: Path) -> None:
    source = open_model(write_gguf(references("deepseek-v2").folder, tmp_path / "m.gguf", CASES["deepseek-v2"])).source
    for key, value, words in (
        ("attention.kv_lora_rank", None, "lacks"), ("attention.key_length_mla", 8, "invalid"),
        ("rope.dimension_count", None, "lacks"), ("expert_gating_func", 2, "expert_gating_func is 2"),
        ("expert_weights_norm", True, "read differently"), ("attention.indexer.top_k", 64, "does not know"),
            ("attention.temperature_scale", 0.1, "lacks"),
    ):  # fmt: skip
        with pytest.raises((UnsupportedModelError, ModelFormatError), match=words):
            config_from_gguf({**source.metadata, f"deepseek2.{key}": value}, set(source.tensors))


def test_gate_and_up_of_all_experts_in_one_tensor(
    references: Callable[[str], Reference], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, apart = references("mistral4"), gguf_models._experts

    def fused(*arguments: Any) -> dict[str, np.ndarray]:
        found = apart(*arguments)
        gates = [name for name in found if "ffn_gate_exps" in name]
        both = {name.replace("gate", "gate_up"): np.concatenate(
            [found.pop(name), found.pop(name.replace("gate", "up"))], axis=1) for name in gates}  # fmt: skip
        return found | both

    monkeypatch.setattr(gguf_models, "_experts", fused)
    opened = open_model(write_gguf(reference.folder, tmp_path / "m.gguf", reference.case))
    assert "blk.0.ffn_gate_up_exps.weight" in opened.source.tensors
    weights = load_weights(opened, hold="mapped")
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    found = model.logits(model.forward(reference.tokens, KVCache(model.config, CONTEXT)))
    assert np.abs(found - reference.logits).max() < 2e-4


def test_quantised_matrices_of_old_files_are_turned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gguf

    reference = make_reference("deepseek-v2-lite", tmp_path / "hf", {"kv_lora_rank": 32})
    add, kind = gguf.GGUFWriter.add_tensor, gguf.GGMLQuantizationType.Q8_0

    def quantised(writer: Any, name: str, values: np.ndarray) -> None:
        if "attn_kv_b" in name:
            add(writer, name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            add(writer, name, values)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", quantised)
    opened = open_model(write_gguf(reference.folder, tmp_path / "m.gguf", reference.case, apart=True))
    weights = load_weights(opened, hold="mapped")
    k_up = weights.layers[0].k_up
    assert k_up is not None
    assert (k_up.codec, weights.layers[0].v.codec) == ("f16", "q8_0")
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    found = model.logits(model.forward(reference.tokens, KVCache(model.config, CONTEXT)))
    assert np.sqrt(np.mean((found - reference.logits) ** 2)) < 0.05 * np.sqrt(np.mean(reference.logits**2))
