"""Executors and the graph: exact equals dense to rounding, sparse what its predictor allows, counts are true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from samples.tiny_model import make_tiny_model

from engine.config import ACTIVATIONS, ModelConfig
from engine.errors import ArtifactMismatchError, ContextOverflowError, InvalidRequestError, TokenizerMismatchError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import PER_TOKEN_LIMIT, ExactExecutor
from engine.executor.sparse import SparseExecutor
from engine.model.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import LayerWeights, ModelWeights, load_weights, open_model
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
TOKENS = np.random.default_rng(0).integers(0, 256, 24)
Loaded = tuple[ModelConfig, ModelWeights]


@pytest.fixture(scope="module")
def relu(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("relu")))
    return opened.config, load_weights(opened)


@pytest.fixture(scope="module")
def silu(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    opened = open_model(make_tiny_model(tmp_path_factory.mktemp("silu"), activation="silu"))
    return opened.config, load_weights(opened)


def transformer(loaded: Loaded, executor: type[DenseExecutor] | type[ExactExecutor]) -> Transformer:
    return Transformer(*loaded, executor(*loaded, OPS), OPS)


def run(model: Transformer, pieces: list[int]) -> np.ndarray:
    cache = KVCache(model.config, len(TOKENS))
    parts = np.split(TOKENS, np.cumsum(pieces)[:-1])
    return np.concatenate([model.logits(model.forward(part, cache)) for part in parts])


@pytest.mark.parametrize("pieces", [[24], [1] * 24, [PER_TOKEN_LIMIT, PER_TOKEN_LIMIT + 1, 11]])
def test_exact_equals_dense_and_pieces_do_not_matter(relu: Loaded, pieces: list[int]) -> None:
    dense, exact = transformer(relu, DenseExecutor), transformer(relu, ExactExecutor)
    wanted = run(dense, [24])
    np.testing.assert_allclose(run(exact, pieces), wanted, atol=2e-4)
    np.testing.assert_allclose(run(dense, pieces), wanted, atol=2e-4)


@pytest.mark.parametrize("pieces", [[24], [1] * 24, [2, 22]])
def test_counts(relu: Loaded, pieces: list[int]) -> None:
    config, _ = relu
    dense, exact = transformer(relu, DenseExecutor), transformer(relu, ExactExecutor)
    for model in (dense, exact):
        model.executor.counters.record_per_neuron()
        run(model, pieces)
        counters = model.executor.counters
        assert counters.tokens == 24
        assert counters.per_neuron is not None
        assert counters.per_neuron.shape == (config.n_layers, config.d_ff)
        assert counters.per_neuron.sum() == counters.fired
    assert dense.executor.counters.fired == exact.executor.counters.fired == exact.executor.counters.computed
    assert dense.executor.counters.active_share == 1.0
    assert exact.executor.counters.active_share == exact.executor.counters.fired_share
    assert 0.2 < (exact.executor.counters.fired_share or 0) < 0.8
    exact.executor.counters.reset()
    assert (exact.executor.counters.tokens, exact.executor.counters.active_share) == (0, None)
    assert exact.executor.counters.per_neuron is not None
    assert not exact.executor.counters.per_neuron.any()


def test_counts_beyond_a_byte_add_up() -> None:
    counters = FfnCounters(2, 3)
    counters.record_per_neuron()
    for _ in range(600):
        recent = counters.recent(1)
        assert recent is not None
        recent[1, 2:] += 1
    assert counters.take_per_neuron()[0].tolist() == [[0, 0, 0], [0, 0, 600]]
    assert counters.per_neuron is not None
    assert not counters.per_neuron.any()


@pytest.mark.parametrize("n_tokens", [1, 9])
@pytest.mark.parametrize("sign", [-1.0, 0.0, 1.0])
def test_no_neuron_and_every_neuron_firing(relu: Loaded, n_tokens: int, sign: float) -> None:
    config, weights = relu
    gate = weights.layers[0].gate.data
    saved = gate.copy()
    try:
        gate[:] = sign * np.abs(saved)
        x = np.abs(np.random.default_rng(1).standard_normal((n_tokens, config.d_model))).astype(np.float32)
        exact, dense = ExactExecutor(config, weights, OPS), DenseExecutor(config, weights, OPS)
        np.testing.assert_allclose(exact.ffn(0, x, x), dense.ffn(0, x, x), atol=1e-4)
        assert exact.counters.fired == (config.d_ff * n_tokens if sign > 0 else 0)
    finally:
        gate[:] = saved


def test_silu_runs_dense_and_refuses_exact(silu: Loaded) -> None:
    model = transformer(silu, DenseExecutor)
    assert np.isfinite(run(model, [24])).all()
    assert model.executor.counters.fired_share == 1.0
    with pytest.raises(InvalidRequestError, match="silu-glu"):
        ExactExecutor(*silu, OPS)


def test_a_cut_cache_continues_as_if_nothing_had_been_there(relu: Loaded) -> None:
    model = transformer(relu, ExactExecutor)
    cache = KVCache(model.config, 24)
    model.forward(TOKENS[:10], cache)
    model.forward(TOKENS[:5], cache)
    cache.truncate(10)
    again = model.logits(model.forward(TOKENS[10:], cache))
    np.testing.assert_allclose(again, run(model, [24])[10:], atol=2e-4)
    with pytest.raises(ValueError, match="cannot be cut"):
        cache.truncate(25)


def test_a_full_cache_and_a_foreign_token_are_refused_before_anything_changes(relu: Loaded) -> None:
    model = transformer(relu, DenseExecutor)
    cache = KVCache(model.config, 8)
    model.forward(TOKENS[:8], cache)
    with pytest.raises(ContextOverflowError, match="context of 8"):
        model.forward(TOKENS[:1], cache)
    cache.truncate(4)
    for token in (-1, model.config.vocab_size):
        with pytest.raises(TokenizerMismatchError, match=f"Token {token} "):
            model.forward(np.array([0, token]), cache)
    assert cache.length == 4
    assert cache.n_bytes == KVCache.bytes_for(model.config, 8)


def test_nothing_in_nothing_out(relu: Loaded) -> None:
    for executor in (DenseExecutor, ExactExecutor):
        model = transformer(relu, executor)
        cache = KVCache(model.config, 4)
        assert model.logits(model.forward(TOKENS[:0], cache)).shape == (0, model.config.vocab_size)
        assert cache.length == 0


# --- every activation, gates and biases or none


def random_layer(config: ModelConfig, rng: np.random.Generator, *, biases: bool) -> LayerWeights:
    def matrix(n_rows: int, n_cols: int) -> PackedMatrix:
        return PackedMatrix.pack(rng.standard_normal((n_rows, n_cols)).astype(np.float32), "f32")

    def vector(size: int) -> np.ndarray | None:
        return rng.standard_normal(size).astype(np.float32) if biases else None

    d, f = config.d_model, config.d_ff
    square = matrix(d, d)
    return LayerWeights(
        attention_norm=np.ones(d, np.float32), q=square, k=square, v=square, o=square, up=matrix(f, d),
        gate=matrix(f, d) if config.gated else None, down_t=matrix(f, d),
        gate_bias=vector(f) if config.gated else None, up_bias=vector(f), down_bias=vector(d),
    )  # fmt: skip


def by_hand(
    config: ModelConfig, w: LayerWeights, x: np.ndarray, expected: np.ndarray | None = None
) -> tuple[np.ndarray, int, int]:
    """The block neuron by neuron, and how many of them pass the first activation and fire; `expected` [T, F] alone."""
    import math

    kinds = {
        "relu": lambda v: max(v, 0.0), "relu2": lambda v: max(v, 0.0) ** 2, "drelu": lambda v: max(v, 0.0),
        "fatrelu": lambda v: v if v > config.activation_threshold else 0.0,
        "silu": lambda v: v / (1 + math.exp(-v)), "gelu": lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
        "gelu-tanh": lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    }  # fmt: skip
    act = kinds[config.activation.removesuffix("-glu")]
    out, passed, fired = [], 0, 0
    for t, token in enumerate(x.astype(np.float64)):
        total = np.zeros(config.d_model) if w.down_bias is None else w.down_bias.astype(np.float64)
        for n in range(config.d_ff) if expected is None else np.flatnonzero(expected[t]):
            up = float(w.up.data[n] @ token) + (0 if w.up_bias is None else float(w.up_bias[n]))
            if w.gate is None:
                h = first = act(up)
            else:
                first = act(float(w.gate.data[n] @ token) + (0 if w.gate_bias is None else float(w.gate_bias[n])))
                up = max(up, 0.0) if config.activation == "drelu-glu" else up
                h = first * up
            passed += first != 0
            fired += h != 0
            total = total + h * w.down_t.data[n]
        out.append(total)
    return np.array(out), passed, fired


@pytest.mark.parametrize("row_wise", [False, True])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_against_a_loop_over_neurons(
    relu: Loaded, activation: str, biases: bool, row_wise: bool
) -> None:
    threshold = 0.7 if activation == "fatrelu-glu" else 0.0
    config = replace(relu[0], activation=activation, activation_threshold=threshold, n_layers=1)
    rng = np.random.default_rng(3)
    layer = random_layer(config, rng, biases=biases)
    x = rng.standard_normal((9, config.d_model)).astype(np.float32)
    wanted, passed, fired = by_hand(config, layer, x)
    if row_wise:  # as a file stores it whose down cannot be turned without loss
        down = PackedMatrix.pack(np.ascontiguousarray(layer.down_t.data.T), "f32")
        layer = replace(layer, down_t=None, down=down)
    weights = replace(relu[1], layers=[layer])
    dense = DenseExecutor(config, weights, OPS)
    np.testing.assert_allclose(dense.ffn(0, x, x), wanted, atol=2e-3)
    assert dense.counters.computed == 9 * config.d_ff
    if not config.has_zeros:
        return  # gelu comes to zero where float32 ends, not where the loop's float64 does
    assert dense.counters.fired == fired
    for pieces in (np.split(x, 9), [x], [x[:4], x[4:]]):
        exact = ExactExecutor(config, weights, OPS)
        exact.counters.record_per_neuron()
        np.testing.assert_allclose(np.concatenate([exact.ffn(0, piece, piece) for piece in pieces]), wanted, atol=2e-3)
        assert (exact.counters.tokens, exact.counters.computed, exact.counters.fired) == (9, passed, fired)
        assert exact.counters.per_neuron.sum() == fired


# --- sparse


def some_predictor(config: ModelConfig, *, reads: str = "residual", threshold: float = 0.0, seed: int = 5) -> Predictor:
    """Random predictors, of a rank that grows from layer to layer."""
    rng = np.random.default_rng(seed)

    def layer(rank: int) -> LayerPredictor:
        a, b = rng.standard_normal((rank, config.d_model)), rng.standard_normal((config.d_ff, rank))
        part = LowRank(PackedMatrix.pack(a, "f32"), PackedMatrix.pack(b, "f16"), threshold=threshold)
        return LayerPredictor(part, input="residual" if reads == "residual" else "normed")

    return Predictor(tuple(layer(4 + i) for i in range(config.n_layers)))


def exact_predictor(config: ModelConfig, weights: ModelWeights) -> Predictor:
    """Its score is what goes into the first activation itself: relu(g) - relu(-g) = g."""
    one = np.eye(config.d_ff, dtype=np.float32)
    layers = []
    for w in weights.layers:
        matrix, bias = (w.up, w.up_bias) if w.gate is None else (w.gate, w.gate_bias)
        a = np.concatenate([matrix.data, -matrix.data])
        threshold = float(np.nextafter(np.float32(config.activation_threshold), np.float32(np.inf)))
        b = PackedMatrix.pack(np.hstack([one, -one]), "f32")
        layers.append(LayerPredictor(LowRank(PackedMatrix.pack(a, "f32"), b, b_bias=bias, threshold=threshold)))
    return Predictor(tuple(layers))


def sparse(loaded: Loaded, predictor: Predictor) -> Transformer:
    return Transformer(*loaded, SparseExecutor(*loaded, predictor, OPS), OPS)


PIECES = [[24], [1] * 24, [PER_TOKEN_LIMIT, PER_TOKEN_LIMIT + 1, 11]]


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_sparse_equals_dense_where_every_neuron_is_expected(
    request: pytest.FixtureRequest, activation: str, pieces: list[int]
) -> None:
    loaded = request.getfixturevalue(activation)
    dense, model = transformer(loaded, DenseExecutor), sparse(loaded, some_predictor(loaded[0], threshold=-1e9))
    np.testing.assert_allclose(run(model, pieces), run(dense, [24]), atol=2e-4)
    found, wanted = model.executor.counters, dense.executor.counters
    assert (found.active_share, found.fired, found.gate_active) == (1.0, wanted.fired, wanted.gate_active)


@pytest.mark.parametrize("pieces", PIECES)
def test_sparse_equals_exact_where_those_that_fire_are_expected(relu: Loaded, pieces: list[int]) -> None:
    exact, model = transformer(relu, ExactExecutor), sparse(relu, exact_predictor(*relu))
    np.testing.assert_allclose(run(model, pieces), run(exact, pieces), atol=2e-4)
    found, wanted = model.executor.counters, exact.executor.counters
    assert (found.tokens, found.computed, found.fired) == (wanted.tokens, wanted.computed, wanted.fired)


@pytest.mark.parametrize("pieces", PIECES[1:])
def test_a_batch_uses_each_position_its_own_neurons(relu: Loaded, pieces: list[int]) -> None:
    whole, parts = (sparse(relu, some_predictor(relu[0])) for _ in range(2))
    wanted = run(whole, [24])
    np.testing.assert_allclose(run(parts, pieces), wanted, atol=2e-4)
    assert np.abs(wanted - run(transformer(relu, DenseExecutor), [24])).max() > 0.1
    counted = [
        (c.tokens, c.computed, c.gate_active, c.fired) for c in (whole.executor.counters, parts.executor.counters)
    ]
    assert counted[0] == counted[1]
    assert 0.3 < (whole.executor.counters.active_share or 0) < 0.7
    assert 0.3 < whole.executor.counters.fired / whole.executor.counters.computed < 0.7


@pytest.mark.parametrize("row_wise", [False, True])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("reads", ["residual", "normed"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_sparse_of_every_activation_against_a_loop_over_the_expected_neurons(
    relu: Loaded, activation: str, reads: str, biases: bool, row_wise: bool
) -> None:
    threshold = 0.7 if activation == "fatrelu-glu" else 0.0
    config = replace(relu[0], activation=activation, activation_threshold=threshold, n_layers=1)
    rng = np.random.default_rng(3)
    layer = random_layer(config, rng, biases=biases)
    x, residual = rng.standard_normal((2, 9, config.d_model)).astype(np.float32)
    predictor = some_predictor(config, reads=reads)
    expected = predictor.expected(0, x, residual).mask
    wanted, opened, fired = by_hand(config, layer, x, expected)
    if row_wise:
        down = PackedMatrix.pack(np.ascontiguousarray(layer.down_t.data.T), "f32")
        layer = replace(layer, down_t=None, down=down)
    for size in (1, 4, 9):
        executor = SparseExecutor(config, replace(relu[1], layers=[layer]), predictor, OPS)
        executor.counters.record_per_neuron()
        parts = [executor.ffn(0, x[at : at + size], residual[at : at + size]) for at in range(0, 9, size)]
        np.testing.assert_allclose(np.concatenate(parts), wanted, atol=2e-3)
        counters = executor.counters
        assert (counters.tokens, counters.computed) == (9, np.count_nonzero(expected))
        if config.has_zeros:
            assert (counters.gate_active, counters.fired, counters.per_neuron.sum()) == (opened, fired, fired)


@pytest.mark.parametrize("n_tokens", [0, 1, 9])
def test_no_neuron_expected_adds_only_the_bias(relu: Loaded, n_tokens: int) -> None:
    executor = SparseExecutor(*relu, some_predictor(relu[0], threshold=1e9), OPS)
    x = np.ones((n_tokens, relu[0].d_model), np.float32)
    assert not executor.ffn(0, x, x).any()
    assert (executor.counters.tokens, executor.counters.computed) == (n_tokens, 0)


class Listener(DenseExecutor):
    def __init__(self, *loaded: object) -> None:
        super().__init__(*loaded)
        self.heard: list[tuple[np.ndarray, np.ndarray]] = []

    def ffn(self, layer: int, x: np.ndarray, residual: np.ndarray, routing: object = None) -> np.ndarray:
        self.heard.append((x, residual))
        return super().ffn(layer, x, residual)


@pytest.mark.parametrize("norms", ["pre", "parallel", "shared", "post"])
def test_the_residual_is_what_the_norm_before_the_block_reads(relu: Loaded, norms: str) -> None:
    config = replace(relu[0], parallel=norms in ("parallel", "shared"), shared_norm=norms == "shared",
                     norms="post" if norms == "post" else "pre")  # fmt: skip
    listener = Listener(config, relu[1], OPS)
    Transformer(config, relu[1], listener, OPS).forward(TOKENS, KVCache(config, 24))
    embedded = OPS.rows(relu[1].embedding, TOKENS)
    for layer, (x, residual) in zip(relu[1].layers, listener.heard, strict=True):
        weight = layer.attention_norm if norms == "shared" else layer.ffn_norm
        wanted = residual if norms == "post" else OPS.rms_norm(residual, weight, config.norm_eps)
        np.testing.assert_array_equal(x, wanted)
    assert np.array_equal(listener.heard[0][1], embedded) == (norms in ("parallel", "shared"))


def test_predictors_of_another_shape_are_refused(relu: Loaded) -> None:
    with pytest.raises(ArtifactMismatchError, match="width 16"):
        SparseExecutor(*relu, some_predictor(replace(relu[0], d_model=16)), OPS)
