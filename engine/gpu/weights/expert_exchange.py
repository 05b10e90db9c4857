"""Move experts from RAM into slots on the GPU while it decodes: copied beside tokens, and unpacked between two.

A few experts are moved at once. The GPU's copy engine reads them where they are pinned in place; otherwise the CPU's
threads copy them into pinned memory first. The copy calls are prepared once and only their arguments change, because
Python between the copies would take longer than the bus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from engine.gpu.weights.layers import GpuExpertFfn
from engine.gpu.weights.uploads import give_back
from engine.model.weights import FfnWeights
from engine.placement.memory_plan import EXPERTS_AT_ONCE, expert_exchange_bytes
from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.cpu.runtime.call import address
from native_kernels.cpu.runtime.gather import Gathering
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cuda.gpu import Copier, Gpu, GpuMatrix, Memory

_ALIGNMENT = 256
_ROW_MULTIPLE = 16  # unpack_rows is fast for rows so aligned


class ZeroCopy(Protocol):
    """Host memory that the GPU reads directly: engine.gpu.prefill.pinned_weights.PinnedWeights."""

    def find(self, address: int, n_bytes: int) -> int | None:
        """Return the GPU address of a host range, or None if the GPU cannot read all of it."""

    def ranges(self, address: int, n_bytes: int) -> Sequence[tuple[int, int]]:
        """Return (address, bytes) of the parts of such a range that the copy engine can copy at once."""


class Moved(NamedTuple):
    """An expert to move into a slot of a layer's FFN."""

    ffn: GpuExpertFfn
    slot: int
    expert: int
    weights: FfnWeights


class _Rows(NamedTuple):
    """Rows of a matrix at an offset of the memory, and the GPU's first row for them."""

    offset: int
    source: PackedMatrix
    first: int
    n: int
    to: GpuMatrix
    to_first: int


