"""Prompts on a GPU, or on a fake of it, against the CPU: families, codecs, what is hot and what is cold."""

from __future__ import annotations

import gc
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import prompt_checks
import pytest
from fakes.prefill import NumpyPrefillOps
from prompt_checks import Setting
from samples.split_model import BASE, EXPERT_FAMILIES, FAMILIES, WITH_EXPERTS, in_a_file, random_weights
from support.arrays_on_gpu import GpuArrays, entered_device
from support.repetitions import some_daily

from engine.config import ModelConfig
from engine.errors import Cancelled
from engine.gpu.prefill.cold_buffers import experts_bytes, least_bytes
from engine.gpu.prefill.prefill import StreamingSpeed, threshold
from engine.gpu.prefill.prefill_memory import sizes_for
from engine.gpu.prefill.streamed_layers import can_stream
from engine.model import window_memory
from engine.model.expert_reads import ExpertReads
from engine.model.kv_cache import StateCopy
from engine.model.weights import FfnWeights
from native_kernels import kv_blocks
from native_kernels.backend import PackedMatrix
from native_kernels.cuda.cublas_trial import use_library
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.runtime.driver import CudaError, Stream
from native_kernels.specs import LatentSpec

Make = Callable[..., Setting]


@pytest.fixture(scope="module")
def gpu() -> Iterator[tuple[Any, Any]]:
    device = entered_device()
    arrays, copy = GpuArrays(device), Stream(device)
    ops = GpuPrefillOps(device, arrays.stream, copy)
    yield arrays, ops
    for thing in (ops, arrays, copy, device):
        thing.close()


@pytest.fixture(scope="module")
def fake() -> Iterator[tuple[Any, Any]]:
    ops = NumpyPrefillOps()
    arrays = GpuArrays(ops.device)
    yield arrays, ops
    arrays.close()


@pytest.fixture(params=["fake", pytest.param("gpu", marks=pytest.mark.gpu)])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    arrays, ops = request.getfixturevalue(request.param)
    made: list[Setting] = []

    def one(config: Any = BASE, **options: Any) -> Setting:
        made.append(Setting(config, arrays, ops, **options))
        return made[-1]

    yield one
    for setting in made:
        setting.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_says_what_the_cpu_says(make: Make, family: str) -> None:
    make(FAMILIES[family]).check(1, 37, 5)


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_by_the_library_of_products(gpu: tuple[Any, Any], family: str) -> None:
    arrays, ops = gpu
    is_used, why = use_library(ops, is_forced=True)
    if not is_used:
        pytest.skip(why)
    setting = Setting(FAMILIES[family], arrays, ops)
    try:
        setting.check(70, 9)
        assert ops.library is not None
    finally:
        setting.close()
        library, ops.library = ops.library, None
        if library is not None:
            library.close()


@pytest.mark.parametrize(("rank", "key_dim", "rotated", "kv_codec", "codec"), [
    (512, 96, 64, "f16", "f16"), (512, 64, 64, "q8_0", "q8_0"), (256, 32, 64, "q8_0", "f16"), (24, 16, 8, "f16", "f32"),
])  # fmt: skip
def test_latent_attention(make: Make, rank: int, key_dim: int, rotated: int, kv_codec: str, codec: str) -> None:
    spec, width = LatentSpec(rank, key_dim, 32), rank + rotated
    config = replace(FAMILIES["latent"], latent=spec, head_dim=width, rotary_dim=rotated, attention_scale=width**-0.5)
    make(config, kv_codec=kv_codec, codec=codec, at_home=lambda i: i != 1).check(1, 37, 50)


@pytest.mark.parametrize("codec", ["f16", "q8_0", "q4_0", "q4_0.lanes", "q8_0.lanes"])
def test_every_codec_is_streamed(make: Make, codec: str) -> None:
    make(codec=codec).check(40, 8)


@pytest.mark.parametrize("kv_codec", ["f32", "f16"])
def test_layers_at_home_on_the_cpu_take_part(make: Make, kv_codec: str) -> None:
    setting = make(at_home=lambda i: i == 1, kv_codec=kv_codec)
    setting.check(20, 30)
    setting = make(at_home=lambda i: i != 1)
    setting.check(20, 30)


