"""Bind cuBLASLt, NVIDIA's library of matrix products, by ctypes, if a CUDA build of torch has installed it.

torch is not imported: only its folder and build are examined. The library works in this process's context, in one
stream, with a fixed workspace.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from native_kernels.cuda.runtime.driver import Device, Stream
from native_kernels.cuda.runtime.memory import DeviceMemory

log = logging.getLogger(__name__)

# Fewer positions leave most of the library's larger blocks empty.
LEAST_POSITIONS = 64
# Workspace for sums that several blocks share. With 32 MiB, as the manual recommends for an H200, no product of a
# prompt was faster: the largest need 6 MiB.
WORKSPACE_BYTES = 8 << 20
GPU_BYTES = WORKSPACE_BYTES + (4 << 20)  # all its GPU memory: 10 MiB on an H200

# Constants of library_types.h, cublas_api.h and cublasLt.h
_F32, _F16, _COMPUTE_F32 = 0, 2, 68
_TRANSPOSED, _MULTIPROCESSORS = 3, 15  # attributes of a product
_COUNT, _APART = 5, 6  # attributes of a matrix
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)  # attributes of a preference
_MOST_ALIGNED = 256

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (POINTER(c_void_p),),
    "cublasLtDestroy": (c_void_p,),
    "cublasLtMatmulDescCreate": (POINTER(c_void_p), c_int, c_int),
    "cublasLtMatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatrixLayoutCreate": (POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceCreate": (POINTER(c_void_p),),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulAlgoGetHeuristic": (*(c_void_p,) * 7, c_int, c_void_p, POINTER(c_int)),
    "cublasLtMatmul": (*(c_void_p,) * 14, c_size_t, c_void_p),
}
_ZERO, _ONE = c_float(0.0), c_float(1.0)


class _Way(Structure):
    """The library's choice of algorithm: cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8), ("workspace", c_size_t), ("state", c_int), ("waves", c_float),
        ("reserved", c_int * 4),
    )  # fmt: skip


class LibraryUnavailableError(Exception):
    """The library is missing or does not run here; the message is the reason, half a sentence."""


class LibraryError(Exception):
    """A library call failed; nothing was queued."""


@dataclass(frozen=True)
class LibraryFile:
    """Path of the library, and the CUDA version that it was built with, as (13, 0)."""

    path: Path
    cuda: tuple[int, int]


def find(
    torch: Path | None = None, folders: Sequence[str] | None = None, windows: bool = sys.platform == "win32"
) -> LibraryFile:
    """Find the library of the installed torch. torch: its folder; folders: the package folders to search (sys.path).

    Cost: 1 ms. Raises: LibraryUnavailableError.
    """
    torch = torch or _torch_folder()
    cuda = _cuda_of(torch)
    if cuda is None:
        raise LibraryUnavailableError("the installed PyTorch is a build without CUDA")
    places = [torch.parent, *map(Path, sys.path if folders is None else folders)]
    for folder in dict.fromkeys(places):
        for path in _candidates(folder, cuda[0], windows):
            if path.is_file():
                return LibraryFile(path, cuda)
    raise LibraryUnavailableError(f"the cuBLAS of PyTorch for CUDA {cuda[0]}.{cuda[1]} is not beside it")


def _torch_folder() -> Path:
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise LibraryUnavailableError("PyTorch is not installed")
    return Path(spec.origin).parent


