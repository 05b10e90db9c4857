"""One token as a compiled program: embedding, all layers and the head in a single hand-off to the threads, no Python.

Same graph and results as engine/model/transformer.py, which runs prefill. `why_not` lists what it does not support.
Paper: PowerInfer, section 4 (the online phase).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from engine.config import Mode, ModelConfig
from engine.decode.decode_calls import DecodeCalls, FfnPlan
from engine.decode.expert_calls import ExpertCalls
from engine.decode.expert_calls import why_not as why_no_expert_calls
from engine.decode.ffn_calls import FfnCalls
from engine.decode.ffn_calls import why_not as why_no_ffn_calls
from engine.errors import Cancelled
from engine.job import never
from engine.model.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.transformer import check_tokens
from engine.model.weights import ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, PackedMatrix
from native_kernels.cpu.products.linear import Products
from native_kernels.cpu.products.linear import why_not as why_no_product
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cpu.runtime.token_state import (
    CACHE,
    LAYER_BYTES,
    LAYER_TOKEN,
    LOCAL_CACHE,
    LOCAL_LAYER_BYTES,
    NEW_STATE,
    POSITION,
    STATE,
    TOKEN,
)
from native_kernels.kv_blocks import KvLayout


def why_not(
    config: ModelConfig,
    weights: ModelWeights,
    mode: Mode,
    predictor: Predictor | None = None,
) -> list[str]:
    """Return why a token of this model cannot run as a program, one sentence per reason; empty if it can."""
    first, *_ = weights.layers
    of_layers = [getattr(layer, field.name) for layer in weights.layers for field in fields(first)]
    others = [getattr(weights, field.name) for field in fields(weights)]
    matrices = [value for value in (*of_layers, *others) if isinstance(value, PackedMatrix)]
    reasons = [reason for matrix in matrices for reason in why_no_product(matrix)]
    if config.n_experts:
        reasons += why_no_expert_calls(config, weights, mode)
    else:
        reasons += why_no_ffn_calls(mode, predictor)
    return list(dict.fromkeys(reasons))


class DecodeProgram:
    """The program of a model in one mode, with its buffers. One token at a time; not thread-safe."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        mode: Mode,
        counters: FfnCounters,
        pool: Pool,
        predictor: Predictor | None = None,
    ) -> None:
        self._timed = False
        self._config = config
        self._counters = counters
        self._pool = pool
        products = Products(pool.n_threads)
        ffn: FfnPlan
        if config.n_experts:
            ffn = ExpertCalls(mode, config, weights, products)
        else:
            ffn = FfnCalls(mode, config, weights, products, predictor)
        self._calls = DecodeCalls(config, weights, ffn, products)
        self._layout = config.kv_layout("f32")
        self._program: Program | None = None

    def program_for(self, layout: KvLayout) -> Program:
        """Return the program for caches of that layout, built when the layout changes."""
        if self._program is None or layout != self._layout:
            self._program, self._layout = Program(self._calls.of_a_token(layout)), layout
        return self._program

    @property
    def program(self) -> Program:
        """The program of the last token; before the first, the one for float32 caches."""
        return self.program_for(self._layout)

    def measure_stages(self, on: bool = True, on_gpu: bool = False) -> None:
        """Start or stop measuring stages, as in Decoder."""
        self._timed = on
        if self._program is not None:
            self._program.forget_times()

    def stage_seconds(self) -> dict[str, float]:
        """Return the stages' seconds, as in Decoder. They sum to the program's time."""
        return self.program.stage_seconds()

    def gpu_seconds(self) -> dict[str, float]:
        """Return {}: there is no GPU."""
        return {}

    def accepts(self, cache: KVCache) -> bool:
        """Return whether the program can run on this cache."""
        length = cache.length
        return not length or self._calls.keys_stay_valid(cache.sequence_length, length + 1)

    def step(self, token: int, cache: KVCache, cancelled: Callable[[], bool] = never) -> F32:
        """Append the token to the cache and return the logits [V] for the next one.

        Raises: ContextOverflowError, TokenizerMismatchError, and Cancelled, which leaves the cache unchanged.
        """
        check_tokens(self._config, np.array([token], np.int64), cache)
        program = self.program_for(cache.layout)
        calls = self._calls
        state = calls.state
        state[TOKEN], state[POSITION] = token, cache.length
        state[LAYER_TOKEN] = token if token < (self._config.layer_vocab_size or self._config.vocab_size) else 0
        state[CACHE], state[LAYER_BYTES] = cache.blocks.ctypes.data, cache.blocks.strides[0]
        state[LOCAL_CACHE], state[LOCAL_LAYER_BYTES] = cache.local_blocks.ctypes.data, cache.local_blocks.strides[0]
        state[STATE], state[NEW_STATE] = (states.ctypes.data for states in cache.states())
        calls.set_rotation(cache.length + 1)
        calls.counts.fill(0)
        calls.ffn_plan.tallies.set_counts(self._counters.per_neuron)
        if not self._pool.run(program, cancelled, self._timed):
            raise Cancelled
        cache.tokens[cache.length], cache.sequence_length = token, cache.length + 1
        cache.advance(1)
        self._counters.add_decoded(calls.ffn_plan.totals(calls.counts))
        logits: F32 = calls.logits.copy()
        return logits
