"""Several residual streams (AltUp) of many positions on the GPU, and the residual beside attention (LAuReL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.model.transformer import LEAST_SQUARE
from native_kernels.cuda.gpu import GpuStreams, GpuVector
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.gpu.weights.layers import GpuLowRankResidual, GpuMixing
    from native_kernels.cuda.gpu import GpuMatrix
    from native_kernels.cuda.prefill_ops import GpuPrefillOps


@dataclass(frozen=True)
class StreamRows:
    """GPU memory for T positions of N residual streams [N, T, D].

    scores f32 [T, N]. apart [T, D]: any values between two steps. attention_in [T, D]: attention's input as f32, for
    the residual beside it; low_rank [T, R].
    """

    x: GpuStreams
    scores: int
    apart: Rows
    attention_in: Rows
    low_rank: Rows
    rounded: RoundedRows  # of low_rank

    def stream(self, i: int) -> Rows:
        return Rows(self.x.values + 4 * self.x.step * i, self.x.width)

    def make_others(self, ops: GpuPrefillOps, matrices: Sequence[GpuMatrix], first: RoundedRows, tile: Tile) -> None:
        """Make the other streams from the first one. first: that one, rounded."""
        for i, matrix in enumerate(matrices, 1):
            ops.multiply(matrix, first, self.x.n_tokens, self.stream(i), tile)
        ops.scale_alike(self.x, self.stream(1).address, LEAST_SQUARE)

    def bring_back(self, ops: GpuPrefillOps, matrices: Sequence[GpuMatrix], rounded: RoundedRows, tile: Tile) -> None:
        """Set the first stream to the mean of all, brought back to its space and size. rounded [T, D]: work memory."""
        n, width, first = self.x.n_tokens, self.x.width, self.stream(0)
        back = [Rows(self.x.predicted + 4 * self.x.step * i, width) for i in range(1, self.x.n)]
        for i, (matrix, rows) in enumerate(zip(matrices, back, strict=True), 1):
            ops.round(self.stream(i), n, width, rounded)
            ops.multiply(matrix, rounded, n, rows, tile)
        ops.scale_alike(self.x, back[0].address, LEAST_SQUARE)
        for rows in back:
            ops.round(rows, n, width, None, None, first, adds=True)
        ops.scale(first, n, width, 1 / self.x.n)

    def predict(self, ops: GpuPrefillOps, of: GpuMixing, tile: Tile) -> None:
        """Predict all streams before a layer."""
        self._score(ops, of, tile)
        ops.predict_streams(self.x, self.scores, of.mixture)

    def correct(self, ops: GpuPrefillOps, of: GpuMixing, tile: Tile) -> None:
        """Correct all streams after a layer. `apart` becomes the first stream times the layer's scale."""
        self._score(ops, of, tile)
        scaled = GpuVector(self.x.width, self.apart.address)
        ops.correct_streams(self.x, self.scores, of.shares, of.scale, scaled)

    def _score(self, ops: GpuPrefillOps, of: GpuMixing, tile: Tile) -> None:
        n, width = self.x.n_tokens, self.x.width
        ops.round(self.stream(0), n, width, None, of.router_norm, self.apart)
        ops.score(self.apart, n, of.router, 0, self.scores, tile)

    def add_low_rank(self, ops: GpuPrefillOps, of: GpuLowRankResidual, x: RoundedRows, tile: Tile) -> None:
        """Add x and the norm of its low-rank product to the first stream, and divide by the root of 2.

        x [T, D]: attention's input, rounded.
        """
        n, width, stream = self.x.n_tokens, self.x.width, self.stream(0)
        ops.multiply(of.left, x, n, self.low_rank, tile)
        ops.round(self.low_rank, n, self.low_rank.step, self.rounded)
        ops.multiply(of.right, self.rounded, n, self.apart, tile)
        ops.round(self.apart, n, width, None, of.norm, stream, adds=True)
        ops.round(self.attention_in, n, width, None, None, stream, adds=True)
        ops.scale(stream, n, width, 0.5**0.5)
