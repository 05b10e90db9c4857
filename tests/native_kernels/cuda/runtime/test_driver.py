"""The driver's calls against a fake: checked, given back, in order. On a GPU: memory, graphs and events."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from native_kernels.cuda.runtime import driver as cuda
from native_kernels.cuda.runtime import memory as gpu_memory
from native_kernels.cuda.runtime.driver import (
    CudaError,
    CudaOutOfMemoryError,
    CudaUnavailableError,
    Device,
    Driver,
    Event,
    Graph,
    Module,
    Stream,
)
from native_kernels.cuda.runtime.large_pages import LARGE_PAGE
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory
from native_kernels.cuda.runtime.registered import RegisteredMemory

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="large pages are available only on Linux")


class Function:
    """One function of the fake: answers 0, or what the test wants."""

    def __init__(self, owner: Fake, name: str) -> None:
        self._owner, self._name = owner, name
        self.argtypes: Any = None
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> int:
        self._owner.calls.append(self._name)
        given = self._owner.answers.get(self._name, 0)
        return given(*arguments) if callable(given) else given


class Fake:
    """Looks like the driver's library. answers: a code, or a function of the call's arguments, by name."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: dict[str, int | Callable[..., int]] = {"cuGetErrorName": self._name_of}
        self.missing: set[str] = set()
        self._functions: dict[str, Function] = {}

    def __getattr__(self, name: str) -> Function:
        if not name.startswith("cu") or name in self.missing:
            raise AttributeError(name)
        return self._functions.setdefault(name, Function(self, name))

    @staticmethod
    def _name_of(code: int, out: Any) -> int:
        out._obj.value = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 999: b"CUDA_ERROR_UNKNOWN"}.get(code)
        return 0 if out._obj.value else 1


@pytest.fixture
def library() -> Fake:
    return Fake()


@pytest.fixture
def fake(library: Fake) -> Device:
    found = Device(0, Driver(library))
    found.enter()
    library.calls.clear()
    return found


def test_a_failing_call_says_which_and_why(library: Fake) -> None:
    library.answers["cuInit"] = 999
    with pytest.raises(CudaError, match=r"cuInit failed: CUDA_ERROR_UNKNOWN \(999\)"):
        Driver(library)


def test_a_code_without_a_name_is_still_told(library: Fake) -> None:
    library.answers["cuInit"] = 12345
    with pytest.raises(CudaError, match="an unknown error"):
        Driver(library)


def test_a_full_gpu_has_an_error_of_its_own(library: Fake, fake: Device) -> None:
    library.answers["cuMemAlloc_v2"] = cuda.OUT_OF_MEMORY
    with pytest.raises(CudaOutOfMemoryError, match="cuMemAlloc_v2"):
        DeviceMemory(fake, 1 << 40)


def test_errors_after_which_cuda_refuses_the_whole_process(monkeypatch: pytest.MonkeyPatch, library: Fake) -> None:
    known = cache(lambda: Driver(library))
    monkeypatch.setattr(cuda, "driver", known)
    assert (cuda.process_failure(), known.cache_info().currsize) == ("", 0), "no driver is loaded to know"
    for name, code in (("cuMemAlloc_v2", 2), ("cuLaunchKernel", 1), ("cuMemHostRegister_v2", 999)):
        library.answers[name] = code
        with pytest.raises(CudaError):
            known().call(name)
        assert cuda.process_failure() == ""
    for name, code in (("cuLaunchKernel", 700), ("cuStreamSynchronize", 719), ("cuCtxSynchronize", 999)):
        library.answers[name] = code
        known().failure = ""
        with pytest.raises(CudaError) as failed:
            known().call(name)
        assert cuda.process_failure() == failed.value.name


def test_a_driver_without_a_function_is_too_old(library: Fake) -> None:
    library.missing.add("cuGraphInstantiateWithFlags")
    with pytest.raises(CudaUnavailableError, match="too old: it lacks cuGraphInstantiateWithFlags"):
        Driver(library)


def test_no_driver_is_a_reason_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(CudaUnavailableError, match="no NVIDIA driver is installed"):
        Driver()


