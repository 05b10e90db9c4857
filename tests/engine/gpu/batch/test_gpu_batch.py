"""A batch on GPU and CPU gives every sequence what it gets alone, wherever the model's parts are."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from fakes.gpu import FakeGpu
from samples.predictors import predictor_of
from samples.tiny_model import make_tiny_model
from support.gpu_batches import CLOSE, Batched, check
from support.gpu_tokens import CONTEXT, recoded, some_hot
from support.repetitions import some_daily

from engine.config import ModelConfig
from engine.errors import ContextOverflowError, DeviceFailedError, DeviceMemoryError, InvalidRequestError
from engine.model.weights import ModelWeights, load_weights, open_model
from engine.placement import memory_plan
from engine.session.generate import decode_batch
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cuda.layouts import plane_row_bytes

Loaded = tuple[ModelConfig, ModelWeights]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("tiny"), n_layers=3, tied=False))
    return opened.config, load_weights(opened, hold="f32")


@pytest.mark.parametrize("mode", ["exact", "sparse", "dense"])
@pytest.mark.parametrize("kind", some_daily(["empty", "full", "random"], ["empty", "random"]))
def test_wherever_the_neurons_are(any_gpu: Any, tiny: Loaded, kind: str, mode: str) -> None:
    least = 0.75 if mode == "sparse" else 1.0
    check(any_gpu, tiny, mode, some_hot(tiny[0], kind), predictor=predictor_of(*tiny, "low_rank"), least=least)


def some_reached(config: ModelConfig) -> tuple[list[Any], list[Any]]:
    """Hot neurons and those that the GPU reaches for: some of both, no hot ones, and no cold ones."""
    rng, hot, reached = np.random.default_rng(5), [], []
    for n_hot, n_reached in ((30, 40), (0, 25), (20, config.d_ff - 20)):
        ids = rng.permutation(config.d_ff).astype(np.int32)
        hot.append(np.sort(ids[:n_hot]))
        reached.append(np.sort(ids[n_hot : n_hot + n_reached]))
    return hot, reached


def a_row(config: ModelConfig, codec: str) -> int:
    return sum(plane_row_bytes(codec, config.d_model))


@pytest.mark.parametrize("mode", ["exact", "sparse", "dense"])
@pytest.mark.parametrize("n_slots", some_daily([1000, 17, 1], [17]))
def test_neurons_that_the_gpu_reaches_for_come_in_pieces(
    any_gpu: Any, tiny: Loaded, monkeypatch: pytest.MonkeyPatch, mode: str, n_slots: int
) -> None:
    config = tiny[0]
    hot, reached = some_reached(config)
    monkeypatch.setattr(memory_plan, "STAGING_BYTES", 2 * 3 * (n_slots * a_row(config, "f32") + 256))
    least, predictor = 0.75 if mode == "sparse" else 1.0, predictor_of(*tiny, "low_rank")
    check(any_gpu, tiny, mode, hot, reached=reached, predictor=predictor, least=least)


# In one codec daily, whose kernels for the CPU's rows test_union_ffn needs as well: those of two more take 10 s to
# compile. test_codecs computes in all three on the GPU, and test_rows reads the rows of all three on the CPU.
@pytest.mark.parametrize("codec", some_daily(["f16", "q8_0", "q4_0"], ["q8_0"]))
def test_rows_of_every_codec_are_reached_for(
    any_gpu: Any, tiny: Loaded, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    hot, reached = some_reached(tiny[0])
    monkeypatch.setattr(memory_plan, "STAGING_BYTES", 2 * 3 * (16 * a_row(tiny[0], codec) + 512))
    loaded, predictor = (tiny[0], recoded(tiny[1], codec)), predictor_of(*tiny, "low_rank")
    check(any_gpu, loaded, "exact", hot, close=0.06, reached=reached)
    check(any_gpu, loaded, "sparse", hot, close=0.06, least=0.6, reached=reached, predictor=predictor)


@pytest.mark.parametrize("mode", ["exact", "sparse"])
def test_reaching_changes_nothing_from_run_to_run_and_little_at_all(
    any_gpu: Any, tiny: Loaded, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(memory_plan, "STAGING_BYTES", 2 * 3 * (16 * a_row(tiny[0], "f32") + 256))
    hot, reached = some_reached(tiny[0])
    found, read = [], []
    for beside in (reached, reached, [ids[:0] for ids in reached]):
        model = Batched(any_gpu, tiny, mode, hot, 3, predictor_of(*tiny, "low_rank"), reached=beside)
        try:
            caches = [model.on_gpu.cache() for _ in range(3)]
            steps = ([1, 2, 3], [4, 5, 6], [7, 8, 9])
            found.append(np.stack([decode_batch(model.together, tokens, caches) for tokens in steps]))
            read.append(model.together.routed_shares() * tiny[0].d_ff)
            needed = model.together.union_shares() * tiny[0].d_ff
        finally:
            model.close()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], atol=CLOSE * np.abs(found[2]).max())
    assert not read[2].any()
    np.testing.assert_array_equal(read[0], read[1])
    counts = np.array([len(ids) for ids in reached])
    if mode == "exact":  # all of them are read: nobody knows which are needed
        np.testing.assert_allclose(read[0][:, 0], counts, rtol=1e-5)
    else:
        assert (read[0][:, 0] > 0).all()
        assert (read[0][:, 0] < counts).all()
        assert (read[0][:, 0] <= needed[:, 0] + 1e-3).all()  # of what the CPU read, where it computed them too
    assert (read[0][:, 1] > 0).all()
    assert (read[0][:, 1] <= read[0][:, 0]).all()


@pytest.mark.parametrize(("homes", "head"), [("gcg", "gpu"), ("cgc", "cpu"), ("ccg", "gpu")])
def test_wherever_the_layers_are(any_gpu: Any, tiny: Loaded, homes: str, head: str) -> None:
    attention = ["gpu" if home == "g" else "cpu" for home in homes]
    hot = [ids if home == "g" else ids[:0] for ids, home in zip(some_hot(tiny[0], "random"), homes, strict=True)]
    for mode in ("exact", "sparse"):
        least, predictor = 0.75 if mode == "sparse" else 1.0, predictor_of(*tiny, "low_rank")
        check(any_gpu, tiny, mode, hot, attention=attention, head=head, predictor=predictor, least=least)


@pytest.mark.parametrize("codec", ["f16", "q8_0", "q4_0"])
def test_codecs(any_gpu: Any, tiny: Loaded, codec: str) -> None:
    check(any_gpu, (tiny[0], recoded(tiny[1], codec)), "exact", some_hot(tiny[0], "random"), close=0.06)


def test_what_cannot_be_is_refused(tiny: Loaded) -> None:
    gpu = FakeGpu()
    config = tiny[0]
    with pytest.raises(InvalidRequestError, match="copies"):
        Batched(gpu, tiny, "sparse", some_hot(config, "random"), 2, predictor_of(*tiny, "gate_copy"))
    gpu.memory_bytes = 33 << 20
    with pytest.raises(DeviceMemoryError, match="32 sequences"):
        Batched(gpu, tiny, "exact", some_hot(config, "random"), 32)
    gpu.memory_bytes = 1 << 30
    model = Batched(gpu, tiny, "exact", some_hot(config, "random"), 4)
    caches = [model.on_gpu.cache() for _ in range(4)]
    for _ in range(CONTEXT // 4 // 8 * 8):
        decode_batch(model.together, [1, 2, 3, 4], caches)
    with pytest.raises(ContextOverflowError, match="room for 8"):
        decode_batch(model.together, [1, 2, 3, 4], caches)
    model.close()
    gpu.close()


@pytest.mark.parametrize(("homes", "programs"), [("ggg", 1), ("gcg", 2)])
def test_a_step_is_one_program_between_layers_of_the_cpu(
    tiny: Loaded, monkeypatch: pytest.MonkeyPatch, homes: str, programs: int
) -> None:
    gpu = FakeGpu()
    attention = ["gpu" if home == "g" else "cpu" for home in homes]
    hot = [ids if home == "g" else ids[:0] for ids, home in zip(some_hot(tiny[0], "random"), homes, strict=True)]
    model = Batched(gpu, tiny, "exact", hot, 2, attention=attention)
    caches, ran, run = [model.on_gpu.cache() for _ in range(2)], [], Pool.run

    def counted(pool: Pool, program: Program, *rest: Any, **how: Any) -> bool:
        ran.append("exchange" in program.stages)
        return run(pool, program, *rest, **how)

    monkeypatch.setattr(Pool, "run", counted)
    found = []
    for _ in range(3):
        ran.clear()
        decode_batch(model.together, [1, 2], caches)
        found.append(sum(ran))
    assert found == [homes.count("g"), programs, programs]
    model.close()
    gpu.close()


def test_stages_are_told_apart_since_the_reset(tiny: Loaded) -> None:
    gpu = FakeGpu()
    model = Batched(gpu, tiny, "exact", some_hot(tiny[0], "random"), 2)
    caches = [model.on_gpu.cache() for _ in range(2)]
    decode_batch(model.together, [1, 2], caches)
    found = model.together.stage_seconds()
    assert set(found) == {"exchange", "ffn"}
    assert min(found.values()) > 0
    model.together.reset()
    assert set(model.together.stage_seconds().values()) == {0.0}
    model.close()
    gpu.close()


@pytest.mark.parametrize("known", ["before the step", "while it runs"])
def test_a_gpu_that_fails_is_told_and_the_caches_stay(tiny: Loaded, known: str) -> None:
    gpu = FakeGpu()
    model = Batched(gpu, tiny, "exact", some_hot(tiny[0], "random"), 2)
    caches = [model.on_gpu.cache() for _ in range(2)]
    wanted = decode_batch(model.together, [1, 2], caches)

    def fails() -> None:
        raise RuntimeError("an illegal address")

    going_on = threading.Event()
    gpu.between(lambda: going_on.wait(60) and None)
    gpu.between(fails)
    if known == "before the step":
        going_on.set()
        gpu.settle()
    else:
        threading.Timer(0.05, going_on.set).start()
    with pytest.raises(DeviceFailedError):
        decode_batch(model.together, [3, 4], caches)
    assert [cache.length for cache in caches] == [1, 1]
    for cache in caches:
        cache.truncate(0)
    np.testing.assert_array_equal(decode_batch(model.together, [1, 2], caches), wanted)
    model.close()
    gpu.close()
