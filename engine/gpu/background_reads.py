"""Prefetch a model's files after a load, and pin the weights that the GPU reads by zero-copy in prefill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.executor.learned_hot import read_heat
from engine.gpu.prefill.pinned_weights import PinnedWeights, bytes_of, pinnable_spans, ram_check
from engine.model.prefetch import Prefetch, start_prefetch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.gpu.weights.loading import LoadedGpu
    from engine.loading.load_context import LoadContext
    from native_kernels.backend import PackedMatrix


def prefetch_weights(base: LoadContext, loaded: LoadedGpu) -> Prefetch:
    """Start to prefetch the file ranges that the CPU and prefill read. The caller closes it before placing again."""
    placement, side = loaded.placement, loaded.hot_side
    in_slots = loaded.placed if side is None else side.neuron_in
    hot = [
        ids[: len(own)] if home == "gpu" else None
        for ids, own, home in zip(in_slots, placement.hot, placement.attention, strict=True)
    ]
    return start_prefetch(base.weights, read_heat(base.opened), hot, placement.head == "gpu")


def pin_weights(
    pinned: PinnedWeights, base: LoadContext, loaded: LoadedGpu, streamed: Sequence[PackedMatrix], reading: Prefetch
) -> None:
    """Start to pin cold neurons and streamed matrices for prefill, if the RAM has room."""
    layers = zip(base.weights.layers, loaded.model.layers, strict=True)
    cold = [w for w, layer in layers if layer is not None and (layer.has_cold or layer.zero_copy is not None)]
    blocks = [one for w in cold for one in (w.routed or w.ffns)]
    spans = pinnable_spans([*(one for w in blocks for one in w.matrices), *streamed])
    pinned.begin(spans, base.weights, reading, ram_check(base.opened.files.path, bytes_of(spans, reading.spans)))
