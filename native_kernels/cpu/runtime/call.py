"""Describe a kernel call as data: its arguments, its items and the arrays that it keeps alive."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from native_kernels.cpu.runtime.jit import Kernel

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

ALIGNMENT = 64  # bytes: one cache line, one register of 16 lanes


def aligned_empty(shape: int | tuple[int, ...], dtype: Any = np.float32, spare: int = 0) -> NDArray[Any]:
    """Return an empty array aligned to a cache line, with `spare` accessible bytes after it."""
    wanted = np.dtype(dtype)
    size = (math.prod(shape) if isinstance(shape, tuple) else int(shape)) * wanted.itemsize
    raw = np.zeros(size + spare + ALIGNMENT, np.uint8)
    start = -address(raw) % ALIGNMENT
    found: NDArray[Any] = raw[start : start + size].view(wanted).reshape(shape)
    return found


def address(array: NDArray[Any]) -> int:
    """Return the address of the array's first element. `array.ctypes.data` takes about twice as long."""
    found: int = array.__array_interface__["data"][0]
    return found


def float_word(value: float) -> int:
    """Return a float32 in the lower half of an int64; kernels read it with simd.get_float."""
    return int(np.float32(value).view(np.int32))


def arguments(*words: int | float | NDArray[Any]) -> I64:
    """Build a call's block of arguments: array addresses, integers, and floats as float32 words."""
    block: I64 = aligned_empty(max(1, len(words)), np.int64)
    block[: len(words)] = [
        address(word) if isinstance(word, np.ndarray)
        else int(word) if isinstance(word, (int, np.integer))
        else float_word(word)
        for word in words
    ]  # fmt: skip
    return block


class Listed(NamedTuple):
    """Rows or neurons by number, ascending: the first n[0] of ids. Both are read when calls run.

    Shapes: ids i32 [at least n[0]], n i64 [1].
    """

    ids: I32
    n: I64

    @classmethod
    def of(cls, ids: I32) -> Listed:
        return cls(ids, np.array([len(ids)], np.int64))

    @classmethod
    def empty(cls, size: int) -> Listed:
        """Allocate a list of up to `size` ids, to be filled by calls."""
        return cls(aligned_empty(size, np.int32), aligned_empty(1, np.int64))


class OfExperts(NamedTuple):
    """The items of a call are those of a token's experts, one expert after another: `each` of every one.

    order: see router.Chosen.
    """

    order: I64
    each: int

    @classmethod
    def of(cls, order: I64 | None, each: int) -> OfExperts | None:
        """Return None without an order."""
        return None if order is None else cls(order, each)


@dataclass(frozen=True, eq=False)
class Call:
    """One step of a program. Workers take contiguous ascending ranges of its items, aligned to the grain.

    n_items: a number, or an int64 array [1] that is read when the call runs.
    keeps: arrays whose addresses are in args.
    barrier: whether the workers wait for each other after it. Without one, the next call must not read what it writes.
    shared: whether a worker may run the kernel several times, on any ranges. Then the output of a range must not depend
    on other ranges, and a worker's own memory must not carry anything from one range to the next. Needs a barrier.
    tile: if the kernel may run a worker's range in parts, the number of items whose weights stay in a core's cache, a
    multiple of the grain; else 0.
    chained: whether each token's call must wait for that of the token before it, if tokens run side by side.
    together: a kernel that runs such calls of several tokens at once, with the arguments of
    side_by_side.run_side_by_side; None: run_side_by_side itself.
    of_experts: for such calls of several tokens that run expert by expert, so that those of all tokens are read once.
    """

    kernel: Kernel
    args: I64
    n_items: int | I64
    grain: int = 1
    stage: str = ""
    keeps: tuple[Any, ...] = field(default=(), repr=False)
    barrier: bool = True
    shared: bool = False
    tile: int = 0
    chained: bool = False
    together: Kernel | None = None
    of_experts: OfExperts | None = None

    def __post_init__(self) -> None:
        assert self.barrier or not self.shared, "a worker that has finished its range takes items of others"

    def count(self) -> int:
        """Return the current number of items."""
        return int(self.n_items[0]) if isinstance(self.n_items, np.ndarray) else self.n_items


def slices(n_items: int, grain: int, n_workers: int) -> list[tuple[int, int]]:
    """Return each worker's range: as even as the grain allows, ascending; the last are empty if there are few items."""
    pieces = -(-n_items // grain)
    edges = [min(n_items, grain * (pieces * worker // n_workers)) for worker in range(n_workers + 1)]
    return list(itertools.pairwise(edges))


_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def run(calls: Sequence[Call], n_workers: int = 1) -> None:
    """Run the calls in order in this thread, each sliced for n_workers. The kernels release the GIL."""
    for call in calls:
        compiled = _RUN(call.kernel.address)
        for worker, (lo, hi) in enumerate(slices(call.count(), call.grain, n_workers)):
            if lo < hi:
                compiled(address(call.args), lo, hi, worker)
