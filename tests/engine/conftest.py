"""The GPUs that decode in tests: the one of NumPy everywhere, and this machine's own where there is one. And a machine
that nobody else uses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.gpu import FakeGpu

from engine.placement import machine_figures
from native_kernels.cuda.gpu import Gpu
from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError, Device, driver


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy it is: what is measured in a test is remembered there."""
    machine_figures.discard_hasty()
    monkeypatch.setattr(machine_figures, "processor_times", lambda: machine_figures.CpuTimes(0.0, 0.0, 0.0))


@pytest.fixture(scope="module", autouse=True)
def quiet_threads(parked_threads: None) -> None:
    """In every test of the engine."""


@pytest.fixture(scope="session")
def own_gpu() -> Iterator[Gpu]:
    """This machine's GPU, once for all tests; they are skipped with the reason where there is none."""
    from native_kernels.cuda.cuda_gpu import CudaGpu

    try:
        if driver().n_devices == 0:
            pytest.skip("the NVIDIA driver sees no GPU")
        device = Device(0)
    except (CudaUnavailableError, CudaError) as error:
        pytest.skip(f"no GPU: {error}")
    gpu = CudaGpu(device)
    yield gpu
    device.enter()  # a test may have used another GPU
    gpu.close()


@pytest.fixture(params=["fake", pytest.param("own", marks=pytest.mark.gpu)])
def any_gpu(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    if request.param == "own":
        yield request.getfixturevalue("own_gpu")
        return
    fake = FakeGpu()
    yield fake
    fake.close()
