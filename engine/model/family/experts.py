"""Read the number of experts and the router's weighting from keys that several families share."""

from __future__ import annotations

from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.family.reading import Reader, decimal

# GGUF keys that families with experts read.
GGUF_EXPERT_KEYS = frozenset(
    {"expert_feed_forward_length", "expert_gating_func", "expert_weights_norm", "expert_group_count",
     "expert_group_used_count"}
)  # fmt: skip
_ROPE_THETA = 10000.0
_GATING = {1: "softmax", 2: "sigmoid"}


def experts_from_hf(read: Reader, count: tuple[str, ...], used: str) -> dict[str, Any]:
    """Return the number of experts, under the first present key of `count`, and the number used per token."""
    key = next((key for key in count if read.values.get(key) is not None), count[0])
    return {"n_experts": read.required(key, int), "n_experts_used": read.required(used, int)}


def refuse_layers_without(read: Reader) -> None:
    """Raise UnsupportedModelError if Qwen's keys give experts to only some layers."""
    if read.optional("mlp_only_layers", list, []) or read.optional("decoder_sparse_step", int, 1) != 1:
        raise UnsupportedModelError(
            "Some layers of the model have experts and some have none; Hearth runs all or none."
        )


def layers_without_experts(number: int, neurons: int | None) -> dict[str, Any]:
    """Return how many leading layers have one FFN of this many neurons instead of experts."""
    return {"n_dense_layers": number, "dense_d_ff": (neurons or 0) if number else 0}


def experts_from_gguf(
    read: Reader, arch: str, router: str | None, normed: bool = True, grouped: bool = False
) -> dict[str, Any]:
    """Return the same from GGUF keys, and the router's function and weighting.

    router: the family's function; None: the file must state it. normed: default for whether the weights of the selected
    experts sum to 1. grouped: the family reads the groups of experts.
    """
    if not grouped and (groups := read.optional(f"{arch}.expert_group_count", int, 1)) > 1:
        raise UnsupportedModelError(f"{arch}.expert_group_count is {groups}; Hearth runs experts in one group.")
    gating = read.optional(f"{arch}.expert_gating_func", int, 0)
    found = _GATING.get(gating)
    if (found is None and (gating or router is None)) or (found and router and found != router):
        raise UnsupportedModelError(f"{arch}.expert_gating_func is {gating}, which Hearth does not run in this family.")
    fields: dict[str, Any] = {
        "n_experts": read.required(f"{arch}.expert_count", int),
        "n_experts_used": read.required(f"{arch}.expert_used_count", int),
        "router": found or router,
        "normed_routing": read.optional(f"{arch}.expert_weights_norm", bool, normed),
        # Families with another default state it in config.json; llama.cpp uses this for all.
        "rope_theta": decimal(read.optional(f"{arch}.rope.freq_base", float, _ROPE_THETA)),
    }
    neurons = read.optional(f"{arch}.expert_feed_forward_length", int, None)
    return fields if neurons is None else {**fields, "d_ff": neurons}
