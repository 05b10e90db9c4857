"""cuBLASLt in NumPy on the host's memory, and the kernels beside it: products by a library without a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fakes.prefill import HostDevice, HostDriver, at
from numpy.typing import NDArray

from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.runtime.cublas import WORKSPACE_BYTES, Cublas, LibraryFile
from native_kernels.cuda.runtime.driver import Launches, Stream

_F32, _F16, _COMPUTE_F32 = 0, 2, 68
NOT_SUPPORTED = 15


class Library:
    """Looks like the library. calls: the names of all that were made. answers: a code by name; products: of each that
    was multiplied its numbers [M, N, K], how many, and the multiprocessors it may take (0: all); wrong: whether its
    products are; knows: whether it knows a way to multiply; made: its descriptions, as long as they are there."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: dict[str, int] = {}
        self.missing: set[str] = set()
        self.products: list[tuple[tuple[int, int, int], int, int]] = []
        self.aligned: list[tuple[int, ...]] = []
        self.wrong, self.knows = False, True
        self.made: dict[int, tuple[tuple[int, ...], dict[int, int]]] = {}
        self._functions: dict[str, Any] = {}
        self._next = 1000

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cublasLt") or name in self.missing:
            raise AttributeError(name)
        return self._functions.setdefault(name, _Function(self, name))

    def done(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "cublasLtGetStatusString":
            return b"CUBLAS_STATUS_NOT_SUPPORTED"
        if name == "cublasLtGetVersion":
            return 130002
        self.calls.append(name)
        if name in self.answers:
            return self.answers[name]
        if name.endswith("Create"):
            self._next += 1
            arguments[0]._obj.value = self._next
            self.made[self._next] = tuple(arguments[1:]), {}
        elif name.endswith("Destroy"):
            del self.made[arguments[0]]
        elif name.endswith("SetAttribute"):
            of, which, at_, n_bytes = arguments
            self.made[of][1][which] = int.from_bytes(ctypes.string_at(at_, n_bytes), "little")
        elif name == "cublasLtMatmulAlgoGetHeuristic":
            arguments[-1]._obj.value = int(self.knows)
            preferred = self.made[arguments[6]][1]
            assert preferred[1] == WORKSPACE_BYTES
            assert preferred[7] == preferred[8]
            self.aligned.append(tuple(preferred[i] for i in (5, 6, 7)))
            ctypes.memset(arguments[-2] + 64, 7, 8)  # the workspace that it would take
        elif name == "cublasLtMatmul":
            self._multiply(*arguments)
        return 0

    def _multiply(
        self, handle: int, product: int, alpha: int, a: int, of_a: int, b: int, of_b: int, beta: int, c: int, of_c: int,
        to: int, of_to: int, way: int, workspace: int, n_bytes: int, stream: int,
    ) -> None:  # fmt: skip
        assert handle in self.made
        assert (to, of_to, n_bytes) == (c, of_c, WORKSPACE_BYTES)
        assert ctypes.string_at(way + 64, 1) == b"\x07", "as the library chose it"
        (compute, scale), how = self.made[product]
        assert (compute, scale) == (_COMPUTE_F32, _F32)
        factor, kept = (ctypes.c_float.from_address(one).value for one in (alpha, beta))
        matrices = [self.made[one] for one in (of_a, of_b, of_c)]
        assert [one[0][0] for one in matrices] == [_F16, _F16, _F32]
        for address, n in zip((a, b, c), self.aligned[-1], strict=True):
            assert n <= 256 or address % n == 0
        count = matrices[0][1].get(5, 1)
        assert all(one[1].get(5, 1) == count for one in matrices)
        for i in range(count):
            left, right, out = (
                _column_wise(address + size * i * attributes.get(6, 0), dtype, *shape[1:])
                for address, size, dtype, (shape, attributes) in zip(
                    (a, b, c), (2, 2, 4), (np.float16, np.float16, np.float32), matrices, strict=True
                )
            )
            left = left.T if how.get(3) else left
            found = np.float32(factor) * (left.astype(np.float32) @ right.astype(np.float32)) + np.float32(self.wrong)
            out[:] = found + out if kept else found
        self.products.append(((*out.shape, left.shape[1]), count, how.get(15, 0)))


class _Function:
    argtypes: Any = None
    restype: Any = None

    def __init__(self, owner: Library, name: str) -> None:
        self._owner, self._name = owner, name

    def __call__(self, *arguments: Any) -> Any:
        assert self.argtypes is not None or not arguments, f"{self._name} is called with what its header says"
        assert len(arguments) == len(self.argtypes or ())
        for type_, value in zip(self.argtypes or (), arguments, strict=True):
            if not hasattr(value, "_obj"):
                type_.from_param(value)
        return self._owner.done(self._name, tuple(getattr(one, "value", one) for one in arguments))


def _column_wise(address: int, dtype: Any, rows: int, columns: int, step: int) -> NDArray[Any]:
    """[rows, columns] whose columns lie `step` numbers apart, to be written too."""
    assert step >= rows, "columns do not overlap"
    size = np.dtype(dtype).itemsize
    whole = at(address, dtype, (columns - 1) * step + rows)
    return np.lib.stride_tricks.as_strided(whole, (rows, columns), (size, size * step))


class LibraryDriver(HostDriver):
    """It runs CUDA 13.0."""

    version = (13, 0)


class LibraryDevice(HostDevice):
    """A GPU of compute capability 9.0 with 132 multiprocessors."""

    capability = (9, 0)
    n_multiprocessors = 132

    def __init__(self) -> None:
        self.number, self.driver = 0, LibraryDriver()


class LibraryOps(GpuPrefillOps):
    """The operators with the kernels that products need in NumPy. launched: their names. lies: whether they compute
    wrongly."""

    def __init__(self) -> None:
        self.device = LibraryDevice()
        self.stream, self.copy_stream = Stream(self.device), Stream(self.device)
        self.launched: list[str] = []
        self._modules, self._pieces_bytes, self.wgmma, self._launches = [], 0, None, Launches()
        self.gathering = 8, 512
        kernels: dict[str, Callable[..., None]] = {
            "multiply_rows": self._rows, "multiply_columns": self._columns, "scale_rows": self._scaled,
            "gather_rows": lambda grid, *sources: None,
        }  # fmt: skip
        self._functions = {name: _Kernel(self, name, work) for name, work in kernels.items()}  # type: ignore[misc]

    def _rows(self, grid: Any, *arguments: int) -> None:
        x, x_step, w, w_step, out, out_step, factors, bias, n_tokens, n_out, depth, adds, *other = arguments
        for one, to, shift in [(w, out, bias), (other[0], other[1], other[2])][: grid[2]]:
            weights = _column_wise(one, np.float16, depth, n_out, w_step)
            self._own(x, x_step, weights, to, out_step, factors, shift, n_tokens, adds)

    def _columns(self, grid: Any, *arguments: int) -> None:
        x, x_step, w, w_step, out, out_step, factors, bias, n_tokens, n_out, depth, adds = arguments
        weights = _column_wise(w, np.float16, n_out, depth, w_step).T
        self._own(x, x_step, weights, out, out_step, factors, bias, n_tokens, adds)

    def _own(
        self, x: int, x_step: int, weights: NDArray[Any], out: int, out_step: int, factors: int, bias: int,
        n_tokens: int, adds: int,
    ) -> None:  # fmt: skip
        depth, n_out = weights.shape
        given = _column_wise(x, np.float16, depth, n_tokens, x_step).T.astype(np.float32)
        found = given @ weights.astype(np.float32) * at(factors, np.float32, n_tokens)[:, None]
        found += at(bias, np.float32, n_out) if bias else 0
        to = _column_wise(out, np.float32, n_out, n_tokens, out_step).T
        to[:] = to + found if adds else found

    def _scaled(self, grid: Any, *arguments: int) -> None:
        out, other, step, n, factors, bias, other_bias, undo = arguments
        n_tokens, count = grid
        scales = at(factors, np.float32, n_tokens)[:, None]
        for to, shift in ((out, bias), (other, other_bias))[:count]:
            rows = _column_wise(to, np.float32, n, n_tokens, step).T
            rows[:] = rows * (1 / scales if undo else scales) + (at(shift, np.float32, n) if shift else 0)


class _Kernel:
    def __init__(self, owner: LibraryOps, name: str, work: Callable[..., None]) -> None:
        self._owner, self._name, self._work = owner, name, work

    def prepared(self, stream: Any, grid: Any, block: Any, *arguments: Any, **named: Any) -> Callable[[], None]:
        return lambda: self.launch(stream, grid, block, *arguments, **named)

    def launch(self, stream: Any, grid: Any, block: Any, *arguments: Any, shared_bytes: int = 0) -> None:
        self._owner.launched.append(self._name)
        self._work(grid, *(getattr(one, "value", one) for one in arguments))


def opened(ops: GpuPrefillOps, library: Library, cuda: tuple[int, int] = (13, 0)) -> Cublas:
    """The binding of a fake in the operators' stream."""
    return Cublas(ops.device, ops.stream, LibraryFile(Path(), cuda), library)