@pytest.mark.parametrize("row_wise", [True, False])
@pytest.mark.parametrize("family", EXPERT_FAMILIES)
def test_experts_say_what_the_cpu_says(make: Make, family: str, row_wise: bool) -> None:
    """All of a layer's in slots, some or none."""
    make(EXPERT_FAMILIES[family], row_wise=row_wise).check(1, 37, 5)


@pytest.mark.parametrize("config", [BASE, EXPERT_FAMILIES["relu"], EXPERT_FAMILIES["shared"]])
@pytest.mark.parametrize("counts", [(15, 16, 17, 33), (31, 32, 1, 32), (47, 48, 1), (49, 2, 14, 31)])
def test_prompts_of_every_length_around_the_borders_of_chunks(
    make: Make, config: ModelConfig, counts: tuple[int, ...]
) -> None:
    sizes = sizes_for(config, [w.ffns[0] for w in random_weights(config).layers], 96)
    make(config, sizes=replace(sizes, positions=16)).check(*counts)


@pytest.mark.parametrize("codec", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("in_place", [True, False])
def test_every_codec_of_experts(make: Make, codec: str, in_place: bool) -> None:
    setting = make(WITH_EXPERTS, codec=codec, row_wise=True, in_place=in_place)
    setting.check(40, 8)
    gathered, filled = setting.prefill.buffers
    assert (gathered > 0, filled > 0) == (in_place, not in_place)


def test_experts_that_ram_lacks_are_read_ahead_and_leave_it_again(make: Make) -> None:
    """Each once per chunk; those that were in RAM stay."""
    weights, done = random_weights(WITH_EXPERTS), list[Any]()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        weights = in_a_file(weights, Path(folder, "weights"))
    missing = [1]
    reads = ExpertReads(
        weights.layers, lambda at, n: done.append((at, n, "read")), lambda at, n: done.append((at, n, "evicted")),
        lambda at, n: 0 if missing else n,
    )  # fmt: skip
    setting = make(WITH_EXPERTS, weights=replace(weights, expert_reads=reads))
    setting.check(40)
    reads.wait()
    kinds = {kind: sorted(one[:2] for one in done if one[2] == kind) for kind in ("read", "evicted")}
    assert kinds["read"] == kinds["evicted"] != []
    done.clear()
    missing.clear()
    setting.check(40)
    reads.wait()
    assert not done


def test_experts_one_by_one_and_layers_of_the_cpu(make: Make) -> None:
    config = EXPERT_FAMILIES["shared"]
    sizes = sizes_for(config, [w.ffns[0] for w in random_weights(config).layers], 96)
    least = experts_bytes(random_weights(config).layers[0].experts[0], 1)
    setting = make(config, sizes=replace(sizes, positions=16, buffer_bytes=least), at_home=lambda i: i != 1)
    setting.check(50, 3)
    assert sum(setting.prefill.buffers) == 5 + 8


def test_the_neurons_of_experts_are_counted(make: Make) -> None:
    setting = make(EXPERT_FAMILIES["relu"])
    setting.check(32, 7)
    found, wanted = setting.prefill.counters, setting.oracle.executor.counters
    assert found.tokens == wanted.tokens == 39
    assert found.computed == wanted.computed
    assert np.allclose(found.layers, wanted.layers, rtol=5e-3)


@pytest.mark.parametrize("on_cpu", [None, 0, 1])
@pytest.mark.parametrize("family", ["delta", "convolution", "granite", "nemotron"])
def test_states_go_from_chunk_to_chunk(make: Make, family: str, on_cpu: int | None) -> None:
    """A run that fails changes no state; the next one, of several chunks, begins with the same."""
    config = FAMILIES[family]
    sizes = sizes_for(config, [w.ffns[0] for w in random_weights(config).layers], 96)
    setting = make(config, sizes=replace(sizes, positions=8), at_home=lambda i: i != on_cpu)
    setting.check(19)

    def cancel(share: float) -> None:
        if share > 0.6:
            raise Cancelled

    with pytest.raises(Cancelled):
        setting.prefill.run(np.arange(20), setting.cache, 39, cancel)  # type: ignore[arg-type]
    setting.check(21, 1)


@pytest.mark.parametrize("after", [3, 8, 12, 19])
@pytest.mark.parametrize("family", ["delta", "convolution", "granite"])
def test_the_state_of_a_position_is_copied(make: Make, family: str, after: int) -> None:
    """With a layer on the CPU; `after` is within a chunk or ends one."""
    config = FAMILIES[family]
    sizes = sizes_for(config, [w.ffns[0] for w in random_weights(config).layers], 96)
    setting = make(config, sizes=replace(sizes, positions=8), at_home=lambda i: i != 2)
    tokens, snapshot = np.arange(20), setting.cache.new_snapshot()
    assert snapshot is not None
    whole = setting.prefill.run(tokens, setting.cache, 20, copy=StateCopy(after, snapshot))  # type: ignore[arg-type]
    setting.oracle.forward(tokens[:after], setting.expected)
    np.testing.assert_allclose(snapshot, setting.expected.state(), atol=1e-2)  # products round to halves
    wanted = setting.oracle.forward(tokens[after:], setting.expected)
    np.testing.assert_allclose(whole[after:], wanted, atol=2e-2)


def test_a_stopped_prompt_holds_no_snapshot(make: Make) -> None:
    setting = make(FAMILIES["delta"])
    snapshot = setting.cache.new_snapshot()
    assert snapshot is not None
    held, copy = weakref.ref(snapshot), StateCopy(3, snapshot)
    look = Mock(side_effect=[None, Cancelled])
    with pytest.raises(Cancelled):
        setting.prefill.run(np.arange(20), setting.cache, 20, look, copy=copy)  # type: ignore[arg-type]
    del snapshot, copy, look
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.recurrence is one.latent is None])
def test_layers_of_the_cpu_are_streamed(make: Make, family: str) -> None:
    setting = make(FAMILIES[family], at_home=lambda i: i == 1, streams=1)
    setting.prefill._cpu.layer = None  # type: ignore[assignment, method-assign]  # which would compute them
    setting.check(1, 37, 5)