def test_gpus_have_the_numbers_that_nvml_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[str | None] = []

    def load(name: str) -> Fake:
        orders.append(os.environ.get("CUDA_DEVICE_ORDER"))
        return Fake()

    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setattr(ctypes, "CDLL", load)
    Driver()
    assert orders == ["PCI_BUS_ID"], "set before the library is loaded"


def test_everything_is_given_back_once(library: Fake, fake: Device) -> None:
    def hand_out(out: Any, *_: Any) -> int:
        out._obj.value = 7 << 20
        return 0

    for name in ("cuMemAlloc_v2", "cuStreamCreate", "cuEventCreate", "cuModuleLoadData"):
        library.answers[name] = hand_out
    memory, stream, event = DeviceMemory(fake, 5), Stream(fake), Event(fake)
    module = Module(fake, b"code")
    for thing in (stream, event, module):
        thing.close()
        thing.close()
    memory.free()
    memory.free()
    fake.close()
    fake.close()
    back = ["cuStreamDestroy_v2", "cuEventDestroy_v2", "cuModuleUnload", "cuMemFree_v2"]
    assert library.calls[-5:] == [*back, "cuDevicePrimaryCtxRelease_v2"]
    assert [library.calls.count(name) for name in back] == [1, 1, 1, 1]


def device_pointer(out: Any, host: Any, flags: int) -> int:
    out._obj.value = (host if isinstance(host, int) else host.value) + 1
    return 0


@on_linux
def test_much_pinned_memory_is_faulted_in_first_and_given_back_once(
    library: Fake, fake: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "MANY_BYTES", 1 << 20)
    library.answers["cuMemHostGetDevicePointer_v2"] = device_pointer
    memory = PinnedMemory(fake, (5 << 20) + 12)
    assert library.calls == ["cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2"]
    assert memory.address % LARGE_PAGE == 0
    assert memory.device_address == memory.address + 1
    values = memory.as_array(np.uint8, (5 << 20) + 12)
    assert not values.any()
    values[:] = 3
    del values
    memory.free()
    memory.free()
    assert library.calls[2:] == ["cuMemHostUnregister"]


@on_linux
def test_where_memory_cannot_be_pinned_afterwards_the_driver_gives_it(
    library: Fake, fake: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_memory, "MANY_BYTES", 1 << 20)
    library.answers["cuMemHostRegister_v2"] = 999
    library.answers["cuMemHostAlloc"] = lambda out, *_: setattr(out._obj, "value", 7 << 20) or 0
    PinnedMemory(fake, 1 << 20).free()
    made = [name for name in library.calls if name != "cuGetErrorName"]
    assert made == ["cuMemHostRegister_v2", "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuMemFreeHost"]


@pytest.mark.parametrize(("read_only", "flags"), [(False, 1 | 2), (True, 1 | 2 | 8)])
def test_memory_of_somebody_else_is_registered_as_whole_pages(
    library: Fake, fake: Device, read_only: bool, flags: int
) -> None:
    asked: list[tuple[int, int, int]] = []
    library.answers["cuDeviceGetAttribute"] = lambda out, which, _: setattr(out._obj, "value", int(which == 113)) or 0
    library.answers["cuMemHostRegister_v2"] = lambda *arguments: asked.append(arguments) or 0
    library.answers["cuMemHostGetDevicePointer_v2"] = device_pointer
    page = mmap.PAGESIZE
    memory = RegisteredMemory(fake, 7 * page + 5, 2 * page, read_only)
    assert asked == [(7 * page, 3 * page, flags)]
    assert (memory.address, memory.n_bytes, memory.device_address) == (7 * page, 3 * page, 7 * page + 1)
    memory.free()
    memory.free()
    assert library.calls.count("cuMemHostUnregister") == 1


