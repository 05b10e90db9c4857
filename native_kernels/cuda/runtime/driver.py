"""CUDA's driver by ctypes: devices, contexts, streams, events, modules and graphs. It knows no kernel.

Only the driver itself is needed, nothing of a toolkit. Every call is checked; what fails raises CudaError.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from native_kernels.cuda.runtime.launch_config import LaunchConfig

OUT_OF_MEMORY = 2

# Attributes of a device (cuda.h, CUdevice_attribute).
_MULTIPROCESSORS, _MAJOR, _MINOR, _REGISTERS_READ_ONLY = 16, 75, 76, 113
_DYNAMIC_SHARED, _CARVEOUT = 8, 9  # of a kernel, CUfunction_attribute
_NON_BLOCKING = 1  # a stream that does not wait for the default one
_URGENT = -(1 << 16)  # more than any GPU has: the driver takes the most urgent of its own

Address = c_uint64


class CudaError(Exception):
    """A call of the driver failed."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call} failed: {name} ({code})")
        self.call, self.code, self.name = call, code, name


class CudaOutOfMemoryError(CudaError):
    """The GPU, or the memory that can be pinned, has no room left."""


class CudaUnavailableError(Exception):
    """There is no driver to talk to; the message is the reason in words."""


# The functions used, with the types of their arguments.
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
    "cuMemsetD8Async": (Address, ctypes.c_ubyte, c_size_t, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamCreateWithPriority": (POINTER(c_void_p), c_uint, c_int),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
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
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
}
# Those that drivers before CUDA 12 lack; whoever needs one asks `offers` first.
_NEWER: dict[str, tuple[Any, ...]] = {
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuTensorMapEncodeTiled": (c_void_p, c_int, c_uint, Address, *(c_void_p,) * 4, *(c_int,) * 4),
}


class Driver:
    """The driver's functions by name, each call checked.

    library: a fake for the driver's own, with the same functions.
    Raises: CudaUnavailableError where there is no driver, or one that lacks a function.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = _load() if library is None else library
        self._functions = {name: self._bound(name, arguments) for name, arguments in _SIGNATURES.items()}
        for name, arguments in _NEWER.items():
            with contextlib.suppress(CudaUnavailableError):
                self._functions[name] = self._bound(name, arguments)
        self.call("cuInit", 0)

    @cached_property
    def entered(self) -> Counter[int]:
        """How many of this process's `Device` hold the context of each GPU."""
        return Counter()

    @cached_property
    def held(self) -> dict[int, Callable[[], bool]]:
        """The GPUs of which a library holds the context as well, and does not let go of it; and whether somebody else
        needs it."""
        return {}

    def _bound(self, name: str, arguments: tuple[Any, ...]) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise CudaUnavailableError(f"the NVIDIA driver is too old: it lacks {name}") from error
        function.argtypes, function.restype = arguments, c_int
        return function

    def call(self, name: str, *arguments: Any) -> None:
        """Raises: CudaError, CudaOutOfMemoryError."""
        code = self._functions[name](*arguments)
        if code:
            raise self._failure(name, code)

    def offers(self, *names: str) -> bool:
        """Whether it has all of these functions."""
        return all(name in self._functions for name in names)

    def address_of(self, name: str) -> int:
        """Where a function of the driver begins, for compiled code that calls it."""
        return int(ctypes.cast(self._functions[name], c_void_p).value or 0)

    def _failure(self, call: str, code: int) -> CudaError:
        name = c_char_p()
        unknown = self._library.cuGetErrorName(code, byref(name)) != 0 or name.value is None
        words = "an unknown error" if unknown else (name.value or b"").decode("ascii", "replace")
        return (CudaOutOfMemoryError if code == OUT_OF_MEMORY else CudaError)(call, code, words)

    @property
    def version(self) -> tuple[int, int]:
        """The newest CUDA that the driver runs, as (13, 0)."""
        value = c_int()
        self.call("cuDriverGetVersion", byref(value))
        return value.value // 1000, value.value % 1000 // 10

    @property
    def n_devices(self) -> int:
        """How many GPUs this process may use."""
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return count.value


@cache
def driver() -> Driver:
    """The one driver of this process, loaded when first asked for. Raises: CudaUnavailableError, CudaError."""
    return Driver()


def _load() -> Any:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise CudaUnavailableError(f"no NVIDIA driver is installed ({name} is missing)") from error


