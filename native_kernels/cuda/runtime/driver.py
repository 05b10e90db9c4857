"""Bind CUDA's driver by ctypes: devices, contexts, streams, events, modules and graphs.

Only the driver is needed, no toolkit. Every call is checked; a failure raises CudaError.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from native_kernels.cuda.runtime.launch_config import LaunchConfig

OUT_OF_MEMORY = 2
ARCHITECTURE_VARIABLE = "HEARTH_CUDA_ARCHITECTURE"  # to test on a newer GPU what an older one runs: 75 for 7.5

# Shared memory of a block in KiB, by compute capability (CUDA's programming guide, "Technical specifications").
SHARED_KIB = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}

# Device attributes (cuda.h, CUdevice_attribute).
_MULTIPROCESSORS, _MAJOR, _MINOR, _REGISTERS_READ_ONLY = 16, 75, 76, 113
_STATIC_SHARED, _DYNAMIC_SHARED, _CARVEOUT = 1, 8, 9  # kernel attributes, CUfunction_attribute
_NOT_READY = 600  # of a stream that still works
_NON_BLOCKING = 1  # a stream that does not synchronise with the default one
# Errors after which CUDA refuses everything to this process, on other GPUs too (cuda.h, CUresult). "Unknown" is among
# them only while waiting for the GPU, as after a PC slept.
_FINAL = frozenset({214, 220, 226, 700, 702, 710, *range(714, 720), 721})
_UNKNOWN = 999
_URGENT = -(1 << 16)  # beyond any GPU's range: the driver clamps it to the highest priority

Address = c_uint64


class CudaError(Exception):
    """A driver call failed."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call} failed: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class CudaOutOfMemoryError(CudaError):
    """The GPU, or the memory that can be pinned, is full."""


class CudaUnavailableError(Exception):
    """There is no usable driver; the message is the reason."""


class _Side(ctypes.Structure):
    """One side of a copy of rows (cuda.h, CUDA_MEMCPY2D): where it begins, and the bytes from row to row."""

    _fields_ = (
        ("x_bytes", c_size_t), ("y", c_size_t), ("kind", c_uint), ("host", c_void_p), ("gpu", Address),
        ("array", c_void_p), ("step", c_size_t),
    )  # fmt: skip


class _Copy2D(ctypes.Structure):
    _fields_ = (("source", _Side), ("to", _Side), ("n_bytes", c_size_t), ("n_rows", c_size_t))


_HOST, _GPU = 1, 2  # CUmemorytype

