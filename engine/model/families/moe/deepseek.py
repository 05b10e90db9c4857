"""DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash and Mistral Small 4: latent attention (MLA) and many experts.

V2's router weighs by softmax and takes a group's best expert as its score; V3's by a sigmoid with a bias for the
selection, and the sum of the two best; Mistral's by softmax, in one group. Some layers before the others may be dense.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families.moe.glm4_moe import HF_EXPERTS
from engine.model.family.experts import (
    GGUF_EXPERT_KEYS,
    experts_from_gguf,
    experts_from_hf,
    layers_without_experts,
)
from engine.model.family.family import Family
from engine.model.family.names import GGUF_DRAFTS, GGUF_EXPERTS, GGUF_NAMES, HF_DRAFTS, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal
from engine.model.family.rope import rotary_dim_from_hf, temperature_from_gguf, yarn_attention
from native_kernels.specs import LatentSpec

_ATTENTION = "model.layers.{}.self_attn."
_HF = HF_NAMES | HF_EXPERTS | {
    "experts.gate_up": "model.layers.{}.mlp.experts.gate_up_proj",
    "experts.down_t": "model.layers.{}.mlp.experts.down_proj",
    "q_down": f"{_ATTENTION}q_a_proj.weight",
    "q_up": f"{_ATTENTION}q_b_proj.weight",
    "q_norm": f"{_ATTENTION}q_a_layernorm.weight",
    "k": f"{_ATTENTION}kv_a_proj_with_mqa.weight",
    "k_norm": f"{_ATTENTION}kv_a_layernorm.weight",
    "kv_up": f"{_ATTENTION}kv_b_proj.weight",
}  # fmt: skip
_GGUF = GGUF_NAMES | GGUF_EXPERTS | {
    "q_down": "blk.{}.attn_q_a.weight",
    "q_up": "blk.{}.attn_q_b.weight",
    "q_norm": "blk.{}.attn_q_a_norm.weight",
    "k": "blk.{}.attn_kv_a_mqa.weight",
    "k_norm": "blk.{}.attn_kv_a_norm.weight",
    "kv_up": "blk.{}.attn_kv_b.weight",  # of files from before April 2025
    "k_up by head": "blk.{}.attn_k_b.weight",
    "v by head": "blk.{}.attn_v_b.weight",
}  # fmt: skip
_GGUF_KEYS = frozenset(
    {"attention.q_lora_rank", "attention.kv_lora_rank", "attention.key_length_mla", "attention.value_length_mla",
     "rope.scaling.yarn_log_multiplier", "leading_dense_block_count", "nextn_predict_layers", "expert_shared_count",
     "expert_weights_scale", "attention.temperature_scale",
     "attention.temperature_length"}
)  # fmt: skip
_GROUPED = {"greedy": False, "group_limited_greedy": True}  # V2's topk_method


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    kind = read.required("model_type", str)
    rotated = read.required("qk_rope_head_dim", int)
    spec = LatentSpec(
        rank=read.required("kv_lora_rank", int),
        key_dim=read.required("qk_nope_head_dim", int),
        value_dim=read.required("v_head_dim", int),
        query_rank=read.optional("q_lora_rank", int, 0),
    )
    of_mistral = kind == "mistral4"  # whose share is of a whole head
    share = rotary_dim_from_hf(read, spec.key_dim + rotated if of_mistral else rotated)
    if share not in (None, rotated if of_mistral else None) or read.optional("moe_layer_freq", int, 1) != 1:
        raise UnsupportedModelError(f"{read.where} rotates a part of qk_rope_head_dim, or has layers without experts.")
    width = read.required("moe_intermediate_size", int)
    interleaved = kind == "deepseek_v2" or read.optional("rope_interleave", bool, True)
    return {
        **experts_from_hf(read, ("n_routed_experts",), "num_experts_per_tok"),
        **layers_without_experts(_leading_dense_layers(read, fields["n_layers"]), fields["d_ff"]),
        **_latent(spec, rotated, fields, _log_multiplier(read)),
        **_router(read, kind),
        "rope_order": "interleaved" if interleaved else "halves",
        "d_ff": width,
        "shared_d_ff": width * read.optional("n_shared_experts", int, 0),
        "routing_scale": read.required("routed_scaling_factor", float),
    }


def _leading_dense_layers(read: Reader, n_layers: int) -> int:
    kinds = read.optional("mlp_layer_types", list, None)
    if kinds is None:
        of_glm = read.required("model_type", str) == "glm4_moe_lite"  # in which one is usual
        return read.optional("first_k_dense_replace", int, 1) if of_glm else read.required("first_k_dense_replace", int)
    dense = next((i for i, kind in enumerate(kinds) if kind != "dense"), len(kinds))
    if len(kinds) != n_layers or any(kind != "sparse" for kind in kinds[dense:]):
        raise UnsupportedModelError(f"mlp_layer_types in {read.where} is not dense layers, then sparse ones.")
    return dense


def _log_multiplier(read: Reader) -> float:
    """Return the factor of the logarithm by which YaRN scales the scores of attention."""
    for key in ("rope_scaling", "rope_parameters"):
        rope = Reader(read.optional(key, dict, {}), f"{key} of {read.where}")
        if found := rope.optional("mscale_all_dim", float, 0.0):
            return float(found)
    return 0.0


def _router(read: Reader, kind: str) -> dict[str, Any]:
    softmax = kind in ("deepseek_v2", "mistral4")
    method = read.optional("topk_method", str, "greedy" if softmax else "noaux_tc")
    scoring = read.optional("scoring_func", str, "softmax" if softmax else "sigmoid")
    if scoring != ("softmax" if softmax else "sigmoid") or method not in (_GROUPED if softmax else ("noaux_tc",)):
        raise UnsupportedModelError(f"A router with {scoring[:40]} and {method[:40]} is not supported in this family.")
    groups, used = read.optional("n_group", int, 1), read.optional("topk_group", int, 1)
    if softmax and kind != "mistral4" and not _GROUPED[method]:
        groups = used = 1
    normed = read.optional("norm_topk_prob", bool, kind != "deepseek_v2")
    return _weights("softmax" if softmax else "sigmoid", normed, groups, used, kind == "mistral4")


def _weights(router: str, normed: bool, groups: int, used: int, of_mistral: bool) -> dict[str, Any]:
    if of_mistral and (router != "softmax" or groups != 1):
        raise UnsupportedModelError(f"Hearth runs mistral4 with softmax and one group of experts, not {groups}.")
    if router == "softmax" and normed and not of_mistral:
        raise UnsupportedModelError(
            "The model weighs experts by softmax and then makes the weights sum to 1 (norm_topk_prob), which "
            "implementations of DeepSeek V2 read differently; Hearth does not run it."
        )
    own = {"router": router, "normed_routing": normed, "selection_bias": router == "sigmoid"}
    return {**own, "n_groups": groups, "n_groups_used": used}


def _latent(spec: LatentSpec, rotated: int, fields: dict[str, Any], log_multiplier: float) -> dict[str, Any]:
    """Return the fields of attention. log_multiplier: YaRN's factor for the scale of the scores; 0: none."""
    if min(spec.rank, spec.key_dim, rotated) < 1:
        raise ModelFormatError(f"Latent attention with {spec} and {rotated} rotated numbers is invalid.")
    scaling = fields.get("rope_scaling")
    stretch = 1.0 if scaling is None or not log_multiplier else yarn_attention(scaling.factor, log_multiplier)
    return {
        "latent": spec,
        "n_kv_heads": 1,
        "head_dim": spec.rank + rotated,
        "rotary_dim": rotated,
        "attention_scale": (spec.key_dim + rotated) ** -0.5 * stretch**2,
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    arch = read.required("general.architecture", str)
    rotated = read.required(f"{arch}.rope.dimension_count", int)
    sizes = f"{arch}.attention."
    apart = "_mla" if f"{sizes}key_length_mla" in read.values else ""  # without: of files from before April 2025
    spec = LatentSpec(
        rank=read.required(f"{sizes}kv_lora_rank", int),
        key_dim=read.required(f"{sizes}key_length{apart}", int) - rotated,
        value_dim=read.required(f"{sizes}value_length{apart}", int),
        query_rank=read.optional(f"{sizes}q_lora_rank", int, 0),
    )
    multiplier = 10 * decimal(read.optional(f"{arch}.rope.scaling.yarn_log_multiplier", float, 0.0))
    scaling = fields.get("rope_scaling")
    own = {} if scaling is None or not multiplier else {
        # Then only the scores are scaled: the two factors of cosines and sines cancel each other.
        "rope_scaling": replace(scaling, attention_factor=1.0)
    }  # fmt: skip
    dense = read.optional(f"{arch}.leading_dense_block_count", int, 0)
    has_bias = GGUF_EXPERTS["selection_bias"].format(dense) in names
    experts = experts_from_gguf(read, arch, "sigmoid" if has_bias else "softmax", normed=False, grouped=True)
    width = read.required(f"{arch}.expert_feed_forward_length", int)
    groups, used = (read.optional(f"{arch}.expert_group{which}_count", int, 1) for which in ("", "_used"))
    return {
        **experts,
        **layers_without_experts(dense, fields["d_ff"]),
        **_latent(spec, rotated, fields, multiplier),
        **_weights(experts["router"], experts["normed_routing"], groups, used, arch == "mistral4"),
        **own,
        **temperature_from_gguf(read, arch),
        "rope_order": "interleaved",
        "n_layers": fields["n_layers"] - read.optional(f"{arch}.nextn_predict_layers", int, 0),
        "shared_d_ff": width * read.optional(f"{arch}.expert_shared_count", int, 0),
        "routing_scale": decimal(read.optional(f"{arch}.expert_weights_scale", float, 1.0)),
    }


DEEPSEEK2 = Family(
    name="deepseek2",
    model_types=("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"),
    architectures=("deepseek2",),
    hf=Layout(_HF, drafts=HF_DRAFTS),
    gguf=Layout(_GGUF, drafts=GGUF_DRAFTS),
    hf_handles=frozenset({"n_routed_experts", "moe_intermediate_size"}),
    gguf_handles=GGUF_EXPERT_KEYS | _GGUF_KEYS,
    latent=True,
    experts=True,
    drafts=True,
    max_context=4096,
    activation="silu",
    features={"shared_gated": False},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
MISTRAL4 = replace(DEEPSEEK2, name="mistral4", model_types=("mistral4",), architectures=("mistral4",), drafts=False)
