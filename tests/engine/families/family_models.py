"""Tiny random models of every family, made with transformers: the reference that ours is compared with.

A model is a configuration and a scale; its weights come from one seed for all.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

VOCAB = 96
PROMPT = np.random.default_rng(7).integers(3, VOCAB, 64)
STEPS = 64
CONTEXT = 128
GREEDY = Path(__file__).parent / "greedy_tokens.json"  # `python family_models.py` writes it

SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}  # fmt: skip
LONGROPE_BORDER = 24
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.3, 2.0],
            "long_factor": [1.2, 2.5, 6.0, 9.0]}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One model: transformers' class and arguments, and what config.json says beyond them."""

    kind: str  # "Llama" of LlamaConfig and LlamaForCausalLM
    arguments: dict[str, Any] = field(default_factory=dict)
    activation: str = ""  # what ModelConfig must say
    published: dict[str, Any] = field(default_factory=dict)  # keys of config.json that transformers does not know
    patch: Callable[[Any], None] | None = None  # makes transformers' model what remote code would be
    gguf: str = ""  # architecture, where the family is known in GGUF
    own_shape: bool = False  # the arguments are all there is
    renamed: dict[str, str] = field(default_factory=dict)  # parts of tensor names, where the published ones differ


def _drelu(model: Any) -> None:
    import torch

    for layer in model.model.layers:
        mlp = layer.mlp
        mlp.forward = lambda x, m=mlp: m.down_proj(torch.relu(m.gate_proj(x)) * torch.relu(m.up_proj(x)))


def _fatrelu(model: Any) -> None:
    import torch

    for layer in model.model.layers:
        mlp = layer.mlp
        mlp.forward = lambda x, m=mlp: m.down_proj(torch.threshold(m.gate_proj(x), 0.3, 0.0) * m.up_proj(x))


def _phimoe(model: Any) -> None:
    """The long divisors beyond the original context, as published; transformers 5 takes the short ones always."""
    rotary = model.model.rotary_emb
    divide, rotate = rotary.rope_init_fn, rotary.forward

    def forward(x: Any, position_ids: Any) -> Any:
        rotary.rope_init_fn = lambda config: divide(config, seq_len=int(position_ids.max()) + 1)
        return rotate(x, position_ids)

    rotary.forward = forward


def _drelu_experts(model: Any) -> None:
    import torch

    def experts(x: Any, chosen: Any, weights: Any, m: Any) -> Any:
        out = torch.zeros_like(x)
        for token in range(len(x)):
            for expert, weight in zip(chosen[token], weights[token], strict=True):
                gate, up = (m.gate_up_proj[expert] @ x[token]).chunk(2)
                out[token] += weight * (m.down_proj[expert] @ (torch.relu(gate) * torch.relu(up)))
        return out

    for layer in model.model.layers:
        layer.mlp.experts.forward = lambda x, chosen, weights, m=layer.mlp.experts: experts(x, chosen, weights, m)


def _smallthinker(softmax: bool = False, unrotated: tuple[int, ...] = (), window: int = 0) -> Callable[[Any], None]:
    """Mixtral with the router moved before attention, its scores chosen first and weighed then, as published.

    window: of the layers that are rotated.
    """

    def patch(model: Any) -> None:
        import torch
        from transformers.models.mixtral import modeling_mixtral

        rotate = modeling_mixtral.apply_rotary_pos_emb
        for number, layer in enumerate(model.model.layers):

            def remember(module: Any, args: Any, kwargs: Any, layer: Any = layer) -> None:
                layer.came_in = args[0] if args else kwargs["hidden_states"]

            def router(x: Any, layer: Any = layer) -> Any:
                scores = layer.came_in.reshape(-1, x.shape[-1]) @ layer.mlp.gate.weight.T
                top, chosen = torch.topk(scores, layer.mlp.gate.top_k, dim=-1)
                weights = torch.softmax(top, dim=-1) if softmax else torch.sigmoid(top)
                return scores, weights / weights.sum(dim=-1, keepdim=True), chosen

            def attend(*args: Any, attend: Any = layer.self_attn.forward, number: int = number, **kwargs: Any) -> Any:
                plain = number in unrotated
                modeling_mixtral.apply_rotary_pos_emb = (lambda q, k, *_: (q, k)) if plain else rotate
                try:
                    if window and not plain:
                        mask = kwargs["attention_mask"]  # [1, 1, queries, keys]
                        query, key = torch.arange(mask.shape[-2])[:, None], torch.arange(mask.shape[-1])
                        too_far = query + mask.shape[-1] - mask.shape[-2] - key >= window
                        kwargs["attention_mask"] = mask.masked_fill(too_far, torch.finfo(mask.dtype).min)
                    return attend(*args, **kwargs)
                finally:
                    modeling_mixtral.apply_rotary_pos_emb = rotate

            layer.register_forward_pre_hook(remember, with_kwargs=True)
            layer.mlp.gate.forward = router
            layer.self_attn.forward = attend

    return patch


