"""The state of gated delta nets in a conversation's cache: what can be gone back to, and what a dropped run changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from samples.recurrent_model import make_recurrent_model

from engine.config import KV_CODECS
from engine.decode.decode_program import DecodeProgram
from engine.errors import Cancelled
from engine.executor.dense import DenseExecutor
from engine.model.kv_cache import MOST_SNAPSHOTS, KVCache, state_bytes, within_bytes
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.placement.gpu_bytes import gpu_cache_bytes
from engine.placement.model_bytes import ModelBytes
from engine.session.generate import TURN_END_TOKENS, decode_one_token, decode_tokens, most_at_once, prefill
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

TOKENS = np.random.default_rng(3).integers(6, 200, 90)
CLOSE = 1e-4


@pytest.fixture(scope="module", params=["reference", "kernels"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transformer]:
    opened = open_model(make_recurrent_model(tmp_path_factory.mktemp("model")))
    weights = load_weights(opened, hold="f32")
    if request.param == "reference":
        ops = ReferenceOperators()
        yield Transformer(opened.config, weights, DenseExecutor(opened.config, weights, ops), ops)
        return
    pool = Pool(2)
    kernels = CpuOperators(pool)
    executor = DenseExecutor(opened.config, weights, kernels)
    decoder = DecodeProgram(opened.config, weights, "dense", executor.counters, pool)
    yield Transformer(opened.config, weights, executor, kernels, decoder)
    pool.close()


def logits(model: Transformer, tokens: np.ndarray, cache: KVCache) -> np.ndarray:
    return model.logits(model.forward(tokens, cache))


def test_it_goes_back_to_what_it_remembers_and_nowhere_else(model: Transformer) -> None:
    cache, fresh = KVCache(model.config, 90), KVCache(model.config, 90)
    for start, stop in ((0, 20), (20, 45), (45, 60)):
        model.forward(TOKENS[start:stop], cache)
        if stop == 20:
            cache.remember()
    assert [cache.reusable(length) for length in (60, 59, 45, 44, 20, 19)] == [60, 45, 45, 20, 20, 0]
    with pytest.raises(ValueError, match="cannot be cut to 44"):
        cache.truncate(44)
    wanted = logits(model, TOKENS, fresh)
    for length in (45, 20, 0):
        cache.truncate(length)
        assert cache.length == length
        np.testing.assert_allclose(
            logits(model, TOKENS[length : length + 12], cache), wanted[length : length + 12], atol=CLOSE
        )


def test_a_cancelled_run_leaves_the_state_before_it(model: Transformer) -> None:
    cache, fresh = KVCache(model.config, 90), KVCache(model.config, 90)
    model.forward(TOKENS[:30], cache)
    model.forward(TOKENS[30:31], cache)

    def look(share: float) -> None:
        if share > 0.6:
            raise Cancelled

    with pytest.raises(Cancelled):
        model.forward(TOKENS[::-1][:9].copy(), cache, 0, look)
    assert cache.length == 31
    assert cache.reusable(30) == 0  # the state from before the last run was written over
    wanted = logits(model, TOKENS[:40], fresh)
    np.testing.assert_allclose(logits(model, TOKENS[31:40], cache), wanted[31:], atol=CLOSE)


def test_a_prompt_remembers_the_end_of_the_turn(model: Transformer) -> None:
    cache, end = KVCache(model.config, 90), 50 - TURN_END_TOKENS
    found = prefill(model, TOKENS[:50].tolist(), cache)
    np.testing.assert_allclose(found, logits(model, TOKENS[:50], KVCache(model.config, 90))[-1], atol=CLOSE)
    for token in TOKENS[50:60].tolist():
        decode_one_token(model, token, cache)
    assert cache.reusable(49) == end
    cache.truncate(end)
    again = prefill(model, TOKENS[end:50].tolist(), cache)
    np.testing.assert_allclose(again, found, atol=CLOSE)
    cache.truncate(cache.reusable(10))
    short = prefill(model, TOKENS[:9].tolist(), cache)  # shorter than the end of a turn
    np.testing.assert_allclose(short, logits(model, TOKENS[:9], KVCache(model.config, 90))[-1], atol=CLOSE)


def test_snapshots_are_few_and_spread_over_the_conversation(model: Transformer) -> None:
    cache = KVCache(model.config, 90)
    for start in range(0, 80, 4):
        model.forward(TOKENS[start : start + 4], cache)
        cache.remember()
    kept = sorted({cache.reusable(length) for length in range(76)})
    assert len(kept) <= MOST_SNAPSHOTS + 1
    assert np.diff([*kept, 80]).max() <= 48
    assert cache.n_bytes <= KVCache.bytes_for(model.config, 90)


def test_bytes_are_counted_by_layer(model: Transformer, tmp_path: Path) -> None:
    config = model.config
    assert config.delta is not None
    assert state_bytes(config) == 4 * 3 * config.delta.state_size * (2 + MOST_SNAPSHOTS)
    sizes = ModelBytes.of(open_model(make_recurrent_model(tmp_path / "m")))
    for codec in KV_CODECS:
        of_layers = sizes.kv_of_layer(90, codec)
        assert of_layers.sum() == KVCache.bytes_for(config, 90, codec)
        assert (of_layers[:3] == (state_bytes(config) + within_bytes(config)) // 3).all()
        assert (sizes.kept_in_ram(90, codec)[:3] == state_bytes(config) // 3).all()
        assert sizes.kv_of_layer(180, codec, 2)[0] == 2 * of_layers[0]
        assert sizes.kv_read(90, codec).sum() == KVCache.bytes_read(config, 90, codec)
    of_state = -(-4 * config.delta.state_size // 256) * 256
    assert gpu_cache_bytes(config, 90, "f16")[:3].tolist() == [6 * of_state] * 3  # snapshots are in RAM
    assert sizes.gpu_bytes.possible.all()


@pytest.mark.parametrize("model", ["kernels"], indirect=True)
def test_it_goes_back_to_each_token_of_a_run_of_several(model: Transformer) -> None:
    fresh = KVCache(model.config, 90)
    wanted = np.stack([decode_one_token(model, int(token), fresh) for token in TOKENS[:40]])
    for kept in (20, 21, 23, 25):
        cache = KVCache(model.config, 90)
        for token in TOKENS[:20]:
            decode_one_token(model, int(token), cache)
        assert most_at_once(model, cache) > 5
        found = decode_tokens(model, TOKENS[20:25].tolist(), cache)
        assert (found == wanted[20:25]).all()
        assert [cache.reusable(length) for length in (19, 20, 22, 25, 26)] == [0, 20, 22, 25, 25]
        cache.truncate(kept)
        assert cache.reusable(kept - 1) == (24 if kept == 25 else 0)
        assert (decode_tokens(model, TOKENS[kept : kept + 3].tolist(), cache) == wanted[kept : kept + 3]).all()
        cache.truncate(kept + 1)
        again = np.stack([decode_one_token(model, int(token), cache) for token in TOKENS[kept + 1 : 40]])
        assert (again == wanted[kept + 1 :]).all()


@pytest.mark.parametrize("model", ["kernels"], indirect=True)
@pytest.mark.parametrize("most_within", [None, 3])
def test_planned_bytes_are_those_of_a_cache_with_all_states(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, most_within: int | None
) -> None:
    cache = KVCache(model.config, 90)
    if most_within is not None:
        monkeypatch.setattr("engine.model.kv_cache.MOST_BYTES_WITHIN", most_within * cache.state().nbytes)
    for start in range(0, 4 * MOST_SNAPSHOTS, 4):
        model.forward(TOKENS[start : start + 4], cache)
        cache.remember()
    decode_tokens(model, TOKENS[40 : 40 + most_at_once(model, cache)].tolist(), cache)
    assert cache.n_bytes == KVCache.bytes_for(model.config, 90)


def test_runs_are_short_where_states_are_large(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KVCache(model.config, 90)
    monkeypatch.setattr("engine.model.kv_cache.MOST_BYTES_WITHIN", 2 * cache.state().nbytes + 1)
    assert cache.most_per_run() == 3
    assert most_at_once(model, cache) == (1 if model.decoder is None else 3)


def test_the_state_before_a_short_prompt_is_remembered(model: Transformer) -> None:
    cache, fresh = KVCache(model.config, 90), KVCache(model.config, 90)
    prefill(model, TOKENS[:30].tolist(), cache)
    prefill(model, TOKENS[30:34].tolist(), cache)
    for token in TOKENS[34:37]:
        decode_one_token(model, int(token), cache)
    assert cache.reusable(33) == 30
    cache.truncate(30)
    np.testing.assert_allclose(
        prefill(model, TOKENS[60:65].tolist(), cache),
        logits(model, np.concatenate([TOKENS[:30], TOKENS[60:65]]), fresh)[-1], atol=CLOSE,
    )  # fmt: skip
