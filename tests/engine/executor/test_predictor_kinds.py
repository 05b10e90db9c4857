"""Every kind of predictor: what it expects, in a batch as at decode, and a token's program against the executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from samples.predictors import dense_of, layer_of, low_rank_of, predictor_of, with_threshold
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.config import ModelConfig
from engine.decode.decode_program import DecodeProgram, why_not
from engine.errors import InvalidRequestError
from engine.executor.exact import ExactExecutor
from engine.executor.feed_forward import first_matrix
from engine.executor.sparse import SparseExecutor
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights, load_weights, open_model
from engine.session.generate import decode_one_token
from engine.sparsity.predictor import Kind, LayerPredictor, Predictor
from native_kernels.copies import rounded_to_bytes, signs
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
KINDS: tuple[Kind, ...] = ("low_rank", "gate_copy", "cascade", "sign", "true_gate")
TOKENS = np.random.default_rng(0).integers(0, 256, 24)
Loaded = tuple[ModelConfig, ModelWeights]


def loaded(folder: Path, **options: object) -> Loaded:
    opened = open_model(make_tiny_model(folder, d_model=96, d_ff=160, **options))
    return opened.config, load_weights(opened)


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return loaded(tmp_path_factory.mktemp("gated"))


@pytest.fixture(scope="module")
def row_wise(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Straight from an ordinary GGUF: down is stored row-wise, and the program has no fused form."""
    path = make_tiny_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", d_model=96, d_ff=160)
    opened = open_model(path)
    weights = load_weights(opened, hold="mapped")
    assert weights.layers[0].ffns[0].down_t is None
    return opened.config, weights


def decoded(model: Transformer) -> np.ndarray:
    cache = KVCache(model.config, len(TOKENS))
    return np.stack([decode_one_token(model, int(token), cache) for token in TOKENS])


def with_program(model: Loaded, predictor: Predictor, n_threads: int = 3) -> tuple[np.ndarray, SparseExecutor]:
    config, weights = model
    assert why_not(config, weights, "sparse", predictor) == []
    pool, executor = Pool(n_threads), SparseExecutor(config, weights, predictor, OPS)
    decoder = DecodeProgram(config, weights, "sparse", executor.counters, pool, predictor)
    found = decoded(Transformer(config, weights, executor, OPS, decoder))
    pool.close()
    return found, executor


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_what_is_expected_is_what_the_scores_say(gated: Loaded, kind: Kind) -> None:
    config, weights = gated
    part = layer_of(config, weights.layers[0].ffns[0], kind, "residual")
    assert part.kind == kind
    rng = np.random.default_rng(1)
    normed, residual = rng.standard_normal((2, 30, config.d_model)).astype(np.float32)
    mask = np.ones((30, config.d_ff), bool)
    passed = mask
    if (low := part.low_rank) is not None:
        hidden = np.maximum(residual @ dense_of(low.a).T + low.a_bias, 0)
        mask = hidden @ dense_of(low.b).T + low.b_bias >= low.threshold
        passed = mask
    if (copy := part.copy) is not None:
        x = rounded_to_bytes(signs(normed) if copy.signed_input else normed)
        mask = mask & (x @ dense_of(copy.matrix).T >= copy.threshold)
    found = part.expected(normed, residual, OPS)
    assert np.count_nonzero(found.mask != mask) <= 2  # where a score is the threshold but for rounding
    assert found.copied == (0 if copy is None else np.count_nonzero(passed))
    assert 0.05 < found.mask.mean() < 0.95


def test_a_true_gate_expects_nothing_by_itself(gated: Loaded) -> None:
    part = LayerPredictor()
    assert (part.kind, part.shape, part.n_bytes, part.matrices) == ("true_gate", None, 0, ())
    with pytest.raises(ValueError, match="own"):
        Predictor((part,)).expected(0, np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32))


@pytest.mark.parametrize("kind", ["gate_copy", "cascade", "sign"])
def test_copies_decide_in_a_batch_as_at_decode(gated: Loaded, kind: Kind) -> None:
    """To the last neuron. Low rank scores are added up in another order in a batch: below."""
    config, weights = gated
    pool = Pool(2)
    ops = CpuOperators(pool)
    part = layer_of(config, weights.layers[0].ffns[0], kind)
    part = LayerPredictor(copy=part.copy)
    x = np.random.default_rng(2).standard_normal((17, config.d_model)).astype(np.float32)
    together = part.expected(x, x, ops).mask
    alone = np.concatenate([part.expected(one[None], one[None], ops).mask for one in x])
    np.testing.assert_array_equal(together, alone)
    pool.close()


@pytest.mark.parametrize("codec", ["f32", "q8_0", "q4_0", "q4_0.lanes", "q8_0.lanes"])
def test_low_rank_decides_in_a_batch_as_at_decode_but_for_rounding(gated: Loaded, codec: str) -> None:
    """float32 sums in another order, and, where the rank's part is quantised, a byte that rounds to the other side, or
    no bytes in a batch on CPUs without dot products of bytes: a score moves by a few percent of the spread of scores at
    most, so only neurons so near the threshold may differ."""
    config, _ = gated
    pool = Pool(2)
    ops = CpuOperators(pool)
    part = low_rank_of(config, 32, 0.0, codec)
    x = np.random.default_rng(2).standard_normal((17, config.d_model)).astype(np.float32)
    together = part.scores(x, ops)
    alone = np.concatenate([part.scores(one[None], ops) for one in x])
    assert np.abs(together - alone).max() < 0.05 * together.std()
    pool.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", ["normed", "residual"])
