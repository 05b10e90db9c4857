"""Per-layer embeddings of many positions on the GPU: what tokens add to each layer, and how a layer adds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile

if TYPE_CHECKING:
    from engine.gpu.weights.layers import GpuInjection, GpuLayerInputs
    from engine.model.graph import Inject
    from native_kernels.cuda.prefill_ops import GpuPrefillOps


@dataclass(frozen=True)
class InputRows:
    """GPU memory for T positions of a model of L layers to which each token adds P numbers.

    inputs, projected [T, L P]; gate [T, P]; injected [T, P], rounded. uncounted: u32 [T, 2], whose values nobody reads.
    """

    n_layers: int
    width: int
    inputs: Rows
    projected: Rows
    gate: Rows
    injected: RoundedRows
    uncounted: int

    def project(self, ops: GpuPrefillOps, own: GpuLayerInputs, x: RoundedRows, n_tokens: int, tile: Tile) -> None:
        """Add the normed projections of the embeddings x [T, D] to the inputs, which are the tokens' own so far."""
        ops.multiply(own.projection, x, n_tokens, self.projected, tile)
        projected, inputs = (Rows(rows.address, self.width) for rows in (self.projected, self.inputs))
        ops.round(projected, n_tokens * self.n_layers, self.width, None, own.norm, inputs, adds=True)

    def inject(
        self, ops: GpuPrefillOps, layer: int, of: GpuInjection, step: Inject, x: RoundedRows, n_tokens: int, out: Rows,
        tile: Tile,
    ) -> None:  # fmt: skip
        """Set out [T, D] to what layer `layer` adds to the stream x [T, D], before its norm."""
        inputs, spec = Rows(self.inputs.address + 4 * self.width * layer, self.inputs.step), step.spec
        ops.multiply(of.gate, x, n_tokens, self.gate, tile)
        ops.activate(
            self.gate, inputs, n_tokens, self.width, spec.activation, spec.threshold, self.injected, self.uncounted
        )
        ops.multiply(of.projection, self.injected, n_tokens, out, tile)
