"""A token on GPU and CPU equals the CPU's own program, wherever the model's parts are."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.gpu import FakeGpu
from samples.predictors import predictor_of
from samples.recoded_gguf import recode
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.gpu_tokens import CONTEXT, by_cpu, logits_of, put_on_gpu, recoded, some_hot
from support.repetitions import some_daily

from engine.config import ModelConfig, RopeScaling
from engine.errors import Cancelled, ContextOverflowError, DeviceFailedError
from engine.executor.exact import ExactExecutor
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import LayerWeights, ModelWeights, StoredKernels, load_weights, open_model
from native_kernels.backend import PackedMatrix
from native_kernels.cpu.products.transposed import transposed
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import ONE_VECTOR, Gpu
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError
from native_kernels.cuda.runtime.modules import NoMachineCodeError
from native_kernels.reference import ReferenceOperators

CLOSE = 1e-4  # only the order of additions differs
TOKENS = np.random.default_rng(0).integers(0, 256, 6).tolist()
Loaded = tuple[ModelConfig, ModelWeights]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("tiny"), n_layers=3, tied=False))
    return opened.config, load_weights(opened, hold="f32")


def with_activation(loaded: Loaded, activation: str) -> Loaded:
    """The tiny model with biases, and feed-forward blocks as the activation wants them."""
    config = replace(loaded[0], activation=activation, activation_threshold=0.2 if "fatrelu" in activation else 0.0)
    rng = np.random.default_rng(3)
    d, f = config.d_model, config.d_ff

    def block(layer: LayerWeights) -> LayerWeights:
        gate_bias, up_bias, down_bias = ((rng.standard_normal(n) / 3).astype(np.float32) for n in (f, f, d))
        if not config.gated:
            return replace(layer, gate=None, up_bias=up_bias, down_bias=down_bias)
        return replace(layer, gate_bias=gate_bias, up_bias=up_bias, down_bias=down_bias)

    return config, replace(loaded[1], layers=[block(layer) for layer in loaded[1].layers])


def whole_down(layer: LayerWeights) -> LayerWeights:
    """The layer with a down as files have it, row by row."""
    assert layer.down_t is not None
    down = ReferenceOperators().rows(layer.down_t, np.arange(layer.down_t.n_rows)).T
    return replace(layer, down_t=None, down=PackedMatrix.pack(np.ascontiguousarray(down), layer.down_t.codec))


def check(gpu: Gpu, loaded: Loaded, mode: Any, hot: Any, close: float = CLOSE, **how: Any) -> None:
    """Logits and counts as the CPU has them."""
    config, weights = loaded
    predictor = how.pop("predictor", None)
    wanted, counted = by_cpu(config, weights, mode, TOKENS, predictor, how.get("kv_codec", "f32"))
    ours = put_on_gpu(gpu, config, weights, mode, hot, predictor, **how)
    try:
        found = logits_of(ours.decoder.step, ours.cache(), TOKENS)
        np.testing.assert_allclose(found, wanted, atol=close)
        if close == CLOSE:
            np.testing.assert_array_equal(ours.counters.layers, counted.layers)
        assert ours.counters.tokens == counted.tokens
    finally:
        ours.close()


@pytest.mark.parametrize("execution", ["segments", "eager"])
@pytest.mark.parametrize("kind", ["empty", "full", "random", "uneven"])
def test_wherever_the_neurons_are(any_gpu: Gpu, tiny: Loaded, kind: str, execution: str) -> None:
    check(any_gpu, tiny, "exact", some_hot(tiny[0], kind), execution=execution)


@pytest.mark.parametrize("mode", ["exact", "sparse", "dense"])
def test_neurons_that_the_gpu_reaches_for_in_the_host_s_memory(any_gpu: Gpu, tiny: Loaded, mode: str) -> None:
    config = tiny[0]
    rng = np.random.default_rng(5)
    hot, reached = [], []
    for n_hot, n_reached in ((30, 40), (0, 25), (20, config.d_ff - 20)):
        ids = rng.permutation(config.d_ff).astype(np.int32)
        hot.append(np.sort(ids[:n_hot]))
        reached.append(np.sort(ids[n_hot : n_hot + n_reached]))
    check(any_gpu, tiny, mode, hot, reached=reached, predictor=predictor_of(*tiny, "low_rank"))
    codec = recoded(tiny[1], "q4_0", "q4_0")
    check(any_gpu, (config, codec), mode, hot, 0.15, reached=reached, predictor=predictor_of(*tiny, "low_rank"))


@pytest.mark.parametrize(("homes", "head"), [
    *((homes, head) for homes in ("gcg", "cgc", "ggc", "cgg") for head in ("gpu", "cpu")), ("ccc", "gpu"),
])  # fmt: skip
def test_wherever_layers_and_head_are(any_gpu: Gpu, tiny: Loaded, homes: str, head: str) -> None:
    attention = ["gpu" if home == "g" else "cpu" for home in homes]
    hot = [ids if home == "g" else ids[:0] for ids, home in zip(some_hot(tiny[0], "random"), homes, strict=True)]
    check(any_gpu, tiny, "exact", hot, attention=attention, head=head)
    check(any_gpu, tiny, "dense", hot, attention=attention, head=head)


@pytest.mark.parametrize(("mode", "codec", "homes"), [
    ("dense", "q4_0", "ggg"), ("dense", "f16", "cgg"), ("exact", "q8_0", "gcg"), ("sparse", "f16", "ggc"),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["full", "random"])
def test_tokens_that_run_together_are_those_of_one_after_the_other(
    any_gpu: Gpu, tiny: Loaded, kind: str, mode: Any, codec: str, homes: str
) -> None:
    config, weights = tiny[0], recoded(tiny[1], codec)
    weights = replace(weights, layers=[whole_down(w) if kind == "full" else w for w in weights.layers])
    attention = ["gpu" if home == "g" else "cpu" for home in homes]
    hot = [ids if home == "g" else ids[:0] for ids, home in zip(some_hot(config, kind), homes, strict=True)]
    predictor = predictor_of(*tiny, "low_rank")
    ours = put_on_gpu(any_gpu, config, weights, mode, hot, predictor, attention=attention, kv_codec="f16")
    tokens = np.random.default_rng(1).integers(0, 256, 30).tolist()
    try:
        wanted = logits_of(ours.decoder.step, ours.cache(), tokens)
        alone, cache = ours.counters.tokens, ours.cache()
        assert ours.decoder.most_tokens(cache) == 1
        ours.decoder.lay_out(cache)
        ours.decoder.lay_out(cache)
        found: list[Any] = []
        for n in (2, 1, 3, 5, 8, 4, 7):
            assert n <= ours.decoder.most_tokens(cache)
            found += list(ours.decoder.steps(tokens[len(found) : len(found) + n], cache))
            assert cache.length == len(found)
        np.testing.assert_array_equal(np.stack(found), wanted)
        assert ours.counters.tokens == alone + 30
        assert [cache.tokens[i] for i in range(30)] == tokens
        cache.truncate(11)  # guesses that were wrong
        np.testing.assert_array_equal(ours.decoder.steps(tokens[11:15], cache), wanted[11:15])
        assert ours.decoder.most_tokens(cache) == 8
        ours.decoder.steps(tokens[:7], cache)
        assert ours.decoder.most_tokens(cache) == 8
        ours.decoder.steps(tokens[:8], cache)
        ours.decoder.steps(tokens[:4], cache)
        assert (cache.length, ours.decoder.most_tokens(cache)) == (34, 4)  # of 40
    finally:
        ours.close()


def test_tokens_that_are_rotated_by_the_length_do_not_run_together(any_gpu: Gpu, tiny: Loaded) -> None:
    config = replace(tiny[0], rope_scaling=RopeScaling("dynamic", 3.0, original_context=8))
    ours = put_on_gpu(any_gpu, config, tiny[1], "dense", some_hot(config, "full"))
    tokens = np.random.default_rng(1).integers(0, 256, 14).tolist()
    wanted, cache = logits_of(ours.decoder.step, ours.cache(), tokens), ours.cache()
    ours.decoder.lay_out(cache)
    found: list[Any] = []
    for n in (4, 2, 2, 1, 1, 1, 1, 1, 1):  # the last eight tokens are beyond the border
        found += list(ours.decoder.steps(tokens[len(found) : len(found) + n], cache))
        assert len(found) < 7 or ours.decoder.most_tokens(cache) == 1
    np.testing.assert_array_equal(np.stack(found), wanted)
    ours.close()


def test_a_run_of_several_tokens_that_is_cancelled_changes_nothing(
    any_gpu: Gpu, tiny: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("native_kernels.cpu.runtime.pool.SLICE_S", 0.0)  # asked behind every call
    ours = put_on_gpu(any_gpu, *tiny, "exact", some_hot(tiny[0], "random"))
    cache = ours.cache()
    wanted = logits_of(ours.decoder.step, ours.cache(), TOKENS)
    ours.decoder.lay_out(cache)
    ours.decoder.steps(TOKENS[:2], cache)
    with pytest.raises(Cancelled):
        ours.decoder.steps(TOKENS[2:], cache, lambda: True)
    assert cache.length == 2
    np.testing.assert_array_equal(ours.decoder.steps(TOKENS[2:], cache), wanted[2:])
    for n, asked in ((2, 1), (4, 3), (3, 6)):  # then runs of other sizes
        cache.truncate(0)
        calls = iter([False] * asked + [True] * 99)
        with pytest.raises(Cancelled):
            ours.decoder.steps(TOKENS[:n], cache, lambda calls=calls: next(calls))
        np.testing.assert_array_equal(ours.decoder.steps(TOKENS[:2], cache), wanted[:2])
        np.testing.assert_array_equal(ours.decoder.step(TOKENS[2], cache), wanted[2])
        np.testing.assert_array_equal(ours.decoder.steps(TOKENS[3:], cache), wanted[3:])
    ours.close()


def test_what_fails_while_several_tokens_are_laid_out_is_given_back(
    tiny: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (NoMachineCodeError("no compiler"), CudaError("cuStreamEndCapture", 719, "CUDA_ERROR_LAUNCH_FAILED")):
        gpu = FakeGpu()
        ours = put_on_gpu(gpu, *tiny, "exact", some_hot(tiny[0], "random"))
        cache, held, usual = ours.cache(), len(gpu._memory), gpu.multiply

        def fail(*of: Any, batch: Any = ONE_VECTOR, error: Exception = error, usual: Any = usual, **how: Any) -> None:
            if batch.n > 1:
                raise error
            usual(*of, **how)

        monkeypatch.setattr(gpu, "multiply", fail)
        ours.decoder.lay_out(cache)
        ours.decoder.lay_out(cache)
        assert (ours.decoder.most_tokens(cache), len(gpu._memory)) == (1, held)
        assert ours.decoder.steps(TOKENS[:1], cache).shape == (1, 270)
        ours.close()
        gpu.close()


def test_several_tokens_do_without_memory_that_is_not_there(tiny: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    ours = put_on_gpu(gpu, *tiny, "exact", some_hot(tiny[0], "random"))
    cache, held = ours.cache(), len(gpu._memory)

    def none_left(n_bytes: int) -> Any:
        raise CudaOutOfMemoryError("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(gpu, "pin", none_left)
    ours.decoder.lay_out(cache)
    monkeypatch.undo()
    ours.decoder.lay_out(cache)  # it is not tried again
    assert (ours.decoder.most_tokens(cache), len(gpu._memory)) == (1, held)
    assert ours.decoder.steps(TOKENS[:1], cache).shape == (1, 270)
    ours.close()
    gpu.close()


@pytest.mark.parametrize(
    "activation", ["relu", "relu2", "relu-glu", "drelu-glu", "fatrelu-glu", "silu-glu", "gelu", "gelu-tanh-glu"]
)
def test_activations_and_biases(any_gpu: Gpu, tiny: Loaded, activation: str) -> None:
    loaded = with_activation(tiny, activation)
    predictor = predictor_of(*loaded, "low_rank", "cascade", "true_gate")
    for mode in ("dense", "exact", "sparse") if loaded[0].has_zeros else ("dense", "sparse"):
        close = CLOSE if mode != "sparse" else 2e-3  # copies round what they are multiplied with
        check(any_gpu, loaded, mode, some_hot(tiny[0], "uneven"), close, predictor=predictor)


@pytest.mark.parametrize("kind", ["low_rank", "gate_copy", "cascade", "sign", "true_gate"])
@pytest.mark.parametrize("reads", ["normed", "residual"])
def test_every_kind_of_predictor(any_gpu: Gpu, tiny: Loaded, kind: Any, reads: Any) -> None:
    predictor = predictor_of(*tiny, kind, reads=reads)
    check(any_gpu, tiny, "sparse", some_hot(tiny[0], "random"), predictor=predictor)
    mixed = predictor_of(*tiny, kind, "low_rank", reads=reads)
    hot = [some_hot(tiny[0], "random")[0], np.zeros(0, np.int32), np.arange(tiny[0].d_ff, dtype=np.int32)]
    check(any_gpu, tiny, "sparse", hot, predictor=mixed, attention=["gpu", "cpu", "gpu"])


@pytest.mark.parametrize("codec", ["f16", "bf16", "q8_0", "q4_0", "q8_0.lanes", "q4_0.lanes"])
def test_codecs_neuron_by_neuron(any_gpu: Gpu, tiny: Loaded, codec: str) -> None:
    config, weights = tiny
    close = CLOSE if codec in ("f16", "bf16") else 0.15  # both sides round what is multiplied, each in its own way
    again = recoded(weights, codec.partition(".")[0], codec)
    for mode in ("exact", "dense"):
        check(any_gpu, (config, again), mode, some_hot(config, "random"), close)


@pytest.mark.parametrize("codec", some_daily(["mxfp4", "q5_k", "q5_1", "iq4_xs", "q3_k"], ["mxfp4", "q5_k"]))
def test_files_in_other_codecs(any_gpu: Gpu, tmp_path: Path, codec: str) -> None:
    wide = make_tiny_gguf(tmp_path / "m.gguf", d_model=256, d_ff=256, n_heads=4, n_kv_heads=2, n_layers=1)
    opened = open_model(recode(wide, tmp_path / f"{codec}.gguf", codec))
    config, weights = opened.config, load_weights(opened, hold="mapped")
    assert weights.layers[0].ffns[0].up.codec == codec
    # both sides round what is multiplied, each in its own way; MXFP4 has the coarsest weights: 0.081 on an H100
    close = 0.15 if codec == "mxfp4" else 0.05
    check(any_gpu, (config, weights), "dense", [np.arange(config.d_ff, dtype=np.int32)], close)


@pytest.mark.parametrize("mode", ["dense", "exact", "sparse"])
def test_down_that_lies_row_by_row_is_whole_on_either_side(any_gpu: Gpu, tmp_path: Path, mode: str) -> None:
    opened = open_model(make_tiny_gguf(tmp_path / "m.gguf", n_layers=4, tied=False))
    config, weights = opened.config, load_weights(opened, hold="mapped")
    assert weights.down_is_row_wise
    every = np.arange(config.d_ff, dtype=np.int32)
    hot = [every, every[:0], every, every[:0]]
    predictor = predictor_of(config, weights, "true_gate", "low_rank", reads="residual")
    for head in ("gpu", "cpu"):
        check(any_gpu, (config, weights), mode, hot, predictor=predictor, head=head,
              attention=["gpu", "gpu", "gpu", "cpu"])  # fmt: skip


@pytest.mark.parametrize("codec", ["q4_0", "f16"])
def test_neurons_of_a_copied_down_are_split(any_gpu: Gpu, tmp_path: Path, codec: str) -> None:
    source = make_tiny_gguf(tmp_path / "m.gguf", d_model=64, d_ff=128, tied=False)
    opened = open_model(recode(source, tmp_path / f"{codec}.gguf", codec))
    weights = load_weights(opened, kernels=StoredKernels("as requested", lambda matrix: transposed(matrix, Pool(1))))
    assert weights.layers[0].ffns[0].down_t.codec == ("f16" if codec == "f16" else "q8_0.lanes")
    for mode in ("exact", "dense"):
        close = CLOSE if codec == "f16" else 0.15  # both sides round what is multiplied, each in its own way
        check(any_gpu, (opened.config, weights), mode, some_hot(opened.config, "random"), close)


@pytest.mark.parametrize("kv_codec", ["f16", "q8_0"])
def test_keys_and_values_in_fewer_bits(any_gpu: Gpu, tiny: Loaded, kv_codec: Any) -> None:
    check(any_gpu, tiny, "exact", some_hot(tiny[0], "random"), 0.02, kv_codec=kv_codec,
          attention=["gpu", "gpu", "gpu"])  # fmt: skip


def test_any_number_of_threads_gives_the_same_bits(any_gpu: Gpu, tiny: Loaded) -> None:
    predictor, found = predictor_of(*tiny, "low_rank"), []
    for threads in (1, 2, 3):
        ours = put_on_gpu(any_gpu, *tiny, "sparse", some_hot(tiny[0], "random"), predictor, threads=threads)
        found.append(logits_of(ours.decoder.step, ours.cache(), TOKENS))
        ours.close()
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


@pytest.fixture
def ours(any_gpu: Gpu, tiny: Loaded) -> Any:
    found = put_on_gpu(any_gpu, *tiny, "exact", some_hot(tiny[0], "random"))
    yield found
    found.close()


@pytest.mark.parametrize("execution", ["segments", "eager"])
def test_a_stop_within_a_token_leaves_the_cache_as_it_was(
    any_gpu: Gpu, tiny: Loaded, execution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("native_kernels.cpu.runtime.pool.SLICE_S", 0.0)  # asked behind every call
    wanted, _ = by_cpu(*tiny, "exact", TOKENS)
    ours = put_on_gpu(any_gpu, *tiny, "exact", some_hot(tiny[0], "random"), execution=execution)
    cache = ours.cache()
    ours.decoder.step(TOKENS[0], cache)
    for patience in (0, 1, 3):
        asked: list[int] = []
        with pytest.raises(Cancelled):
            ours.decoder.step(TOKENS[1], cache, lambda: asked.append(1) or len(asked) > patience)  # noqa: B023
        assert (cache.length, ours.counters.tokens) == (1, 1)
    ours.counters.reset()
    found = logits_of(ours.decoder.step, cache, TOKENS[1:])
    np.testing.assert_allclose(found, wanted[1:], atol=CLOSE)
    assert (ours.counters.layers <= len(TOKENS) * tiny[0].d_ff).all()
    ours.close()


def test_a_gpu_that_is_late_ends_the_token_with_an_error(tiny: Loaded) -> None:
    gpu = FakeGpu()
    ours = put_on_gpu(gpu, *tiny, "exact", some_hot(tiny[0], "random"), patience_s=1.5)
    cache, gate = ours.cache(), threading.Event()
    wanted = logits_of(ours.decoder.step, cache, TOKENS)
    cache.truncate(2)
    runner = ours.decoder._runner
    recover = runner.recover

    def it_moves_again() -> None:
        gate.set()
        recover()  # waits until what was on its way has ended

    runner.recover = it_moves_again  # type: ignore[method-assign]
    gpu.between(lambda: gate.wait() and None)
    with pytest.raises(DeviceFailedError, match=r"1\.5 seconds"):
        ours.decoder.step(TOKENS[2], cache)
    runner.recover = recover  # type: ignore[method-assign]
    assert cache.length == 2
    again = logits_of(ours.decoder.step, cache, TOKENS[2:])
    assert (again == wanted[2:]).all()
    ours.close()
    gpu.close()


def test_what_goes_wrong_on_the_gpu_is_said(tiny: Loaded) -> None:
    gpu = FakeGpu()
    ours = put_on_gpu(gpu, *tiny, "exact", some_hot(tiny[0], "random"))
    cache = ours.cache()

    def fail() -> None:
        raise ArithmeticError("a wire came loose")

    gpu.between(fail)
    with pytest.raises(DeviceFailedError, match="a wire came loose"):
        ours.decoder.step(TOKENS[0], cache)
    assert cache.length == 0
    ours.decoder.step(TOKENS[0], cache)
    ours.close()
    gpu.close()


@pytest.mark.parametrize("kv_codec", ["f32", "f16", "q8_0"])
def test_two_conversations_in_turn_are_those_alone(any_gpu: Gpu, tiny: Loaded, kv_codec: Any) -> None:
    hot = some_hot(tiny[0], "random")
    hot[1] = hot[1][:0]
    ours = put_on_gpu(any_gpu, *tiny, "exact", hot, attention=["gpu", "cpu", "gpu"], kv_codec=kv_codec)
    first, second = TOKENS, TOKENS[::-1]
    alone = [logits_of(ours.decoder.step, ours.cache(), tokens) for tokens in (first, second)]
    caches = ours.cache(), ours.cache()
    turns = [[ours.decoder.step(tokens[i], cache) for cache, tokens in zip(caches, (first, second), strict=True)]
             for i in range(len(TOKENS))]  # fmt: skip
    for which in range(2):
        assert (np.stack([turn[which] for turn in turns]) == alone[which]).all()
    caches[0].truncate(2)
    ours.decoder.step(second[0], ours.cache())
    assert (logits_of(ours.decoder.step, caches[0], first[2:]) == alone[0][2:]).all()
    ours.close()


def test_neurons_change_places_between_two_tokens(any_gpu: Gpu, tiny: Loaded) -> None:
    config, weights = tiny
    hot = some_hot(config, "random")
    ours = put_on_gpu(any_gpu, config, weights, "sparse", hot, predictor := predictor_of(*tiny, "low_rank"))
    wanted, _ = by_cpu(config, weights, "sparse", TOKENS, predictor)
    cache = ours.cache()
    found = [ours.decoder.step(token, cache) for token in TOKENS[:3]]
    for layer, table in enumerate(ours.tables):
        slots, neurons = np.array([0, 5], np.int32), table.cold[[3, 1]].copy()
        table.put(slots, neurons)
        assert ours.loaded.hot_side is not None
        ours.loaded.hot_side.load(layer, slots, neurons)
    found += [ours.decoder.step(token, cache) for token in TOKENS[3:]]
    np.testing.assert_allclose(np.stack(found), wanted, atol=CLOSE)
    ours.close()


def test_what_was_counted(any_gpu: Gpu, tiny: Loaded) -> None:
    config, weights = tiny
    for kind, load in (("empty", 0.0), ("full", 1.0)):
        ours = put_on_gpu(any_gpu, config, weights, "exact", some_hot(config, kind))
        assert ours.counters.gpu_neuron_load is None
        logits_of(ours.decoder.step, ours.cache(), TOKENS)
        assert ours.counters.gpu_neuron_load == load
        ours.counters.reset_sums()
        assert ours.counters.gpu_neuron_load is None
        ours.close()
    ours = put_on_gpu(any_gpu, config, weights, "dense", some_hot(config, "random"))
    logits_of(ours.decoder.step, ours.cache(), TOKENS)
    assert ours.counters.gpu_neuron_load == round(0.4 * config.d_ff) / config.d_ff
    ours.close()


def test_single_neurons_are_counted_on_both_sides(any_gpu: Gpu, tiny: Loaded) -> None:
    config, weights = tiny
    oracle = ExactExecutor(config, weights, ReferenceOperators())
    oracle.counters.record_per_neuron()
    model = Transformer(config, weights, oracle, ReferenceOperators())
    cache = KVCache(config, CONTEXT)
    for token in TOKENS:
        model.forward(np.array([token]), cache)
    ours = put_on_gpu(any_gpu, config, weights, "exact", some_hot(config, "random"))
    ours.counters.record_per_neuron()
    logits_of(ours.decoder.step, ours.cache(), TOKENS)
    found = ours.counters.per_neuron
    assert found is not None
    assert ours.loaded.hot_side is not None
    for layer, table in enumerate(ours.tables):
        found[layer, table.neuron_in] += ours.loaded.hot_side.take_fired(layer)
    np.testing.assert_array_equal(found, oracle.counters.per_neuron)
    ours.close()


def test_stages_and_room(any_gpu: Gpu, tiny: Loaded) -> None:
    config, weights = tiny
    for execution, stage in (("segments", "exchange"), ("eager", "GPU: attend")):
        ours = put_on_gpu(any_gpu, config, weights, "exact", some_hot(config, "random"), execution=execution)
        cache = ours.cache()
        ours.decoder.measure_stages()
        logits_of(ours.decoder.step, cache, TOKENS)
        seconds = ours.decoder.stage_seconds()
        assert seconds[stage] > 0
        assert seconds["ffn"] > 0
        ours.decoder.measure_stages()
        assert sum(ours.decoder.stage_seconds().values()) == 0
        assert ours.decoder.n_bytes == ours.decoder.bytes_for(any_gpu, config, ours.loaded.model, weights.head.n_rows)
        with pytest.raises(ContextOverflowError):
            logits_of(ours.decoder.step, cache, TOKENS * CONTEXT)
        assert not ours.decoder.accepts(KVCache(config, CONTEXT))
        ours.close()
        ours.decoder.close()


@pytest.mark.parametrize("execution", ["segments", "eager"])
def test_the_gpu_s_stages_are_measured_now_and_then_and_change_nothing(
    tiny: Loaded, execution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.gpu.token.decode_program.MARK_EVERY_S", 0.0)
    gpu, (config, weights) = FakeGpu(), tiny
    ours = put_on_gpu(gpu, config, weights, "exact", some_hot(config, "random"), execution=execution)
    wanted = logits_of(ours.decoder.step, ours.cache(), TOKENS)
    works = len(gpu.works)
    ours.decoder.measure_stages()
    logits_of(ours.decoder.step, ours.cache(), TOKENS)
    assert not ours.decoder.gpu_seconds()
    assert len(gpu.works) == works
    ours.decoder.measure_stages(on_gpu=True)
    found = logits_of(ours.decoder.step, ours.cache(), TOKENS)
    assert (found == wanted).all()
    seconds = ours.decoder.gpu_seconds()
    if execution == "eager":
        assert not seconds
    else:
        assert {"attention", "ffn", "wait", "head"} <= set(seconds)
        assert all(took >= 0 for took in seconds.values())
    assert ours.decoder.gpu_seconds() == seconds
    ours.close()
    ours.decoder.close()
    assert not gpu.works
    gpu.close()


@pytest.mark.parametrize("execution", ["segments", "eager"])
def test_a_timed_token_is_counted_nowhere_and_leaves_the_next_as_it_was(
    any_gpu: Gpu, tiny: Loaded, execution: Any
) -> None:
    config, weights = tiny
    hot = some_hot(config, "random")
    reached = [np.setdiff1d(np.arange(config.d_ff, dtype=np.int32), ids)[:20] for ids in hot]
    ours = put_on_gpu(any_gpu, config, weights, "exact", hot, reached=reached, execution=execution)
    wanted = logits_of(ours.decoder.step, ours.cache(), TOKENS)
    counted = ours.counters.layers.copy()
    ours.counters.reset()
    cache = ours.cache()
    for _ in range(2):
        found = [ours.decoder.timed_step(token, cache) for token in TOKENS]
        assert (ours.counters.tokens, ours.counters.on_gpu) == (0, None)
        assert not ours.counters.layers.any()
        assert sum(ours.decoder.stage_seconds().values()) == 0
        if execution == "eager":
            assert found == [None] * len(TOKENS)
        else:
            both = [one.by_gpu + one.by_cpu for one in found if one is not None]
            np.testing.assert_array_equal(np.sum(both, axis=0)[:, 1:], counted[:, 1:3])
            for one in found:
                assert one is not None
                assert {"ffn", "zero-copy", "attention"} <= set(one.gpu_s)
                assert {"cold", "exchange"} <= set(one.cpu_s)
                assert sum(one.cpu_s.values()) <= one.seconds
            assert {"ffn", "attention"} <= set(ours.decoder.gpu_seconds())
            assert "zero-copy" not in ours.decoder.gpu_seconds()
        ours.decoder.release_marks()
        assert not ours.decoder.gpu_seconds()
        cache.truncate(0)
    assert (logits_of(ours.decoder.step, cache, TOKENS) == wanted).all()
    np.testing.assert_array_equal(ours.counters.layers, counted)
    ours.close()
    ours.decoder.close()


def test_where_marks_cannot_be_had_tokens_run_without(tiny: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(gpu: FakeGpu) -> Any:
        raise CudaError("cuEventRecordWithFlags", 801, "CUDA_ERROR_NOT_SUPPORTED")

    monkeypatch.setattr(FakeGpu, "mark", refuse)
    gpu, (config, weights) = FakeGpu(), tiny
    ours = put_on_gpu(gpu, config, weights, "exact", some_hot(config, "random"))
    wanted = logits_of(ours.decoder.step, ours.cache(), TOKENS)
    ours.decoder.measure_stages(on_gpu=True)
    assert (logits_of(ours.decoder.step, ours.cache(), TOKENS) == wanted).all()
    assert not ours.decoder.gpu_seconds()
    ours.close()
    ours.decoder.close()
    gpu.close()