def torch_has_begun() -> bool:
    """Return whether torch computes on a GPU in this process: its data would be lost with the context."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _cuda_of(torch: Path) -> tuple[int, int] | None:
    try:
        text = (torch / "version.py").read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise LibraryUnavailableError("the installed PyTorch does not say what it was built for") from error
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"](\d+)\.(\d+)", text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def _candidates(folder: Path, major: int, windows: bool) -> Iterator[Path]:
    places, name = ["nvidia/cublas/lib", f"nvidia/cu{major}/lib", "torch/lib"], f"libcublasLt.so.{major}"
    if windows:
        places, name = ["torch/lib", "nvidia/cublas/bin", f"nvidia/cu{major}/bin/x86_64"], f"cublasLt64_{major}.dll"
    for place in places:
        yield folder / place / name


@dataclass(frozen=True)
class Shape:
    """The shape of a product, or of `count` equal ones: out [T, N] = x [T, K] times the rows of w [N, K].

    columns: times w [K, N] instead. adds: add to out. Row strides and the distance between the matrices of two products
    are in numbers; both products share x. aligned: byte alignment of w, x and out.
    """

    n_tokens: int
    n_out: int
    depth: int
    columns: bool
    adds: bool
    x_step: int
    w_step: int
    out_step: int
    aligned: tuple[int, int, int]
    count: int = 1
    w_apart: int = 0
    out_apart: int = 0


def alignment(*addresses: int) -> int:
    """Return the largest power of two, up to 256, that divides all addresses."""
    together = _MOST_ALIGNED
    for address in addresses:
        together |= address
    return together & -together


class Cublas:
    """Products in one stream. version: 130002 is 13.0.2. The GPU must be current in the calling thread.

    Input halves, sums and results f32. The same call gives the same bits from run to run. With another number of
    positions the order of sums may differ, because the library chooses its kernels by the shape.
    """

    def __init__(self, device: Device, stream: Stream, file: LibraryFile | None = None, library: Any = None) -> None:
        """Open the library. file: None: search with `find`. library: a fake of the loaded library.

        Cost: 0.1 s. Raises: LibraryUnavailableError; CudaOutOfMemoryError.
        """
        file = file or find()
        newest = device.driver.version
        if newest[0] < file.cuda[0]:
            raise LibraryUnavailableError(
                f"it needs a driver for CUDA {file.cuda[0]}, and the installed one runs CUDA {newest[0]}.{newest[1]}"
            )
        self._library = _loaded(file.path) if library is None else library
        try:
            self._functions = {name: self._bound(name, arguments) for name, arguments in _SIGNATURES.items()}
            self._library.cublasLtGetVersion.restype = c_size_t
            self.version = int(self._library.cublasLtGetVersion())
        except AttributeError as error:
            raise LibraryUnavailableError(f"it is too old: {error}") from error
        self._stream, self._n_multiprocessors = stream, device.n_multiprocessors
        self.spared = 0
        self._shapes: dict[tuple[Shape, int], _Planned] = {}
        self._handle = c_void_p()
        try:
            device.hold(torch_has_begun)
            self.call("cublasLtCreate", byref(self._handle))
        except LibraryError as error:
            raise LibraryUnavailableError(str(error)) from error
        self._workspace: DeviceMemory | None = None
        try:
            self._workspace = DeviceMemory(device, WORKSPACE_BYTES)
        except BaseException:
            self.close()
            raise

    def _bound(self, name: str, arguments: tuple[Any, ...]) -> Any:
        function = getattr(self._library, name)
        function.argtypes, function.restype = arguments, c_int
        return function

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library. Raises: LibraryError."""
        code = self._functions[name](*arguments)
        if code:
            raise LibraryError(f"{name} failed: {self._words(code)}")

    def _words(self, code: int) -> str:
        try:
            function = self._library.cublasLtGetStatusString
        except AttributeError:
            return f"status {code}"
        function.argtypes, function.restype = (c_int,), c_char_p
        return f"{(function(code) or b'an unknown status').decode('ascii', 'replace')} ({code})"

    def spare(self, n: int) -> None:
        """Make products planned from now on leave n multiprocessors to concurrent work.

        The library launches one block per multiprocessor, which fills it. Blocks whose multiprocessor is in use would
        run after all others, and the product would take twice as long.
        """
        self.spared = n

    def product(self, shape: Shape, x: int, w: int, out: int) -> Callable[[], None]:
        """Return a function that queues the product and raises LibraryError. x and w are halves, out f32.

        Cost: 0.1 ms for a new shape. Raises: LibraryError.
        """
        planned = self._shapes.get((shape, self.spared))
        if planned is None:
            left = max(1, self._n_multiprocessors - self.spared) if self.spared else 0
            assert self._workspace is not None, "it is open"
            planned = _Planned(self, self._handle, shape, left, self._workspace.n_bytes)
            self._shapes[shape, self.spared] = planned
        assert self._workspace is not None, "it is open"
        kept = c_void_p(ctypes.addressof(_ONE if shape.adds else _ZERO))
        to = c_void_p(out)
        return partial(
            self.call, "cublasLtMatmul", self._handle, planned.product, c_void_p(ctypes.addressof(_ONE)), c_void_p(w),
            planned.w, c_void_p(x), planned.x, kept, to, planned.out, to, planned.out,
            c_void_p(ctypes.addressof(planned.way)), c_void_p(self._workspace.address),
            c_size_t(self._workspace.n_bytes), c_void_p(self._stream.handle),
        )  # fmt: skip

    def close(self) -> None:
        """Release everything. A second call does nothing."""
        handle, self._handle = self._handle, c_void_p()
        workspace, self._workspace = self._workspace, None
        shapes, self._shapes = self._shapes, {}
        try:
            for planned in shapes.values():
                planned.close()
            if handle.value:
                self._functions["cublasLtDestroy"](handle)
        finally:
            if workspace is not None:
                workspace.free()


