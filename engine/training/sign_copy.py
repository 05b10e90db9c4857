"""The instant predictor: signs of the gate's weights times signs of the input, with a slope and an offset per neuron.

SparseInfer's idea (arXiv 2411.12692). It needs no training; slope and offset come from held-out positions.
"""

from __future__ import annotations

import numpy as np

from engine.sparsity.predictor import GateCopy
from engine.training.choosing import Candidate, HeldOutLayer
from engine.training.thresholds import Worth, points
from native_kernels.backend import F32
from native_kernels.codecs.copies import COPY_GROUP
from native_kernels.copies import pack_copy
from native_kernels.reference import ReferenceOperators


def sign_candidate(w: F32, bias: F32 | None, held_out: HeldOutLayer) -> Candidate:
    """Return the 1-bit copy that reads only the input's signs, for w [F, D] and bias [F] of the first matrix."""
    n_rows, n_cols = w.shape
    n_groups = -(-n_cols // COPY_GROUP)
    codes = (w >= 0).astype(np.uint8)

    def of_slope(slope: F32) -> GateCopy:
        scales = np.repeat(np.clip(2 * slope, 2.0**-14, 60_000)[:, None], n_groups, axis=1).astype(np.float16)
        return GateCopy(pack_copy(codes, scales, 1), signed_input=True)

    operators = ReferenceOperators()
    counts = of_slope(np.ones(n_rows, np.float32)).scores(held_out.x, operators)
    centred, truth = counts - counts.mean(0), held_out.first - held_out.first.mean(0)
    slope = (centred * truth).sum(0) / np.maximum((centred * centred).sum(0), 1e-12)
    unset = of_slope(slope.astype(np.float32))
    scores = unset.scores(held_out.x, operators)
    offset = (held_out.first.mean(0) - scores.mean(0)).astype(np.float32)
    scores += offset
    noise = (scores - held_out.first).std(0)
    worth = Worth.of(noise, held_out.first, held_out.contribution, held_out.activation_threshold)
    copy = GateCopy(unset.matrix, bias=offset, signed_input=True)
    found = points(held_out.contribution, None, worth.of_scores(scores), lambda point: 0.0)
    return Candidate(None, copy, worth, found)
