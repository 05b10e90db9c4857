"""GLM-4.5, 4.6 and 4.7 (with Air): many experts and a shared one behind one to three dense layers.

The router's sigmoid weighs the experts; a bias affects only their selection.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.family.experts import (
    GGUF_EXPERT_KEYS,
    experts_from_gguf,
    experts_from_hf,
    layers_without_experts,
)
from engine.model.family.family import Family
from engine.model.family.names import (
    GGUF_DRAFTS,
    GGUF_EXPERTS,
    GGUF_NAMES,
    HF_DRAFTS,
    HF_NAMES,
    biases_in,
    hf_experts,
)
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal
from engine.model.family.rope import rotary_dim_from_hf

_SHARED = "model.layers.{}.mlp.shared_experts"
# Also of DeepSeek.
HF_EXPERTS = hf_experts("mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj") | {
    "selection_bias": "model.layers.{}.mlp.gate.e_score_correction_bias",
    "shared.gate": f"{_SHARED}.gate_proj.weight",
    "shared.up": f"{_SHARED}.up_proj.weight",
    "shared.down_t": f"{_SHARED}.down_proj.weight",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    for key in ("n_group", "topk_group"):
        if read.optional(key, int, 1) != 1:
            raise UnsupportedModelError(f"{key} is {read.values[key]}; Hearth runs experts in one group.")
    width = read.required("moe_intermediate_size", int)
    return {
        **experts_from_hf(read, ("n_routed_experts",), "num_experts_per_tok"),
        **layers_without_experts(read.optional("first_k_dense_replace", int, 1), fields["d_ff"]),
        "d_ff": width,
        "shared_d_ff": width * read.optional("n_shared_experts", int, 1),
        "normed_routing": read.optional("norm_topk_prob", bool, True),
        "routing_scale": read.optional("routed_scaling_factor", float, 1.0),
        "qk_norm": read.optional("use_qk_norm", bool, False),
        "rotary_dim": rotary_dim_from_hf(read, fields["head_dim"], 0.5),
        "biases": ("q", "k", "v") if read.optional("attention_bias", bool, False) else (),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    width = read.required("glm4moe.expert_feed_forward_length", int)
    return {
        **experts_from_gguf(read, "glm4moe", "sigmoid"),
        **layers_without_experts(read.optional("glm4moe.leading_dense_block_count", int, 0), fields["d_ff"]),
        "n_layers": fields["n_layers"] - read.optional("glm4moe.nextn_predict_layers", int, 0),
        "shared_d_ff": width * read.optional("glm4moe.expert_shared_count", int, 1),
        "routing_scale": decimal(read.optional("glm4moe.expert_weights_scale", float, 1.0)),
        "qk_norm": GGUF_NAMES["q_norm"].format(0) in names,
        "biases": biases_in(names, "q", "k", "v"),
    }


GLM4_MOE = Family(
    name="glm4_moe",
    model_types=("glm4_moe",),
    architectures=("glm4moe",),
    hf=Layout(HF_NAMES | HF_EXPERTS, drafts=HF_DRAFTS),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS | {"ffn_norm": "blk.{}.post_attention_norm.weight"}, drafts=GGUF_DRAFTS),
    hf_handles=frozenset(
        {"attention_bias", "partial_rotary_factor", "use_qk_norm", "n_routed_experts", "moe_intermediate_size"}
    ),
    gguf_handles=GGUF_EXPERT_KEYS
    | {"leading_dense_block_count", "nextn_predict_layers", "expert_shared_count", "expert_weights_scale"},
    norm_eps=1e-5,
    max_context=131072,
    activation="silu",
    experts=True,
    drafts=True,
    features={"router": "sigmoid", "selection_bias": True, "shared_gated": False},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
