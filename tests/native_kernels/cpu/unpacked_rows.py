"""A kernel that decodes whole rows with UNPACKERS, by 256 columns as the engine's own kernels do in their loops."""

from __future__ import annotations

from functools import cache

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.gemm.gemm_transposed import COLUMNS
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import Kernel
from native_kernels.cpu.runtime.simd import get_int


@cache
def rows_kernel(codec: str) -> Kernel:
    """Decode rows by index. Items: rows. args: w, its row stride, D, ids (int64), out, its row stride."""
    unpack = UNPACKERS[codec]

    def rows(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        ids, out, out_step = get_int(args + 24), get_int(args + 32), get_int(args + 40)
        for i in range(lo, hi):
            row, target = w + get_int(ids + 8 * i) * w_step, out + i * out_step
            for first in range(0, n_cols, COLUMNS):
                unpack(row, n_cols, first, min(COLUMNS, n_cols - first), target + 4 * first)

    return Kernel(rows, f"test_unpack.rows.{codec}")


def rows_calls(w: PackedMatrix, ids: I64, out: F32) -> list[Call]:
    """Decode the rows ids [n] of w [N, D] -> out [n, D]; up to 31 numbers after each row are overwritten."""
    assert out.shape[1] == w.n_cols
    assert out.strides[0] >= -(-w.n_cols // 32) * 128
    row_step = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    args = arguments(w.data, row_step, w.n_cols, ids, out, out.strides[0])
    return [Call(rows_kernel(w.codec), args, len(ids), 1, "", (w, ids, out))]