@pytest.mark.parametrize(
    "codec", some_daily(["f16", "q8_0", "q4_0", "q4_0.lanes", "q8_0.lanes"], ["f16", "q4_0.lanes"])
)
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("row_wise", [True, False])
def test_every_codec_of_streamed_layers(make: Make, codec: str, in_place: bool, row_wise: bool) -> None:
    config = replace(BASE, d_ff=800)
    setting = make(config, at_home=lambda i: False, streams=1, codec=codec, in_place=in_place, row_wise=row_wise)
    setting.check(40, 8)
    gathered, filled = setting.prefill.buffers
    assert (gathered > 0) == in_place
    assert filled == BASE.n_layers if in_place else filled > 0  # keys and values come through the ring


@pytest.mark.parametrize("kv_codec", ["f32", "f16", pytest.param("q8_0", marks=pytest.mark.gpu)])
def test_keys_and_values_of_streamed_layers_are_the_cpus(request: Any, make: Make, kv_codec: str) -> None:
    """Wherever a chunk begins and ends, the CPU finds them."""
    if kv_codec == "q8_0" and "fake" in request.node.name:
        pytest.skip("keys and values of the fake are numbers")
    setting = make(at_home=lambda i: i == 0, kv_codec=kv_codec, streams=9)
    setting.check(30, 2, 9, 1, 20, 3, 31)
    layout = setting.cache.layout
    for row, layer in ((0, 1), (1, 2)):
        found = kv_blocks.read(setting.cache.blocks[row], layout, 96)
        wanted = kv_blocks.read(setting.expected.blocks[layer], layout, 96)
        for some, others in zip(found, wanted, strict=True):
            assert np.abs(some - others).max() < 0.02 * np.abs(others).max()


