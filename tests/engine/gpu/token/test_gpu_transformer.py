"""What generation and evaluation ask of a model that GPU and CPU compute together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from samples.predictors import predictor_of
from samples.tiny_model import make_tiny_model
from support.gpu_tokens import CONTEXT, OnGpu, put_on_gpu, some_hot

from engine.config import SamplingConfig
from engine.errors import Cancelled, DeviceFailedError
from engine.executor.sparse import SparseExecutor
from engine.gpu.token.transformer import GpuTransformer
from engine.gpu.weights.cache import GpuCache
from engine.model.kv_cache import KVCache, StateCopy
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.session.generate import StopRules, decode_one_token, generate, prefill
from engine.session.sampling import make_sampler
from native_kernels.backend import F32, I64
from native_kernels.cuda.gpu import Gpu
from native_kernels.cuda.runtime.driver import CudaError
from native_kernels.reference import ReferenceOperators

CLOSE = 1e-4
TOKENS = np.random.default_rng(0).integers(0, 256, 12)
OPS = ReferenceOperators()


@pytest.fixture(params=["gpu", "cpu"])
def both(any_gpu: Gpu, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[GpuTransformer, OnGpu]]:
    """With the head on either side, in sparse mode."""
    opened = open_model(make_tiny_model(tmp_path / "m", tied=False))
    config, weights = opened.config, load_weights(opened, hold="f32")
    predictor = predictor_of(config, weights, "low_rank")
    ours = put_on_gpu(any_gpu, config, weights, "sparse", some_hot(config, "random"), predictor, head=request.param)
    executor = SparseExecutor(config, weights, predictor, OPS)
    executor.counters = ours.counters
    yield GpuTransformer(config, weights, executor, OPS, ours.decoder), ours
    ours.close()


def processors(model: GpuTransformer) -> Transformer:
    executor = model.executor
    assert isinstance(executor, SparseExecutor)
    own = SparseExecutor(model.config, model.weights, executor.predictor, OPS)
    return Transformer(model.config, model.weights, own, OPS)


def test_hidden_states_and_logits_of_every_position(both: tuple[GpuTransformer, OnGpu]) -> None:
    model, ours = both
    reference = processors(model)
    cache, theirs = ours.cache(), KVCache(model.config, CONTEXT)
    looked: list[float] = []
    for piece in (TOKENS[:5], TOKENS[5:6], TOKENS[6:]):
        found, wanted = model.forward(piece, cache, 0, looked.append), reference.forward(piece, theirs)
        np.testing.assert_allclose(found, wanted, atol=CLOSE)
        np.testing.assert_allclose(model.logits(found), reference.logits(wanted), atol=CLOSE)
    assert looked == [i / 5 for i in range(1, 5)] + [i / 6 for i in range(1, 6)]
    assert cache.tokens[: cache.length].tolist() == TOKENS.tolist()
    assert model.executor.counters.tokens == len(TOKENS)
    np.testing.assert_array_equal(model.executor.counters.layers, reference.executor.counters.layers)


def test_a_prompt_and_what_is_decoded_behind_it(both: tuple[GpuTransformer, OnGpu]) -> None:
    model, ours = both
    reference, theirs, cache = processors(model), KVCache(model.config, CONTEXT), ours.cache()
    found, wanted = prefill(model, TOKENS.tolist(), cache), prefill(reference, TOKENS.tolist(), theirs)
    for _ in range(5):
        np.testing.assert_allclose(found, wanted, atol=CLOSE)
        token = int(found.argmax())
        found, wanted = decode_one_token(model, token, cache), decode_one_token(reference, token, theirs)
    assert cache.length == len(TOKENS) + 5


def test_the_trail_gets_the_hidden_states_of_prompts_and_answers(
    both: tuple[GpuTransformer, OnGpu],
) -> None:
    model, ours = both
    reference, cache = processors(model), ours.cache()
    noted: dict[int, F32] = {}

    class Trail:
        def add(self, first: int, hidden: F32) -> None:
            noted.update({first + i: one for i, one in enumerate(hidden)})

        def cut(self, length: int) -> None:
            pass

    cache.trail = Trail()  # type: ignore[assignment]
    prefill(model, TOKENS[:8].tolist(), cache)
    for token in TOKENS[8:].tolist():
        decode_one_token(model, token, cache)
    wanted = reference.forward(TOKENS, KVCache(model.config, CONTEXT))
    assert list(noted) == list(range(12))
    np.testing.assert_allclose(np.stack(list(noted.values())), wanted, atol=CLOSE)
    assert model.has_far_head == (ours.loaded.model.head is not None)


def test_an_answer_says_what_the_gpu_computed(both: tuple[GpuTransformer, OnGpu]) -> None:
    model, ours = both

    class Stream:
        def push(self, token: int) -> str:
            return f"{token} "

        def flush(self) -> str:
            return ""

    sampler = make_sampler(SamplingConfig(temperature=0.0))
    *_, last = generate(model, ours.cache(), TOKENS.tolist(), sampler, Stream(), StopRules(max_tokens=6))  # type: ignore[arg-type]
    assert last.stats.gpu_neuron_load is not None
    assert 0 < last.stats.gpu_neuron_load < 1
    assert last.stats.tokens == 6


def test_a_stop_between_two_positions_keeps_those_before(both: tuple[GpuTransformer, OnGpu]) -> None:
    model, ours = both
    cache = ours.cache()
    model.forward(TOKENS[:3], cache)

    def look(share: float) -> None:
        if share > 0.5:
            raise Cancelled

    with pytest.raises(Cancelled):
        model.prefill(TOKENS[3:], cache, 0, look)
    kept = cache.length
    assert 3 < kept < len(TOKENS)
    whole = model.forward(TOKENS, ours.cache())
    assert (model.forward(TOKENS[kept:], cache) == whole[kept:]).all()


def test_a_short_prompt_runs_in_groups(both: tuple[GpuTransformer, OnGpu]) -> None:
    model, ours = both
    tokens = np.random.default_rng(1).integers(0, 256, 23)
    wanted, cache = model.forward(tokens, ours.cache()), ours.cache()
    ours.decoder.lay_out(cache)
    model.forward(tokens[:2], cache)
    looked: list[float] = []
    found = model.prefill(tokens[2:], cache, 0, looked.append)  # 8, 8 and 4 together, then the last
    np.testing.assert_array_equal(found, wanted[-1:])
    assert looked == [8 / 21, 16 / 21, 20 / 21]
    assert cache.tokens[: cache.length].tolist() == tokens.tolist()
    cache.truncate(4)

    def look(share: float) -> None:
        if share > 0.5:
            raise Cancelled

    with pytest.raises(Cancelled):
        model.prefill(tokens[4:], cache, 0, look)
    assert cache.length == 20
    np.testing.assert_array_equal(model.prefill(tokens[20:], cache), wanted[-1:])


class ManyAtOnce:
    """A GpuPrefill that notes what it is asked, and fails when told to."""

    least_tokens, chunk_tokens = 4, 8

    def __init__(self) -> None:
        self.n_kept = 0
        self.asked: list[tuple[list[int], int, int]] = []
        self.copies: list[StateCopy | None] = []
        self.error: Exception | None = None

    def run(
        self, tokens: I64, cache: GpuCache, length: int, look: Callable[[float], None], copy: StateCopy | None = None
    ) -> F32:  # fmt: skip
        self.asked.append((tokens.tolist(), cache.length, length))
        self.copies.append(copy)
        if self.error is not None:
            raise self.error
        return np.ones((len(tokens), 32), np.float32)


def test_a_long_prompt_goes_another_way(both: tuple[GpuTransformer, OnGpu]) -> None:
    _, ours = both
    many = ManyAtOnce()
    model = GpuTransformer(ours.config, both[0].weights, both[0].executor, OPS, ours.decoder, many)
    cache = ours.cache()
    assert model.prefill(TOKENS[:4], cache, ahead=3).shape == (4, 32)
    assert many.asked == [(TOKENS[:4].tolist(), 0, 7)]
    assert (cache.length, cache.sequence_length) == (4, 7)
    model.prefill(TOKENS[4:7], cache)
    model.forward(TOKENS[7:], cache)
    assert len(many.asked) == 1
    many.error = CudaError("cuStreamSynchronize", 719, "CUDA_ERROR_LAUNCH_FAILED")
    with pytest.raises(DeviceFailedError, match="CUDA_ERROR_LAUNCH_FAILED"):
        model.prefill(TOKENS, cache)
    assert cache.length == len(TOKENS)


def test_only_new_tokens_are_remembered(both: tuple[GpuTransformer, OnGpu], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that run again because the rotation has changed."""
    _, ours = both
    many = ManyAtOnce()
    model = GpuTransformer(ours.config, both[0].weights, both[0].executor, OPS, ours.decoder, many)
    cache = ours.cache()
    model.prefill(TOKENS[:4], cache)
    monkeypatch.setattr(model, "cache_serves", lambda cache, length: False)
    model.prefill(TOKENS[4:], cache, remembered=2)
    assert [len(tokens) for tokens, *_ in many.asked] == [4, 4, len(TOKENS) - 4]
    assert [copy and copy.n_tokens for copy in many.copies] == [None, None, 2]
