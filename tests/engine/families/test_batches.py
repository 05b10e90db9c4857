"""A batch gives every sequence what it gets alone, in every mode, whatever lengths the sequences have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_cover import WITH_EXPERTS, of_cover
from family_models import CASES, Reference
from samples.predictors import predictor_of
from samples.tiny_model import make_tiny_model
from support.gpu_batches import check
from support.gpu_tokens import some_experts, some_hot

from engine.config import EngineConfig
from engine.errors import ContextOverflowError, InvalidRequestError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.executor.sparse import SparseExecutor
from engine.executor.union import UnionExecutor, needed_words
from engine.model.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import load_weights, open_model
from engine.session.batch import BatchTransformer, open_batch
from engine.session.generate import decode_batch, decode_one_token, prefill
from engine.session.loaded_model import LoadedModel
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool

CLOSE = 1e-4
FAMILIES = [name for name in CASES if name not in WITH_EXPERTS]
# Of many sequences at once, one family with each kind of zeros and one without; the others decode three.
BATCHES = dict.fromkeys(("llama-biases", "relu-llama", "bamboo", "opt-350m", "gemma2"), (2, 7))
BATCHES["qwen3-moe"] = (1, 7, 32)
# Which neurons are needed depends on the feed-forward part alone: sparse mode for one family with each kind of it.
IN_SPARSE_MODE = {*BATCHES, "falcon-40b", "phi4-mini", "command-r", "olmo2", "exaone4"}
# Placements of experts beyond the first: for one family with each kind of router, and with a shared expert.
EXPERTS_ANYWHERE = {"mixtral-window", "qwen2-moe", "glm4-moe-air", "gpt-oss", "smallthinker-21b"}


@pytest.fixture(scope="module")
def operators() -> CpuOperators:
    return CpuOperators(Pool(2))


@pytest.mark.parametrize("name", [*of_cover(FAMILIES), *of_cover(WITH_EXPERTS)])
def test_every_family_decodes_several_sequences(
    name: str, references: Callable[[str], Reference], operators: CpuOperators
) -> None:
    one_thread = CpuOperators(Pool(1))
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold="f32")
    rng = np.random.default_rng(1)
    for mode in ("dense", "exact", "sparse") if name in IN_SPARSE_MODE else ("dense", "exact"):
        if mode == "exact" and (config.n_experts or not config.has_zeros):  # experts: one sequence after another
            continue
        executor: FfnExecutor
        predictor = None
        if mode == "sparse":
            kinds = ("low_rank", "gate_copy", *(("true_gate",) if config.has_zeros else ()))
            predictor = predictor_of(config, weights, *kinds)
            executor = SparseExecutor(config, weights, predictor, one_thread)
        else:
            executor = (ExactExecutor if mode == "exact" else DenseExecutor)(config, weights, one_thread)
        alone = Transformer(config, weights, executor, one_thread)
        for batch in BATCHES.get(name, (3,)):
            caches, wanted = [KVCache(config, 80) for _ in range(batch)], []
            steps = rng.integers(3, config.vocab_size, (3, batch)).tolist()
            for b, cache in enumerate(caches):
                prefill(alone, rng.integers(3, config.vocab_size, 3 + 2 * b).tolist(), cache)
            executor.counters.reset()
            executor.counters.record_per_neuron()
            for b, cache in enumerate(caches):
                cache.remember()
                wanted.append([decode_one_token(alone, step[b], cache) for step in steps])
                cache.truncate(3 + 2 * b)
            counters, unions = FfnCounters(config.n_layers, config.d_ff, without=config.mixer_only_layers), None
            ours: FfnExecutor = DenseExecutor(config, weights, operators)
            if mode != "dense":
                ours = UnionExecutor(config, weights, counters, operators, operators.pool, batch, predictor)
                unions = ours.unions
            model = BatchTransformer(Transformer(config, weights, ours, operators), batch, unions)
            model.counters.record_per_neuron()
            for i, tokens in enumerate(steps):
                found = decode_batch(model, tokens, caches)
                np.testing.assert_allclose(found, np.stack([one[i] for one in wanted]), atol=CLOSE)
            np.testing.assert_array_equal(model.counters.layers, executor.counters.layers)
            np.testing.assert_array_equal(model.counters.per_neuron, executor.counters.per_neuron)
            assert model.counters.tokens == executor.counters.tokens == 3 * batch
            assert (model.union_shares() <= 1).all()


def test_words_have_a_bit_for_each_sequence() -> None:
    expected = np.random.default_rng(0).random((32, 50)) < 0.3
    words = np.zeros(50, np.uint32)
    needed_words(expected, words)
    np.testing.assert_array_equal((words >> np.arange(32)[:, None].astype(np.uint32)) & 1, expected)


def test_a_loaded_model_decodes_a_batch(tmp_path: Path) -> None:
    model = LoadedModel.load(make_tiny_model(tmp_path / "model"), EngineConfig(device="cpu", threads=2))
    batch = open_batch(model, 3)
    caches = [model.new_cache() for _ in range(3)]
    logits = decode_batch(batch, [1, 2, 3], caches)
    assert logits.shape == (3, model.opened.config.vocab_size)
    assert [cache.length for cache in caches] == [1, 1, 1]
    for tokens, given in (([1, 2], caches[:2]), ([1, 2, 3], [caches[0], caches[0], caches[1]])):
        with pytest.raises(InvalidRequestError, match="sequences"):
            decode_batch(batch, tokens, given)
    full = model.new_cache(1)
    decode_batch(batch, [1, 2, 3], [full, *caches[:2]])
    with pytest.raises(ContextOverflowError):
        decode_batch(batch, [1, 2, 3], [caches[0], caches[1], full])
    assert caches[0].length == 2
    for bad in (0, 33):
        with pytest.raises(InvalidRequestError, match="at once"):
            open_batch(model, bad)


@pytest.mark.parametrize("name", of_cover(FAMILIES))
def test_every_family_decodes_several_sequences_on_a_gpu(
    any_gpu: Any, name: str, references: Callable[[str], Reference]
) -> None:
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold="f32")
    for mode in ("exact" if config.has_zeros else "dense", "sparse")[: 1 + (name in IN_SPARSE_MODE)]:
        predictor = predictor_of(config, weights, "low_rank")
        check(
            any_gpu,
            (config, weights),
            mode,
            some_hot(config, "random"),
            predictor=predictor,
            least=0.5 if mode == "sparse" else 1.0,
        )


@pytest.mark.parametrize(("name", "on_cpu"), [("gemma4-e", (0,)), ("gemma4-e", (1, 2, 3, 4)), ("gemma3n", (0,)),
                                               ("gemma3n", (1, 2, 3, 4)), ("gemma3n", ())])  # fmt: skip
def test_layers_that_share_keys_are_on_one_side(
    any_gpu: Any, name: str, on_cpu: tuple[int, ...], references: Callable[[str], Reference]
) -> None:
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold="f32")
    hot = [ids[: len(ids) * (i not in on_cpu)] for i, ids in enumerate(some_hot(config, "random"))]
    attention = ["cpu" if i in on_cpu else "gpu" for i in range(config.n_layers)]
    mode, head = "exact" if config.has_some_zeros else "dense", "cpu" if 0 in on_cpu else "gpu"
    check(any_gpu, (config, weights), mode, hot, attention=attention, head=head)


@pytest.mark.parametrize("name", of_cover(WITH_EXPERTS))
def test_every_family_with_experts_decodes_several_sequences_on_a_gpu(
    any_gpu: Any, name: str, references: Callable[[str], Reference]
) -> None:
    """Some experts of a layer on the GPU, all of another, none of a third; then a layer on the CPU; then all."""
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold="f32")
    n, n_layers = config.n_experts, config.n_layers
    placements = [((n // 2, n, 0, 1), "gpu", "gpu"), ((0, 1), "cpu", "cpu"), ((n,), "gpu", "gpu")]
    for counts, home, head in placements if name in EXPERTS_ANYWHERE else placements[:1]:
        attention = [home, *["gpu"] * (n_layers - 1)]
        hot = some_experts(config, [counts[i % len(counts)] for i in range(n_layers)])
        least = 0.8 if config.router_margin else 1.0  # near the margin, rounding leaves out an expert
        check(any_gpu, (config, weights), "dense", hot, attention=attention, head=head, least=least)