@pytest.mark.parametrize("streams", [1, 40, None])
def test_layers_of_the_cpu_that_forget_positions(
    make: Make, monkeypatch: pytest.MonkeyPatch, streams: int | None
) -> None:
    """Streamed or not, in chunks that are longer than what their window has memory for, or shorter."""
    monkeypatch.setattr(window_memory, "SLACK", 32)
    monkeypatch.setattr(window_memory, "REWIND", 0)
    monkeypatch.setattr(prompt_checks, "CAPACITY", 320)
    config = replace(BASE, windows=(9, 0, 12)[: BASE.n_layers])
    setting = make(config, at_home=lambda i: False, streams=streams)
    setting.check(50, 3, 120, 7, 70, 60)
    assert setting.cache.local_capacity == 96
    assert setting.cache.local_first == setting.expected.local_first > 96


def test_streamed_layers_in_small_chunks_and_buffers(make: Make) -> None:
    config = replace(BASE, d_ff=1100, activation="relu", biases=("q", "k", "v", "o", "up", "down"), n_kv_heads=4)
    sizes = replace(sizes_for(config, [], 96), positions=16, neurons=256, buffer_bytes=1 << 14, tile_bytes=1 << 16)
    setting = make(config, at_home=lambda i: False, streams=1, sizes=sizes)
    setting.check(50, 3)
    assert sum(setting.prefill.buffers) > 3 * (4 + 2)


def test_neurons_of_streamed_layers_are_counted(make: Make) -> None:
    setting = make(at_home=lambda i: i == 1, streams=8)
    for one in (setting.oracle.executor.counters, setting.prefill.counters):
        one.record_per_neuron()
    setting.check(32, 7)
    found, wanted = setting.prefill.counters, setting.oracle.executor.counters
    assert (found.tokens, found.computed) == (wanted.tokens, wanted.computed)
    assert np.allclose(found.layers, wanted.layers, rtol=2e-3)
    assert found.per_neuron is not None
    assert wanted.per_neuron is not None
    assert np.abs(found.per_neuron[[0, 2]] - wanted.per_neuron[[0, 2]]).max() <= 1


def test_a_stop_leaves_nothing_of_streamed_layers_behind(make: Make) -> None:
    setting = make(at_home=lambda i: False, streams=1)
    setting.check(12)

    def stop(share: float) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        setting.prefill.run(np.arange(9), setting.cache, 21, stop)  # type: ignore[arg-type]
    setting.cache.tokens[12:] = 0
    setting.check(10)


def test_layers_that_cannot_be_streamed() -> None:
    (w, *_) = random_weights(BASE).layers
    assert can_stream(w)
    assert not can_stream(replace(w, up=None, gate=None, down_t=None, experts=w.ffns))
    assert not can_stream(replace(w, o=PackedMatrix(64, 64, "copy4", np.zeros((64, 34), np.uint8))))


@pytest.mark.parametrize("hot", [lambda i: [], lambda i: np.arange(BASE.d_ff)])
def test_nothing_is_hot_or_all_is(make: Make, hot: Any) -> None:
    make(hot=hot).check(33)


def test_neurons_that_the_gpu_reaches_for_are_streamed_too(make: Make) -> None:
    setting = make()
    layers = tuple(
        replace(layer, has_cold=False, zero_copy=layer.block) if layer else None for layer in setting.model.layers
    )
    setting.prefill._model = replace(setting.model, layers=layers)
    setting.check(40, 3)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("codec", ["f16", "q8_0"])
def test_a_down_that_lies_row_wise(make: Make, whole: bool, codec: str) -> None:
    make(replace(BASE, d_ff=800), row_wise=True, whole=whole, codec=codec).check(30, 3)
    make(replace(BASE, d_ff=96), row_wise=True, whole=whole, codec=codec).check(7)


def test_a_row_wise_down_in_the_smallest_buffers(make: Make) -> None:
    config = replace(BASE, d_ff=800)
    layers = [w.ffns[0] for w in random_weights(config, "q4_0", row_wise=True).layers]
    sizes = sizes_for(config, layers, 96, budget_bytes=0)
    setting = make(config, row_wise=True, codec="q4_0", sizes=replace(sizes, buffer_bytes=least_bytes(layers[0])))
    assert setting.prefill._cold.most_neurons(layers[0], 4096) == 256
    setting.check(9)


