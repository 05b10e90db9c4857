"""Every family equals transformers: logits at every position, greedy tokens, pieces, cut caches, exact and dense."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from family_models import CASES, CONTEXT, PROMPT, STEPS, Reference, make_reference

from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from native_kernels.reference import ReferenceOperators

TOLERANCE = 2e-3
OPS = ReferenceOperators()


@pytest.fixture(scope="module", params=CASES)
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return make_reference(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def model(reference: Reference) -> Transformer:
    opened = open_model(reference.folder)
    weights = load_weights(opened)
    kind = ExactExecutor if opened.config.has_zeros else DenseExecutor
    return Transformer(opened.config, weights, kind(opened.config, weights, OPS), OPS)


def run(model: Transformer, tokens: np.ndarray, cache: KVCache, pieces: tuple[int, ...] = (1 << 30,)) -> np.ndarray:
    out, at = [], 0
    for size in itertools.cycle(pieces):
        out.append(model.logits(model.forward(tokens[at : at + size], cache)))
        at += size
        if at >= len(tokens):
            return np.concatenate(out)
    raise AssertionError


def test_logits_at_every_position(reference: Reference, model: Transformer, record_property: object) -> None:
    assert model.config.activation == reference.case.activation
    error = np.abs(run(model, reference.tokens, KVCache(model.config, CONTEXT)) - reference.logits).max()
    assert error < TOLERANCE
    print(f"largest logit error {error:.1e}, logits up to {np.abs(reference.logits).max():.0f}")


def test_greedy_tokens(reference: Reference, model: Transformer) -> None:
    top = np.sort(reference.logits, axis=-1)
    margins = (top[:, -1] - top[:, -2])[len(PROMPT) - 1 : -1]
    qualify = margins > 2 * TOLERANCE
    assert qualify.mean() >= 0.9
    cache = KVCache(model.config, CONTEXT)
    logits = run(model, PROMPT, cache)[-1]
    for step in range(STEPS):
        wanted = reference.tokens[len(PROMPT) + step]
        if qualify[step]:
            assert logits.argmax() == wanted, f"step {step}"
        logits = run(model, np.array([wanted]), cache)[0]


@pytest.mark.parametrize("pieces", [(1,), (7, 1, 13), (3,)])
def test_prefill_in_odd_pieces(reference: Reference, model: Transformer, pieces: tuple[int, ...]) -> None:
    logits = run(model, reference.tokens, KVCache(model.config, CONTEXT), pieces)
    assert np.abs(logits - reference.logits).max() < TOLERANCE


def test_a_cache_cut_at_odd_places(reference: Reference, model: Transformer) -> None:
    cache = KVCache(model.config, CONTEXT)
    tokens = reference.tokens
    run(model, tokens[:53], cache)
    for kept in (47, 31, 12, 1, 0):
        cache.truncate(kept)
        run(model, tokens[::-1][:5].copy(), cache)  # something else was here
        cache.truncate(kept)
        logits = run(model, tokens[kept : kept + 41], cache, (5, 1, 17))
        assert np.abs(logits - reference.logits[kept : kept + 41]).max() < TOLERANCE


def test_exact_equals_dense(reference: Reference, model: Transformer) -> None:
    if not model.config.has_zeros:
        pytest.skip("the activation makes no zeros")
    dense = Transformer(model.config, model.weights, DenseExecutor(model.config, model.weights, OPS), OPS)
    exact = Transformer(model.config, model.weights, ExactExecutor(model.config, model.weights, OPS), OPS)
    wanted = run(dense, reference.tokens, KVCache(model.config, CONTEXT))
    counts = []
    for pieces in ((1,), (88,), (6, 7)):
        exact.executor.counters.reset()
        logits = run(exact, reference.tokens, KVCache(model.config, CONTEXT), pieces)
        assert np.abs(logits - wanted).max() < TOLERANCE / 4
        counts.append((exact.executor.counters.computed, exact.executor.counters.fired))
    first, *others = counts
    assert all(np.allclose(first, other, rtol=2e-3) for other in others)
    assert np.isclose(dense.executor.counters.fired, first[1], rtol=2e-3)
    assert 0.05 < exact.executor.counters.fired_share < 0.8
    assert (first[0] > first[1]) == (model.config.activation == "drelu-glu")
