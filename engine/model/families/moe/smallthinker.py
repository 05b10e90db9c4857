"""SmallThinker (4B-A0.6B, 21B-A3B): ReGLU experts; the router reads the layer's input, before attention.

In the larger model every fourth layer has no rotary positions and full attention; the others have a window. PowerInfer
files may store down neuron-major under its usual name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_EXPERTS = hf_experts("block_sparse_moe.primary_router", "block_sparse_moe.experts", "gate", "up", "down")
_UNROTATED_STEP = 4  # for GGUF, which states only the window


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    n_layers = fields["n_layers"]
    for key in ("moe_enable_secondary_experts", "moe_shared_primary_experts", "profile_sparsity"):
        if read.values.get(key):
            raise UnsupportedModelError(f"{key} is {str(read.values[key])[:60]}, which Hearth does not run.")
    if not all(_layout(read, "moe_layer_layout", n_layers, 1)) or read.values.get("moe_enable_early_router") is False:
        raise UnsupportedModelError("Hearth runs SmallThinker only with experts and an early router in every layer.")
    size = read.optional("sliding_window_size", int, 4096)
    windowed = _layout(read, "sliding_window_layout", n_layers, 0)
    rotated_layers = _layout(read, "rope_layout", n_layers, 1)
    softmax = read.optional("moe_primary_router_apply_softmax", bool, False)
    return {
        **experts_from_hf(read, ("moe_num_primary_experts", "num_experts"), _used_key(read)),
        "d_ff": read.required("moe_ffn_hidden_size", int),
        "router": "softmax" if softmax else "sigmoid",
        "windows": tuple(size * on for on in windowed) if any(windowed) else (),
        "unrotated": tuple(layer for layer, on in enumerate(rotated_layers) if not on),
    }


def _used_key(read: Reader) -> str:
    own = "moe_num_active_primary_experts"
    return own if read.values.get(own) is not None else "num_experts_per_tok"


def _layout(read: Reader, key: str, n_layers: int, default: int) -> list[int]:
    """Return 1 or 0 per layer."""
    given: list[int] = read.optional(key, list, [default] * n_layers)
    if len(given) != n_layers or not all(type(on) is int and on in (0, 1) for on in given):
        raise ModelFormatError(f"{key} in {read.where} is not a list of {n_layers} ones and zeros.")
    return given


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    own = experts_from_gguf(read, "smallthinker", None)
    size = read.optional("smallthinker.attention.sliding_window", int, 0)
    if size:
        whole = [layer % _UNROTATED_STEP == 0 for layer in range(fields["n_layers"])]
        own["windows"] = tuple(0 if sees_all else size for sees_all in whole)
        own["unrotated"] = tuple(layer for layer, sees_all in enumerate(whole) if sees_all)
    return own


SMALLTHINKER = Family(
    name="smallthinker",
    model_types=("smallthinker",),
    architectures=("smallthinker",),
    hf=Layout(HF_NAMES | _EXPERTS),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS),
    hf_keys={"intermediate_size": "moe_ffn_hidden_size"},
    hf_handles=frozenset({"num_experts", "num_local_experts"}),
    gguf_handles=GGUF_EXPERT_KEYS | {"attention.sliding_window"},
    rope_theta=1e6,
    max_context=131072,
    tied=True,
    activation="relu",
    gguf_activation="relu-glu",
    experts=True,
    features={"early_router": True},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