def test_small_buffers_and_pieces_change_nothing(make: Make) -> None:
    config = replace(BASE, d_ff=1100, activation="relu", biases=("up", "down"))
    setting = make(config)
    small = replace(
        setting.prefill._memory.sizes, positions=16, neurons=256, buffer_bytes=1 << 16, tile_bytes=2 * 256 * 128
    )
    setting = make(config, sizes=small)
    setting.check(50, 3)
    assert setting.prefill._cold.most_neurons(setting.weights.layers[0].ffns[0], 256) < 256


def test_how_fast_cold_neurons_come_is_measured_and_changes_nothing(make: Make) -> None:
    setting = make()
    setting.check(9)
    rates = setting.prefill.measure()
    assert rates is not None
    assert rates.filling > 0
    assert rates.bus > 0
    setting.check(12)
    assert make(hot=lambda i: np.arange(BASE.d_ff)).prefill.measure() is None


def test_buffers_are_filled_and_sent_while_nobody_asks_for_them(make: Make) -> None:
    """As many as there are, and no more: what is in them was not used yet."""
    config = replace(BASE, d_ff=1100)
    small = replace(sizes_for(config, [], 96), neurons=256, buffer_bytes=1 << 16, n_buffers=4)
    setting = make(config, sizes=small)
    stream, sent = setting.prefill._cold, []
    send = stream._ring.send
    stream._ring.send = lambda buffer, n: (sent.append(buffer), send(buffer, n))[1]  # type: ignore[method-assign]
    setting.prefill._missing = setting.prefill._cold_neurons()
    stream.begin(setting.prefill._to_stream(setting.model.layers), 256)
    for _, filling in stream._ahead:
        filling.result(60)
    assert len(sent) == len(set(map(id, sent))) == 4
    stream.stop()
    setting.check(20)


@pytest.mark.parametrize("first", [0, 6])
@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0", "q4_0", "q4_0.lanes"])
def test_what_the_gpu_gathers_in_place_is_what_the_ring_brings(
    make: Make, tmp_path: Path, codec: str, first: int
) -> None:
    """A file's rows begin wherever they do, and their lengths are any."""
    config = replace(BASE, d_ff=1088, d_model=96, activation="relu", biases=("up", "down"))
    sizes = replace(sizes_for(config, [], 96), neurons=256, buffer_bytes=1 << 17)
    mapped = in_a_file(random_weights(config, codec), tmp_path / "weights", first)
    by_ring, in_place = make(config, codec=codec, sizes=sizes), make(config, weights=mapped, in_place=True, sizes=sizes)
    tokens = np.arange(40) % 50
    settings = (by_ring, in_place)
    wanted, found = (one.prefill.run(tokens, one.cache, 40) for one in settings)  # type: ignore[arg-type]
    assert np.isfinite(wanted).all()
    assert np.array_equal(found, wanted)
    gathered, filled = zip(*(one.prefill.buffers for one in settings), strict=True)
    assert gathered[0] == filled[1] == 0
    assert filled[0] == gathered[1] > 3


def test_a_row_wise_down_is_gathered_in_place(make: Make) -> None:
    setting = make(replace(BASE, d_ff=800), row_wise=True, in_place=True)
    setting.check(30)
    gathered, filled = setting.prefill.buffers
    assert gathered > 0
    assert filled == 0


def test_the_ring_goes_on_where_nothing_is_in_place_any_more(make: Make) -> None:
    setting = make(in_place=True)
    setting.check(12)
    assert setting.prefill.buffers[1] == 0
    rates = setting.prefill.measure()  # of the ring, whatever is in place
    assert rates is not None
    assert min(rates.filling, rates.bus) > 0
    setting.check(5)
    assert setting.prefill.buffers[1] == 0
    setting.in_place.close()
    setting.check(12)
    assert setting.prefill.buffers[0] == 0


