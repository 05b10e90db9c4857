"""The tests' GPU keeps rows bit by bit, runs in order and apart from its caller, and says what went wrong."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from fakes.gpu import FakeGpu
from samples.random_blocks import weights

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.gpu import GpuMatrix, GpuVector
from native_kernels.cuda.layouts import PLANE_FIELDS, gpu_codec, plane_row_bytes
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError


@pytest.fixture
def gpu() -> Iterator[FakeGpu]:
    found = FakeGpu(1 << 20)
    yield found
    found.close()


@pytest.mark.parametrize("codec", ["f32", "f16", "bf16", *PLANE_FIELDS, "q8_0.lanes", "q4_0.lanes"])
def test_rows_lie_in_planes_and_are_multiplied_from_there(gpu: FakeGpu, codec: str) -> None:
    rng = np.random.default_rng(0)
    if codec.endswith(".lanes"):
        packed = PackedMatrix.pack(rng.standard_normal((5, 256)).astype(np.float32), codec)
    else:
        packed = PackedMatrix.view(weights(codec, 5, 256).reshape(-1), 5, 256, codec)
    raw = np.ascontiguousarray(packed.data).view(np.uint8)
    kept = gpu_codec(codec)
    planes = tuple(gpu.allocate(5 * size).address for size in plane_row_bytes(kept, 256))
    matrix, at = GpuMatrix(5, 256, kept, planes), gpu.allocate(raw.nbytes)
    gpu.upload(at.address, raw.ctypes.data, raw.nbytes)
    gpu.unpack_rows(at.address, packed.row_bytes, 5, matrix, codec)
    x = GpuVector(256, gpu.allocate(1024).address, gpu.allocate(256).address, gpu.allocate(64).address)
    out = gpu.allocate(20)
    values = rng.standard_normal(256).astype(np.float32)
    gpu.upload(x.values, values.ctypes.data, 1024)
    gpu.quantise(x)
    gpu.multiply([matrix], x, [out.address])
    gpu.synchronize()
    wanted = ROW_CODECS[codec].decode(raw.reshape(5, -1)) @ values
    np.testing.assert_allclose(gpu.array(out.address, 5), wanted, atol=1 if matrix.reads_bytes else 1e-5)


def test_captured_work_runs_when_its_address_is_called_and_while_the_caller_goes_on(gpu: FakeGpu) -> None:
    ones, to = gpu.pin(16), gpu.allocate(16)
    ones.as_array(np.float32, 4)[:] = 1
    work = gpu.captured(lambda: gpu.copy(ones.device_address, to.address, 4))
    gate = threading.Event()
    gpu.between(lambda: gate.wait() and None)
    launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(gpu.launch_function)
    assert launch(work.handle, gpu.stream_handle) == 0
    assert np.isnan(to.as_array(np.float32, 4)).all()
    gate.set()
    gpu.synchronize()
    assert (to.as_array(np.float32, 4) == 1).all()
    work.close()
    assert launch(work.handle, gpu.stream_handle) != 0


def test_an_address_that_is_not_the_gpus_and_memory_that_is_not_there(gpu: FakeGpu) -> None:
    host = np.zeros(4, np.float32)
    gpu.copy(host.ctypes.data, gpu.allocate(16).address, 4)
    with pytest.raises(CudaError, match="not the GPU's"):
        gpu.synchronize()
    gpu.synchronize()
    with pytest.raises(CudaOutOfMemoryError):
        gpu.allocate(1 << 21)
