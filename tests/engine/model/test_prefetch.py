"""Reading a mapped model in behind the load: what is read, in which order, and what ends it."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.assets import starter_model
from engine.config import EngineConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.model import prefetch
from engine.model.model_files import open_model
from engine.model.pages import mapping_of
from engine.model.prefetch import CHUNK_BYTES, Prefetch, Span, parts_of, resident_bytes, spans_of
from engine.model.weights import load_weights
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from native_kernels.backend import PackedMatrix

PAGE = mmap.PAGESIZE
PATIENCE_S = 60.0


def a_mapped_matrix(folder: Path, n_rows: int, row_bytes: int) -> PackedMatrix:
    path = folder / "rows.bin"
    path.write_bytes(bytes(n_rows * row_bytes))
    data = np.memmap(path, np.uint8, mode="r").reshape(n_rows, row_bytes)
    return PackedMatrix.view(np.asarray(data), n_rows, row_bytes // 4, "f32")


def nothing(address: int, n_bytes: int) -> None:
    """Nobody is told."""


class System:
    """A fake for the system that is advised. asked: (address, bytes) in their order."""

    def __init__(self, free: int = 1 << 40, resident: int = 0) -> None:
        self.free, self.there = free, resident
        self.asked: list[tuple[int, int]] = []
        self.requested: list[tuple[int, int]] = []

    def advise(self, address: int, n_bytes: int) -> bool:
        self.asked.append((address, n_bytes))
        return True

    def request(self, address: int, n_bytes: int) -> None:
        self.requested.append((address, n_bytes))
        assert len(self.requested) <= len(self.asked) + 5, "no more than some of them are the disk's at once"

    def read(self, spans: list[Span], is_partial: bool = False) -> Prefetch:
        return Prefetch(
            spans, None, lambda: self.free, self.advise, lambda at, n: min(n, self.there), self.request, is_partial
        )


# --- what is read


def test_rows_that_lie_apart_in_a_bundle_are_a_files_too(tmp_path: Path) -> None:
    bundle = convert(make_tiny_model(tmp_path / "m", d_model=128, d_ff=512), tmp_path / "b", "q8_0").bundle
    weights = load_weights(open_model(bundle), hold="mapped")
    for w in weights.layers:
        for matrix in (w.ffns[0].gate, w.ffns[0].up, w.ffns[0].down_t):
            assert matrix is not None
            assert not matrix.data.flags.c_contiguous, "the rows of a neuron lie side by side"
            assert mapping_of(matrix) is not None
            at = matrix.data.ctypes.data
            ((start, end),) = spans_of([(matrix, None)])
            assert start <= at < at + (matrix.n_rows - 1) * matrix.data.strides[0] + matrix.row_bytes <= end
    copied = load_weights(open_model(bundle), hold="f32")
    assert spans_of(parts_of(copied)) == []


def test_pages_of_cold_rows_are_read_and_no_others(tmp_path: Path) -> None:
    matrix = a_mapped_matrix(tmp_path, 400, PAGE)
    at = matrix.data.ctypes.data
    ids = np.array([3, 4, 9, 200, 399], np.int32)
    assert spans_of([(matrix, ids)]) == [
        (at + 3 * PAGE, at + 10 * PAGE),  # what lies between two that are close is read with them
        (at + 200 * PAGE, at + 201 * PAGE),
        (at + 399 * PAGE, at + 400 * PAGE),
    ]
    assert spans_of([(matrix, None)]) == [(at, at + 400 * PAGE)]
    some = np.array([0, 300], np.int32)
    assert spans_of([(matrix, ids), (matrix, some)])[0] == (at, at + 10 * PAGE)
    own = PackedMatrix.pack(np.ones((64, 64), np.float32), "f32")
    assert spans_of([(own, None)]) == []


def test_a_models_cold_parts() -> None:
    weights = load_weights(open_model(starter_model()), hold="mapped")
    everything = sum(end - start for start, end in spans_of(parts_of(weights)))
    n_bytes = sum(matrix.n_bytes for matrix, _ in parts_of(weights)[:1])
    assert everything >= weights.layers[0].ffns[0].up.n_bytes * len(weights.layers) + n_bytes
    f = weights.layers[0].ffns[0].up.n_rows
    all_hot = [np.arange(f, dtype=np.int32) for _ in weights.layers]
    assert [one for one, _ in parts_of(weights, all_hot, head_on_gpu=True)] == [weights.embedding]
    at_home_here: list[np.ndarray | None] = [None, *all_hot[1:]]
    found = [one for one, _ in parts_of(weights, at_home_here, head_on_gpu=True)]
    assert any(one is weights.layers[0].q for one in found)
    assert not any(one is weights.layers[1].q for one in found)
    some = [np.arange(0, f, 2, dtype=np.int32) for _ in weights.layers]
    cold = next(ids for one, ids in parts_of(weights, some) if one is weights.layers[1].ffns[0].up)
    assert cold is not None
    assert cold.tolist() == list(range(1, f, 2))


def test_it_is_read_in_order_and_in_pieces() -> None:
    system = System()
    spans = [(PAGE, PAGE + 13 * CHUNK_BYTES + 5 * PAGE), (1 << 40, (1 << 40) + PAGE)]
    reading = system.read(spans)
    assert reading.wait(PATIENCE_S)
    assert system.asked == sorted(system.asked) == system.requested
    assert max(n for _, n in system.asked) == CHUNK_BYTES
    assert sum(n for _, n in system.asked) == reading.read_bytes == 13 * CHUNK_BYTES + 6 * PAGE


@pytest.mark.skipif(sys.platform != "linux", reason="residency is asked of Linux")
def test_pages_that_were_on_the_disk_alone_are_in_memory_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "rows.bin"
    path.write_bytes(os.urandom(600 * PAGE))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    data = np.asarray(np.memmap(path, np.uint8, mode="r")).reshape(600, PAGE)
    matrix = PackedMatrix.view(data, 600, PAGE // 4, "f32")
    spans = spans_of([(matrix, None)])
    at, n_bytes = spans[0][0], spans[0][1] - spans[0][0]
    if resident_bytes(at, n_bytes):
        pytest.skip("this file system keeps its files in memory")
    reading = Prefetch(spans, matrix, free_bytes=lambda: 1 << 40)
    assert reading.wait(PATIENCE_S)
    assert reading.read_bytes == n_bytes
    assert resident_bytes(at, n_bytes) == n_bytes


# --- what ends it


def test_closing_stops_it_between_two_pieces() -> None:
    system, begun, goes_on = System(), threading.Event(), threading.Event()

    def advise(address: int, n_bytes: int) -> bool:
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        return system.advise(address, n_bytes)

    reading = Prefetch([(0, 100 * CHUNK_BYTES)], None, lambda: 1 << 40, advise, lambda at, n: 0, nothing)
    assert begun.wait(PATIENCE_S)
    closer = threading.Thread(target=reading.close)
    closer.start()
    assert reading._stop.wait(PATIENCE_S)
    goes_on.set()
    closer.join(PATIENCE_S)
    reading.close()
    assert system.asked == [(0, CHUNK_BYTES)]


def test_it_waits_while_it_is_held_and_can_be_closed_then() -> None:
    system, begun, goes_on = System(), threading.Event(), threading.Event()

    def advise(address: int, n_bytes: int) -> bool:
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        return system.advise(address, n_bytes)

    reading = Prefetch([(0, 3 * CHUNK_BYTES)], None, lambda: 1 << 40, advise, lambda at, n: 0, nothing)
    assert begun.wait(PATIENCE_S)
    with reading.held():
        with reading.held():
            goes_on.set()
        assert not reading.wait(0.2)
        assert len(system.asked) == 1
    assert reading.wait(PATIENCE_S)
    assert len(system.asked) == 3

    reading = Prefetch([(0, 3 * CHUNK_BYTES)], None, lambda: 1 << 40, system.advise, lambda at, n: 0, nothing)
    with reading.held():
        reading.close()


def test_nothing_is_read_where_the_ram_does_not_hold_it() -> None:
    system = System(free=2 << 30)
    reading = system.read([(0, 8 << 30)])
    assert reading.wait(PATIENCE_S)
    assert not system.asked


def test_what_is_in_memory_needs_no_room() -> None:
    system = System(free=0, resident=1 << 40)
    reading = system.read([(0, 2 * CHUNK_BYTES)])
    assert reading.wait(PATIENCE_S)
    assert len(system.asked) == 2
    assert not system.requested


def test_what_may_stay_on_the_disk_is_read_as_far_as_the_ram_goes() -> None:
    gib, others, experts = 1 << 30, (0, 64 << 20), (1 << 40, (1 << 40) + (4 << 30))
    system = System(free=2 * gib)
    reading = system.read([others, experts], is_partial=True)
    assert reading.wait(PATIENCE_S)
    assert system.asked[0] == (0, CHUNK_BYTES)
    assert reading.read_bytes == gib  # what is free, less the margin
    assert max(at for at, _ in system.asked) == experts[0] + gib - (64 << 20) - CHUNK_BYTES
    enough = System(free=8 * gib)
    reading = enough.read([others, experts], is_partial=True)
    assert reading.wait(PATIENCE_S)
    assert reading.read_bytes == 4 * gib + (64 << 20)


def test_it_ends_where_the_ram_runs_short_meanwhile() -> None:
    system = System(free=1 << 40)

    def advise(address: int, n_bytes: int) -> bool:
        system.free = 0
        return system.advise(address, n_bytes)

    reading = Prefetch([(0, 4 << 30)], None, lambda: system.free, advise, lambda at, n: 0, nothing)
    assert reading.wait(PATIENCE_S)
    assert 0 < reading.read_bytes < 1 << 30


def test_it_ends_in_silence_where_the_system_refuses() -> None:
    def fails(address: int, n_bytes: int) -> bool:
        raise OSError(5, "a disk that cannot be read")

    for advise in (fails, lambda address, n_bytes: False):
        reading = Prefetch([(0, 1 << 30)], None, lambda: 1 << 40, advise, lambda at, n: 0, nothing)
        assert reading.wait(PATIENCE_S)
        assert reading.read_bytes == 0


# --- loaded models


def test_a_model_of_the_cpu_is_read_in_once_it_is_loaded() -> None:
    loaded = LoadedModel.load(starter_model(), EngineConfig(device="cpu", threads=1, backend="kernels"))
    assert loaded.weights.hold == "mapped"
    assert loaded.reading is not None
    assert loaded.reading.wait(PATIENCE_S)
    if sys.platform == "linux":
        assert loaded.reading.read_bytes >= loaded.weights.n_bytes // 2
    answer = ChatSession(loaded).generate([1, 2, 3], SamplingConfig(temperature=0.0, max_tokens=2))
    next(answer)
    assert loaded.reading._holders == 1, "it does not read while somebody is answered"
    assert not loaded.reading.may_go_on(0)
    answer.close()
    assert loaded.reading._holders == 0
    assert loaded.reading.may_go_on(0)
    assert loaded.wait_for_weights(0)
    loaded.close()


def test_a_model_with_a_gpu_is_read_in_where_the_gpu_does_not_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    asked: list[Span] = []
    monkeypatch.setattr(prefetch, "advised", lambda at, n: asked.append((at, at + n)) or True)
    model = machine.load(make_tiny_model(tmp_path / "m", d_ff=256))
    assert model.gpu is not None
    assert model.reading is None
    reading = model.gpu.reading
    assert reading is not None
    assert reading.wait(PATIENCE_S)
    own = model.weights.embedding.data
    assert model.weights.hold != "mapped" or any(start <= own.ctypes.data < end for start, end in asked)
    model.close()
    assert model.on_gpu is not None
    assert model.on_gpu.placed.reading is None
