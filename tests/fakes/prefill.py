"""A GPU for prompts of NumPy and the host's memory: what prefill.py does is tested without one.

Everything asked for is done at once. Memory begins as bytes 0xFF, so that what nobody wrote shows as no number.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from fakes.operators import FakeOperators
from fakes.rows import from_planes
from numpy.typing import NDArray

from engine.model.router import chosen_of
from native_kernels import kv_blocks
from native_kernels.backend import Scoring
from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.gpu import GpuHeads, GpuKv, GpuNorm, GpuScoring
from native_kernels.cuda.layouts import plane_row_bytes
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import Groups, RoundedRows, RowAngles, Rows, StoredMatrix, Weights
from native_kernels.cuda.runtime.driver import CudaError, Device, Driver, Stream
from native_kernels.kv_blocks import KvLayout
from native_kernels.reference import ReferenceOperators, factors_of

_ALIGNED = 256
_DTYPES = {"f32": np.float32, "f16": np.float16, "q8_0": np.int8}
REFERENCE = ReferenceOperators()


def at(address: int, dtype: Any, *shape: int) -> NDArray[Any]:
    """Memory of the host as an array."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype).reshape(shape)


def rows_at(rows: Rows, n_tokens: int, n: int) -> NDArray[Any]:
    """f32 [T, n], to be written too."""
    whole = at(rows.address, np.float32, (n_tokens - 1) * rows.step + n)
    return np.lib.stride_tricks.as_strided(whole, (n_tokens, n), (4 * rows.step, 4))


def _slice(part: range | None) -> slice:
    return slice(None) if part is None else slice(part.start, part.stop)


def scoring_of(scoring: GpuScoring, n_heads: int) -> Scoring:
    sinks = at(scoring.sinks, np.float32, n_heads) if scoring.sinks else None
    return Scoring(scoring.scale, scoring.softcap, scoring.window, sinks, chunked=scoring.chunked)


class HostDriver(Driver):
    """The driver's calls on the host's memory. calls: the names of all that were made."""

    def __init__(self) -> None:
        self.memory: dict[int, NDArray[np.uint8]] = {}
        self.calls: list[str] = []

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.append(name)
        if name in ("cuMemAlloc_v2", "cuMemHostAlloc"):
            bytes_ = np.full(arguments[1] + _ALIGNED, 0xFF, np.uint8)
            address = bytes_.ctypes.data + -bytes_.ctypes.data % _ALIGNED
            self.memory[address] = bytes_
            arguments[0]._obj.value = address
        elif name == "cuMemHostGetDevicePointer_v2":
            arguments[0]._obj.value = arguments[1].value
        elif name in ("cuMemFree_v2", "cuMemFreeHost"):
            del self.memory[arguments[0]]
        elif name in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"):
            ctypes.memmove(*arguments[:3])
        elif name == "cuMemsetD8Async":
            ctypes.memset(*arguments[:3])
        elif name == "cuLaunchKernel":
            raise CudaError(name, 1, "a fake runs no kernels")


class HostDevice(Device):
    """A device whose memory is the host's."""

    registers_read_only = True

    def __init__(self) -> None:
        self.number, self.driver = 0, HostDriver()


def values_of(w: Weights) -> NDArray[np.float32]:
    """A matrix in planes, or as it is stored, as numbers [N, D]."""
    if isinstance(w, StoredMatrix):
        of_rows = ROW_CODECS[w.codec]
        stored = at(w.address, np.uint8, w.n_rows, w.step)[:, : of_rows.n_bytes(w.n_cols)]
        numbers: NDArray[np.float32] = of_rows.decode(np.ascontiguousarray(stored))[:, : w.n_cols]
        return numbers
    planes = [
        at(address, np.uint8, w.n_rows, width)
        for address, width in zip(w.planes, plane_row_bytes(w.codec, w.n_cols), strict=True)
    ]
    return from_planes(planes, w.codec, w.n_cols)


