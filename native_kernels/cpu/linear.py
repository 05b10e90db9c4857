"""One token's vector times matrices of any codec: finds the kernel of the codec, and shares what it makes of the vector.

It lays out calls and runs nothing.
"""

from __future__ import annotations

import numpy as np

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.call import Call, aligned_empty
from native_kernels.cpu.gemm import Firing, Panels, Scratch, matmul_calls, matmul_t_calls, pack_calls, takes_bytes
from native_kernels.cpu.plain_gemv import gemv_calls
from native_kernels.cpu.unpack import UNPACKERS


class Vector:
    """A buffer of one token's numbers, and the forms of them that kernels of some codecs read."""

    def __init__(self, values: F32) -> None:
        self.values = values
        self.forms: dict[object, object] = {}  # by kind, made once
        self.fresh: set[object] = set()  # kinds whose calls have been laid out since the buffer was written

    def renew(self) -> None:
        """The buffer is written anew behind here: its other forms have to be made again."""
        self.fresh.clear()


def why_not(w: PackedMatrix) -> list[str]:
    """Why no kernel multiplies this matrix; empty where one does."""
    return [] if w.codec in UNPACKERS else [f"No processor kernel multiplies {w.codec}."]


class Products:
    """The products of one program with n_workers threads, and the memory that they work in."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._one: I64 = np.ones(1, np.int64)
        self._scratch = Scratch.make(n_workers)
        self._firing: dict[int, Firing] = {}

    def calls(self, w: PackedMatrix, x: Vector, out: F32, stage: str, barrier: bool = True) -> list[Call]:
        """out [N] = the rows of w [N, D] times x [D]."""
        if w.codec in ("f32", "f16"):
            return gemv_calls(w, x.values, out, stage, barrier)
        as_bytes = takes_bytes(w.codec)
        kind = ("panels", as_bytes)
        panels = x.forms.setdefault(kind, None) or Panels.make(1, len(x.values), as_bytes)
        assert isinstance(panels, Panels), "that is what this kind is made as"
        x.forms[kind] = panels
        calls = [] if kind in x.fresh else pack_calls(x.values[None], self._one, panels, stage)
        x.fresh.add(kind)
        return calls + matmul_calls(panels, w, self._one, out[None], self._scratch, stage)

    def transposed_calls(self, w: PackedMatrix, h: F32, out: F32, stage: str) -> list[Call]:
        """out [D] = the sum of the rows of w [F, D] weighted with h [F]; rows whose weight is 0 are not read."""
        firing = self._firing.setdefault(w.n_rows, Firing.make(1, w.n_rows))
        return matmul_t_calls(h[None], self._one, w, out[None], firing, self._scratch, stage)
