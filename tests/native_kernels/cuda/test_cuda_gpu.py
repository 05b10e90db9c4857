"""The GPU itself: what it holds is given back, also where its making fails; what is wrong stays CudaError."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.gpu import GpuAngles, GpuHeads, GpuKv, GpuScoring, GpuVector
from native_kernels.cuda.runtime import modules
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError, Device, Driver
from tests.native_kernels.cuda.on_gpu import OnGpu
from tests.native_kernels.cuda.runtime.test_driver import Fake


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A driver whose handles and addresses count up, with a GPU of 100 multiprocessors that runs any code."""
    monkeypatch.setattr(modules, "machine_code", lambda *_: b"code")
    monkeypatch.setattr(Driver, "address_of", lambda *_: 7)
    found, handles = Fake(), itertools.count(1 << 20, 1 << 16)

    def hand_out(out: Any, *_: Any) -> int:
        out._obj.value = next(handles)
        return 0

    def attribute(out: Any, which: int, handle: int) -> int:
        out._obj.value = {16: 100, 75: 9, 76: 0}[which]
        return 0

    makers = ["cuMemAlloc_v2", "cuStreamCreate", "cuModuleLoadData", "cuModuleGetFunction"]
    found.answers |= dict.fromkeys(makers, hand_out)
    found.answers["cuDeviceGetAttribute"] = attribute
    return found


@pytest.fixture
def grids(library: Fake) -> list[tuple[int, ...]]:
    """The grids that were launched."""
    launched: list[tuple[int, ...]] = []

    def launch(config: Any, *_: Any) -> int:
        launched.append(tuple(config._obj.grid))
        return 0

    library.answers["cuLaunchKernelEx"] = launch
    return launched


def test_what_was_made_is_given_back_once(library: Fake) -> None:
    gpu = CudaGpu(Device(0, Driver(library)))
    gpu.close()
    gpu.close()
    for made, back in (
        ("cuMemAlloc_v2", "cuMemFree_v2"), ("cuStreamCreate", "cuStreamDestroy_v2"),
        ("cuModuleLoadData", "cuModuleUnload"), ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"),
    ):  # fmt: skip
        assert library.calls.count(made) == library.calls.count(back) > 0
    assert library.calls[-1] == "cuDevicePrimaryCtxRelease_v2"


def test_a_gpu_that_cannot_be_made_holds_nothing(library: Fake) -> None:
    library.answers["cuMemAlloc_v2"] = 2
    with pytest.raises(CudaOutOfMemoryError):
        CudaGpu(Device(0, Driver(library)))
    assert library.calls.count("cuModuleLoadData") == library.calls.count("cuModuleUnload") > 0
    assert library.calls[-2:] == ["cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2"]


def test_a_gpu_that_has_failed_is_given_back_as_far_as_can_be(library: Fake) -> None:
    gpu = CudaGpu(Device(0, Driver(library)))
    library.answers["cuStreamDestroy_v2"] = 999
    with pytest.raises(CudaError, match="cuStreamDestroy_v2"):
        gpu.close()
    assert library.calls[-1] == "cuDevicePrimaryCtxRelease_v2"
    gpu.close()


