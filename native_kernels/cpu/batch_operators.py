"""Operators for a fixed number of rows, which lay out each matrix product only once.

A small batch of sequences takes a few milliseconds a token; laying out its hundreds of products takes half as long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from native_kernels.backend import F32, PackedMatrix
from native_kernels.codecs import COPY_CODECS
from native_kernels.cpu.gemm.gemm import Form, Panels, form_of, matmul_calls, pack_calls
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.call import aligned_empty
from native_kernels.cpu.runtime.pool import Pool, Program


class _Product(NamedTuple):
    """The laid-out product of one matrix. w is kept so that its id stays unique. x [rows, D] and out [rows, N] are
    shared.
    """

    w: PackedMatrix
    x: F32
    out: F32
    program: Program


class BatchOperators(CpuOperators):
    """CpuOperators that cache their products of `rows` rows, with the matrices, for as long as the operators live."""

    def __init__(self, pool: Pool, rows: int) -> None:
        super().__init__(pool)
        self._rows = np.array([rows], np.int64)
        self._kept: dict[int, _Product] = {}
        self._inputs: dict[int, F32] = {}
        self._outputs: dict[int, F32] = {}
        self._panels: dict[tuple[int, Form], Panels] = {}

    def matmul(self, x: F32, w: PackedMatrix) -> F32:
        rows = int(self._rows[0])
        if len(x) != rows or rows == 1 or w.codec in COPY_CODECS or not self.reads(w.codec) or not w.n_rows:
            return super().matmul(x, w)
        product = self._kept.get(id(w)) or self._lay_out(w, rows)
        product.x[:] = x
        self.pool.run(product.program)
        return product.out.copy()

    def _lay_out(self, w: PackedMatrix, rows: int) -> _Product:
        form = form_of(w.codec, rows)
        x = self._inputs.setdefault(w.n_cols, aligned_empty((rows, w.n_cols)))
        out = self._outputs.setdefault(w.n_rows, aligned_empty((rows, w.n_rows)))
        panels = self._panels.setdefault((w.n_cols, form), Panels.make(rows, w.n_cols, form))
        calls = pack_calls(x, self._rows, panels) + matmul_calls(panels, w, self._rows, out, self._scratch)
        self._kept[id(w)] = _Product(w, x, out, Program(calls))
        return self._kept[id(w)]
