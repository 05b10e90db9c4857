"""The experts of several sequences on a GPU, one position of each: an expert's rows are read once for all of them.

Prepares the arguments of expert_batch.cu and of `group` in router.cu. The choice itself is prefill_ops.py's. Allocates
nothing and never waits, so everything can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import Structure, c_int, c_uint64
from dataclasses import dataclass
from typing import Any

from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.gpu import GpuExperts, GpuMatrix, GpuVector
from native_kernels.cuda.layouts import UNIT_COLUMNS
from native_kernels.cuda.products import split_of
from native_kernels.cuda.runtime.driver import Device, Function, Module, Stream
from native_kernels.cuda.runtime.modules import load

MOST_PAIRS = 2048  # as in router.cu
_WARPS, _ROWS = 8, 2  # of a block, and of a warp at a time, in expert_batch.cu
MOST_SEGMENTS = 8  # of an expert's neurons, each with its own partial sum


@dataclass(frozen=True)
class ExpertPairs:
    """T positions that use K experts each, grouped by slot; pair p is the k-th expert of position t: p = t K + k.

    order i32 [T K]: the pairs, group after group. groups i32 [n_groups + 1, 2]: each group's slot and first index in
    `order`; a negative slot: not resident. n_groups: upper limit. weights f32: of pair (t, k) at weight_step t + k; 0:
    all 1.
    """

    n_positions: int
    n_used: int
    n_groups: int
    order: int
    groups: int
    weights: int = 0
    weight_step: int = 0

    @property
    def n(self) -> int:
        return self.n_positions * self.n_used


class _Steps(Structure):
    _fields_ = [("position", c_int), ("choice", c_int)]


class _Planes(Structure):
    _fields_ = [("at", c_uint64 * 4)]


class _Vector(Structure):
    _fields_ = [("values", c_uint64), ("bytes", c_uint64), ("scales", c_uint64), ("n", c_int)]


class _Pairs(Structure):
    _fields_ = [
        ("order", c_uint64), ("groups", c_uint64), ("weights", c_uint64), ("x", _Steps), ("out", _Steps),
        ("weight", _Steps), ("n_used", c_int),
    ]  # fmt: skip


class _Product(Structure):
    _fields_ = [("planes", _Planes), ("out", c_uint64), ("bias", c_uint64), ("weighed", c_int)]


class _Products(Structure):
    _fields_ = [("products", _Product * 2), ("x", _Vector), ("pairs", _Pairs), ("n_rows", c_int), ("split", c_int)]


class _Sums(Structure):
    _fields_ = [
        ("planes", _Planes), ("h", c_uint64), ("bias", c_uint64), ("out", c_uint64), ("pairs", _Pairs),
        ("segment_step", c_uint64), ("width", c_int), ("n_cols", c_int),
    ]  # fmt: skip


class GpuExpertBatchOps:
    """The operators. Vectors of positions or pairs follow one another: x [T, D], h [T, K, F].

    Raises: CudaError, NoMachineCodeError; ValueError for sizes that do not match.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream, self._n_multiprocessors = device, stream, device.n_multiprocessors
        self._held = ExitStack()
        self._modules: dict[str, Module] = {}

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        self._held.close()

    def group(self, ids: int, slot_of: int, pairs: ExpertPairs) -> None:
        """Write the order and the groups of pairs for experts ids i32 [T, K]. slot_of i32 [E]: the slot of each."""
        if pairs.n > MOST_PAIRS:
            raise ValueError(f"{pairs.n} uses of experts; there may be {MOST_PAIRS}")
        self._function("router", "group").launch(
            self._stream, (1,), (1024,), c_uint64(ids), c_uint64(slot_of), c_int(pairs.n), c_int(pairs.n_groups),
            c_uint64(pairs.order), c_uint64(pairs.groups),
        )  # fmt: skip

    def products(
        self, experts: GpuExperts, x: GpuVector, pairs: ExpertPairs, first: int, up: int, weighed: bool = False
    ) -> None:
        """Compute first [T, K, F] = gate x and up [T, K, F] = up x of the pairs, or first = up x without a gate.

        Adds biases. The result is 0 for experts that are not resident. weighed: as Gpu.expert_products.
        """
        given = [(experts.up, first, experts.up_bias, False)]
        if experts.gate is not None:
            given = [(experts.gate, first, experts.gate_bias, weighed), (experts.up, up, experts.up_bias, False)]
        steps = _steps(pairs, _Steps(x.n // pairs.n_positions, 0), _by_pair(pairs, experts.width))
        for codec in dict.fromkeys(matrix.codec for matrix, *_ in given):
            same = [one for one in given if one[0].codec == codec]
            self._multiply(same, experts.width, x, steps, pairs)

    def parts(self, experts: GpuExperts, pairs: ExpertPairs) -> int:
        """Return the number of partial sums that `down` writes."""
        return pairs.n_used * self._segments(experts, pairs)

    def down(self, experts: GpuExperts, h: GpuVector, pairs: ExpertPairs, parts: int) -> None:
        """Compute parts [n, T, D], whose sum is that of the pairs' outputs for h [T, K, F], each times its weight.

        Experts that are not resident add 0.
        """
        width, down, segments = experts.width, experts.down, self._segments(experts, pairs)
        by_neuron = experts.down_is_transposed
        d = down.n_cols if by_neuron else down.n_rows // experts.n_slots
        out = _Steps(d, segments * pairs.n_positions * d)
        steps = _steps(pairs, _by_pair(pairs, width), out)
        if not by_neuron:
            self._multiply([(down, parts, experts.down_bias, bool(pairs.weights))], d, h, steps, pairs)
            return
        if h.n != pairs.n * width:
            raise ValueError(f"{h.n} hidden values for {pairs.n} experts of {width}")
        job = _Sums(_planes(down), h.values, experts.down_bias, parts, steps, pairs.n_positions * d, width, d)
        grid = (-(-_units(down) // 32), segments, pairs.n_groups)
        self._function("expert_batch", "sum_groups", down.codec).launch(self._stream, grid, (128,), job)

    def _segments(self, experts: GpuExperts, pairs: ExpertPairs) -> int:
        if not experts.down_is_transposed:
            return 1
        blocks = -(-_units(experts.down) // 32) * pairs.n_groups
        return max(1, min(2 * self._n_multiprocessors // blocks, MOST_SEGMENTS, experts.width // 32))

    def _multiply(
        self, given: Sequence[tuple[GpuMatrix, int, int, bool]], n_rows: int, x: GpuVector, steps: Structure,
        pairs: ExpertPairs,
    ) -> None:  # fmt: skip
        """given: matrices, results, biases, and whether the weights multiply the results."""
        matrix = given[0][0]
        n, reads = matrix.n_cols, matrix.reads_bytes
        if x.n % n or n % (32 if reads else 4) or not (x.bytes and x.scales if reads else x.values):
            raise ValueError(f"a matrix of {n} columns in {matrix.codec} does not multiply these vectors")
        split = split_of(len(given) * pairs.n_groups * n_rows, _units(matrix), self._n_multiprocessors)
        products = [_Product(_planes(one), *rest) for one, *rest in given]
        vector = _Vector(x.values, x.bytes, x.scales, n)
        job = _Products((_Product * 2)(*products), vector, steps, n_rows, split)
        grid = (-(-n_rows * split // (_ROWS * _WARPS)), pairs.n_groups, len(given))
        kernel = self._function("expert_batch", "multiply_groups", matrix.codec)
        kernel.launch(self._stream, grid, (32 * _WARPS,), job)

    def _function(self, name: str, kernel: str, codec: str = "") -> Function:
        key = name + codec
        if key not in self._modules:
            ahead = 1 if codec and ROW_CODECS[codec].block_size == 256 else 2  # superblocks: more bytes per unit
            defines: dict[str, int | str] = {"CODEC": codec.upper(), "UNITS_AHEAD": ahead} if codec else {}
            self._modules[key] = load(self._device, name, defines)
            self._held.callback(self._modules[key].close)
        return self._modules[key].function(kernel)


def _by_pair(pairs: ExpertPairs, n: int) -> _Steps:
    """Return the steps for n numbers per pair."""
    return _Steps(pairs.n_used * n, n)


def _steps(pairs: ExpertPairs, x: _Steps, out: _Steps) -> _Pairs:
    return _Pairs(pairs.order, pairs.groups, pairs.weights, x, out, _Steps(pairs.weight_step, 1), pairs.n_used)


def _units(matrix: GpuMatrix) -> int:
    """Return the units of a row, as in weights.cuh."""
    return -(-matrix.n_cols // UNIT_COLUMNS[matrix.codec])


def _planes(matrix: GpuMatrix) -> Any:
    return _Planes((c_uint64 * 4)(*matrix.planes))


__all__ = ["MOST_PAIRS", "MOST_SEGMENTS", "ExpertPairs", "GpuExpertBatchOps"]
