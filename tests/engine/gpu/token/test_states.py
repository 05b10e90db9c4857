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


def model_of(family: str) -> Model:
    return FAMILIES[family], random_weights(FAMILIES[family])


@pytest.fixture(scope="module", params=["delta", "granite", "nemotron", "convolution"])
def model(request: pytest.FixtureRequest) -> Model:
    return model_of(request.param)


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


def test_a_stopped_prompt_keeps_the_tokens_so_far(
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
        transformer.forward(np.array(TOKENS[4:]), cache, progress=stop)
    kept = cache.length
    assert 4 < kept < len(TOKENS)
    found = transformer.logits(transformer.forward(np.array(TOKENS[kept:]), cache))
    np.testing.assert_allclose(found, logits[kept:], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("head", ["gpu", "cpu"])
@pytest.mark.parametrize("homes", HOMES)
def test_tokens_that_run_together_each_leave_a_state_to_go_back_to(any_gpu: Gpu, homes: str, head: str) -> None:
    ours = on(any_gpu, model_of("delta"), homes, head=head)
    tokens = np.random.default_rng(1).integers(0, 50, 30).tolist()
    wanted = logits_of(ours.decoder.step, ours.cache(), tokens)
    cache, other, done = ours.cache(), ours.cache(), 0
    ours.decoder.lay_out(cache)
    for n, kept in ((2, 2), (1, 1), (4, 4), (3, 3), (4, 1), (1, 1), (4, 3), (3, 2), (2, 1), (1, 0), (4, 2), (3, 0)):
        assert n <= ours.decoder.most_tokens(cache) == 4
        guesses = [*tokens[done : done + kept + (n == kept)], *range(40, 50)][:n]
        found = ours.decoder.steps(guesses, cache)
        right = kept if n == kept else min(n, kept)
        np.testing.assert_array_equal(found[:right], wanted[done : done + right])
        assert [cache.reusable(done + i) for i in range(n + 1)] == [done + i for i in range(n + 1)]
        done += kept
        cache.truncate(done)
        if n == 3:  # another conversation takes the GPU, and gives it back
            check(ours, other, tokens[:1], wanted[:1])
            other.truncate(0)
    check(ours, cache, tokens[done : done + 3], wanted[done : done + 3])
    ours.close()


@pytest.mark.parametrize("kept", [0, 2, 4])
def test_a_copy_of_positions_leaves_the_last_run_to_go_back_in(any_gpu: Gpu, kept: int) -> None:
    ours = on(any_gpu, model_of("delta"), "all on the GPU")
    wanted = logits_of(ours.decoder.step, ours.cache(), TOKENS)
    cache = ours.cache()
    ours.decoder.lay_out(cache)
    ours.decoder.step(TOKENS[0], cache)
    ours.decoder.steps(TOKENS[1:5], cache)
    cache.positions(0, cache.length)
    cache.truncate(1 + kept)
    check(ours, cache, TOKENS[1 + kept :], wanted[1 + kept :])
    ours.close()


@pytest.mark.parametrize("together", [False, True])
def test_a_prompt_remembers_its_state_where_it_is_told_to(any_gpu: Gpu, together: bool) -> None:
    model, ops = model_of("delta"), ReferenceOperators()
    ours = on(any_gpu, model, "all on the GPU")
    wanted = logits_of(ours.decoder.step, ours.cache(), TOKENS)
    cache = ours.cache()
    if together:
        ours.decoder.lay_out(cache)
    transformer = GpuTransformer(*model, DenseExecutor(*model, ops), ops, ours.decoder)
    transformer.prefill(np.array(TOKENS), cache, remembered=3)
    assert list(cache.snapshots) == [3]
    cache.truncate(3)
    check(ours, cache, TOKENS[3:], wanted[3:])
    ours.close()


def test_the_trail_gets_the_hidden_states_of_every_run(any_gpu: Gpu) -> None:
    noted: list[tuple[int, F32]] = []

    class Trail:
        def add(self, first: int, hidden: F32) -> None:
            noted.extend((first + i, one) for i, one in enumerate(hidden))

        def cut(self, length: int) -> None:
            del noted[length:]

    wanted: list[F32] = []
    for homes, head in zip(HOMES, ("gpu", "gpu", "cpu"), strict=True):
        ours = on(any_gpu, model_of("delta"), homes, head=head)
        cache = ours.cache()
        cache.trail = Trail()  # type: ignore[assignment]
        wanted = [ours.decoder.hidden(token, cache, cache.length + 1) for token in TOKENS]
        noted.clear()
        cache.truncate(0)
        ours.decoder.lay_out(cache)
        for n in (1, 4, 3):
            ours.decoder.steps(TOKENS[cache.length : cache.length + n], cache)
        assert [at for at, _ in noted] == list(range(8))
        np.testing.assert_array_equal(np.stack([one for _, one in noted]), np.stack(wanted))
        ours.close()
