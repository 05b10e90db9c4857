"""Runs sequences through a model one after another, to hold walks layer by layer against."""

from __future__ import annotations

import numpy as np

from engine.config import ModelConfig
from engine.executor.feed_forward import everything, first_values
from engine.model.graph import graph_of
from engine.model.kv_cache import KVCache
from engine.model.router import Routing
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import ModelWeights
from engine.training.layer_walk import LayerBatch
from native_kernels.backend import F32
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
CLOSE = 1e-4
LENGTHS = (9, 1, 16, 3, 30)
BATCH = 12  # so that several sequences share a batch, and long ones lie across several


class Recorder:
    """An executor that keeps what the graph hands to another."""

    name = "recorder"

    def __init__(self, inner: FfnExecutor, n_layers: int) -> None:
        self.inner = inner
        self.counters = inner.counters
        self.normed: list[list[F32]] = [[] for _ in range(n_layers)]
        self.residual: list[list[F32]] = [[] for _ in range(n_layers)]

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        self.normed[layer].append(x.copy())
        self.residual[layer].append(residual.copy())
        return self.inner.ffn(layer, x, residual, routing)


def sequences_of(config: ModelConfig) -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, config.vocab_size, length).tolist() for length in LENGTHS]


def by_sequence(
    config: ModelConfig, weights: ModelWeights, executor: FfnExecutor, texts: list[list[int]]
) -> tuple[Recorder, F32]:
    """What forward does with each sequence by itself, one after another, and all their logits."""
    seen = Recorder(executor, config.n_layers)
    graph = Transformer(config, weights, seen, OPS)
    logits = [graph.logits(graph.forward(np.array(text), KVCache(config, len(text)))) for text in texts]
    return seen, np.concatenate(logits)


def check_batches(config: ModelConfig, weights: ModelWeights, walked: list[LayerBatch], seen: Recorder) -> None:
    for layer in range(config.n_layers):
        batches = [batch for batch in walked if batch.layer == layer]
        assert [batch.start for batch in batches] == [0, 12, 24, 36, 48]
        assert np.concatenate([batch.sequence for batch in batches]).tolist() == np.repeat(range(5), LENGTHS).tolist()
        positions = np.concatenate([np.arange(length) for length in LENGTHS])
        assert (np.concatenate([batch.position for batch in batches]) == positions).all()
        normed, residual = np.concatenate(seen.normed[layer]), np.concatenate(seen.residual[layer])
        np.testing.assert_allclose(np.concatenate([batch.normed for batch in batches]), normed, atol=CLOSE)
        np.testing.assert_allclose(np.concatenate([batch.residual for batch in batches]), residual, atol=CLOSE)
        if config.n_experts:
            continue
        w = weights.layers[layer].ffns[0]
        first = first_values(w, normed, OPS)
        np.testing.assert_allclose(np.concatenate([batch.first for batch in batches]), first, atol=CLOSE)
        hidden = everything(graph_of(config).ffn(layer).spec, w, normed, OPS)[0]
        np.testing.assert_allclose(np.concatenate([batch.hidden for batch in batches]), hidden, atol=CLOSE)
