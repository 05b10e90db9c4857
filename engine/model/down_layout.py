"""Detect how a file stores the down projection: as usual, or neuron-major. Moves no weights.

PowerInfer stores the transposed matrix under its own name. SmallThinker stores it under the usual name: only the shape
tells, unless the model is as wide as its FFN. The shape also tells whether a tensor with gate and up of all experts is
transposed, as in the published files of Qwen3-VL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.formats import TensorInfo
from engine.model.families import PlannedTensor


def fit_down(plan: list[PlannedTensor], tensors: Mapping[str, TensorInfo]) -> list[PlannedTensor]:
    """Return the plan fitted to the layout of the file's down projections and fused experts."""
    return [_fitted(planned, tensors) if len(planned.shape) in (2, 3) else planned for planned in plan]


def _fitted(planned: PlannedTensor, tensors: Mapping[str, TensorInfo]) -> PlannedTensor:
    neuron_major = (*planned.shape[:-2], planned.shape[-1], planned.shape[-2])
    found = tensors.get(planned.foreign_name)
    if planned.treatment == "as is":
        fused = len(planned.shape) == 3 and planned.part is not None
        if not fused or found is None or found.shape != neuron_major or neuron_major == planned.shape:
            return planned
        return replace(planned, shape=neuron_major, treatment="transposed")
    if planned.treatment != "transposed":
        return planned
    if found is None:
        transposed_name = planned.foreign_name.replace(".ffn_down.", ".ffn_down_t.")
        found = tensors.get(transposed_name)
        if found is None or transposed_name == planned.foreign_name:
            return planned
    elif found.shape != neuron_major or neuron_major == planned.shape:
        return planned
    return replace(planned, foreign_name=found.name, shape=neuron_major, treatment="as is")