def test_what_cannot_be_registered_is_not_held(library: Fake, fake: Device) -> None:
    with pytest.raises(CudaError, match="NOT_SUPPORTED"):  # the fake's attribute is 0
        RegisteredMemory(fake, 4096, 4096, read_only=True)
    assert "cuMemHostRegister_v2" not in library.calls
    library.answers["cuMemHostGetDevicePointer_v2"] = 999
    with pytest.raises(CudaError, match="cuMemHostGetDevicePointer_v2"):
        RegisteredMemory(fake, 4096, 4096, read_only=False)
    assert library.calls.count("cuMemHostUnregister") == 1
    library.answers["cuMemHostRegister_v2"] = 999
    with pytest.raises(CudaError, match="cuMemHostRegister_v2"):
        RegisteredMemory(fake, 4096, 4096, read_only=False)
    assert library.calls.count("cuMemHostUnregister") == 1


def test_an_urgent_stream_asks_for_the_highest_priority(library: Fake, fake: Device) -> None:
    asked: list[int] = []
    library.answers["cuStreamCreateWithPriority"] = lambda out, flags, priority: asked.append(priority) or 0
    Stream(fake)
    assert not asked
    Stream(fake, urgent=True)
    assert asked[0] < -5  # the driver takes the nearest of its own


def test_a_context_that_a_library_holds_is_ended_by_who_closes_the_gpu_last(library: Fake, fake: Device) -> None:
    other = Device(0, fake.driver)
    other.enter()
    other.hold()
    library.calls.clear()
    other.close()
    assert library.calls == ["cuDevicePrimaryCtxRelease_v2"]
    fake.close()
    fake.close()
    assert library.calls[1:] == ["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"]
    other.enter()
    other.hold(lambda: True)  # somebody else computes there
    library.calls.clear()
    other.close()
    assert library.calls == ["cuDevicePrimaryCtxRelease_v2"]


def test_a_prepared_launch_is_the_launch(library: Fake, fake: Device) -> None:
    seen: list[Any] = []

    def launch(*words: Any) -> int:
        *plain, places, extra = words
        arguments = [ctypes.c_int.from_address(places[i]).value for i in range(2)]
        seen.append(([getattr(word, "value", word) or 0 for word in plain], arguments, extra))
        return 0

    library.answers["cuLaunchKernel"] = launch
    function, stream = cuda.Function(fake.driver, 77, "some"), Stream(fake)
    function.launch(stream, (3, 2), (128,), ctypes.c_int(5), ctypes.c_int(6))
    prepared = function.prepared(stream, (3, 2), (128,), ctypes.c_int(5), ctypes.c_int(6))
    prepared()
    prepared()
    assert seen == [seen[0]] * 3
    assert seen[0] == ([77, 3, 2, 1, 128, 1, 1, 0, 0], [5, 6], None)
    library.answers["cuLaunchKernel"] = 999
    with pytest.raises(CudaError):
        prepared()


def test_a_kernel_that_waits_starts_before_the_previous_one_ends(library: Fake, fake: Device) -> None:
    seen: list[tuple[int, int]] = []

    def launch(config: Any, *_: Any) -> int:
        words = config._obj
        seen.append((words.n_attributes, words.attributes[0].id))
        return 0

    library.answers["cuLaunchKernelEx"] = launch
    function = cuda.Function(fake.driver, 77, "some", waits=True)
    function.launch(Stream(fake), (3,), (128,))
    function.prepared(Stream(fake), (3,), (128,))()
    assert seen == [(1, 6)] * 2  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def test_launches_are_prepared_once_for_what_they_compute(library: Fake, fake: Device) -> None:
    function, stream, prepared = cuda.Function(fake.driver, 77, "some"), Stream(fake), []
    launches = cuda.Launches(most=2)

    def run(n: int) -> None:
        def prepare() -> cuda.Launch:
            prepared.append(n)
            return function.prepared(stream, (n,), (128,), ctypes.c_int(n), shared_bytes=n)

        launches.run(n, prepare)

    seen: list[Any] = []
    library.answers["cuLaunchKernel"] = lambda *words: seen.append((words[1].value, words[7].value)) or 0
    for n in (1, 2, 1, 2, 3, 3, 1):
        run(n)
    assert seen == [(n, n) for n in (1, 2, 1, 2, 3, 3, 1)]
    assert prepared == [1, 2, 3, 1]  # the third did not fit beside the two


