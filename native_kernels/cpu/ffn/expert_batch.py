"""Many tokens through a layer's experts as one program: tokens are grouped by expert, so that its rows are read once.

All workers share the rows of all experts in use. With a separate call for each expert and matrix, a prompt of 512
tokens through 128 experts spends nine tenths of its time between the calls.

Specification: through_blocks of engine/executor/experts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from native_kernels.backend import F32, I32, I64, Activation, ExpertHidden, PackedMatrix
from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.ffn.elementwise import COUNT_WORDS, activation_calls
from native_kernels.cpu.ffn.expert_biases import ExpertBiases, token_bias_calls
from native_kernels.cpu.ffn.experts import ExpertMatrices, why_not
from native_kernels.cpu.gemm.gemm import (
    Firing,
    Form,
    Panels,
    Scratch,
    form_of_experts,
    matmul_calls,
    matmul_t_calls,
    pack_calls,
    tile_tokens,
)
from native_kernels.cpu.products.gemv import stride_of
from native_kernels.cpu.products.vector_math import put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, address, aligned_empty, arguments
from native_kernels.cpu.runtime.gather import Gathering
from native_kernels.cpu.runtime.groups import Groups, run_groups, within
from native_kernels.cpu.runtime.jit import Kernel, kernel
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cpu.runtime.simd import LANES, fma, get_float, get_int, get_int32, spread, zero

MOST_BYTES = 256 << 20  # limit of the arrays; process more tokens in several runs
_COLUMNS = 256  # of a token's sum, per item


@kernel
def _add_up(args: int, lo: int, hi: int, worker: int) -> None:
    """Sum each token's expert outputs, weighted. Items: chunks of _COLUMNS of a token, then of the next.

    args: outputs, columns, rows of the outputs i32 [T, K] (negative: none), weights [T, K], K, out, its row stride.
    """
    said, d, places = get_int(args), get_int(args + 8), get_int(args + 16)
    weights, n_used, out, step = get_int(args + 24), get_int(args + 32), get_int(args + 40), get_int(args + 48)
    chunks = (d + _COLUMNS - 1) // _COLUMNS
    for item in range(lo, hi):
        token, first = item // chunks, item % chunks * _COLUMNS
        for at in range(first, min(d, first + _COLUMNS), LANES):
            total = zero()
            for k in range(token * n_used, (token + 1) * n_used):
                place = get_int32(places + 4 * k)
                if place >= 0:
                    row = said + 4 * (d * place + at)
                    total = fma(some_floats(row, d - at), spread(get_float(weights + 4 * k)), total)
            put_some_floats(out + step * token + 4 * at, d - at, total)


def batch_kernels() -> list[Kernel]:
    """Return the kernels of experts beside their products and activation, to compile them ahead."""
    return [Gathering().call.kernel, run_groups, _add_up]


@dataclass(frozen=True, eq=False)
class _Block:
    """The weights of a layer's experts. gate is None if the activation applies to up. Has either down or down_t."""

    up: ExpertMatrices
    gate: ExpertMatrices | None = None
    down: ExpertMatrices | None = None
    down_t: ExpertMatrices | None = None
    gate_bias: ExpertBiases | None = None
    up_bias: ExpertBiases | None = None
    down_bias: ExpertBiases | None = None

    @cached_property
    def shape(self) -> tuple[Any, ...]:
        """Everything a program depends on except the arrays."""
        parts = [one and one.first for one in (self.gate, self.up, self.down, self.down_t)]
        kinds = tuple(w and (w.codec, w.n_rows, w.n_cols, stride_of(w)) for w in parts)
        return (*kinds, *(one is None for one in (self.gate_bias, self.up_bias, self.down_bias)))

    @cached_property
    def codecs(self) -> tuple[str, ...]:
        parts = (self.gate, self.up, self.down, self.down_t)
        return tuple(one.first.codec for one in parts if one is not None)


