"""Counts the bytes that a token's feed-forward blocks read, by the share of the neurons computed. It times nothing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from engine.executor.feed_forward import first_matrix
from engine.model.weights import LayerWeights, ModelWeights
from engine.sparsity.predictor import LayerPredictor, Predictor

Shares = NDArray[np.float64]


def first_bytes(weights: ModelWeights) -> int:
    """What the matrices take whose activation says which neurons fire: gate, or up where there is no gate."""
    return sum(_first_bytes(layer) for layer in weights.layers)


def ffn_bytes(weights: ModelWeights, first: float, second: float, down: float, reached: float = 1.0) -> float:
    """Bytes of one decoded token, where all layers have the same shares; predictors are not counted in.

    Shares of all neurons: first, of which the first matrix is read; second, of which up is read beside a gate; down;
    reached, which are in the experts that a token goes through.
    """
    return sum(_layer_bytes(layer, first, second, down, reached) for layer in weights.layers)


def exact_bytes(weights: ModelWeights, shares: Shares, reached: float = 1.0) -> float:
    """Bytes of one decoded token in exact mode; shares [L, 4] as FfnCounters.layer_shares, reached as `ffn_bytes`."""
    layers = zip(weights.layers, shares, strict=True)
    return sum(_layer_bytes(layer, reached, opened, fired, reached) for layer, (_, opened, fired, _) in layers)


def sparse_bytes(weights: ModelWeights, predictor: Predictor, shares: Shares) -> tuple[float, float]:
    """Bytes of one decoded token in sparse mode: of the neurons, and of the predictors, a cascade's by the rows of its
    copy that were read. shares [L, 4] as FfnCounters.layer_shares."""
    neurons = sum(
        _layer_bytes(layer, _first_share(part, computed), opened, fired, 1.0)
        for layer, part, (computed, opened, fired, _) in zip(weights.layers, predictor.layers, shares, strict=True)
    )
    return neurons, predictor_bytes(predictor, shares[:, 3])


def predictor_bytes(predictor: Predictor, copied: Iterable[float]) -> float:
    """Bytes of one decoded token; copied: of each layer the share of the rows of its copy that are read."""
    return sum(part.bytes_read(float(share)) for part, share in zip(predictor.layers, copied, strict=True))


def first_bytes_read(weights: ModelWeights, predictor: Predictor, shares: Shares) -> float:
    """Bytes of the first matrices that a token in sparse mode reads; shares as `sparse_bytes` has them."""
    layers = zip(weights.layers, predictor.layers, shares[:, 0], strict=True)
    return sum(_first_share(part, computed) * _first_bytes(layer) for layer, part, computed in layers)


def _first_share(part: LayerPredictor, computed: float) -> float:
    """Of how many neurons the first matrix is read: of those expected, or of all where it decides itself."""
    return 1.0 if part.kind == "true_gate" else float(computed)


def _first_bytes(layer: LayerWeights) -> int:
    return sum(first_matrix(ffn)[0].n_bytes for ffn in layer.ffns)


def _layer_bytes(layer: LayerWeights, first: float, second: float, down: float, reached: float) -> float:
    """A down stored row-wise is read whole in every expert used."""
    rest = sum(ffn.up.n_bytes for ffn in layer.ffns if ffn.gate)
    by_neuron = sum(matrix.n_bytes for ffn in layer.ffns if (matrix := ffn.down_t))
    whole = reached * sum(matrix.n_bytes for ffn in layer.ffns if (matrix := ffn.down))
    return first * _first_bytes(layer) + second * rest + down * by_neuron + whole
