"""Two sides give what one gives, wherever the neurons are: in operators and as calls, for any number of threads."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples.tiny_model import make_tiny_model

import engine.executor.hybrid as module
from engine.config import ACTIVATIONS, ModelConfig
from engine.conversion.convert import convert
from engine.decode.decode_program import DecodeProgram, Sides
from engine.decode.ffn_calls import COUNT_WORDS, FfnCalls
from engine.decode.hybrid_calls import HybridCalls
from engine.errors import ArtifactMismatchError, InvalidRequestError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.executor.hot_blocks import HotBlocks
from engine.executor.hot_side import CpuHotSide
from engine.executor.hybrid import HybridExecutor
from engine.executor.slots import SlotTable
from engine.executor.sparse import SparseExecutor
from engine.generate import decode_one_token
from engine.model.kv_cache import KVCache
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import LayerWeights, ModelWeights, load_weights, open_model
from engine.sparsity.predictor import GateCopy, LayerPredictor, LowRank, Predictor
from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.copies import pack_copy
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.runtime.call import run as run_calls
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
TOKENS = np.random.default_rng(0).integers(0, 256, 24)
Loaded = tuple[ModelConfig, ModelWeights]
PLACEMENTS = ("empty", "full", "random", "uneven")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("tiny"), n_layers=3))
    return opened.config, load_weights(opened, hold="f32")


def with_activation(loaded: Loaded, activation: str, *, biases: bool) -> Loaded:
    """The tiny model with feed-forward blocks of random numbers, as the activation wants them."""
    threshold = 0.2 if activation == "fatrelu-glu" else 0.0
    config = replace(loaded[0], activation=activation, activation_threshold=threshold)
    rng = np.random.default_rng(3)
    d, f = config.d_model, config.d_ff

    def block(layer: LayerWeights) -> LayerWeights:
        up, gate, down_t = (
            PackedMatrix.pack((rng.standard_normal((f, d)) / 6).astype(np.float32), "f32") for _ in range(3)
        )
        gate_bias, up_bias, down_bias = ((rng.standard_normal(n) / 3).astype(np.float32) for n in (f, f, d))
        if not biases:
            gate_bias = up_bias = down_bias = None
        gated = config.gated
        return replace(layer, up=up, gate=gate if gated else None, down_t=down_t, up_bias=up_bias,
                       gate_bias=gate_bias if gated else None, down_bias=down_bias)  # fmt: skip

    return config, replace(loaded[1], layers=[block(layer) for layer in loaded[1].layers])


def placed(config: ModelConfig, kind: str) -> list[I32]:
    """Hot neurons of every layer, in an order of slots that is not theirs."""
    rng = np.random.default_rng(11)
    shares = {"empty": [0, 0, 0], "full": [1, 1, 1], "random": [0.3, 0.3, 0.3], "uneven": [0.1, 1, 0]}[kind]
    return [rng.permutation(config.d_ff)[: round(share * config.d_ff)].astype(np.int32) for share in shares]


def some_predictor(config: ModelConfig, *, reads: Any = "residual", threshold: float = 0.0) -> Predictor:
    rng = np.random.default_rng(5)

    def layer(rank: int) -> LayerPredictor:
        a, b = rng.standard_normal((rank, config.d_model)), rng.standard_normal((config.d_ff, rank))
        low_rank = LowRank(PackedMatrix.pack(a, "f32"), PackedMatrix.pack(b, "f32"), threshold=threshold)
        return LayerPredictor(low_rank, input=reads)

    return Predictor(tuple(layer(4 + i) for i in range(config.n_layers)))


def hybrid(loaded: Loaded, predictor: Predictor | None, hot: list[I32]) -> HybridExecutor:
    config, weights = loaded
    blocks = HotBlocks(config, weights, hot, lambda n: CpuHotSide(config, weights, n, OPS))
    return HybridExecutor(config, weights, predictor, blocks, OPS)


def one_side(loaded: Loaded, predictor: Predictor | None) -> FfnExecutor:
    if predictor is not None:
        return SparseExecutor(*loaded, predictor, OPS)
    return (ExactExecutor if loaded[0].has_zeros else DenseExecutor)(*loaded, OPS)


def program(loaded: Loaded, executor: HybridExecutor, n_threads: int) -> Transformer:
    assert isinstance(executor.blocks.hot, CpuHotSide)
    sides, pool = Sides(executor.blocks.tables, executor.blocks.hot), Pool(n_threads)
    decoder = DecodeProgram(*loaded, "exact", executor.counters, pool, executor.predictor, sides)
    return Transformer(*loaded, executor, OPS, decoder)


def run(model: Transformer, pieces: list[int]) -> F32:
    cache = KVCache(model.config, len(TOKENS))
    parts = np.split(TOKENS, np.cumsum(pieces)[:-1])
    return np.concatenate([model.logits(model.forward(part, cache)) for part in parts])


def one_by_one(model: Transformer) -> F32:
    cache = KVCache(model.config, len(TOKENS))
    return np.stack([decode_one_token(model, int(token), cache) for token in TOKENS])


def counted(executor: FfnExecutor) -> tuple[int, int, int, int]:
    counters = executor.counters
    return counters.tokens, counters.computed, counters.opened, counters.fired


# ------------------------------------------------------------------ the oracle


@pytest.mark.parametrize("kind", PLACEMENTS)
@pytest.mark.parametrize("activation", ["relu-glu", "silu-glu"])
def test_with_a_predictor_that_returns_every_neuron_it_equals_dense(tiny: Loaded, activation: str, kind: str) -> None:
    loaded = with_activation(tiny, activation, biases=True)
    wanted = run(Transformer(*loaded, DenseExecutor(*loaded, OPS), OPS), [24])
    predictor = some_predictor(loaded[0], threshold=-1e9)
    for pieces in ([24], [1] * 24, [6, 7, 11]):
        executor = hybrid(loaded, predictor, placed(loaded[0], kind))
        np.testing.assert_allclose(run(Transformer(*loaded, executor, OPS), pieces), wanted, atol=2e-4)
        assert executor.counters.active_share == 1.0
    executor = hybrid(loaded, predictor, placed(loaded[0], kind))
    np.testing.assert_allclose(one_by_one(program(loaded, executor, 2)), wanted, atol=2e-4)
    assert executor.counters.active_share == 1.0


# Each is a set of kernels to compile; what parts the neurons does not look at the function.
EVERY_DAY = {("relu", True), ("gelu", False), ("relu-glu", False), ("drelu-glu", True), ("fatrelu-glu", False),
             ("silu-glu", True)}  # fmt: skip


@pytest.mark.parametrize(
    ("activation", "biases"),
    [
        pytest.param(*case, marks=() if case in EVERY_DAY else pytest.mark.slow)
        for case in itertools.product(ACTIVATIONS, (False, True))
    ],
)
def test_every_activation_and_placement_gives_what_one_side_gives(tiny: Loaded, activation: str, biases: bool) -> None:
    """With predictors as sparse mode, without as exact mode, or dense where nothing is zero; the counts too."""
    loaded = with_activation(tiny, activation, biases=biases)
    predictors = [None, some_predictor(loaded[0]), some_predictor(loaded[0], reads="normed", threshold=0.5)]
    for predictor in predictors:
        oracle = one_side(loaded, predictor)
        oracle.counters.record_per_neuron()
        wanted = run(Transformer(*loaded, oracle, OPS), [1] * 24)
        in_all = oracle.counters.take_per_neuron()[0]
        assert in_all.any(axis=1).all()
        for kind in PLACEMENTS:
            for form in ("operators", "calls"):
                executor = hybrid(loaded, predictor, placed(loaded[0], kind))
                executor.counters.record_per_neuron()
                if form == "operators":
                    found = run(Transformer(*loaded, executor, OPS), [1] * 24)
                else:
                    found = one_by_one(program(loaded, executor, 3))
                np.testing.assert_allclose(found, wanted, atol=2e-4)
                # Another order of additions may lift a neuron over its threshold: of some thousand one or two.
                np.testing.assert_allclose(counted(executor), counted(oracle), atol=2)
                assert executor.counters.tokens == 24
                assert np.abs(executor.counters.take_per_neuron()[0] - in_all).sum() <= 2


def test_each_layer_follows_its_own_kind_of_predictor(tiny: Loaded) -> None:
    """Low rank, a cascade with a copy of the gate, and the gate itself."""
    loaded = with_activation(tiny, "relu-glu", biases=True)
    config, weights = loaded
    low, second, _ = some_predictor(config).layers
    gate = weights.layers[1].gate
    scales = np.full((config.d_ff, 1), 0.25, np.float16)
    codes = np.clip(np.rint(gate.data / 0.25 + 1.5), 0, 3).astype(np.uint8)
    copy = GateCopy(pack_copy(codes, scales, 2), -0.3, weights.layers[1].gate_bias)
    predictor = Predictor((low, replace(second, copy=copy), LayerPredictor()))
    assert list(predictor.kinds) == ["low_rank", "cascade", "true_gate"]
    oracle = one_side(loaded, predictor)
    wanted = run(Transformer(*loaded, oracle, OPS), [1] * 24)
    executor = hybrid(loaded, predictor, placed(config, "random"))
    np.testing.assert_allclose(run(Transformer(*loaded, executor, OPS), [4, 20]), wanted, atol=2e-4)
    np.testing.assert_allclose(executor.counters.layers, oracle.counters.layers, atol=2)
    assert 0 < executor.counters.layers[1, 0] < executor.counters.layers[1, 3] < 24 * config.d_ff
    executor = hybrid(loaded, predictor, placed(config, "random"))
    np.testing.assert_allclose(one_by_one(program(loaded, executor, 2)), wanted, atol=2e-4)
    np.testing.assert_allclose(executor.counters.layers, oracle.counters.layers, atol=2)


@pytest.mark.parametrize("codec", ["f16", "q8_0", "q4_0"])
def test_bundles_of_every_codec(tmp_path: Path, codec: str) -> None:
    """A block by itself, to rounding. Coefficients of quantised rows are rounded to bytes, those of a few neurons in
    one, to 1 / 254 of the largest of them (row_sums.py); which neurons are together depends on where they lie.
    """
    source = make_tiny_model(tmp_path / "source", d_model=96, d_ff=160)
    opened = open_model(convert(source, tmp_path / "bundle", codec).bundle)
    config, weights = opened.config, load_weights(opened, hold="mapped")
    products, rng = Products(3), np.random.default_rng(2)
    x = Vector(rng.standard_normal(96).astype(np.float32))
    exact = FfnCalls("exact", config, weights, products, None)
    for share in (0.0, 0.26, 1.0):
        executor = hybrid((config, weights), None, [rng.permutation(160)[: round(share * 160)] for _ in range(2)])
        assert isinstance(executor.blocks.hot, CpuHotSide)
        parted = HybridCalls(config, weights, products, None, executor.blocks.tables, executor.blocks.hot)
        wanted, found = np.zeros((2, 96), np.float32)
        for plan, out in ((exact, wanted), (parted, found)):
            x.renew()
            counts = np.zeros((3, COUNT_WORDS), np.int64)
            run_calls(plan.of_layer(1, x, x, out, counts), 3)
            assert plan.totals(counts[None].repeat(2, axis=0))[:, 2].sum() > 80
        rounded = 1e-6 if codec == "f16" or not share else 0.01
        assert np.sqrt(np.mean((found - wanted) ** 2) / np.mean(wanted**2)) < rounded
        by_operators = ExactExecutor(config, weights, OPS).ffn(1, x.values[None], x.values[None])
        np.testing.assert_allclose(executor.ffn(1, x.values[None], x.values[None]), by_operators, rtol=1e-5, atol=1e-5)


def test_a_hot_side_is_a_copy_of_its_own(tiny: Loaded) -> None:
    """What is hot is computed from the slots alone: wrong numbers there show, those of the model do not."""
    loaded = with_activation(tiny, "relu-glu", biases=True)
    everything = placed(loaded[0], "full")
    for as_program in (False, True):
        executor = hybrid(loaded, None, everything)
        model = program(loaded, executor, 2) if as_program else Transformer(*loaded, executor, OPS)
        up = loaded[1].layers[0].up
        assert isinstance(executor.blocks.hot, CpuHotSide)
        wanted = one_by_one(model)
        saved = up.data.copy()
        up.data[:] = 7
        try:
            assert (one_by_one(model) == wanted).all()
        finally:
            up.data[:] = saved
        executor.blocks.hot.blocks[0].up.data[:] = 0
        assert np.abs(one_by_one(model) - wanted).max() > 1e-3


def test_the_two_sides_work_at_once(tiny: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = hybrid(tiny, None, placed(tiny[0], "random"))
    x, cold_began = np.ones((1, tiny[0].d_model), np.float32), threading.Event()
    wanted = executor.ffn(0, x, x)
    hot_side, cold_side = executor.blocks.hot._compute, module.some_of_each

    def hot(*work: Any) -> Any:
        assert cold_began.wait(60), "the hot side is not waited for before the cold one begins"
        return hot_side(*work)

    def cold(*work: Any) -> Any:
        cold_began.set()
        return cold_side(*work)

    monkeypatch.setattr(executor.blocks.hot, "_compute", hot)
    monkeypatch.setattr(module, "some_of_each", cold)
    assert (executor.ffn(0, x, x) == wanted).all()


# ------------------------------------------------------------------ the same answer each time


def test_any_number_of_threads_and_any_order_of_slots_gives_the_same_bits(tiny: Loaded) -> None:
    loaded = with_activation(tiny, "relu-glu", biases=True)
    for predictor in (None, some_predictor(loaded[0])):
        outputs = []
        for n_threads in (1, 2, 3, 4):
            hot = [np.random.default_rng(n_threads).permutation(ids) for ids in placed(loaded[0], "random")]
            outputs.append(one_by_one(program(loaded, hybrid(loaded, predictor, hot), n_threads)))
        assert all((output == outputs[0]).all() for output in outputs)


@pytest.mark.parametrize("with_predictor", [False, True])
def test_neurons_change_places_between_answers_and_nothing_is_laid_out_anew(tiny: Loaded, with_predictor: bool) -> None:
    loaded = with_activation(tiny, "relu-glu", biases=True)
    predictor = some_predictor(loaded[0]) if with_predictor else None
    executor = hybrid(loaded, predictor, placed(loaded[0], "random"))
    executor.counters.record_per_neuron()
    model = program(loaded, executor, 2)
    before = one_by_one(model)
    assert isinstance(model.decoder, DecodeProgram)
    laid_out = model.decoder.program
    rng = np.random.default_rng(1)
    for layer, table in enumerate(executor.blocks.tables):
        slots, neurons = rng.permutation(table.n_slots)[:7], rng.permutation(table.cold)[:7]
        executor.blocks.exchange(layer, slots.astype(np.int32), neurons)
        assert set(neurons.tolist()) <= set(table.hot.tolist())
    after = one_by_one(model)
    assert model.decoder.program is laid_out
    np.testing.assert_allclose(after, before, atol=2e-4)
    assert (after != before).any()  # the sum runs in another order
    fresh = hybrid(loaded, predictor, [table.hot for table in executor.blocks.tables])
    assert (one_by_one(program(loaded, fresh, 2)) == after).all()
    np.testing.assert_allclose(run(Transformer(*loaded, executor, OPS), [9, 15]), before, atol=2e-4)

    oracle = one_side(loaded, predictor)
    oracle.counters.record_per_neuron()
    run(Transformer(*loaded, oracle, OPS), [24])
    counts, positions = executor.counters.take_per_neuron()
    assert positions == 72
    assert np.abs(counts - 3 * oracle.counters.take_per_neuron()[0]).sum() <= 6  # another order of additions


def test_stages_of_the_exchange_are_measured(tiny: Loaded) -> None:
    model = program(tiny, hybrid(tiny, None, placed(tiny[0], "random")), 1)
    assert isinstance(model.decoder, DecodeProgram)
    model.decoder.measure_stages()
    one_by_one(model)
    assert set(model.decoder.stage_seconds()) == {"embedding", "attention", "norms", "ffn", "exchange", "head"}


# ------------------------------------------------------------------ tables and refusals


def test_a_table_keeps_its_arrays_and_refuses_what_would_lose_a_neuron() -> None:
    table = SlotTable(8, np.array([6, 1, 3], np.int32))
    arrays = (table.slot_of, table.hot_slots, table.cold)
    assert table.hot_slots.tolist() == [1, 2, 0]
    table.put(np.array([0, 2], np.int32), np.array([2, 7], np.int32))
    assert all(one is other for one, other in zip(arrays, (table.slot_of, table.hot_slots, table.cold), strict=True))
    assert table.neuron_in.tolist() == [2, 1, 7]
    assert table.slot_of.tolist() == [-1, 1, 0, -1, -1, -1, -1, 2]
    assert (table.hot_slots.tolist(), table.cold.tolist()) == ([1, 0, 2], [0, 3, 4, 5, 6])
    slots, cold = table.part(np.array([0, 1, 2, 7], np.int32))
    assert (slots.tolist(), cold.tolist()) == ([1, 0, 2], [0])
    for slots_, neurons in (([0], [7]), ([0, 0], [3, 4]), ([0, 1], [3, 3])):
        with pytest.raises(InvalidRequestError, match="Only cold neurons"):
            table.put(np.array(slots_, np.int32), np.array(neurons, np.int32))
    for hot in ([1, 1], [8], [-1]):
        with pytest.raises(InvalidRequestError, match="different numbers below 8"):
            SlotTable(8, np.array(hot, np.int32))


def test_what_cannot_be_parted_is_refused(tiny: Loaded) -> None:
    config, weights = tiny
    row_wise = [replace(w, down_t=None, down=PackedMatrix.pack(w.down_t.data.T, "f32")) for w in weights.layers]
    with pytest.raises(InvalidRequestError, match="row-wise"):
        hybrid((config, replace(weights, layers=row_wise)), None, placed(config, "random"))
    with pytest.raises(InvalidRequestError, match="of 2 layers are placed; the model has 3"):
        hybrid(tiny, None, placed(config, "random")[:2])
    with pytest.raises(ArtifactMismatchError, match="width 16"):
        hybrid(tiny, some_predictor(replace(config, d_model=16)), placed(config, "random"))


def test_a_fault_of_one_side_is_heard_and_the_next_layer_begins_anew(tiny: Loaded, monkeypatch: Any) -> None:
    executor = hybrid(tiny, None, placed(tiny[0], "random"))
    x = np.ones((1, tiny[0].d_model), np.float32)
    wanted = executor.ffn(0, x, x)
    with monkeypatch.context() as patch:
        patch.setattr(executor.blocks.hot, "_compute", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            executor.ffn(0, x, x)
    with monkeypatch.context() as patch:
        patch.setattr(module, "some_of_each", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            executor.ffn(0, x, x)
    assert (executor.ffn(0, x, x) == wanted).all()
