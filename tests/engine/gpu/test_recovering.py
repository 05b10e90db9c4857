"""A token that fails, wherever it does, leaves nothing behind: the next one is as a fresh program computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fakes.gpu import FakeGpu
from samples.tiny_model import make_tiny_model
from support.gpu_tokens import OnGpu, logits_of, put_on_gpu, some_hot

from engine.config import ModelConfig
from engine.errors import DeviceFailedError
from engine.model.weights import ModelWeights, load_weights, open_model

TOKENS = np.random.default_rng(4).integers(0, 256, 5).tolist()
Loaded = tuple[ModelConfig, ModelWeights]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("tiny"), n_layers=3, tied=False))
    return opened.config, load_weights(opened, hold="f32")


@pytest.fixture
def gpu() -> Iterator[FakeGpu]:
    found = FakeGpu()
    yield found
    found.close()


def fails() -> None:
    raise ArithmeticError("a wire came loose")


def check_next(ours: OnGpu, gpu: FakeGpu, fail: Callable[[], None]) -> None:
    """Two tokens, one that fails, and the same again: as if nothing had been, in its numbers and in what is counted."""
    wanted = logits_of(ours.decoder.step, ours.cache(), TOKENS)
    counted = ours.counters.layers.copy()
    ours.counters.reset()
    cache = ours.cache()
    logits_of(ours.decoder.step, cache, TOKENS[:2])
    fail()
    with pytest.raises(DeviceFailedError):
        ours.decoder.step(TOKENS[2], cache)
    assert cache.length == 2
    found = logits_of(ours.decoder.step, cache, TOKENS[2:])
    assert (found == wanted[2:]).all()
    np.testing.assert_array_equal(ours.counters.layers, counted)


@pytest.mark.parametrize("execution", ["segments", "eager"])
def test_a_launch_that_is_refused(gpu: FakeGpu, tiny: Loaded, execution: Any) -> None:
    ours = put_on_gpu(gpu, *tiny, "exact", some_hot(tiny[0], "random"), execution=execution)

    def fail() -> None:
        gpu.between(fails)
        gpu.settle()  # it is known before the token begins

    check_next(ours, gpu, fail)
    ours.close()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_work_that_fails_while_it_runs(gpu: FakeGpu, tiny: Loaded, share: float) -> None:
    ours = put_on_gpu(gpu, *tiny, "exact", some_hot(tiny[0], "random"))
    stop = ours.decoder._alone.tokens[0].shared.stop.array

    def fail() -> None:
        places = [(work, i) for work in gpu.works.values() for i in range(len(work.steps))]
        work, i = places[round(share * (len(places) - 1))]
        sound = work.steps[i]

        def failing() -> None:
            work.steps[i] = sound
            stop[0] = 1  # nobody waits until patience is at its end
            fails()

        work.steps[i] = sound[0], failing

    check_next(ours, gpu, fail)
    ours.close()
