"""Models with experts: which ones a position goes through, what is counted, and how their matrices lie in files."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from samples.experts_gguf import N_EXPERTS, N_USED, make_tiny_mixtral
from samples.raw_gguf import write_gguf
from samples.recoded_gguf import recode

from engine.bundle.bundle import BundleSource
from engine.commands import cli
from engine.config import EngineConfig, ModelConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.conversion.expert_stack import ExpertStack
from engine.errors import UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import PER_TOKEN_LIMIT, ExactExecutor
from engine.executor.ffn_bytes import ffn_bytes
from engine.executor.sparse import SparseExecutor
from engine.formats.gguf import open_gguf
from engine.model.families import config_from_gguf, config_from_hf
from engine.model.graph import RoutingSpec, graph_of
from engine.model.kv_cache import KVCache
from engine.model.router import route
from engine.model.transformer import Transformer
from engine.model.weights import Hold, ModelWeights, OpenedModel, load_weights, open_model
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
TOKENS = np.random.default_rng(3).integers(0, 250, 24)
D_FF, LAYERS = 64, 2
Executor = type[DenseExecutor] | type[ExactExecutor]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_mixtral(tmp_path_factory.mktemp("moe") / "m.gguf")


@pytest.fixture(scope="module")
def opened(path: Path) -> OpenedModel:
    return open_model(path)


def run(config: ModelConfig, weights: ModelWeights, kind: Executor, pieces: int = 1) -> tuple[np.ndarray, Transformer]:
    model = Transformer(config, weights, kind(config, weights, OPS), OPS)
    model.executor.counters.record_per_neuron()
    cache = KVCache(config, 64)
    return np.concatenate([model.logits(model.forward(part, cache)) for part in np.array_split(TOKENS, pieces)]), model


# --- the router


def routing_of(config: ModelConfig) -> RoutingSpec:
    routing = graph_of(config).ffn(0).spec.routing
    assert routing is not None
    return routing


@pytest.mark.parametrize("function", ["softmax", "sigmoid"])
@pytest.mark.parametrize("normed", [True, False])
def test_the_router(opened: OpenedModel, function: str, normed: bool) -> None:
    config = replace(opened.config, n_experts_used=3, router=function, normed_routing=normed)
    scores = np.array([[0.5, -2.0, 3.0, 1.0], [80.0, 90.0, -90.0, -200.0]], np.float32)
    router = PackedMatrix.pack(np.eye(4, dtype=np.float32), "f32")
    routing = route(routing_of(config), router, scores, OPS)
    np.testing.assert_array_equal(routing.experts, [[2, 3, 0], [1, 0, 2]])
    wide = scores.astype(np.float64)
    shares = np.exp(wide) / np.exp(wide).sum(1, keepdims=True) if function == "softmax" else 1 / (1 + np.exp(-wide))
    wanted = np.take_along_axis(shares, routing.experts, 1)
    wanted = wanted / wanted.sum(1, keepdims=True) if normed else wanted
    np.testing.assert_allclose(routing.weights, wanted, atol=1e-6)
    assert routing.weights.dtype == np.float32


def test_of_equal_scores_the_first_are_chosen(opened: OpenedModel) -> None:
    router = PackedMatrix.pack(np.zeros((4, 8), np.float32), "f32")
    np.testing.assert_array_equal(
        route(routing_of(opened.config), router, np.ones((3, 8), np.float32), OPS).experts, [[0, 1]] * 3
    )
    assert route(routing_of(opened.config), router, np.ones((0, 8), np.float32), OPS).weights.shape == (0, 2)


# --- what is computed and counted


def by_hand(config: ModelConfig, weights: ModelWeights, x: np.ndarray) -> tuple[np.ndarray, set[int], int]:
    """Layer 0's FFN of one position, neuron by neuron; those that fire, and how many were looked at."""
    layer, out, fired, seen = weights.layers[0], np.zeros(config.d_model), set(), 0
    scores = layer.router.data @ x
    chosen = np.argsort(-scores)[:N_USED]
    shares = np.exp(scores[chosen]) / np.exp(scores[chosen]).sum()
    for expert, share in zip(chosen, shares, strict=True):
        w = layer.experts[expert]
        for n in range(config.d_ff):
            seen += 1
            if (gate := w.gate.data[n] @ x) > 0:
                fired.add(int(expert) * config.d_ff + n)
                out += share * gate * (w.up.data[n] @ x) * w.down_t.data[n]
    return out, fired, seen