class _Planned:
    """The library's descriptors of a product and its matrices, and its chosen algorithm."""

    def __init__(self, owner: Cublas, handle: c_void_p, shape: Shape, multiprocessors: int, most_bytes: int) -> None:
        """Plan the product. Raises: LibraryError; nothing is then held."""
        self._owner = owner
        self._made: list[tuple[str, c_void_p]] = []
        self.way = _Way()
        found = c_int()
        try:
            # For the library, whose matrices are column-major, this is out' = w' x'.
            self.product = self._new("cublasLtMatmulDesc", c_int(_COMPUTE_F32), c_int(_F32))
            self._set("cublasLtMatmulDesc", self.product, _TRANSPOSED, c_int(not shape.columns))
            if multiprocessors:
                self._set("cublasLtMatmulDesc", self.product, _MULTIPROCESSORS, c_int(multiprocessors))
            sizes = (shape.n_out, shape.depth) if shape.columns else (shape.depth, shape.n_out)
            self.w = self._matrix(_F16, *sizes, shape.w_step, shape.count, shape.w_apart)
            self.x = self._matrix(_F16, shape.depth, shape.n_tokens, shape.x_step, shape.count, 0)
            self.out = self._matrix(_F32, shape.n_out, shape.n_tokens, shape.out_step, shape.count, shape.out_apart)
            preferred = self._new("cublasLtMatmulPreference")
            self._set("cublasLtMatmulPreference", preferred, _WORKSPACE, c_size_t(most_bytes))
            for which, n_bytes in zip(_ALIGNMENTS, (*shape.aligned, shape.aligned[-1]), strict=True):
                self._set("cublasLtMatmulPreference", preferred, which, c_uint32(n_bytes))
            owner.call(
                "cublasLtMatmulAlgoGetHeuristic", handle, self.product, self.w, self.x, self.out, self.out, preferred,
                1, ctypes.addressof(self.way), byref(found),
            )  # fmt: skip
            if not found.value or self.way.state:
                raise LibraryError("it knows no way to multiply these matrices")
        except BaseException:
            self.close()
            raise

    def _new(self, kind: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        self._owner.call(f"{kind}Create", byref(made), *arguments)
        self._made.append((kind, made))
        return made

    def _set(self, kind: str, of: c_void_p, which: int, value: Any) -> None:
        self._owner.call(f"{kind}SetAttribute", of, which, ctypes.addressof(value), ctypes.sizeof(value))

    def _matrix(self, type_: int, rows: int, columns: int, step: int, count: int, apart: int) -> c_void_p:
        kind = "cublasLtMatrixLayout"
        made = self._new(kind, c_int(type_), c_uint64(rows), c_uint64(columns), c_int64(step))
        if count > 1:
            self._set(kind, made, _COUNT, c_int(count))
            self._set(kind, made, _APART, c_int64(apart))
        return made

    def close(self) -> None:
        """Release the descriptors."""
        while self._made:
            kind, made = self._made.pop()
            self._owner.call(f"{kind}Destroy", made)


def _loaded(path: Path) -> Any:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryUnavailableError(f"it cannot be loaded: {error}") from error
