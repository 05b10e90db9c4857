"""Run one call for many groups, each with its own arrays, as a single call whose items all workers share.

The products of an expert's few rows take microseconds, less than laying out a call. So the call is laid out once, with
a block of arguments for each group, and only the addresses in the blocks change between runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import I64
from native_kernels.cpu.runtime.call import Call, address, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.simd import call_kernel, get_int


@kernel
def run_groups(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: grains of the first group, then of the second, and so on.

    args: blocks of arguments, bytes of a block, grains of a group, items of a grain, items of a group, kernel.
    """
    blocks, step, grains = get_int(args), get_int(args + 8), get_int(args + 16)
    grain, n_items, code = get_int(args + 24), get_int(args + 32), get_int(args + 40)
    at = lo
    while at < hi:
        group = at // grains
        first = at - group * grains
        last = min(grains, first + hi - at)
        call_kernel(code, blocks + group * step, grain * first, min(n_items, grain * last), worker)
        at += last - first


class Groups:
    """A call for up to max_groups groups. template: the call for one group; its number of items is fixed.

    The kernel must allow ranges that begin at any multiple of the grain, in any order.
    """

    def __init__(self, template: Call, max_groups: int) -> None:
        n_items = template.count()
        self._grains = -(-n_items // template.grain)
        self._blocks: I64 = aligned_empty((max_groups, len(template.args)), np.int64)
        self._blocks[:] = template.args
        self._words = {word: np.flatnonzero(template.args == word) for word in template.args.tolist()}
        self._n: I64 = np.zeros(1, np.int64)
        args = arguments(
            self._blocks, self._blocks.strides[0], self._grains, template.grain, n_items, template.kernel.address
        )
        self.call = Call(run_groups, args, self._n, 1, template.stage, (template, self._blocks), shared=True)

    def place(self, n_groups: int, places: Mapping[int, I64]) -> None:
        """Point the call at n_groups groups.

        places: maps the address of an array to the address that replaces it in each group [n_groups]. Arrays that the
        template does not use are ignored.
        """
        for array, addresses in places.items():
            if array in self._words:
                self._blocks[:n_groups, self._words[array]] = addresses[:, None]
        self._n[0] = n_groups * self._grains


def within(array: NDArray[Any], steps: I64) -> dict[int, I64]:
    """Return `places` for groups that begin at these rows of the array [n_groups]."""
    return {address(array): address(array) + array.strides[0] * steps}