@pytest.mark.parametrize("kind", [DenseExecutor, ExactExecutor])
def test_neurons_inside_the_chosen_experts_are_computed_and_counted(opened: OpenedModel, kind: Executor) -> None:
    config, weights = opened.config, load_weights(opened)
    executor = kind(config, weights, OPS)
    executor.counters.record_per_neuron()
    x = np.random.default_rng(8).standard_normal((9, config.d_model)).astype(np.float32)
    found = executor.ffn(0, x, x, route(routing_of(config), weights.layers[0].router, x, OPS))
    times = np.zeros(config.n_neurons, np.int64)
    computed = 0
    for position, said in zip(x, found, strict=True):
        wanted, fired, seen = by_hand(config, weights, position)
        np.testing.assert_allclose(said, wanted, atol=1e-4)
        times[list(fired)] += 1
        computed += seen if kind is DenseExecutor else len(fired)
    np.testing.assert_array_equal(executor.counters.per_neuron[0], times)
    assert (executor.counters.computed, executor.counters.fired) == (computed, times.sum())
    assert executor.counters.tokens == 9


def test_shares_are_of_all_neurons_of_all_experts(opened: OpenedModel) -> None:
    config, weights = opened.config, load_weights(opened)
    assert (config.n_neurons, config.routed_share) == (N_EXPERTS * D_FF, N_USED / N_EXPERTS)
    wanted, dense = run(config, weights, DenseExecutor)
    assert dense.executor.counters.active_share == config.routed_share
    for pieces in (1, 5, 24):
        logits, exact = run(config, weights, ExactExecutor, pieces)
        counters = exact.executor.counters
        np.testing.assert_allclose(logits, wanted, atol=1e-4)
        assert counters.tokens == len(TOKENS)
        np.testing.assert_array_equal(counters.per_neuron, dense.executor.counters.per_neuron)
        assert 0.05 < counters.fired_share < config.routed_share
        assert counters.fired_share == counters.per_neuron.sum() / (len(TOKENS) * LAYERS * config.n_neurons)
    exact.executor.counters.reset()
    assert exact.executor.counters.tokens == 0


def test_the_bytes_of_the_experts_used(opened: OpenedModel) -> None:
    reached = opened.config.routed_share
    unpacked, mapped = load_weights(opened, hold="f32"), load_weights(opened, hold="mapped")
    one_matrix = 4 * D_FF * 32 * LAYERS * N_EXPERTS
    assert ffn_bytes(unpacked, reached, reached, reached, reached) == 3 * one_matrix * reached
    assert ffn_bytes(mapped, reached, 0.1, 0.1, reached) == pytest.approx(one_matrix * (reached + 0.1 + reached))


def test_sparse_mode_needs_predictors(opened: OpenedModel, path: Path) -> None:
    assert not opened.has_predictors
    with pytest.raises(UnsupportedModelError, match="has no predictors"):
        LoadedModel.load(path, EngineConfig(mode="sparse"))


