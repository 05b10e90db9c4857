"""The operators of batches in NumPy, in the stream of the tests' GPU of NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from fakes.gpu import FakeGpu
from fakes.prefill import REFERENCE, NumpyPrefillOps, at, rows_at, scoring_of

from native_kernels.cuda.expert_batch import ExpertPairs
from native_kernels.cuda.gpu import GpuExperts, GpuHeads, GpuKv, GpuMatrix, GpuScoring, GpuSequences, GpuVector
from native_kernels.cuda.layouts import plane_row_bytes
from native_kernels.cuda.prompt_rows import RowAngles, Rows

_IN_ORDER = (
    "multiply", "multiply_each", "multiply_two", "multiply_columns", "multiply_transposed", "round", "activate",
    "scale", "score", "choose",
    "predict_streams", "correct_streams", "add_beside", "scale_alike", "cut_off",
)  # fmt: skip


class FakeExpertBatchOps:
    """native_kernels/cuda/expert_batch.py, pair by pair; what is asked for runs in the GPU's stream."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._fake = gpu

    def close(self) -> None:
        """Nothing is held."""

    def group(self, ids: int, slot_of: int, pairs: ExpertPairs) -> None:
        def step() -> None:
            slot = self._fake.array(ids, pairs.n, np.int32)
            table = self._fake.array(slot_of, int(slot.max()) + 1, np.int32)
            slot = np.maximum(table[slot], -1)
            self._fake.array(pairs.order, pairs.n, np.int32)[:] = np.argsort(slot, kind="stable")
            used, first = np.unique(np.sort(slot), return_index=True)
            assert len(used) <= pairs.n_groups
            groups = self._fake.array(pairs.groups, 2 * pairs.n_groups + 2, np.int32).reshape(-1, 2)
            groups[:] = (-1, pairs.n)
            groups[: len(used)] = np.stack([used, first], axis=1)

        self._fake.do("group", step)

    def parts(self, experts: GpuExperts, pairs: ExpertPairs) -> int:
        return self._fake.expert_parts(experts, pairs.n_used)

    def products(
        self, experts: GpuExperts, x: GpuVector, pairs: ExpertPairs, first: int, up: int, weighed: bool = False
    ) -> None:
        def step() -> None:
            given = [(experts.up, experts.up_bias, first)]
            if experts.gate is not None:
                given = [(experts.gate, experts.gate_bias, first), (experts.up, experts.up_bias, up)]
            for matrix, bias, to in given:
                out = self._fake.array(to, pairs.n * experts.width).reshape(pairs.n, -1)
                for p, slot in self._slots(pairs):
                    one = _part(x, x.n // pairs.n_positions, p // pairs.n_used)
                    out[p] = self._product(matrix, slot, experts.width, one, bias) if slot >= 0 else 0
                    if weighed and to == first:
                        position, choice = divmod(p, pairs.n_used)
                        at = pairs.weights + 4 * (position * pairs.weight_step + choice)
                        out[p] *= self._fake.array(at, 1)

        self._fake.do("products", step)

    def down(self, experts: GpuExperts, h: GpuVector, pairs: ExpertPairs, parts: int) -> None:
        n = self._fake.expert_parts(experts, 1)

        def step() -> None:
            w, width = experts.down, experts.width
            d = w.n_cols if experts.down_is_transposed else w.n_rows // experts.n_slots
            out = self._fake.array(parts, pairs.n_used * n * pairs.n_positions * d)
            out = out.reshape(pairs.n_used, n, pairs.n_positions, d)
            out[:] = 0
            weights = self._fake.array(pairs.weights, (pairs.n_positions - 1) * pairs.weight_step + pairs.n_used)
            for p, slot in self._slots(pairs):
                if slot < 0:
                    continue
                one = _part(h, width, p)
                if experts.down_is_transposed:
                    found = self._fake.array(one.values, width) @ self._fake._values(w)[slot * width :][:width]
                    if experts.down_bias:
                        found = found + self._fake.array(experts.down_bias + 4 * slot * d, d)
                else:
                    found = self._product(w, slot, d, one, experts.down_bias)
                position, choice = divmod(p, pairs.n_used)
                out[choice, -1, position] = weights[position * pairs.weight_step + choice] * found

        self._fake.do("down", step)

    def _slots(self, pairs: ExpertPairs) -> Iterator[tuple[int, int]]:
        """Yield each pair and its slot."""
        order = self._fake.array(pairs.order, pairs.n, np.int32)
        groups = self._fake.array(pairs.groups, 2 * pairs.n_groups + 2, np.int32).reshape(-1, 2)
        for (slot, first), (_, end) in pairwise(groups.tolist()):
            for p in order[first:end].tolist():
                yield p, slot

    def _product(self, w: GpuMatrix, slot: int, n_rows: int, x: GpuVector, bias: int) -> Any:
        """The slot's rows times x, and its bias."""
        found = self._fake._values(w)[slot * n_rows :][:n_rows] @ self._fake._read_by(w, x)
        return found + self._fake.array(bias + 4 * slot * n_rows, n_rows) if bias else found


def _part(x: GpuVector, n: int, i: int) -> GpuVector:
    """The i-th n numbers."""
    return GpuVector(n, x.values + 4 * n * i, x.bytes and x.bytes + n * i, x.scales and x.scales + n * i // 4)


class FakeBatchOps(NumpyPrefillOps):
    """native_kernels/cuda/batch_ops.py; what is asked for runs in the GPU's stream."""

    def __init__(self, gpu: FakeGpu) -> None:
        super().__init__()
        self._fake = gpu
        self.experts: Any = FakeExpertBatchOps(gpu)
        self._held = False
        self._staged: list[int] = []  # halves that nobody has waited for since, as capturing asks for
        self._inner = NumpyPrefillOps()  # which asks itself for operators, too: those run at once
        for name in _IN_ORDER:
            setattr(self, name, self._in_order(name, getattr(self._inner, name)))
        self.gated_delta, self.gated, self.short_conv = gpu.gated_delta, gpu.gated, gpu.short_conv
        self.place_latents = gpu.place_latents

    def _in_order(self, name: str, operator: Any) -> Any:
        def asked(*arguments: Any, **named: Any) -> None:
            self._fake.do(name, lambda: operator(*arguments, **named))

        return asked

    def multiply_three(
        self, matrices: Any, x: Any, n_tokens: int, outs: Any, tile: Any, biases: Any = (0, 0, 0)
    ) -> None:  # fmt: skip
        for w, out, bias in zip(matrices, outs, biases, strict=True):
            self.multiply(w, x, n_tokens, out, tile, bias)

    def place_heads(
        self, qkv: Rows, n_tokens: int, heads: GpuHeads, kv: GpuKv, start: int, angles: RowAngles, positions: int = 0
    ) -> None:
        def step() -> None:
            for t, position in enumerate(at(positions, np.int32, n_tokens).tolist()):
                skipped = 4 * t * angles.n
                own = replace(
                    angles, cosines=angles.cosines + skipped, sines=angles.sines + skipped,
                    positions=angles.positions and angles.positions + 4 * t,
                )  # fmt: skip
                row = Rows(qkv.address + 4 * t * qkv.step, qkv.step)
                self._inner.place_heads(row, 1, heads, kv, position, own)

        self._fake.do("place_heads", step)

    def attend_each(
        self, q: Rows, sequences: GpuSequences, n_heads: int, kv: GpuKv, out: Rows, scoring: GpuScoring
    ) -> None:
        dim, slot = kv.head_dim, sequences.slot

        def step() -> None:
            for t, length in enumerate(at(sequences.states, np.int32, sequences.n).tolist()):
                own = slice(slot * t, slot * t + length + 1)
                query = rows_at(Rows(q.address + 4 * t * q.step, q.step), 1, n_heads * dim).reshape(1, n_heads, dim)
                keys, values = (numbers[:, own].astype(np.float32).swapaxes(0, 1) for numbers, _ in self._kept(kv))
                found = REFERENCE.attention(query, keys, values, scoring_of(scoring, n_heads))
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
