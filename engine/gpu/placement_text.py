"""Texts for users about a placement: why a GPU computes, what part of a model is there, or why none is."""

from __future__ import annotations

from engine.config import ModelConfig
from engine.sparsity.placement import Placement


def hot_share(placement: Placement, config: ModelConfig) -> float:
    """Return the share of all neurons, without those of shared experts, that are in VRAM."""
    return placement.hot_neurons / config.all_placed_neurons


def experts_text(placement: Placement, config: ModelConfig) -> str:
    """Return how many experts are on the GPU: per layer if all layers with experts have equally many, else in total."""
    n_experts, of_layer = config.n_experts, placement.resident_experts(config.n_experts)
    counts = [of_layer[i] for i in config.expert_layers]
    if len(set(counts)) == 1:
        return f"{counts[0]} of {n_experts} experts of each layer"
    return f"{sum(counts)} of {len(counts) * n_experts} experts"


def placement_summary(name: str, placement: Placement, config: ModelConfig) -> str:
    """Return what part of the model the GPU computes, and its VRAM."""
    neurons, zero_copy = hot_share(placement, config), ""
    if placement.zero_copy:
        share = sum(map(len, placement.zero_copy)) / config.all_placed_neurons
        zero_copy = f", reads {share:.0%} more in RAM"
    n_on_gpu = placement.attention.count("gpu")
    what = experts_text(placement, config) if config.n_experts else f"{neurons:.0%} of the neurons"
    where = f"{n_on_gpu} of {placement.n_layers} layers with {what}"
    if n_on_gpu == placement.n_layers and neurons == 1:
        where = f"all layers with all {'experts' if config.n_experts else 'neurons'}"
    return f"{name} computes {where}{zero_copy}, in {_gib(placement.vram_bytes)} of VRAM"


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.2f} GiB"


def is_for_want_of_memory(placement: Placement) -> bool:
    """Return whether the GPU is unused because the budget is too small, not because it would be no faster."""
    return "holds nothing" in why_unused(placement)


def why_unused(placement: Placement) -> str:
    """Return why the GPU is unused, from the solver's notes, as half a sentence."""
    said = next((note for note in placement.notes if note.startswith("Nothing is placed on")), "")
    return said.rstrip(".")[:1].lower() + said.rstrip(".")[1:] if said else "nothing of the model fits there"
