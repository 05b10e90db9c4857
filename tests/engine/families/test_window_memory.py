"""Layers with a window keep their last positions only: no path computes other logits, however often memory moves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import support.gpu_tokens
from family_models import Reference
from support.gpu_batches import Batched
from support.gpu_tokens import by_cpu, logits_of, put_on_gpu, some_experts, some_hot
from test_gpu_families import prompt_ops

from engine.config import ModelConfig
from engine.decode.decode_program import DecodeProgram
from engine.errors import Cancelled, HostMemoryError
from engine.executor.dense import DenseExecutor
from engine.gpu.prefill.prefill import GpuPrefill
from engine.gpu.prefill.prefill_memory import sizes_for
from engine.gpu.token.transformer import GpuTransformer
from engine.gpu.weights.cache import GpuCache, KvRegion, SavedPositions
from engine.model import window_memory
from engine.model.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import ModelWeights, load_weights, open_model
from engine.session.generate import decode_batch, decode_one_token, decode_tokens
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import Gpu
from native_kernels.reference import ReferenceOperators

CONTEXT = 320
WINDOWED = [
    "mistral", "qwen2-window", "gemma2", "gemma3", "phi3-window", "cohere2", "olmo3", "exaone4", "mixtral-window",
    "gpt-oss", "smallthinker-window", "gemma3n", "gemma4", "gemma4-e", "llama4",
]  # fmt: skip
References = Callable[[str], Reference]


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK", "SHARED_SLACK", "REWIND"):
        monkeypatch.setattr(window_memory, name, 32)
    monkeypatch.setattr(support.gpu_tokens, "CONTEXT", CONTEXT)


@pytest.fixture(scope="module")
def operators() -> Iterator[CpuOperators]:
    pool = Pool(2)
    yield CpuOperators(pool)
    pool.close()


@contextlib.contextmanager
def all_kept() -> Iterator[None]:
    """Caches made within it forget nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SLACK", "SHARED_SLACK"):
            patch.setattr(window_memory, name, CONTEXT)
        yield


def opened_case(references: References, name: str) -> tuple[ModelConfig, ModelWeights]:
    """Return a tiny model. Chunks of Llama 4 become as long as blocks, so that some are forgotten."""
    opened = open_model(references(name).folder)
    config, weights = opened.config, load_weights(opened, hold="f32")
    if config.chunked_windows:
        config = replace(config, windows=tuple(32 if window else 0 for window in config.windows))
    return config, weights


def some_tokens(config: ModelConfig, *shape: int) -> Any:
    return np.random.default_rng(3).integers(0, config.vocab_size, shape)


