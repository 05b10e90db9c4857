"""The buffers of one token in latent attention, and the products with each head's own matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.config import ModelConfig
from native_kernels.backend import F32, PackedMatrix
from native_kernels.cpu.ffn.experts import ExpertMatrices, ExpertVectors, product_calls
from native_kernels.cpu.ffn.router import Chosen
from native_kernels.cpu.products.linear import Vector
from native_kernels.cpu.runtime.call import Call, aligned_empty
from native_kernels.specs import LatentSpec


class LatentVectors:
    """One token's values in latent attention, beside the heads that attend and what they return.

    Shapes: below [query_rank], q [H, key_dim + R], q_plain [H, key_dim], mixed [H, rank], values [H x value_dim].
    """

    def __init__(self, spec: LatentSpec, config: ModelConfig, heads: F32, mixed: F32) -> None:
        """heads [H + 1, head_dim]: queries and key; mixed [H x head_dim]: what attention returns."""
        n, self.heads = config.n_heads, heads
        self.below = Vector(aligned_empty(spec.query_rank))
        self.q: F32 = aligned_empty((n, spec.key_dim + config.rotated))
        self.q_plain = ExpertVectors(n, spec.key_dim, self.q[:, : spec.key_dim])
        self.mixed = ExpertVectors(n, spec.rank, mixed.reshape(n, -1)[:, : spec.rank])
        self.values = Vector(aligned_empty(n * spec.value_dim))
        self._all = Chosen.make(n, n)
        self._all.ids[:] = np.arange(n)

    def products(self, matrices: Sequence[PackedMatrix], x: ExpertVectors, out: F32) -> list[Call]:
        """Return the calls that multiply each head's matrix by its row of x."""
        rows, calls = x.as_read_by(matrices[0].codec)
        return calls + product_calls(ExpertMatrices.of(matrices), self._all, rows, out, stage="attention")
