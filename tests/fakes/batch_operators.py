"""The operators of batches in NumPy, in the stream of the tests' GPU of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from fakes.gpu import FakeGpu
from fakes.prefill import REFERENCE, NumpyPrefillOps, at, rows_at

from native_kernels.backend import Scoring
from native_kernels.cuda.gpu import GpuKv, GpuMatrix
from native_kernels.cuda.layouts import plane_row_bytes
from native_kernels.cuda.prefill_ops import Rows

_IN_ORDER = ("multiply", "multiply_two", "multiply_columns", "multiply_turned", "round", "activate")


class FakeBatchOps(NumpyPrefillOps):
    """native_kernels/cuda/batch_ops.py; what is asked for runs in the GPU's stream."""

    def __init__(self, gpu: FakeGpu) -> None:
        super().__init__()
        self._fake = gpu
        self._held = False
        self._staged: list[int] = []  # halves that nobody has waited for since, as capturing asks for
        self._inner = NumpyPrefillOps()  # which asks itself for operators, too: those run at once
        for name in _IN_ORDER:
            setattr(self, name, self._in_order(name, getattr(self._inner, name)))

    def _in_order(self, name: str, operator: Any) -> Any:
        def asked(*arguments: Any, **named: Any) -> None:
            self._fake.do(name, lambda: operator(*arguments, **named))

        return asked

    def multiply_three(
        self, matrices: Any, x: Any, n_tokens: int, outs: Any, tile: Any, biases: Any = (0, 0, 0)
    ) -> None:  # fmt: skip
        for w, out, bias in zip(matrices, outs, biases, strict=True):
            self.multiply(w, x, n_tokens, out, tile, bias)

    def place_heads(  # type: ignore[override]
        self, qkv: Rows, n_tokens: int, n_heads: int, kv: GpuKv, start: int, cosines: int, sines: int, n_angles: int,
        order: Any, q_norm: Any, k_norm: Any, positions: int = 0,
    ) -> None:  # fmt: skip
        def step() -> None:
            for t in range(n_tokens):
                self._inner.place_heads(
                    Rows(qkv.address + 4 * t * qkv.step, qkv.step), 1, n_heads, kv,
                    int(at(positions, np.int32, n_tokens)[t]), cosines + 4 * t * n_angles, sines + 4 * t * n_angles,
                    n_angles, order, q_norm, k_norm,
                )  # fmt: skip

        self._fake.do("place_heads", step)

    def attend_each(
        self, q: Rows, n_tokens: int, n_heads: int, kv: GpuKv, slot: int, states: int, out: Rows, scale: float,
        softcap: float | None, window: int | None,
    ) -> None:  # fmt: skip
        dim = kv.head_dim

        def step() -> None:
            for t, length in enumerate(at(states, np.int32, n_tokens).tolist()):
                own = slice(slot * t, slot * t + length + 1)
                query = rows_at(Rows(q.address + 4 * t * q.step, q.step), 1, n_heads * dim).reshape(1, n_heads, dim)
                keys, values = (numbers[:, own].astype(np.float32).swapaxes(0, 1) for numbers, _ in self._kept(kv))
                found = REFERENCE.attention(query, keys, values, Scoring(scale, softcap, window))
                rows_at(Rows(out.address + 4 * t * out.step, out.step), 1, n_heads * dim)[:] = found.reshape(1, -1)

        self._fake.do("attend_each", step)

    def needed(
        self, logits: Rows, n_tokens: int, n: int, threshold: float, hot_bits: int, words: int, cold: int
    ) -> None:  # fmt: skip
        def step() -> None:
            found = rows_at(logits, n_tokens, n) >= np.float32(threshold)
            word = (found.astype(np.uint32) << np.arange(n_tokens, dtype=np.uint32)[:, None]).sum(0, dtype=np.uint32)
            at(words, np.uint32, n)[:] = word
            hot = np.zeros(n, bool)
            if hot_bits:
                packed = at(hot_bits, np.uint32, -(-n // 32))
                hot = np.unpackbits(packed.view(np.uint8), bitorder="little")[:n].astype(bool)
            at(cold, np.uint32, n)[:] = np.where(hot, 0, word)

        self._fake.do("needed", step)

    def keep(self, first: Rows, n_tokens: int, n: int, neuron_in: int, words: int, computed: int) -> None:
        def step() -> None:
            neurons = at(neuron_in, np.int32, n)
            word = np.where(neurons < 0, 0, at(words, np.uint32, int(neurons.max()) + 1)[neurons]).astype(np.uint32)
            kept = (word >> np.arange(n_tokens, dtype=np.uint32)[:, None]) & 1
            there = rows_at(first, n_tokens, n)
            there[:] = np.where(kept, there, 0)
            at(computed, np.uint32, 1)[0] += np.uint32(kept.sum())

        self._fake.do("keep", step)

    def count_used(self, h: Rows, n_tokens: int, n: int, used: int) -> None:
        def step() -> None:
            at(used, np.uint32, 1)[0] += np.uint32(np.count_nonzero(rows_at(h, n_tokens, n).any(axis=0)))

        self._fake.do("count_used", step)

    def hold_staging(self) -> None:
        self._held = True

    def stage(
        self, pairs: list[tuple[GpuMatrix, GpuMatrix]], neuron_in: int, words: int, count: int, half: int
    ) -> None:  # fmt: skip
        assert self._held, "what lies in the half may still be computed"
        assert half not in self._staged, "nobody has waited for what was staged there"
        self._staged.append(half)
        n = pairs[0][0].n_rows

        def step() -> None:
            gpu, neurons = self._fake, at(neuron_in, np.int32, n)
            needed = neurons >= 0
            if words and needed.any():
                needed = needed & (at(words, np.uint32, int(neurons.max()) + 1)[neurons] != 0)
            at(count, np.uint32, 1)[0] += np.uint32(needed.sum())
            for source, to in pairs:
                assert (source.n_rows, source.n_cols, source.codec) == (to.n_rows, to.n_cols, to.codec)
                for one, other, width in zip(
                    source.planes, to.planes, plane_row_bytes(source.codec, source.n_cols), strict=True
                ):
                    rows = gpu.bytes_at(one, n * width).reshape(n, width)
                    gpu.bytes_at(other, n * width).reshape(n, width)[:] = np.where(needed[:, None], rows, 0)

        self._fake.do("stage", step)

    def await_staging(self, half: int) -> None:
        self._staged.remove(half)
        self._held = False