@dataclass(frozen=True, eq=False)
class _Groups:
    """The tokens of each expert in use. experts, counts, first: i64 [G]; first: row of its first token.

    tokens: i32 [R], the token that each row belongs to. places: i32 [T, K], the row of each token's choice; -1: none.
    """

    experts: I64
    counts: I64
    first: I64
    tokens: I32
    places: I32

    @classmethod
    def of(cls, ids: I64, n_experts: int) -> _Groups:
        flat = ids.reshape(-1)
        used = np.flatnonzero(flat >= 0)
        some = flat[used].astype(np.uint16)  # uint16 sorts in linear time
        order = used[np.argsort(some, kind="stable")]
        counts = np.bincount(some, minlength=n_experts)
        experts = np.flatnonzero(counts)
        counts = counts[experts]
        places = np.full(flat.size, -1, np.int32)
        places[order] = np.arange(order.size, dtype=np.int32)
        tokens = (order // ids.shape[1]).astype(np.int32)
        return cls(experts, counts, np.cumsum(counts) - counts, tokens, places.reshape(ids.shape))

    def tiles(self, tokens: int) -> I64:
        """Return the first tile of each group, with this many tokens of one group per tile."""
        n = -(-self.counts // tokens)
        found: I64 = np.cumsum(n) - n
        return found


class CpuExpertBatch:
    """ExpertBatch of native_kernels.backend on the threads of a pool. One run at a time.

    Memory: about 10 bytes per input number and 12 per hidden value of a token, times the experts it uses. Sized for the
    largest batch so far; at most MOST_BYTES if the caller respects most_tokens.
    """

    def __init__(
        self, pool: Pool, scratch: Scratch, activation: Activation, threshold: float, relu_on_up: bool
    ) -> None:
        self.pool = pool
        self.scratch = scratch
        self.activation = activation
        self.threshold = threshold
        self.relu_on_up = relu_on_up
        self._blocks: dict[int, _Block] = {}
        self._programs: dict[Any, _Program] = {}
        self._arrays = _Arrays(0)

    def takes(
        self, layer: int, matrices: Mapping[str, Sequence[PackedMatrix]], biases: Mapping[str, Sequence[F32]]
    ) -> bool:
        if matrices.keys() - {"gate"} not in ({"up", "down"}, {"up", "down_t"}):
            return False
        if len({len(of) for of in matrices.values()}) != 1 or any(
            of[0].codec not in UNPACKERS for of in matrices.values()
        ):
            return False
        if any(why_not(of, summed=False) for of in matrices.values()):
            return False
        parts: dict[str, Any] = {name: ExpertMatrices.of(of) for name, of in matrices.items()}
        parts |= {name: ExpertBiases.of(of) for name, of in biases.items()}
        self._blocks[layer] = _Block(**parts)
        return True

    def most_tokens(self, layer: int, n_used: int) -> int:
        up = self._blocks[layer].up.first
        return max(1, MOST_BYTES // ((10 * up.n_cols + 12 * up.n_rows) * n_used))

    def run(self, layer: int, x: F32, ids: I64, weights: F32) -> tuple[F32, ExpertHidden]:
        block = self._blocks[layer]
        groups = _Groups.of(ids, len(block.up.addresses))
        if ids.size > self._arrays.rows:
            self._programs, self._arrays = {}, _Arrays(ids.size)
        if not len(groups.experts):
            none = np.empty((0, block.up.first.n_rows), np.float32)
            return np.zeros((len(x), x.shape[1]), np.float32), ExpertHidden(none, groups.experts, groups.first, 0, 0)
        typical = max(2, round(len(groups.tokens) / len(groups.experts)))
        key = (block.shape, *(form_of_experts(codec, typical) for codec in block.codecs))
        if key not in self._programs:
            self._programs[key] = _Program(self, block, typical, self._arrays)
        x, weights = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(weights, np.float32)
        return self._programs[key].run(block, groups, x, weights)


class _Arrays:
    """Arrays for a number of rows, allocated on first use and shared by the programs of all layers."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._made: dict[Any, Any] = {}

    def floats(self, name: str, n_cols: int) -> F32:
        """Return an array [rows, n_cols]."""
        found: F32 = self.get((name, n_cols), lambda: aligned_empty((self.rows, n_cols)))
        return found

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the object with this key, made on first use."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


Places = Callable[[_Block, _Groups], dict[int, I64]]


class _Program:
    """The calls for blocks of one shape. typical: tokens per expert, which determines their layout."""

    def __init__(self, owner: CpuExpertBatch, block: _Block, typical: int, arrays: _Arrays) -> None:
        self.arrays = arrays
        self._owner = owner
        self._most = min(len(block.up.addresses), arrays.rows)  # groups
        self._typical = typical
        self._d, self._width = block.up.first.n_cols, block.up.first.n_rows
        self._counts: I64 = aligned_empty(self._most, np.int64)
        self._x = arrays.floats("x", self._d)
        self._said = self._x  # the inputs are packed before outputs are written
        self._hidden = arrays.floats("hidden", self._width)
        self._grouped: list[tuple[list[Groups], Places]] = []
        self._packed: Form | None = None  # layout of the last product's inputs
        self._gathering = Gathering("ffn")
        self._n_values, self._n_chunks = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._totals: I64 = aligned_empty((owner.pool.n_threads, COUNT_WORDS), np.int64)
        self._end = arguments(self._said, self._d, 0, 0, 0, 0, 4 * self._d)
        self._program = Program(self._calls(block))

    def _calls(self, block: _Block) -> list[Call]:
        owner, calls, up = self._owner, [replace(self._gathering.call, barrier=True)], None
        if block.gate is not None:
            up = self.arrays.floats("up", self._width)
            calls += self._product("gate", block.gate.first, self._x, self._hidden)
            calls += self._bias("gate_bias", block.gate_bias, self._hidden)
        calls += self._product("up", block.up.first, self._x, self._hidden if up is None else up)
        calls += self._bias("up_bias", block.up_bias, self._hidden if up is None else up)
        [activation] = activation_calls(
            owner.activation, self._hidden, self._hidden, up=up, relu_on_up=owner.relu_on_up and up is not None,
            threshold=owner.threshold, counts=self._totals,
        )  # fmt: skip
        calls += [replace(activation, n_items=self._n_values)]
        if block.down is not None:
            calls += self._product("down", block.down.first, self._hidden, self._said)
        else:
            assert block.down_t is not None, "a block has down or down_t"
            calls += self._sum(block.down_t.first)
        calls += self._bias("down_bias", block.down_bias, self._said)
        return [*calls, Call(_add_up, self._end, self._n_chunks, 1, "ffn")]

    def _product(self, part: str, w: PackedMatrix, x: F32, out: F32) -> list[Call]:
        """Compute out [R, N] = x [R, D] times the rows of each expert's own matrix."""
        n, form = self._typical, form_of_experts(w.codec, self._typical)
        tile = tile_tokens(form)
        most = tile * (self.arrays.rows // tile + self._most)
        made: Panels = self.arrays.get(("panels", form, address(x)), lambda: Panels.make(most, w.n_cols, form))
        panels = replace(made, max_tokens=n)
        calls = matmul_calls(panels, w, self._counts, out[:n], self._owner.scratch, "ffn")
        if part != "up" or form != self._packed:
            calls = pack_calls(x[:n], self._counts, panels, "ffn") + calls
        self._packed = form

        def places(block: _Block, groups: _Groups) -> dict[int, I64]:
            tiles, matrices = groups.tiles(tile), getattr(block, part)
            return {
                **within(x, groups.first), **within(out, groups.first), **within(panels.values, tiles),
                **within(panels.meta, tiles), address(w.data): matrices.addresses[groups.experts],
            }  # fmt: skip

        return self._for_groups(calls, places)

    def _sum(self, w: PackedMatrix) -> list[Call]:
        """Compute said [R, D] = each expert's rows of down_t, weighted by the hidden values."""
        n, most, h, out = self._typical, self._most, self._hidden, self._said
        one = Firing.make(n, w.n_rows, w.codec)
        tile = one.tiles.shape[-2]
        shape = (self.arrays.rows // tile + most, *one.tiles.shape[1:])
        firing: Firing = self.arrays.get(("firing", one.form), lambda: replace(
            one, flags=aligned_empty((most, w.n_rows), np.uint8), ids=aligned_empty((most, w.n_rows), np.int32),
            count=aligned_empty((most, 1), np.int64), tiles=aligned_empty(shape, np.uint8),
        ))  # fmt: skip
        firing = replace(firing, max_tokens=n)
        calls = matmul_t_calls(h[:n], self._counts, w, out[:n], firing, self._owner.scratch, "ffn")

        def places(block: _Block, groups: _Groups) -> dict[int, I64]:
            assert block.down_t is not None, "blocks of one shape have the same matrices"
            each = np.arange(len(groups.experts))
            return {
                **within(h, groups.first), **within(out, groups.first), **within(firing.flags, each),
                **within(firing.ids, each), **within(firing.count, each), **within(firing.tiles, groups.tiles(tile)),
                address(w.data): block.down_t.addresses[groups.experts],
            }  # fmt: skip

        return self._for_groups(calls, places)

    def _bias(self, part: str, biases: ExpertBiases | None, values: F32) -> list[Call]:
        """values [R, N] += each expert's own bias, where there is one."""
        if biases is None:
            return []
        first = address(biases.first)

        def places(block: _Block, groups: _Groups) -> dict[int, I64]:
            return {**within(values, groups.first), first: getattr(block, part).addresses[groups.experts]}

        return self._for_groups(token_bias_calls(biases.first, values, self._counts), places)

    def _for_groups(self, calls: list[Call], places: Places) -> list[Call]:
        groups = [Groups(call, self._most) for call in calls]
        self._grouped.append((groups, places))
        return [one.call for one in groups]

    def run(self, block: _Block, groups: _Groups, x: F32, weights: F32) -> tuple[F32, ExpertHidden]:
        n_groups, rows = len(groups.experts), groups.tokens.size
        self._counts[:n_groups] = groups.counts
        counts = within(self._counts, np.arange(n_groups))
        for calls, places in self._grouped:
            found = counts | places(block, groups)
            for one in calls:
                one.place(n_groups, found)
        row = 4 * self._d
        self._gathering.set(address(groups.tokens), rows, address(x), row, row, address(self._x), row)
        self._n_values[0], self._n_chunks[0] = rows * self._width, len(x) * -(-self._d // _COLUMNS)
        self._totals[:] = 0
        out: F32 = np.empty((len(x), self._d), np.float32)
        self._end[2:6] = (address(groups.places), address(weights), weights.shape[1], address(out))
        self._owner.pool.run(self._program)
        opened, fired = self._totals[:, :2].sum(axis=0).tolist()
        return out, ExpertHidden(self._hidden[:rows], groups.experts, groups.first, opened, fired)
