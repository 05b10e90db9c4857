"""Speed: prefill and decode rates on random tokens, compared with the bytes that a token must move.

Rates are medians over repeats in one process. The bandwidth for the floor is measured in the same run with the same
threads. Stages are means over the same repeats; "rest" is the time between them, in Python. The scripts in
tests/benchmarks write results to keep.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from engine.config import Mode
from engine.errors import InvalidRequestError
from engine.evaluation.token_bytes import Routed, token_bytes
from engine.executor.ffn_bytes import Shares, exact_bytes, ffn_bytes, sparse_bytes
from engine.job import Progress
from engine.machine import hardware
from engine.machine.cpu_and_ram import process_ram_bytes
from engine.machine.hardware import HardwareProfile, measure, probe, sample_bytes
from engine.model.kv_cache import KVCache
from engine.model.router import Routing
from engine.placement.cost_model import UNKNOWN_GPU_BYTES_PER_S
from engine.session.generate import decode_one_token, prefill
from native_kernels.backend import F32, I64

if TYPE_CHECKING:
    from engine.model.counters import FfnCounters
    from engine.model.transformer import Decoder, Transformer
    from engine.session.loaded_model import LoadedModel
    from engine.sparsity.predictor import Kind

Floor = Callable[[float], float]  # bytes/s of the RAM -> least seconds of a token
_COUNTED_TOKENS = 16  # tokens that count active neurons when GPU and CPU share them


@dataclass(frozen=True)
class BenchResult:
    """Rates in tokens/s, times in seconds, sizes in bytes; None if not applicable."""

    prefill_tok_s: float
    decode_tok_s: float  # of all sequences together
    batch: int  # sequences at once
    bytes_per_token: dict[str, int]
    ffn_bytes_per_token: int  # the neurons' share
    predictor_bytes_per_token: int  # the predictors' share
    predictor_kinds: dict[Kind, int] | None  # kind -> number of layers
    floor_s_per_token: float
    share_of_floor: float
    vram_bytes: int
    vram_parts_bytes: dict[str, int] | None
    ram_bytes: int
    gpu_neuron_load: float | None
    active_share: float | None
    fired_share: float | None
    timings: dict[str, float]  # mean seconds per decoded token and stage
    hardware: dict[str, Any]
    mode: str
    threads: int
    hold: str  # f32, f16 or mapped
    weights: str  # in words, with the reason
    backend: str  # name of the backend
    backend_reason: str
    device: str
    device_reason: str
    expert_hits: float | None = None  # share of a token's experts that are resident on the GPU


def run(
    model: LoadedModel,
    prompt_tokens: int = 128,
    gen_tokens: int = 64,
    repeat: int = 3,
    mode: str | None = None,
    on_progress: Progress = lambda done, total: None,
    tell_floor: Callable[[Floor], None] = lambda floor: None,
) -> BenchResult:
    """Measure the model on random tokens, seeded so that runs are comparable.

    tell_floor: receives the floor, for callers that compare several runs at one RAM bandwidth.
    """
    config = model.opened.config
    if prompt_tokens < 1 or gen_tokens < 1 or repeat < 1:
        raise InvalidRequestError("The numbers of tokens and repeats must be at least 1.")
    if prompt_tokens + gen_tokens > model.context:
        raise InvalidRequestError(
            f"{prompt_tokens} + {gen_tokens} tokens do not fit into the context of {model.context}.",
            "Lower --prompt-tokens or --gen-tokens.",
        )
    hardware = measured(model)
    model.reserve(prompt_tokens + gen_tokens)
    transformer = model.transformer(mode)
    stages = _stages_of(transformer)
    rng = np.random.default_rng(0)
    cache = model.new_cache()
    prefill_s, decode_s = [], []
    counters = transformer.executor.counters
    for number in range(repeat + 1):  # round 0 warms caches and is not counted
        cache.truncate(0)
        started = time.perf_counter()
        prefill(transformer, rng.integers(0, config.vocab_size, prompt_tokens).tolist(), cache)
        between = time.perf_counter()
        counters.reset()
        hits = _Hits(model)
        if number == 1:
            stages.start()
        for token in rng.integers(0, config.vocab_size, gen_tokens).tolist():
            decode_one_token(transformer, token, cache)
        if number:
            prefill_s.append(between - started)
            decode_s.append(time.perf_counter() - between)
        on_progress(number, repeat)
    per_token = statistics.median(decode_s) / gen_tokens
    timings = {stage: seconds / gen_tokens / repeat for stage, seconds in stages.seconds().items()}
    timings["rest"] = max(0.0, sum(decode_s) / gen_tokens / repeat - sum(timings.values()))
    counted = _Counted(
        model.resolve_mode(mode), prompt_tokens + gen_tokens // 2, counters.layer_shares, counters.active_share,
        counters.fired_share, counters.gpu_neuron_load, hits.routed,
    )  # fmt: skip
    moved = _moved(model, counted, lambda: _fired_of(transformer, cache))
    tell_floor(moved.floor)
    floor_s = moved.floor(ram_rate(hardware))
    return BenchResult(
        prefill_tok_s=prompt_tokens / statistics.median(prefill_s),
        decode_tok_s=1 / per_token,
        batch=1,
        bytes_per_token={"gpu": moved.gpu, "cpu": moved.cpu},
        ffn_bytes_per_token=moved.neurons,
        predictor_bytes_per_token=moved.predictors,
        floor_s_per_token=floor_s,
        share_of_floor=floor_s / per_token,
        gpu_neuron_load=counted.gpu_neuron_load,
        active_share=counted.active_share,
        fired_share=counted.fired_share,
        timings=timings,
        expert_hits=None if counted.routed is None else float(counted.routed.hits.mean()),
        **described(model, mode, hardware),
    )


def described(model: LoadedModel, mode: str | None, hardware: HardwareProfile) -> dict[str, Any]:
    """Return the fields of a BenchResult that describe the loaded model."""
    ran = model.resolve_mode(mode)
    return {
        "predictor_kinds": model.modes.predictor.kinds if ran == "sparse" else None,
        "vram_bytes": model.vram_bytes,
        "vram_parts_bytes": None if model.gpu is None else model.gpu.part_bytes,
        "ram_bytes": process_ram_bytes(),
        "hardware": hardware.to_json(),
        "mode": ran,
        "threads": model.threads,
        "hold": model.weights.hold,
        "weights": model.weights_reason,
        "backend": model.backend.name,
        "backend_reason": model.backend_reason,
        "device": model.device,
        "device_reason": model.device_reason,
    }


@dataclass(frozen=True)
class _Moved:
    """Bytes of a decoded token by device, the share of neurons and predictors, and its floor."""

    gpu: int
    cpu: int
    neurons: int
    predictors: int
    floor: Floor


@dataclass(frozen=True, eq=False)
class _Counted:
    """Counts of the measured tokens. position: of the middle one. shares [L, 4]: FfnCounters.layer_shares."""

    mode: Mode
    position: int
    shares: Shares
    active_share: float | None
    fired_share: float | None
    gpu_neuron_load: float | None
    routed: Routed | None


class _Hits:
    """Counts from its making on which experts of a model on a GPU are resident when a token uses them."""

    def __init__(self, model: LoadedModel) -> None:
        self._config = model.opened.config
        self._slots = None if model.gpu is None else model.gpu.expert_slots
        if self._slots is not None:
            self._tokens, self._missed = self._slots.tokens, self._slots.missed

    @property
    def routed(self) -> Routed | None:
        """None without experts or a GPU."""
        slots, config = self._slots, self._config
        if slots is None:
            return None
        missed = (slots.missed - self._missed) / (config.n_experts_used * max(1, slots.tokens - self._tokens))
        return Routed(config.n_experts, config.routed_share, np.where(slots.is_on_gpu, 1 - missed, 0.0))


def _fired_of(transformer: Transformer, cache: KVCache) -> I64:
    """Return how often each neuron is active [L, F], over a few untimed tokens."""
    counters, vocabulary = transformer.executor.counters, transformer.config.vocab_size
    counters.record_per_neuron()
    cache.truncate(0)
    for token in np.random.default_rng(1).integers(0, vocabulary, min(_COUNTED_TOKENS, cache.capacity)).tolist():
        decode_one_token(transformer, token, cache)
    fired, _ = counters.take_per_neuron()
    counters.stop_per_neuron()
    return fired


def _moved(model: LoadedModel, counted: _Counted, fired_of: Callable[[], I64]) -> _Moved:
    mode, position, shares = counted.mode, counted.position, counted.shares
    config, part = model.opened.config, model.gpu
    predictor = model.modes.predictor if mode == "sparse" else None
    if part is not None:
        fired = counted.routed or fired_of()
        how = (model.weights, part, mode, shares, fired, position, predictor)
        moved, least = token_bytes(*how), token_bytes(*how, least=True)
        floor = partial(least.least_s, part.bytes_per_s or UNKNOWN_GPU_BYTES_PER_S)
        return _Moved(moved.on_gpu, moved.in_ram, moved.of_neurons, round(moved.predictors), floor)
    fired_share, reached = counted.fired_share or 0.0, config.routed_share
    rest, predicting = bytes_beside_ffn(model, position), 0.0
    if predictor is not None:
        ffn, predicting = sparse_bytes(model.weights, predictor, shares, reached)
    elif mode == "exact":
        ffn = exact_bytes(model.weights, shares, reached)
    else:
        ffn = ffn_bytes(model.weights, reached, reached, reached, reached)
    share = fired_share if config.has_zeros or mode == "sparse" else reached
    floor_bytes = rest + ffn_bytes(model.weights, share, share, share, reached)
    return _Moved(
        0, round(rest + ffn + predicting), round(ffn), round(predicting), lambda bytes_per_s: floor_bytes / bytes_per_s
    )  # fmt: skip


class _Stages(Protocol):
    """Times of the stages of decoded tokens."""

    def start(self) -> None:
        """Start measuring."""

    def seconds(self) -> dict[str, float]:
        """Return the seconds of every stage since then."""


class _ProgramStages:
    """Stages of a token's program, as its first thread measures them."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def start(self) -> None:
        self._decoder.measure_stages()

    def seconds(self) -> dict[str, float]:
        return self._decoder.stage_seconds()


