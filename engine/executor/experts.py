"""Takes each position through its experts and adds up what they say. What one block computes is its caller's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.model.router import Routing
from engine.model.weights import FfnWeights
from native_kernels.backend import F32

Block = Callable[[FfnWeights, int, F32], F32]


def through_blocks(blocks: Sequence[FfnWeights], x: F32, routing: Routing | None, block: Block) -> F32:
    """x [T, D] through the layer's only block, or through each position's experts, weighted -> [T, D].

    block: (weights, number of their first neuron in the layer, x [T', D]) -> [T', D].
    """
    if routing is None:
        return block(blocks[0], 0, x)
    out = np.zeros_like(x)
    for expert in np.unique(routing.experts).tolist():
        positions, places = np.nonzero(routing.experts == expert)  # a position at most once
        w = blocks[expert]
        said = block(w, expert * blocks[0].up.n_rows, np.ascontiguousarray(x[positions]))
        out[positions] += routing.weights[positions, places, None] * said
    return out
