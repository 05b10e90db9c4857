"""One token as a compiled program: embedding, all layers and the head in a single hand-off to the threads, no Python.

Same graph and results as engine/model/transformer.py, which runs prefill. `why_not` lists what it does not support.
A few tokens that follow each other can run as one program, which reads the weights that they share once.
Paper: PowerInfer, section 4 (the online phase).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from engine.config import Mode, ModelConfig
from engine.decode.decode_calls import DecodeCalls, FfnPlan
from engine.decode.expert_calls import ExpertCalls
from engine.decode.expert_calls import why_not as why_no_expert_calls
from engine.decode.ffn_calls import FfnCalls
from engine.decode.ffn_calls import why_not as why_no_ffn_calls
from engine.errors import Cancelled
from engine.job import CancelCheck, never
from engine.model.counters import FfnCounters
from engine.model.kv_cache import MOST_TOKENS_OF_RUN, KVCache
from engine.model.transformer import check_tokens
from engine.model.weights import ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, I32, I64, PackedMatrix
from native_kernels.cpu.products.gemv import vector_format
from native_kernels.cpu.products.linear import Products
from native_kernels.cpu.products.linear import why_not as why_no_product
from native_kernels.cpu.runtime.call import aligned_empty
from native_kernels.cpu.runtime.jit import Kernel
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cpu.runtime.side_by_side import kernels_for, side_by_side
from native_kernels.cpu.runtime.token_state import NEW_STATE, STATE
from native_kernels.kv_blocks import KvLayout

MOST_TOKENS = MOST_TOKENS_OF_RUN  # of a program; beyond, prefill is about as fast
# With codecs whose products read the input as `q8`: 16 tokens of a 0.5B model in Q8_0 took 10.9 times as long as one,
# and 8.8 times as a prompt (one thread, EPYC).
_MOST_AS_Q8 = 8


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
    if not config.causal:
        reasons.append("The model is an encoder, which computes no single tokens.")
    if config.n_experts:
        reasons += why_no_expert_calls(config, weights, mode, predictor)
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
        self._weights = weights
        self._mode: Mode = mode
        self._counters = counters
        self._pool = pool
        self._predictor = predictor
        middle = weights.layers[len(weights.layers) // 2]
        formats = {vector_format(one.codec) for one in (middle.o, *middle.ffns[0].matrices)}
        self._most = _MOST_AS_Q8 if "q8" in formats else MOST_TOKENS
        self._calls = self._new_calls()
        self._layout = config.kv_layout("f32")
        self._program: Program | None = None
        self._n_tokens: I64 = aligned_empty(1, np.int64)  # of the program of several
        self._of_several: list[DecodeCalls] = []
        self._several: Program | None = None
        self._headless: tuple[KvLayout, Program] | None = None  # of one token, and for which caches

    def _new_calls(self) -> DecodeCalls:
        """Allocate the buffers of one more token."""
        products = Products(self._pool.n_threads)
        ffn: FfnPlan
        if self._config.n_experts:
            ffn = ExpertCalls(self._mode, self._config, self._weights, products, self._predictor)
        else:
            ffn = FfnCalls(self._mode, self._config, self._weights, products, self._predictor)
        return DecodeCalls(self._config, self._weights, ffn, products)

    def program_for(self, layout: KvLayout) -> Program:
        """Return the program for caches of that layout, built when the layout changes."""
        if self._program is None or layout != self._layout:
            self._program, self._layout = Program(self._calls.of_a_token(layout)), layout
            self._several = None
        return self._program

    def kernels(self, layout: KvLayout) -> list[Kernel]:
        calls = self.program_for(layout).calls
        return [*(call.kernel for call in calls), *kernels_for(calls)]

    @property
    def program(self) -> Program:
        """The program of the last token; before the first, the one for float32 caches."""
        return self.program_for(self._layout)

    def measure_stages(self, on: bool = True, on_gpu: bool = False) -> None:
        """Start or stop measuring stages, as in Decoder."""
        self._timed = on
        for program in (self._program, self._several):
            if program is not None:
                program.reset_times()

    def stage_seconds(self) -> dict[str, float]:
        """Return the stages' seconds, as in Decoder. They sum to the time of both programs."""
        found = self.program.stage_seconds()
        for stage, seconds in (self._several.stage_seconds() if self._several is not None else {}).items():
            found[stage] += seconds
        return found

    def gpu_seconds(self) -> dict[str, float]:
        """Return {}: there is no GPU."""
        return {}

    def chosen_experts(self) -> list[I32 | None]:
        plan = self._calls.ffn_plan
        return plan.of_last_token() if isinstance(plan, ExpertCalls) else []

    def accepts(self, cache: KVCache) -> bool:
        length = cache.length
        return not length or self._calls.keys_stay_valid(cache.sequence_length, length + 1)

    def step(self, token: int, cache: KVCache, cancelled: CancelCheck = never) -> F32:
        """Append the token to the cache and return the logits [V] for the next one.

        Raises: ContextOverflowError, TokenizerMismatchError, and Cancelled, which leaves the cache unchanged.
        """
        program = self.program_for(cache.layout)
        logits: F32 = self._run(program, [self._calls], [token], cache, cancelled)[0]
        return logits

    def step_after(self, hidden: F32, token: int, cache: KVCache) -> tuple[F32, F32]:
        """Run the program of a layer that drafts tokens. hidden [D]: what the head read at the position before `token`.

        Returns its logits [V] and its head's input [D]. Raises: as `step`.
        """
        self._calls.hidden[:] = hidden
        return self.step(token, cache), self._calls.final.values.copy()

    def hidden_after(self, hidden: F32, token: int, cache: KVCache) -> F32:
        """Run it as `step_after`, but without the head; return the head's input [D]."""
        self._calls.hidden[:] = hidden
        if self._headless is None or self._headless[0] != cache.layout:
            self._headless = cache.layout, Program(self._calls.of_a_token(cache.layout, with_head=False))
        self._run(self._headless[1], [self._calls], [token], cache, never)
        found: F32 = self._calls.final.values.copy()
        return found

    def most_tokens(self, cache: KVCache) -> int:
        """Return how many tokens `steps` can append to this cache now; at most MOST_TOKENS."""
        first, most = cache.length + 1, min(self._most, cache.capacity - cache.length, cache.most_per_run())
        before = cache.sequence_length if cache.length else first
        return next((n for n in range(most, 1, -1) if self._calls.keys_stay_valid(before, first + n - 1)), 1)

    def steps(self, tokens: Sequence[int], cache: KVCache, cancelled: CancelCheck = never) -> F32:
        """Append up to `most_tokens` tokens to the cache; return the logits [n, V] after each.

        They equal those of `step`, to the bit. Raises: as `step`, and HostMemoryError.
        Cost: eight tokens take 2 to 6 times as long as one; 16, where so many are allowed, 4 to 9 times (one thread of
        an EPYC).
        """
        program = self.program_for(cache.layout)
        if len(tokens) == 1:
            return self._run(program, [self._calls], tokens, cache, cancelled)
        several = self._program_of_several(cache.layout)
        self._n_tokens[0] = len(tokens)
        return self._run(several, self._of_several[: len(tokens)], tokens, cache, cancelled)

    def lay_out(self, cache: KVCache) -> None:
        """Build all programs for this cache that do not exist yet. Cost: 0.1 s or more for a large model."""
        self.program_for(cache.layout)
        self._program_of_several(cache.layout)

    def _program_of_several(self, layout: KvLayout) -> Program:
        """Return the program of up to `_most` tokens for caches of the layout of the last `program_for`."""
        if self._several is None:
            self._of_several = self._of_several or [self._new_calls() for _ in range(self._most)]
            laid_out = [calls.of_a_token(layout) for calls in self._of_several]
            self._several = Program(side_by_side(laid_out, self._n_tokens))
        return self._several

    def _run(
        self,
        program: Program,
        buffers: Sequence[DecodeCalls],
        tokens: Sequence[int],
        cache: KVCache,
        cancelled: CancelCheck,
    ) -> F32:
        check_tokens(self._config, np.array(tokens, np.int64), cache)
        cache.make_room(len(tokens))
        states = cache.states_of_run(len(tokens))
        for earlier, (token, calls) in enumerate(zip(tokens, buffers, strict=True)):
            blocks = cache.blocks, cache.local_blocks
            calls.set_token(token, cache.length + earlier, cache.local_first, *blocks)
            calls.state[STATE], calls.state[NEW_STATE] = (one.ctypes.data for one in states[earlier : earlier + 2])
            calls.set_rotation(cache.length + earlier + 1)
            calls.ffn_plan.tallies.set_counts(self._counters.recent(1))
        if not self._pool.run(program, cancelled, self._timed):
            raise Cancelled
        first, last = cache.length, cache.length + len(tokens)
        cache.tokens[first:last], cache.sequence_length = tokens, last
        cache.advance(len(tokens))
        if cache.trail is not None:
            cache.note(np.stack([calls.final.values for calls in buffers]))
        for calls in buffers:
            self._counters.add_decoded(calls.ffn_plan.totals(calls.counts))
        return np.stack([calls.logits for calls in buffers])
