"""A token as a program equals the reference, for every family and mode; for any number of threads to the last bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from family_cover import COVER
from family_models import CASES, CONTEXT, Reference
from samples.recoded_gguf import recode
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.repetitions import slow, some_daily

from engine.config import EngineConfig, Mode, ModelConfig, SamplingConfig
from engine.decode.decode_program import DecodeProgram, why_not
from engine.errors import (
    Cancelled,
    ContextOverflowError,
    InvalidRequestError,
    KernelUnavailableError,
    TokenizerMismatchError,
)
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.executor.sparse import SparseExecutor
from engine.loading.backends import Backend, choose_backend
from engine.model.kv_cache import KVCache
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import ModelWeights, load_weights, open_model
from engine.session.chat_session import ChatSession
from engine.session.generate import decode_one_token, decode_tokens, generate, most_at_once
from engine.session.loaded_model import LoadedModel
from engine.session.sampling import make_sampler
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from native_kernels.backend import F32, PackedMatrix
from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.products.gemv import GEMV
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
# With weights and cache in float32 only the order of additions differs: a few units in the last place of each of some
# hundred sums, on logits of up to ten.
CLOSE = 1e-4
MODES: tuple[Mode, ...] = ("dense", "exact", "sparse")
N_TOKENS = 20  # more than any window here
N_SCALED_TOKENS = 40  # past the length at which scaled positions change


def random_predictor(config: ModelConfig, reads: str) -> Predictor:
    rng = np.random.default_rng(3)

    def numbers(*shape: int) -> F32:
        return rng.standard_normal(shape).astype(np.float32)

    layers = []
    for i in range(config.n_layers):
        if config.n_experts and config.is_dense(i):
            layers.append(LayerPredictor())
            continue
        f = config.n_placed_neurons
        a, b = (PackedMatrix.pack(numbers(*shape), "f32") for shape in ((6 + i, config.d_model), (f, 6 + i)))
        part = LowRank(a, b, numbers(6 + i), numbers(f), 0.3)
        layers.append(LayerPredictor(part, input="residual" if reads == "residual" else "normed"))
    return Predictor(tuple(layers))


def executor(mode: Mode, config: ModelConfig, weights: ModelWeights, predictor: Predictor) -> FfnExecutor:
    if mode == "sparse":
        return SparseExecutor(config, weights, predictor, OPS)
    return (ExactExecutor if mode == "exact" else DenseExecutor)(config, weights, OPS)


def one_by_one(model: Transformer, tokens: np.ndarray) -> np.ndarray:
    cache = KVCache(model.config, CONTEXT)
    return np.stack([decode_one_token(model, int(token), cache) for token in tokens])


def several_at_once(model: Transformer, tokens: np.ndarray) -> np.ndarray:
    cache, found, sizes = KVCache(model.config, CONTEXT), [], itertools.cycle((3, 8, 2, 5))
    while cache.length < len(tokens):
        n = min(next(sizes), most_at_once(model, cache))
        found.append(decode_tokens(model, tokens[cache.length : cache.length + n].tolist(), cache))
    return np.concatenate(found)


# From memory, a program reads float32 at other addresses: every day in one mode, on several numbers of threads, with
# every kind of layer.
ON_MANY_THREADS = {
    "opt-350m", "falcon-40b", "gpt-oss", "qwen3.5", "deepseek-v2", "nemotron-h", "phimoe", "lfm2", "gemma3n",
    "gemma4-moe",
}  # fmt: skip
RUNS = [one if name in COVER else slow(*one) for name in CASES for one in [(name, "mapped", MODES)]]
RUNS += [one if name in ON_MANY_THREADS else slow(*one) for name in CASES for one in [(name, "f32", MODES[:1])]]
RUNS += [slow(name, "f32", MODES[1:]) for name in CASES]


@pytest.mark.parametrize(("name", "hold", "modes"), RUNS)
def test_logits_and_counts_are_those_of_the_reference(
    references: Callable[[str], Reference], name: str, hold: str, modes: tuple[Mode, ...]
) -> None:
    reference = references(name)
    opened = open_model(reference.folder)
    config, weights = opened.config, load_weights(opened, hold=hold)  # type: ignore[arg-type]
    tokens = reference.tokens[: N_TOKENS if config.rope_scaling is None else N_SCALED_TOKENS]
    assert why_not(config, weights, "dense") == []
    for mode in modes:
        if mode == "exact" and not config.has_some_zeros:
            continue
        if mode == "sparse" and (config.d_ff_by_layer or config.gate_cutoffs):
            with pytest.raises(InvalidRequestError, match="layers of the same width"):
                SparseExecutor(config, weights, random_predictor(config, ""), OPS)
            continue
        if mode == "sparse" and (config.biases or not config.has_zeros) and config.n_experts:
            assert len(why_not(config, weights, mode, random_predictor(config, "normed"))) == 1
            continue
        for reads in ("residual", "normed") if mode == "sparse" else ("",):
            if config.n_experts and reads == "residual":
                continue
            predictor = random_predictor(config, reads)
            oracle = executor(mode, config, weights, predictor)
            oracle.counters.record_per_neuron()
            wanted = one_by_one(Transformer(config, weights, oracle, OPS), tokens)
            outputs = []
            for n_threads in (1, 2, 4) if mode == "dense" and hold == "f32" else (3,):
                pool, ours = Pool(n_threads), executor(mode, config, weights, predictor)
                decoder = DecodeProgram(config, weights, mode, ours.counters, pool, predictor)
                one_by_one(Transformer(config, weights, ours, OPS, decoder), tokens[:3])  # counted by nobody
                ours.counters.reset()
                ours.counters.record_per_neuron()
                outputs.append(one_by_one(Transformer(config, weights, ours, OPS, decoder), tokens))
                theirs, own = oracle.counters, ours.counters
                assert (own.tokens, own.computed) == (theirs.tokens, theirs.computed)
                assert (own.gate_active, own.fired) == (theirs.gate_active, theirs.fired)
                assert own.per_neuron is not None
                computed = [layer for layer in range(config.n_layers) if config.ffn_width(layer)]
                assert own.per_neuron[computed].any(axis=1).all()
                np.testing.assert_array_equal(own.per_neuron, theirs.per_neuron)
                ours.counters.reset()
                outputs.append(several_at_once(Transformer(config, weights, ours, OPS, decoder), tokens))
                assert (own.tokens, own.computed, own.fired) == (theirs.tokens, theirs.computed, theirs.fired)
                pool.close()
            # Streams that correct one another make more of the last bits.
            assert np.abs(outputs[0] - wanted).max() < CLOSE * (3 if config.n_streams > 1 else 1), mode
            assert all((output == outputs[0]).all() for output in outputs)


@pytest.mark.parametrize("codec", some_daily(["f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k"], ("f16", "q8_0")))
def test_packed_weights(tmp_path: Path, codec: str) -> None:
    """Quantised rows are multiplied with tokens rounded to 8 bits: a step of 1 / 254 of the largest of 32 numbers."""
    width = 256 if codec.endswith("_k") else 64
    source = make_tiny_gguf(tmp_path / "source.gguf", d_model=width, d_ff=2 * width, tied=False)
    opened = open_model(recode(source, tmp_path / "m.gguf", codec))
    config, weights = opened.config, load_weights(opened, hold="mapped")
    assert config.rope_order == "interleaved"
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, N_TOKENS)
    for mode, kind in (("dense", DenseExecutor), ("exact", ExactExecutor)):
        wanted = one_by_one(Transformer(config, weights, kind(config, weights, OPS), OPS), tokens)
        ours = kind(config, weights, OPS)
        outputs = []
        for n_threads in (1, 2):
            decoder = DecodeProgram(config, weights, mode, ours.counters, Pool(n_threads))
            outputs.append(one_by_one(Transformer(config, weights, ours, OPS, decoder), tokens))
            outputs.append(several_at_once(Transformer(config, weights, ours, OPS, decoder), tokens))
        error = np.sqrt(np.mean((outputs[0] - wanted) ** 2) / np.mean(wanted**2))
        # Blocks of K-quants are random bytes here, and what such a model makes of a difference is larger.
        assert error < {"f16": 1e-5, "bf16": 1e-5, "q8_0": 0.03, "q4_0": 0.03}.get(codec, 0.1)
        assert all((output == outputs[0]).all() for output in outputs)


@pytest.fixture
def model(tmp_path: Path) -> Transformer:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    weights = load_weights(opened, hold="mapped")
    kernels = CpuOperators(Pool(2))
    ours = ExactExecutor(opened.config, weights, kernels)
    decoder = DecodeProgram(opened.config, weights, "exact", ours.counters, kernels.pool)
    return Transformer(opened.config, weights, ours, kernels, decoder)


def test_a_cut_cache_and_one_filled_by_the_operators(model: Transformer) -> None:
    tokens = np.random.default_rng(1).integers(0, model.config.vocab_size, 40)
    cache, filled = KVCache(model.config, 64), KVCache(model.config, 48)
    logits = np.stack([decode_one_token(model, int(token), cache) for token in tokens])
    for kept in (33, 7, 0):
        cache.truncate(kept)
        again = np.stack([decode_one_token(model, int(token), cache) for token in tokens[kept:]])
        assert (again == logits[kept:]).all()
    model.forward(tokens[:30], filled)
    after = np.stack([decode_one_token(model, int(token), filled) for token in tokens[30:]])
    np.testing.assert_allclose(after, logits[30:], atol=CLOSE)


def test_a_stop_within_a_token_leaves_the_cache_as_it_was(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KVCache(model.config, 64)
    decode_one_token(model, 20, cache)
    wanted = decode_one_token(model, 21, cache)
    cache.truncate(1)
    assert isinstance(model.decoder, DecodeProgram)
    monkeypatch.setattr("native_kernels.cpu.runtime.pool.SLICE_S", 0.0)  # asked behind every call
    impatient = DecodeProgram(model.config, model.weights, "exact", model.executor.counters, Pool(2))
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) > 5

    model.executor.counters.reset()
    with pytest.raises(Cancelled):
        impatient.step(21, cache, cancelled)
    assert len(asked) == 6
    assert (cache.length, model.executor.counters.tokens) == (1, 0)
    assert (impatient.step(21, cache) == wanted).all()
    assert len(asked) == 6


@pytest.mark.parametrize("name", ["qwen3.5", "nemotron-h", "granite-hybrid-moe", "lfm2"])
def test_a_token_cancelled_in_the_middle_leaves_the_state_before_it(
    name: str, references: Callable[[str], Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("native_kernels.cpu.runtime.pool.SLICE_S", 0.0)  # asked behind every call
    reference = references(name)
    opened = open_model(reference.folder)
    weights = load_weights(opened, hold="f32")
    pool, cache = Pool(2), KVCache(opened.config, CONTEXT)
    counters = DenseExecutor(opened.config, weights, OPS).counters
    decoder = DecodeProgram(opened.config, weights, "dense", counters, pool)
    for token in reference.tokens[:5].tolist():
        decoder.step(token, cache)
    for at in (3, 8, 14):
        asked: list[int] = []

        def cancelled(asked: list[int] = asked, at: int = at) -> bool:
            asked.append(1)
            return len(asked) > at

        with pytest.raises(Cancelled):
            decoder.step(77, cache, cancelled)
        assert cache.length == 5
    found = np.stack([decoder.step(token, cache) for token in reference.tokens[5:9].tolist()])
    np.testing.assert_allclose(found, reference.logits[5:9], atol=2e-4)
    pool.close()


def test_an_answer_stopped_within_a_token_keeps_what_was_written(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(model.decoder, DecodeProgram)
    steps = []

    def step(token: int, cache: KVCache, cancelled: object) -> F32:
        steps.append(token)
        if len(steps) == 4:
            raise Cancelled
        return DecodeProgram.step(model.decoder, token, cache)

    class Stream:
        def push(self, token: int) -> str:
            return f"{token} "

        def flush(self) -> str:
            return ""

    monkeypatch.setattr(model.decoder, "step", step)
    sampler = make_sampler(SamplingConfig(temperature=0))
    cache = KVCache(model.config, 64)
    events = list(generate(model, cache, [20, 21, 22], sampler, Stream()))  # type: ignore[arg-type]
    assert events[-1].finish_reason == "cancelled"
    assert events[-1].stats.tokens == 4
    assert cache.length == 3 + 3


def test_what_is_wrong_with_a_token_is_said_before_anything_is_written(model: Transformer) -> None:
    cache = KVCache(model.config, 8)
    assert model.decoder is not None
    with pytest.raises(TokenizerMismatchError):
        model.decoder.step(model.config.vocab_size, cache)
    with pytest.raises(TokenizerMismatchError):
        model.decoder.step(-1, cache)
    for _ in range(8):
        model.decoder.step(5, cache)
    with pytest.raises(ContextOverflowError):
        model.decoder.step(5, cache)
    assert cache.length == 8


def test_neurons_are_counted_one_by_one_as_soon_as_somebody_asks_and_until_they_are_taken(model: Transformer) -> None:
    cache = KVCache(model.config, 16)
    counters = model.executor.counters
    decode_one_token(model, 5, cache)
    counters.record_per_neuron()
    decode_one_token(model, 6, cache)
    model.forward(np.array([7, 8]), cache)
    fired = counters.fired
    counters.reset_sums()  # as between the prompt and the answer
    decode_one_token(model, 9, cache)
    counts, positions = counters.take_per_neuron()
    assert positions == 4
    assert counts.max() <= 4
    without_the_first = ExactExecutor(model.config, model.weights, OPS)
    again = KVCache(model.config, 16)
    Transformer(model.config, model.weights, without_the_first, OPS).forward(np.array([5]), again)
    assert counts.sum() == fired + counters.fired - without_the_first.counters.fired
    decode_one_token(model, 5, cache)
    counts, positions = counters.take_per_neuron()
    assert (positions, counters.tokens) == (1, 2)
    assert 0 < counts.sum() < counters.fired
    assert counts.max() == 1
    decode_one_token(model, 5, cache)
    counters.reset()
    counts, positions = counters.take_per_neuron()
    assert (counts.sum(), positions) == (0, 0)


def test_stages_are_measured_and_add_up(model: Transformer) -> None:
    cache = KVCache(model.config, 8)
    assert isinstance(model.decoder, DecodeProgram)
    decode_one_token(model, 5, cache)
    assert sum(model.decoder.stage_seconds().values()) == 0
    model.decoder.measure_stages()
    decode_one_token(model, 5, cache)
    seconds = model.decoder.stage_seconds()
    assert set(seconds) == {"embedding", "attention", "norms", "ffn", "head"}
    assert sum(seconds.values()) == pytest.approx(model.decoder.program.timed_s)


def test_a_codec_without_kernels_goes_layer_by_layer_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(GEMV, "q5_1")
    monkeypatch.delitem(UNPACKERS, "q5_1")
    source = make_tiny_gguf(tmp_path / "source.gguf", d_model=64, d_ff=128)
    path = recode(source, tmp_path / "m.gguf", "q5_1")
    opened = open_model(path)
    weights = load_weights(opened, hold="mapped")
    assert ["q5_1" in reason for reason in why_not(opened.config, weights, "exact")] == [True]
    model = LoadedModel.load(path, EngineConfig(context=32))
    assert (model.weights.hold, model.backend.reads_all_of(model.opened)) == ("f32", False)
    assert model.transformer().decoder is not None  # unpacked to float32, for which there are kernels
    operators = CpuOperators(Pool(1))
    x = np.ones((3, 64), np.float32)
    wanted = OPS.matmul(x, weights.layers[0].q)
    np.testing.assert_array_equal(operators.matmul(x, weights.layers[0].q), wanted)


def test_where_kernels_cannot_run_the_reference_does_and_the_reason_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_model(tmp_path / "m")

    def broken(kernels: CpuOperators) -> None:
        raise OSError("no room for code")

    by_kernels = LoadedModel.load(path, EngineConfig(context=32))
    assert by_kernels.backend.name.startswith("CPU kernels (")
    monkeypatch.setattr("engine.loading.backends.self_test", broken)
    by_reference = LoadedModel.load(path, EngineConfig(context=32))
    assert by_reference.backend.name == "reference"
    assert "no room for code" in by_reference.backend.reason
    assert by_reference.transformer().decoder is None
    assert by_reference.weights.hold == "f32"
    with pytest.raises(KernelUnavailableError, match="no room for code"):
        choose_backend("kernels", 1)
    greedy = SamplingConfig(temperature=0, max_tokens=9)
    answers = []
    for one in (by_kernels, by_reference):
        answers.append([event.token_id for event in ChatSession(one).generate([0, 20, 33], greedy)])
    assert answers[0] == answers[1]
    assert isinstance(choose_backend("reference", 1), Backend)
