"""Synthetic models: what they are made to be is what the engine finds in them, and llama.cpp opens them too."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import make_model as make_model_script
import numpy as np
import pytest
from make_model import Recipe, main, make_bundle, make_model
from model_contents import DISTINCT_LAYERS, Routing, activation_probabilities
from model_shapes import EXPERT_SHAPES, N_SPECIAL, SHAPES, Variant
from numpy.typing import NDArray
from support.repetitions import some_daily

from engine.bundle.bundle import is_bundle
from engine.config import ModelConfig
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.executor.sparse import SparseExecutor
from engine.loading.modes import read_predictors
from engine.loading.opening import read_tokenizer
from engine.model import router
from engine.model.kv_cache import KVCache
from engine.model.model_artefacts import read_stats
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import ModelWeights, load_weights, open_model
from native_kernels.backend import F32, Operators, PackedMatrix
from native_kernels.codecs import CODECS
from native_kernels.reference import ReferenceOperators

TINY = ("tiny", "opt-tiny", "falcon-tiny")
WANTED = 0.15
N_TOKENS = 48
# The random part of what layers add is not the embedding's; over four layers that moves a share by less than this.
RELATIVE = 0.1
OPS = ReferenceOperators()


def recipe(shape: str = "tiny", codec: str = "f16", variant: Variant = "powerinfer", sparse: bool = True) -> Recipe:
    return Recipe(shape, codec, variant, sparse, WANTED, rank=128)


@pytest.fixture(scope="module", params=[(shape, codec) for shape in TINY for codec in ("f16", "q4_0")])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape, codec = request.param
    path = tmp_path_factory.mktemp("made") / f"{shape}-{codec}.gguf"
    assert make_model(path, recipe(shape, codec)) == path.stat().st_size
    return path


def run(path: Path, mode: str) -> tuple[F32, FfnExecutor]:
    """Hidden states of random tokens, and the executor, whose counters have seen them."""
    opened = open_model(path)
    weights = load_weights(opened, hold="f32")
    executor = make_executor(path, weights, mode)
    model = Transformer(opened.config, weights, executor, OPS)
    tokens = np.random.default_rng(0).integers(0, opened.config.vocab_size, N_TOKENS)
    return model.forward(tokens, KVCache(opened.config, N_TOKENS)), executor


def make_executor(path: Path, weights: ModelWeights, mode: str) -> FfnExecutor:
    opened = open_model(path)
    if mode == "sparse":
        return SparseExecutor(opened.config, weights, read_predictors(opened), OPS)
    return (ExactExecutor if mode == "exact" else DenseExecutor)(opened.config, weights, OPS)


def test_the_wanted_share_is_active_in_exact_and_in_sparse_mode(made: Path) -> None:
    dense, _ = run(made, "dense")
    exact, counted = run(made, "exact")
    np.testing.assert_allclose(exact, dense, rtol=1e-3, atol=1e-3)
    assert counted.counters.active_share == pytest.approx(WANTED, rel=RELATIVE)
    assert counted.counters.fired_share == counted.counters.active_share
    _, expected = run(made, "sparse")
    assert expected.counters.active_share == pytest.approx(WANTED, rel=RELATIVE)
    # Predictors are right but for rounding, and for what LayerNorm takes from the mean. Four bits in the gate and in
    # the predictor turn some signs near zero.
    assert expected.counters.fired_share > (0.95 if "f16" in made.name else 0.7) * WANTED


def test_some_neurons_are_hot(made: Path) -> None:
    opened = open_model(made)
    weights = load_weights(opened, hold="f32")
    executor = make_executor(made, weights, "exact")
    executor.counters.record_per_neuron()
    tokens = np.random.default_rng(0).integers(0, opened.config.vocab_size, 4 * N_TOKENS)
    Transformer(opened.config, weights, executor, OPS).forward(tokens, KVCache(opened.config, len(tokens)))
    counts = np.sort(executor.counters.per_neuron[0])[::-1]
    hottest = counts[: int(0.26 * len(counts))].sum() / counts.sum()
    wanted = activation_probabilities(len(counts), WANTED)
    assert hottest == pytest.approx(wanted[: int(0.26 * len(counts))].sum() / wanted.sum(), abs=0.06)


def test_statistics_say_how_often_neurons_fire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    flags = ["powerinfer", str(path), "--rank", "128", "--active", str(WANTED), "--statistics"]
    monkeypatch.setattr("sys.argv", ["make_model.py", *flags])
    assert main() == 0
    opened = open_model(path)
    stats = read_stats(opened)
    assert stats is not None
    assert (stats.source, stats.tokens, stats.counts.shape[0]) == ("measured", 1 << 20, opened.config.n_layers)
    executor = make_executor(path, load_weights(opened, hold="f32"), "exact")
    executor.counters.record_per_neuron()
    tokens = np.random.default_rng(0).integers(0, opened.config.vocab_size, 4 * N_TOKENS)
    model = Transformer(opened.config, load_weights(opened, hold="f32"), executor, OPS)
    model.forward(tokens, KVCache(opened.config, len(tokens)))
    counted = executor.counters.per_neuron / len(tokens)
    assert np.abs(counted.mean(axis=1) - stats.fired_share).max() < RELATIVE * WANTED
    for layer, likely in enumerate(stats.counts / stats.tokens):
        assert np.corrcoef(counted[layer], likely)[0, 1] > 0.9


def test_without_room_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_model_script.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    with pytest.raises(OSError, match="are free"):
        make_model(tmp_path / "model.gguf", recipe())
    assert not list(tmp_path.iterdir())


def test_an_open_gate_leaves_it_to_the_predictor_alone(tmp_path: Path) -> None:
    path = tmp_path / "open.gguf"
    make_model(path, recipe(sparse=False))
    _, exact = run(path, "exact")
    assert exact.counters.active_share > 0.99
    _, sparse = run(path, "sparse")
    assert sparse.counters.active_share == pytest.approx(WANTED, rel=RELATIVE)


def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        make_model(path, Recipe("tiny", "q4_0", "powerinfer", rank=64, seed=seed))
    one, same, other = (path.read_bytes() for path in paths)
    assert one == same != other
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a", "b", "c"]


def test_neurons_of_layers_in_turn_are_the_same_and_no_others() -> None:
    neurons = recipe().neurons
    first = neurons.first(0, 0, 256)
    np.testing.assert_array_equal(first, neurons.first(DISTINCT_LAYERS, 0, 256))
    assert not np.allclose(first, neurons.first(1, 0, 256))
    with pytest.raises(ValueError, match="no block"):
        neurons.first(0, 128, 256)


def test_shares_that_cannot_be() -> None:
    for share in (0.0, 0.99):
        with pytest.raises(ValueError, match="cannot be active"):
            activation_probabilities(100, share)
    assert activation_probabilities(1000, 0.9).mean() == pytest.approx(0.9, abs=1e-6)


@pytest.mark.parametrize("shape", TINY)
@pytest.mark.parametrize("variant", ["dense", "powerinfer"])
def test_both_variants_open_with_their_vocabulary(shape: str, variant: Variant, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    make_model(path, recipe(shape, "q8_0", variant))
    opened = open_model(path)
    sizes = SHAPES[shape]
    assert (opened.config.family, opened.config.d_ff, opened.config.max_context) == (
        sizes.family, sizes.d_ff, sizes.context)  # fmt: skip
    assert opened.config.has_zeros
    assert (opened.has_predictors, opened.down_is_row_wise) == (variant == "powerinfer", variant == "dense")
    tokenizer = read_tokenizer(opened)
    assert tokenizer.vocab_size == sizes.vocab_size
    assert tokenizer.decode(tokenizer.encode("To the sea")) == "To the sea"


def test_a_bundle_computes_the_same(tmp_path: Path) -> None:
    path, folder = tmp_path / "model.gguf", tmp_path / "bundle"
    make_model(path, recipe(codec="q4_0"))
    make_bundle(path, folder, "q4_0")
    assert is_bundle(folder)
    np.testing.assert_array_equal(run(folder, "exact")[0], run(path, "exact")[0])


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")
@pytest.mark.parametrize("shape", ["tiny", "falcon-tiny"])  # it knows no OPT
@pytest.mark.parametrize("codec", ["f16", "q4_0", "q8_0"])
def test_llama_cpp_opens_the_dense_variant(shape: str, codec: str, tmp_path: Path) -> None:
    import llama_cpp

    path = tmp_path / "model.gguf"
    make_model(path, recipe(shape, codec, "dense"))
    model = llama_cpp.Llama(str(path), n_ctx=16, n_threads=1, logits_all=True, verbose=False)
    try:
        model.eval([5, 6, 7])
        assert np.isfinite(np.array(model.scores[:3])).all()
    finally:
        model.close()


class RecordingExecutor(DenseExecutor):
    """The dense executor, which also keeps the router's choices, i64 [T, K] per layer."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, operators: Operators) -> None:
        super().__init__(config, weights, operators)
        self.chosen: list[NDArray[np.int64]] = []

    def ffn(self, layer: int, x: F32, residual: F32, routing: router.Routing | None = None) -> F32:
        assert routing is not None
        self.chosen.append(routing.experts)
        return super().ffn(layer, x, residual, routing)


