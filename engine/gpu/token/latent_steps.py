"""One token of latent attention (MLA) on the GPU, as operators in order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from engine.gpu.token.token_memory import TokenPlaces
from engine.gpu.weights.layers import GpuLayer
from engine.model.graph import AttendLatent
from native_kernels.cuda.gpu import Gpu, GpuAngles, GpuLatent, GpuScoring, GpuVector


def latent_steps(
    gpu: Gpu, one: GpuLayer, step: AttendLatent, x: GpuVector, places: TokenPlaces
) -> Iterator[partial[None]]:
    """Yield the operators that write the layer's attention over x to `places.attended`."""
    spec, latent, matrices, to = step.spec, step.latent, one.latent, places.latent
    assert matrices is not None, "the layer has latent attention"
    assert one.k is not None, "it has the matrix of the cached vector"
    assert one.v is not None, "it has the heads' value matrices"
    assert one.kv is not None, "it has a cache"
    assert one.k_norm is not None, "the latent vector is normed"
    if matrices.q_down is None:
        yield partial(gpu.multiply, (one.q, one.k), x, (to.q, to.k))
    else:
        assert one.q_norm is not None, "there is a norm between the two matrices of q"
        yield partial(gpu.multiply, (matrices.q_down, one.k), x, (to.below.values, to.k))
        yield partial(gpu.norm, to.below.values, one.q_norm, to.below)
        yield partial(gpu.multiply, (one.q,), to.below, (to.q,))
    rotated = spec.head_dim - latent.rank
    numbers = GpuLatent(latent, spec.n_heads, rotated, to.q, to.k, places.qkv, one.k_norm)
    angles = GpuAngles(
        places.angles[spec.angles], spec.rotated // 2, spec.rope_order, temperature=spec.temperature
    )  # fmt: skip
    yield partial(gpu.place_latent, numbers, to.plain, one.kv, places.state, angles)
    yield partial(gpu.multiply_each, matrices.k_up, spec.n_heads, to.plain, places.qkv, spec.head_dim)
    scoring = GpuScoring(spec.scale, spec.softcap, spec.window)
    yield partial(gpu.attend, places.qkv, spec.n_heads, one.kv, places.state, to.mixed, scoring)
    yield partial(gpu.multiply_each, one.v, spec.n_heads, to.mixed, to.values.values, latent.value_dim)
    if to.values.bytes:
        yield partial(gpu.quantise, to.values)
    yield partial(gpu.multiply, (one.o,), to.values, (places.attended,))