@dataclass(eq=False)
class Device:
    """One GPU with its primary context, which it shares with every other library of this process.

    The context is there from the first use of `enter` on, and is given back by `close`.
    """

    number: int
    driver: Driver = field(default_factory=driver)
    _handle: int = 0
    _context: c_void_p | None = None

    def __post_init__(self) -> None:
        handle = c_int()
        self.driver.call("cuDeviceGet", byref(handle), self.number)
        self._handle = handle.value

    @property
    def uuid(self) -> str:
        """As NVML writes it: GPU-8d1f..."""
        raw = ctypes.create_string_buffer(16)
        self.driver.call("cuDeviceGetUuid_v2", raw, self._handle)
        digits = raw.raw.hex()
        return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, as (8, 9)."""
        return self._attribute(_MAJOR), self._attribute(_MINOR)

    @property
    def n_multiprocessors(self) -> int:
        return self._attribute(_MULTIPROCESSORS)

    @property
    def registers_read_only(self) -> bool:
        """Whether memory of the host that cannot be written can be registered."""
        return self._attribute(_REGISTERS_READ_ONLY) != 0

    def enter(self) -> None:
        """Makes this GPU's context the calling thread's. Cost: 0.1 to 0.3 s the first time.

        Raises: CudaError.
        """
        if self._context is None:
            context = c_void_p()
            self.driver.call("cuDevicePrimaryCtxRetain", byref(context), self._handle)
            self._context = context
            self.driver.entered[self.number] += 1
        self.driver.call("cuCtxSetCurrent", self._context)

    def hold(self, is_needed: Callable[[], bool] = lambda: False) -> None:
        """A library uses the context from now on that will not give it back: who closes the GPU last ends it, unless
        somebody else in this process needs it then."""
        self.driver.held[self.number] = is_needed

    def close(self) -> None:
        """Gives the context back. What was made in it must be gone."""
        if self._context is not None:
            self._context = None
            self.driver.entered[self.number] -= 1
            self.driver.call("cuDevicePrimaryCtxRelease_v2", self._handle)
            is_needed = self.driver.held.get(self.number)
            if is_needed is not None and not self.driver.entered[self.number] and not is_needed():
                self.driver.call("cuDevicePrimaryCtxReset_v2", self._handle)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the GPU, as the driver counts them. The context must be entered."""
        free, total = c_size_t(), c_size_t()
        self.driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def synchronize(self) -> None:
        """Waits until the GPU has nothing left to do. Raises: CudaError for what went wrong on it."""
        self.driver.call("cuCtxSynchronize")

    def _attribute(self, which: int) -> int:
        value = c_int()
        self.driver.call("cuDeviceGetAttribute", byref(value), which, self._handle)
        return value.value


class Stream:
    """Work that the GPU does in order, beside other streams. urgent: its kernels come before others that wait."""

    def __init__(self, device: Device, urgent: bool = False) -> None:
        self._driver = device.driver
        handle = c_void_p()
        if urgent:
            self._driver.call("cuStreamCreateWithPriority", byref(handle), _NON_BLOCKING, _URGENT)
        else:
            self._driver.call("cuStreamCreate", byref(handle), _NON_BLOCKING)
        self.handle = int(handle.value or 0)

    def synchronize(self) -> None:
        """Waits for all of it. Raises: CudaError for what went wrong."""
        self._driver.call("cuStreamSynchronize", self.handle)

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        """Bytes of the host at `source` to the GPU at `to`; pinned ones while the caller goes on."""
        self._driver.call("cuMemcpyHtoDAsync_v2", to, source, n_bytes, self.handle)

    def download(self, to: int, source: int, n_bytes: int) -> None:
        """Bytes of the GPU at `source` to the host at `to`."""
        self._driver.call("cuMemcpyDtoHAsync_v2", to, source, n_bytes, self.handle)

    def fill(self, to: int, value: int, n_bytes: int) -> None:
        """Every byte from `to` on to the value."""
        self._driver.call("cuMemsetD8Async", to, value, n_bytes, self.handle)

    def captured(self, work: Callable[[], None]) -> Graph:
        """What `work` puts into this stream, as a graph that can be launched again and again. It does not run now.

        Raises: CudaError; the stream is usable all the same.
        """
        self._driver.call("cuStreamBeginCapture_v2", self.handle, 2)  # 2: other threads are none of its business
        graph = c_void_p()
        try:
            work()
        except BaseException:
            with contextlib.suppress(CudaError):  # a capture that work broke has no graph to give
                self._driver.call("cuStreamEndCapture", self.handle, byref(graph))
            raise
        self._driver.call("cuStreamEndCapture", self.handle, byref(graph))
        return Graph(self._driver, graph)

    def close(self) -> None:
        """Gives the stream back. A second time does nothing."""
        if self.handle:
            handle, self.handle = self.handle, 0
            self._driver.call("cuStreamDestroy_v2", handle)


