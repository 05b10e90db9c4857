"""Texts for users about a placement: why a GPU computes, what part of a model is there, or why none is."""

from __future__ import annotations

from engine.sparsity.placement import Placement


def experts_text(placement: Placement, n_experts: int) -> str:
    """Return how many experts are on the GPU: per layer if all layers have equally many, else in total."""
    counts = placement.resident_experts(n_experts)
    if len(set(counts)) == 1:
        return f"{counts[0]} of {n_experts} experts of each layer"
    return f"{sum(counts)} of {len(counts) * n_experts} experts"


def placement_summary(name: str, placement: Placement, n_experts: int = 0) -> str:
    """Return what part of the model the GPU computes, and its VRAM."""
    neurons, zero_copy = placement.hot_neurons / (placement.n_layers * placement.neurons), ""
    if placement.zero_copy:
        share = sum(map(len, placement.zero_copy)) / (placement.n_layers * placement.neurons)
        zero_copy = f", reads {share:.0%} more in RAM"
    n_on_gpu = placement.attention.count("gpu")
    what = experts_text(placement, n_experts) if n_experts else f"{neurons:.0%} of the neurons"
    where = f"{n_on_gpu} of {placement.n_layers} layers with {what}"
    if n_on_gpu == placement.n_layers and neurons == 1:
        where = f"all layers with all {'experts' if n_experts else 'neurons'}"
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
