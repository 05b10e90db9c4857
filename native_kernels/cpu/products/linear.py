"""Lay out products of one token's vector with matrices of any codec, and share the converted forms of the vector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.codecs import COPY_CODECS
from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.gemm.gemm import Firing, Scratch, matmul_t_calls
from native_kernels.cpu.products.activations import quantise_calls, quantised_empty
from native_kernels.cpu.products.gemv import GEMV, gemv_calls, vector_format
from native_kernels.cpu.runtime.call import Call, Listed


class Vector:
    """A buffer of one token's numbers, and its forms for the kernels of other codecs."""

    def __init__(self, values: F32) -> None:
        self.values = values
        self._forms: dict[str, NDArray[Any]] = {}  # each made once
        self._fresh: set[str] = set()  # forms whose calls were laid out since the buffer was written

    def renew(self) -> None:
        """Mark the buffer as rewritten: its other forms must be made again."""
        self._fresh.clear()

    def as_read_by(self, codec: str, stage: str) -> tuple[NDArray[Any], list[Call]]:
        """Return the form that rows of this codec read, and the calls that make it if it is stale."""
        form = vector_format(codec)
        if form == "f32":
            return self.values, []
        if form not in self._forms:
            self._forms[form] = quantised_empty(form, len(self.values))
        calls = [] if form in self._fresh else quantise_calls(self.values, self._forms[form], form, stage)
        self._fresh.add(form)
        return self._forms[form], calls


def why_not(w: PackedMatrix) -> list[str]:
    """Return why no kernel multiplies this matrix; empty if one does."""
    return [] if w.codec in GEMV and has_kernel(w.codec) else [f"No CPU kernel multiplies {w.codec}."]


def has_kernel(codec: str) -> bool:
    """Return whether matrices in this codec are multiplied in place, with one token or many."""
    return codec in UNPACKERS or codec in COPY_CODECS


class Products:
    """The products of a program with n_workers threads, and their working memory."""

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
        listed: Listed | None = None,
        barrier: bool = True,
    ) -> list[Call]:
        """Compute out [N] = the rows of w [N, D] times x [D], plus bias [N], or of the listed rows only."""
        values, calls = x.as_read_by(w.codec, stage)
        products = gemv_calls(w, values, out, listed=listed, bias=bias, stage=stage)
        return calls + products[:-1] + [replace(products[-1], barrier=barrier)]

    def transposed_calls(self, w: PackedMatrix, h: F32, out: F32, stage: str) -> list[Call]:
        """Compute out [D] = the sum of the rows of w [F, D] weighted by h [F]; rows with weight 0 are not read."""
        firing = self._firing.setdefault(w.n_rows, Firing.make(1, w.n_rows, w.codec))
        return matmul_t_calls(h[None], self._one, w, out[None], firing, self._scratch, stage)
