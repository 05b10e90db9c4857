"""Reads how many experts a model has and how its router weighs them, where families agree on the keys."""

from __future__ import annotations

from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.families.reading import Reader

# Keys of an architecture in GGUF that families with experts read.
GGUF_EXPERT_KEYS = frozenset({"expert_feed_forward_length", "expert_gating_func"})
_GATING = {1: "softmax", 2: "sigmoid"}


def experts_from_hf(read: Reader, count: tuple[str, ...], used: str) -> dict[str, Any]:
    """The number of experts, under the first of the keys `count` that is there, and of those used for a token."""
    key = next((key for key in count if read.values.get(key) is not None), count[0])
    return {"n_experts": read.required(key, int), "n_experts_used": read.required(used, int)}


def experts_from_gguf(read: Reader, arch: str, router: str | None) -> dict[str, Any]:
    """The same from GGUF's keys, and the router's function. router: what the family's is; None: the file must say."""
    gating = read.optional(f"{arch}.expert_gating_func", int, 0)
    found = _GATING.get(gating)
    if (found is None and (gating or router is None)) or (found and router and found != router):
        raise UnsupportedModelError(f"{arch}.expert_gating_func is {gating}, which Hearth does not run in this family.")
    fields: dict[str, Any] = {
        "n_experts": read.required(f"{arch}.expert_count", int),
        "n_experts_used": read.required(f"{arch}.expert_used_count", int),
        "router": found or router,
    }
    neurons = read.optional(f"{arch}.expert_feed_forward_length", int, None)
    return fields if neurons is None else {**fields, "d_ff": neurons}