class Exchange:
    """The memory for moving experts of one shape, one group at a time: `begin`, then `finish`.

    at_once: how many experts fit. zero_copy: pinned weights, if any. Use it in one thread at a time.
    """

    def __init__(self, gpu: Gpu, pool: Pool, like: FfnWeights, n_experts: int) -> None:
        """like: any of the experts. Raises: CudaError, CudaOutOfMemoryError."""
        self._gpu, self._pool = gpu, pool
        self.zero_copy: ZeroCopy | None = None
        matrices = [one for one in (like.gate, like.up, like.down, like.down_t) if one is not None]
        biases = [one for one in (like.gate_bias, like.up_bias, like.down_bias) if one is not None]
        rows = max(one.n_rows for one in matrices)
        expert_bytes = sum(_up(one.n_rows * _unit(one)) for one in matrices)
        room = expert_exchange_bytes(expert_bytes)
        # An expert larger than the memory is moved in parts of its rows.
        self.at_once = max(1, min(EXPERTS_AT_ONCE, room // expert_bytes))
        self._part = rows if expert_bytes <= room else max(1, room // max(_unit(one) for one in matrices))
        self._numbers = _up(4 * n_experts + sum(one.nbytes for one in biases))
        self._raw_bytes = max(room, self._part * max(_unit(one) for one in matrices))
        self._ids: I32 = np.arange(max(rows, 1), dtype=np.int32)
        self._copies = [Gathering("exchange") for _ in range(len(matrices) * self.at_once)]
        self._program = Program([copy.call for copy in self._copies])
        self._given: Sequence[Moved] = ()
        self._groups: list[list[_Rows]] = []  # the rows still to unpack; the first group is on its way
        self._memories: list[Memory] = []
        self._copier: Copier | None = None
        try:
            self._pinned = gpu.pin(self._raw_bytes + self.at_once * self._numbers)
            self._memories.append(self._pinned)
            self._raw = gpu.allocate(self._raw_bytes)
            self._memories.append(self._raw)
            self._copier = gpu.copier()
        except BaseException:
            self.close()
            raise

    def begin(self, given: Sequence[Moved]) -> None:
        """Start copying up to `at_once` experts; no slot changes. Raises: CudaError; then nothing is begun."""
        self._copier_of().follow()  # the memory may still be read
        self._groups = self._cut(given)
        try:
            self._copy(self._groups[0])
        except BaseException:
            self._groups = []
            raise
        self._given = given

    def has_arrived(self) -> bool:
        """Return whether the copies of `begin` are done, of a large expert its first part. Raises: CudaError."""
        return self._copier_of().has_ended()

    def finish(self, slots: Sequence[I32]) -> None:
        """Unpack the experts into their slots, and upload the slots [E] of each layer. Call this between tokens.

        Cost: waits for copies that are not done, and copies the other parts of a large expert.

        Raises: CudaError; the contents of the slots are then unknown.
        """
        given, groups = self._given, self._groups
        self._given, self._groups = (), []
        for i, rows in enumerate(groups):
            if i:
                self._copier_of().follow()
                self._copy(rows)
            self._copier_of().wait()
            for one in rows:
                unit, raw = _unit(one.source), self._raw.address + one.offset
                self._gpu.unpack_rows(raw, unit, one.n, one.to, one.source.codec, 0, one.to_first)
        for place, (moved, slot_of) in enumerate(zip(given, slots, strict=True)):
            ffn, slot, _, weights = moved
            to, used = ffn.resident, slot_of.nbytes
            assert to is not None, "the layer has slots"
            for bias, base in (
                (weights.gate_bias, to.gate_bias),
                (weights.up_bias, to.up_bias),
                (weights.down_bias, to.down_bias),
            ):
                if bias is not None:
                    self._send(place, used, np.ascontiguousarray(bias, np.float32), base + slot * bias.nbytes)
                    used += bias.nbytes
            self._send(place, 0, slot_of, ffn.slot_of)

    def tell(self, ffn: GpuExpertFfn, slot_of: I32) -> None:
        """Upload the slots of all experts of a layer. Raises: CudaError."""
        self._gpu.synchronize()  # the memory may still be read
        self._send(0, 0, slot_of, ffn.slot_of)

    def _copier_of(self) -> Copier:
        assert self._copier is not None, "it is open"
        return self._copier

    def _cut(self, given: Sequence[Moved]) -> list[list[_Rows]]:
        """Return the rows to copy, in groups that the memory holds."""
        groups: list[list[_Rows]] = [[]]
        at = 0
        for ffn, slot, _, weights in given:
            to = ffn.resident
            assert to is not None, "the layer has slots"
            for source, matrix in (
                (weights.gate, to.gate),
                (weights.up, to.up),
                (weights.down or weights.down_t, to.down),
            ):
                if source is None or matrix is None:
                    continue
                for first in range(0, source.n_rows, self._part):
                    n = min(self._part, source.n_rows - first)
                    if at + n * _unit(source) > self._raw_bytes or len(groups[-1]) == len(self._copies):
                        groups.append([])
                        at = 0
                    groups[-1].append(_Rows(at, source, first, n, matrix, slot * source.n_rows + first))
                    at += _up(n * _unit(source))
        return groups

    def _copy(self, rows: Sequence[_Rows]) -> None:
        """Queue the copies to the GPU; the CPU first copies what the GPU cannot read in place."""
        copier, gathered = self._copier_of(), list[tuple[int, int]]()
        for one in rows:
            source, unit = one.source, _unit(one.source)
            stride = source.data.strides[0] if source.n_rows > 1 else source.row_bytes
            at = address(source.data) + one.first * stride
            parts = self._in_place(at, one.n * stride - (stride - source.row_bytes))
            if parts and stride == unit == source.row_bytes:
                for start, n_bytes in parts:
                    copier.upload(self._raw.address + one.offset + start - at, start, n_bytes)
            elif len(parts) == 1:
                copier.upload_rows(self._raw.address + one.offset, unit, at, stride, source.row_bytes, one.n)
            else:
                self._copies[len(gathered)].set(
                    address(self._ids), one.n, at, source.row_bytes, stride, self._pinned.address + one.offset, unit
                )  # fmt: skip
                gathered.append((one.offset, one.n * unit))
        if not gathered:
            return
        for copy in self._copies[len(gathered) :]:
            copy.clear()
        while not self._pool.run(self._program):  # a late stop, meant for the token
            pass
        for offset, n_bytes in gathered:
            copier.upload(self._raw.address + offset, self._pinned.address + offset, n_bytes)

    def _in_place(self, at: int, n_bytes: int) -> Sequence[tuple[int, int]]:
        """Return the parts that the copy engine reads where they are; empty if it cannot read all of it."""
        if self.zero_copy is None or self.zero_copy.find(at, n_bytes) is None:
            return ()
        return self.zero_copy.ranges(at, n_bytes)

    def _send(self, place: int, offset: int, values: I32 | F32, to: int) -> None:
        """Upload an array through the pinned memory of a place."""
        at = self._raw_bytes + place * self._numbers + offset
        self._pinned.as_array(np.uint8, values.nbytes, at)[:] = values.view(np.uint8)
        self._gpu.upload(to, self._pinned.address + at, values.nbytes)

    def wait(self) -> None:
        """Wait until no copy reads weights, in any thread. Raises: CudaError."""
        self._gpu.enter()
        self._copier_of().wait()

    def close(self) -> None:
        """Release the memory, after the copies have ended. Idempotent."""
        copier, self._copier = self._copier, None
        if copier is not None:
            copier.close()
        give_back(self._memories)


def _unit(source: PackedMatrix) -> int:
    """Return the bytes between uploaded rows."""
    return -(-source.row_bytes // _ROW_MULTIPLE) * _ROW_MULTIPLE


def _up(n: int) -> int:
    return -(-n // _ALIGNMENT) * _ALIGNMENT