class Graph:
    """Work captured from a stream, ready to be launched. handle: what compiled code launches it by."""

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
        """Gives the graph back. A second time does nothing."""
        if self.handle:
            handle, self.handle = self.handle, 0
            self._driver.call("cuGraphExecDestroy", handle)


class Event:
    """A point in a stream, with its time."""

    def __init__(self, device: Device) -> None:
        self._driver = device.driver
        handle = c_void_p()
        self._driver.call("cuEventCreate", byref(handle), 0)
        self.handle = int(handle.value or 0)

    def record(self, stream: Stream) -> None:
        self._driver.call("cuEventRecord", self.handle, stream.handle)

    def record_in_graph(self, stream: Stream) -> None:
        """Within a capture: recorded whenever the graph comes here."""
        self._driver.call("cuEventRecordWithFlags", self.handle, stream.handle, 1)  # 1: for those outside the graph

    def hold(self, stream: Stream) -> None:
        """What is put into another stream from now on runs when this point, as last recorded, has been reached."""
        self._driver.call("cuStreamWaitEvent", stream.handle, self.handle, 0)

    def wait(self) -> None:
        """Until the stream has come here."""
        self._driver.call("cuEventSynchronize", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        """Between two points that have been reached; exact to about 0.5 us."""
        milliseconds = c_float()
        self._driver.call("cuEventElapsedTime", byref(milliseconds), earlier.handle, self.handle)
        return milliseconds.value / 1e3

    def close(self) -> None:
        """Gives the event back. A second time does nothing."""
        if self.handle:
            handle, self.handle = self.handle, 0
            self._driver.call("cuEventDestroy_v2", handle)


class Module:
    """Machine code on the GPU, until `close`."""

    def __init__(self, device: Device, code: bytes) -> None:
        self._driver = device.driver
        handle = c_void_p()
        self._driver.call("cuModuleLoadData", byref(handle), code)
        self._handle = handle

    def function(self, name: str) -> Function:
        """Raises: CudaError where the code has none of that name."""
        handle = c_void_p()
        self._driver.call("cuModuleGetFunction", byref(handle), self._handle, name.encode())
        return Function(self._driver, int(handle.value or 0), name)

    def close(self) -> None:
        """Takes the code off the GPU. A second time does nothing."""
        if self._handle.value:
            handle, self._handle = self._handle, c_void_p()
            self._driver.call("cuModuleUnload", handle)


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel of a module."""

    driver: Driver
    handle: int
    name: str

    def allow_shared(self, n_bytes: int) -> None:
        """Lets it be launched with so many shared_bytes; without being asked the driver allows 48 KiB."""
        self.driver.call("cuFuncSetAttribute", self.handle, _DYNAMIC_SHARED, n_bytes)

    def prefer_shared(self) -> None:
        """Where it begins on an idle multiprocessor, all memory that can be is shared memory there, not first-level
        cache: no multiprocessor changes that while it works, and blocks of other kernels that need much of it have
        room beside."""
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
        """Puts it into the stream. arguments: ctypes numbers of the kernel's own types; addresses are c_uint64.
        cluster: of how many blocks one is, of a grid that is whole clusters; from compute capability 9.0 on.

        Cost: about 5 us. Raises: CudaError.
        """
        places = _places(len(arguments))(*map(ctypes.addressof, arguments))
        if cluster is not None:
            config = LaunchConfig.of(_three(grid), _three(block), shared_bytes, stream.handle, _three(cluster))
            self.driver.call("cuLaunchKernelEx", byref(config), self.handle, places, None)
            return
        self.driver.call(
            "cuLaunchKernel", self.handle, *_three(grid), *_three(block), shared_bytes, stream.handle, places, None
        )

    def prepared(self, stream: Stream, grid: Sequence[int], block: Sequence[int], *arguments: Any) -> Launch:
        """The same launch, to be made again and again: half the time of `launch` is Python's."""
        places = _places(len(arguments))(*map(ctypes.addressof, arguments))
        sizes = (c_uint(size) for size in (*_three(grid), *_three(block), 0))
        words = c_void_p(self.handle), *sizes, c_void_p(stream.handle), places, None
        return Launch(self.driver, words, arguments)


@dataclass(frozen=True, eq=False)
class Launch:
    """A launch of a kernel that may be made any number of times. kept: what its words point to."""

    driver: Driver
    words: tuple[Any, ...]
    kept: tuple[Any, ...]

    def __call__(self) -> None:
        """Puts it into its stream. Raises: CudaError."""
        self.driver.call("cuLaunchKernel", *self.words)


@cache
def _places(n: int) -> Any:
    return c_void_p * max(1, n)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