@pytest.mark.parametrize(
    ("codec", "n_heads", "n_kv_heads", "head_dim", "capacity", "window", "grid"),
    [
        ("f16", 64, 8, 128, 32768, None, (37, 8, 1)),  # three blocks at a time on each multiprocessor
        ("q8_0", 40, 40, 128, 32768, None, (7, 40, 1)),
        ("f16", 71, 1, 64, 32768, None, (33, 1, 9)),  # 8 heads a block
        ("f16", 8, 8, 128, 128, None, (2, 8, 1)),  # 64 positions a block at a time
        ("f16", 8, 8, 128, 32768, 64, (1, 8, 1)),
        ("q8_0", 2, 1, 256, 100_000, None, (200, 1, 1)),
        ("f32", 64, 8, 128, 32768, None, (25, 8, 1)),
        ("f32", 12, 1, 64, 64, None, (2, 1, 2)),  # 6 heads a block, 32 positions at a time
        ("f32", 40, 40, 128, 100_000, None, (7, 40, 1)),
    ],
)
def test_attention_fills_the_gpu_and_no_more(
    library: Fake, grids: list[tuple[int, ...]], codec: Any, n_heads: int, n_kv_heads: int, head_dim: int,
    capacity: int, window: int | None, grid: tuple[int, ...],
) -> None:  # fmt: skip
    gpu = CudaGpu(Device(0, Driver(library)))
    kv = GpuKv(codec, 1, 1, 1, 1, n_kv_heads, head_dim, capacity)
    to = GpuVector(n_heads * head_dim, 1)
    for _ in range(2):
        gpu.attend(1, n_heads, kv, 1, to, GpuScoring(0.1, None, window))
    assert grids == 2 * [grid, (-(-to.n // 64) * 2, 1, 1)]
    made = ("cuModuleLoadData", "cuMemAlloc_v2")
    before = [library.calls.count(name) for name in made]
    gpu.attend(1, n_heads, kv, 1, to, GpuScoring(0.1, None, window))
    assert [library.calls.count(name) for name in made] == before
    gpu.close()


@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "head_dim", "n"), [(5, 2, 64, 320), (4, 2, 584, 2336), (4, 2, 64, 255)]
)
def test_heads_that_there_are_no_kernels_for_are_refused(
    library: Fake, n_heads: int, n_kv_heads: int, head_dim: int, n: int
) -> None:
    gpu = CudaGpu(Device(0, Driver(library)))
    kv = GpuKv("f16", 1, 1, 0, 0, n_kv_heads, head_dim, 8)
    with pytest.raises(ValueError, match="heads"):
        gpu.attend(1, n_heads, kv, 1, GpuVector(n, 1), GpuScoring(1.0))
    gpu.close()


def test_vectors_that_there_is_no_room_for_are_refused(library: Fake) -> None:
    gpu = CudaGpu(Device(0, Driver(library)))
    with pytest.raises(ValueError, match="columns"):
        gpu.advance(1, (1 << 20) + 1)
    with pytest.raises(ValueError, match="columns"):
        gpu.advance(1, 0)
    with pytest.raises(ValueError, match="place"):
        gpu.advance(1, 64, to=GpuVector(64, 1))
    gpu.close()


def test_angles_that_a_head_has_no_room_for_are_refused(library: Fake) -> None:
    gpu = CudaGpu(Device(0, Driver(library)))
    kv = GpuKv("f16", 1, 1, 0, 0, 2, 64, 8)
    with pytest.raises(ValueError, match="33 angles"):
        gpu.rotate_and_store(1, GpuHeads(2), kv, 1, GpuAngles(1, 33, "halves"))
    gpu.close()


# --- on a GPU


@pytest.mark.gpu
def test_all_memory_comes_back(device: Device) -> None:
    CudaGpu(device).close()  # the driver keeps some of its own from the first use on
    device.enter()
    before = device.memory()[0]
    for _ in range(3):
        gpu = CudaGpu(device)
        memories = [gpu.allocate(256 << 20) for _ in range(4)]
        pinned = gpu.pin(1 << 20)
        gpu.fill(memories[0].address, 0, memories[0].n_bytes)
        work = gpu.captured(lambda: gpu.copy(memories[0].address, memories[1].address, 1000))  # noqa: B023
        gpu.launch(work)
        gpu.synchronize()
        assert device.memory()[0] < before - (300 << 20)  # others may take or give back a context meanwhile
        work.close()
        for memory in (*memories, pinned):
            memory.free()
        gpu.close()
        gpu.close()
        device.enter()
    assert device.memory()[0] > before - (700 << 20)


@pytest.mark.gpu
def test_rows_are_copied_both_ways_and_moved(device: Device) -> None:
    host = np.random.default_rng(0).integers(0, 256, (5, 300), np.uint8)
    back = np.zeros((5, 400), np.uint8)
    gpu = CudaGpu(device)
    memory = gpu.allocate(5 * 1000)
    gpu.fill(memory.address, 7, 5 * 1000)
    gpu.upload_rows(memory.address + 20, 1000, host.ctypes.data, 300, 257, 5)
    gpu.move_rows(memory.address + 510, memory.address + 10, 1000, 277, 5)
    gpu.download_rows(back.ctypes.data, 400, memory.address + 510, 1000, 277, 5)
    gpu.synchronize()
    memory.free()
    gpu.close()
    expected = np.zeros((5, 400), np.uint8)
    expected[:, :277] = 7
    expected[:, 10:267] = host[:, :257]
    np.testing.assert_array_equal(back, expected)


@pytest.mark.gpu
def test_too_much_memory_is_refused_and_the_gpu_goes_on(device: Device) -> None:
    gpu = CudaGpu(device)
    with pytest.raises(CudaOutOfMemoryError):
        gpu.allocate(1 << 46)
    memory = gpu.allocate(64)
    assert memory.address % 256 == 0
    gpu.fill(memory.address, 5, 64)
    out = np.zeros(64, np.uint8)
    gpu.download(out.ctypes.data, memory.address, 64)
    gpu.synchronize()
    assert (out == 5).all()
    memory.free()
    gpu.close()


@pytest.mark.gpu
def test_work_that_fails_to_be_captured_leaves_the_gpu_usable(device: Device) -> None:
    gpu = CudaGpu(device)
    on_gpu = OnGpu(gpu)
    x = on_gpu.put(np.ones(10, np.float32))

    def fail() -> None:
        gpu.softcap(x, 10, 1.0)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        gpu.captured(fail)
    assert (on_gpu.get(x, 10) == 1).all()
    gpu.softcap(x, 10, 1.0)
    np.testing.assert_allclose(on_gpu.get(x, 10), np.tanh(1.0), rtol=1e-6)
    on_gpu.free()
    gpu.close()