def test_the_program_of_a_token_equals_the_executor(gated: Loaded, kind: Kind, reads: str) -> None:
    config, weights = gated
    predictor = predictor_of(config, weights, kind, reads=reads)  # type: ignore[arg-type]
    oracle = SparseExecutor(config, weights, predictor, OPS)
    wanted = decoded(Transformer(config, weights, oracle, OPS))
    found, executor = with_program(gated, predictor)
    np.testing.assert_allclose(found, wanted, atol=2e-3)
    counted, theirs = executor.counters.layers, oracle.counters.layers
    assert np.abs(counted - theirs).max() <= 2  # where a score is the threshold but for rounding
    assert executor.counters.tokens == len(TOKENS)
    assert (counted[:, 3] > 0).all() == (kind in ("gate_copy", "cascade", "sign"))
    assert (counted[:, 0] > counted[:, 2]).all() == (kind != "true_gate")


def test_layers_of_several_kinds(gated: Loaded, tmp_path: Path) -> None:
    model = loaded(tmp_path / "m", n_layers=5)
    predictor = predictor_of(*model, *KINDS)
    assert predictor.kinds == dict.fromkeys(KINDS, 1)
    oracle = SparseExecutor(*model, predictor, OPS)
    wanted = decoded(Transformer(*model, oracle, OPS))
    for n_threads in (1, 4):
        found, executor = with_program(model, predictor, n_threads)
        np.testing.assert_allclose(found, wanted, atol=2e-3)
        assert np.abs(executor.counters.layers - oracle.counters.layers).max() <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_down_stored_row_wise(row_wise: Loaded, kind: Kind) -> None:
    """The program with operators that multiply as it does is the same but for the order of additions."""
    config, weights = row_wise
    predictor = predictor_of(config, weights, kind)
    pool = Pool(2)
    ops = CpuOperators(pool)
    oracle = SparseExecutor(config, weights, predictor, ops)
    wanted = decoded(Transformer(config, weights, oracle, ops))
    found, executor = with_program(row_wise, predictor)
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
    assert np.abs(executor.counters.layers - oracle.counters.layers).max() <= 0.01 * oracle.counters.layers.max()
    pool.close()


def test_a_true_gate_is_exact_mode(gated: Loaded) -> None:
    config, weights = gated
    predictor = predictor_of(config, weights, "true_gate")
    found, executor = with_program(gated, predictor)
    pool, exact = Pool(3), ExactExecutor(config, weights, OPS)
    decoder = DecodeProgram(config, weights, "exact", exact.counters, pool)
    np.testing.assert_array_equal(found, decoded(Transformer(config, weights, exact, OPS, decoder)))
    np.testing.assert_array_equal(executor.counters.layers, exact.counters.layers)
    pool.close()


def test_a_true_gate_needs_zeros(tmp_path: Path) -> None:
    config, weights = loaded(tmp_path / "m", activation="silu")
    with pytest.raises(InvalidRequestError, match="makes no zeros"):
        SparseExecutor(config, weights, predictor_of(config, weights, "true_gate"), OPS)


@pytest.mark.parametrize("kind", ["gate_copy", "cascade"])
def test_a_predictor_that_lets_all_pass_changes_nothing(gated: Loaded, kind: Kind) -> None:
    config, weights = gated
    predictor = predictor_of(config, weights, kind)
    everything = Predictor(tuple(with_threshold(layer, -1e9) for layer in predictor.layers))
    nothing = Predictor(tuple(with_threshold(layer, 1e9) for layer in predictor.layers))
    wanted = decoded(Transformer(config, weights, ExactExecutor(config, weights, OPS), OPS))
    found, executor = with_program(gated, everything)
    np.testing.assert_allclose(found, wanted, atol=2e-4)
    assert executor.counters.active_share == 1.0
    _, executor = with_program(gated, nothing)
    assert executor.counters.computed == 0
    assert executor.counters.layer_shares[:, 3].tolist() == [0.0 if kind == "cascade" else 1.0] * config.n_layers


def test_a_batch_counts_and_computes_as_its_tokens_alone(gated: Loaded) -> None:
    config, weights = gated
    rng = np.random.default_rng(4)
    x, residual = rng.standard_normal((2, 9, config.d_model)).astype(np.float32)
    for kind in KINDS:
        predictor = predictor_of(config, weights, kind, reads="residual")
        together, alone = (SparseExecutor(config, weights, predictor, OPS) for _ in range(2))
        whole = together.ffn(0, x, residual)
        pieces = [alone.ffn(0, x[i : i + 1], residual[i : i + 1]) for i in range(9)]
        np.testing.assert_allclose(whole, np.concatenate(pieces), atol=1e-3)
        assert np.abs(together.counters.layers - alone.counters.layers).max() <= 1


def test_copies_are_of_the_first_matrix(gated: Loaded) -> None:
    config, weights = gated
    w = weights.layers[0].ffns[0]
    copy = layer_of(config, w, "gate_copy").copy
    assert copy is not None
    matrix, _ = first_matrix(w)
    np.testing.assert_allclose(dense_of(copy.matrix), dense_of(matrix), atol=0.2)