@pytest.mark.parametrize("n", [1, 2, 6, 7, 32])
def test_predicted_neurons_for_so_many_positions(opened: OpenedModel, n: int) -> None:
    config, weights, rng = opened.config, load_weights(opened), np.random.default_rng(4)
    x, a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, 32), (8, 32), (4 * D_FF, 8)))
    part = LayerPredictor(LowRank(PackedMatrix.pack(a, "f32"), PackedMatrix.pack(b, "f32"), threshold=0.2))
    executors = [SparseExecutor(config, weights, Predictor((part,) * LAYERS), OPS, whole) for whole in (True, False)]
    w, routing = weights.layers[0], route(routing_of(config), weights.layers[0].router, x, OPS)
    mask, wanted = np.maximum(x @ a.T, 0) @ b.T >= 0.2, np.zeros_like(x)
    for t, k in np.ndindex(routing.experts.shape):
        expert = routing.experts[t, k]
        one = w.experts[expert]
        h = np.maximum(one.gate.data @ x[t], 0) * (one.up.data @ x[t]) * mask[t].reshape(-1, D_FF)[expert]
        wanted[t] += routing.weights[t, k] * (h @ one.down_t.data)
    predicted, ours = (one.ffn(0, x, x, routing) for one in executors)
    np.testing.assert_allclose(predicted, wanted, atol=1e-4)
    chosen = np.take_along_axis(mask.reshape(n, -1, D_FF), routing.experts[..., None], 1)
    assert executors[0].counters.computed == np.count_nonzero(chosen)
    exact = ExactExecutor(config, weights, OPS).ffn(0, x, x, routing)
    np.testing.assert_array_equal(ours, predicted if n <= PER_TOKEN_LIMIT else exact)


# --- files


@pytest.mark.parametrize("hold", ["f32", "f16", "mapped"])
def test_every_way_to_hold_them(opened: OpenedModel, hold: Hold) -> None:
    wanted, _ = run(opened.config, load_weights(opened, hold="f32"), DenseExecutor)
    weights = load_weights(opened, hold=hold)
    assert weights.layers[0].router.codec == "f32"
    for kind in (DenseExecutor, ExactExecutor):
        found, _ = run(opened.config, weights, kind)
        np.testing.assert_allclose(found, wanted, atol=0.05 if hold == "f16" else 1e-4)


