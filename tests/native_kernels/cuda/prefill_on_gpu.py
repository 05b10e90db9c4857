"""The operators of prompts on the GPU that is there, for tests."""

from __future__ import annotations

from support.arrays_on_gpu import GpuArrays, entered_device

from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.runtime.driver import Stream


class PrefillOnGpu:
    """The operators, and arrays on the GPU, until `close`. Where there is no GPU, the test is skipped."""

    def __init__(self) -> None:
        self.device = entered_device()
        self.arrays = GpuArrays(self.device)
        self.copies = Stream(self.device)
        self.ops = GpuPrefillOps(self.device, self.arrays.stream, self.copies)

    def close(self) -> None:
        self.ops.close()
        self.arrays.close()
        self.copies.close()
        self.device.close()
