"""Predictors of every kind for a loaded model, made of its own first matrices, so that they are worth something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.config import ModelConfig
from engine.executor.feed_forward import first_matrix
from engine.model.weights import FfnWeights, ModelWeights
from engine.sparsity.predictor import GateCopy, Input, Kind, LayerPredictor, LowRank, Predictor
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators


def dense_of(matrix: PackedMatrix) -> np.ndarray:
    return ReferenceOperators().rows(matrix, np.arange(matrix.n_rows))


def copy_of(w: FfnWeights, bits: int, threshold: float, signed: bool = False) -> GateCopy:
    matrix, bias = first_matrix(w)
    return GateCopy(PackedMatrix.pack(dense_of(matrix), f"copy{bits}"), threshold, bias, signed)


def low_rank_of(config: ModelConfig, rank: int, threshold: float, codec: str = "f32", seed: int = 3) -> LowRank:
    rng = np.random.default_rng([seed, rank])

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    a, b = (PackedMatrix.pack(numbers(*shape), codec) for shape in ((rank, config.d_model), (config.d_ff, rank)))
    return LowRank(a, b, numbers(rank), numbers(config.d_ff), threshold)


def layer_of(config: ModelConfig, w: FfnWeights, kind: Kind, reads: Input = "normed") -> LayerPredictor:
    match kind:
        case "low_rank":
            return LayerPredictor(low_rank_of(config, 8, -0.5), input=reads)
        case "gate_copy":
            return LayerPredictor(copy=copy_of(w, 2, -0.2))
        case "sign":
            return LayerPredictor(copy=copy_of(w, 1, -0.5, signed=True))
        case "cascade":
            return LayerPredictor(low_rank_of(config, 8, -1.0), copy_of(w, 3, -0.1), reads)
        case _:
            return LayerPredictor()


def predictor_of(config: ModelConfig, weights: ModelWeights, *kinds: Kind, reads: Input = "normed") -> Predictor:
    """The kinds follow each other, layer by layer."""
    return Predictor(
        tuple(layer_of(config, w.ffns[0], kinds[i % len(kinds)], reads) for i, w in enumerate(weights.layers))
    )


def with_threshold(layer: LayerPredictor, threshold: float) -> LayerPredictor:
    """Return the layer's predictor with this threshold at each of its steps."""
    low_rank, copy = (step and replace(step, threshold=threshold) for step in (layer.low_rank, layer.copy))
    return replace(layer, low_rank=low_rank, copy=copy)
