"""The operators of the tests' GPU, in NumPy, as native_kernels/cuda/gpu.py says what each does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fakes.rows import from_planes, to_planes
from numpy.typing import NDArray

from engine.model.router import chosen_of
from native_kernels import reference
from native_kernels.backend import Activation, DeltaInput, DeltaWeights, Scoring, ShortConvInput
from native_kernels.codecs import ROW_CODECS
from native_kernels.copies import signs
from native_kernels.cuda.gpu import (
    NOTHING,
    ONE_VECTOR,
    GpuAngles,
    GpuBlock,
    GpuChoice,
    GpuCopy,
    GpuDelta,
    GpuDeltaInput,
    GpuExperts,
    GpuHeads,
    GpuKv,
    GpuLatent,
    GpuMatrix,
    GpuNorm,
    GpuScoring,
    GpuSequences,
    GpuShortConv,
    GpuStates,
    GpuStreams,
    GpuVector,
    VectorBatch,
)
from native_kernels.cuda.layouts import plane_row_bytes
from native_kernels.cuda.prompt_rows import RowAngles
from native_kernels.reference import factors_of
from native_kernels.specs import ONE_GROUP, ExpertGroups, Weighing

F32 = NDArray[np.float32]
_OPS = reference.ReferenceOperators()
_GROUP = 32


class FakeOperators(ABC):
    """Over the memory and the stream of whoever derives from it."""

    @abstractmethod
    def do(self, name: str, step: Callable[[], None]) -> None:
        """Into the stream, or into what is captured."""

    @abstractmethod
    def bytes_at(self, address: int, n_bytes: int) -> NDArray[np.uint8]:
        """What lies at an address of the GPU. Raises: MemoryError where it is none."""

    def array(self, address: int, count: int, dtype: Any = np.float32) -> NDArray[Any]:
        """What lies at an address of the GPU, [count]; a view."""
        return self.bytes_at(address, count * np.dtype(dtype).itemsize).view(dtype)

    def rows(self, address: int, n: int, width: int) -> F32:
        """What lies there, [n, width]; a view."""
        return self.array(address, n * width).reshape(n, width)

    # --- products

    def unpack_rows(
        self, raw: int, raw_stride: int, n_rows: int, to: GpuMatrix, source_codec: str, rows: int = 0, first: int = 0
    ) -> None:  # fmt: skip
        def step() -> None:
            width = ROW_CODECS[source_codec].n_bytes(to.n_cols)
            source = np.stack([self.bytes_at(raw + i * raw_stride, width) for i in range(n_rows)])
            places = self.array(rows, n_rows, np.int32) if rows else np.arange(first, first + n_rows)
            for plane, values in zip(self._planes(to), to_planes(source, source_codec, to.n_cols), strict=True):
                plane[places] = values

        if n_rows:
            self.do("unpack_rows", step)

    def quantise(self, x: GpuVector) -> None:
        self.do("quantise", lambda: self._round(x))

    def multiply(
        self, matrices: Sequence[GpuMatrix], x: GpuVector, outs: Sequence[int], biases: Sequence[int] = (),
        relu: bool = False, batch: VectorBatch = ONE_VECTOR,
    ) -> None:  # fmt: skip
        def of_one(i: int, matrix: GpuMatrix, further: int) -> None:
            read = GpuVector(x.n, *(at and at + further for at in (x.values, x.bytes, x.scales)))
            found = self._product(matrix, read, biases[i] if biases else 0)
            self.array(outs[i] + further, matrix.n_rows)[:] = np.maximum(found, 0) if relu else found

        def step() -> None:
            for i, matrix in enumerate(matrices):
                for k in range(batch.n):
                    of_one(i, matrix, k * batch.step)

        self.do("multiply", step)

    def multiply_each(self, matrix: GpuMatrix, n: int, x: GpuVector, out: int, out_step: int) -> None:
        def step() -> None:
            assert x.n == n * matrix.n_cols
            values = self._values(matrix).reshape(n, -1, matrix.n_cols)
            for i, (rows, of_part) in enumerate(zip(values, self._read_by(matrix, x).reshape(n, -1), strict=True)):
                self.array(out + 4 * i * out_step, len(rows))[:] = rows @ of_part

        self.do("multiply_each", step)

    def expect(
        self, matrix: GpuMatrix, x: GpuVector, bias: int, threshold: float, bits: int, among: int = 0,
        copied: int = 0,
    ) -> None:  # fmt: skip
        def step() -> None:
            read = self._mask(among, matrix.n_rows)
            found = (self._product(matrix, x, bias) >= np.float32(threshold)) & read
            packed = np.packbits(found, bitorder="little")
            self.array(bits, _words(matrix.n_rows), np.uint32)[:] = _as_words(packed)
            if copied:
                self.array(copied, 1, np.uint32)[:] += np.uint32(np.count_nonzero(read))

        self.do("expect", step)

    def signs(self, x: GpuVector, to: GpuVector) -> None:
        self.do("signs", lambda: self._put(to, signs(self.array(x.values, x.n))))

    # --- neurons

    def hidden(
        self, block: GpuBlock, x: GpuVector, bits: int, activation: Activation, threshold: float, h: int,
        counts: int, gate_first: bool,
    ) -> None:  # fmt: skip
        def step() -> None:
            n = block.n_slots
            neurons = self.array(block.neuron_in, n, np.int32)
            computed = np.ones(n, np.bool_)
            if bits:
                words = self.array(bits, int(neurons.max(initial=0)) // 32 + 1, np.uint32)
                computed = (words[neurons // 32] >> (neurons % 32).astype(np.uint32)) & 1 == 1
            up = self._product(block.up, x, block.up_bias)
            gate = None if block.gate is None else self._product(block.gate, x, block.gate_bias)
            found, opened, fired = _activated(gate, up, activation, threshold)
            self.array(h, n)[:] = np.where(computed, found, 0)
            self.array(block.fired, n, np.uint32)[:] += (fired & computed).astype(np.uint32)
            self._count(counts, computed, opened & computed, fired & computed)

        assert gate_first in (False, True)
        self.do("hidden", step)

    def down_parts(self, block: GpuBlock) -> int:
        return min(3, max(1, block.n_slots // 8))

    def down(self, block: GpuBlock, h: int, parts: int) -> None:
        def step() -> None:
            values, n_parts = self.array(h, block.n_slots), self.down_parts(block)
            rows = np.where((values != 0)[:, None], self._values(block.down_t) * values[:, None], 0)
            out = self.rows(parts, n_parts, block.down_t.n_cols)
            for i in range(n_parts):
                out[i] = rows[i::n_parts].sum(axis=0, dtype=np.float32)

        self.do("down", step)

    def activate(
        self, first: int, up: int, n: int, activation: Activation, threshold: float, to: GpuVector, counts: int
    ) -> None:  # fmt: skip
        def step() -> None:
            gated = up != 0
            values = self.array(first, n)
            found, opened, fired = _activated(
                values if gated else None, self.array(up, n) if gated else values, activation, threshold
            )
            self._put(to, found)
            self._count(counts, np.ones(n, np.bool_), opened, fired)

        self.do("activate", step)

    # --- experts

    def choose(
        self, scores: int, n_experts: int, slot_of: int, choice: GpuChoice, weighing: Weighing,
        groups: ExpertGroups = ONE_GROUP, shared_score: int = 0,
    ) -> None:  # fmt: skip
        def step() -> None:
            bias = self.array(choice.bias, n_experts) if choice.bias else None
            [ids], [weights] = chosen_of(self.array(scores, n_experts)[None], choice.n_used, weighing, groups, bias)
            self.array(choice.ids, choice.n_used, np.int32)[:] = ids
            self.array(choice.slots, choice.n_used, np.int32)[:] = self.array(slot_of, n_experts, np.int32)[ids]
            to = self.array(choice.weights, choice.n_used + 1)
            to[:-1] = np.float32(choice.factor) * weights
            if choice.factors:
                to[:-1] *= self.array(choice.factors, n_experts)[ids]
            to[-1] = _logistic(self.array(shared_score, 1))[0] if shared_score else 1

        self.do("choose", step)

    def expert_products(
        self, experts: GpuExperts, x: GpuVector, choice: GpuChoice, first: int, up: int, weighed: bool = False
    ) -> None:  # fmt: skip
        def step() -> None:
            given = [(experts.up, experts.up_bias, first)]
            if experts.gate is not None:
                given = [(experts.gate, experts.gate_bias, first), (experts.up, experts.up_bias, up)]
            for matrix, bias, to in given:
                out = self.rows(to, choice.n_used, experts.width)
                found = self._product(matrix, x, bias).reshape(experts.n_slots, -1)
                for row, slot in zip(out, self.array(choice.slots, choice.n_used, np.int32), strict=True):
                    row[:] = found[slot] if slot >= 0 else 0
            if weighed:
                gates = self.rows(first, choice.n_used, experts.width)
                gates *= self.array(choice.weights, choice.n_used)[:, None]

        self.do("expert_products", step)

    def expert_parts(self, experts: GpuExperts, n_used: int) -> int:
        return n_used * (2 if experts.down_is_transposed else 1)

    def expert_down(self, experts: GpuExperts, h: GpuVector, choice: GpuChoice, parts: int) -> None:
        def step() -> None:
            n_used, width, slots = choice.n_used, experts.width, experts.n_slots
            each, reads = self.expert_parts(experts, 1), not experts.down_is_transposed
            values = (self._read_by(experts.down, h) if reads else self.array(h.values, h.n)).reshape(n_used, width)
            down = self._values(experts.down)
            d = down.shape[1] if experts.down_is_transposed else len(down) // slots
            out = self.array(parts, n_used * each * d).reshape(n_used, each, d)
            weights = self.array(choice.weights, n_used)
            for k, slot in enumerate(self.array(choice.slots, n_used, np.int32)):
                out[k] = 0
                if slot < 0:
                    continue
                if experts.down_is_transposed:
                    rows = down.reshape(slots, width, d)[slot]
                    for i in range(each):
                        out[k, i] = weights[k] * (values[k, i::each] @ rows[i::each])
                else:
                    out[k, 0] = weights[k] * (down.reshape(slots, d, width)[slot] @ values[k])
                if experts.down_bias:
                    out[k, 0] += weights[k] * self.rows(experts.down_bias, slots, d)[slot]

        self.do("expert_down", step)

    # --- the stream

    def advance(
        self, stream: int, n: int, parts: int = 0, n_parts: int = 0, others: Sequence[int] = (),
        norm: GpuNorm | None = None, to: GpuVector | None = None, factor: float = 1.0,
    ) -> None:  # fmt: skip
        def step() -> None:
            x = self.array(stream, n)
            if parts and n_parts:
                x += self.rows(parts, n_parts, n).sum(axis=0, dtype=np.float32)
            for other in others:
                x += self.array(other, n)
            x *= np.float32(factor)
            if norm is not None:
                assert to is not None, "a norm needs a place to go"
                self._put(to, self._normed(x, norm))

        self.do("advance", step)

    def total(
        self, out: int, n: int, parts: int, n_parts: int, others: Sequence[int] = (), norm: GpuNorm | None = None
    ) -> None:
        self.do("total", lambda: self.array(out, n).fill(0))
        self.advance(out, n, parts, n_parts, others, norm, norm and GpuVector(n, out))

    def norm(self, x: int, norm: GpuNorm, to: GpuVector, again: bool = False) -> None:
        self.do("norm", lambda: self._put(to, self._normed(self.array(x, to.n), norm)))

    def norm_rows(self, x: int, n_rows: int, n: int, norm: GpuNorm, added: int) -> None:
        def step() -> None:
            rows = self.rows(x, n_rows, n)
            rows[:] = self._normed(rows, norm) + self.rows(added, n_rows, n)

        self.do("norm_rows", step)

    def copy(self, source: int, to: int, n_words: int) -> None:
        self.do("copy", lambda: np.copyto(self.array(to, n_words, np.uint32), self.array(source, n_words, np.uint32)))

    def angles(self, state: int, frequencies: int, scale: float, n: int, to: int) -> None:
        def step() -> None:
            turned = int(self.array(state, 1, np.int32)[0]) * self.array(frequencies, n, np.float64)
            out = self.rows(to, n, 2)
            out[:, 0] = np.cos(turned).astype(np.float32) * np.float32(scale)
            out[:, 1] = np.sin(turned).astype(np.float32) * np.float32(scale)

        self.do("angles", step)

    def rotate_and_store(self, qkv: int, heads: GpuHeads, kv: GpuKv, state: int, angles: GpuAngles) -> None:
        def step() -> None:
            position = int(self.array(state, 1, np.int32)[0])
            assert 0 <= position < kv.capacity
            n_kv, d = kv.n_kv_heads if heads.stored else 0, kv.head_dim
            q, k, v = np.split(self.rows(qkv, heads.n + 2 * n_kv, d), [heads.n, heads.n + n_kv])
            if heads.v_is_k:
                k, v = k.copy(), k
            if heads.v_norm is not None:
                v = self._normed(v, heads.v_norm)

            def norm_heads(last: bool) -> None:
                for part, norm in ((q, heads.q_norm), (k, heads.k_norm)):
                    if norm is not None and angles.norm_last == last:
                        part[:] = self._normed(part, norm)

            norm_heads(last=False)
            if angles.n:
                turns = self.array(angles.values, 2 * angles.n).reshape(1, angles.n, 2)
                for part in (q, k):
                    part[:] = _OPS.rope(part[None], turns[..., 0], turns[..., 1], angles.order)[0]
            norm_heads(last=True)
            if angles.temperature is not None:
                q *= factors_of(angles.temperature, np.array([position]))
            for values, to, scales in ((k, kv.keys, kv.key_scales), (v, kv.values, kv.value_scales))[
                : 2 * heads.stored
            ]:
                self._store(kv, to, scales, position, values)

        self.do("rotate_and_store", step)

    def attend(self, q: int, n_heads: int, kv: GpuKv, state: int, to: GpuVector, scoring: GpuScoring) -> None:
        def step() -> None:
            n, d = int(self.array(state, 1, np.int32)[0]) + 1, kv.head_dim
            keys, values = self._stored(kv, kv.keys, kv.key_scales, n), self._stored(kv, kv.values, kv.value_scales, n)
            queries = self.array(q, n_heads * d).reshape(1, n_heads, d)
            sinks = self.array(scoring.sinks, n_heads) if scoring.sinks else None
            how = Scoring(scoring.scale, scoring.softcap, scoring.window, sinks, chunked=scoring.chunked)
            value_dim = to.n // n_heads
            assert value_dim == d or kv.is_shared
            self._put(to, _OPS.attention(queries, keys, values, how)[..., :value_dim].reshape(-1))

        self.do("attend", step)

    def softcap(self, x: int, n: int, cap: float) -> None:
        self.do("softcap", lambda: np.copyto(self.array(x, n), _OPS.softcap(self.array(x, n), cap)))

    # --- several streams

    def predict_streams(self, x: GpuStreams, scores: int, mixture: int) -> None:
        def step() -> None:
            values, predicted = self._streams(x, x.values), self._streams(x, x.predicted)
            found = self._mixed(x, scores, mixture, x.n * x.n).reshape(-1, x.n, x.n)
            predicted[:] = values + np.einsum("tij,jtd->itd", found, values)
            values[0] = predicted[0]

        self.do("predict_streams", step)

    def correct_streams(self, x: GpuStreams, scores: int, shares: int, scale: int, scaled: GpuVector) -> None:
        def step() -> None:
            values, predicted = self._streams(x, x.values), self._streams(x, x.predicted)
            found = self._mixed(x, scores, shares, x.n) + np.float32(1)
            values[:] = predicted + found.T[:, :, None] * (values[0] - predicted[0])
            self.rows(scaled.values, x.n_tokens, x.width)[:] = values[0] * self.array(scale, x.width)
            if scaled.bytes:
                self._round(scaled)

        assert x.n_tokens == 1 or not scaled.bytes
        self.do("correct_streams", step)

    def add_beside(self, x: GpuStreams, added: int) -> None:
        def step() -> None:
            values = self._streams(x, x.values)
            values[1:] += self.rows(added, x.n_tokens, x.width)

        self.do("add_beside", step)

    def scale_alike(self, x: GpuStreams, others: int, least: float) -> None:
        def step() -> None:
            first, rows = self._streams(x, x.values)[0], self._streams(x, others, x.n - 1)
            own = np.maximum(np.square(rows).mean(axis=-1, keepdims=True), np.float32(least))
            rows *= np.sqrt(np.square(first).mean(axis=-1, keepdims=True)) / np.sqrt(own)

        self.do("scale_alike", step)

    def cut_off(self, x: int, n: int, cutoff: float, n_tokens: int = 1, step: int = 0) -> None:
        def run() -> None:
            for t in range(n_tokens):
                row = self.array(x + 4 * t * step, n)
                row[:] = np.maximum(row - (row.mean() + np.float32(cutoff) * row.std()), 0)

        self.do("cut_off", run)

    def _streams(self, x: GpuStreams, address: int, n: int = 0) -> F32:
        """Streams at an address, [n, T, D]; a view."""
        n = n or x.n
        flat = self.array(address, (n - 1) * x.step + x.n_tokens * x.width)
        strides = 4 * x.step, 4 * x.width, 4
        return np.lib.stride_tricks.as_strided(flat, (n, x.n_tokens, x.width), strides)

    def _mixed(self, x: GpuStreams, scores: int, weights: int, n: int) -> F32:
        found: F32 = np.tanh(self.rows(scores, x.n_tokens, x.n)) @ self.rows(weights, n, x.n).T
        return found

    # --- latent attention

    def place_latent(self, x: GpuLatent, plain: GpuVector, kv: GpuKv, state: int, angles: GpuAngles) -> None:
        def step() -> None:
            turns = self.array(angles.values, 2 * angles.n).reshape(1, angles.n, 2)
            position = self.array(state, 1, np.int32)
            found = self._latents(x, kv, (position, position), (turns[..., 0], turns[..., 1]), angles)
            self._put(plain, found.reshape(-1))

        self.do("place_latent", step)

    def place_latents(
        self, x: GpuLatent, n_tokens: int, kv: GpuKv, where: int | GpuSequences, angles: RowAngles
    ) -> None:
        def step() -> None:
            positions = slots = np.arange(n_tokens) + (where if isinstance(where, int) else 0)
            if isinstance(where, GpuSequences):
                positions = self.array(where.states, n_tokens, np.int32)
                slots = positions + where.slot * np.arange(n_tokens)
            cosines, sines = (self.rows(one, n_tokens, angles.n) for one in (angles.cosines, angles.sines))
            self._latents(x, kv, (positions, slots), (cosines, sines), angles)

        self.do("place_latents", step)

    def _latents(
        self, x: GpuLatent, kv: GpuKv, places: tuple[NDArray[Any], NDArray[Any]], turns: tuple[F32, F32],
        angles: GpuAngles | RowAngles,
    ) -> F32:  # fmt: skip
        """Return the part of q that is not rotated, [T, H, key_dim]. places: position and row in kv of each token."""
        n, spec = len(turns[0]), x.spec
        q = self.array(x.q, n * x.n_heads * (spec.key_dim + x.rotated)).reshape(n, x.n_heads, -1)
        k = self.array(x.k, n * kv.head_dim).reshape(n, 1, -1).copy()
        queries = self.array(x.queries, n * x.n_heads * kv.head_dim).reshape(n, x.n_heads, -1)
        if angles.temperature is not None:
            q *= factors_of(angles.temperature, places[0])[:, None, None]
        queries[..., spec.rank :], rotated = q[..., spec.key_dim :], k[..., spec.rank :]
        if angles.n:
            queries[..., spec.rank :] = _OPS.rope(q[..., spec.key_dim :].copy(), *turns, angles.order)
            rotated = _OPS.rope(k[..., spec.rank :].copy(), *turns, angles.order)
        keys = np.concatenate([self._normed(k[..., : spec.rank], x.norm), rotated], axis=-1)
        assert max(places[1]) < kv.capacity
        for t, place in enumerate(places[1].tolist()):
            self._store(kv, kv.keys, kv.key_scales, place, keys[t])
        return q[..., : spec.key_dim]

    # --- layers with a state

    def gated_delta(self, x: GpuDeltaInput, w: GpuDelta, states: GpuStates, prepared: int, to: GpuVector) -> None:
        def step() -> None:
            spec = w.spec
            of = DeltaWeights(
                self.array(w.conv, spec.channels * spec.conv_width), self.array(w.decay, spec.value_heads),
                self.array(w.alpha_bias, spec.value_heads), self.array(w.norm, spec.norm_size), w.epsilon,
                self.array(w.conv_bias, spec.channels) if w.conv_bias else None,
                self.array(w.skip, spec.value_heads) if spec.mamba else None,
            )  # fmt: skip
            widths = (spec.channels, spec.value_width, spec.value_heads, 0 if spec.mamba else spec.value_heads)
            for s in range(x.n_sequences):
                inputs = DeltaInput(*(
                    self.rows(at + 4 * s * x.n_each * n, x.n_each, n)
                    for at, n in zip((x.qkv, x.gate, x.alpha, x.beta), widths, strict=True)
                ))  # fmt: skip
                found = _OPS.gated_delta(inputs, of, spec, *self._ends(states, s, spec.state_size))
                self.array(to.values + 4 * s * found.size, found.size)[:] = found.reshape(-1)
            if spec.mamba and to.bytes and x.n_each == x.n_sequences == 1:
                self._put(to, found.reshape(-1))

        self.do("gated_delta", step)

    def short_conv(
        self, x: int, w: GpuShortConv, states: GpuStates, to: int, n_each: int = 1, n_sequences: int = 1
    ) -> None:
        def step() -> None:
            spec, n = w.spec, n_each * w.spec.channels
            conv = self.array(w.conv, spec.channels * spec.conv_width)
            for s in range(n_sequences):
                gate, gate_in, values = self.array(x + 12 * s * n, 3 * n).reshape(n_each, 3, -1).swapaxes(0, 1)
                inputs = ShortConvInput(values, gate_in, gate)
                found = _OPS.short_conv(inputs, conv, spec, *self._ends(states, s, spec.state_size))
                self.array(to + 4 * s * n, n)[:] = found.reshape(-1)

        self.do("short_conv", step)

    def _ends(self, states: GpuStates, sequence: int, size: int) -> tuple[F32, F32]:
        """A copy of the state before, and a view of where the one after goes."""
        first, second = (self.array(at + 4 * sequence * states.step, size) for at in (states.first, states.second))
        if states.swap and self.array(states.swap + 4 * sequence, 1, np.int32)[0]:
            first, second = second, first
        return first.copy(), second

    def gated(self, x: GpuVector, gate: int) -> None:
        def step() -> None:
            self._put(x, _OPS.gated(self.array(x.values, x.n), self.array(gate, x.n)))

        self.do("gated", step)

    # --- the exchange

    def publish(
        self, flag: int, epoch: int, values: GpuCopy = NOTHING, bits: GpuCopy = NOTHING, without: int = 0
    ) -> None:
        def step() -> None:
            if values.n:
                self.array(values.to, values.n)[:] = self.array(values.source, values.n)
            if bits.n:
                left = np.full(bits.n, 0xFFFFFFFF, np.uint32)
                if without:
                    left = ~self.array(without, bits.n, np.uint32)
                self.array(bits.to, bits.n, np.uint32)[:] = self.array(bits.source, bits.n, np.uint32) & left
            count = self.array(epoch, 1, np.int64)
            count += 1
            self.array(flag, 1, np.int64)[0] = count[0]

        self.do("publish", step)

    # --- pieces

    def _planes(self, matrix: GpuMatrix) -> list[NDArray[np.uint8]]:
        sizes = plane_row_bytes(matrix.codec, matrix.n_cols)
        return [
            self.bytes_at(plane, matrix.n_rows * size).reshape(matrix.n_rows, size)
            for plane, size in zip(matrix.planes, sizes, strict=True)
        ]

    def _values(self, matrix: GpuMatrix) -> F32:
        return from_planes(self._planes(matrix), matrix.codec, matrix.n_cols)

    def _product(self, matrix: GpuMatrix, x: GpuVector, bias: int) -> F32:
        assert matrix.n_cols == x.n, (matrix.n_cols, x.n)
        found: F32 = self._values(matrix) @ self._read_by(matrix, x)
        return found + self.array(bias, matrix.n_rows) if bias else found

    def _read_by(self, matrix: GpuMatrix, x: GpuVector) -> F32:
        """The numbers of x as the matrix's codec reads them."""
        if not matrix.reads_bytes:
            return self.array(x.values, x.n)
        n_groups = -(-x.n // _GROUP)
        rounded = self.array(x.bytes, n_groups * _GROUP, np.int8).reshape(n_groups, _GROUP)
        values = (rounded * self.array(x.scales, 2 * n_groups).reshape(-1, 2)[:, :1]).reshape(-1)[: x.n]
        return values.astype(np.float32)

    def _put(self, to: GpuVector, values: F32) -> None:
        self.array(to.values, to.n)[:] = values
        if to.bytes:
            self._round(to)

    def _round(self, x: GpuVector) -> None:
        rounded, steps = _rounded(self.array(x.values, x.n))
        all_bytes = self.array(x.bytes, -(-x.n // 64) * 64, np.int8)
        all_bytes[:] = 0
        all_bytes[: rounded.size] = rounded.reshape(-1)
        scales = self.rows(x.scales, len(steps), 2)
        scales[:, 0] = steps
        scales[:, 1] = steps * rounded.sum(axis=1, dtype=np.int32)

    def _normed(self, x: F32, norm: GpuNorm) -> F32:
        weight = self.array(norm.weight, x.shape[-1]) if norm.weight else np.ones(x.shape[-1], np.float32)
        if norm.kind == "rms":
            return _OPS.rms_norm(x, weight, norm.eps)
        bias = self.array(norm.bias, x.shape[-1]) if norm.bias else np.zeros_like(weight)
        return _OPS.layer_norm(x, weight, bias, norm.eps)

    def _mask(self, bits: int, n: int) -> NDArray[np.bool_]:
        if not bits:
            return np.ones(n, np.bool_)
        words = self.array(bits, _words(n), np.uint32)
        return np.unpackbits(words.view(np.uint8), bitorder="little")[:n].astype(np.bool_)

    def _count(self, counts: int, *which: NDArray[np.bool_]) -> None:
        if counts:
            self.array(counts, 3, np.uint32)[:] += np.array([np.count_nonzero(one) for one in which], np.uint32)

    def _kv(self, kv: GpuKv, at: int, scales: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        dtype = {"f32": np.float32, "f16": np.float16, "q8_0": np.int8}[kv.codec]
        shape = (kv.n_kv_heads, kv.capacity)
        numbers = self.array(at, kv.n_kv_heads * kv.capacity * kv.head_dim, dtype).reshape(*shape, kv.head_dim)
        if kv.codec != "q8_0":
            return numbers, None
        groups = -(-kv.head_dim // _GROUP)
        return numbers, self.array(scales, kv.n_kv_heads * kv.capacity * groups, np.float16).reshape(*shape, groups)

    def _store(self, kv: GpuKv, at: int, scales: int, position: int, values: F32) -> None:
        numbers, factors = self._kv(kv, at, scales)
        if factors is None:
            numbers[:, position] = values
            return
        rounded, factors[:, position] = _rounded(values)
        numbers[:, position] = rounded.reshape(len(values), -1)[:, : kv.head_dim]

    def _stored(self, kv: GpuKv, at: int, scales: int, n: int) -> F32:
        numbers, factors = self._kv(kv, at, scales)
        found = numbers[:, :n].astype(np.float32)
        if factors is not None:
            found *= factors[:, :n, np.arange(kv.head_dim) // _GROUP].astype(np.float32)
        return np.ascontiguousarray(found.transpose(1, 0, 2))


def _rounded(x: F32) -> tuple[NDArray[np.int8], F32]:
    """x [..., n] in groups of bytes [..., G, 32], and the step of each group, [..., G]."""
    padded = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, -x.shape[-1] % _GROUP)])
    groups = padded.reshape(*x.shape[:-1], -1, _GROUP)
    top = np.abs(groups).max(axis=-1)
    inverse = np.where(top > 0, np.float32(127) / top, np.float32(0))
    return np.rint(groups * inverse[..., None]).astype(np.int8), top / np.float32(127)


def _activated(
    gate: F32 | None, up: F32, activation: Activation, threshold: float
) -> tuple[F32, NDArray[np.bool_], NDArray[np.bool_]]:
    """What goes into down, which passed the first activation, and which fired."""
    first = up if gate is None else gate
    match activation:
        case "silu":
            values = _OPS.silu(first)
        case "gelu":
            values = _OPS.gelu(first)
        case "gelu-tanh":
            values = _OPS.gelu_tanh(first)
        case "relu2":
            values = _OPS.relu2(first)
        case "clamped-silu":
            values, up = _OPS.clamped_silu(first, threshold), np.clip(up, -threshold, threshold) + 1
        case _:
            values = _OPS.relu(first, threshold)
    opened = values != 0
    if gate is None:
        return values, opened, opened
    if activation == "drelu":
        up = _OPS.relu(up)
        return values * up, opened, opened & (up != 0)
    return np.where(opened, values * up, 0), opened, opened


def _logistic(x: F32) -> F32:
    return np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x)


def _words(n: int) -> int:
    return -(-n // 32)


def _as_words(packed: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.pad(packed, (0, -len(packed) % 4)).view(np.uint32)
