"""Recurrent states of conversations on a GPU, or on a fake of it: turns, cuts, stops, snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from samples.split_model import FAMILIES, random_weights
from support.gpu_tokens import OnGpu, by_cpu, logits_of, put_on_gpu, some_hot

from engine.config import Mode, ModelConfig
from engine.errors import Cancelled
from engine.executor.dense import DenseExecutor
from engine.gpu.token.transformer import GpuTransformer
from engine.gpu.weights.cache import GpuCache
from engine.model.graph import Attend, graph_of
from engine.model.weights import ModelWeights
from native_kernels.backend import F32
from native_kernels.cuda.gpu import Gpu
from native_kernels.reference import ReferenceOperators

TOKENS = [3, 14, 15, 9, 26, 5, 35, 8]
HOMES = ("all on the GPU", "states on both sides", "attention on the CPU")
Model = tuple[ModelConfig, ModelWeights]


@pytest.fixture(scope="module", params=["delta", "granite", "nemotron"])
def model(request: pytest.FixtureRequest) -> Model:
    return FAMILIES[request.param], random_weights(FAMILIES[request.param])


@pytest.fixture(scope="module")
def wanted(model: Model) -> dict[tuple[int, ...], F32]:
    """The logits of tokens and of their reverse, by the CPU's own program."""
    orders = tuple(TOKENS), tuple(TOKENS[::-1])
    return {order: by_cpu(*model, mode_of(model[0]), order)[0] for order in orders}


def mode_of(config: ModelConfig) -> Mode:
    return "exact" if config.has_zeros else "dense"


def on(gpu: Gpu, model: Model, homes: str, **how: Any) -> OnGpu:
    config, graph = model[0], graph_of(model[0])
    of_attention = next(i for i, steps in enumerate(graph.layers) if any(isinstance(one, Attend) for one in steps))
    on_cpu = {HOMES[0]: None, HOMES[1]: 0, HOMES[2]: of_attention}[homes]
    attention = ["cpu" if i == on_cpu else "gpu" for i in range(config.n_layers)]
    hot = [ids[: len(ids) * (home == "gpu")] for ids, home in zip(some_hot(config, "random"), attention, strict=True)]
    return put_on_gpu(gpu, *model, mode_of(config), hot, attention=attention, **how)


@pytest.fixture(params=HOMES)
def ours(any_gpu: Gpu, model: Model, request: pytest.FixtureRequest) -> Iterator[OnGpu]:
    found = on(any_gpu, model, request.param)
    yield found
    found.close()


def check(ours: OnGpu, cache: GpuCache, tokens: Sequence[int], wanted: F32) -> None:
    np.testing.assert_allclose(logits_of(ours.decoder.step, cache, tokens), wanted, atol=2e-4, rtol=1e-4)


def test_two_conversations_in_turn(ours: OnGpu, wanted: dict[tuple[int, ...], F32]) -> None:
    caches = [ours.cache() for _ in wanted]
    for i in range(len(TOKENS)):
        for cache, (order, logits) in zip(caches, wanted.items(), strict=True):
            check(ours, cache, order[i : i + 1], logits[i : i + 1])


def test_cuts_to_snapshots_and_to_the_last_run(ours: OnGpu, wanted: dict[tuple[int, ...], F32]) -> None:
    [logits, *_] = wanted.values()
    cache, other = ours.cache(), ours.cache()
    check(ours, cache, TOKENS[:3], logits[:3])
    cache.remember()
    check(ours, cache, TOKENS[3:6], logits[3:6])
    assert [cache.reusable(length) for length in (2, 4, 5, 6)] == [0, 3, 5, 6]
    cache.truncate(5)
    check(ours, cache, TOKENS[5:], logits[5:])
    cache.truncate(3)
    check(ours, cache, TOKENS[3:5], logits[3:5])
    check(ours, other, TOKENS[:2], logits[:2])  # takes the GPU, where only the latest state is saved
    assert [cache.reusable(length) for length in (4, 5)] == [3, 5]
    cache.truncate(3)
    check(ours, cache, TOKENS[3:], logits[3:])
    cache.truncate(0)
    check(ours, cache, TOKENS, logits)


def test_a_stopped_token_leaves_the_state_as_it_was(
    any_gpu: Gpu, model: Model, wanted: dict[tuple[int, ...], F32]
) -> None:
    [logits, *_] = wanted.values()
    ours = on(any_gpu, model, "all on the GPU", execution="eager")
    cache = ours.cache()
    check(ours, cache, TOKENS[:2], logits[:2])
    for patience in (0, 1, 2):
        asked: list[int] = []
        with pytest.raises(Cancelled):
            ours.decoder.step(TOKENS[2], cache, lambda: asked.append(1) or len(asked) > patience)  # noqa: B023
        assert cache.reusable(1) == 0  # the stopped token wrote over the state before the last one
    check(ours, cache, TOKENS[2:], logits[2:])
    ours.close()


def test_a_stopped_prompt_goes_back_as_far_as_it_can(
    ours: OnGpu, model: Model, wanted: dict[tuple[int, ...], F32]
) -> None:
    [logits, *_] = wanted.values()
    ops = ReferenceOperators()
    transformer = GpuTransformer(*model, DenseExecutor(*model, ops), ops, ours.decoder)
    cache = ours.cache()

    def stop(share: float) -> None:
        if share >= 0.5:
            raise Cancelled

    transformer.forward(np.array(TOKENS[:3]), cache)
    cache.remember()
    transformer.forward(np.array(TOKENS[3:4]), cache)
    with pytest.raises(Cancelled):
        transformer.forward(np.array(TOKENS[4:]), cache, look=stop)
    assert cache.length == 3
    found = transformer.logits(transformer.forward(np.array(TOKENS[3:]), cache))
    np.testing.assert_allclose(found, logits[3:], atol=2e-4, rtol=1e-4)
