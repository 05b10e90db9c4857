"""GPU operators around the products of decode: the residual stream with its norms, attention, and the CPU exchange.

Prepares the arguments of token.cu, attention.cu and exchange.cu. Never waits, so everything can be captured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from ctypes import c_float, c_int, c_uint64
from dataclasses import dataclass
from typing import Any

from native_kernels.cuda.gpu import (
    NOTHING,
    GpuAngles,
    GpuCopy,
    GpuHeads,
    GpuKv,
    GpuNorm,
    GpuScoring,
    GpuSequences,
    GpuVector,
)
from native_kernels.cuda.runtime.driver import Device, Function, Module, Stream
from native_kernels.cuda.runtime.memory import DeviceMemory
from native_kernels.cuda.runtime.modules import load
from native_kernels.specs import Temperature

_KERNELS = {
    "token": ("gather", "normalise", "norm_rows", "copy_words", "angles", "rotate_and_store", "softcap"),
    "exchange": ("publish",),
}
_NORMS = {"rms": 1, "layer": 2}  # token.cu
_CODEC_BYTES = {"f32": 4, "f16": 2, "q8_0": 1}
_LOG2_E = 1.4426950408889634

MAX_COLUMNS = 1 << 20  # of a normed vector
MAX_HEAD_DIM = 576
_WIDE = 256  # heads above are wide, as in attention.cu
_COLUMNS = 32  # per block of `gather` and of `merge`
_PARTS = 8  # summed by each row of a block of `gather`, while there are rows
_ROWS = 8
_OTHERS = 4  # limit of one `gather`
_MAX_HEADS, _MAX_WIDE_HEADS = 8, 2  # query heads per block of attention; of wide heads in f32
_MAX_SPLITS = 256
_THREADS = 128  # per block of attention
_PUBLISH_THREADS = 1024
_ONE_BLOCK = 16384  # words published by a single block
_EACH = 8192  # words per block of several


@dataclass(frozen=True)
class _AttentionShape:
    """Compile-time parameters of attention.cu."""

    head_dim: int
    value_dim: int
    heads: int
    codec_bytes: int

    @property
    def step(self) -> int:
        """Positions that a block reads at a time."""
        if self.codec_bytes != 4:
            return _THREADS // 32 * 16
        if self.head_dim > _WIDE:
            return _THREADS // 32
        lanes = 1
        while 8 * lanes < self.head_dim:
            lanes *= 2
        return _THREADS // lanes * 2

    @property
    def blocks(self) -> int:
        """Blocks per multiprocessor."""
        if self.codec_bytes == 4:
            return 2 if self.heads > 4 or self.head_dim > _WIDE else 3
        return 2 if self.head_dim > 128 or self.head_dim % 8 else 3


@dataclass
class _Partials:
    """GPU addresses of partial sums: `stats` of norms, and those of attention."""

    stats: int
    attention: int = 0
    attention_bytes: int = 0


class GpuTokenOps:
    """The groups `stream` and `exchange` of native_kernels/cuda/gpu.py's `Gpu`; methods are documented there.

    Vectors are aligned to 16 bytes. Keeps GPU memory for partial sums: 256 KiB, and for attention the largest size so
    far, about a megabyte. Cost of a call: about 10 us of the caller's time; the first `attend` for a kind of cache
    compiles its kernel.
    Raises: CudaError, NoMachineCodeError; ValueError for sizes that do not match.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._n_multiprocessors = device.n_multiprocessors
        self._functions: dict[str, Function] = {}
        self._attention: dict[_AttentionShape, tuple[Function, Function]] = {}
        self._held = ExitStack()
        try:
            for name, kernels in _KERNELS.items():
                module = self._loaded(name)
                self._functions |= {kernel: module.function(kernel) for kernel in kernels}
            self._partials: list[_Partials] = []
            self.use_branch(0)
            self._done = self._memory(4)
            stream.fill(self._done, 0, 4)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the kernels and the memory, all of it even after an error. A second call does nothing."""
        self._held.close()

    def use_branch(self, number: int) -> None:
        """Use the partial sums of this branch from now on: operators of different branches may run at the same time."""
        while len(self._partials) <= number:
            self._partials.append(_Partials(self._memory(MAX_COLUMNS // _COLUMNS * 8)))
        self._partial = self._partials[number]

    # --- the stream

    def advance(
        self, stream: int, n: int, parts: int = 0, n_parts: int = 0, others: Sequence[int] = (),
        norm: GpuNorm | None = None, to: GpuVector | None = None, factor: float = 1.0,
    ) -> None:  # fmt: skip
        """Advance the stream. At most MAX_COLUMNS.

        Cost on an H200, 8192 columns: 1.2 us; with a norm 3.5 us, with 64 parts too 5.1 us, and with one of `others` in
        pinned memory too 6.7 us.
        """
        if (norm is None) != (to is None):
            raise ValueError("a norm needs a place for its result")
        for first in range(_OTHERS, len(others), _OTHERS):
            self._gather(stream, n, 0, 0, others[first : first + _OTHERS], None)
        self._gather(stream, n, parts, n_parts, others[:_OTHERS], norm, factor)
        if norm is not None and to is not None:
            self._normalise(stream, norm, to)

    def total(
        self, out: int, n: int, parts: int, n_parts: int, others: Sequence[int] = (), norm: GpuNorm | None = None
    ) -> None:
        """Sum up. At most MAX_COLUMNS and four others. One kernel, or two with a norm."""
        if len(others) > _OTHERS:
            raise ValueError(f"{len(others)} vectors are summed at once; there may be {_OTHERS}")
        self._gather(out, n, parts, n_parts, others, norm, fresh=True)
        if norm is not None:
            self._normalise(out, norm, GpuVector(n, out))

    def norm(self, x: int, norm: GpuNorm, to: GpuVector, again: bool = False) -> None:
        """Norm x. At most MAX_COLUMNS. Two kernels, or one if again."""
        if not again:
            self._gather(x, to.n, 0, 0, (), norm)
        self._normalise(x, norm, to)

    def _gather(
        self, stream: int, n: int, parts: int, n_parts: int, others: Sequence[int], norm: GpuNorm | None,
        factor: float = 1.0, fresh: bool = False,
    ) -> None:  # fmt: skip
        if not 0 < n <= MAX_COLUMNS:
            raise ValueError(f"a vector of {n} columns; there may be 1 to {MAX_COLUMNS}")
        rows = min(_ROWS, max(1, len(others), -(-n_parts // _PARTS)))
        self._launch(
            "gather", (-(-n // _COLUMNS),), (_COLUMNS, rows),
            _at(stream), _at(parts), c_int(n_parts), *(_at(one) for one in (*others, 0, 0, 0, 0)[:_OTHERS]), c_int(n),
            c_float(factor), c_int(fresh), _at(self._partial.stats), c_int(0 if norm is None else _NORMS[norm.kind]),
        )  # fmt: skip

    def _normalise(self, x: int, norm: GpuNorm, to: GpuVector) -> None:
        self._launch(
            "normalise", (-(-to.n // 512),), (128,),
            _at(x), _at(self._partial.stats), c_int(to.n), c_int(_NORMS[norm.kind]), _at(norm.weight), _at(norm.bias),
            c_float(norm.eps), _at(to.values), _at(to.bytes), _at(to.scales),
        )  # fmt: skip

    def norm_rows(self, x: int, n_rows: int, n: int, norm: GpuNorm, added: int) -> None:
        """Norm rows of any length. One kernel."""
        if norm.kind != "rms" or norm.bias:
            raise ValueError("rows are normed by their root mean square")
        self._launch(
            "norm_rows", (n_rows,), (128,), _at(x), c_int(n), _at(norm.weight), c_float(norm.eps), _at(added)
        )  # fmt: skip

    def copy(self, source: int, to: int, n_words: int) -> None:
        if n_words:
            blocks = min(4 * self._n_multiprocessors, -(-n_words // 1024))
            self._launch("copy_words", (blocks,), (256,), _at(source), _at(to), c_int(n_words))

    def angles(self, state: int, frequencies: int, scale: float, n: int, to: int) -> None:
        if n:
            blocks = -(-n // 64)
            self._launch(
                "angles", (blocks,), (64,), _at(state), _at(frequencies), c_float(scale), c_int(n), _at(to)
            )  # fmt: skip

    def rotate_and_store(self, qkv: int, heads: GpuHeads, kv: GpuKv, state: int, angles: GpuAngles) -> None:
        """Norm, rotate and store. A position beyond the capacity is not stored."""
        _check_heads(heads.n, kv)
        if 2 * angles.n > kv.head_dim:
            raise ValueError(f"{angles.n} angles for heads of {kv.head_dim}")
        self._launch(
            "rotate_and_store", (heads.n + 2 * kv.n_kv_heads * heads.stored,), (-(-kv.head_dim // 32) * 32,),
            _at(qkv), c_int(heads.n), c_int(kv.n_kv_heads), c_int(kv.head_dim), _at(state), _at(angles.values),
            c_int(angles.n), c_int(angles.order == "interleaved"), c_int(angles.norm_last),
            c_int(heads.v_is_k), *temperature_words(angles.temperature),
            *_norm_words(heads.q_norm), *_norm_words(heads.k_norm), *v_norm_words(heads),
            c_int(_CODEC_BYTES[kv.codec]), _at(kv.keys), _at(kv.values), _at(kv.key_scales), _at(kv.value_scales),
            c_int(kv.capacity),
        )  # fmt: skip

    def attend(self, q: int, n_heads: int, kv: GpuKv, state: int, to: GpuVector, scoring: GpuScoring) -> None:
        """Compute attention. head_dim is at most MAX_HEAD_DIM; multiples of 8 are fast. Two kernels."""
        self._attend((q, 0), GpuSequences(1, kv.capacity, state), n_heads, kv, to, 0, scoring)

    def attend_each(
        self, q: int, q_step: int, sequences: GpuSequences, n_heads: int, kv: GpuKv, to: int, to_step: int,
        scoring: GpuScoring,
    ) -> None:  # fmt: skip
        """Compute `attend` for several sequences at once: row t of `to` from row t of q; f32 rows, strides in numbers.

        Two kernels.
        """
        row = GpuVector(n_heads * kv.head_dim, to)
        self._attend((q, q_step), sequences, n_heads, kv, row, to_step, scoring)

    def _attend(
        self, q: tuple[int, int], sequences: GpuSequences, n_heads: int, kv: GpuKv, to: GpuVector, to_step: int,
        scoring: GpuScoring,
    ) -> None:  # fmt: skip
        _check_heads(n_heads, kv)
        value_dim = to.n // n_heads
        if to.n % n_heads or value_dim > kv.head_dim or (value_dim < kv.head_dim and not kv.is_shared):
            raise ValueError(f"a result of {to.n} numbers for {n_heads} heads of {kv.head_dim}")
        group = n_heads // kv.n_kv_heads
        most = _MAX_WIDE_HEADS if kv.codec == "f32" and kv.head_dim > _WIDE else _MAX_HEADS
        tiles = -(-group // most)
        heads = -(-group // tiles) if kv.codec == "f32" else _MAX_HEADS
        shape = _AttentionShape(kv.head_dim, value_dim, heads, _CODEC_BYTES[kv.codec])
        n, scale, softcap = sequences.n, scoring.scale, scoring.softcap
        seen = sequences.slot if scoring.window is None else min(sequences.slot, scoring.window)
        wanted = shape.blocks * self._n_multiprocessors // (kv.n_kv_heads * tiles * n)
        n_splits = max(1, min(wanted, -(-seen // shape.step), _MAX_SPLITS))
        attend, merge = self._attention_kernels(shape)
        row_dim = -(-value_dim // 8) * 8
        n_parts = n * n_heads * n_splits
        parts = self._partial_sums(4 * n_parts * (row_dim + 2))
        tops = parts + 4 * n_parts * row_dim
        where = c_int(kv.capacity), c_int(-seen if scoring.chunked else seen)
        attend.launch(
            self._stream, (n_splits, kv.n_kv_heads, tiles * n), (_THREADS,),
            _at(q[0]), _at(q[1]), c_int(group), _at(kv.keys), _at(kv.values), _at(kv.key_scales), _at(kv.value_scales),
            _at(sequences.states), c_int(sequences.slot), *where,
            c_float(scale / softcap if softcap else scale * _LOG2_E), c_float(softcap * _LOG2_E if softcap else 0.0),
            _at(parts), _at(tops),
        )  # fmt: skip
        merge.launch(
            self._stream, (-(-to.n // 64) * 64 // _COLUMNS, n), (_COLUMNS, 8),
            _at(parts), _at(tops), c_int(to.n), c_int(n_splits), _at(sequences.states), *where, _at(scoring.sinks),
            _at(to.values), _at(to_step), _at(to.bytes), _at(to.scales),
        )  # fmt: skip

    def _attention_kernels(self, shape: _AttentionShape) -> tuple[Function, Function]:
        found = self._attention.get(shape)
        if found is None:
            defines = {
                "HEAD_DIM": shape.head_dim,
                "VALUE_DIM": shape.value_dim,
                "HEADS": shape.heads,
                "CODEC": shape.codec_bytes,
            }
            module = self._loaded("attention", defines)
            found = self._attention[shape] = module.function("attend"), module.function("merge")
        return found

    def _partial_sums(self, n_bytes: int) -> int:
        """Return memory for the partial sums of one attention. Captured work may still use older memory."""
        own = self._partial
        if n_bytes > own.attention_bytes:
            own.attention, own.attention_bytes = self._memory(n_bytes), n_bytes
        return own.attention

    def softcap(self, x: int, n: int, cap: float) -> None:
        if n:
            self._launch("softcap", (-(-n // 256),), (256,), _at(x), c_int(n), c_float(cap))

    # --- the exchange

    def publish(
        self, flag: int, epoch: int, values: GpuCopy = NOTHING, bits: GpuCopy = NOTHING, without: int = 0
    ) -> None:
        words = values.n + bits.n
        blocks = 1 if words <= _ONE_BLOCK else min(self._n_multiprocessors, -(-words // _EACH))
        self._launch(
            "publish", (blocks,), (_PUBLISH_THREADS,),
            _at(flag), _at(epoch), _at(values.source), _at(values.to), c_int(values.n), _at(bits.source), _at(without),
            _at(bits.to), c_int(bits.n), _at(self._done),
        )  # fmt: skip

    # --- helpers

    def _launch(self, kernel: str, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any) -> None:
        self._functions[kernel].launch(self._stream, grid, block, *arguments)

    def _loaded(self, name: str, defines: Mapping[str, int | str] | None = None) -> Module:
        module = load(self._device, name, defines)
        self._held.callback(module.close)
        return module

    def _memory(self, n_bytes: int) -> int:
        memory = DeviceMemory(self._device, n_bytes)
        self._held.callback(memory.free)
        return memory.address


_at = c_uint64


def temperature_words(temperature: Temperature | None) -> tuple[c_float, c_int, c_int]:
    """Return a kernel's arguments for the temperature of queries."""
    one = temperature or Temperature(0.0, 1)
    return c_float(one.strength), c_int(one.length), c_int(one.offset)


def v_norm_words(heads: GpuHeads) -> tuple[c_int, c_float]:
    """Return a kernel's arguments for the norm of v."""
    norm = heads.v_norm
    return (c_int(0), c_float(0.0)) if norm is None else (c_int(_NORMS[norm.kind]), c_float(norm.eps))


def _norm_words(norm: GpuNorm | None) -> tuple[Any, ...]:
    if norm is None:
        return c_int(0), _at(0), _at(0), c_float(0.0)
    return c_int(_NORMS[norm.kind]), _at(norm.weight), _at(norm.bias), c_float(norm.eps)


def _check_heads(n_heads: int, kv: GpuKv) -> None:
    if n_heads % kv.n_kv_heads or not 0 < kv.head_dim <= MAX_HEAD_DIM:
        raise ValueError(
            f"{n_heads} heads over {kv.n_kv_heads} of {kv.head_dim}: they must be a multiple of those of keys, with at "
            f"most {MAX_HEAD_DIM} numbers"
        )