# The functions used, with their argument types.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceGetUuid_v2": (c_char_p, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuDevicePrimaryCtxReset_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(Address), c_size_t),
    "cuMemFree_v2": (Address,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemHostGetDevicePointer_v2": (POINTER(Address), c_void_p, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemHostRegister_v2": (c_void_p, c_size_t, c_uint),
    "cuMemHostUnregister": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (Address, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, Address, c_size_t, c_void_p),
    "cuMemcpy2DAsync_v2": (POINTER(_Copy2D), c_void_p),
    "cuMemsetD8Async": (Address, ctypes.c_ubyte, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamCreateWithPriority": (POINTER(c_void_p), c_uint, c_int),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamQuery": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "cuGraphInstantiateWithFlags": (POINTER(c_void_p), c_void_p, c_uint64),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphDestroy": (c_void_p,),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventRecordWithFlags": (c_void_p, c_void_p, c_uint),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
}
# Functions that drivers before CUDA 12 lack; check `offers` first.
_NEWER: dict[str, tuple[Any, ...]] = {
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuStreamBeginCaptureToGraph": (c_void_p,) * 4,  # never called: drivers that have it (12.3) capture early starts
    "cuTensorMapEncodeTiled": (c_void_p, c_int, c_uint, Address, *(c_void_p,) * 4, *(c_int,) * 4),
}


class Driver:
    """The driver's functions by name; each call is checked.

    library: a fake of the driver, with the same functions. failure: name of the error after which this process can use
    no GPU; "": none so far.
    Raises: CudaUnavailableError if there is no driver, or it lacks a function.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = _load() if library is None else library
        self.failure = ""
        self._functions = {name: self._bound(name, arguments) for name, arguments in _SIGNATURES.items()}
        for name, arguments in _NEWER.items():
            with contextlib.suppress(CudaUnavailableError):
                self._functions[name] = self._bound(name, arguments)
        self.call("cuInit", 0)

    @cached_property
    def entered(self) -> Counter[int]:
        """Number of this process's `Device` objects that hold the context of each GPU."""
        return Counter()

    @cached_property
    def held(self) -> dict[int, Callable[[], bool]]:
        """GPUs whose context a library never releases, each with a function that returns whether it is still needed."""
        return {}

    def _bound(self, name: str, arguments: tuple[Any, ...]) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise CudaUnavailableError(f"the NVIDIA driver is too old: it lacks {name}") from error
        function.argtypes, function.restype = arguments, c_int
        return function

    def call(self, name: str, *arguments: Any, allowed: int = 0) -> int:
        """Call a driver function; return its status, 0 or `allowed`. Raises: CudaError, CudaOutOfMemoryError."""
        code = self._functions[name](*arguments)
        if code and code != allowed:
            raise self._failure(name, code)
        return int(code)

    def offers(self, *names: str) -> bool:
        return all(name in self._functions for name in names)

    def address_of(self, name: str) -> int:
        """Return the address of a driver function, for calls from compiled code."""
        return int(ctypes.cast(self._functions[name], c_void_p).value or 0)

    def _failure(self, call: str, code: int) -> CudaError:
        name = c_char_p()
        unknown = self._library.cuGetErrorName(code, byref(name)) != 0 or name.value is None
        words = "an unknown error" if unknown else (name.value or b"").decode("ascii", "replace")
        if code in _FINAL or (code == _UNKNOWN and call.endswith("Synchronize")):
            self.failure = self.failure or words
        return (CudaOutOfMemoryError if code == OUT_OF_MEMORY else CudaError)(call, code, words)

    @property
    def version(self) -> tuple[int, int]:
        """Return the newest CUDA version that the driver supports, as (13, 0)."""
        value = c_int()
        self.call("cuDriverGetVersion", byref(value))
        return value.value // 1000, value.value % 1000 // 10

    @property
    def n_devices(self) -> int:
        """Return the number of GPUs available to this process."""
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return count.value


@cache
def driver() -> Driver:
    """Return this process's only driver, loaded on first use. Raises: CudaUnavailableError, CudaError."""
    return Driver()


def process_failure() -> str:
    """Return the `failure` of this process's driver, which is not loaded for that; "": none."""
    return driver().failure if driver.cache_info().currsize else ""


def _load() -> Any:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    # Otherwise CUDA numbers the fastest GPU 0, and CUDA_VISIBLE_DEVICES would name other GPUs than in NVML.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise CudaUnavailableError(f"no NVIDIA driver is installed ({name} is missing)") from error


def _architecture_to_test() -> int | None:
    """Return what ARCHITECTURE_VARIABLE names. Raises: CudaUnavailableError if it is not an architecture."""
    wanted = os.environ.get(ARCHITECTURE_VARIABLE)
    known = {str(one): one for one in SHARED_KIB}
    if wanted and wanted not in known:
        raise CudaUnavailableError(f"{ARCHITECTURE_VARIABLE} is {wanted!r}; it must be one of {', '.join(known)}")
    return known[wanted] if wanted else None


@dataclass(eq=False)
class Device:
    """A GPU with its primary context, which all libraries of this process share.

    The context exists from the first `enter` until `close`. tested_as: an older architecture (75 for 7.5) whose code
    and limits this GPU is to use, so that they can be tested without an older GPU.
    """

    number: int
    driver: Driver = field(default_factory=driver)
    tested_as: int | None = field(default_factory=lambda: _architecture_to_test())
    _handle: int = 0
    _context: c_void_p | None = None

    def __post_init__(self) -> None:
        handle = c_int()
        self.driver.call("cuDeviceGet", byref(handle), self.number)
        self._handle = handle.value

    @property
    def uuid(self) -> str:
        """The UUID in NVML's form: GPU-8d1f..."""
        raw = ctypes.create_string_buffer(16)
        self.driver.call("cuDeviceGetUuid_v2", raw, self._handle)
        digits = raw.raw.hex()
        return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, as (8, 9)."""
        if self.tested_as is not None:
            return divmod(self.tested_as, 10)
        return self._attribute(_MAJOR), self._attribute(_MINOR)

    @property
    def n_multiprocessors(self) -> int:
        return self._attribute(_MULTIPROCESSORS)

    @property
    def registers_read_only(self) -> bool:
        """Whether read-only host memory can be registered."""
        return self._attribute(_REGISTERS_READ_ONLY) != 0

    def enter(self) -> None:
        """Make this GPU's context current in the calling thread. Cost: 0.1 to 0.3 s the first time.

        Raises: CudaError.
        """
        if self._context is None:
            context = c_void_p()
            self.driver.call("cuDevicePrimaryCtxRetain", byref(context), self._handle)
            self._context = context
            self.driver.entered[self.number] += 1
        self.driver.call("cuCtxSetCurrent", self._context)

    def hold(self, is_needed: Callable[[], bool] = lambda: False) -> None:
        """Declare that a library keeps using the context and never releases it.

        The last close of the GPU then destroys it, unless is_needed returns True.
        """
        self.driver.held[self.number] = is_needed

    def close(self) -> None:
        """Release the context. Everything created in it must have been released."""
        if self._context is not None:
            self._context = None
            self.driver.entered[self.number] -= 1
            self.driver.call("cuDevicePrimaryCtxRelease_v2", self._handle)
            is_needed = self.driver.held.get(self.number)
            if is_needed is not None and not self.driver.entered[self.number] and not is_needed():
                self.driver.call("cuDevicePrimaryCtxReset_v2", self._handle)

    def memory(self) -> tuple[int, int]:
        """Return (free, total) bytes of the GPU, as the driver counts them. The context must be entered."""
        free, total = c_size_t(), c_size_t()
        self.driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def synchronize(self) -> None:
        """Wait until the GPU is idle. Raises: CudaError for an error on the GPU."""
        self.driver.call("cuCtxSynchronize")

    def _attribute(self, which: int) -> int:
        value = c_int()
        self.driver.call("cuDeviceGetAttribute", byref(value), which, self._handle)
        return value.value


class Stream:
    """An in-order queue of GPU work, concurrent with other streams. urgent: higher priority for waiting kernels."""

    def __init__(self, device: Device, urgent: bool = False) -> None:
        self._driver = device.driver
        handle = c_void_p()
        if urgent:
            self._driver.call("cuStreamCreateWithPriority", byref(handle), _NON_BLOCKING, _URGENT)
        else:
            self._driver.call("cuStreamCreate", byref(handle), _NON_BLOCKING)
        self.handle = int(handle.value or 0)

    def synchronize(self) -> None:
        """Wait for all queued work. Raises: CudaError for an error in it."""
        self._driver.call("cuStreamSynchronize", self.handle)

    def is_idle(self) -> bool:
        """Return whether all queued work is done. Raises: CudaError for an error in it."""
        return self._driver.call("cuStreamQuery", self.handle, allowed=_NOT_READY) != _NOT_READY

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        """Copy host bytes at `source` to the GPU at `to`; asynchronous if they are pinned."""
        self._driver.call("cuMemcpyHtoDAsync_v2", to, source, n_bytes, self.handle)

    def download(self, to: int, source: int, n_bytes: int) -> None:
        """Copy GPU bytes at `source` to the host at `to`."""
        self._driver.call("cuMemcpyDtoHAsync_v2", to, source, n_bytes, self.handle)

    def upload_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        """Copy n_rows of n_bytes each to the GPU. steps: bytes from the beginning of a row to that of the next one."""
        sides = _Side(0, 0, _HOST, source, 0, None, source_step), _Side(0, 0, _GPU, None, to, None, to_step)
        self._driver.call("cuMemcpy2DAsync_v2", byref(_Copy2D(*sides, n_bytes, n_rows)), self.handle)

    def download_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        """Copy n_rows of n_bytes each to the host. steps: as in upload_rows."""
        sides = _Side(0, 0, _GPU, None, source, None, source_step), _Side(0, 0, _HOST, to, 0, None, to_step)
        self._driver.call("cuMemcpy2DAsync_v2", byref(_Copy2D(*sides, n_bytes, n_rows)), self.handle)

    def move_rows(self, to: int, source: int, step: int, n_bytes: int, n_rows: int) -> None:
        """Copy n_rows of n_bytes each within the GPU, which must not overlap. step: as in upload_rows."""
        sides = _Side(0, 0, _GPU, None, source, None, step), _Side(0, 0, _GPU, None, to, None, step)
        self._driver.call("cuMemcpy2DAsync_v2", byref(_Copy2D(*sides, n_bytes, n_rows)), self.handle)

    def fill(self, to: int, value: int, n_bytes: int) -> None:
        """Set n_bytes from `to` on to the value."""
        self._driver.call("cuMemsetD8Async", to, value, n_bytes, self.handle)

    def captured(self, work: Callable[[], None]) -> Graph:
        """Capture what `work` queues in this stream, without running it, as a graph that can be launched repeatedly.

        Raises: CudaError; the stream stays usable.
        """
        self._driver.call("cuStreamBeginCapture_v2", self.handle, 2)  # 2: relaxed, other threads are unaffected
        graph = c_void_p()
        try:
            work()
        except BaseException:
            with contextlib.suppress(CudaError):  # a capture broken by work yields no graph
                self._driver.call("cuStreamEndCapture", self.handle, byref(graph))
            raise
        self._driver.call("cuStreamEndCapture", self.handle, byref(graph))
        return Graph(self._driver, graph)

    @contextlib.contextmanager
    def replaced_by(self, other: Stream) -> Iterator[None]:
        """Within this context, queue this stream's work in another stream instead."""
        own, self.handle = self.handle, other.handle
        try:
            yield
        finally:
            self.handle = own

    def close(self) -> None:
        """Release the stream. A second call does nothing."""
        if self.handle:
            handle, self.handle = self.handle, 0
            self._driver.call("cuStreamDestroy_v2", handle)


class Graph:
    """Captured work that can be launched. handle: for launches from compiled code."""

    def __init__(self, owner: Driver, graph: c_void_p) -> None:
        self._driver = owner
        ready = c_void_p()
        try:
            owner.call("cuGraphInstantiateWithFlags", byref(ready), graph, 0)
        finally:
            owner.call("cuGraphDestroy", graph)
        self.handle = int(ready.value or 0)

    def launch(self, stream: Stream) -> None:
        self._driver.call("cuGraphLaunch", self.handle, stream.handle)

    def close(self) -> None:
        """Release the graph. A second call does nothing."""
        if self.handle:
            handle, self.handle = self.handle, 0
            self._driver.call("cuGraphExecDestroy", handle)


class Event:
    """A point in a stream, and its time."""

    def __init__(self, device: Device) -> None:
        self._driver = device.driver
        handle = c_void_p()
        self._driver.call("cuEventCreate", byref(handle), 0)
        self.handle = int(handle.value or 0)

    def record(self, stream: Stream) -> None:
        self._driver.call("cuEventRecord", self.handle, stream.handle)

    def record_in_graph(self, stream: Stream) -> None:
        """Record the event inside a capture: every launch of the graph records it."""
        self._driver.call("cuEventRecordWithFlags", self.handle, stream.handle, 1)  # 1: visible outside the graph

    def hold(self, stream: Stream) -> None:
        """Make later work in another stream wait for this event, as last recorded."""
        self._driver.call("cuStreamWaitEvent", stream.handle, self.handle, 0)

    def wait(self) -> None:
        """Wait until the stream reaches this point."""
        self._driver.call("cuEventSynchronize", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds between two events that were reached; exact to about 0.5 us."""
        milliseconds = c_float()
        self._driver.call("cuEventElapsedTime", byref(milliseconds), earlier.handle, self.handle)
        return milliseconds.value / 1e3

    def close(self) -> None:
        """Release the event. A second call does nothing."""
        if self.handle:
            handle, self.handle = self.handle, 0
            self._driver.call("cuEventDestroy_v2", handle)


class Module:
    """Machine code on the GPU, until `close`.

    code: a cubin, or PTX with a zero byte at its end. waits: as in Function.
    """

    def __init__(self, device: Device, code: bytes, waits: bool = False) -> None:
        self._waits = waits and device.driver.offers("cuLaunchKernelEx", "cuStreamBeginCaptureToGraph")
        self._driver = device.driver
        self._most_shared = None if device.tested_as is None else SHARED_KIB[device.tested_as] << 10
        handle = c_void_p()
        self._driver.call("cuModuleLoadData", byref(handle), code)
        self._handle = handle

    def function(self, name: str) -> Function:
        """Return a kernel by name. Raises: CudaError if there is none."""
        handle = c_void_p()
        self._driver.call("cuModuleGetFunction", byref(handle), self._handle, name.encode())
        return Function(self._driver, int(handle.value or 0), name, self._most_shared, self._waits)

    def close(self) -> None:
        """Unload the code. A second call does nothing."""
        if self._handle.value:
            handle, self._handle = self._handle, c_void_p()
            self._driver.call("cuModuleUnload", handle)


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel of a module.

    most_shared: bytes of shared memory that a block may have, if the driver allows more. waits: the kernel waits for
    the previous one itself (kernels/common.cuh), so it is launched before that ends (programmatic dependent launch;
    compute capability 9.0).
    """

    driver: Driver
    handle: int
    name: str
    most_shared: int | None = None
    waits: bool = False

    def allow_shared(self, n_bytes: int) -> None:
        """Allow launches with this many shared_bytes; the driver's default limit is 48 KiB. Raises: CudaError."""
        if self.most_shared is not None:
            static = c_int()
            self.driver.call("cuFuncGetAttribute", byref(static), _STATIC_SHARED, self.handle)
            if n_bytes + static.value > self.most_shared:
                raise CudaError(f"cuFuncSetAttribute for {self.name}", 1, "CUDA_ERROR_INVALID_VALUE")
        self.driver.call("cuFuncSetAttribute", self.handle, _DYNAMIC_SHARED, n_bytes)

    def prefer_shared(self) -> None:
        """On an idle multiprocessor, prefer shared memory over first-level cache.

        A multiprocessor does not change that while it works, so blocks of other kernels that need much shared memory
        fit beside this one.
        """
        self.driver.call("cuFuncSetAttribute", self.handle, _CARVEOUT, 100)

    def launch(
        self,
        stream: Stream,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: Any,
        shared_bytes: int = 0,
        cluster: Sequence[int] | None = None,
    ) -> None:
        """Queue the kernel. arguments: ctypes numbers of the kernel's own types; addresses are c_uint64.

        cluster: blocks per cluster; the grid must be whole clusters. From compute capability 9.0 on.
        Cost: about 5 us. Raises: CudaError.
        """
        places = _places(len(arguments))(*map(ctypes.addressof, arguments))
        if cluster is not None or self.waits:
            config = LaunchConfig.of(
                _three(grid), _three(block), shared_bytes, stream.handle, _three(cluster) if cluster else None
            )
            self.driver.call("cuLaunchKernelEx", byref(config), self.handle, places, None)
            return
        self.driver.call(
            "cuLaunchKernel", self.handle, *_three(grid), *_three(block), shared_bytes, stream.handle, places, None
        )

    def prepared(
        self,
        stream: Stream,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: Any,
        shared_bytes: int = 0,
        cluster: Sequence[int] | None = None,
    ) -> Launch:
        """Return the same launch for repeated use, because most of the time of `launch` is Python's."""
        places = _places(len(arguments))(*map(ctypes.addressof, arguments))
        if cluster is not None or self.waits:
            config = LaunchConfig.of(
                _three(grid), _three(block), shared_bytes, stream.handle, _three(cluster) if cluster else None
            )
            words = byref(config), c_void_p(self.handle), places, None
            return Launch(self, stream, "cuLaunchKernelEx", words, (config, arguments))
        sizes = (c_uint(size) for size in (*_three(grid), *_three(block), shared_bytes))
        words = c_void_p(self.handle), *sizes, c_void_p(stream.handle), places, None
        return Launch(self, stream, "cuLaunchKernel", words, arguments)


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel launch that can be repeated. call: of the driver. kept: the memory that its words point to."""

    function: Function
    stream: Stream
    call: str
    words: tuple[Any, ...]
    kept: tuple[Any, ...]

    def __call__(self) -> None:
        """Queue it in its stream. Raises: CudaError."""
        self.function.driver.call(self.call, *self.words)


class Launches:
    """Prepared launches by what they compute. All are forgotten when there are `most`."""

    def __init__(self, most: int = 1 << 13) -> None:
        self._most, self._found = most, dict[Any, Launch]()

    def run(self, key: Any, prepare: Callable[[], Launch]) -> None:
        """Queue the launch of `key`, which `prepare` makes the first time. The key says all that it depends on."""
        launch = self._found.get(key)
        if launch is None:
            if len(self._found) >= self._most:
                self._found.clear()
            launch = self._found[key] = prepare()
        launch()


@cache
def _places(n: int) -> Any:
    return c_void_p * max(1, n)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
