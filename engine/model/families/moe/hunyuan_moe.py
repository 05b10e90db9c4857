"""Hunyuan with experts (A13B): a shared expert beside many, all of the dense width."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families.dense.hunyuan import HUNYUAN_NAMES, rope_of_hunyuan
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf
from engine.model.family.family import Family
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_SHARED = "model.layers.{}.mlp.shared_mlp"
_EXPERTS = hf_experts("mlp.gate.wg", "mlp.experts", "gate_proj", "up_proj", "down_proj") | {
    "experts.gate_up": "model.layers.{}.mlp.experts.gate_up_proj",
    "experts.down_t": "model.layers.{}.mlp.experts.down_proj",
    "shared.gate": f"{_SHARED}.gate_proj.weight",
    "shared.up": f"{_SHARED}.up_proj.weight",
    "shared.down_t": f"{_SHARED}.down_proj.weight",
}
_OF_LAYERS = ("num_experts", "moe_topk", "moe_intermediate_size", "num_shared_expert")  # one number, or one per layer


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    experts, used, width, shared = (_of_all_layers(read, key) for key in _OF_LAYERS)
    if (width or fields["d_ff"]) != fields["d_ff"] or (shared or 1) != 1 or read.optional("use_cla", bool, False):
        raise UnsupportedModelError(
            f"{read.where} names experts of another width, several shared ones, or layers that share keys (use_cla), "
            "which Hearth does not run in this family."
        )
    if experts is None or used is None:
        raise ModelFormatError(f"{read.where} lacks 'num_experts' or 'moe_topk'.")
    own = {"n_experts": experts, "n_experts_used": used}
    return {**rope_of_hunyuan(read, fields), **own, "shared_d_ff": fields["d_ff"]}


def _of_all_layers(read: Reader, key: str) -> int | None:
    """Return the number that a key gives to all layers; None without it."""
    value = read.values.get(key)
    if isinstance(value, list) and value:
        if any(one != value[0] for one in value):
            raise UnsupportedModelError(f"{key} in {read.where} is not one whole number for all layers.")
        read = Reader({key: value[0]}, read.where)
    found: int | None = read.optional(key, int, None)
    return found


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    if (count := read.optional("hunyuan-moe.expert_shared_count", int, 1)) != 1:
        raise UnsupportedModelError(f"hunyuan-moe.expert_shared_count is {count}; Hearth runs one shared expert.")
    shared = read.required("hunyuan-moe.expert_shared_feed_forward_length", int)
    return {**experts_from_gguf(read, "hunyuan-moe", "softmax"), "shared_d_ff": shared}


HUNYUAN_MOE = Family(
    name="hunyuan_moe",
    model_types=("hunyuan_v1_moe",),
    architectures=("hunyuan-moe",),
    hf=Layout(HUNYUAN_NAMES | _EXPERTS),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS),
    hf_handles=frozenset({"use_qk_norm", "num_experts", "moe_intermediate_size"}),
    gguf_handles=GGUF_EXPERT_KEYS | {"expert_shared_count", "expert_shared_feed_forward_length"},
    norm_eps=1e-5,
    activation="silu",
    experts=True,
    features={"qk_norm": True, "qk_norm_after": True, "shared_gated": False},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