_OPT = {"vocab_size": VOCAB, "hidden_size": 32, "ffn_dim": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT, "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
        "word_embed_proj_dim": 32}  # fmt: skip
_FALCON = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
           "max_position_embeddings": CONTEXT, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
_GEMMA = {**SHAPE, "head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 24}
_GLM = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "head_dim": 16,
        "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1}  # fmt: skip
_SMALLTHINKER = {"num_local_experts": 6, "num_experts_per_tok": 2, "hidden_act": "relu", "head_dim": 16,
                 "intermediate_size": 64}  # fmt: skip
_SMALL_NAMES = {"block_sparse_moe.gate": "block_sparse_moe.primary_router", ".w1.": ".gate.", ".w2.": ".down.",
                ".w3.": ".up."}  # fmt: skip


_DELTA = {**SHAPE, "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
          "linear_key_head_dim": 8, "linear_value_head_dim": 16, "layer_types": None,
          "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5,
                              "mrope_section": [2, 1, 1]}}  # fmt: skip
_FULL = "full_attention"
_MSCALE = math.sqrt(1 + math.log(CONTEXT / LONGROPE_BORDER) / math.log(LONGROPE_BORDER))  # what GGUF files have
_LOCAL_AND_FULL, _LOCALS = ["sliding_attention", _FULL], ["sliding_attention"] * 2
_GEMMA4 = {**SHAPE, "head_dim": 8, "global_head_dim": 16, "sliding_window": 9, "final_logit_softcapping": 30.0,
           "layer_types": [*_LOCAL_AND_FULL, _FULL], "hidden_size_per_layer_input": 8,
           "vocab_size_per_layer_input": VOCAB}  # fmt: skip
_LLAMA4 = {"head_dim": 16, "intermediate_size": 64, "intermediate_size_mlp": 96, "num_local_experts": 6}
_DELTA_EXPERTS = {**_DELTA, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
                  "shared_expert_intermediate_size": 96}  # fmt: skip


_LATENT = {**SHAPE, "num_key_value_heads": 4, "num_hidden_layers": 3, "kv_lora_rank": 24, "qk_nope_head_dim": 16,
           "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 3,
           "moe_intermediate_size": 64, "first_k_dense_replace": 1}  # fmt: skip
_DEEPSEEK_YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32,
                  "beta_fast": 8.0, "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707}  # fmt: skip


def _small_config(n_layers: int, **changes: Any) -> dict[str, Any]:
    gone = {"num_local_experts": None, "num_experts_per_tok": None, "intermediate_size": None}
    own = {"model_type": "smallthinker", "moe_num_primary_experts": 6, "moe_num_active_primary_experts": 2,
           "moe_ffn_hidden_size": 64, "moe_layer_layout": [1] * n_layers, "rope_layout": [1] * n_layers,
           "sliding_window_layout": [0] * n_layers, "sliding_window_size": 4096}  # fmt: skip
    return {**gone, **own, **changes}


_GRANITE = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0, "attention_multiplier": 0.2,
            "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2,
            "shared_intermediate_size": 40}  # fmt: skip
