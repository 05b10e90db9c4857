"""Count the bytes that a token's FFNs read, from the shares of neurons computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.executor.feed_forward import first_matrix
from engine.model.weights import LayerWeights, ModelWeights
from engine.sparsity.predictor import LayerPredictor, Predictor

Shares = NDArray[np.float64]
Share = Any  # a number, or one for each of several tokens, [T]


def first_bytes(weights: ModelWeights) -> int:
    """Return the bytes of the deciding matrices: gate, or up without a gate."""
    return sum(_first_bytes(layer) for layer in weights.layers)


def ffn_bytes(weights: ModelWeights, first: float, second: float, down: float, reached: float = 1.0) -> float:
    """Return the bytes of one decoded token with the same shares in all layers, without predictors.

    Shares of all neurons: first, whose first matrix is read; second, whose up is read beside a gate; down; reached, in
    the experts that the token uses.
    """
    return float(sum(layer_bytes(layer, first, second, down, reached) for layer in weights.layers))


def exact_bytes(weights: ModelWeights, shares: Shares, reached: float = 1.0) -> Share:
    """Return the bytes of one decoded token in exact mode. shares [L, 4]: FfnCounters.layer_shares.

    With shares [L, 4, T] of T tokens, return those of each: [T].
    """
    layers = zip(weights.layers, shares, strict=True)
    return sum(layer_bytes(layer, reached, active, fired, reached) for layer, (_, active, fired, _) in layers)


def sparse_bytes(
    weights: ModelWeights, predictor: Predictor, shares: Shares, reached: float = 1.0
) -> tuple[Share, Share]:
    """Return the bytes of one decoded token in sparse mode: (neurons, predictors).

    A cascade counts the rows of its copy that were read. shares, reached: as in exact_bytes.
    """
    neurons = sum(
        layer_bytes(layer, _first_share(part, computed, reached), active, fired, reached)
        for layer, part, (computed, active, fired, _) in zip(weights.layers, predictor.layers, shares, strict=True)
    )
    return neurons, predictor_bytes(predictor, shares[:, 3])


def predictor_bytes(predictor: Predictor, copied: Iterable[Share]) -> Share:
    """Return the predictors' bytes per token. copied: per layer, the share of its copy's rows that are read."""
    return sum(part.bytes_read(share) for part, share in zip(predictor.layers, copied, strict=True))


def first_bytes_read(weights: ModelWeights, predictor: Predictor, shares: Shares, reached: float = 1.0) -> float:
    """Return the bytes of the first matrices that a token reads in sparse mode. shares [L, 4]: as in exact_bytes."""
    layers = zip(weights.layers, predictor.layers, shares[:, 0], strict=True)
    return float(sum(_first_share(part, computed, reached) * _first_bytes(layer) for layer, part, computed in layers))


def _first_share(part: LayerPredictor, computed: Share, reached: float) -> Share:
    """Return the share of neurons whose first matrix is read: the selected ones, or all if it decides itself."""
    return reached if part.kind == "true_gate" else computed


def _first_bytes(layer: LayerWeights) -> int:
    return sum(first_matrix(ffn)[0].n_bytes for ffn in layer.ffns)


def layer_bytes(layer: LayerWeights, first: Share, second: Share, down: Share, reached: float) -> Share:
    """Return a layer's bytes. A row-wise down is read whole in every expert used."""
    rest = sum(ffn.up.n_bytes for ffn in layer.ffns if ffn.gate)
    by_neuron = sum(matrix.n_bytes for ffn in layer.ffns if (matrix := ffn.down_t))
    whole = reached * sum(matrix.n_bytes for ffn in layer.ffns if (matrix := ffn.down))
    return first * _first_bytes(layer) + second * rest + down * by_neuron + whole