def test_a_capture_that_fails_leaves_the_stream_usable(library: Fake, fake: Device) -> None:
    stream = Stream(fake)

    def fail() -> None:
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        stream.captured(fail)
    assert library.calls[-2:] == ["cuStreamBeginCapture_v2", "cuStreamEndCapture"]


def test_what_was_captured_is_freed_even_where_it_cannot_be_readied(library: Fake, fake: Device) -> None:
    library.answers["cuGraphInstantiateWithFlags"] = 999
    with pytest.raises(CudaError):
        Stream(fake).captured(lambda: None)
    assert library.calls[-1] == "cuGraphDestroy"


def test_the_uuid_is_written_as_nvml_writes_it(library: Fake, fake: Device) -> None:
    def give(out: Any, handle: int) -> int:
        out.raw = bytes(range(16))
        return 0

    library.answers["cuDeviceGetUuid_v2"] = give
    assert fake.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("n_bytes", [1 << 20, gpu_memory.MANY_BYTES + 4096])
def test_bytes_come_back_from_the_gpu(device: Device, n_bytes: int) -> None:
    host, memory, stream = PinnedMemory(device, n_bytes), DeviceMemory(device, n_bytes), Stream(device)
    values = host.as_array(np.uint8, n_bytes)
    values[:] = np.arange(n_bytes) % 251
    stream.upload(memory.address, host.address, n_bytes)
    stream.synchronize()
    values[:] = 0
    stream.download(host.address, memory.address, n_bytes)
    stream.synchronize()
    assert np.array_equal(values, (np.arange(n_bytes) % 251).astype(np.uint8))
    stream.fill(memory.address, 9, n_bytes)
    stream.download(host.address, memory.address, n_bytes)
    stream.synchronize()
    assert (values == 9).all()
    memory.free()
    host.free()
    stream.close()


@pytest.mark.gpu
def test_a_graph_does_again_what_was_captured(device: Device) -> None:
    host, memory, stream = PinnedMemory(device, 4), DeviceMemory(device, 4), Stream(device)
    values = host.as_array(np.uint8, 4)

    def work() -> None:
        stream.fill(memory.address, 3, 4)
        stream.download(host.address, memory.address, 4)

    graph: Graph = stream.captured(work)
    for _ in range(3):
        values[:] = 0
        graph.launch(stream)
        stream.synchronize()
        assert (values == 3).all()
    graph.close()
    memory.free()
    host.free()
    stream.close()


@pytest.mark.gpu
def test_more_than_the_gpu_has_is_out_of_memory(device: Device) -> None:
    with pytest.raises(CudaOutOfMemoryError):
        DeviceMemory(device, 1 << 46)
    DeviceMemory(device, 1 << 20).free()


@pytest.mark.parametrize(("wanted", "found"), [("", None), ("75", 75), ("89", 89)])
def test_an_older_architecture_is_tested_on_request(
    wanted: str, found: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cuda.ARCHITECTURE_VARIABLE, wanted)
    assert cuda._architecture_to_test() == found


def test_an_unknown_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cuda.ARCHITECTURE_VARIABLE, "7.5")
    with pytest.raises(CudaUnavailableError, match="75, 80, 86"):
        cuda._architecture_to_test()


def test_a_block_gets_no_more_shared_memory_than_the_older_architecture_has() -> None:
    calls: list[str] = []

    class OfStaticMemory:
        def call(self, name: str, *arguments: Any) -> None:
            calls.append(name)
            if name == "cuFuncGetAttribute":
                arguments[0]._obj.value = 1024

    kernel = cuda.Function(OfStaticMemory(), 1, "kernel", most_shared=64 << 10)  # type: ignore[arg-type]
    kernel.allow_shared(63 << 10)
    assert calls == ["cuFuncGetAttribute", "cuFuncSetAttribute"]
    with pytest.raises(CudaError, match="kernel"):
        kernel.allow_shared((63 << 10) + 1)
    assert calls[2:] == ["cuFuncGetAttribute"]