_NEMOTRON = {**{key: value for key, value in SHAPE.items() if key != "num_hidden_layers"}, "head_dim": 8,
             "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 12, "n_groups": 2}  # fmt: skip
CASES: dict[str, Case] = {
    "llama": Case("Llama", {}, "silu-glu", gguf="llama"),
    "relu-llama": Case("Llama", {"hidden_act": "relu", "tie_word_embeddings": True}, "relu-glu", gguf="llama"),
    "llama-biases": Case("Llama", {"attention_bias": True, "mlp_bias": True}, "silu-glu"),
    "llama-linear": Case("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
                         "silu-glu", gguf="llama"),
    "llama-3": Case("Llama", {"rope_parameters": LLAMA3, "head_dim": 12}, "silu-glu", gguf="llama"),
    "llama-yarn": Case("Llama", {"head_dim": 16, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32,
        "beta_fast": 8.0}}, "silu-glu", gguf="llama"),
    "llama-dynamic": Case("Llama", {"max_position_embeddings": 48, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0}}, "silu-glu"),
    "prosparse": Case("Llama", {}, "fatrelu-glu", patch=_fatrelu, gguf="llama",
                      published={"model_type": "sparsellama", "hidden_act": "fatrelu", "hidden_act_param": 0.3}),
    "mistral": Case("Mistral", {"sliding_window": 11}, "silu-glu", gguf="llama"),
    "mistral-whole": Case("Mistral", {"sliding_window": None, "head_dim": 16}, "silu-glu", gguf="llama"),
    "bamboo": Case("Mistral", {"sliding_window": None, "hidden_act": "relu"}, "drelu-glu", patch=_drelu,
                   published={"model_type": "bamboo"}, gguf="bamboo"),
    "turbosparse-mistral": Case("Mistral", {"sliding_window": 20, "hidden_act": "relu"}, "drelu-glu", patch=_drelu,
                                published={"model_type": "turbosparsemistral"}),
    "opt": Case("OPT", _OPT, "relu", gguf="opt", own_shape=True),
    "opt-350m": Case("OPT", {**_OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 24}, "relu",
                     own_shape=True),
    "opt-gelu-galactica": Case("OPT", {**_OPT, "activation_function": "gelu", "enable_bias": False}, "gelu",
                               own_shape=True),
    "falcon-7b": Case("Falcon", {**_FALCON, "multi_query": True}, "gelu", gguf="falcon", own_shape=True),
    "falcon-rows": Case("Falcon", {**_FALCON, "multi_query": False, "bias": True}, "gelu", own_shape=True),
    "falcon-40b": Case("Falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}, "gelu",
                       gguf="falcon", own_shape=True),
    "falcon-2": Case("Falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2,
                                "num_ln_in_parallel_attn": 1}, "gelu", own_shape=True),
    "relu-falcon": Case("Falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 2,
                                   "activation": "relu"}, "relu", gguf="falcon", own_shape=True),
    "qwen2": Case("Qwen2", {}, "silu-glu", gguf="qwen2"),
    "qwen2-window": Case("Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
                         "silu-glu"),
    "qwen3": Case("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}, "silu-glu", gguf="qwen3"),
    "qwen3-yarn": Case("Qwen3", {"head_dim": 16, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 3.0, "original_max_position_embeddings": 48,
        "beta_fast": 5.0, "beta_slow": 0.5, "attention_factor": 1.4, "truncate": False}}, "silu-glu"),
    "gemma2": Case("Gemma2", {**_GEMMA, "query_pre_attn_scalar": 16}, "gelu-tanh-glu", gguf="gemma2"),
    "gemma2-scalar": Case("Gemma2", _GEMMA, "gelu-tanh-glu"),
    "gemma3": Case("Gemma3Text", {**_GEMMA, "num_hidden_layers": 7, "query_pre_attn_scalar": 16}, "gelu-tanh-glu",
                   gguf="gemma3"),
    "gemma3-scaled": Case("Gemma3Text", {**_GEMMA, "num_hidden_layers": 6, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}}, "gelu-tanh-glu"),
    "phi3": Case("Phi3", {"sliding_window": None}, "silu-glu", gguf="phi3"),
    "phi3-longrope": Case("Phi3", {"sliding_window": None, "original_max_position_embeddings": LONGROPE_BORDER,
                                   "rope_parameters": LONGROPE}, "silu-glu", gguf="phi3"),
    "phi4-mini": Case("Phi3", {"sliding_window": None, "original_max_position_embeddings": LONGROPE_BORDER,
                               "tie_word_embeddings": True, "rope_parameters": {
        **LONGROPE, "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.5], "long_factor": [2.0, 7.0]}},
        "silu-glu", gguf="phi3"),
    "phi3-window": Case("Phi3", {"sliding_window": 13, "head_dim": 8, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}, "silu-glu", gguf="phi3"),
    "glm4": Case("Glm4", {"head_dim": 16}, "silu-glu", gguf="glm4"),
    "glm4-plain": Case("Glm4", {"head_dim": 8, "attention_bias": False, "tie_word_embeddings": True}, "silu-glu",
                       gguf="glm4"),
    "smollm3": Case("SmolLM3", {"num_hidden_layers": 5}, "silu-glu", gguf="smollm3"),
    "smollm3-stated": Case("SmolLM3", {"no_rope_layers": [0, 1, 1]}, "silu-glu"),
    "seed-oss": Case("SeedOss", {"head_dim": 16}, "silu-glu", gguf="seed_oss"),
    "seed-oss-biases": Case("SeedOss", {"head_dim": 16, "attention_out_bias": True}, "silu-glu", gguf="seed_oss"),
    "ernie4.5": Case("Ernie4_5", {"head_dim": 16}, "silu-glu", gguf="ernie4_5"),
    "ernie4.5-biases": Case("Ernie4_5", {"head_dim": 16, "use_bias": True}, "silu-glu"),
    "granite": Case("Granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0,
                                "attention_multiplier": 0.2}, "silu-glu", gguf="granite"),
    "command-r": Case("Cohere", {"logit_scale": 0.25}, "silu-glu", gguf="command-r"),
    "cohere2": Case("Cohere2", {"logit_scale": 0.25, "sliding_window": 9, "num_hidden_layers": 5}, "silu-glu",
                    gguf="cohere2"),
    "olmo2": Case("Olmo2", {}, "silu-glu", gguf="olmo2"),
    "olmo3": Case("Olmo3", {"sliding_window": 12, "num_hidden_layers": 4, "head_dim": 16, "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 8.0,
                           "original_max_position_embeddings": 32},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}}, "silu-glu", gguf="olmo2"),
    "exaone4": Case("Exaone4", {"sliding_window": 9, "num_hidden_layers": 5, "head_dim": 16}, "silu-glu",
                    gguf="exaone4"),
    "exaone4-whole": Case("Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 3,
                                      "tie_word_embeddings": True}, "silu-glu", gguf="exaone4"),
    "ministral3": Case("Ministral3", {"head_dim": 16, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32,
        "beta_fast": 8.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}},
        "silu-glu", gguf="mistral3"),
    "hunyuan": Case("HunYuanDenseV1", {"head_dim": 16, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 100.0, "alpha": 50.0, "factor": 1.0}}, "silu-glu", gguf="hunyuan-dense"),
    "hunyuan-moe": Case("HunYuanMoEV1", {"head_dim": 16, "num_experts": 6, "moe_topk": 3, "intermediate_size": 64,
                                         "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
                        "silu-glu", gguf="hunyuan-moe"),
    "mixtral": Case("Mixtral", {"num_local_experts": 4}, "silu-glu", gguf="llama"),
    "mixtral-window": Case("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3, "sliding_window": 12,
                                       "hidden_act": "relu"}, "relu-glu", gguf="llama"),
    "turbosparse-mixtral": Case("Mixtral", {"num_local_experts": 4, "hidden_act": "relu"}, "drelu-glu",
                                patch=_drelu_experts, published={"model_type": "turbosparsemixtral"}, gguf="llama"),
    "qwen3-moe": Case("Qwen3Moe", {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64,
                                   "head_dim": 16, "norm_topk_prob": True}, "silu-glu", gguf="qwen3moe"),
    "qwen3-moe-weighed-by-all": Case("Qwen3Moe", {"num_experts": 6, "num_experts_per_tok": 4, "head_dim": 8,
                                                  "moe_intermediate_size": 24, "norm_topk_prob": False}, "silu-glu"),
    "qwen2-moe": Case("Qwen2Moe", {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
                                   "shared_expert_intermediate_size": 96}, "silu-glu", gguf="qwen2moe"),
    "qwen2-moe-normed": Case("Qwen2Moe", {"num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
                                          "shared_expert_intermediate_size": 24, "norm_topk_prob": True,
                                          "qkv_bias": False}, "silu-glu"),
    "glm4-moe": Case("Glm4Moe", {**_GLM, "use_qk_norm": True}, "silu-glu", gguf="glm4moe"),
    "glm4-moe-air": Case("Glm4Moe", {**_GLM, "num_hidden_layers": 4, "first_k_dense_replace": 2, "n_shared_experts": 2,
                                     "attention_bias": True, "norm_topk_prob": False}, "silu-glu", gguf="glm4moe"),
    "glm4-moe-alone": Case("Glm4Moe", {**_GLM, "first_k_dense_replace": 0, "routed_scaling_factor": 1.0}, "silu-glu",
                           gguf="glm4moe"),
    "minimax-m2": Case("MiniMaxM2", {"num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 64,
                                     "head_dim": 16, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}}, "silu-glu", gguf="minimax-m2"),
    "gpt-oss": Case("GptOss", {"num_local_experts": 6, "num_experts_per_tok": 3, "head_dim": 16, "sliding_window": 9,
                               "num_hidden_layers": 4, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32,
        "beta_fast": 8.0, "beta_slow": 1.0, "truncate": False}}, "clamped-silu-glu", gguf="gpt-oss"),
    "gpt-oss-clamped": Case("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
                                       "sliding_window": 11, "swiglu_limit": 0.8, "attention_bias": False,
                                       "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                            "clamped-silu-glu"),
    "smallthinker-4b": Case("Mixtral", _SMALLTHINKER, "relu-glu", patch=_smallthinker(), renamed=_SMALL_NAMES,
                            published=_small_config(3), gguf="smallthinker"),
    "smallthinker-21b": Case("Mixtral", {**_SMALLTHINKER, "num_hidden_layers": 5}, "relu-glu",
                             patch=_smallthinker(softmax=True, unrotated=(0, 4)), renamed=_SMALL_NAMES,
                             published=_small_config(5, moe_primary_router_apply_softmax=True,
                                                     rope_layout=[0, 1, 1, 1, 0],
                                                     sliding_window_layout=[0, 1, 1, 1, 0]), gguf="smallthinker"),
    "smallthinker-window": Case("Mixtral", _SMALLTHINKER, "relu-glu", patch=_smallthinker(unrotated=(1,), window=11),
                                published=_small_config(3, sliding_window_layout=[1, 0, 1], rope_layout=[1, 0, 1],
                                                        sliding_window_size=11), renamed=_SMALL_NAMES),
    "qwen3.5": Case("Qwen3_5Text", _DELTA, "silu-glu", gguf="qwen35"),
    "qwen3.5-alike-heads": Case("Qwen3_5Text", {
        **_DELTA, "num_hidden_layers": 3, "linear_num_value_heads": 2, "linear_conv_kernel_dim": 3,
        "linear_value_head_dim": 24, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    }, "silu-glu"),
    "qwen3.5-moe": Case("Qwen3_5MoeText", _DELTA_EXPERTS, "silu-glu", gguf="qwen35moe"),
    "qwen3-next": Case("Qwen3Next", _DELTA_EXPERTS, "silu-glu", gguf="qwen3next"),
    "deepseek-v2-lite": Case("DeepseekV2", {**_LATENT, "q_lora_rank": None, "routed_scaling_factor": 1.0,
                                            "rope_parameters": _DEEPSEEK_YARN}, "silu-glu", gguf="deepseek2"),
    "deepseek-v2": Case("DeepseekV2", {
        **_LATENT, "q_lora_rank": 20, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2,
        "routed_scaling_factor": 16.0}, "silu-glu", gguf="deepseek2"),
    "deepseek-v3": Case("DeepseekV3", {
        **_LATENT, "q_lora_rank": 20, "n_group": 4, "topk_group": 2, "n_shared_experts": 2,
        "rope_parameters": {**_DEEPSEEK_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}, "silu-glu", gguf="deepseek2"),
    "mistral4": Case("Mistral4", {
        **_LATENT, "q_lora_rank": 20, "first_k_dense_replace": 0, "routed_scaling_factor": 1.0,
        "rope_parameters": {**_DEEPSEEK_YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}},
        "silu-glu", gguf="mistral4"),
    "glm4-moe-lite": Case("Glm4MoeLite", {
        **_LATENT, "q_lora_rank": 20, "num_nextn_predict_layers": 1}, "silu-glu", gguf="deepseek2"),
    "nemotron-h": Case("NemotronH", {
        **_NEMOTRON, "layers_block_type": ["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"]},
        "relu2", gguf="nemotron_h"),
    "nemotron-h-moe": Case("NemotronH", {
        **_NEMOTRON, "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"], "n_routed_experts": 8,
        "num_experts_per_tok": 3, "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 96,
        "routed_scaling_factor": 2.5}, "relu2", gguf="nemotron_h_moe"),
    "granite-hybrid": Case("GraniteMoeHybrid", {
        **_GRANITE, "num_local_experts": 0, "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
        "silu-glu", gguf="granitehybrid"),
    "granite-hybrid-moe": Case("GraniteMoeHybrid", {
        **_GRANITE, "num_local_experts": 8, "num_experts_per_tok": 3, "mamba_n_groups": 1, "intermediate_size": 24,
        "layer_types": ["mamba", "mamba", "attention"]}, "silu-glu", gguf="granitehybrid"),
    "llama4": Case("Llama4Text", {
        **_LLAMA4, "attention_chunk_size": 11, "floor_scale": 5, "attn_scale": 0.4, "no_rope_layers": [1, 0, 1],
        "num_hidden_layers": 3}, "silu-glu"),
    "llama4-interleaved": Case("Llama4Text", {
        **_LLAMA4, "num_hidden_layers": 4, "interleave_moe_layer_step": 2, "num_local_experts": 4,
        "rope_parameters": {**LLAMA3, "low_freq_factor": 1.0, "high_freq_factor": 1.0}}, "silu-glu", gguf="llama4"),
    "phimoe": Case("Phimoe", {
        "num_local_experts": 6, "intermediate_size": 64, "attention_bias": True, "lm_head_bias": True,
        "rope_parameters": {**LONGROPE, "original_max_position_embeddings": LONGROPE_BORDER,
                            "short_mscale": _MSCALE, "long_mscale": _MSCALE}}, "silu-glu", patch=_phimoe,
                   gguf="phimoe"),
    "lfm2": Case("Lfm2", {"layer_types": ["conv", _FULL, "conv"], "conv_L_cache": 4, "block_multiple_of": 16},
                 "silu-glu", gguf="lfm2"),
    "lfm2-moe": Case("Lfm2Moe", {
        "layer_types": ["conv", _FULL, "conv"], "num_dense_layers": 1, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 64}, "silu-glu", gguf="lfm2moe"),
    "gemma4": Case("Gemma4Text", {**_GEMMA4, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True,
                                  "num_global_key_value_heads": 1}, "gelu-tanh-glu", gguf="gemma4"),
    "gemma3n": Case("Gemma3nText", {
        **SHAPE, "head_dim": 8, "sliding_window": 9, "num_hidden_layers": 5, "num_kv_shared_layers": 2,
        "layer_types": [*_LOCALS, _FULL, *_LOCAL_AND_FULL], "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 60, "activation_sparsity_pattern": [0.9, 0.0, 0.6, 0.0, 0.0]},
        "gelu-tanh-glu", gguf="gemma3n"),
    "gemma4-e": Case("Gemma4Text", {**_GEMMA4, "num_hidden_layers": 5, "num_kv_shared_layers": 2,
                                    "use_double_wide_mlp": True, "layer_types": [*_LOCAL_AND_FULL, *_LOCALS, _FULL]},
                     "gelu-tanh-glu", gguf="gemma4"),
    "gemma4-moe": Case("Gemma4Text", {**_GEMMA4, "hidden_size_per_layer_input": 0, "enable_moe_block": True,
                                      "num_experts": 8, "top_k_experts": 3, "moe_intermediate_size": 64},
                       "gelu-tanh-glu", gguf="gemma4"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Reference:
    """What transformers makes of the prompt: greedy tokens, and the logits of every position, [64 + 64, V].

    steps: the logits that each greedy token was chosen by, [64, V]. They are rows of the others, but for models that
    turn positions by the length that the sequence has so far.
    """

    folder: Path
    case: Case
    tokens: np.ndarray  # the prompt and 64 greedy ones
    logits: np.ndarray
    steps: np.ndarray


def make_reference(name: str, folder: Path, changes: dict[str, Any] | None = None) -> Reference:
    """Builds the case, saves it as a Hugging Face directory and runs it. changes: arguments that are other ones."""
    model = save_model(name, folder, changes)
    remembered = None if changes else _remembered(name, model)
    if remembered is not None:
        return Reference(folder, CASES[name], *remembered)
    tokens, steps = greedy(model, PROMPT, STEPS)
    return Reference(folder, CASES[name], tokens, all_logits(model, tokens), steps)


def _remembered(name: str, model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the tokens that GREEDY has for this case, all logits and those of the steps; None if they are not greedy.

    transformers says in one run whether each of them is what the tokens before it call for. Generating them takes 64.
    """
    kept = _greedy_tokens().get(name)
    if kept is None:
        return None
    tokens = np.concatenate([PROMPT, kept])
    logits = all_logits(model, tokens)
    steps = logits[len(PROMPT) - 1 : -1]
    return (tokens, logits, steps) if np.array_equal(steps.argmax(axis=-1), kept) else None


@cache
def _greedy_tokens() -> dict[str, list[int]]:
    kept = json.loads(GREEDY.read_text()) if GREEDY.exists() else {}
    return {name: [ord(letter) - 32 for letter in letters] for name, letters in kept.items()}  # one for each id


def write_greedy_tokens() -> None:
    """Write GREEDY, without the cases whose steps are no rows of all logits."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            model = save_model(name, Path(folder) / name)
            tokens, steps = greedy(model, PROMPT, STEPS)
            if np.abs(all_logits(model, tokens)[len(PROMPT) - 1 : -1] - steps).max() < 5e-5:
                found[name] = "".join(chr(32 + token) for token in tokens[len(PROMPT) :])
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(letters)}" for name, letters in found.items())
    GREEDY.write_text(f"{{\n{lines}\n}}\n")


def shared_reference(name: str, folder: Path) -> Reference:
    """The reference of a case that the first process to ask for it makes in `folder`, for all processes of a run."""
    model, arrays = folder / name / "model", folder / name / "arrays.npz"
    (folder / name).mkdir(parents=True, exist_ok=True)
    with FileLock(folder / name / "lock"):
        if not arrays.exists():
            made = make_reference(name, model)
            np.savez(folder / name / "unfinished.npz", tokens=made.tokens, logits=made.logits, steps=made.steps)
            (folder / name / "unfinished.npz").rename(arrays)
    with np.load(arrays) as kept:
        return Reference(model, CASES[name], kept["tokens"], kept["logits"], kept["steps"])


def save_model(name: str, folder: Path, changes: dict[str, Any] | None = None) -> Any:
    """Builds the case and saves it as a Hugging Face directory; transformers' model."""
    import torch
    import transformers

    torch.set_num_threads(1)  # the models are tiny: more threads only wait for each other
    case = CASES[name]
    arguments = case.arguments if case.own_shape else {**SHAPE, **case.arguments}
    arguments = {**arguments, **(changes or {})}
    config = getattr(transformers, f"{case.kind}Config")(**arguments)
    config._attn_implementation = "eager"
    architecture = case.kind.removesuffix("Text")
    model = getattr(transformers, f"{architecture}ForCausalLM")(config).eval().float()
    randomise(model)
    model.save_pretrained(folder)
    if case.renamed:
        _rename(folder / "model.safetensors", case.renamed)
    if case.published:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **case.published}))
    if case.patch is not None:
        case.patch(model)
    return model


def greedy(model: Any, prompt: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The prompt with what transformers' generation puts behind it, and the logits of every step."""
    import torch

    ids = torch.from_numpy(prompt[None])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps, do_sample=False, eos_token_id=None,
        output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    return made.sequences[0].numpy(), torch.cat(made.logits).numpy()


def all_logits(model: Any, tokens: np.ndarray) -> np.ndarray:
    """transformers' logits of every position of one sequence, computed at once."""
    import torch

    with torch.inference_mode():
        logits: np.ndarray = model(torch.from_numpy(tokens[None]), use_cache=False).logits[0].numpy()
    return logits


def _rename(file: Path, parts: dict[str, str]) -> None:
    from safetensors.numpy import load_file, save_file

    def published(name: str) -> str:
        for theirs, ours in parts.items():
            name = name.replace(theirs, ours)
        return name

    save_file({published(name): values for name, values in load_file(file).items()}, file)


def randomise(model: Any) -> None:
    """Weights at which nothing vanishes: every norm, bias and matrix matters to the result, and margins are wide."""
    import torch

    # A tied head would see the token itself again and repeat it for ever, were the embedding not small; the last norm
    # makes up for it.
    embedding, last = (0.05, 20.0) if model.config.tie_word_embeddings else (1.0, 1.0)
    stored_less_one = model.config.model_type.startswith(("gemma2", "gemma3_", "qwen3_5", "qwen3_next"))
    no_gate = model.config.model_type == "nemotron_h"
    generator = torch.Generator().manual_seed(0)
    for name, values in model.named_parameters():
        with torch.no_grad():
            if values.ndim >= 2:  # 3: of experts
                inputs = -2 if values.ndim == 3 and model.config.model_type == "llama4_text" else -1
                values.normal_(0, values.shape[inputs] ** -0.5, generator=generator)
                if name.endswith(("fc2.weight", "dense_4h_to_h.weight")) or (no_gate and "down_proj" in name):
                    # What ReLU and GELU let through is positive on average: the same vector for every token.
                    values.sub_(values.mean(dim=-1, keepdim=True))
                if "embed" in name or "lm_head" in name:
                    values.mul_(values.shape[1] ** 0.5 * embedding)
            elif "norm" in name.lower() or "ln_" in name:
                middle, spread = (0.0, 0.2) if name.endswith("bias") else (1.0, 0.5)
                values.uniform_(middle - spread, middle + spread, generator=generator)
                if name.endswith(
                    ("model.norm.weight", "embedding_norm.weight", "ln_f.weight", "decoder.final_layer_norm.weight")
                ):
                    values.mul_(last)
                if name.endswith("q_norm.weight") and model.config.model_type.startswith(("gemma3n", "gemma4")):
                    values.mul_(len(values) ** -0.5)  # the scores are not divided by it
                if stored_less_one and not name.endswith("linear_attn.norm.weight"):
                    values.sub_(1.0)
            elif name.endswith(("router.scale", "per_expert_scale")):  # the first is divided by the root of its size
                factor = 3 * len(values) ** 0.5 if name.endswith("router.scale") else 1.0
                values.uniform_(0.5 * factor, 1.5 * factor, generator=generator)
            elif name.endswith("correct_output_scale"):
                values.uniform_(0.5, 1.5, generator=generator)
            elif name.endswith("A_log"):  # some heads forget at once, others keep a prompt
                values.uniform_(-4.0, 1.0, generator=generator)
            else:
                values.normal_(0, 0.1, generator=generator)
    for name, values in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            values.normal_(0, 0.2, generator=generator)
        if name.endswith("layer_scalar"):
            values.uniform_(0.5, 1.5, generator=generator)


if __name__ == "__main__":
    write_greedy_tokens()
