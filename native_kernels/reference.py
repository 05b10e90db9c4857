"""Every operator in readable NumPy: the specification that other backends are tested against.

It also runs where no faster backend is available. So f32 weights go to BLAS without a copy, and all others are decoded
on use in bounded tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels import kv_blocks
from native_kernels.backend import (
    F32,
    I32,
    I64,
    PLAIN_SCORING,
    U8,
    Activation,
    DeltaInput,
    DeltaWeights,
    ExpertBatch,
    PackedMatrix,
    RopeOrder,
    Scoring,
    ShortConvInput,
)
from native_kernels.codecs import COPY_CODECS
from native_kernels.codecs.plain import unpack_f16
from native_kernels.copies import rounded_to_bytes
from native_kernels.kv_blocks import KvLayout
from native_kernels.specs import DeltaSpec, ShortConvSpec, Temperature

# Size limits of decoded weights and of attention scores at a time. A tile stays in the cache of common CPUs. Scores may
# be larger: they are written and read once.
_TILE_BYTES = 1 << 20
_SCORE_BYTES = 32 << 20
_UNIT_EPSILON = 1e-6  # added to the squared length of queries and keys of a gated delta net


def factors_of(temperature: Temperature, positions: I64) -> F32:
    """Return the factor by which the queries of each position grow."""
    growth = np.log1p((positions + temperature.offset) // temperature.length)
    found: F32 = (1 + temperature.strength * growth).astype(np.float32)
    return found


class ReferenceOperators:
    """The operators of native_kernels.backend.Operators, on any CPU that NumPy supports."""

    name = "reference"

    def why_unavailable(self) -> list[str]:
        return []

    def rows(self, w: PackedMatrix, ids: I64) -> F32:
        out = np.empty((len(ids), w.n_cols), np.float32)
        for tile in _tiles(len(ids), w.n_cols):
            out[tile] = _unpack(w, ids[tile])
        return out

    def matmul(self, x: F32, w: PackedMatrix) -> F32:
        if _goes_to_blas(w):
            product: F32 = x @ w.data.T
            return product
        x = _as_multiplied(x, w)
        out = np.empty((x.shape[0], w.n_rows), np.float32)
        for tile in _tiles(w.n_rows, w.n_cols):
            np.matmul(x, _unpack(w, tile).T, out=out[:, tile])
        return out

    def matmul_t(self, h: F32, w: PackedMatrix) -> F32:
        if _goes_to_blas(w):
            product: F32 = h @ w.data
            return product
        out = np.zeros((h.shape[0], w.n_cols), np.float32)
        for tile in _tiles(w.n_rows, w.n_cols):
            out += h[:, tile] @ _unpack(w, tile)
        return out

    def sparse_gemv(self, w: PackedMatrix, x: F32, ids: I32) -> F32:
        x, out = _as_multiplied(x, w), np.empty(len(ids), np.float32)
        for tile in _tiles(len(ids), w.n_cols):
            np.matmul(_unpack(w, ids[tile]), x, out=out[tile])
        return out

    def sparse_axpy(self, w: PackedMatrix, values: F32, ids: I32) -> F32:
        out = np.zeros(w.n_cols, np.float32)
        for tile in _tiles(len(ids), w.n_cols):
            out += values[tile] @ _unpack(w, ids[tile])
        return out

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        mean_square: F32 = np.mean(np.square(x), axis=-1, keepdims=True)
        root: F32 = np.sqrt(mean_square + np.float32(eps))
        return x / root * weight

    def layer_norm(self, x: F32, weight: F32, bias: F32, eps: float) -> F32:
        centred: F32 = x - np.mean(x, axis=-1, keepdims=True)
        variance: F32 = np.mean(np.square(centred), axis=-1, keepdims=True)
        deviation: F32 = np.sqrt(variance + np.float32(eps))
        normed: F32 = centred / deviation * weight + bias
        return normed

    def rope_angles(self, positions: I64, rotary_dim: int, theta: float, factors: F32 | None = None) -> tuple[F32, F32]:
        # float64: in float32 the angle of position 100,000 would be off by 0.004.
        frequencies = theta ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
        if factors is not None:
            frequencies = frequencies / factors
        angles = positions[:, None] * frequencies
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def rope(self, x: F32, cos: F32, sin: F32, order: RopeOrder = "halves") -> F32:
        half = cos.shape[-1]
        firsts, seconds = slice(0, half), slice(half, 2 * half)
        if order == "interleaved":
            firsts, seconds = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        cos, sin = cos[:, None, :], sin[:, None, :]  # [T, 1, R / 2]: shared by all heads
        out = x.copy()
        out[..., firsts] = x[..., firsts] * cos - x[..., seconds] * sin
        out[..., seconds] = x[..., seconds] * cos + x[..., firsts] * sin
        return out

    def attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        scoring: Scoring = PLAIN_SCORING,
    ) -> F32:
        scale, softcap, window, sinks, temperature, chunked, causal = scoring
        n_tokens, n_heads, head_dim = q.shape
        n_positions, n_kv_heads, _ = k.shape
        group, past = n_heads // n_kv_heads, n_positions - n_tokens
        if temperature is not None:
            q = q * factors_of(temperature, np.arange(past, n_positions))[:, None, None]
        keys = k.transpose(1, 2, 0)  # [H_kv, head_dim, N]: a view that BLAS reads in place
        values = v.transpose(1, 0, 2)  # [H_kv, N, head_dim]
        factor = np.float32(1.0 / np.sqrt(head_dim) if scale is None else scale)
        out = np.empty_like(q)
        step = max(1, _SCORE_BYTES // max(1, 4 * n_heads * n_positions))
        for start in range(0, n_tokens, step):
            t = min(step, n_tokens - start)
            # Keys after the last query of this chunk are invisible to all of it, as are those before the first one's
            # window.
            stop = past + start + t if causal else n_positions
            first = 0 if window is None else max(0, past + start + 1 - window)
            if window is not None and chunked:
                first = (past + start) // window * window
            seen = stop - first
            grouped = (q[start : start + t] * factor).reshape(t, n_kv_heads, group, head_dim)
            queries = grouped.transpose(1, 2, 0, 3).reshape(n_kv_heads, group * t, head_dim)
            scores: F32 = np.matmul(queries, keys[:, :, first:stop]).reshape(n_kv_heads, group, t, seen)
            if softcap is not None:
                scores = self.softcap(scores, softcap)
            if t > 1 and causal:
                place = past + start + np.arange(t)[:, None]  # [t, 1], positions of the queries
                other = first + np.arange(seen)  # [seen], positions of the keys
                hidden = other > place
                if window is not None:
                    hidden |= other < place // window * window if chunked else other <= place - window
                scores[:, :, hidden] = -np.inf
            highest = scores.max(axis=-1, keepdims=True)
            if sinks is not None:
                own = sinks.reshape(n_kv_heads, group, 1, 1)
                highest = np.maximum(highest, own)
            scores -= highest
            np.exp(scores, out=scores)
            total = scores.sum(axis=-1, keepdims=True)
            if sinks is not None:
                total += np.exp(own - highest)
            scores /= total
            mixed = scores.reshape(n_kv_heads, group * t, seen) @ values[:, first:stop]
            by_token = mixed.reshape(n_kv_heads, group, t, head_dim).transpose(2, 0, 1, 3)
            out[start : start + t] = by_token.reshape(t, n_heads, head_dim)
        return out

    def cached_attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        blocks: U8,
        layout: KvLayout,
        position: int,
        scoring: Scoring = PLAIN_SCORING,
    ) -> F32:
        kv_blocks.write(blocks, layout, position, k, v)
        keys, values = kv_blocks.read(blocks, layout, position + len(q))
        return self.attention(q, keys, values, scoring)

    def gated_delta(self, x: DeltaInput, w: DeltaWeights, spec: DeltaSpec, before: F32, after: F32) -> F32:
        n_tokens, heads = len(x.qkv), spec.value_heads
        matrices, last_inputs = spec.parts(before)
        seen = np.concatenate([last_inputs, x.qkv])  # [W - 1 + T, channels]
        conv = w.conv.reshape(spec.channels, spec.conv_width)
        mixed = np.zeros_like(x.qkv) if w.conv_bias is None else np.broadcast_to(w.conv_bias, x.qkv.shape).copy()
        for i in range(spec.conv_width):
            mixed += seen[i : i + n_tokens] * conv[:, i]
        mixed = self.silu(mixed)
        key_head = np.arange(heads) % spec.key_heads
        if spec.order == "grouped":
            key_head = np.arange(heads) // (heads // spec.key_heads)
        queries, keys = (
            mixed[:, start : start + spec.key_width].reshape(n_tokens, spec.key_heads, spec.key_dim)[:, key_head]
            for start in spec.starts[:2]
        )
        if not spec.mamba:
            queries, keys = _unit(queries) * np.float32(spec.key_dim**-0.5), _unit(keys)
        first = spec.starts[2]
        values = mixed[:, first : first + spec.value_width].reshape(n_tokens, heads, spec.value_dim)
        step = np.logaddexp(np.float32(0), x.alpha + w.alpha_bias)  # [T, H_v]
        kept: F32 = np.exp(w.decay * step)
        strength = step if spec.mamba else _logistic(x.beta)
        out = np.empty_like(values)
        state = matrices
        for t in range(n_tokens):
            state = state * kept[t, :, None, None]
            remembered = np.float32(0) if spec.mamba else np.einsum("hkv,hk->hv", state, keys[t])
            change = (values[t] - remembered) * strength[t, :, None]
            state = state + keys[t, :, :, None] * change[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", state, queries[t])
        new_matrices, new_inputs = spec.parts(after)
        new_matrices[:] = state
        new_inputs[:] = seen[n_tokens:]
        if not spec.mamba:
            return self.rms_norm(out, w.norm, w.epsilon).reshape(n_tokens, -1) * self.silu(x.gate)
        assert w.skip is not None, "a Mamba-2 layer has one"
        said = (out + w.skip[:, None] * values).reshape(n_tokens, -1) * self.silu(x.gate)
        groups = said.reshape(n_tokens, spec.norm_groups, -1)
        weight = w.norm.reshape(spec.norm_groups, -1)
        return self.rms_norm(groups, weight, w.epsilon).reshape(n_tokens, -1)

    def short_conv(self, x: ShortConvInput, conv: F32, spec: ShortConvSpec, before: F32, after: F32) -> F32:
        n_tokens, shape = len(x.values), (spec.conv_width - 1, spec.channels)
        seen = np.concatenate([before.reshape(shape), x.values * x.gate_in])  # [W - 1 + T, channels]
        weights, mixed = conv.reshape(spec.channels, spec.conv_width), np.zeros_like(x.values)
        for i in range(spec.conv_width):
            mixed += seen[i : i + n_tokens] * weights[:, i]
        after.reshape(shape)[:] = seen[n_tokens:]
        return mixed * x.gate

    def gated(self, x: F32, gate: F32) -> F32:
        return x * _logistic(gate)

    def relu(self, x: F32, threshold: float = 0.0) -> F32:
        if threshold == 0.0:
            return np.maximum(x, np.float32(0))
        return np.where(x <= np.float32(threshold), np.float32(0), x)

    def relu2(self, x: F32) -> F32:
        return np.square(np.maximum(x, np.float32(0)))

    def silu(self, x: F32) -> F32:
        return x * _logistic(x)

    def gelu(self, x: F32) -> F32:
        return (0.5 * x * (1.0 + _erf(x * np.float32(np.sqrt(0.5))))).astype(np.float32)

    def gelu_tanh(self, x: F32) -> F32:
        inner: F32 = np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x))
        gated: F32 = np.float32(0.5) * x * (np.float32(1) + inner)
        return gated

    def clamped_silu(self, x: F32, limit: float) -> F32:
        x = np.minimum(x, np.float32(limit))
        gated: F32 = x * (np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5 * 1.702) * x))
        return gated

    def softcap(self, x: F32, cap: float) -> F32:
        capped: F32 = np.tanh(x / np.float32(cap)) * np.float32(cap)
        return capped

    def expert_batch(self, activation: Activation, threshold: float, relu_on_up: bool) -> ExpertBatch | None:
        return None


def _logistic(x: F32) -> F32:
    """1 / (1 + e^-x), by tanh, because exp(-x) overflows for large negative x."""
    found: F32 = np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x)
    return found


def _unit(x: F32) -> F32:
    """Scale the last axis to length 1."""
    length: F32 = np.sqrt(np.sum(np.square(x), axis=-1, keepdims=True) + np.float32(_UNIT_EPSILON))
    return x / length


def _erf(x: F32) -> NDArray[np.float64]:
    """The error function to 1.5e-7, which NumPy lacks. Abramowitz and Stegun, 7.1.26."""
    size = np.abs(x.astype(np.float64))
    t = 1.0 / (1.0 + 0.3275911 * size)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    upper: NDArray[np.float64] = np.copysign(1.0 - series * np.exp(-size * size), x)
    return upper


def _unpack(w: PackedMatrix, some: slice | NDArray[Any]) -> F32:
    """Decode some rows of w to float32, by slice or by index; a slice of float32 is not copied."""
    data = w.data[some]
    if w.codec == "f32":
        return data
    if w.codec == "f16":
        return unpack_f16(data)
    decoded = w.block_codec.decode(data)
    return decoded[..., : w.n_cols] if decoded.shape[-1] > w.n_cols else decoded  # padding of the last group


def _as_multiplied(x: F32, w: PackedMatrix) -> F32:
    """Return x [..., D] as the rows of w are multiplied with it. A copy's product is compared with a threshold, so its
    input must be rounded alike in every kernel; rounding for other weights is up to each kernel.
    """
    return rounded_to_bytes(x) if w.codec in COPY_CODECS else x


def _goes_to_blas(w: PackedMatrix) -> bool:
    """Whether BLAS can read the data in place; otherwise NumPy would copy the whole matrix."""
    return w.codec == "f32" and w.data.flags.aligned and w.data.strides[0] % 4 == 0


def _tiles(n_rows: int, n_cols: int) -> Iterator[slice]:
    """Yield slices over n_rows rows whose decoded size stays near _TILE_BYTES."""
    step = max(1, _TILE_BYTES // max(1, 4 * n_cols))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
