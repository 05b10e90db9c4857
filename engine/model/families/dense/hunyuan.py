"""Hunyuan (0.5B to 7B, and the HY-MT translators): norms of q and k after the rotation.

Positions of the kind "dynamic" with an alpha have a larger base, whatever the length.
"""

from __future__ import annotations

from typing import Any

from engine.errors import ModelFormatError
from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

# Also of Hunyuan with experts.
HUNYUAN_NAMES = HF_NAMES | {
    "q_norm": "model.layers.{}.self_attn.query_layernorm.weight",
    "k_norm": "model.layers.{}.self_attn.key_layernorm.weight",
}


def rope_of_hunyuan(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the base of positions with an alpha; nothing without."""
    for key in ("rope_scaling", "rope_parameters"):
        alpha = Reader(read.optional(key, dict, {}), f"{key} of {read.where}").optional("alpha", float, 0.0)
        if alpha:
            size = fields["head_dim"]
            if not 1 <= alpha < 1e6 or size <= 2:
                raise ModelFormatError(f"alpha is {alpha} in {read.where} with heads of {size}, which is invalid.")
            return {"rope_theta": fields["rope_theta"] * alpha ** (size / (size - 2)), "rope_scaling": None}
    return {}


HUNYUAN = Family(
    name="hunyuan",
    model_types=("hunyuan_v1_dense",),
    architectures=("hunyuan-dense",),
    hf=Layout(HUNYUAN_NAMES),
    gguf=Layout(GGUF_NAMES),
    hf_handles=frozenset({"use_qk_norm"}),
    norm_eps=1e-5,
    activation="silu",
    features={"qk_norm": True, "qk_norm_after": True},
    from_hf=rope_of_hunyuan,
)
