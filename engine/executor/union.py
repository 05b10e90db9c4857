"""The FFN of several sequences' next tokens at once: rows that any of them needs are read once.

Each sequence computes the same neurons as alone in ExactExecutor or SparseExecutor. These take several positions of one
sequence, and skip nothing beyond a few. Runs on one device. Paper: PowerInfer, section 8.3 (batches).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.executor.feed_forward import ffn_matrices
from engine.model.counters import FfnCounters
from engine.model.graph import graph_of
from engine.model.router import Routing
from engine.model.weights import FfnWeights, ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, Operators
from native_kernels.cpu.ffn.union_ffn import UnionBuffers, Words, Workspace, row_buffer, union_calls
from native_kernels.cpu.gemm.gemm import Scratch
from native_kernels.cpu.runtime.call import aligned_empty
from native_kernels.cpu.runtime.pool import Pool, Program


class UnionExecutor:
    """Computes rows x [B, D] of B sequences together in every step.

    predictor: selects neurons; None: the first matrix decides, as in exact mode. unions i64 [L, 2]: sums over the steps
    of the neurons whose first matrix, and whose other matrices, were read. work: the products' workspace.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        counters: FfnCounters,
        operators: Operators,
        pool: Pool,
        batch: int,
        predictor: Predictor | None = None,
    ) -> None:
        """Raises: ValueError for more than 32 sequences. Cost: 12 bytes per neuron and sequence."""
        self.name = "exact" if predictor is None else "sparse"
        self.counters = counters
        self.unions = np.zeros((config.n_layers, 2), np.int64)
        self._graph, self._operators, self._pool, self._predictor = graph_of(config), operators, pool, predictor
        self._blocks = [layer.ffns[0] for layer in weights.layers]
        self._x: F32 = aligned_empty((batch, config.d_model))
        self._out: F32 = aligned_empty((batch, config.d_model))
        self._tokens = np.array([batch], np.int64)
        self._words: Words = aligned_empty(config.d_ff, np.uint32)
        self._counts = np.zeros(5, np.int64)
        rows = [one for w in self._blocks for one in (w.gate, w.up) if one is not None]
        self.work = Workspace(
            Scratch.make(pool.n_threads), row_buffer(rows, pool.n_threads), UnionBuffers.make(batch, config.d_ff)
        )
        self._programs: dict[tuple[int, bool], Program] = {}

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """Return what the FFN adds, [B, D], for normed x [B, D] and the norm's input residual [B, D]."""
        w = self._blocks[layer]
        expected = self._expected(layer, x, residual)
        if expected is not None:
            needed_words(expected, self._words)
        buffers, counters = self.work.buffers, self.counters
        buffers.tally[0] = 0 if counters.per_neuron is None else counters.per_neuron[layer].ctypes.data
        self._x[:], self._counts[:] = x, 0
        if w.down_t is None:
            buffers.h[:] = 0
        self._pool.run(self._program(layer, w, expected is not None))
        computed, gate_active, fired, *union = self._counts.tolist()
        counters.add_counted(layer, len(x), computed if expected is not None else gate_active, gate_active, fired)
        self.unions[layer] += union
        out = self._out.copy() if w.down is None else self._operators.matmul(buffers.h, w.down)
        return out if w.down_bias is None else out + w.down_bias

    def _expected(self, layer: int, x: F32, residual: F32) -> NDArray[np.bool_] | None:
        """Return the selected neurons [B, F]; None if the first matrix decides."""
        if self._predictor is None or self._predictor.layers[layer].kind == "true_gate":
            return None
        expected, copied = self._predictor.expected(layer, x, residual)
        self.counters.add_copied(layer, copied)
        return expected

    def _program(self, layer: int, w: FfnWeights, listed: bool) -> Program:
        key = (layer, listed)
        if key not in self._programs:
            calls = union_calls(
                ffn_matrices(self._graph.ffn(layer).spec, w), self._x, self._tokens, self._out, self.work,
                needed=self._words if listed else None, counts=self._counts,
            )  # fmt: skip
            self._programs[key] = Program(calls)
        return self._programs[key]


def needed_words(expected: NDArray[np.bool_], words: Words) -> None:
    """Pack [B, F] into masks u32 [F]: bit b for row b."""
    packed = np.packbits(expected, axis=0, bitorder="little")  # [B / 8 rounded up, F]
    by_neuron = words.view(np.uint8).reshape(-1, 4)
    by_neuron[:] = 0
    by_neuron[:, : len(packed)] = packed.T
