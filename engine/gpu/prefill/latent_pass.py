"""Rows of a prompt or a batch through latent attention (MLA) on the GPU."""

from __future__ import annotations

from collections.abc import Callable

from engine.gpu.prefill.delta_rows import MixerMemory
from engine.gpu.weights.layers import GpuLayer
from engine.model.graph import AttendLatent
from native_kernels.cuda.gpu import GpuLatent, GpuScoring, GpuSequences
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import RowAngles, Rows


def run_latent(
    ops: GpuPrefillOps,
    memory: MixerMemory,
    one: GpuLayer,
    step: AttendLatent,
    n: int,
    where: int | GpuSequences,
    angles: RowAngles,
    attend: Callable[[Rows, Rows, GpuScoring], None],
) -> None:
    """Compute the layer's attention for n rows of `memory.attention_in`, up to the input of o, in `memory.mixed_in`.

    where: as in `place_latents`. attend: computes the attention of queries, into rows of q_width numbers.
    """
    spec, latent, matrices = step.spec, step.latent, one.latent
    assert matrices is not None, "the layer has latent attention"
    assert one.k is not None, "it has the matrix of the cached vector"
    assert one.v is not None, "it has the heads' value matrices"
    assert one.kv is not None, "it has a cache"
    assert one.k_norm is not None, "the latent vector is normed"
    x, inner, tile, rotated = memory.attention_in, memory.mixed_in, memory.tile, spec.head_dim - latent.rank
    of_query = latent.key_dim + rotated
    q = Rows(memory.qkv, spec.n_heads * of_query)
    k = Rows(q.address + 4 * n * q.step, spec.head_dim)
    queries = Rows(k.address + 4 * n * k.step, spec.q_width)
    ops.multiply(one.k, x, n, k, tile)
    if matrices.q_down is not None:
        below = Rows(queries.address, latent.query_rank)
        ops.multiply(matrices.q_down, x, n, below, tile)
        ops.round(below, n, below.step, inner, one.q_norm)
    ops.multiply(one.q, x if matrices.q_down is None else inner, n, q, tile)
    numbers = GpuLatent(latent, spec.n_heads, rotated, q.address, k.address, queries.address, one.k_norm)
    ops.place_latents(numbers, n, one.kv, where, angles)
    ops.round(q, n, q.step, inner)
    ops.multiply_each(matrices.k_up, spec.n_heads, inner, of_query, n, queries, spec.head_dim, tile)
    mixed = Rows(memory.mixed, spec.q_width)
    attend(queries, mixed, GpuScoring(spec.scale, spec.softcap, spec.window))
    ops.round(mixed, n, mixed.step, inner)
    values = Rows(queries.address, spec.n_heads * latent.value_dim)
    ops.multiply_each(one.v, spec.n_heads, inner, spec.head_dim, n, values, latent.value_dim, tile)
    ops.round(values, n, values.step, inner)
