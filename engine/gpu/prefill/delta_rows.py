"""The projections of rows for a gated delta net or Mamba-2 on the GPU, for prompts and batches."""

from __future__ import annotations

from typing import Protocol

from engine.gpu.weights.layers import GpuLayer
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile
from native_kernels.specs import DeltaSpec


class MixerMemory(Protocol):
    """Memory for attention or a state over some rows.

    qkv, mixed: addresses of f32 numbers, input_width and mixed_width for each row.
    """

    attention_in: RoundedRows
    mixed_in: RoundedRows
    qkv: int
    mixed: int
    tile: Tile


def project_delta(
    ops: GpuPrefillOps, memory: MixerMemory, one: GpuLayer, spec: DeltaSpec, n: int
) -> tuple[Rows, Rows, Rows, Rows]:
    """Multiply n rows of `memory.attention_in` by the layer's projections.

    Return the rows of q, k and v [n, channels], of the gate, of alpha and of beta, in `memory.qkv`.
    """
    assert one.delta is not None, "the layer has a state"
    assert one.k is not None, "it has keys"
    assert one.v is not None, "it has values"
    x, tile = memory.attention_in, memory.tile
    qkv = Rows(memory.qkv, spec.channels)
    gate = Rows(qkv.address + 4 * n * spec.channels, spec.value_width)
    alpha = Rows(gate.address + 4 * n * spec.value_width, spec.value_heads)
    beta = Rows(alpha.address + 4 * n * spec.value_heads, spec.value_heads)
    q, k, v = (Rows(qkv.address + 4 * start, spec.channels) for start in spec.starts)
    of_gate, of_alpha, *of_beta = one.delta.projections
    ops.multiply_two((one.q, one.k), x, n, (q, k), tile)
    ops.multiply(one.v, x, n, v, tile)
    ops.multiply(of_gate, x, n, gate, tile)
    if of_beta:
        ops.multiply_two((of_alpha, of_beta[0]), x, n, (alpha, beta), tile)
    else:
        ops.multiply(of_alpha, x, n, alpha, tile)
    return qkv, gate, alpha, beta
