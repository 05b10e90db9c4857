"""A vector times a matrix of any codec: finds the kernel of the codec and shares what it makes of the vector."""

from __future__ import annotations

from native_kernels.backend import F32, PackedMatrix
from native_kernels.cpu.call import Call
from native_kernels.cpu.plain_gemv import gemv_calls


class Vector:
    """A buffer of one token's numbers, and the forms that kernels of other codecs want it in."""

    def __init__(self, values: F32) -> None:
        self.values = values

    def renew(self) -> None:
        """The buffer is written anew behind here: other forms have to be made again."""


def why_not(w: PackedMatrix) -> list[str]:
    """Why no kernel multiplies this matrix; empty where one does."""
    return [] if w.codec in ("f32", "f16") else [f"No processor kernel reads {w.codec}."]


def linear_calls(w: PackedMatrix, x: Vector, out: F32, stage: str, barrier: bool = True) -> list[Call]:
    """out [N] = the rows of w [N, D] times x [D]."""
    return gemv_calls(w, x.values, out, stage, barrier)
