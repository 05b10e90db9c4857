"""Apply an FFN's activation with any operators."""

from __future__ import annotations

import numpy as np

from engine.model.graph import FfnSpec
from native_kernels.backend import F32, Operators


def activate(spec: FfnSpec, values: F32, operators: Operators) -> F32:
    """Apply the activation elementwise to values [T, F], after the cut-off of each row if there is one."""
    if spec.cutoff:
        deviation = values.std(axis=-1, keepdims=True)
        values = operators.relu(values - (values.mean(axis=-1, keepdims=True) + np.float32(spec.cutoff) * deviation))
    match spec.activation:
        case "relu" | "drelu":
            return operators.relu(values)
        case "relu2":
            return operators.relu2(values)
        case "fatrelu":
            return operators.relu(values, spec.threshold)
        case "silu":
            return operators.silu(values)
        case "gelu":
            return operators.gelu(values)
        case "clamped-silu":
            return operators.clamped_silu(values, spec.threshold)
        case _:
            return operators.gelu_tanh(values)
