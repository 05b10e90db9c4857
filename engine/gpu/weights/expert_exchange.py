"""Move experts from RAM into slots on the GPU: the CPU's threads copy them into pinned memory, the GPU unpacks them.

A few experts are moved at once. The copy calls are prepared once and only their arguments change, because Python
between the copies would take longer than the bus.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.gpu.weights.layers import GpuExpertFfn
from engine.gpu.weights.uploads import give_back
from engine.model.weights import FfnWeights
from engine.placement.memory_plan import EXPERTS_AT_ONCE, expert_exchange_bytes
from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.cpu.runtime.call import address
from native_kernels.cpu.runtime.gather import Gathering
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cuda.gpu import Gpu, GpuMatrix, Memory

_ALIGNMENT = 256
_ROW_MULTIPLE = 16  # unpack_rows is fast for rows so aligned

# Layer, slot, the layer's slots without the leaving expert (i32 [E]), the new expert, its weights.
Given = tuple[GpuExpertFfn, int, I32, int, FfnWeights]


class Exchange:
    """The memory for moving experts of one shape. at_once: how many fit. Use it in one thread at a time."""

    def __init__(self, gpu: Gpu, pool: Pool, like: FfnWeights, n_experts: int) -> None:
        """like: any of the experts. Raises: CudaOutOfMemoryError."""
        self._gpu, self._pool = gpu, pool
        matrices = [one for one in (like.gate, like.up, like.down, like.down_t) if one is not None]
        biases = [one for one in (like.gate_bias, like.up_bias, like.down_bias) if one is not None]
        rows = max(one.n_rows for one in matrices)
        self._expert_bytes = sum(_up(one.n_rows * _unit(one)) for one in matrices)
        room = expert_exchange_bytes(self._expert_bytes)
        # An expert larger than the memory is moved in parts of its rows.
        self.at_once = max(1, min(EXPERTS_AT_ONCE, room // self._expert_bytes))
        self._part = rows if self._expert_bytes <= room else max(1, room // max(_unit(one) for one in matrices))
        self._numbers = _up(2 * 4 * n_experts + sum(one.nbytes for one in biases))
        self._raw_bytes = max(room, self._part * max(_unit(one) for one in matrices))
        self._ids: I32 = np.arange(max(rows, 1), dtype=np.int32)
        self._copies = [Gathering("exchange") for _ in range(len(matrices) * self.at_once)]
        self._program = Program([copy.call for copy in self._copies])
        self._memories: list[Memory] = []
        try:
            self._pinned = gpu.pin(self._raw_bytes + self.at_once * self._numbers)
            self._memories.append(self._pinned)
            self._raw = gpu.allocate(self._raw_bytes)
            self._memories.append(self._raw)
        except BaseException:
            self.close()
            raise

    def run(self, given: Sequence[Given]) -> None:
        """Move up to `at_once` experts of different layers. Raises: CudaError."""
        gpu, at = self._gpu, 0
        gpu.synchronize()  # the memory may still be read
        unpacked: list[tuple[int, PackedMatrix, GpuMatrix, int, int]] = []
        for place, (ffn, _, before, _, _) in enumerate(given):
            self._send(place, 0, before, ffn.slot_of)
        for ffn, slot, _, _, weights in given:
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
                    n, unit = min(self._part, source.n_rows - first), _unit(source)
                    if at + n * unit > self._raw_bytes or len(unpacked) == len(self._copies):
                        self._copy(unpacked, at)
                        gpu.synchronize()
                        unpacked, at = [], 0
                    stride = source.data.strides[0] if source.n_rows > 1 else source.row_bytes
                    self._copies[len(unpacked)].set(
                        address(self._ids), n, address(source.data) + first * stride, source.row_bytes, stride,
                        self._pinned.address + at, unit,
                    )  # fmt: skip
                    unpacked.append((at, source, matrix, slot * source.n_rows + first, n))
                    at += _up(n * unit)
        self._copy(unpacked, at)
        for place, (ffn, slot, before, expert, weights) in enumerate(given):
            to = ffn.resident
            assert to is not None, "the layer has slots"
            after, used = before.copy(), before.nbytes
            after[expert] = slot
            biases = (
                (weights.gate_bias, to.gate_bias),
                (weights.up_bias, to.up_bias),
                (weights.down_bias, to.down_bias),
            )
            for bias, base in biases:
                if bias is not None:
                    self._send(place, used, np.ascontiguousarray(bias, np.float32), base + slot * bias.nbytes)
                    used += bias.nbytes
            self._send(place, used, after, ffn.slot_of)

    def tell(self, ffn: GpuExpertFfn, slot_of: I32) -> None:
        """Upload the slots of all experts of a layer. Raises: CudaError."""
        self._gpu.synchronize()  # the memory may still be read
        self._send(0, 0, slot_of, ffn.slot_of)

    def _copy(self, unpacked: Sequence[tuple[int, PackedMatrix, GpuMatrix, int, int]], n_bytes: int) -> None:
        """Run the planned copies, and unpack the rows into the slots."""
        for copy in self._copies[len(unpacked) :]:
            copy.clear()
        while not self._pool.run(self._program):  # a late stop, meant for the token
            pass
        self._gpu.upload(self._raw.address, self._pinned.address, n_bytes)
        for at, source, matrix, first, n in unpacked:
            self._gpu.unpack_rows(self._raw.address + at, _unit(source), n, matrix, source.codec, 0, first)

    def _send(self, place: int, offset: int, values: I32 | F32, to: int) -> None:
        """Upload an array through the pinned memory of a place."""
        at = self._raw_bytes + place * self._numbers + offset
        self._pinned.as_array(np.uint8, values.nbytes, at)[:] = values.view(np.uint8)
        self._gpu.upload(to, self._pinned.address + at, values.nbytes)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        give_back(self._memories)


def _unit(source: PackedMatrix) -> int:
    """Return the bytes between uploaded rows."""
    return -(-source.row_bytes // _ROW_MULTIPLE) * _ROW_MULTIPLE


def _up(n: int) -> int:
    return -(-n // _ALIGNMENT) * _ALIGNMENT
