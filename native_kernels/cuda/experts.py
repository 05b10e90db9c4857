"""The experts of one token on a GPU: the router's choice, and the products of chosen experts that are resident.

Prepares the arguments of router.cu and experts.cu. Allocates nothing and never waits, so everything can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import Structure, c_float, c_int, c_uint64
from typing import Any

from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.gpu import GpuChoice, GpuExperts, GpuMatrix, GpuVector
from native_kernels.cuda.layouts import UNIT_COLUMNS
from native_kernels.cuda.products import split_of
from native_kernels.cuda.runtime.driver import Device, Function, Module, Stream
from native_kernels.cuda.runtime.modules import load
from native_kernels.specs import ONE_GROUP, ExpertGroups, Weighing

MAX_EXPERTS = 1024  # of a layer, as in router.cu
_WARPS, _ROWS = 8, 2  # of a block, and of a warp at a time, in experts.cu
_MOST_PARTS = 64  # partial sums of all chosen experts together


class _Planes(Structure):
    _fields_ = [("at", c_uint64 * 4)]


class _Vector(Structure):
    _fields_ = [("values", c_uint64), ("bytes", c_uint64), ("scales", c_uint64), ("n", c_int)]


class _Choice(Structure):
    _fields_ = [
        ("scores", c_uint64), ("shared_score", c_uint64), ("bias", c_uint64), ("factors", c_uint64),
        ("slot_of", c_uint64), ("ids", c_uint64), ("weights", c_uint64),
        ("slots", c_uint64), ("n_experts", c_int), ("n_used", c_int), ("sigmoid", c_int), ("adds_up", c_int),
        ("factor", c_float), ("n_groups", c_int), ("groups_used", c_int), ("by_two", c_int), ("margin", c_float),
    ]  # fmt: skip


class _Product(Structure):
    _fields_ = [("planes", _Planes), ("out", c_uint64), ("bias", c_uint64), ("weighed", c_int)]


class _Products(Structure):
    _fields_ = [
        ("products", _Product * 2), ("x", _Vector), ("slots", c_uint64), ("weights", c_uint64), ("x_step", c_int),
        ("n_rows", c_int), ("split", c_int),
    ]  # fmt: skip


class _Sums(Structure):
    _fields_ = [
        ("planes", _Planes), ("h", c_uint64), ("bias", c_uint64), ("weights", c_uint64), ("slots", c_uint64),
        ("parts", c_uint64), ("width", c_int), ("n_cols", c_int),
    ]  # fmt: skip


def choice_threads(n_experts: int) -> tuple[int]:
    """Return the threads of a position's block in `choose`."""
    return (-(-n_experts // 32) * 32,)


def choice_job(
    scores: int, n_experts: int, slot_of: int, choice: GpuChoice, weighing: Weighing, groups: ExpertGroups,
    shared_score: int,
) -> Structure:  # fmt: skip
    """Return the argument of the kernel `choose`; parameters as in Gpu.choose.

    Raises: ValueError for groups that are not equal, or of one expert.
    """
    if groups.n > 1 and (n_experts % groups.n or n_experts < 2 * groups.n):
        raise ValueError(f"{groups.n} groups of {n_experts} experts")
    return _Choice(
        scores, shared_score, choice.bias, choice.factors, slot_of, choice.ids, choice.weights, choice.slots, n_experts,
        choice.n_used, int(weighing.router == "sigmoid"), int(weighing.adds_up), choice.factor, *groups,
        weighing.margin if weighing.router == "softmax" else 0.0,
    )  # fmt: skip


class GpuExpertOps:
    """The group `experts` of native_kernels/cuda/gpu.py's `Gpu`; methods and shapes are documented there.

    Cost of a call: about 10 us of the caller's time; the first with a codec 1 ms, or 1 s if it must be compiled.
    Raises: CudaError, NoMachineCodeError; ValueError for sizes that do not match.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream, self._n_multiprocessors = device, stream, device.n_multiprocessors
        self._held = ExitStack()
        self._modules: dict[str, Module] = {}
        self._functions: dict[tuple[str, str], Function] = {}

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        self._held.close()

    def choose(
        self, scores: int, n_experts: int, slot_of: int, choice: GpuChoice, weighing: Weighing,
        groups: ExpertGroups = ONE_GROUP, shared_score: int = 0,
    ) -> None:  # fmt: skip
        """Choose. One block; at most MAX_EXPERTS."""
        if not choice.n_used <= n_experts <= MAX_EXPERTS:
            raise ValueError(f"{choice.n_used} of {n_experts} experts; there may be {MAX_EXPERTS}")
        job = choice_job(scores, n_experts, slot_of, choice, weighing, groups, shared_score)
        self._function("router", "choose").launch(self._stream, (1,), choice_threads(n_experts), job)

    def expert_products(
        self, experts: GpuExperts, x: GpuVector, choice: GpuChoice, first: int, up: int, weighed: bool = False
    ) -> None:  # fmt: skip
        """Compute gate and up, in one launch if they are of one codec."""
        given = [(experts.up, first, experts.up_bias, False)]
        if experts.gate is not None:
            given = [(experts.gate, first, experts.gate_bias, weighed), (experts.up, up, experts.up_bias, False)]
        for codec in dict.fromkeys(matrix.codec for matrix, *_ in given):
            same = [one for one in given if one[0].codec == codec]
            self._multiply(same, experts.width, x, 0, choice)

    def expert_parts(self, experts: GpuExperts, n_used: int) -> int:
        """Return the number of partial sums. Cost: none."""
        return n_used * self._segments(experts, n_used)

    def expert_down(self, experts: GpuExperts, h: GpuVector, choice: GpuChoice, parts: int) -> None:
        """Compute the weighted partial sums; those of experts that are not resident become 0."""
        width, down = experts.width, experts.down
        if h.n != width * choice.n_used or width % (32 if down.reads_bytes else 4):
            raise ValueError(f"{h.n} hidden values for {choice.n_used} experts of {width}")
        if not experts.down_is_transposed:
            row = GpuVector(width, h.values, h.bytes, h.scales)
            given = [(down, parts, experts.down_bias, True)]
            n_rows = down.n_rows // max(1, experts.n_slots)
            self._multiply(given, n_rows, row, width, choice)
            return
        blocks = -(-_units(down) // 32)
        job = _Sums(_planes(down), h.values, experts.down_bias, choice.weights, choice.slots, parts, width, down.n_cols)
        grid = (blocks, self._segments(experts, choice.n_used), choice.n_used)
        self._function("experts", "sum_chosen", down.codec).launch(self._stream, grid, (128,), job)

    def _segments(self, experts: GpuExperts, n_used: int) -> int:
        """Return the number of partial sums per expert, enough for two blocks per multiprocessor."""
        if not experts.down_is_transposed:
            return 1
        blocks = -(-_units(experts.down) // 32) * n_used
        return max(1, min(2 * self._n_multiprocessors // blocks, _MOST_PARTS // n_used, experts.width // 32))

    def _multiply(
        self, given: Sequence[tuple[GpuMatrix, int, int, bool]], n_rows: int, x: GpuVector, x_step: int,
        choice: GpuChoice,
    ) -> None:  # fmt: skip
        """given: matrices, results, biases, and whether the weights multiply the results."""
        first, n_used = given[0][0], choice.n_used
        for matrix, *_ in given:
            if matrix.n_cols != x.n or not (x.bytes and x.scales if matrix.reads_bytes else x.values):
                raise ValueError(f"a matrix of {matrix.n_cols} columns in {matrix.codec} does not multiply this vector")
        split = split_of(len(given) * n_used * n_rows, _units(first), self._n_multiprocessors)
        products = [_Product(_planes(matrix), *rest) for matrix, *rest in given]
        vector = _Vector(x.values, x.bytes, x.scales, x.n)
        job = _Products((_Product * 2)(*products), vector, choice.slots, choice.weights, x_step, n_rows, split)
        grid = (-(-n_rows * split // (_ROWS * _WARPS)), n_used, len(given))
        self._function("experts", "multiply_chosen", first.codec).launch(self._stream, grid, (32 * _WARPS,), job)

    def _function(self, name: str, kernel: str, codec: str = "") -> Function:
        found = self._functions.get((kernel, codec))
        if found is None:
            key = name + codec
            if key not in self._modules:
                ahead = 1 if codec and ROW_CODECS[codec].block_size == 256 else 2  # superblocks: more bytes per unit
                defines: dict[str, int | str] = {"CODEC": codec.upper(), "UNITS_AHEAD": ahead} if codec else {}
                self._modules[key] = load(self._device, name, defines)
                self._held.callback(self._modules[key].close)
            found = self._functions[kernel, codec] = self._modules[key].function(kernel)
        return found


def _units(matrix: GpuMatrix) -> int:
    """Return the units of a row, as in weights.cuh."""
    return -(-matrix.n_cols // UNIT_COLUMNS[matrix.codec])


def _planes(matrix: GpuMatrix) -> Any:
    return _Planes((c_uint64 * 4)(*matrix.planes))


__all__ = ["MAX_EXPERTS", "GpuExpertOps"]
