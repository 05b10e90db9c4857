"""Models with experts on GPU and CPU under random placements, exchanges, failures and input that is not a number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes.gpu import FakeCopier, FakeGpu
from samples.experts_gguf import N_EXPERTS, N_USED, make_tiny_mixtral
from support import gpu_tokens
from support.exchanges import moves_at_once
from support.gpu_batches import CLOSE, Batched
from support.gpu_tokens import OnGpu, by_cpu, logits_of, put_on_gpu, some_experts

from engine.config import ModelConfig
from engine.errors import Cancelled, DeviceFailedError
from engine.gpu.weights import expert_exchange, expert_slots
from engine.gpu.weights.expert_slots import ExpertSlots, Move
from engine.model.weights import ModelWeights, load_weights, open_model
from engine.session.generate import decode_batch
from native_kernels.backend import PackedMatrix
from native_kernels.cuda.gpu import NOTHING, Gpu, GpuCopy
from native_kernels.cuda.runtime.driver import CudaError
from native_kernels.reference import ReferenceOperators

TOKENS = np.random.default_rng(4).integers(3, 256, 8).tolist()
Loaded = tuple[ModelConfig, ModelWeights]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_mixtral(tmp_path_factory.mktemp("tiny") / "m.gguf"))
    return opened.config, load_weights(opened, hold="f32")


@pytest.fixture(scope="module")
def wanted(tiny: Loaded) -> Any:
    return by_cpu(*tiny, "dense", TOKENS)[0]


def slots_of(ours: OnGpu) -> ExpertSlots:
    assert ours.loaded.expert_slots is not None
    return ours.loaded.expert_slots


def check_slots(slots: ExpertSlots) -> None:
    """What the host says of slots is one story."""
    for layer, ids in enumerate(slots.expert_in):
        held = ids[ids >= 0]
        assert len(set(held.tolist())) == len(held)
        np.testing.assert_array_equal(np.flatnonzero(slots.residency(layer).resident), np.sort(held))


def exchange_any(slots: ExpertSlots, rng: np.random.Generator) -> None:
    """Move a random expert into a random slot, if a layer has both."""
    layers = [i for i, ids in enumerate(slots.expert_in) if 0 < len(ids) < N_EXPERTS]
    if layers:
        layer = int(rng.choice(layers))
        others = np.setdiff1d(np.arange(N_EXPERTS), slots.expert_in[layer])
        slots.exchange([Move(layer, int(rng.integers(len(slots.expert_in[layer]))), int(rng.choice(others)))])


def placed_anyhow(config: ModelConfig, rng: np.random.Generator) -> dict[str, Any]:
    """Some experts of some layers, and where the layers and the head are."""
    attention = [str(home) for home in rng.choice(["cpu", "gpu"], config.n_layers, p=[0.3, 0.7])]
    attention[int(rng.integers(config.n_layers))] = "gpu"
    counts = [int(rng.integers(N_EXPERTS + 1)) * (home == "gpu") for home in attention]
    hot = some_experts(config, counts, int(rng.integers(100)))
    return {"hot": hot, "attention": attention, "head": str(rng.choice(["cpu", "gpu"]))}


@pytest.mark.parametrize("seed", range(6))
def test_wherever_experts_are_and_move(any_gpu: Gpu, tiny: Loaded, wanted: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours = put_on_gpu(any_gpu, *tiny, "dense", **placed_anyhow(tiny[0], rng))
    slots, cache = slots_of(ours), ours.cache()
    slots.is_adapting = False
    for token, logits in zip(TOKENS, wanted, strict=True):
        np.testing.assert_allclose(ours.decoder.step(token, cache), logits, atol=2e-4, rtol=1e-4)
        exchange_any(slots, rng)
        check_slots(slots)
    ours.close()


@pytest.mark.parametrize(("seed", "batch"), [(0, 3), (1, 3), (2, 3), (3, 1), (4, 8), (5, 17), (6, 32)])
def test_a_batch_wherever_experts_are_and_move(
    any_gpu: Gpu, tiny: Loaded, wanted: Any, seed: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences of the same tokens, some one or two tokens ahead of the others."""
    monkeypatch.setattr(gpu_tokens, "CONTEXT", max(40, 10 * batch))  # which they share
    rng = np.random.default_rng(seed)
    model = Batched(any_gpu, tiny, "dense", batch=batch, **placed_anyhow(tiny[0], rng))
    slots, caches = slots_of(model.on_gpu), [model.on_gpu.cache() for _ in range(batch)]
    slots.is_adapting = False
    ahead = [(batch - 1 - b) % 3 for b in range(batch)]
    for cache, n in zip(caches, ahead, strict=True):
        for token in TOKENS[:n]:
            model.on_gpu.decoder.step(token, cache)
    for i in range(len(TOKENS) - 2):
        found = decode_batch(model.together, [TOKENS[i + n] for n in ahead], caches)
        right = np.stack([wanted[i + n] for n in ahead])
        np.testing.assert_allclose(found, right, atol=CLOSE * np.abs(right).max())
        exchange_any(slots, rng)
    check_slots(slots)
    model.close()


