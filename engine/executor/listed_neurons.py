"""A feed-forward block over the neurons that are listed for each position, and no others. It lists none itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.executor.exact import PER_TOKEN_LIMIT
from engine.executor.feed_forward import (
    activate,
    down_of_all,
    down_of_some,
    everything,
    first_values_of_some,
    times_up,
)
from engine.model.weights import FfnWeights
from native_kernels.backend import F32, I32, Operators


def some_of_each(
    config: ModelConfig, w: FfnWeights, x: F32, listed: Sequence[I32], operators: Operators
) -> tuple[F32, NDArray[np.bool_], int]:
    """x [T, D], and for each position the neurons to compute -> what they add [T, D] with down's bias, which of all
    neurons fired [T, F], and how many passed the first activation.

    Few positions are summed up in the order of their lists. Many go through all rows at once, with zeros in the places
    of what is not listed: that reads the weights once.
    """
    if not 1 <= len(x) <= PER_TOKEN_LIMIT:
        mask = np.zeros((len(x), w.up.n_rows), np.bool_)
        for row, ids in zip(mask, listed, strict=True):
            row[ids] = True
        h, fired, opened = everything(config, w, x, operators, mask)
        return down_of_all(w, h, operators), fired, opened
    out, opened = [], 0
    fired = np.zeros((len(x), w.up.n_rows), np.bool_)
    for token, ids, row in zip(x, listed, fired, strict=True):
        first = activate(config, first_values_of_some(w, token, ids, operators), operators)  # [K]
        passed = np.not_equal(first, 0)
        firing, h = times_up(config, w, token, ids[passed], first[passed], operators)
        out.append(down_of_some(w, h, firing, operators))
        opened += int(np.count_nonzero(passed))
        row[firing] = True
    return np.stack(out), fired, opened
