"""Several residual streams of one token (AltUp) on the GPU, and the residual beside attention (LAuReL), as operators.

EagerLayer and Transformer of engine/model/transformer.py are the specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from engine.gpu.token.token_memory import TokenPlaces
from engine.gpu.weights.layers import GpuLowRankResidual, GpuMixing
from engine.model.transformer import LEAST_SQUARE
from native_kernels.cuda.gpu import Gpu, GpuMatrix, GpuVector

Steps = Iterator[partial[None]]


def other_streams(gpu: Gpu, matrices: Sequence[GpuMatrix], places: TokenPlaces) -> Steps:
    """Yield the operators that make the other streams from the first one, which is rounded already."""
    x = places.streams
    others = tuple(x.values + 4 * x.step * i for i in range(1, x.n))
    for matrix, to in zip(matrices, others, strict=True):
        yield partial(gpu.multiply, (matrix,), places.stream, (to,))
    yield partial(gpu.scale_alike, x, others[0], LEAST_SQUARE)


def streams_back(gpu: Gpu, matrices: Sequence[GpuMatrix], places: TokenPlaces) -> tuple[tuple[int, ...], Steps]:
    """Return the places of the other streams in the first one's space and size, and the operators that write them."""
    x, d = places.streams, places.stream.n
    rows = tuple(x.predicted + 4 * x.step * i for i in range(1, x.n))

    def steps() -> Steps:
        for i, (matrix, to) in enumerate(zip(matrices, rows, strict=True), 1):
            stream = GpuVector(d, x.values + 4 * x.step * i, places.stream.bytes, places.stream.scales)
            if matrix.reads_bytes:
                yield partial(gpu.quantise, stream)
            yield partial(gpu.multiply, (matrix,), stream, (to,))
        yield partial(gpu.scale_alike, x, rows[0], LEAST_SQUARE)

    return rows, steps()


def predict_steps(gpu: Gpu, one: GpuMixing, places: TokenPlaces) -> Steps:
    """Yield the operators that predict all streams, given the normed first one."""
    scores = places.stream_scores
    yield partial(gpu.multiply, (one.router,), places.router_normed, (scores,))
    yield partial(gpu.predict_streams, places.streams, scores, one.mixture)


def correct_steps(gpu: Gpu, one: GpuMixing, places: TokenPlaces) -> Steps:
    """Yield the operators that correct all streams, given the normed first one after the layer's other steps."""
    scores = places.stream_scores
    yield partial(gpu.multiply, (one.router,), places.router_normed, (scores,))
    yield partial(gpu.correct_streams, places.streams, scores, one.shares, one.scale, places.scaled)


def laurel_steps(gpu: Gpu, one: GpuLowRankResidual, x: GpuVector, places: TokenPlaces) -> Steps:
    """Yield the operators that write the norm of the low-rank product of x to `places.added`."""
    low_rank = places.low_rank
    yield partial(gpu.multiply, (one.left,), x, (low_rank.values,))
    if low_rank.bytes:
        yield partial(gpu.quantise, low_rank)
    yield partial(gpu.multiply, (one.right,), low_rank, (places.added,))
    if one.norm is not None:
        yield partial(gpu.norm, places.added, one.norm, GpuVector(x.n, places.added))
