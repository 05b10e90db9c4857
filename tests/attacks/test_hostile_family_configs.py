"""Configurations of every family with senseless values: each is refused by an EngineError, or read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from support.repetitions import slow

from engine.config import ModelConfig
from engine.errors import EngineError, UnsupportedModelError
from engine.model.families import FAMILIES, config_from_gguf, config_from_hf, planned_tensors

JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 7.5, 1 << 40, 1 << 70, 10**400, float("nan"), float("inf"), -0.0, "", "x", "yarn",
    "longrope", [], [1], ["x"], {}, {"factor": 0}, {"rope_type": "llama3"}, {"type": "yarn"},
    {"rope_type": "linear", "factor": float("nan")}, {"rope_type": "yarn", "factor": float("nan")},
    {"rope_type": "yarn", "factor": 1e300, "original_max_position_embeddings": 1 << 62},
    {"type": "yarn", "factor": 4.0, "beta_fast": -0.0, "mscale": 1e308, "mscale_all_dim": 1e-9},
    {"type": "dynamic", "factor": float("inf")}, {"type": "longrope", "short_factor": [10**400] * 4, "long_factor": []},
    {"type": "longrope", "factor": 4.0, "short_factor": [float("nan")] * 4, "long_factor": [1] * 4},
    {"type": "dynamic", "factor": 1.0, "alpha": 1e300}, {"type": "dynamic", "factor": 1.0, "alpha": float("nan")},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0, "llama_4_scaling_beta": 0.1},
    {"full_attention": 1}, {"full_attention": {"rope_theta": "x"}}, {"partial_rotary_factor": 1e9},
    {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}, ["full_attention"] * 3,
    ["sliding_attention", 7, None], [80, 0, 160], [0.9, 0.4, 0.0], [1.5, float("nan"), -1.0],
    {"2": {"head_dim": 10**400}}, {"2": {"head_dim": -4}}, {"x": 1},
)  # fmt: skip
HF: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 96, "bos_token_id": 1,
    "eos_token_id": 2, "head_dim": 8, "intermediate_size": 80, "ffn_dim": 80, "num_key_value_heads": 2,
    "hidden_act": "silu", "activation_function": "relu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
HF_KEYS = (
    *HF, "rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "sliding_window", "layer_types",
    "sliding_window_pattern", "max_window_layers", "query_pre_attn_scalar", "attn_logit_softcapping",
    "final_logit_softcapping", "tie_word_embeddings", "word_embed_proj_dim", "do_layer_norm_before", "enable_bias",
    "num_kv_heads", "new_decoder_architecture", "multi_query", "num_ln_in_parallel_attn", "ffn_hidden_size",
    "activation", "bias", "partial_rotary_factor", "attention_bias", "mlp_bias", "hidden_act_param", "alibi",
    "layer_norm_epsilon", "parallel_attn", "num_experts", "num_local_experts", "num_experts_per_tok",
    "moe_intermediate_size", "norm_topk_prob", "mlp_only_layers", "decoder_sparse_step", "moe_num_primary_experts",
    "moe_num_active_primary_experts", "moe_ffn_hidden_size", "moe_primary_router_apply_softmax", "rope_layout",
    "sliding_window_layout", "sliding_window_size", "moe_layer_layout", "moe_enable_early_router",
    "shared_expert_intermediate_size", "qkv_bias", "swiglu_limit", "swiglu_alpha",
    "original_max_position_embeddings", "residual_multiplier", "embedding_multiplier", "attention_multiplier",
    "logits_scaling", "logit_scale", "no_rope_layers", "no_rope_layer_interval", "first_k_dense_replace",
    "n_shared_experts", "routed_scaling_factor", "n_routed_experts", "use_qk_norm", "rotary_dim",
    "full_attention_interval", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim", "attn_output_gate", "kv_lora_rank", "q_lora_rank",
    "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_group", "topk_group", "topk_method", "scoring_func",
    "moe_layer_freq", "mlp_layer_types", "rope_interleave", "global_head_dim", "per_layer_config",
    "num_global_key_value_heads", "attention_k_eq_v", "num_kv_shared_layers", "hidden_size_per_layer_input",
    "vocab_size_per_layer_input", "use_double_wide_mlp", "use_bidirectional_attention", "moe_topk",
    "num_shared_expert", "use_cla", "altup_num_inputs", "altup_active_idx", "altup_correct_scale", "laurel_rank",
    "activation_sparsity_pattern", "layers_block_type", "hybrid_override_pattern", "mamba_num_heads", "ssm_state_size",
    "mamba_head_dim", "n_groups", "conv_kernel", "use_conv_bias", "time_step_limit", "mamba_hidden_act",
    "moe_latent_size", "moe_shared_expert_intermediate_size", "mlp_hidden_act", "use_bias", "attention_head_dim",
    "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv", "mamba_expand",
    "mamba_conv_bias", "mamba_proj_bias", "shared_intermediate_size", "position_embedding_type", "conv_L_cache",
    "conv_bias", "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of", "block_ff_dim",
    "full_attn_idxs", "num_dense_layers", "use_expert_bias", "attention_chunk_size", "attn_scale", "floor_scale",
    "attn_temperature_tuning", "interleave_moe_layer_step", "intermediate_size_mlp", "moe_layers", "lm_head_bias",
    "router_jitter_noise",
)  # fmt: skip
GGUF: dict[str, Any] = {
    "block_count": 3, "context_length": 64, "embedding_length": 32, "feed_forward_length": 80, "vocab_size": 96,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-5, "attention.key_length": 8, "attention.value_length": 8,
    "attention.sliding_window": 16,
}  # fmt: skip
HF_EXPERTS = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                  "shared_expert_intermediate_size": 24},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "glm4_moe": {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "minimax_m2": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "smallthinker": {"moe_num_primary_experts": 4, "moe_num_active_primary_experts": 2, "moe_ffn_hidden_size": 16,
                     "hidden_act": "relu"},
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {"num_local_experts": 4, "num_experts_per_tok": 2},
}  # fmt: skip
_VARIED = {"layer_types": ["sliding_attention", "full_attention", "full_attention"], "num_kv_shared_layers": 1,
           "vocab_size_per_layer_input": 96}  # fmt: skip
HF_VARIED = {"gemma4_text": _VARIED, "gemma3n_text": {**_VARIED, "activation_sparsity_pattern": [0.9, 0.0, 0.8]}}
_MIXED = {"feed_forward_length": [0, 0, 80], "attention.head_count_kv": [0, 2, 0]}
_CONVOLVED = {"attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3}
GGUF_VARIED = {
    "lfm2": _CONVOLVED, "lfm2moe": {**_CONVOLVED, "expert_gating_func": 2, "leading_dense_block_count": 1,
                "expert_feed_forward_length": 24},
    "llama4": {"expert_gating_func": 2, "interleave_moe_layer_step": 1},
    "granitehybrid": {"attention.head_count_kv": [0, 2, 0]},
    "nemotron_h": {**_MIXED, "expert_count": 0}, "nemotron_h_moe": _MIXED,
    "gemma3n": {"attention.sliding_window_pattern": [True, False, False], "attention.shared_kv_layers": 1,
                "embedding_length_per_layer_input": 8, "altup.num_inputs": 4,
                "activation_sparsity_scale": [1.25, float("-inf"), 1.0]},
    "gemma4": {"attention.sliding_window_pattern": [True, False, False], "attention.shared_kv_layers": 1,
               "embedding_length_per_layer_input": 8},
}  # fmt: skip
HF_DELTA: dict[str, dict[str, Any]] = {"qwen3_5": {"full_attention_interval": 2}}
HF_DELTA["bert"] = HF_DELTA["xlm-roberta"] = {"hidden_act": "gelu"}
HF_DELTA["nomic_bert"] = {"activation_function": "swiglu"}
HF_DELTA["lfm2"] = {"layer_types": ["conv", "full_attention", "conv"]}
HF_DELTA["lfm2_moe"] = {**HF_DELTA["lfm2"], "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                        "num_dense_layers": 1}  # fmt: skip
HF_LATENT = {"deepseek2": {**HF_EXPERTS["glm4_moe"], "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
                           "v_head_dim": 8, "routed_scaling_factor": 1.0, "first_k_dense_replace": 1}}  # fmt: skip
HF_LATENT["mistral4"] = HF_LATENT["deepseek2"]
HF_HUNYUAN = {"hunyuan_moe": {"num_experts": 4, "moe_topk": 2}}
HF_DELTA["nemotron_h"] = {"hybrid_override_pattern": "M*E", "mamba_num_heads": 4, "ssm_state_size": 8,
                          "mamba_head_dim": 8, "n_groups": 2, "n_routed_experts": 4, "num_experts_per_tok": 2,
                          "moe_intermediate_size": 16, "moe_shared_expert_intermediate_size": 24}  # fmt: skip
HF_DELTA["granite_hybrid"] = {"layer_types": ["mamba", "mamba", "attention"], "mamba_n_heads": 4, "mamba_d_state": 8,
                              "mamba_n_groups": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
                              "shared_intermediate_size": 24}  # fmt: skip
HF_DELTA["qwen3_next"] = HF_DELTA["qwen3_5_moe"] = {**HF_EXPERTS["qwen2_moe"], **HF_DELTA["qwen3_5"]}
GGUF_EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16, "expert_gating_func": 1}
GGUF_KEYS = (
    *GGUF, "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.attn_factor", "rope.scaling.original_context_length", "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scale_linear",
    "rope.freq_base_swa", "attn_logit_softcapping",
    "final_logit_softcapping", "expert_count", "attention.sliding_window_pattern", "expert_used_count",
    "expert_feed_forward_length", "expert_gating_func", "expert_shared_feed_forward_length", "expert_weights_norm",
    "leading_dense_block_count", "nextn_predict_layers", "expert_shared_count", "expert_weights_scale",
    "residual_scale", "logit_scale", "embedding_scale", "attention.scale", "ssm.conv_kernel", "ssm.state_size",
    "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size", "full_attention_interval", "rope.dimension_sections",
    "attention.kv_lora_rank", "attention.q_lora_rank", "attention.key_length_mla", "attention.value_length_mla",
    "expert_group_count", "expert_group_used_count", "rope.scaling.yarn_log_multiplier",
    "attention.key_length_swa", "attention.value_length_swa", "attention.shared_kv_layers", "rope.dimension_count_swa",
    "embedding_length_per_layer_input", "altup.active_idx", "altup.num_inputs", "activation_sparsity_scale",
    "shortconv.l_cache", "interleave_moe_layer_step", "attention.chunk_size",
)  # fmt: skip
GGUF_LATENT = {
    "attention.kv_lora_rank": 16, "attention.key_length_mla": 16, "attention.value_length_mla": 8,
    "rope.dimension_count": 8,
}  # fmt: skip
GGUF_DELTA = {
    "ssm.conv_kernel": 4, "ssm.state_size": 8, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 32,
    "full_attention_interval": 2, "expert_shared_feed_forward_length": 24,
}  # fmt: skip


def bases(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for family in FAMILIES:
        for model_type in family.model_types if kind == "hf" else ():
            act = {"hidden_act": "relu"} if family.name == "bamboo" or model_type == "turbosparsemixtral" else {}
            of_family = HF_EXPERTS | HF_DELTA | HF_LATENT | HF_HUNYUAN
            act = of_family.get(family.name, of_family.get(model_type, {})) | act
            act |= HF_VARIED.get(model_type, {})
            window = {} if family.name not in ("qwen2", "qwen3") else {"use_sliding_window": True}
            yield model_type, {**HF, **act, **window, "model_type": model_type}
        for arch in family.architectures if kind == "gguf" else ():
            known = {key for key in GGUF if key != "attention.sliding_window" or key in family.gguf_handles}
            values = GGUF | (GGUF_EXPERTS if family.experts else {})
            values |= {"expert_shared_feed_forward_length": 24} if arch in ("qwen2moe", "hunyuan-moe") else {}
            delta = GGUF_DELTA if "ssm.state_size" in family.gguf_handles else {}
            values |= {key: value for key, value in delta.items() if key in family.gguf_handles}
            values |= GGUF_LATENT if family.latent else {}
            known |= delta.keys() | (GGUF_LATENT.keys() if family.latent else set())
            values |= {"expert_gating_func": 2} if family.features.get("router") == "sigmoid" else {}
            named = {
                f"{arch}.{key}": value for key, value in values.items() if key in known or key.startswith("expert_")
            }
            named |= {f"{arch}.{key}": value for key, value in GGUF_VARIED.get(arch, {}).items()}
            named |= {f"{arch}.logit_scale": 0.25} if "logit_scale" in family.gguf_handles else {}
            yield arch, {**named, "general.architecture": arch}


@cache
def harmless(config: ModelConfig) -> None:
    """What was accepted can be planned for, and its sizes are those of a model. Once: most keys change nothing."""
    assert 1 <= config.n_layers <= 1024
    assert not config.windows or len(config.windows) == config.n_layers
    for kind in ("safetensors", "gguf"):
        try:
            assert len(planned_tensors(config, kind)) < 1 << 16
        except UnsupportedModelError:
            continue


def dealt(kind: str) -> list[Any]:
    """(base, which values of JUNK). Every day each family takes every ninth value for each key, its neighbours the
    others; with `-m slow` it takes the rest."""
    found = []
    for i, (name, base) in enumerate(bases(kind)):
        found.append(pytest.param(name, base, {i % 9}, id=name))
        found.append(slow(name, base, {*range(9)} - {i % 9}, id=f"{name}-others"))
    return found


def junk(at: int, turns: set[int]) -> list[Any]:
    """at: which key, so that a family does not try the same values for all of them."""
    return [value for i, value in enumerate(JUNK) if (at + i) % 9 in turns]


@pytest.mark.parametrize(("name", "base", "turns"), dealt("hf"))
def test_senseless_config_json(name: str, base: dict[str, Any], turns: set[int]) -> None:
    harmless(config_from_hf(base, {}))
    for at, key in enumerate(HF_KEYS):
        for value in junk(at, turns):
            try:
                harmless(config_from_hf({**base, key: value}, {}))
            except EngineError as error:
                assert len(error.message) < 400, (key, value)  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize("n_experts", [-1, 0, True, 2.0, 1025, 1 << 40, 1 << 70, 10**400])
@pytest.mark.parametrize("family", HF_EXPERTS)
def test_absurd_counts_of_experts(family: str, n_experts: Any) -> None:
    """Before anything is planned for them."""
    base = {**HF, **HF_EXPERTS[family], "model_type": family}
    count = next(iter(HF_EXPERTS[family]))
    with pytest.raises(EngineError):
        config_from_hf({**base, count: n_experts}, {})
    for used in (0, 5, n_experts):
        with pytest.raises(EngineError):
            config_from_hf({**base, **dict.fromkeys(list(HF_EXPERTS[family])[1:2], used)}, {})
    with pytest.raises(EngineError, match="experts in each of 1024 layers"):
        config_from_hf({**base, count: 33, "num_hidden_layers": 1024}, {})
    names = {f"llama.{key}": value for key, value in (GGUF | GGUF_EXPERTS).items()} | {"general.architecture": "llama"}
    for key, value in (("expert_count", n_experts), ("expert_used_count", n_experts)):
        if n_experts in (0, -1) and key == "expert_count":
            continue  # a file without experts
        with pytest.raises(EngineError):
            config_from_gguf({**names, f"llama.{key}": value}, set())


@pytest.mark.parametrize(("name", "base", "turns"), dealt("gguf"))
def test_senseless_gguf_metadata(name: str, base: dict[str, Any], turns: set[int]) -> None:
    harmless(config_from_gguf(base, set()))
    divisors = {"rope_factors_long.weight", "rope_factors_short.weight"}
    yarn = {f"{name}.rope.scaling.type": "yarn", f"{name}.rope.scaling.factor": 4.0}
    every = (*(f"{name}.{key}" for key in GGUF_KEYS), "hearth.activation", "hearth.activation_threshold")
    of_rope = tuple(key for key in every if any(word in key for word in ("rope", "length", "head_count")))
    for more, names, keys in (({}, {"output.weight"}, every), ({}, divisors, of_rope), (yarn, set[str](), of_rope)):
        for at, key in enumerate(keys):
            for value in junk(at, turns):
                try:
                    harmless(config_from_gguf({**base, **more, key: value}, names))
                except EngineError as error:
                    assert len(error.message) < 400, (key, value)  # noqa: PT017
