"""Register host memory of another owner, such as a mapped file, so that the GPU reads it in place."""

from __future__ import annotations

import mmap
from ctypes import byref, c_void_p

from native_kernels.cuda.runtime.driver import Address, CudaError, Device
from native_kernels.cuda.runtime.memory import MAPPED, PORTABLE

_READ_ONLY = 8  # flag of registering
_NOT_SUPPORTED = 801


class RegisteredMemory:
    """The pages around n_bytes at an address, pinned in place until `free`; they must stay mapped until then.

    address, n_bytes: of those pages. device_address: their first byte on the GPU.
    read_only: the memory is not writable, such as a file mapped for reading; must be False for writable memory. The GPU
    must be entered. Cost: 20 to 40 ms a GB of pages in RAM.
    Raises: CudaError if the system, the driver or the GPU does not support it, or a page is already registered.
    """

    def __init__(self, device: Device, address: int, n_bytes: int, read_only: bool) -> None:
        if read_only and not device.registers_read_only:
            raise CudaError("cuMemHostRegister_v2", _NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED")
        self._driver = device.driver
        self.address = address // mmap.PAGESIZE * mmap.PAGESIZE
        self.n_bytes = -(-(address + n_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE - self.address
        flags = PORTABLE | MAPPED | (_READ_ONLY if read_only else 0)
        self._driver.call("cuMemHostRegister_v2", self.address, self.n_bytes, flags)
        mapped = Address()
        try:
            self._driver.call("cuMemHostGetDevicePointer_v2", byref(mapped), c_void_p(self.address), 0)
        except CudaError:
            self.free()
            raise
        self.device_address = mapped.value

    def free(self) -> None:
        """Unpin the pages. The GPU must not be reading them. A second call does nothing."""
        if self.n_bytes:
            self.n_bytes = 0
            self._driver.call("cuMemHostUnregister", self.address)
