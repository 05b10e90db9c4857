"""Executors and the graph: exact equals dense to rounding, counts are what they say, the cache continues."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_model import make_tiny_model

from engine.config import ModelConfig
from engine.errors import ContextOverflowError, InvalidRequestError, TokenizerMismatchError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import PER_TOKEN_LIMIT, ExactExecutor
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights, load_weights, open_model
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
TOKENS = np.random.default_rng(0).integers(0, 256, 24)
Loaded = tuple[ModelConfig, ModelWeights]


@pytest.fixture(scope="module")
def relu(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("relu")))
    return opened.config, load_weights(opened)


@pytest.fixture(scope="module")
def silu(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("silu"), activation="silu"))
    return opened.config, load_weights(opened)


def transformer(loaded: Loaded, executor: type[DenseExecutor] | type[ExactExecutor]) -> Transformer:
    return Transformer(*loaded, executor(*loaded, OPS), OPS)


def run(model: Transformer, pieces: list[int]) -> np.ndarray:
    cache = KVCache(model.config, len(TOKENS))
    parts = np.split(TOKENS, np.cumsum(pieces)[:-1])
    return np.concatenate([model.logits(model.forward(part, cache)) for part in parts])


@pytest.mark.parametrize("pieces", [[24], [1] * 24, [PER_TOKEN_LIMIT, PER_TOKEN_LIMIT + 1, 11]])
def test_exact_equals_dense_and_pieces_do_not_matter(relu: Loaded, pieces: list[int]) -> None:
    dense, exact = transformer(relu, DenseExecutor), transformer(relu, ExactExecutor)
    wanted = run(dense, [24])
    np.testing.assert_allclose(run(exact, pieces), wanted, atol=2e-4)
    np.testing.assert_allclose(run(dense, pieces), wanted, atol=2e-4)


@pytest.mark.parametrize("pieces", [[24], [1] * 24, [2, 22]])
def test_counts(relu: Loaded, pieces: list[int]) -> None:
    config, _ = relu
    dense, exact = transformer(relu, DenseExecutor), transformer(relu, ExactExecutor)
    for model in (dense, exact):
        model.executor.counters.record_per_neuron()
        run(model, pieces)
        counters = model.executor.counters
        assert counters.tokens == 24
        assert counters.per_neuron is not None
        assert counters.per_neuron.shape == (config.n_layers, config.d_ff)
        assert counters.per_neuron.sum() == counters.fired
    assert dense.executor.counters.fired == exact.executor.counters.fired == exact.executor.counters.computed
    assert dense.executor.counters.active_share == 1.0
    assert exact.executor.counters.active_share == exact.executor.counters.fired_share
    assert 0.2 < (exact.executor.counters.fired_share or 0) < 0.8
    exact.executor.counters.reset()
    assert (exact.executor.counters.tokens, exact.executor.counters.active_share) == (0, None)
    assert exact.executor.counters.per_neuron is not None
    assert not exact.executor.counters.per_neuron.any()


@pytest.mark.parametrize("n_tokens", [1, 9])
@pytest.mark.parametrize("sign", [-1.0, 0.0, 1.0])
def test_no_neuron_and_every_neuron_firing(relu: Loaded, n_tokens: int, sign: float) -> None:
    config, weights = relu
    gate = weights.layers[0].gate.data
    saved = gate.copy()
    try:
        gate[:] = sign * np.abs(saved)
        x = np.abs(np.random.default_rng(1).standard_normal((n_tokens, config.d_model))).astype(np.float32)
        exact, dense = ExactExecutor(config, weights, OPS), DenseExecutor(config, weights, OPS)
        np.testing.assert_allclose(exact.ffn(0, x), dense.ffn(0, x), atol=1e-4)
        assert exact.counters.fired == (config.d_ff * n_tokens if sign > 0 else 0)
    finally:
        gate[:] = saved


def test_silu_runs_dense_and_refuses_exact(silu: Loaded) -> None:
    model = transformer(silu, DenseExecutor)
    assert np.isfinite(run(model, [24])).all()
    assert model.executor.counters.fired_share == 1.0
    with pytest.raises(InvalidRequestError, match="silu-glu"):
        ExactExecutor(*silu, OPS)


def test_a_cut_cache_continues_as_if_nothing_had_been_there(relu: Loaded) -> None:
    model = transformer(relu, ExactExecutor)
    cache = KVCache(model.config, 24)
    model.forward(TOKENS[:10], cache)
    model.forward(TOKENS[:5], cache)
    cache.truncate(10)
    again = model.logits(model.forward(TOKENS[10:], cache))
    np.testing.assert_allclose(again, run(model, [24])[10:], atol=2e-4)
    with pytest.raises(ValueError, match="cannot be cut"):
        cache.truncate(25)


def test_a_full_cache_and_a_foreign_token_are_refused_before_anything_changes(relu: Loaded) -> None:
    model = transformer(relu, DenseExecutor)
    cache = KVCache(model.config, 8)
    model.forward(TOKENS[:8], cache)
    with pytest.raises(ContextOverflowError, match="context of 8"):
        model.forward(TOKENS[:1], cache)
    cache.truncate(4)
    for token in (-1, model.config.vocab_size):
        with pytest.raises(TokenizerMismatchError, match=f"Token {token} "):
            model.forward(np.array([0, token]), cache)
    assert cache.length == 4
    assert cache.n_bytes == KVCache.bytes_for(model.config, 8)


def test_nothing_in_nothing_out(relu: Loaded) -> None:
    for executor in (DenseExecutor, ExactExecutor):
        model = transformer(relu, executor)
        cache = KVCache(model.config, 4)
        assert model.logits(model.forward(TOKENS[:0], cache)).shape == (0, model.config.vocab_size)
        assert cache.length == 0