class _TimedTransformer:
    """Times executor and head by the clock if the operators compute layer by layer."""

    def __init__(self, transformer: Transformer) -> None:
        self._seconds = {"ffn": 0.0, "head": 0.0}
        self._inner, self._logits = transformer.executor, transformer.logits
        self.counters: FfnCounters = self._inner.counters
        transformer.executor = self
        transformer.logits = self.logits  # type: ignore[method-assign]

    @property
    def name(self) -> str:
        return self._inner.name

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        started = time.perf_counter()
        result = self._inner.ffn(layer, x, residual, routing)
        self._seconds["ffn"] += time.perf_counter() - started
        return result

    def logits(self, hidden: F32) -> F32:
        started = time.perf_counter()
        result = self._logits(hidden)
        self._seconds["head"] += time.perf_counter() - started
        return result

    def start(self) -> None:
        self._seconds = {"ffn": 0.0, "head": 0.0}

    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)


def _stages_of(transformer: Transformer) -> _Stages:
    return _TimedTransformer(transformer) if transformer.decoder is None else _ProgramStages(transformer.decoder)


def measured(model: LoadedModel) -> HardwareProfile:
    """Return the machine with its bandwidth, measured by the kernels' threads if there are some."""
    if model.backend.kernels is None:
        return measure(probe(), threads=model.threads)
    from native_kernels.cpu.products.bandwidth import read_bytes_per_s

    profile = probe()
    speed = read_bytes_per_s(model.backend.kernels.pool, sample_bytes(profile), hardware.SAMPLE_S)
    return replace(profile, cpu=replace(profile.cpu, bytes_per_s=speed))


def ram_rate(hardware: HardwareProfile) -> float:
    """Return the RAM's bytes/s from `measured`."""
    assert hardware.cpu.bytes_per_s, "measured() fills in the bandwidth"
    return hardware.cpu.bytes_per_s


def bytes_beside_ffn(model: LoadedModel, context: int) -> int:
    """Return bytes of a decoded token outside the FFN: attention, KV cache, head."""
    weights = model.weights
    attention = sum(w.n_bytes for layer in weights.layers for w in layer.attention_matrices)
    routers = sum(layer.router.n_bytes for layer in weights.layers if layer.router)
    return attention + routers + weights.head.n_bytes + KVCache.bytes_read(model.opened.config, context, model.kv_codec)