def test_a_layer_of_which_a_part_cannot_be_reached_comes_through_the_ring(make: Make) -> None:
    setting = make(in_place=True)
    place, find = setting.in_place, setting.in_place.find
    down_t = setting.weights.layers[1].ffns[0].down_t
    assert down_t is not None
    lost = down_t.data.ctypes.data
    place.find = lambda address, n: None if address == lost else find(address, n)  # type: ignore[method-assign]
    setting.check(12)
    gathered, filled = setting.prefill.buffers
    assert gathered == 2 * filled > 0


@pytest.mark.parametrize("streams", [None, 1])
@pytest.mark.parametrize("at_home", [lambda i: True, lambda i: i != 2, lambda i: False])
def test_only_the_last_rows_are_asked_for(make: Make, at_home: Any, streams: Any) -> None:
    sizes = replace(sizes_for(BASE, [], 96), positions=16, buffer_bytes=1 << 16)
    setting = make(sizes=sizes, at_home=at_home, streams=streams)
    tokens = np.arange(40) % 50
    whole = setting.prefill.run(tokens, setting.cache, 40)  # type: ignore[arg-type]
    assert whole.shape == (40, BASE.d_model)
    for last in (1, 11, 40, 99):
        found = setting.prefill.run(tokens, setting.cache, 40, last=last)  # type: ignore[arg-type]
        assert np.array_equal(found, whole[-last:])


@pytest.mark.parametrize(("config", "is_cut"), [
    (FAMILIES["silu"], True), (replace(FAMILIES["olmo"], activation="silu-glu"), True), (BASE, False),
    (FAMILIES["falcon-40b"], False), (EXPERT_FAMILIES["qwen"], False),
    (replace(FAMILIES["nemotron"], activation="gelu"), False),
])  # fmt: skip
def test_the_last_layer_computes_the_rows_that_are_asked_for(
    make: Make, monkeypatch: pytest.MonkeyPatch, config: ModelConfig, is_cut: bool
) -> None:
    setting = make(config, sizes=replace(make(config).prefill._memory.sizes, positions=16))
    whole = setting.prefill.run(np.arange(40), setting.cache, 40)  # type: ignore[arg-type]
    ops = setting.prefill._ops
    monkeypatch.setattr(ops, "activate", spy := Mock(wraps=ops.activate))
    found = setting.prefill.run(np.arange(40), setting.cache, 40, last=1)  # type: ignore[arg-type]
    assert np.allclose(found, whole[-1:], rtol=1e-3, atol=1e-4)
    assert (1 in [call.args[2] for call in spy.call_args_list]) == is_cut


def test_neurons_that_fire_are_counted(make: Make) -> None:
    setting = make()
    for one in (setting.oracle.executor.counters, setting.prefill.counters):
        one.record_per_neuron()
    setting.check(32, 7)
    found, wanted = setting.prefill.counters, setting.oracle.executor.counters
    assert found.tokens == wanted.tokens == 39
    assert found.computed == wanted.computed
    assert np.allclose(found.layers, wanted.layers, rtol=2e-3)
    assert found.per_neuron is not None
    assert wanted.per_neuron is not None
    for i, layer in enumerate(setting.model.layers):
        assert layer is not None
        assert layer.block is not None
        hot = setting.prefill._memory.download_slots([layer.block])[0]
        hot = hot[hot >= 0]
        cold = np.setdiff1d(np.arange(setting.config.d_ff), hot)
        assert (found.per_neuron[i, hot] == 0).all()  # the GPU keeps those
        assert np.abs(found.per_neuron[i, cold] - wanted.per_neuron[i, cold]).max() <= 1


def test_a_stop_between_layers_leaves_the_cache_as_it_was(make: Make) -> None:
    setting = make()
    setting.check(12)
    seen: list[float] = []

    def stop(share: float) -> None:
        seen.append(share)
        if len(seen) == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        setting.prefill.run(np.arange(9), setting.cache, 21, stop)  # type: ignore[arg-type]
    assert seen == [pytest.approx(1 / 3), pytest.approx(2 / 3)]
    assert setting.cache.length == 12
    setting.cache.tokens[12:] = 0
    setting.check(10)


