"""MiniMax-M2: many experts, weighed by a sigmoid and selected with a bias of their own; norms over all of q and k."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader
from engine.model.family.rope import rotary_dim_from_hf

_EXPERTS = hf_experts("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2") | {
    "selection_bias": "model.layers.{}.block_sparse_moe.e_score_correction_bias"
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    known = {"scoring_func": "sigmoid", "qk_norm_type": "per_layer", "use_routing_bias": True,
             "shared_intermediate_size": 0, "use_qk_norm": True}  # fmt: skip
    for key, value in known.items():
        if read.values.get(key) not in (None, value):
            raise UnsupportedModelError(f"{key} is {str(read.values[key])[:60]}; Hearth runs {value}.")
    rotated = read.optional("rotary_dim", int, fields["head_dim"])
    return {
        **experts_from_hf(read, ("num_local_experts", "num_experts"), "num_experts_per_tok"),
        "rotary_dim": rotary_dim_from_hf(read, fields["head_dim"], rotated / fields["head_dim"]),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return experts_from_gguf(read, "minimax-m2", "sigmoid")


MINIMAX_M2 = Family(
    name="minimax_m2",
    model_types=("minimax_m2",),
    architectures=("minimax-m2",),
    hf=Layout(HF_NAMES | _EXPERTS),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS),
    hf_handles=frozenset({"num_local_experts", "num_experts", "use_qk_norm", "partial_rotary_factor"}),
    gguf_handles=GGUF_EXPERT_KEYS,
    rope_theta=5000000.0,
    max_context=196608,
    activation="silu",
    experts=True,
    features={"router": "sigmoid", "selection_bias": True, "qk_norm": True, "qk_norm_whole": True},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
