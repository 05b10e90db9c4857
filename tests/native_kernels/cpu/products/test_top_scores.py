"""The largest scores are those of the sampler, and their sum of exponentials is numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from product_checks import guarded

from engine.session.sampling import largest
from native_kernels.cpu.products.top_scores import TopScores


@pytest.mark.parametrize("size", [8, 9, 37, 1000, 70_001])
@pytest.mark.parametrize("decimals", [0, 7])  # 0: many scores are equal
def test_top_scores(size: int, decimals: int) -> None:
    scores = guarded(4 * size).view(np.float32)
    scores[:] = (np.random.default_rng(size).standard_normal(size) * 3).round(decimals)
    found = TopScores(8)
    scores -= 100  # below the zeros that fill the last vector
    found.find(scores)
    scores += 100
    found.find(scores)
    assert found.ids.tolist() == largest(scores, 8).tolist()
    assert found.scores.tolist() == scores[found.ids].tolist()
    assert found.total == pytest.approx(np.exp(scores.astype(np.float64) - scores.max()).sum(), rel=1e-6)
