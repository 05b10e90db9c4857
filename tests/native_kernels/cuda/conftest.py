"""The GPU of this machine, for tests marked `gpu`; they are skipped with the reason where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError, Device, driver
from tests.native_kernels.cuda.on_gpu import OnGpu


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """One context for all tests of a file: to make one takes half a second."""
    try:
        if driver().n_devices == 0:
            pytest.skip("the NVIDIA driver sees no GPU")
        found = Device(0)
    except (CudaUnavailableError, CudaError) as error:
        pytest.skip(f"no GPU: {error}")
    found.enter()
    yield found
    found.close()


@pytest.fixture(scope="module")
def gpu(device: Device) -> Iterator[CudaGpu]:
    found = CudaGpu(device)
    yield found
    found.close()


@pytest.fixture
def on_gpu(gpu: CudaGpu) -> Iterator[OnGpu]:
    found = OnGpu(gpu)
    yield found
    gpu.synchronize()
    found.free()