@pytest.mark.parametrize("name", WINDOWED)
def test_a_family_on_the_cpu(name: str, references: References, operators: CpuOperators) -> None:
    """In runs of all lengths, and token by token, with wrong drafts."""
    config, weights = opened_case(references, name)
    tokens = some_tokens(config, CONTEXT)
    program = DecodeProgram(config, weights, "dense", FfnCounters(config.n_layers, config.n_neurons), operators.pool)
    model = Transformer(config, weights, DenseExecutor(config, weights, operators), operators, program)
    cache = KVCache(config, CONTEXT)
    with all_kept():
        whole = KVCache(config, CONTEXT)
    assert cache.n_bytes <= KVCache.bytes_for(config, CONTEXT) < whole.n_bytes
    for start, stop in ((0, 70), (70, 71), (71, 200), (200, 206), (206, 232)):
        found, wanted = (model.forward(tokens[start:stop], one) for one in (cache, whole))
        np.testing.assert_allclose(found, wanted, atol=2e-4)
    firsts = set()
    while cache.length < CONTEXT - 8:
        n = 1 + cache.length % 8
        some = tokens[cache.length : cache.length + n].tolist()
        found, wanted = (decode_tokens(model, some, one) for one in (cache, whole))
        # Layers that share keys and values were given shorter runs.
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 if config.n_shared_kv_layers else 0)
        for one in (cache, whole):
            one.truncate(one.length - n // 2)
        firsts.add(cache.local_first)
    assert len(firsts) > 1


def placed(config: ModelConfig, on_cpu: int) -> tuple[list[str], list[Any]]:
    """Return the devices of layers, on the GPU but the first `on_cpu`, and their hot neurons."""
    attention = ["cpu" if i < on_cpu else "gpu" for i in range(config.n_layers)]
    if config.n_experts:
        return attention, some_experts(config, [3 * (home == "gpu") for home in attention])
    hot = some_hot(config, "full" if config.gate_cutoffs else "random")
    return attention, [ids[: len(ids) * (home == "gpu")] for ids, home in zip(hot, attention, strict=True)]


@pytest.mark.parametrize(("name", "on_cpu"), [("gemma3", 1), ("gpt-oss", 0), ("gemma3n", 1), ("llama4", 0)])
def test_tokens_on_a_gpu(any_gpu: Gpu, name: str, on_cpu: int, references: References) -> None:
    """Token by token and several at once, with another conversation in between."""
    config, weights = opened_case(references, name)
    tokens = some_tokens(config, 170).tolist()
    with all_kept():
        wanted, _ = by_cpu(config, weights, "dense", tokens)
    attention, hot = placed(config, on_cpu)
    ours = put_on_gpu(any_gpu, config, weights, "dense", hot, attention=attention)
    cache, other = ours.cache(), ours.cache()
    ours.decoder.lay_out(cache)
    while cache.length < len(tokens):
        at, n = cache.length, min(ours.decoder.most_tokens(cache), len(tokens) - cache.length)
        found = ours.decoder.steps(tokens[at : at + n], cache)
        np.testing.assert_allclose(found, wanted[at : at + n], atol=4e-4, rtol=1e-4)
        if at % 16 == 0:
            cache.truncate(cache.length - n // 2)
            np.testing.assert_allclose(ours.decoder.step(tokens[0], other), wanted[0], atol=4e-4, rtol=1e-4)
            other.truncate(0)
    assert cache.local_first > 0
    ours.close()


@pytest.mark.parametrize(("name", "on_cpu"), [("gemma3", 0), ("gemma4", 1), ("gemma3n", 0), ("gpt-oss", 1)])
def test_prompts_on_a_gpu(
    any_gpu: Gpu, name: str, on_cpu: int, references: References, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks that are longer than what windows have memory for, or shorter; then tokens."""
    config, weights = opened_case(references, name)
    tokens, ops = some_tokens(config, CONTEXT), ReferenceOperators()
    reference = Transformer(config, weights, DenseExecutor(config, weights, ops), ops)
    with all_kept():
        wanted = reference.forward(tokens, KVCache(config, CONTEXT))
    attention, hot = placed(config, on_cpu)
    ours = put_on_gpu(any_gpu, config, weights, "dense", hot, attention=attention)
    sizes = sizes_for(config, [w.ffns[0] for w in weights.layers], CONTEXT)
    on_device, sizes = prompt_ops(any_gpu), replace(sizes, positions=32 if config.n_shared_kv_layers else 96)
    prefill = GpuPrefill(reference, ours.loaded.model, on_device, ours.pool, sizes)
    many: Any = SimpleNamespace(least_tokens=2, chunk_tokens=96, n_kept=0)

    def run(*given: Any) -> Any:
        try:
            return prefill.run(*given[:4])
        finally:
            many.n_kept = prefill.n_kept

    many.run = run
    model, cache = GpuTransformer(config, weights, reference.executor, ops, ours.decoder, many), ours.cache()

    def stop(share: float) -> None:
        if share > 0.5:
            raise Cancelled

    def check(start: int, end: int) -> None:
        found = model.prefill(tokens[start:end], cache)
        error = np.square(found - wanted[start:end]).mean(axis=1) / np.square(wanted[start:end]).mean(axis=1)
        near_ties = 0.15 * bool(config.n_experts)  # of a router
        assert np.quantile(error, 1 - near_ties) < 1e-4, error.tolist()

    for limit_s in (60.0, 0.0):
        monkeypatch.setattr("engine.gpu.prefill.prefill.MOST_FINISH_S", limit_s)
        with pytest.raises(Cancelled):
            model.prefill(tokens[:250], cache, 0, stop)
        kept = cache.length  # of whole chunks, with that of the stop if it could be finished in time
        assert (kept > 125 and kept % sizes.positions == 0) if limit_s else kept == 0
        if limit_s:
            check(kept, 270)
        cache.truncate(0)
    for start, end in ((0, 21), (21, 250), (250, 310)):
        check(start, end)
    for i in range(310, CONTEXT):
        logits = ours.decoder.step(int(tokens[i]), cache)
        np.testing.assert_allclose(logits, reference.logits(wanted[i : i + 1])[0], atol=0.1)
    assert cache.local_first > 0
    for one in (prefill, on_device, ours):
        one.close()


@pytest.mark.parametrize(("name", "on_cpu"), [("gemma3", 1), ("gemma3n", 0)])
def test_batches_on_a_gpu(
    any_gpu: Any, name: str, on_cpu: int, references: References, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two sequences, of which one had more positions alone than a batch has memory for."""
    for slack in ("SLACK", "SHARED_SLACK"):
        monkeypatch.setattr(window_memory, slack, 160)
    config, weights = opened_case(references, name)
    tokens = some_tokens(config, 2, 155)
    with all_kept():
        wanted = [by_cpu(config, weights, "dense", row.tolist())[0] for row in tokens]
    attention, hot = placed(config, on_cpu)
    model = Batched(any_gpu, (config, weights), "dense", hot, 2, attention=attention, sequences=1)
    caches, lengths = [model.on_gpu.cache() for _ in tokens], (130, 3)
    for cache, row, n in zip(caches, tokens, lengths, strict=True):
        for token in row[:n].tolist():
            decode_one_token(model.alone, token, cache)
    assert caches[0].local_first == 0
    for i in range(25):
        found = decode_batch(model.together, [int(row[n + i]) for row, n in zip(tokens, lengths, strict=True)], caches)
        expected = np.stack([one[n + i] for one, n in zip(wanted, lengths, strict=True)])
        assert np.abs(found - expected).max() < 0.01 * np.abs(wanted[0]).max()
    assert caches[0].local_first > 0
    model.close()


def test_turns_of_batches_on_a_gpu(any_gpu: Gpu, references: References, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn comes back after more positions than the region has, and all stay if RAM is short for a copy of one."""
    monkeypatch.setattr(support.gpu_tokens, "CONTEXT", 3 * CONTEXT)
    monkeypatch.setattr(window_memory, "SLACK", 160)
    config, weights = opened_case(references, "gemma3")
    tokens = some_tokens(config, 2, 22).tolist()
    wanted = [by_cpu(config, weights, "dense", row)[0] for row in tokens]
    attention, hot = placed(config, 1)
    ours = put_on_gpu(any_gpu, config, weights, "dense", hot, attention=attention)
    caches, other = [ours.cache(), ours.cache()], ours.cache()
    for cache, row in zip(caches, tokens, strict=True):
        logits_of(ours.decoder.step, cache, row[:20])
        cache.remember()
    region, is_short = ours.region, iter([False, True])

    def saved(cache: GpuCache) -> SavedPositions:
        if next(is_short, False):
            raise HostMemoryError("no RAM")
        return KvRegion._saved(region, cache)

    def go_on() -> None:
        for cache, row, rows in zip(caches, tokens, wanted, strict=True):
            at = cache.length
            np.testing.assert_allclose(ours.decoder.step(row[at], cache), rows[at], atol=4e-4, rtol=1e-4)

    region.give_to_all(caches)
    monkeypatch.setattr(region, "_saved", saved)
    with pytest.raises(HostMemoryError):
        region.give_to(other)
    go_on()
    region.give_to_all(caches)
    for _ in range(300):
        caches[0].make_room(1)
        caches[0].advance(1)
    assert caches[0].local_first > 0
    caches[0].truncate(20)
    go_on()
    ours.close()