def _logistic(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


class _OnHost(FakeOperators):
    """The operators that prefill has from tokens, run at once on host memory."""

    def do(self, name: str, step: Callable[[], None]) -> None:
        step()

    def bytes_at(self, address: int, n_bytes: int) -> NDArray[np.uint8]:
        return at(address, np.uint8, n_bytes)


class NumpyPrefillOps(GpuPrefillOps):
    """The operators of native_kernels/cuda/prefill_ops.py in NumPy, on the memory of a HostDevice."""

    def __init__(self) -> None:
        self.device = HostDevice()
        self.stream, self.copy_stream = Stream(self.device), Stream(self.device)
        self.failing = ""  # an operator that fails
        on_host = self._on_host = _OnHost()
        self.gated_delta, self.gated, self.short_conv = on_host.gated_delta, on_host.gated, on_host.short_conv
        self.place_latents = on_host.place_latents
        self.predict_streams, self.correct_streams = on_host.predict_streams, on_host.correct_streams
        self.add_beside, self.scale_alike, self.cut_off = on_host.add_beside, on_host.scale_alike, on_host.cut_off
        self.groups: Any = SimpleNamespace(takes=lambda matrices, positions: False)

    def close(self) -> None:
        pass

    def gather(self, rows: Any, ids: int, n: int) -> None:
        if self.failing == "gather":
            raise CudaError("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
        numbers = at(ids, np.int32, n).tolist() if ids else range(n)
        for one in rows:
            for i, row in enumerate(numbers):
                ctypes.memmove(one.to + i * one.step, one.address + row * one.stride, one.row_bytes)
                ctypes.memset(one.to + i * one.step + one.row_bytes, 0, -one.row_bytes % 16)

    def fetch(self, to: int, source: int, n_bytes: int) -> None:
        if self.failing == "gather":
            raise CudaError("cuMemcpyHtoDAsync_v2", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
        ctypes.memmove(to, source, n_bytes)

    def _product(
        self, values: NDArray[np.float32], x: RoundedRows, n_tokens: int, out: Rows, bias: int, adds: bool
    ) -> None:
        depth, n_out = values.shape[1], values.shape[0]
        halves = at(x.address, np.float16, n_tokens, x.step)[:, :depth].astype(np.float32)
        found = halves @ values.T * at(x.factors, np.float32, n_tokens)[:, None]
        if bias:
            found = found + at(bias, np.float32, n_out)
        to = rows_at(out, n_tokens, n_out)
        to[:] = to + found if adds else found

    def multiply(  # type: ignore[override]
        self, w: Any, x: Any, n_tokens: int, out: Any, tile: Any, bias: int = 0, adds: bool = False,
        rows: range | None = None,
    ) -> None:  # fmt: skip
        if self.failing == "multiply":
            raise CudaError("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
        self._product(values_of(w)[_slice(rows)], x, n_tokens, out, bias, adds)

    def multiply_each(  # type: ignore[override]
        self, w: Any, n: int, x: Any, x_apart: int, n_tokens: int, out: Any, out_apart: int, tile: Any
    ) -> None:
        whole, values = at(x.address, np.float16, n_tokens, x.step), values_of(w).reshape(n, -1, w.n_cols)
        factors = at(x.factors, np.float32, n_tokens)[:, None]
        for i, rows in enumerate(values):
            of_part = whole[:, i * x_apart : i * x_apart + w.n_cols].astype(np.float32)
            rows_at(Rows(out.address + 4 * i * out_apart, out.step), n_tokens, len(rows))[:] = (
                of_part @ rows.T * factors
            )

    def multiply_two(  # type: ignore[override]
        self, pair: Any, x: Any, n_tokens: int, outs: Any, tile: Any, biases: Any = (0, 0), rows: range | None = None
    ) -> None:
        for w, out, bias in zip(pair, outs, biases, strict=True):
            self.multiply(w, x, n_tokens, out, tile, bias, False, rows)

    def multiply_columns(  # type: ignore[override]
        self, w: Any, x: Any, n_tokens: int, out: Any, tile: Any, bias: int = 0, adds: bool = False,
        columns: range | None = None,
    ) -> None:  # fmt: skip
        self._product(values_of(w)[:, _slice(columns)], x, n_tokens, out, bias, adds)

    def multiply_transposed(  # type: ignore[override]
        self, w: Any, x: Any, n_tokens: int, out: Any, tile: Any, bias: int = 0, adds: bool = False,
        rows: range | None = None,
    ) -> None:  # fmt: skip
        self._product(values_of(w)[_slice(rows)].T, x, n_tokens, out, bias, adds)

    def round(
        self, x: Rows, n_tokens: int, n: int, to: RoundedRows | None, norm: GpuNorm | None = None,
        out: Rows | None = None, adds: bool = False,
    ) -> None:  # fmt: skip
        values = rows_at(x, n_tokens, n).copy()
        if norm is not None:
            values = self._normed(values, norm)
        if to is not None:
            largest = np.abs(values).max(axis=1)
            factors = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1))) - 12).astype(np.float32)
            at(to.factors, np.float32, n_tokens)[:] = factors
            at(to.address, np.float16, n_tokens, to.step)[:, :n] = values / factors[:, None]
        if out is not None:
            there = rows_at(out, n_tokens, n)
            there[:] = there + values if adds else values

    @staticmethod
    def _normed(x: NDArray[Any], norm: GpuNorm) -> NDArray[Any]:
        n = x.shape[-1]
        weight = at(norm.weight, np.float32, n) if norm.weight else np.ones(n, np.float32)
        if norm.kind == "rms":
            return REFERENCE.rms_norm(x, weight, norm.eps)
        bias = at(norm.bias, np.float32, n) if norm.bias else np.zeros(n, np.float32)
        return REFERENCE.layer_norm(x, weight, bias, norm.eps)

    def scale(self, x: Rows, n_tokens: int, n: int, factor: float) -> None:
        rows_at(x, n_tokens, n)[:] *= np.float32(factor)

    def activate(
        self, first: Rows, up: Rows | None, n_tokens: int, n: int, activation: Any, threshold: float,
        to: RoundedRows, counts: int, neuron_in: int = 0, groups: Groups | None = None, keeps: bool = True,
    ) -> None:  # fmt: skip
        before, positions = 0, np.arange(n_tokens)
        if groups is not None:
            starts = at(groups.starts, np.int32, groups.n + 1)
            before, n_tokens = int(starts[0]), min(n_tokens, int(starts[-1] - starts[0]))
            assert n_tokens == starts[-1] - starts[0], "there is a block for every row"
            if not n_tokens:
                return
            first = Rows(first.address + 4 * before * first.step, first.step)
            up = up and Rows(up.address + 4 * before * up.step, up.step)
            to = RoundedRows(to.address + 2 * before * to.step, to.step, to.factors + 4 * before)
            positions = np.arange(n_tokens)
            if groups.positions:
                positions = at(groups.positions, np.int32, before + n_tokens)[before:]
        h = rows_at(first, n_tokens, n)
        functions = {"silu": REFERENCE.silu, "gelu": REFERENCE.gelu, "gelu-tanh": REFERENCE.gelu_tanh,
                     "relu2": REFERENCE.relu2,
                     "clamped-silu": lambda x: REFERENCE.clamped_silu(x, threshold)}  # fmt: skip
        function = functions.get(activation, lambda x: REFERENCE.relu(x, threshold if activation == "fatrelu" else 0.0))
        opened = function(h)
        if neuron_in:
            opened = np.where(at(neuron_in, np.int32, n) < 0, np.float32(0), opened)
        fired, product = opened != 0, opened
        if up is not None:
            others = rows_at(up, n_tokens, n)
            if activation == "clamped-silu":
                others = np.clip(others, -threshold, threshold) + np.float32(1)
            if activation == "drelu":
                others = REFERENCE.relu(others)
                fired = fired & (others != 0)
            product = opened * others
        h[:] = np.where(opened != 0, product, 0)
        counted = at(counts, np.uint32, int(positions.max()) + 1, 2)
        both = np.stack([np.count_nonzero(opened, axis=1), fired.sum(axis=1)], axis=1).astype(np.uint32)
        np.add.at(counted, positions, both)
        self.round(first, n_tokens, n, to)
        if not keeps:
            h[:] = np.nan

    def tally(self, h: Rows, n_tokens: int, n: int, fired: int, places: int = 0) -> None:
        counts = np.count_nonzero(rows_at(h, n_tokens, n), axis=0).astype(np.uint32)
        where = at(places, np.int32, n) if places else np.arange(n)
        known = where >= 0
        at(fired, np.uint32, int(where.max()) + 1)[where[known]] += counts[known]

    def dequantise(self, w: Weights, first: int, n_rows: int, column: int, n_cols: int, to: int, step: int) -> None:
        at(to, np.float16, n_rows, step)[:, :n_cols] = values_of(w)[first : first + n_rows, column : column + n_cols]

    def score(self, x: Rows, n_tokens: int, router: Any, bias: int, scores: int, tile: Any) -> None:
        found = rows_at(x, n_tokens, router.n_cols) @ values_of(router).T
        shift = at(bias, np.float32, router.n_rows) if bias else 0
        at(scores, np.float32, n_tokens, router.n_rows)[:] = found + shift

    def choose(  # type: ignore[override]
        self, scores: int, n_tokens: int, n_experts: int, choice: Any, weighing: Any, groups: Any, shared_scores: int
    ) -> None:
        found, n_used = at(scores, np.float32, n_tokens, n_experts), choice.n_used
        bias = at(choice.bias, np.float32, n_experts) if choice.bias else None
        ids, weights = chosen_of(found, n_used, weighing, groups, bias)
        at(choice.ids, np.int32, n_tokens, n_used)[:] = ids
        to = at(choice.weights, np.float32, n_tokens, n_used + 1)
        to[:, :n_used] = np.float32(choice.factor) * weights
        if choice.factors:
            to[:, :n_used] *= at(choice.factors, np.float32, n_experts)[ids]
        to[:, n_used] = _logistic(at(shared_scores, np.float32, n_tokens)) if shared_scores else 1

    def group(
        self, ids: int, n_tokens: int, n_used: int, rank_of: int, n_experts: int, to: Groups, places: int
    ) -> None:
        ranks = at(rank_of, np.int32, n_experts)[at(ids, np.int32, n_tokens * n_used)]
        order = np.argsort(ranks, kind="stable")
        at(to.starts, np.int32, n_experts + 1)[:] = np.searchsorted(ranks[order], np.arange(n_experts + 1))
        at(to.positions, np.int32, len(order))[:] = order // n_used
        at(places, np.int32, len(order))[order] = np.arange(len(order))

    def take(
        self, x: RoundedRows, positions: int, n_rows: int, to: RoundedRows, choice: Any = None, places: int = 0
    ) -> None:
        ids = at(positions, np.int32, n_rows)
        most = int(ids.max()) + 1
        at(to.address, np.float16, n_rows, to.step)[:] = at(x.address, np.float16, most, x.step)[ids]
        factors = at(to.factors, np.float32, n_rows)
        factors[:] = at(x.factors, np.float32, most)[ids]
        if choice is not None:
            weights = at(choice.weights, np.float32, n_rows // choice.n_used, choice.n_used + 1)[:, :-1]
            factors[at(places, np.int32, n_rows)] *= weights.reshape(-1)

    def multiply_groups(
        self, matrices: Any, step: int, x: RoundedRows, groups: Groups, n_out: int, depth: int, by_rows: bool = True
    ) -> None:
        if self.failing == "multiply":
            raise CudaError("cuLaunchKernel", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
        starts = at(groups.starts, np.int32, groups.n + 1).tolist()
        for address, out, bias in matrices:
            n_rows, n_cols = (n_out, depth) if by_rows else (depth, n_out)
            stacked = at(address, np.float16, groups.n, n_rows, step)[:, :, :n_cols].astype(np.float32)
            for i, (start, end) in enumerate(itertools.pairwise(starts)):
                assert end - start <= groups.most
                if end == start:
                    continue
                rows = RoundedRows(x.address + 2 * start * x.step, x.step, x.factors + 4 * start)
                to = Rows(out.address + 4 * start * out.step, out.step)
                shift = bias and bias + 4 * i * n_out
                self._product(stacked[i] if by_rows else stacked[i].T, rows, end - start, to, shift, False)

    def sum_experts(
        self, y: int, places: int, choice: Any, shared: int, n_tokens: int, n: int, out: Rows, adds: bool
    ) -> None:
        n_used, weights = choice.n_used, choice.weights
        rows = at(y, np.float32, n_tokens * n_used, n)[at(places, np.int32, n_tokens, n_used)]
        shares = np.ones((n_tokens, n_used + 1), np.float32)
        if weights:
            shares = at(weights, np.float32, n_tokens, n_used + 1)
        found = np.einsum("tkd,tk->td", rows, shares[:, :n_used])
        if shared:
            found = found + shares[:, n_used:] * at(shared, np.float32, n_tokens, n)
        to = rows_at(out, n_tokens, n)
        to[:] = to + found if adds else found

    def _kept(self, kv: GpuKv) -> list[tuple[NDArray[Any], NDArray[np.float16] | None]]:
        shape = (kv.n_kv_heads, kv.capacity, kv.head_dim)
        groups = -(-kv.head_dim // 32)
        return [
            (at(numbers, _DTYPES[kv.codec], *shape),
             at(scales, np.float16, *shape[:2], groups) if kv.codec == "q8_0" else None)
            for numbers, scales in ((kv.keys, kv.key_scales), (kv.values, kv.value_scales))
        ]  # fmt: skip

    def place_heads(
        self, qkv: Rows, n_tokens: int, heads: GpuHeads, kv: GpuKv, start: int, angles: RowAngles, positions: int = 0
    ) -> None:
        assert not positions, "this fake stores consecutive positions"
        q_norm, k_norm, n_heads, n_kv = heads.q_norm, heads.k_norm, heads.n, kv.n_kv_heads if heads.stored else 0
        n_all, dim = n_heads + 2 * n_kv, kv.head_dim
        there = rows_at(qkv, n_tokens, n_all * dim)
        q, k, v = np.split(there.reshape(n_tokens, n_all, dim).copy(), [n_heads, n_heads + n_kv], axis=1)
        if heads.v_is_k:
            v = k
        if heads.v_norm is not None:
            v = self._normed(v, heads.v_norm)
        if not angles.norm_last:
            q = q if q_norm is None else self._normed(q, q_norm)
            k = k if k_norm is None else self._normed(k, k_norm)
        if angles.n:
            cos, sin = (at(one, np.float32, n_tokens, angles.n) for one in (angles.cosines, angles.sines))
            q, k = REFERENCE.rope(q, cos, sin, angles.order), REFERENCE.rope(k, cos, sin, angles.order)
        if angles.norm_last:
            q = q if q_norm is None else self._normed(q, q_norm)
            k = k if k_norm is None else self._normed(k, k_norm)
        if angles.temperature is not None:
            own = at(angles.positions, np.int32, n_tokens) if angles.positions else start + np.arange(n_tokens)
            q = q * factors_of(angles.temperature, own)[:, None, None]
        there[:, : n_heads * dim] = q.reshape(n_tokens, -1)
        if not heads.stored:
            return
        for (numbers, scales), values in zip(self._kept(kv), (k, v), strict=True):
            assert scales is None, "keys and values of this fake are numbers"
            numbers[:, start : start + n_tokens] = values.swapaxes(0, 1)

    def _rows_of(self, kv: GpuKv, first: int, end: int) -> list[NDArray[Any]]:
        """Keys and values [H_kv, positions, head_dim] from block `first` on, to be written too."""
        return [numbers[:, kv_blocks.BLOCK * first : end] for numbers, _ in self._kept(kv)]

    def read_blocks(self, blocks: int, n_blocks: int, kv: GpuKv, head: int, first: int, end: int) -> None:
        layout = KvLayout(kv.head_dim, kv.codec)
        there = at(blocks, np.uint8, 1, n_blocks, layout.block_bytes)
        end = min(end, kv_blocks.BLOCK * (first + n_blocks))
        found = kv_blocks.read(there, layout, end - kv_blocks.BLOCK * first)
        for rows, values in zip(self._rows_of(kv, first, end), found, strict=True):
            rows[head] = values[:, 0]

    def write_blocks(self, blocks: int, n_blocks: int, kv: GpuKv, first: int, end: int) -> None:
        layout = KvLayout(kv.head_dim, kv.codec)
        there = at(blocks, np.uint8, kv.n_kv_heads, n_blocks, layout.block_bytes)
        there[:] = 0
        keys, values = (rows.swapaxes(0, 1).astype(np.float32) for rows in self._rows_of(kv, first, end))
        kv_blocks.write(there, layout, 0, keys, values)

    def attend(
        self, q: Rows, n_tokens: int, n_heads: int, kv: GpuKv, start: int, out: Rows, scoring: GpuScoring
    ) -> None:
        dim = kv.head_dim
        queries = rows_at(q, n_tokens, n_heads * dim).reshape(n_tokens, n_heads, dim)
        keys, values = (
            self._on_host._stored(kv, numbers, scales, start + n_tokens)
            for numbers, scales in ((kv.keys, kv.key_scales), (kv.values, kv.value_scales))
        )
        found = REFERENCE.attention(queries, keys, values, scoring_of(scoring, n_heads))
        rows_at(out, n_tokens, n_heads * dim)[:] = found.reshape(n_tokens, -1)
