"""Nemotron-H, Nemotron Nano 2 and Nemotron 3 Nano: each layer is a Mamba-2, attention, an FFN or experts.

FFN and experts have no gate, and the square of ReLU as activation. Attention has no positions. The layer that drafts
tokens (MTP) has attention and experts. In Hugging Face's format, each of them is a layer of its own.
Source: vLLM's nemotron_h_mtp.py. llama.cpp computes its last norm as a LayerNorm.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families.recurrent.mamba import (
    GGUF_MAMBA,
    GGUF_MAMBA_KEYS,
    hf_mamba,
    mamba_from_gguf,
    refuse_limits,
    with_mamba,
)
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family
from engine.model.family.names import GGUF_DRAFTS, GGUF_EXPERTS
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal, numbers_by_layer
from native_kernels.specs import DeltaSpec

_MIXER = "backbone.layers.{}.mixer"
_NORM = "backbone.layers.{}.norm.weight"
_HF = hf_mamba(_MIXER) | {
    "embedding": "backbone.embeddings.weight",
    "attention_norm": _NORM,
    "ffn_norm": _NORM,
    **{part: f"{_MIXER}.{part}_proj.weight" for part in ("q", "k", "v", "o", "up")},
    "down_t": f"{_MIXER}.down_proj.weight",
    "router": f"{_MIXER}.gate.weight",
    "selection_bias": f"{_MIXER}.gate.e_score_correction_bias",
    "expert.up": f"{_MIXER}.experts.{{}}.up_proj.weight",
    "expert.down_t": f"{_MIXER}.experts.{{}}.down_proj.weight",
    "shared.up": f"{_MIXER}.shared_experts.up_proj.weight",
    "shared.down_t": f"{_MIXER}.shared_experts.down_proj.weight",
    "final_norm": "backbone.norm_f.weight",
    "head": "lm_head.weight",
}
_ATTENTION = ("attention_norm", "q", "k", "v", "o")
_EXPERTS = ("ffn_norm", "router", "selection_bias", "expert.up", "expert.down_t", "shared.up", "shared.down_t")
_HF_DRAFTS = {
    "draft.project": "mtp.layers.0.eh_proj.weight",
    "draft.embedding_norm": "mtp.layers.0.enorm.weight",
    "draft.hidden_norm": "mtp.layers.0.hnorm.weight",
    "draft.final_norm": "mtp.layers.1.final_layernorm.weight",
    **{key: _HF[key].replace("backbone.layers.{}", f"mtp.layers.{part}").replace("{}", "{1}")
       for part, keys in enumerate((_ATTENTION, _EXPERTS)) for key in keys},
}  # fmt: skip
_GGUF_DRAFTS = GGUF_DRAFTS | {"ffn_norm": "blk.{}.post_attention_norm.weight"}
_GGUF = GGUF_MAMBA | GGUF_EXPERTS | {"ffn_norm": GGUF_MAMBA["attention_norm"]}
_GGUF_KEYS = frozenset(
    {*GGUF_MAMBA_KEYS, *GGUF_EXPERT_KEYS, "expert_shared_feed_forward_length", "expert_shared_count",
     "expert_weights_scale", "moe_latent_size", "nextn_predict_layers"}
)  # fmt: skip
_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_OLDER = {"mamba": "linear_attention", "attention": "full_attention"}


def _layers_from_hf(read: Reader, n_layers: int) -> list[str]:
    kinds = read.optional("layers_block_type", list, None)
    if kinds is None:
        kinds = [_LETTERS.get(letter, letter) for letter in read.required("hybrid_override_pattern", str)]
    kinds = [_OLDER.get(str(kind), str(kind)) for kind in kinds]
    if len(kinds) != n_layers or not set(kinds) <= set(_LETTERS.values()):
        raise UnsupportedModelError(f"The kinds of layers in {read.where} are not a list of {n_layers} known ones.")
    return kinds


def _by_kind(kinds: list[str]) -> dict[str, Any]:
    """Return the fields of layers that are each one of "mlp", "moe", "full_attention" and "linear_attention"."""
    if {"mlp", "moe"} <= set(kinds):
        raise UnsupportedModelError("Some layers of the model have experts, and some an FFN; Hearth runs one of them.")
    alone = tuple(i for i, kind in enumerate(kinds) if kind in ("mlp", "moe"))
    others = tuple(i for i in range(len(kinds)) if i not in alone)
    return {"ffn_only_layers": alone, "mixer_only_layers": others, "unrotated": tuple(range(len(kinds)))}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    for key in ("use_bias", "mamba_proj_bias", "moe_latent_size"):
        if read.values.get(key):
            raise UnsupportedModelError(
                f"{key} is {str(read.values[key])[:60]} in {read.where}, which Hearth does not run in nemotron_h."
            )
    if read.optional("mamba_hidden_act", str, "silu") != "silu":
        raise UnsupportedModelError(f"mamba_hidden_act is {read.values['mamba_hidden_act'][:60]}; Hearth runs silu.")
    refuse_limits(read)
    kinds, groups = _layers_from_hf(read, fields["n_layers"]), read.optional("n_groups", int, 8)
    spec = DeltaSpec(
        key_heads=groups,
        value_heads=read.required("mamba_num_heads", int),
        key_dim=read.required("ssm_state_size", int),
        value_dim=read.required("mamba_head_dim", int),
        conv_width=read.optional("conv_kernel", int, 4),
        mamba=True,
        norm_groups=groups,
        conv_bias=read.optional("use_conv_bias", bool, True),
    )
    recurring = tuple(i for i, kind in enumerate(kinds) if kind == "linear_attention")
    head_dim = read.optional("head_dim", int, read.optional("attention_head_dim", int, 128))
    found = {**with_mamba(spec, recurring), **_by_kind(kinds), "head_dim": head_dim}
    return found | (_experts_from_hf(read) if "moe" in kinds else {})


def _experts_from_hf(read: Reader) -> dict[str, Any]:
    return {
        **experts_from_hf(read, ("n_routed_experts",), "num_experts_per_tok"),
        "d_ff": read.required("moe_intermediate_size", int),
        "shared_d_ff": read.required("moe_shared_expert_intermediate_size", int),
        "normed_routing": read.optional("norm_topk_prob", bool, True),
        "routing_scale": read.optional("routed_scaling_factor", float, 1.0),
        "n_groups": read.optional("n_group", int, 1),
        "n_groups_used": read.optional("topk_group", int, 1),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    arch = read.required("general.architecture", str)
    stored, n_layers = fields["n_layers"], fields["n_layers"] - read.optional(f"{arch}.nextn_predict_layers", int, 0)
    neurons = numbers_by_layer(read, f"{arch}.feed_forward_length", stored, least=0)[:n_layers]
    kv_heads = numbers_by_layer(read, f"{arch}.attention.head_count_kv", stored, least=0)[:n_layers]
    if any(f and h for f, h in zip(neurons, kv_heads, strict=True)) or len({*neurons} - {0}) > 1:
        raise ModelFormatError(f"The layers of a {arch} file are an FFN of one size, attention or Mamba-2 each.")
    experts = read.optional(f"{arch}.expert_count", int, 0)
    ffn = "moe" if experts else "mlp"
    kinds = [
        ffn if f else "full_attention" if h else "linear_attention" for f, h in zip(neurons, kv_heads, strict=True)
    ]
    recurring = tuple(i for i, kind in enumerate(kinds) if kind == "linear_attention")
    found = {**mamba_from_gguf(read, arch, recurring), **_by_kind(kinds)}
    found |= {"n_layers": n_layers, "rotary_dim": None}
    if read.optional(f"{arch}.moe_latent_size", int, 0):
        raise UnsupportedModelError(f"{arch}.moe_latent_size: Hearth does not run experts of a narrower input.")
    return found | (_experts_from_gguf(read, arch) if experts else {})


def _experts_from_gguf(read: Reader, arch: str) -> dict[str, Any]:
    return {
        **experts_from_gguf(read, arch, "sigmoid", grouped=True),
        "shared_d_ff": read.required(f"{arch}.expert_shared_feed_forward_length", int),
        "routing_scale": decimal(read.optional(f"{arch}.expert_weights_scale", float, 1.0)),
        "n_groups": max(1, read.optional(f"{arch}.expert_group_count", int, 1)),
        "n_groups_used": max(1, read.optional(f"{arch}.expert_group_used_count", int, 1)),
    }


NEMOTRON_H = Family(
    name="nemotron_h",
    model_types=("nemotron_h",),
    architectures=("nemotron_h", "nemotron_h_moe"),
    hf=Layout(_HF, as_trained=True, drafts=_HF_DRAFTS),
    gguf=Layout(_GGUF, mamba_columns=True, drafts=_GGUF_DRAFTS),
    hf_keys={"rms_norm_eps": "layer_norm_epsilon", "hidden_act": "mlp_hidden_act"},
    hf_handles=frozenset({"n_routed_experts", "moe_intermediate_size"}),
    gguf_handles=_GGUF_KEYS,
    by_layer=frozenset({"feed_forward_length", "attention.head_count_kv"}),
    layer_list="layers_block_type",
    gated=False,
    experts=True,
    drafts=True,
    norm_eps=1e-5,
    max_context=4096,
    activation="relu2",
    gguf_activation="relu2",
    features={"router": "sigmoid", "selection_bias": True, "shared_gated": False},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
