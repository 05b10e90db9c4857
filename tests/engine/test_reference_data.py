"""The engine against figures that another implementation computed in float32: tests/data/starter-chat."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine.assets import starter_model
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.model.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights, OpenedModel, load_weights, open_model
from native_kernels.reference import ReferenceOperators

DATA = Path(__file__).parent.parent / "data" / "starter-chat"
REFERENCE = json.loads((DATA / "reference.json").read_text(encoding="utf-8"))
PERPLEXITY = REFERENCE["eval"]["perplexity"]
EVERY = 16  # logits.npz has every sixteenth
WINDOW_TOKENS = 511  # and the beginning-of-text token before them
EXECUTORS = [pytest.param(ExactExecutor, id="exact"), pytest.param(DenseExecutor, id="dense")]
Executor = type[DenseExecutor] | type[ExactExecutor]


@dataclass
class Evaluation:
    perplexity: float
    log_probabilities: np.ndarray
    counters: FfnCounters


def loaded(path: Path) -> tuple[OpenedModel, ModelWeights]:
    opened = open_model(path)
    return opened, load_weights(opened)


def transformer(model: tuple[OpenedModel, ModelWeights], executor: Executor) -> Transformer:
    opened, weights = model
    ops = ReferenceOperators()
    return Transformer(opened.config, weights, executor(opened.config, weights, ops), ops)


def evaluate(model: Transformer) -> Evaluation:
    """Perplexity over 4,096 tokens, each scored once, in windows that begin with the bos token."""
    ids = np.load(DATA / "eval_tokens.npz")["ids"].astype(np.int64)
    model.executor.counters.record_per_neuron()
    scores = []
    for start in range(0, len(ids), WINDOW_TOKENS):
        window = np.concatenate([[model.config.bos_token_id], ids[start : start + WINDOW_TOKENS]])
        logits = model.logits(model.forward(window, KVCache(model.config, len(window))))[:-1].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        normaliser = np.log(np.exp(logits).sum(axis=1))
        scores.append(logits[np.arange(len(logits)), window[1:]] - normaliser)
    log_probabilities = np.concatenate(scores)
    assert len(log_probabilities) == len(ids)
    return Evaluation(float(np.exp(-log_probabilities.mean())), log_probabilities, model.executor.counters)


def greedy(model: Transformer, ids: np.ndarray, n_tokens: int) -> tuple[np.ndarray, list[int]]:
    """The logits after the prompt, and a greedy continuation that no token stops."""
    cache = KVCache(model.config, len(ids) + n_tokens)
    first = logits = model.logits(model.forward(ids, cache))[-1]
    tokens: list[int] = []
    for _ in range(n_tokens):
        tokens.append(int(logits.argmax()))
        logits = model.logits(model.forward(np.array(tokens[-1:]), cache))[-1]
    return first, tokens


# --- the FP16 source


@pytest.fixture(scope="module")
def source(shared_starter: Path) -> tuple[OpenedModel, ModelWeights]:
    return loaded(shared_starter)


# The dense executor computes the zeros that the exact one skips: every day on the prompts below alone.
EVALUATED = [EXECUTORS[0], pytest.param(DenseExecutor, id="dense", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=EVALUATED)
def source_evaluation(source: tuple[OpenedModel, ModelWeights], request: pytest.FixtureRequest) -> Evaluation:
    return evaluate(transformer(source, request.param))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("prompt", range(5))
def test_logits_and_greedy_continuations(
    source: tuple[OpenedModel, ModelWeights], executor: Executor, prompt: int
) -> None:
    with np.load(DATA / "logits.npz") as data:
        ids, logits, tokens = (data[f"prompt{prompt}_{what}"] for what in ("ids", "logits", "greedy"))
    found_logits, found_tokens = greedy(transformer(source, executor), ids.astype(np.int64), len(tokens))
    assert np.abs(found_logits[::EVERY] - logits).max() < 2e-3
    assert found_tokens == tokens.tolist()


def test_perplexity(source_evaluation: Evaluation) -> None:
    assert source_evaluation.perplexity == pytest.approx(PERPLEXITY, rel=1e-3)
    expected = np.load(DATA / "eval_tokens.npz")["logprobs"]
    assert np.abs(source_evaluation.log_probabilities - expected).max() < 2e-3


def test_activation_counts(source_evaluation: Evaluation) -> None:
    with np.load(DATA / "activation_counts.npz") as data:
        counts, tokens = data["counts"], int(data["tokens"])
    counters = source_evaluation.counters
    assert counters.tokens == tokens == REFERENCE["activation"]["tokens"]
    assert counters.per_neuron is not None
    assert counters.fired == pytest.approx(counts.sum(), rel=1e-3)
    np.testing.assert_allclose(counters.per_neuron.sum(axis=1), counts.sum(axis=1), rtol=1e-3)
    assert np.abs(counters.per_neuron - counts).max() <= 4  # a gate within rounding of zero may fall either way
    assert counters.computed in (counters.fired, counts.size * tokens)


# --- what ships


@pytest.fixture(scope="module")
def shipped() -> tuple[OpenedModel, ModelWeights]:
    return loaded(starter_model())


def test_the_shipped_model_keeps_the_perplexity(shipped: tuple[OpenedModel, ModelWeights]) -> None:
    evaluation = evaluate(transformer(shipped, ExactExecutor))
    assert evaluation.perplexity == pytest.approx(PERPLEXITY, rel=3e-3)
    share = np.mean(REFERENCE["activation"]["active_share"])
    assert evaluation.counters.fired_share == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize("prompt", range(5))
def test_the_shipped_model_continues_as_its_source_does(shipped: tuple[OpenedModel, ModelWeights], prompt: int) -> None:
    with np.load(DATA / "logits.npz") as data:
        ids, logits, tokens = (data[f"prompt{prompt}_{what}"] for what in ("ids", "logits", "greedy"))
    exact, exact_tokens = greedy(transformer(shipped, ExactExecutor), ids.astype(np.int64), 12)
    dense, _ = greedy(transformer(shipped, DenseExecutor), ids.astype(np.int64), 0)
    np.testing.assert_allclose(exact, dense, atol=1e-4)
    assert np.abs(exact[::EVERY] - logits).max() < 0.5  # 8 bits; measured: 0.35 at most
    assert exact_tokens == tokens[:12].tolist()


def test_the_shipped_model_says_what_it_is(shipped: tuple[OpenedModel, ModelWeights]) -> None:
    opened, weights = shipped
    assert opened.name == "Pip"
    assert "demonstration" in opened.description
    assert opened.parameters == 32_514_560
    assert opened.sampling == {"temperature": 0.3, "top_k": 40, "top_p": 0.9}
    assert opened.files.weights[0].stat().st_size <= 36_000_000
    assert weights.head is weights.embedding
    assert (opened.config.bos_token_id, opened.config.eos_token_ids) == (0, (1,))
    assert (starter_model() / "MODEL_CARD.md").is_file()