def chosen_by_embedding(routing: Routing, layer: int, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each token chooses each expert [T, E], if layers add nothing to the embedding."""
    x = routing.embedding(0, routing.vocab_size)[tokens]
    x /= np.sqrt(np.square(x).mean(axis=1, keepdims=True))
    return as_mask(np.argsort(-(x @ routing.router(layer).T))[:, : routing.n_experts_used], routing.n_experts)


def as_mask(chosen: NDArray[np.int64], n_experts: int) -> NDArray[np.bool_]:
    found = np.zeros((len(chosen), n_experts), bool)
    np.put_along_axis(found, chosen, True, axis=1)
    return found


def test_choices_are_as_uneven_and_as_local_as_published() -> None:
    """The busiest experts of 64 tokens, in the next 64 tokens; and the experts that consecutive tokens share."""
    routing = Routing(256, 128, 8, 4096, seed=1)
    shared, shares = [], []
    for layer in range(4):
        chosen = chosen_by_embedding(routing, layer, np.arange(routing.vocab_size))
        shared.append((chosen[1:] & chosen[:-1]).sum() / chosen[1:].sum())
        for start in range(0, len(chosen), 128):
            earlier, later = chosen[start : start + 64].sum(axis=0), chosen[start + 64 : start + 128].sum(axis=0)
            carried = np.cumsum(later[np.argsort(-earlier)]) / later.sum()
            shares.append([carried[round(share * 128) - 1] for share in (0.1, 0.25, 0.5)])
    assert np.mean(shares, axis=0) == pytest.approx([0.47, 0.76, 0.91], abs=0.04)
    assert np.mean(shared) == pytest.approx(0.38, abs=0.03)


@pytest.mark.parametrize(("shape", "codec"), [("qwen3moe-tiny", "q4_0"), ("gpt-oss-tiny", "mxfp4")])
def test_the_engine_chooses_by_the_embedding_and_continues_the_text(shape: str, codec: str, tmp_path: Path) -> None:
    path, own = tmp_path / "experts.gguf", Recipe(shape, codec)
    make_model(path, own)
    opened = open_model(path)
    config, weights = opened.config, load_weights(opened, hold="f32")
    executor = RecordingExecutor(config, weights, OPS)
    tokens = np.arange(N_SPECIAL, N_SPECIAL + 64)
    model = Transformer(config, weights, executor, OPS)
    hidden = model.forward(tokens, KVCache(config, len(tokens)))
    np.testing.assert_array_equal(model.logits(hidden).argmax(axis=1), tokens + 1)
    for layer, chosen in enumerate(executor.chosen):
        expected = chosen_by_embedding(own.routing, layer, tokens)
        assert (as_mask(chosen, config.n_experts) & expected).sum() > 0.85 * expected.sum()


@pytest.mark.parametrize("codec", some_daily(["f16", "q4_0", "q4_k", "q6_k", "q8_0", "mxfp4"], ["q6_k", "q8_0"]))
@pytest.mark.parametrize("shape", ["qwen3moe-tiny", "gpt-oss-tiny"])
def test_models_with_experts_open_in_every_codec(shape: str, codec: str, tmp_path: Path) -> None:
    path = tmp_path / "experts.gguf"
    assert make_model(path, Recipe(shape, codec)) == path.stat().st_size
    opened = open_model(path)
    sizes = EXPERT_SHAPES[shape]
    assert (opened.config.n_experts, opened.config.n_experts_used) == (sizes.n_experts, sizes.n_experts_used)
    assert opened.source.tensors["blk.1.ffn_down_exps.weight"].codec == codec
    weights = load_weights(opened, hold="mapped")
    gate = weights.layers[1].experts[1].gate
    assert isinstance(gate, PackedMatrix)
    spread = CODECS[codec].decode(gate.data.view(np.uint8)).std()
    assert spread == pytest.approx(sizes.d_model**-0.5, rel=0.5)


def test_experts_have_no_place_in_the_other_files(tmp_path: Path) -> None:
    for wrong in (Recipe("gpt-oss-tiny", "q8_0", "powerinfer"), Recipe("tiny", "mxfp4")):
        with pytest.raises(ValueError, match="experts"):
            make_model(tmp_path / "model.gguf", wrong)
