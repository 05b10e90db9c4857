"""What of a model's weights the GPU reads where they lie: which pages, when they are pinned, when they are let go."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes.prefill import HostDevice, HostDriver, NumpyPrefillOps
from prompt_checks import CAPACITY, Setting
from samples.placement_cases import a_profile
from samples.split_model import BASE, in_a_file, random_weights
from support.arrays_on_gpu import GpuArrays

from engine.executor.dense import DenseExecutor
from engine.gpu.prefill import pinned_weights, prompts
from engine.gpu.prefill.pinned_weights import HostSpan, PinnedWeights, bytes_of, pinnable_spans
from engine.gpu.prefill.prefill import StreamingSpeed
from engine.gpu.prefill.prompts import Prompts, PromptsOfMode
from engine.gpu.prefill.streamed_layers import matrices_of
from engine.machine.measured_hardware import recall_library
from engine.model.weights import FfnWeights, ModelWeights
from native_kernels.backend import PackedMatrix
from native_kernels.cuda.runtime.driver import CudaError
from native_kernels.reference import ReferenceOperators

PAGE = mmap.PAGESIZE
PATIENCE_S = 60


class RegisteringDriver(HostDriver):
    """Writes down what is pinned: from, bytes, flags; let_go: what was. The GPU's names are the host's plus a shift
    for each piece, 0 where none is given."""

    def __init__(self, shifts: tuple[int, ...] = (), fails_at: int = -1) -> None:
        super().__init__()
        self.pinned: list[tuple[int, int, int]] = []
        self.let_go: list[int] = []
        self._shifts, self._fails_at = iter(shifts), fails_at

    def call(self, name: str, *arguments: Any) -> None:
        if name == "cuMemHostRegister_v2":
            if len(self.pinned) == self._fails_at:
                raise CudaError(name, 1, "CUDA_ERROR_INVALID_VALUE")
            self.pinned.append(arguments)  # type: ignore[arg-type]
        elif name == "cuMemHostUnregister":
            self.let_go.append(arguments[0])
        elif name == "cuMemHostGetDevicePointer_v2":
            arguments[0]._obj.value = arguments[1].value + next(self._shifts, 0)
        else:
            super().call(name, *arguments)


class RegisteringDevice(HostDevice):
    def __init__(self, *arguments: Any) -> None:
        self.number, self.driver = 0, RegisteringDriver(*arguments)


def matrix(data: Any) -> PackedMatrix:
    """Rows of bytes as halves."""
    return PackedMatrix(data.shape[0], data.shape[1] // 2, "f16", data.view(np.float16))


class Reads:
    """What reads pages in behind the load, or has done so; held: while somebody is answered."""

    def __init__(self, is_over: Callable[[], bool] = lambda: True) -> None:
        self._is_over, self.held, self.asked = is_over, False, threading.Event()

    def may_go_on(self, seconds: float) -> bool:
        self.asked.set()
        return not self.held

    def wait(self, seconds: float | None = None) -> bool:
        return self._is_over()


def all_of(weights: ModelWeights) -> list[PackedMatrix]:
    return [one for w in weights.layers for one in matrices_of(w)]


def begin(place: PinnedWeights, spans: list[HostSpan], **changes: Any) -> None:
    values: dict[str, Any] = {"keeps": None, "has_ram": lambda is_pinned: True, "reading": Reads(), **changes}
    place.begin(spans, **values)


@pytest.fixture
def device() -> RegisteringDevice:
    return RegisteringDevice()


def in_ram(at: int, n_bytes: int) -> int:
    return n_bytes


# --- which pages


def test_rows_of_neurons_that_are_neighbours_are_one_span(tmp_path: Path) -> None:
    """As a bundle has them: gate, up and down of each neuron one behind the other."""
    (tmp_path / "rows").write_bytes(bytes(100 + 300 * 96))
    rows = np.asarray(np.memmap(tmp_path / "rows", np.uint8, mode="r"))[100:].reshape(300, 96)
    w = FfnWeights(up=matrix(rows[:, 32:64]), gate=matrix(rows[:, :32]), down_t=matrix(rows[:, 64:]))
    (span,) = pinnable_spans(w.matrices)
    assert span.read_only
    assert span.start == rows.ctypes.data - 100
    assert span.end == span.start + -(-(100 + 300 * 96) // PAGE) * PAGE


def test_no_page_is_in_two_spans_and_gaps_stay_out(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(bytes(20 * PAGE))
    whole = np.asarray(np.memmap(tmp_path / "rows", np.uint8, mode="r"))

    def part(first: int, last: int) -> PackedMatrix:
        return matrix(whole[first:last].reshape(-1, 2))

    first, last = part(0, 2 * PAGE - 2), part(5 * PAGE + 10, 7 * PAGE)
    matrices = [part(3 * PAGE + 10, 5 * PAGE + 10), first, last, part(12 * PAGE, 13 * PAGE),
                part(16 * PAGE + 2, 16 * PAGE + 4)]  # fmt: skip
    start = whole.ctypes.data
    found = [((one.start - start) // PAGE, (one.end - start) // PAGE) for one in pinnable_spans(matrices)]
    assert found == [(0, 2), (3, 7), (12, 13), (16, 17)]
    assert all((one.start - start) % PAGE == (one.end - start) % PAGE == 0 for one in pinnable_spans(matrices))


def test_memory_that_can_be_written_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = random_weights(BASE)
    assert not pinnable_spans(all_of(weights)), "small arrays share their pages with others"
    monkeypatch.setattr(pinned_weights, "OWN_PAGES_BYTES", 1)
    found = pinnable_spans(all_of(weights))
    assert found
    assert not any(one.read_only for one in found)
    mapped = in_a_file(weights, tmp_path / "weights")
    (span,) = pinnable_spans(all_of(mapped))
    assert span.read_only


def test_what_files_take_is_counted_once() -> None:
    spans = [HostSpan(10, 30, True), HostSpan(50, 60, False), HostSpan(70, 80, True)]
    assert bytes_of(spans, [(0, 20), (25, 40), (75, 76)]) == 40 + 10
    assert bytes_of([], []) == 0


# --- pinning


def test_pieces_that_follow_each_other_are_found_as_one(device: RegisteringDevice) -> None:
    place = PinnedWeights(device, in_ram, 2 * PAGE)
    spans = [HostSpan(100 * PAGE, 105 * PAGE, True), HostSpan(200 * PAGE, 201 * PAGE, False)]
    assert place.find(100 * PAGE, 1) is None
    begin(place, spans)
    assert place.wait(PATIENCE_S)
    assert place.is_all
    assert place.spare()
    assert place.n_bytes == 6 * PAGE
    pinned = device.driver.pinned  # type: ignore[attr-defined]
    assert pinned == [
        (100 * PAGE, 2 * PAGE, 11),
        (102 * PAGE, 2 * PAGE, 11),
        (104 * PAGE, PAGE, 11),
        (200 * PAGE, PAGE, 3),
    ]
    assert place.find(101 * PAGE + 5, 3 * PAGE) == 101 * PAGE + 5
    assert place.find(100 * PAGE, 5 * PAGE) == 100 * PAGE
    assert place.ranges(101 * PAGE + 5, PAGE - 5) == [(101 * PAGE + 5, PAGE - 5)]
    assert place.ranges(102 * PAGE, 2 * PAGE) == [(102 * PAGE, 2 * PAGE)]
    assert place.ranges(101 * PAGE, 4 * PAGE) == [
        (101 * PAGE, PAGE), (102 * PAGE, 2 * PAGE), (104 * PAGE, PAGE),
    ]  # fmt: skip
    for address, n_bytes in ((100 * PAGE, 5 * PAGE + 1), (99 * PAGE, PAGE + 1), (201 * PAGE, 1)):
        assert place.find(address, n_bytes) is None
    place.close()
    place.close()
    assert place.find(101 * PAGE, 1) is None
    assert not place.is_all
    assert not place.spare()
    assert sorted(device.driver.let_go) == [one[0] for one in pinned]  # type: ignore[attr-defined]


def test_where_the_gpu_has_other_names_a_matrix_does_not_run_over_two_pieces() -> None:
    device = RegisteringDevice((PAGE, PAGE, 7 * PAGE))
    place = PinnedWeights(device, in_ram, PAGE)
    begin(place, [HostSpan(100 * PAGE, 103 * PAGE, True)])
    assert place.wait(PATIENCE_S)
    assert place.find(100 * PAGE, 2 * PAGE) == 101 * PAGE
    assert place.find(102 * PAGE, PAGE) == 109 * PAGE
    assert place.find(101 * PAGE, 2 * PAGE) is None
    place.close()


def test_what_the_driver_refuses_is_left_to_the_ring() -> None:
    device = RegisteringDevice((), 1)
    place = PinnedWeights(device, in_ram, PAGE)
    begin(place, [HostSpan(100 * PAGE, 103 * PAGE, True)])
    assert place.wait(PATIENCE_S)
    assert not place.is_all
    assert place.find(100 * PAGE, PAGE) is not None
    assert place.find(101 * PAGE, PAGE) is None
    place.close()
    assert device.driver.let_go == [100 * PAGE]  # type: ignore[attr-defined]


def test_a_gpu_that_refuses_memory_which_cannot_be_written(
    device: RegisteringDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostDevice, "registers_read_only", False)
    place = PinnedWeights(device, in_ram, PAGE)
    begin(place, [HostSpan(50 * PAGE, 51 * PAGE, False), HostSpan(100 * PAGE, 103 * PAGE, True)])
    assert place.wait(PATIENCE_S)
    assert device.driver.pinned == [(50 * PAGE, PAGE, 3)]  # type: ignore[attr-defined]
    place.close()


def test_pages_that_are_not_in_ram_are_waited_for_while_they_are_read(
    device: RegisteringDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.gpu.prefill.pinned_weights._ASK_AGAIN_S", 0.001)
    there, asked = set[int](), []

    def is_over() -> bool:
        asked.append(1)
        if len(asked) == 5:
            there.update((100 * PAGE, 101 * PAGE, 103 * PAGE))
        return len(asked) >= 5

    place = PinnedWeights(device, lambda at, n_bytes: n_bytes if at in there else n_bytes - 1, PAGE)
    begin(place, [HostSpan(100 * PAGE, 104 * PAGE, True)], reading=Reads(is_over))
    assert place.wait(PATIENCE_S)
    assert not place.is_all
    assert place.find(100 * PAGE, 2 * PAGE) is not None
    assert place.find(102 * PAGE, 1) is None
    assert place.find(103 * PAGE, PAGE) is not None
    place.close()


def test_no_more_is_pinned_than_there_is_room_for(device: RegisteringDevice) -> None:
    place, room = PinnedWeights(device, in_ram, PAGE), iter([True, True, True, False])
    begin(place, [HostSpan(100 * PAGE, 109 * PAGE, True)], has_ram=lambda is_pinned: not is_pinned and next(room))
    assert place.wait(PATIENCE_S)
    assert place.n_bytes == 2 * PAGE
    assert not place.is_all
    place.close()
    other = PinnedWeights(device, in_ram, PAGE)
    begin(other, [HostSpan(100 * PAGE, 109 * PAGE, True)], has_ram=lambda is_pinned: False)
    assert other.wait(0)
    assert other.n_bytes == 0


def test_it_is_let_go_of_where_the_ram_has_run_short(device: RegisteringDevice) -> None:
    place, room = PinnedWeights(device, in_ram, PAGE), {True: True, False: True}
    assert not place.spare()
    begin(place, [HostSpan(100 * PAGE, 103 * PAGE, True)], has_ram=room.__getitem__)
    assert place.wait(PATIENCE_S)
    room[False] = False
    assert place.spare()
    assert place.n_bytes == 3 * PAGE
    room[True] = False
    assert not place.spare()
    assert place.n_bytes == 0
    assert len(device.driver.let_go) == 3  # type: ignore[attr-defined]
    room[True] = room[False] = True
    begin(place, [HostSpan(100 * PAGE, 103 * PAGE, True)], has_ram=room.__getitem__)
    assert not place.spare()  # until the model is placed anew


def test_nothing_is_pinned_while_somebody_is_answered(
    device: RegisteringDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, reading = PinnedWeights(device, in_ram, PAGE), Reads()
    monkeypatch.setattr("engine.gpu.prefill.pinned_weights._HEAR_S", 0.0)
    reading.held = True
    begin(place, [HostSpan(100 * PAGE, 103 * PAGE, True)], reading=reading)
    assert reading.asked.wait(PATIENCE_S)
    assert not place.wait(0.05)
    assert place.n_bytes == 0
    reading.held = False
    assert place.wait(PATIENCE_S)
    assert place.is_all
    place.close()
    place = PinnedWeights(device, in_ram, PAGE)
    reading.held = True
    begin(place, [HostSpan(100 * PAGE, 103 * PAGE, True)], reading=reading)
    place.close()  # in an answer too
    assert place.wait(0)
    assert place.n_bytes == 0


def test_to_close_it_does_not_wait_for_the_rest(device: RegisteringDevice) -> None:
    place, kept = PinnedWeights(device, lambda at, n_bytes: 0, PAGE), SimpleNamespace()
    begin(place, [HostSpan(100 * PAGE, 103 * PAGE, True)], keeps=kept, reading=Reads(lambda: False))
    assert place.spare()
    assert not place.wait(0)
    place.close()
    assert place.wait(0)
    assert not device.driver.pinned  # type: ignore[attr-defined]
    assert not place.spare()


def test_the_mapping_stays_as_long_as_pages_of_it_are_pinned(device: RegisteringDevice) -> None:
    import weakref

    class Kept:
        pass

    kept = Kept()
    gone = weakref.ref(kept)
    place = PinnedWeights(device, in_ram, PAGE)
    begin(place, [HostSpan(100 * PAGE, 103 * PAGE, True)], keeps=kept)
    assert place.wait(PATIENCE_S)
    del kept
    assert gone() is not None
    place.close()
    assert gone() is None


# --- prompts


@pytest.fixture
def two_sides() -> Iterator[Setting]:
    ops = NumpyPrefillOps()
    arrays = GpuArrays(ops.device)
    setting = Setting(BASE, arrays, ops)
    yield setting
    setting.close()
    arrays.close()


def test_prompts_pay_sooner_once_the_gpu_gathers_itself(two_sides: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, ops = two_sides, NumpyPrefillOps()
    monkeypatch.setattr(pinned_weights, "OWN_PAGES_BYTES", 0)
    monkeypatch.setattr(prompts, "GpuPrefillOps", lambda device, stream, copies: ops)
    config, weights, operators = setting.config, setting.weights, ReferenceOperators()
    executor = DenseExecutor(config, weights, operators)
    gpu: Any = SimpleNamespace(device=ops.device, stream=ops.stream)
    place = PinnedWeights(ops.device, in_ram)
    made = Prompts(
        gpu, config, weights, setting.model, executor, operators, setting.pool, CAPACITY, "f32",
        1 << 30, StreamingSpeed(20 << 30, 50e9, 20e9, 0.1), place,
    )  # fmt: skip
    of_mode, tokens, cache = PromptsOfMode(made, executor), np.arange(12), setting.cache

    def run() -> Any:
        return of_mode.run(tokens, cache, 12, lambda share: None)  # type: ignore[arg-type]

    assert (of_mode.least_tokens, made.way) == (11, "")
    wanted = run()
    assert made.way == "ring"
    first = pinnable_spans(weights.layers[0].ffns[0].matrices)
    begin(place, first)
    assert place.wait(PATIENCE_S)
    assert of_mode.least_tokens == 5
    assert np.array_equal(run(), wanted)
    assert made.way == "both"
    assert made.measure() is not None
    place.close()
    assert of_mode.least_tokens == 11
    assert np.array_equal(run(), wanted)
    assert made.way == "ring"
    made.close()


@pytest.mark.parametrize(
    ("room", "cpu_s", "least", "way"), [(1 << 30, 10.0, 31, "ring"), (1 << 30, 0.0, 2, ""), (0, 10.0, 2, "")]
)
def test_the_cpus_layers_are_streamed_where_that_pays_and_fits(
    monkeypatch: pytest.MonkeyPatch, room: int, cpu_s: float, least: int, way: str
) -> None:
    """3 s over the bus, against 1 s in which the CPU reads them and cpu_s for each position."""
    ops = NumpyPrefillOps()
    arrays = GpuArrays(ops.device)
    setting = Setting(BASE, arrays, ops, at_home=lambda i: False)
    config, weights, operators = setting.config, setting.weights, ReferenceOperators()
    executor = DenseExecutor(config, weights, operators)
    monkeypatch.setattr(prompts, "GpuPrefillOps", lambda device, stream, copies: ops)
    n_bytes = sum(one.n_bytes for one in all_of(weights))
    monkeypatch.setattr(prompts, "_position_s", lambda operators, w: cpu_s * w.n_bytes / n_bytes)
    gpu: Any = SimpleNamespace(device=ops.device, stream=ops.stream)
    made = Prompts(
        gpu, config, weights, setting.model, executor, operators, setting.pool, CAPACITY, "f32", room,
        StreamingSpeed(0, n_bytes / 3, n_bytes, 0.1, fixed_s=0.1), PinnedWeights(ops.device, in_ram),
    )  # fmt: skip
    tokens, cache = np.arange(12), setting.cache
    found = made.run(executor, tokens, cache, 12, lambda share: None)  # type: ignore[arg-type]
    wanted = setting.oracle.forward(tokens, setting.expected)[-1:]
    assert np.abs(found - wanted).max() < 4e-3 * np.abs(wanted).max()
    assert (made.least_tokens, made.way) == (least, way)
    assert bool(made.streamed_matrices) == bool(way)
    made.close()
    setting.close()
    arrays.close()
    assert not ops.device.driver.memory  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_used", [True, False])
def test_prompts_ask_for_the_library_of_products(
    two_sides: Setting, monkeypatch: pytest.MonkeyPatch, is_used: bool
) -> None:
    asked: list[Any] = []

    def use(ops: Any, shares: dict[str, float]) -> tuple[bool, str]:
        asked.append((ops, dict(shares)))
        shares["cuBLAS"] = 0.8
        return is_used, "That is why."

    setting, ops = two_sides, NumpyPrefillOps()
    monkeypatch.setattr(prompts, "GpuPrefillOps", lambda device, stream, copies: ops)
    monkeypatch.setattr(prompts, "use_library", use)
    operators = ReferenceOperators()
    executor = DenseExecutor(setting.config, setting.weights, operators)
    gpu: Any = SimpleNamespace(device=ops.device, stream=ops.stream)
    info, taken = a_profile().gpus[0], []
    for library_bytes in (0, 1000, 1000):
        made = Prompts(
            gpu, setting.config, setting.weights, setting.model, executor, operators, setting.pool, CAPACITY, "f32",
            1 << 30, StreamingSpeed(20 << 30, 50e9, 20e9, 0.1), PinnedWeights(ops.device, in_ram), library_bytes, info,
        )  # fmt: skip
        assert made.products == ("That is why." if library_bytes else "")
        taken.append(made.n_bytes)
        made.close()
    assert asked == [(ops, {}), (ops, {"cuBLAS": 0.8})]
    assert recall_library(info) == {"cuBLAS": 0.8}
    assert recall_library(replace(info, driver="600.1")) == {}
    assert taken[1] - taken[0] == (1000 if is_used else 0)
