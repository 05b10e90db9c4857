"""GPU memory, and pinned host memory that the GPU accesses directly."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import Any

from native_kernels.cuda.runtime.driver import Address, CudaError, Device
from native_kernels.cuda.runtime.large_pages import LargePages

PORTABLE, MAPPED = 1, 2  # flags of pinned memory
MANY_BYTES = 256 << 20  # from this size on, pinned memory is faulted in before the driver pins it


class DeviceMemory:
    """GPU memory, until `free`. The GPU's context must be current in the calling thread.

    Raises: CudaOutOfMemoryError.
    """

    def __init__(self, device: Device, n_bytes: int) -> None:
        self._driver, self.n_bytes = device.driver, n_bytes
        address = Address()
        self._driver.call("cuMemAlloc_v2", byref(address), max(1, n_bytes))
        self.address = address.value

    def free(self) -> None:
        """Release it; waits for all work on the GPU. A second call does nothing."""
        if self.address:
            address, self.address = self.address, 0
            self._driver.call("cuMemFree_v2", address)


class PinnedMemory:
    """Host memory that the GPU reads and writes directly, until `free`.

    address: on the host; device_address: the same bytes on the GPU, which may differ.
    Raises: CudaOutOfMemoryError if no more can be pinned.
    """

    def __init__(self, device: Device, n_bytes: int) -> None:
        self._driver, self.n_bytes = device.driver, n_bytes
        self._pages = self._registered() if n_bytes >= MANY_BYTES else None
        host, mapped = c_void_p(None if self._pages is None else self._pages.address), Address()
        if self._pages is None:
            self._driver.call("cuMemHostAlloc", byref(host), max(1, n_bytes), PORTABLE | MAPPED)
        self.address = int(host.value or 0)
        try:
            self._driver.call("cuMemHostGetDevicePointer_v2", byref(mapped), host, 0)
        except CudaError:
            self.free()
            raise
        self.device_address = mapped.value

    def _registered(self) -> LargePages | None:
        """Pin memory that several threads faulted in; None if the system or the driver does not support that."""
        try:
            pages = LargePages(self.n_bytes)
        except (OSError, ValueError):
            return None
        try:
            self._driver.call("cuMemHostRegister_v2", pages.address, pages.n_bytes, PORTABLE | MAPPED)
        except CudaError:
            pages.free()
            return None
        return pages

    def as_array(self, dtype: Any, count: int, offset: int = 0) -> Any:
        """Return the bytes as a NumPy array [count]; it must not outlive `free`."""
        import numpy as np

        wanted = np.dtype(dtype)
        if offset + count * wanted.itemsize > self.n_bytes:
            raise ValueError(f"{count} {wanted} from {offset} on do not lie in {self.n_bytes} bytes")
        raw = (ctypes.c_ubyte * (count * wanted.itemsize)).from_address(self.address + offset)
        return np.frombuffer(raw, wanted)

    def free(self) -> None:
        """Release it. A second call does nothing."""
        if self.address:
            address, self.address = self.address, 0
            if self._pages is None:
                self._driver.call("cuMemFreeHost", address)
                return
            try:
                self._driver.call("cuMemHostUnregister", address)
            finally:
                self._pages.free()
