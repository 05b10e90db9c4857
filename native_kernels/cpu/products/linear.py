"""One token's vector times matrices of any codec: finds the kernel, and shares what it makes of the vector.

It lays out calls and runs nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I32, I64, PackedMatrix
from native_kernels.codecs import COPY_CODECS
from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.gemm.gemm import Firing, Scratch, matmul_t_calls
from native_kernels.cpu.products.activations import quantise_calls, quantised_empty
from native_kernels.cpu.products.gemv import GEMV, gemv_calls, vector_format
from native_kernels.cpu.runtime.call import Call


class Vector:
    """A buffer of one token's numbers, and the forms of them that the kernels of some codecs read."""

    def __init__(self, values: F32) -> None:
        self.values = values
        self._forms: dict[str, NDArray[Any]] = {}  # made once
        self._fresh: set[str] = set()  # whose calls have been laid out since the buffer was written

    def renew(self) -> None:
        """The buffer is written anew behind here: its other forms have to be made again."""
        self._fresh.clear()

    def as_read_by(self, codec: str, stage: str) -> tuple[NDArray[Any], list[Call]]:
        """The numbers as rows of this codec are multiplied with, and the calls that make them where they are not."""
        form = vector_format(codec)
        if form == "f32":
            return self.values, []
        if form not in self._forms:
            self._forms[form] = quantised_empty(form, len(self.values))
        calls = [] if form in self._fresh else quantise_calls(self.values, self._forms[form], form, stage)
        self._fresh.add(form)
        return self._forms[form], calls


def why_not(w: PackedMatrix) -> list[str]:
    """Why no kernel multiplies this matrix; empty where one does."""
    return [] if w.codec in GEMV and has_kernel(w.codec) else [f"No CPU kernel multiplies {w.codec}."]


def has_kernel(codec: str) -> bool:
    """Whether matrices in this codec are multiplied, with one token or many, where and as they lie."""
    return codec in UNPACKERS or codec in COPY_CODECS


class Products:
    """The products of one program with n_workers threads, and the memory that they work in."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._one: I64 = np.ones(1, np.int64)
        self._scratch = Scratch.make(n_workers)
        self._firing: dict[int, Firing] = {}

    def calls(
        self,
        w: PackedMatrix,
        x: Vector,
        out: F32,
        stage: str,
        *,
        bias: F32 | None = None,
        ids: I32 | None = None,
        n_ids: I64 | None = None,
        barrier: bool = True,
    ) -> list[Call]:
        """out [N] = the rows of w [N, D] times x [D], plus bias [N]; of the listed rows alone where there are ids."""
        values, calls = x.as_read_by(w.codec, stage)
        products = gemv_calls(w, values, out, ids=ids, n_ids=n_ids, bias=bias, stage=stage)
        return calls + products[:-1] + [replace(products[-1], barrier=barrier)]

    def transposed_calls(self, w: PackedMatrix, h: F32, out: F32, stage: str) -> list[Call]:
        """out [D] = the sum of the rows of w [F, D] weighted with h [F]; rows whose weight is 0 are not read."""
        firing = self._firing.setdefault(w.n_rows, Firing.make(1, w.n_rows, w.codec))
        return matmul_t_calls(h[None], self._one, w, out[None], firing, self._scratch, stage)
