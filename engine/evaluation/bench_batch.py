"""Speed of several sequences decoded at once, compared with the bytes that a joint step must move.

Every sequence has its own random prompt, whose KV cache is kept over the repeats. A neuron that several sequences need
is read, and counted, once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import InvalidRequestError
from engine.evaluation.bench import BenchResult, Floor, described, measured, ram_rate
from engine.evaluation.token_bytes import TokenBytes
from engine.executor.feed_forward import first_matrix
from engine.gpu.weights.cache import SLOT_STEP
from engine.job import Progress
from engine.model.kv_cache import KVCache
from engine.placement.cost_model import UNKNOWN_GPU_BYTES_PER_S
from engine.session.batch import BatchModel, open_batch
from engine.session.generate import decode_batch, prefill

if TYPE_CHECKING:
    from engine.model.weights import LayerWeights
    from engine.session.loaded_model import LoadedModel


def run_batch(
    model: LoadedModel,
    batch: int,
    prompt_tokens: int = 128,
    gen_tokens: int = 64,
    repeat: int = 3,
    mode: str | None = None,
    on_progress: Progress = lambda done, total: None,
    tell_floor: Callable[[Floor], None] = lambda floor: None,
) -> BenchResult:
    """Measure a batch.

    decode_tok_s: of all sequences together. Bytes and floor: per token, so a step divided by the batch. timings: per
    step; stages are those of the last repeat. tell_floor: as in bench.run.
    Raises: InvalidRequestError for a model that cannot decode batches.
    """
    config = model.opened.config
    room = prompt_tokens + gen_tokens
    if prompt_tokens < 1 or gen_tokens < 1 or repeat < 1:
        raise InvalidRequestError("The numbers of tokens and repeats must be at least 1.")
    if room > model.context:
        raise InvalidRequestError(
            f"{prompt_tokens} + {gen_tokens} tokens do not fit into the context of {model.context}.",
            "Lower --prompt-tokens or --gen-tokens.",
        )
    hardware = measured(model)
    model.reserve(batch * room)
    together, transformer = open_batch(model, batch, mode), model.transformer(mode)
    rng = np.random.default_rng(0)
    caches = [model.new_cache(room) for _ in range(batch)]
    prefill_s, decode_s = [], []
    stages: dict[str, float] = {}
    for cache in caches:
        started = time.perf_counter()
        prefill(transformer, rng.integers(0, config.vocab_size, prompt_tokens).tolist(), cache)
        prefill_s.append(time.perf_counter() - started)
        cache.remember()
    for number in range(repeat + 1):  # round 0 warms caches and is not counted
        _back_to(caches, prompt_tokens)
        together.reset()
        tokens = rng.integers(0, config.vocab_size, (gen_tokens, batch))
        started = time.perf_counter()
        for row in tokens.tolist():
            decode_batch(together, row, caches)
        if number:
            decode_s.append(time.perf_counter() - started)
            stages = {name: seconds / gen_tokens for name, seconds in together.stage_seconds().items()}
        on_progress(number, repeat)
    per_token = statistics.median(decode_s) / gen_tokens / batch
    moved = _moved(model, together, batch, prompt_tokens + gen_tokens // 2, model.resolve_mode(mode))
    tell_floor(lambda bytes_per_s: moved.floor(bytes_per_s) / batch)
    floor = moved.floor(ram_rate(hardware)) / batch
    counters = together.counters
    return BenchResult(
        prefill_tok_s=prompt_tokens / statistics.median(prefill_s),
        decode_tok_s=1 / per_token,
        batch=batch,
        bytes_per_token={"gpu": round(moved.on_gpu / batch), "cpu": round(moved.in_ram / batch)},
        ffn_bytes_per_token=round(moved.neurons / batch),
        predictor_bytes_per_token=round(moved.predictors / batch),
        floor_s_per_token=floor,
        share_of_floor=floor / per_token,
        gpu_neuron_load=counters.gpu_neuron_load,
        active_share=counters.active_share,
        fired_share=counters.fired_share,
        timings={"step": per_token * batch} | stages,
        **described(model, mode, hardware),
    )


@dataclass(frozen=True)
class _Moved:
    """Bytes of a batch step by device, the share of neurons and predictors, and the step's floor."""

    on_gpu: float
    in_ram: float
    neurons: float
    predictors: float
    floor: Floor


def _moved(model: LoadedModel, together: BatchModel, batch: int, position: int, mode: str) -> _Moved:
    """Count the bytes: hot neurons whole, cold ones if any sequence needs them, by the CPU or zero-copy.

    The floor counts those that are active after the first activation in any sequence.
    """
    weights, part, config = model.weights, model.gpu, model.opened.config
    n_layers = config.n_layers
    on_gpu, hot = np.zeros(n_layers, bool), np.zeros(n_layers)
    if part is not None:
        on_gpu = np.array([home == "gpu" for home in part.placement.attention])
        hot = np.array([len(ids) for ids in part.placement.hot]) / part.placement.neurons
    needed, opened = together.union_shares().T.astype(np.float64)
    reached, used = together.routed_shares().T.astype(np.float64)
    first, rest, whole = np.array([_neuron_bytes(layer) for layer in weights.layers], np.float64).T
    predicting = np.zeros(n_layers)
    if mode == "sparse":
        predicting[:] = [one.bytes_read(1.0) for one in model.modes.predictor.layers]
    attention = np.array([sum(w.n_bytes for w in x.attention_matrices) for x in weights.layers], np.float64)
    attention += batch * KVCache.bytes_read(config, position, model.kv_codec) / n_layers + predicting
    head = float(weights.head.n_bytes)
    gpu_head = part is not None and part.placement.head == "gpu"
    whole_there = (hot == 1) & (whole > 0)
    of_gpu = hot * (first + rest) + np.where(whole_there, whole, 0.0)
    of_ram = np.where(whole_there, 0.0, whole)
    least = of_ram + np.where(hot == 1, 0.0, opened + used) * (first + rest)
    read = of_ram + np.where(hot == 1, 0.0, needed * first + opened * rest + reached * (first + rest))
    before = np.where(on_gpu, attention, 0.0), np.where(on_gpu, 0.0, attention)
    heads = (head, 0.0) if gpu_head else (0.0, head)
    moved = TokenBytes(before, (of_gpu, least), heads, float(predicting.sum()))
    gpu_bytes_per_s = (None if part is None else part.bytes_per_s) or UNKNOWN_GPU_BYTES_PER_S
    return _Moved(
        moved.on_gpu,
        moved.in_ram + float((read - least).sum()),
        float((of_gpu + read).sum()),
        moved.predictors,
        partial(moved.least_s, gpu_bytes_per_s),
    )


def _neuron_bytes(layer: LayerWeights) -> tuple[int, int, int]:
    """Return bytes of the deciding matrix, of the others stored by neuron, and of a row-wise down."""
    ffn = layer.ffns[0]
    first = first_matrix(ffn)[0].n_bytes
    rest = (0 if ffn.gate is None else ffn.up.n_bytes) + (0 if ffn.down_t is None else ffn.down_t.n_bytes)
    return first, rest, 0 if ffn.down is None else ffn.down.n_bytes


def whole_slots(tokens: int) -> int:
    """Return the context that gives each sequence of a batch this many tokens."""
    return max(8, -(-tokens // SLOT_STEP) * SLOT_STEP)


def _back_to(caches: list[KVCache], length: int) -> None:
    for cache in caches:
        cache.truncate(length)
