"""One token as a compiled program: embedding, every layer, the head, with one hand-off to the threads and no Python.

The same graph as engine/model/transformer.py, whose prefill and whose result it shares; what it cannot do, `why_not`
says. Paper: PowerInfer, section 4 (the online phase).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from engine.config import Mode, ModelConfig
from engine.decode.decode_calls import DecodeCalls, FfnPlan
from engine.decode.expert_calls import ExpertCalls
from engine.decode.expert_calls import why_not as cannot_choose
from engine.decode.ffn_calls import FfnCalls
from engine.decode.ffn_calls import why_not as cannot_plan
from engine.errors import Cancelled
from engine.job import never
from engine.model.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.transformer import check_tokens
from engine.model.weights import ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, PackedMatrix
from native_kernels.cpu.products.linear import Products
from native_kernels.cpu.products.linear import why_not as cannot_multiply
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cpu.runtime.token_state import CACHE, LAYER_BYTES, POSITION, TOKEN
from native_kernels.kv_blocks import KvLayout


def why_not(
    config: ModelConfig,
    weights: ModelWeights,
    mode: Mode,
    predictor: Predictor | None = None,
) -> list[str]:
    """The reasons, one sentence each, why a token of this model cannot run as a program; empty where it can."""
    first, *_ = weights.layers
    layers = [getattr(layer, one.name) for layer in weights.layers for one in fields(first)]
    others = (weights.embedding, weights.head, weights.positions, weights.project_in, weights.project_out)
    matrices = [one for one in (*layers, *others) if isinstance(one, PackedMatrix)]
    reasons = [reason for matrix in matrices for reason in cannot_multiply(matrix)]
    reasons += cannot_choose(config, weights, mode) if config.n_experts else cannot_plan(mode, predictor)
    return list(dict.fromkeys(reasons))


class DecodeProgram:
    """The program of a model in one mode, and the buffers it works in. One token at a time; not thread-safe."""

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
        self._layout = KvLayout(config.head_dim, "f32")
        self._program: Program | None = None

    def program_for(self, layout: KvLayout) -> Program:
        """The calls and what their stages took, over caches of that layout; built when it is another than before."""
        if self._program is None or layout != self._layout:
            self._program, self._layout = Program(self._calls.of_a_token(layout)), layout
        return self._program

    @property
    def program(self) -> Program:
        """The program of the last token; of float32 in the cache before the first one."""
        return self.program_for(self._layout)

    def measure_stages(self, on: bool = True, on_gpu: bool = False) -> None:
        """As Decoder says."""
        self._timed = on
        if self._program is not None:
            self._program.forget_times()

    def stage_seconds(self) -> dict[str, float]:
        """As Decoder says. They add up to what the program took."""
        return self.program.stage_seconds()

    def gpu_seconds(self) -> dict[str, float]:
        """As Decoder says: there is no GPU."""
        return {}

    def accepts(self, cache: KVCache) -> bool:
        """Whether the program can run on this cache."""
        length = cache.length
        return not length or self._calls.keys_serve(cache.sequence_length, length + 1)

    def step(self, token: int, cache: KVCache, cancelled: Callable[[], bool] = never) -> F32:
        """Appends the token to the cache; the logits [V] for the next one.

        Raises: ContextOverflowError, TokenizerMismatchError, and Cancelled, after which the cache is as it was.
        """
        check_tokens(self._config, np.array([token], np.int64), cache)
        program = self.program_for(cache.layout)
        calls = self._calls
        state = calls.state
        state[TOKEN], state[POSITION] = token, cache.length
        state[CACHE], state[LAYER_BYTES] = cache.blocks.ctypes.data, cache.blocks.strides[0]
        calls.turn(cache.length + 1)
        calls.counts.fill(0)
        calls.ffn_plan.tallies.point_to(self._counters.per_neuron)
        if not self._pool.run(program, cancelled, self._timed):
            raise Cancelled
        cache.tokens[cache.length], cache.sequence_length = token, cache.length + 1
        cache.advance(1)
        self._counters.add_decoded(calls.ffn_plan.totals(calls.counts))
        logits: F32 = calls.logits.copy()
        return logits
