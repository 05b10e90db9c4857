"""Speed in figures: prefill and decode rates on random tokens, against the bytes that a token must move.

Rates are medians over repeats in one process; the bandwidth that the floor is counted with is measured in the same
run with the same threads. Results to keep are written by the scripts in tests/benchmarks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.cpu_and_ram import process_ram_bytes
from engine.errors import InvalidRequestError
from engine.executor.ffn_bytes import ffn_bytes
from engine.generate import decode_one_token, prefill
from engine.hardware import measure, probe
from engine.model.kv_cache import KVCache
from engine.model.router import Routing
from native_kernels.backend import F32

if TYPE_CHECKING:
    from engine.executor.counters import FfnCounters
    from engine.model.transformer import FfnExecutor, Transformer
    from engine.session import LoadedModel


@dataclass(frozen=True)
class BenchResult:
    """Rates in tokens/s, times in seconds, sizes in bytes; None where it does not apply."""

    prefill_tok_s: float
    decode_tok_s: float
    bytes_per_token: dict[str, int]
    floor_s_per_token: float
    share_of_floor: float
    vram_bytes: int
    ram_bytes: int
    gpu_neuron_load: float | None
    active_share: float | None
    fired_share: float | None
    timings: dict[str, float]  # mean seconds per decoded token and stage
    hardware: dict[str, Any]
    mode: str
    threads: int
    hold: str  # f32, f16 or mapped
    weights: str  # the same in words, with the reason


class _TimedExecutor:
    """Passes calls on to an executor and adds up how long they take."""

    def __init__(self, inner: FfnExecutor) -> None:
        self._inner = inner
        self.counters: FfnCounters = inner.counters
        self.seconds = 0.0

    @property
    def name(self) -> str:
        return self._inner.name

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        started = time.perf_counter()
        result = self._inner.ffn(layer, x, residual, routing)
        self.seconds += time.perf_counter() - started
        return result


def run(
    model: LoadedModel,
    prompt_tokens: int = 128,
    gen_tokens: int = 64,
    repeat: int = 3,
    mode: str | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> BenchResult:
    """Measure the model on random tokens (seeded, so that two runs compute the same)."""
    config = model.opened.config
    if prompt_tokens < 1 or gen_tokens < 1 or repeat < 1:
        raise InvalidRequestError("The numbers of tokens and repeats must be at least 1.")
    if prompt_tokens + gen_tokens > model.context:
        raise InvalidRequestError(
            f"{prompt_tokens} + {gen_tokens} tokens do not fit into the context of {model.context}.",
            "Lower --prompt-tokens or --gen-tokens.",
        )
    hardware = measure(probe(), threads=model.threads)
    transformer = model.transformer(mode)
    timed = _TimedExecutor(transformer.executor)
    transformer.executor = timed
    rng = np.random.default_rng(0)
    cache = model.new_cache()
    prefill_s, decode_s, head_s, ffn_s = [], [], 0.0, 0.0
    counters = timed.counters
    for number in range(repeat + 1):  # the first round warms caches and is not counted
        cache.truncate(0)
        started = time.perf_counter()
        prefill(transformer, rng.integers(0, config.vocab_size, prompt_tokens).tolist(), cache)
        between = time.perf_counter()
        counters.reset()
        timed.seconds = 0.0
        for token in rng.integers(0, config.vocab_size, gen_tokens).tolist():
            decode_one_token(transformer, token, cache)
        if number:
            prefill_s.append(between - started)
            decode_s.append(time.perf_counter() - between)
            ffn_s += timed.seconds / gen_tokens / repeat
            head_s += _time_head(transformer, config.d_model) / repeat
        on_progress(number, repeat)
    per_token = statistics.median(decode_s) / gen_tokens
    fired, active, opened = counters.fired_share or 0.0, counters.active_share or 0.0, counters.opened_share or 0.0
    ran, reached = model.resolve_mode(mode), config.reached_share
    rest = _other_bytes(model, prompt_tokens + gen_tokens // 2)
    match ran:
        case "sparse":
            ffn = model.modes.predictor.n_bytes + ffn_bytes(model.weights, active, opened, fired)
        case "exact":
            ffn = ffn_bytes(model.weights, reached, opened, fired, reached)
        case _:
            ffn = ffn_bytes(model.weights, reached, reached, reached, reached)
    moved = round(rest + ffn)
    least = fired if config.has_zeros or ran == "sparse" else reached
    floor_bytes = rest + ffn_bytes(model.weights, least, least, least, reached)
    bandwidth = hardware.cpu.bytes_per_s
    assert bandwidth, "measure() fills in the bandwidth"
    floor = floor_bytes / bandwidth
    return BenchResult(
        prefill_tok_s=prompt_tokens / statistics.median(prefill_s),
        decode_tok_s=1 / per_token,
        bytes_per_token={"gpu": 0, "cpu": moved},
        floor_s_per_token=floor,
        share_of_floor=floor / per_token,
        vram_bytes=0,
        ram_bytes=process_ram_bytes(),
        gpu_neuron_load=None,
        active_share=counters.active_share,
        fired_share=counters.fired_share,
        timings={"ffn": ffn_s, "head": head_s, "attention_and_rest": per_token - ffn_s - head_s},
        hardware=hardware.to_json(),
        mode=ran,
        threads=model.threads,
        hold=model.weights.hold,
        weights=model.weights_reason,
    )


def _time_head(transformer: Transformer, d_model: int) -> float:
    hidden = np.ones((1, d_model), dtype=np.float32)
    started = time.perf_counter()
    transformer.logits(hidden)
    return time.perf_counter() - started


def _other_bytes(model: LoadedModel, context: int) -> int:
    """Bytes that one decoded token reads beside the FFN: attention, KV cache, head."""
    weights = model.weights
    attention = sum(w.n_bytes for layer in weights.layers for w in (layer.q, layer.k, layer.v, layer.o))
    routers = sum(layer.router.n_bytes for layer in weights.layers if layer.router)
    return attention + routers + weights.head.n_bytes + KVCache.bytes_for(model.opened.config, context, model.kv_codec)
