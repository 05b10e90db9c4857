"""Memory of the host that is somebody else's, mapped files too, which the GPU reads where it lies."""

from __future__ import annotations

import mmap
from ctypes import byref, c_void_p

from native_kernels.cuda.runtime.driver import Address, CudaError, Device
from native_kernels.cuda.runtime.memory import MAPPED, PORTABLE

_READ_ONLY = 8  # a flag of registering
_NOT_SUPPORTED = 801


class RegisteredMemory:
    """The pages that n_bytes from an address on touch, pinned where they are until `free`; they must stay mapped so
    long. address, n_bytes: of those pages; device_address: the GPU's name for the first byte of them.

    read_only: whether the memory cannot be written, as a file's that was mapped to be read; memory that can be must not
    be registered so. The GPU must be entered. Cost: 20 to 40 ms a GB of pages that are in RAM.
    Raises: CudaError where the system, the driver or the GPU does not do that, or a page is registered already.
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
        """The pages are as they were. Nothing on the GPU may be reading them. A second time does nothing."""
        if self.n_bytes:
            self.n_bytes = 0
            self._driver.call("cuMemHostUnregister", self.address)