def test_mapped_experts_are_slices_of_the_file(opened: OpenedModel) -> None:
    weights = load_weights(opened, hold="mapped")
    for name, foreign in (("gate", "gate"), ("up", "up"), ("down", "down")):
        whole = opened.source.view(f"blk.1.ffn_{foreign}_exps.weight")
        for n, expert in enumerate(weights.layers[1].experts):
            data = getattr(expert, name).data
            assert np.shares_memory(data, whole[n * whole.size // N_EXPERTS : (n + 1) * whole.size // N_EXPERTS])
            assert not data.flags.writeable
    norms = 4 * 32 * (2 * LAYERS + 1)
    assert weights.ram_bytes == norms
    assert weights.down_is_row_wise


@pytest.mark.parametrize("codec", ["q8_0", "q4_0"])
def test_blocks_of_experts_are_kept_in_a_bundle(path: Path, tmp_path: Path, codec: str) -> None:
    packed = open_model(recode(path, tmp_path / "packed.gguf", codec))
    made = convert(tmp_path / "packed.gguf", tmp_path / "bundle", codec)
    bundle = open_model(made.bundle)
    assert isinstance(bundle.source, BundleSource)
    entries = bundle.source.manifest.tensors
    assert (entries["0.gate"].shape, entries["0.gate"].codec) == ((N_EXPERTS * D_FF, 32), codec)
    assert entries["1.down_t"].codec == "q8_0"  # was quantised along the neurons
    assert entries["0.router"].codec == "f32"
    assert entries["0.gate"].relative_error == entries["0.up"].relative_error == entries["0.router"].relative_error == 0
    assert 0 < entries["0.down_t"].relative_error < 0.01
    assert len(made.warnings) == (codec == "q4_0")
    wanted, found = load_weights(packed), load_weights(bundle)
    for one, other in zip(wanted.layers[1].experts, found.layers[1].experts, strict=True):
        np.testing.assert_array_equal(one.gate.data, other.gate.data)
        np.testing.assert_array_equal(one.up.data, other.up.data)
        np.testing.assert_allclose(one.down_t.data, other.down_t.data, atol=0.01)
    mapped, _ = run(bundle.config, load_weights(bundle, hold="mapped"), ExactExecutor)
    np.testing.assert_allclose(mapped, run(bundle.config, found, DenseExecutor)[0], atol=1e-4)


def test_a_neurons_row_in_a_bundle_is_one_neuron_of_one_expert(
    opened: OpenedModel, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.conversion.convert.TILE_NUMBERS", 32 * 48)  # pieces that end within an expert
    bundle = open_model(convert(path, tmp_path / "bundle", "f16").bundle)
    assert isinstance(bundle.source, BundleSource)
    assert bundle.parameters == opened.parameters
    rows = bundle.source.neurons(1)
    assert rows.shape == (N_EXPERTS * D_FF, 3 * 64)
    experts = load_weights(opened).layers[1].experts
    for expert, neuron in ((0, 0), (1, 63), (3, 17)):
        parts = rows[expert * D_FF + neuron].view(np.float16).reshape(3, 32)
        w = experts[expert]
        wanted = [matrix.data[neuron].astype(np.float16) for matrix in (w.gate, w.up, w.down_t)]
        np.testing.assert_array_equal(parts, wanted)
    mapped = load_weights(bundle, hold="mapped")
    whole = bundle.source.rows("1.up")
    assert all(np.shares_memory(ffn.up.data, whole) for ffn in mapped.layers[1].experts)
    logits, _ = run(bundle.config, mapped, ExactExecutor, 4)
    np.testing.assert_allclose(logits, run(opened.config, load_weights(opened), DenseExecutor)[0], atol=0.05)


def test_pieces_of_a_stack_ask_each_expert_for_whole_blocks() -> None:
    """Where the shared expert has larger blocks than the others, pieces begin within one."""
    table = np.arange(3 * 24 + 64, dtype=np.float32)[:, None] * np.ones(2, np.float32)

    def member(start: int, stop: int, step: int) -> SimpleNamespace:
        def read_f32(first: int, last: int) -> np.ndarray:
            assert first % step == last % step == 0
            return table[start + first : start + last]

        return SimpleNamespace(n_rows=stop - start, n_cols=2, row_step=step, read_f32=read_f32)

    members = (*(member(24 * n, 24 * n + 24, 1) for n in range(3)), member(72, 136, 32))
    stack = ExpertStack("0.down_t", members)  # type: ignore[arg-type]
    assert (stack.row_step, stack.shape) == (32, (136, 2))
    for start in range(0, 136, 32):
        stop = min(start + 32, 136)
        np.testing.assert_array_equal(stack.read_f32(start, stop), table[start:stop])


# --- from end to end


def test_a_conversation_runs_and_inspect_explains(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    sampling = SamplingConfig(temperature=0, max_tokens=12)
    for mode in ("exact", "dense"):
        model = LoadedModel.load(path, EngineConfig(context=64, mode=mode))
        answers.append([event.token_id for event in ChatSession(model).generate([0, 20, 33, 47], sampling)])
    assert answers[0] == answers[1]
    assert cli.main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"\b{N_EXPERTS} experts .*\b{D_FF} neurons", said)
    unused = 3 * D_FF * 32 * LAYERS * (N_EXPERTS - N_USED)
    used = (open_model(path).parameters - unused) / 1e6
    assert re.search(rf"\b2 .*\b4 experts .*\b{used:.1f} million", said)
    assert cli.main(["bench", str(path), "--prompt-tokens", "4", "--gen-tokens", "2", "--repeat", "1", "--json"]) == 0
    assert '"active_share"' in capsys.readouterr().out


def test_what_gguf_says_of_weights_and_positions_and_what_it_means_where_silent(tmp_path: Path) -> None:
    said = open_model(make_tiny_mixtral(tmp_path / "m.gguf", **{"llama.expert_weights_norm": False})).config
    assert (said.normed_routing, said.router, said.family) == (False, "softmax", "mixtral")
    silent = {key: value for key, value in open_model(tmp_path / "m.gguf").metadata.items() if "freq_base" not in key}
    config = config_from_gguf({key: value for key, value in silent.items() if "weights_norm" not in key}, set())
    assert (config.normed_routing, config.rope_theta) == (True, 10000.0)
    given = config_from_gguf({**silent, "llama.rope.freq_base": 1e6}, set())
    assert given.rope_theta == 1e6


def test_what_is_not_run_of_models_with_experts_is_said() -> None:
    base = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 96, "head_dim": 8,
            "num_experts_per_tok": 2, "moe_num_primary_experts": 4,
            "moe_num_active_primary_experts": 2, "moe_ffn_hidden_size": 16, "num_local_experts": 4,
            "intermediate_size": 16}  # fmt: skip
    for family, change, words in (
        ("qwen3_moe", {"mlp_only_layers": [0]}, "Some layers of the model have experts and some have none"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "Some layers of the model have experts and some have none"),
        ("smallthinker", {"moe_layer_layout": [1, 0, 1]}, "experts and an early router in every layer"),
        ("smallthinker", {"moe_enable_early_router": False}, "experts and an early router in every layer"),
        ("smallthinker", {"moe_enable_secondary_experts": True}, "moe_enable_secondary_experts is True"),
        ("mixtral", {"num_experts": 4}, "num_experts is 4 in config.json, which Hearth does not run in mixtral"),
        ("turbosparsemixtral", {"hidden_act": "silu"}, "silu-glu is not supported in turbosparsemixtral"),
        ("llama", {"hidden_act": "silu"}, "has experts .num_local_experts: 4.; Hearth runs llama without"),
        ("granitemoe", {}, "of a kind that Hearth does not run"),
    ):
        with pytest.raises(UnsupportedModelError, match=words):
            config_from_hf({**base, "model_type": family, **change}, {})


# --- the expert that every position goes through


def test_the_shared_expert_is_counted_and_lies_behind_the_others(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    source = open_gguf(make_tiny_mixtral(tmp_path / "m.gguf"))
    tensors = {name: source.read_f32(name) for name in source.tensors}
    said = {key.replace("llama.", "qwen2moe."): value for key, value in source.metadata.items()}
    said |= {"general.architecture": "qwen2moe", "qwen2moe.expert_feed_forward_length": D_FF}
    said |= {"qwen2moe.expert_shared_feed_forward_length": 96}
    for layer in range(LAYERS):
        for part, shape in (("gate", (96, 32)), ("up", (96, 32)), ("down", (32, 96)), ("gate_inp", (32,))):
            tensors[f"blk.{layer}.ffn_{part}_shexp.weight"] = rng.standard_normal(shape).astype(np.float32)
        for part in "qkv":
            n_rows = len(tensors[f"blk.{layer}.attn_{part}.weight"])
            tensors[f"blk.{layer}.attn_{part}.bias"] = rng.standard_normal(n_rows).astype(np.float32)
    path = write_gguf(tmp_path / "shared.gguf", said, tensors)
    opened = open_model(path)
    config, weights = opened.config, load_weights(opened)
    assert config.n_neurons == N_EXPERTS * D_FF + 96
    assert config.routed_share == (N_USED * D_FF + 96) / config.n_neurons
    wanted, dense = run(config, weights, DenseExecutor)
    assert dense.executor.counters.tokens == len(TOKENS)
    assert dense.executor.counters.active_share == pytest.approx(config.routed_share)
    logits, exact = run(config, load_weights(opened, hold="mapped"), ExactExecutor, 5)
    np.testing.assert_allclose(logits, wanted, atol=1e-3)
    np.testing.assert_array_equal(exact.executor.counters.per_neuron, dense.executor.counters.per_neuron)
    assert exact.executor.counters.per_neuron[1, N_EXPERTS * D_FF :].any()
    bundle = open_model(convert(path, tmp_path / "bundle", "q8_0").bundle)
    assert isinstance(bundle.source, BundleSource)
    assert bundle.source.neurons(0).shape[0] == config.n_neurons
    for hold in ("f32", "mapped"):
        found = load_weights(bundle, hold=hold)  # type: ignore[arg-type]
        np.testing.assert_array_equal(found.layers[0].shared_gate, weights.layers[0].shared_gate)
        again, _ = run(bundle.config, found, DenseExecutor)
        assert np.sqrt(np.mean((again - wanted) ** 2)) < 0.1 * np.sqrt(np.mean(wanted**2))
