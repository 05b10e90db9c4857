"""Counts the bytes that a token's feed-forward blocks read, by the share of the neurons computed. It times nothing."""

from __future__ import annotations

from engine.executor.feed_forward import first_matrix
from engine.model.weights import ModelWeights


def first_bytes(weights: ModelWeights) -> int:
    """What the matrices take whose activation says which neurons fire: gate, or up where there is no gate."""
    return sum(first_matrix(ffn)[0].n_bytes for layer in weights.layers for ffn in layer.ffns)


def ffn_bytes(weights: ModelWeights, first: float, second: float, down: float, reached: float = 1.0) -> float:
    """Bytes of one decoded token. A down stored row-wise is read whole in every expert used; predictors
    are not counted in.

    Shares of all neurons: first, of which the first matrix is read; second, of which up is read beside a gate; down;
    reached, which are in the experts that a token goes through.
    """
    ffns = [ffn for layer in weights.layers for ffn in layer.ffns]
    rest = sum(ffn.up.n_bytes for ffn in ffns if ffn.gate)
    by_neuron = sum(matrix.n_bytes for ffn in ffns if (matrix := ffn.down_t))
    whole = reached * sum(matrix.n_bytes for ffn in ffns if (matrix := ffn.down))
    return first * first_bytes(weights) + second * rest + down * by_neuron + whole
