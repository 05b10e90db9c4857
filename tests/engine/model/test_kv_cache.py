"""The KV cache: what was cut off is forgotten, in every codec and backend, and the codec is chosen as asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples.tiny_model import make_tiny_gguf

from engine.config import KV_CODECS, EngineConfig, KvCodec
from engine.errors import InvalidRequestError
from engine.executor.dense import DenseExecutor
from engine.model.kv_cache import KVCache, read_cache_bytes
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.model.window_memory import REWIND
from engine.prompt_cache.block_file import BLOCK_TOKENS
from engine.session.loaded_model import LoadedModel
from native_kernels.backend import Operators
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

TOKENS = np.random.default_rng(3).integers(0, 200, 70)
# Of the largest logit: float16 rounds a key or value by 2^-11 of itself, 8 bits by 1/254 of its group's largest.
# Averages over positions and layers come out below twice that.
ROUNDING: dict[KvCodec, float] = {"f32": 1e-5, "f16": 2 * 2.0**-11, "q8_0": 2 / 254}


@pytest.fixture(scope="module", params=["reference", "kernels"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transformer]:
    opened = open_model(make_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf"))
    weights = load_weights(opened, hold="f32")
    pool = Pool(2)
    operators: Operators = ReferenceOperators() if request.param == "reference" else CpuOperators(pool)
    yield Transformer(opened.config, weights, DenseExecutor(opened.config, weights, operators), operators)
    pool.close()


def logits(model: Transformer, tokens: np.ndarray, cache: KVCache) -> np.ndarray:
    return model.logits(model.forward(tokens, cache))


def test_layers_with_a_window_read_no_more_than_it(tmp_path: Path) -> None:
    config = open_model(make_tiny_gguf(tmp_path / "tiny.gguf")).config
    windowed = replace(config, windows=(32, *[0] * (config.n_layers - 1)))
    whole, limited = (read_cache_bytes(one, 320, "f16") for one in (config, windowed))
    assert [10 * limited[0], *limited[1:]] == whole
    assert read_cache_bytes(windowed, 20, "f16") == read_cache_bytes(config, 20, "f16")


@pytest.mark.parametrize("window", [70, 512, 1024])
def test_the_prompt_cache_can_store_the_window_before_any_end(tmp_path: Path, window: int) -> None:
    config = open_model(make_tiny_gguf(tmp_path / "tiny.gguf")).config
    cache = KVCache(replace(config, windows=(window, *[0] * (config.n_layers - 1))), 40_000)
    random, moved = np.random.default_rng(window), set()
    while cache.length < 38_000:
        for n in (int(random.integers(1, 1500)), *[1] * int(random.integers(200))):
            cache.make_room(n)
            cache.pieces(cache.length, n)
            cache.advance(n)
            first = cache.first_needed(cache.length) // BLOCK_TOKENS * BLOCK_TOKENS
            assert "-" not in cache.forms(first)
            moved.add(cache.local_first)
    assert len(moved) > 9
    cache.truncate(cache.length - REWIND)


def test_a_run_that_is_dropped_leaves_the_turn(tmp_path: Path) -> None:
    config = open_model(make_tiny_gguf(tmp_path / "tiny.gguf")).config
    for window in (128, 1024, 4096):
        for n in (512, 1024, 2048):
            windowed = replace(config, windows=(window, *[0] * (config.n_layers - 1)))
            cache = KVCache(windowed, 20_000)
            while cache.length < 10_000:
                cache.make_room(500)
                cache.pieces(cache.length, 500)
                cache.advance(500)
            cache.remember()
            cache.make_room(6000)
            cache.pieces(cache.length, n)
            cache.drop_run()
            assert cache.length == 10_000
            assert cache.n_bytes <= KVCache.bytes_for(windowed, 20_000)


@pytest.mark.parametrize("codec", KV_CODECS)
def test_a_cache_that_was_cut_back_is_as_one_that_never_held_more(model: Transformer, codec: KvCodec) -> None:
    fresh, reused = (KVCache(model.config, 70, codec) for _ in range(2))
    model.forward(TOKENS[:33], fresh)
    wanted = logits(model, TOKENS[33:], fresh)
    model.forward(TOKENS[:33], reused)
    model.forward(TOKENS[::-1][:30], reused)
    reused.truncate(33)
    np.testing.assert_array_equal(logits(model, TOKENS[33:], reused), wanted)
    assert reused.length == 70
    with pytest.raises(ValueError, match="cannot be cut"):
        reused.truncate(71)


@pytest.mark.parametrize("codec", KV_CODECS)
def test_logits_stay_within_the_codecs_rounding(model: Transformer, codec: KvCodec) -> None:
    opened_form = Transformer(model.config, model.weights, model.executor, ReferenceOperators())
    wanted = logits(opened_form, TOKENS, KVCache(model.config, 70))
    found = logits(model, TOKENS, KVCache(model.config, 70, codec))
    assert np.abs(found - wanted).max() < ROUNDING[codec] * np.abs(wanted).max()


def test_what_a_cache_takes(model: Transformer) -> None:
    sizes = [KVCache(model.config, 64, codec).n_bytes for codec in KV_CODECS]
    assert sizes == [KVCache.bytes_for(model.config, 64, codec) for codec in KV_CODECS]
    assert sizes == sorted(sizes, reverse=True)
    with pytest.raises(InvalidRequestError, match="at least 1"):
        KVCache(model.config, 0)


def test_the_codec_is_chosen_by_the_backend_or_as_asked(tmp_path: Path) -> None:
    path = make_tiny_gguf(tmp_path / "tiny.gguf")

    def codec(config: EngineConfig) -> KvCodec:
        loaded = LoadedModel.load(path, config)
        assert loaded.new_cache(16).codec == loaded.kv_codec
        return loaded.kv_codec

    assert codec(EngineConfig(backend="kernels", threads=1)) == "f16"
    assert codec(EngineConfig(backend="reference", threads=1)) == "f32"
    assert codec(EngineConfig(backend="kernels", threads=1, kv_cache="q8_0")) == "q8_0"
    assert codec(EngineConfig(backend="reference", threads=1, kv_cache="f16")) == "f16"
    with pytest.raises(InvalidRequestError, match="q4_0"):
        EngineConfig(kv_cache="q4_0")  # type: ignore[arg-type]