def test_what_fails_is_told_and_nothing_is_left() -> None:
    ops = NumpyPrefillOps()
    arrays = GpuArrays(ops.device)
    for failing, in_place in (("multiply", False), ("gather", True)):
        setting = Setting(BASE, arrays, ops, in_place=in_place)
        ops.failing = failing
        with pytest.raises(CudaError, match="ILLEGAL_ADDRESS"):
            setting.check(5)
        ops.failing = ""
        setting.cache.tokens[:] = 0
        setting.check(5)
        setting.close()
    arrays.close()
    assert not ops.device.driver.memory  # type: ignore[attr-defined]


def test_sizes_keep_to_a_budget() -> None:
    large = replace(BASE, d_model=8192, d_ff=28672, n_heads=64, n_kv_heads=8, head_dim=128, n_layers=80)
    rows = PackedMatrix(28672, 8192, "q4_0.lanes", np.zeros((28672, 4608), np.uint8))
    layers = [FfnWeights(up=rows, gate=rows, down_t=rows)]
    free = sizes_for(large, layers, 4096)
    assert (free.positions, free.neurons, free.buffer_bytes) == (2048, 16384, 32 << 20)
    assert (free.tile_bytes, free.n_buffers) == (64 << 20, 6)
    assert sizes_for(large, layers, 4096, gpu_bytes_per_s=1e12) == free
    assert sizes_for(large, layers, 4096, gpu_bytes_per_s=4e12) == replace(free, tile_bytes=96 << 20)
    enough = sizes_for(large, layers, 4096, budget_bytes=free.gpu_bytes - (128 << 20))
    assert (enough.positions, enough.neurons, enough.tile_bytes) == (2048, 2048, 64 << 20)
    tight = sizes_for(large, layers, 4096, budget_bytes=200 << 20)
    assert tight.gpu_bytes <= 200 << 20
    assert tight.positions == 512
    assert tight.buffer_bytes < 32 << 20
    assert 3 < tight.n_buffers < 6
    assert replace(tight, n_buffers=tight.n_buffers + 1).gpu_bytes > 200 << 20
    tiny = sizes_for(large, layers, 4096, budget_bytes=100 << 20)
    assert tiny.gpu_bytes <= 100 << 20
    assert tiny.positions < 512
    least = sizes_for(large, layers, 4096, budget_bytes=1 << 20)
    assert least.n_buffers == 3
    assert (least.positions, least.buffer_bytes) == (32, 1 << 20)


@pytest.mark.parametrize(
    ("speed", "tokens"),
    [
        (StreamingSpeed(20 << 30, 25e9, 40e9, 0.1), 9),  # 0.86 s of bus
        (StreamingSpeed(20 << 30, 50e9, 20e9, 0.1), 11),  # 1.07 s of filling
        (StreamingSpeed(0, 25e9, 30e9, 0.05), 2),
        (StreamingSpeed(200 << 30, 3e9, 30e9, 0.05), 513),
    ],
)
def test_the_threshold_is_where_a_pass_costs_as_much_as_tokens(speed: StreamingSpeed, tokens: int) -> None:
    assert threshold(speed) == tokens


def test_where_the_gpu_gathers_itself_the_bus_alone_counts() -> None:
    speed = StreamingSpeed(20 << 30, 50e9, 20e9, 0.1)
    assert (threshold(speed), threshold(speed, in_place=True)) == (11, 5)


@pytest.mark.parametrize(
    ("position_s", "ram_bytes_per_s", "tokens"),
    [(0.1, 200e9, [4]), (0.01, 200e9, [40]), (0.0, 200e9, []), (0.0, 40e9, [1])],
)  # 0.4 s over the bus; 0.1 s or 0.5 s for the CPU to read them
def test_layers_are_streamed_where_the_cpu_takes_longer(
    position_s: float, ram_bytes_per_s: float, tokens: list[int]
) -> None:
    speed = StreamingSpeed(0, 50e9, ram_bytes_per_s, 1.0, layer_bytes=20 * 10**9, cpu_position_s=position_s)
    assert [n for n in range(1, 513) if speed.streams_layers(n, in_place=True)][:1] == tokens