@pytest.mark.parametrize("n_there", [2, N_EXPERTS])
def test_neurons_of_experts_are_counted_as_on_the_cpu(tiny: Loaded, n_there: int) -> None:
    gpu = FakeGpu()
    ours = put_on_gpu(gpu, *tiny, "dense", some_experts(tiny[0], [n_there] * tiny[0].n_layers))
    logits_of(ours.decoder.step, ours.cache(), TOKENS)
    np.testing.assert_array_equal(ours.counters.layers, by_cpu(*tiny, "dense", TOKENS)[1].layers)
    ours.close()
    gpu.close()


def some_there(config: ModelConfig) -> list[Any]:
    return some_experts(config, [2] * config.n_layers)


@pytest.mark.parametrize("kind", ["token", "batch"])
def test_choices_that_no_expert_has_end_in_an_error(tiny: Loaded, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A GPU that publishes them is broken; no memory is read for them."""
    gpu = FakeGpu()
    publish, is_broken = gpu.publish, [True]

    def broken(flag: int, epoch: int, values: GpuCopy, choice: GpuCopy = NOTHING, without: int = 0) -> None:
        if choice.n:
            n = choice.n * N_USED // (2 * N_USED + 1)
            ids = gpu.array(choice.source, n, np.int32)
            gpu.do("break", lambda: np.copyto(ids, np.resize([1 << 30, -7], n), where=is_broken[0]))
        publish(flag, epoch, values, choice, without)

    monkeypatch.setattr(gpu, "publish", broken)
    model = Batched(gpu, tiny, "dense", some_there(tiny[0]), 2)
    slots, step = slots_of(model.on_gpu), model.on_gpu.decoder.step
    caches = [model.on_gpu.cache() for _ in range(2)]
    for token in TOKENS[:3]:
        with pytest.raises(DeviceFailedError, match="layer 0 does not have"):
            decode_batch(model.together, [token] * 2, caches) if kind == "batch" else step(token, caches[0])
    assert [cache.length for cache in caches] == [0, 0]
    assert not slots.heat.any()
    assert not slots.missing.any()
    is_broken[0] = False
    found = step(TOKENS[0], caches[0])
    np.testing.assert_allclose(found, by_cpu(*tiny, "dense", TOKENS[:1])[0][0], atol=2e-4, rtol=1e-4)
    model.close()
    gpu.close()


@pytest.mark.parametrize("rows", [[1], list(range(N_EXPERTS))])
def test_a_router_that_is_no_number_gives_none(any_gpu: Gpu, tiny: Loaded, rows: list[int]) -> None:
    """As on the CPU, and for as many experts as ever, so that nothing wrong is read."""
    config, weights = tiny
    router = weights.layers[0].router
    assert router is not None
    values = ReferenceOperators().rows(router, np.arange(N_EXPERTS)).copy()
    values[rows] = np.nan
    first, *others = weights.layers
    weights = replace(weights, layers=[replace(first, router=PackedMatrix.pack(values, "f32")), *others])
    counted = by_cpu(config, weights, "dense", TOKENS[:2])
    model = Batched(any_gpu, (config, weights), "dense", some_there(config), 2)
    found = logits_of(model.on_gpu.decoder.step, model.on_gpu.cache(), TOKENS[:2])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(counted[0]))
    assert slots_of(model.on_gpu).heat_in_choices[0].sum() == pytest.approx(N_USED * (1 + expert_slots.DECAY), rel=1e-3)
    caches = [model.on_gpu.cache() for _ in range(2)]
    for token in TOKENS[:2]:
        found = decode_batch(model.together, [token, token], caches)
    np.testing.assert_array_equal(np.isnan(found[0]), np.isnan(counted[0][1]))
    model.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_a_token_cancelled_on_its_way_is_none(
    tiny: Loaded, wanted: Any, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    gpu = FakeGpu()
    moves_at_once(monkeypatch.setattr)
    ours = put_on_gpu(gpu, *tiny, "dense", some_there(tiny[0]))
    cache = ours.cache()
    for i, (token, logits) in enumerate(zip(TOKENS, wanted, strict=True)):
        if i == 2:
            cancel_at(gpu, ours, share)
            with pytest.raises(Cancelled):
                ours.decoder.step(token, cache)
            assert cache.length == i
            check_slots(slots_of(ours))
        np.testing.assert_allclose(ours.decoder.step(token, cache), logits, atol=2e-4, rtol=1e-4)
    ours.close()
    gpu.close()


def cancel_at(gpu: FakeGpu, ours: OnGpu, share: float) -> None:
    """Cancel the next token after this share of what the GPU does for it."""
    places = [(work, i) for work in gpu.works.values() for i in range(len(work.steps))]
    work, i = places[round(share * (len(places) - 1))]
    sound = work.steps[i]

    def cancelling() -> None:
        work.steps[i] = sound
        ours.pool.cancel()
        sound[1]()

    work.steps[i] = sound[0], cancelling


@pytest.mark.parametrize(
    ("operation", "n_done"), [("unpack_rows", 0), ("unpack_rows", 4), ("upload", 0), ("upload", 1)]
)
def test_an_exchange_that_fails_leaves_its_slots_empty(
    any_gpu: Gpu, tiny: Loaded, wanted: Any, monkeypatch: pytest.MonkeyPatch, operation: str, n_done: int
) -> None:
    """It fails after so many of these: matrices of experts in their slots, layers with the new slots."""
    ours = put_on_gpu(any_gpu, *tiny, "dense", some_there(tiny[0]))
    slots, cache, done = slots_of(ours), ours.cache(), 0
    slots.is_adapting = False
    logits_of(ours.decoder.step, cache, TOKENS[:2])
    sound = getattr(any_gpu, operation)

    def failing(*given: Any) -> None:
        nonlocal done
        done += 1
        if done > n_done:
            raise CudaError(operation, 719, "CUDA_ERROR_LAUNCH_FAILED")
        sound(*given)

    moves = [
        Move(layer, 1, int(np.setdiff1d(np.arange(N_EXPERTS), ids)[0])) for layer, ids in enumerate(slots.expert_in)
    ]
    with monkeypatch.context() as patch:
        patch.setattr(any_gpu, operation, failing)
        with pytest.raises(CudaError):
            slots.exchange(moves)
    assert done == n_done + 1
    assert any((ids < 0).any() for ids in slots.expert_in)
    check_slots(slots)
    for token, logits in zip(TOKENS[2:], wanted[2:], strict=True):
        np.testing.assert_allclose(ours.decoder.step(token, cache), logits, atol=2e-4, rtol=1e-4)
    check_slots(slots)
    ours.close()


def test_experts_larger_than_the_memory_move_in_parts(
    tiny: Loaded, wanted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeGpu()
    moves_at_once(monkeypatch.setattr)
    monkeypatch.setattr(expert_exchange, "expert_exchange_bytes", lambda n_bytes: n_bytes // 3)
    ours = put_on_gpu(gpu, *tiny, "dense", some_there(tiny[0]))
    slots, cache = slots_of(ours), ours.cache()
    for token, logits in zip(TOKENS, wanted, strict=True):
        np.testing.assert_allclose(ours.decoder.step(token, cache), logits, atol=2e-4, rtol=1e-4)
        check_slots(slots)
    assert slots.exchanged
    ours.close()
    gpu.close()


class InPlace:
    """All host memory is pinned, in registrations of 256 bytes."""

    def find(self, address: int, n_bytes: int) -> int:
        return address

    def ranges(self, address: int, n_bytes: int) -> list[tuple[int, int]]:
        ends = [*range(address // 256 * 256 + 256, address + n_bytes, 256), address + n_bytes]
        return [(start, end - start) for start, end in zip([address, *ends], ends, strict=False)]


@pytest.mark.parametrize("in_place", [False, True])
def test_experts_keep_their_slots_until_others_have_arrived(
    tiny: Loaded, wanted: Any, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    """Pinned weights are copied by the GPU alone; what waits for a slot is computed by the CPU meanwhile."""
    gpu, is_slow = FakeGpu(), [True]
    moves_at_once(monkeypatch.setattr)
    ours = put_on_gpu(gpu, *tiny, "dense", some_there(tiny[0]))
    slots, cache = slots_of(ours), ours.cache()
    if in_place:
        slots.read_in_place(InPlace())
        monkeypatch.delattr(expert_exchange.Gathering, "set")  # the CPU copies nothing
    monkeypatch.setattr(FakeCopier, "has_ended", lambda self: not is_slow[0])
    before = [ids.copy() for ids in slots.expert_in]
    for i, (token, logits) in enumerate(zip(TOKENS, wanted, strict=True)):
        is_slow[0] = i < 4
        np.testing.assert_allclose(ours.decoder.step(token, cache), logits, atol=2e-4, rtol=1e-4)
        if is_slow[0]:
            np.testing.assert_array_equal(slots.expert_in, before)
        check_slots(slots)
    assert slots.exchanged
    ours.close()
    gpu.close()
