"""Loading onto a GPU: every row where the layout says, all of it back, whatever fails on the way."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.gpu import FakeGpu
from fakes.rows import from_planes
from samples.placements import a_placement
from samples.raw_gguf import make_tiny_powerinfer
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.assets import starter_model
from engine.conversion.convert import convert
from engine.errors import Cancelled
from engine.executor.hot_blocks import HotBlocks
from engine.gpu.weights.loading import GpuContents, LoadedGpu, load_onto_gpu
from engine.gpu.weights.uploads import Numbers, Rows, Uploader
from engine.job import Job
from engine.loading.modes import read_predictors
from engine.model.model_files import OpenedModel, open_model
from engine.model.pages import ask_for, let_go
from engine.model.weights import Hold, ModelWeights, load_weights
from engine.placement.gpu_bytes import kv_layer_bytes
from engine.placement.model_bytes import ModelBytes, PredictorBytes
from engine.sparsity.placement import Placement
from engine.sparsity.predictor import Predictor
from native_kernels.backend import I32, PackedMatrix
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import GpuMatrix
from native_kernels.cuda.layouts import gpu_codec, plane_row_bytes
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError
from native_kernels.reference import ReferenceOperators

CONTEXT = 40
POOL = Pool(2)


@dataclass(frozen=True, eq=False)
class Case:
    opened: OpenedModel
    weights: ModelWeights
    predictor: Predictor | None
    placement: Placement

    def load(self, gpu: FakeGpu, job: Job = Job(), learned: list[Any] | None = None) -> LoadedGpu:
        contents = GpuContents(self.placement, CONTEXT, "f16", learned)
        return load_onto_gpu(gpu, POOL, self.opened.config, self.weights, self.predictor, contents, job)


def case(path: Path, hold: Hold = "mapped", share: float = 0.4, predicted: bool = False) -> Case:
    opened = open_model(path)
    weights = load_weights(opened, hold=hold)
    predictor = read_predictors(opened, lambda codec: True) if predicted else None
    rng = np.random.default_rng(0)
    n, f = opened.config.n_layers, opened.config.d_ff
    hot = [np.sort(rng.choice(f, round(share * f), replace=False)).astype(np.int32) for _ in range(n)]
    return Case(opened, weights, predictor, a_placement(hot, f, head="gpu"))


@pytest.fixture
def gpu() -> Iterator[FakeGpu]:
    made = FakeGpu()
    yield made
    made.close()


def rows_of(gpu: FakeGpu, matrix: GpuMatrix) -> np.ndarray[Any, Any]:
    """What lies on the GPU, as numbers [n_rows, n_cols]."""
    planes = [
        gpu.bytes_at(address, matrix.n_rows * width).reshape(matrix.n_rows, width).copy()
        for address, width in zip(matrix.planes, plane_row_bytes(matrix.codec, matrix.n_cols), strict=True)
    ]
    return np.asarray(from_planes(planes, matrix.codec, matrix.n_cols))


def numbers(source: PackedMatrix) -> np.ndarray[Any, Any]:
    return ReferenceOperators().rows(source, np.arange(source.n_rows))


def same(gpu: FakeGpu, found: GpuMatrix | None, source: PackedMatrix, ids: I32 | None = None) -> None:
    assert found is not None
    assert (found.codec, found.n_cols) == (gpu_codec(source.codec), source.n_cols)
    wanted = numbers(source)
    np.testing.assert_array_equal(rows_of(gpu, found), wanted if ids is None else wanted[ids])


def models(tmp_path: Path) -> dict[str, Callable[[], Case]]:
    folder = make_tiny_model(tmp_path / "m", tied=False)
    return {
        "f32": lambda: case(folder, "f32"),
        "f16": lambda: case(folder, "f16"),
        "bundle q8_0": lambda: case(convert(folder, tmp_path / "b8", "q8_0").bundle),
        "bundle q4_0": lambda: case(convert(folder, tmp_path / "b4", "q4_0").bundle),
        "biases": lambda: case(make_tiny_powerinfer(tmp_path / "p.gguf", rank=8), predicted=True),
    }


@pytest.mark.parametrize("name", ["f32", "f16", "bundle q8_0", "bundle q4_0", "biases"])
def test_every_row_is_where_the_layout_says(name: str, tmp_path: Path, gpu: FakeGpu) -> None:
    made = models(tmp_path)[name]()
    steps: list[tuple[int, int]] = []
    loaded = made.load(gpu, job=Job(progress=lambda done, total: steps.append((done, total))))
    config = made.opened.config
    for i, (layer, source) in enumerate(zip(loaded.model.layers, made.weights.layers, strict=True)):
        assert layer is not None
        assert layer.block is not None
        assert layer.has_cold
        assert layer.whole is None
        hot = made.placement.hot[i]
        for part in ("q", "k", "v", "o"):
            same(gpu, getattr(layer, part), getattr(source, part))
        same(gpu, layer.block.up, source.ffns[0].up, hot)
        if source.ffns[0].gate is not None:
            same(gpu, layer.block.gate, source.ffns[0].gate, hot)
        assert source.ffns[0].down_t is not None
        same(gpu, layer.block.down_t, source.ffns[0].down_t, hot)
        np.testing.assert_array_equal(gpu.array(layer.block.neuron_in, len(hot), np.int32), hot)
        assert not gpu.array(layer.block.fired, len(hot), np.uint32).any()
        words = gpu.array(layer.hot_bits, -(-config.d_ff // 32), np.uint32)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: config.d_ff]
        np.testing.assert_array_equal(np.flatnonzero(bits), hot)
        assert layer.attention_norm is not None
        np.testing.assert_array_equal(gpu.array(layer.attention_norm.weight, config.d_model), source.attention_norm)
        assert not gpu.bytes_at(layer.kv.keys, kv_layer_bytes(config, CONTEXT, "f16")).any()
        if made.predictor is not None:
            theirs, ours = made.predictor.layers[i].low_rank, layer.predictor
            assert theirs is not None
            assert ours is not None
            assert ours.low_rank is not None
            same(gpu, ours.low_rank.a, theirs.a)
            same(gpu, ours.low_rank.b, theirs.b)
            assert ours.low_rank.threshold == theirs.threshold
            assert ours.reads_residual == (made.predictor.layers[i].input == "residual")
    same(gpu, loaded.model.head, made.weights.head)
    assert loaded.model.final_norm is not None
    assert steps[-1][0] <= steps[-1][1]
    assert steps == sorted(steps)
    loaded.close()
    loaded.close()
    assert gpu.used_bytes == 0


def test_what_it_takes_is_what_the_solver_counts(tmp_path: Path, gpu: FakeGpu) -> None:
    for name, make in models(tmp_path).items():
        made = make()
        loaded = made.load(gpu)
        model = ModelBytes.of(made.opened, made.weights)
        sizes = model.gpu_bytes
        hot = sum(len(ids) * int(n) for ids, n in zip(made.placement.hot, sizes.neuron, strict=True))
        assert loaded.part_bytes["attention"] == sizes.attention.sum(), name
        assert hot <= loaded.part_bytes["hot"] <= hot + sizes.block.sum(), name
        assert loaded.part_bytes["head"] == sizes.head, name
        kv = kv_layer_bytes(made.opened.config, CONTEXT, "f16")
        assert loaded.part_bytes["kv_cache"] == kv * made.opened.config.n_layers
        if made.predictor is not None:
            assert loaded.part_bytes["predictors"] == PredictorBytes.of(made.predictor, model).gpu_bytes.sum()
        loaded.close()


def test_a_row_wise_block_is_there_as_a_whole_or_not_at_all(tmp_path: Path, gpu: FakeGpu) -> None:
    opened = open_model(make_tiny_gguf(tmp_path / "m.gguf"))
    weights = load_weights(opened, hold="mapped")
    f = opened.config.d_ff
    everything, nothing = np.arange(f, dtype=np.int32), np.zeros(0, np.int32)
    made = Case(opened, weights, None, a_placement([everything, nothing], f))
    loaded = made.load(gpu)
    first, second = loaded.model.layers
    assert first is not None
    assert second is not None
    assert first.whole is not None
    assert (first.block, first.has_cold, second.whole, second.block, second.has_cold) == (None, False, None, None, True)
    source = weights.layers[0].ffns[0]
    assert source.down is not None
    same(gpu, first.whole.down, source.down)
    same(gpu, first.whole.up, source.up)
    sizes = ModelBytes.of(opened, weights).gpu_bytes
    assert loaded.part_bytes["hot"] <= f * sizes.neuron[0] + sizes.block[0]
    assert loaded.model.head is None
    assert loaded.hot_side is None
    loaded.close()


def test_layers_at_home_on_the_cpu_are_not_there(tmp_path: Path, gpu: FakeGpu) -> None:
    made = models(tmp_path)["f16"]()
    placement = replace(made.placement, attention=("cpu", "gpu"), hot=(np.zeros(0, np.int32), made.placement.hot[1]))
    loaded = replace(made, placement=placement).load(gpu)
    assert loaded.model.layers[0] is None
    assert loaded.hot_side is not None
    assert [len(ids) for ids in loaded.hot_side.neuron_in] == [0, len(placement.hot[1])]
    loaded.close()


def test_pages_of_a_mapped_file_are_let_go_of_and_are_the_same_when_read_again() -> None:
    weights = load_weights(open_model(starter_model()), hold="mapped")
    matrix = weights.layers[0].ffns[0].up
    before = matrix.data.copy()
    assert (let_go(matrix) > 0) == hasattr(mmap, "MADV_DONTNEED")
    np.testing.assert_array_equal(matrix.data, before)
    own = PackedMatrix.pack(np.ones((4096, 4), np.float32), "f32")
    assert let_go(own) == 0
    own.data.flags.writeable = False
    assert let_go(own) == 0
    assert own.data.all()


def test_pages_of_a_mapped_file_are_asked_for_before_its_rows_are_copied(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = load_weights(open_model(starter_model()), hold="mapped")
    matrix = weights.layers[0].ffns[0].up
    there = hasattr(mmap, "MADV_WILLNEED")
    whole = matrix.n_rows * matrix.row_bytes
    assert ask_for(matrix, 0, matrix.n_rows) >= there * whole
    assert there * 2 * matrix.row_bytes <= ask_for(matrix, 3, 5) <= 2 * matrix.row_bytes + 2 * mmap.PAGESIZE
    own = PackedMatrix.pack(np.ones((64, 32), np.float32), "f32")
    assert ask_for(own, 0, 64) == 0

    asked: list[tuple[int, int]] = []
    monkeypatch.setattr("engine.gpu.weights.uploads.ask_for", lambda source, first, last: asked.append((first, last)))
    close_by = np.array([7, 2, 4], np.int32)
    scattered = np.array([0, matrix.n_rows - 1], np.int32)
    memory = gpu.allocate(matrix.n_rows * matrix.n_cols * 4)
    to = GpuMatrix(matrix.n_rows, matrix.n_cols, gpu_codec(matrix.codec), planes_at(memory.address, matrix))
    with Uploader(gpu, POOL, 1 << 20) as uploader:
        uploader.run([Rows(matrix, to, close_by), Rows(matrix, to, scattered)])
    memory.free()
    assert asked == [(2, 8)]


def test_what_is_on_the_gpu_as_a_whole_is_let_go_of(
    tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = models(tmp_path)["biases"]()
    gone: list[int] = []
    monkeypatch.setattr("engine.gpu.weights.loading.let_go", lambda matrix: gone.append(id(matrix)) or 0)
    loaded = made.load(gpu)
    assert made.predictor is not None
    low_rank = made.predictor.layers[0].low_rank
    assert low_rank is not None
    layer = made.weights.layers[0]
    assert {id(layer.q), id(made.weights.head), id(low_rank.a), id(low_rank.b)} <= set(gone)
    assert id(layer.ffns[0].up) not in gone  # its cold rows are read where they are
    loaded.close()


def planes_at(address: int, matrix: PackedMatrix) -> tuple[int, ...]:
    widths = plane_row_bytes(gpu_codec(matrix.codec), matrix.n_cols)
    starts = np.cumsum([0, *(width * matrix.n_rows for width in widths[:-1])])
    return tuple(address + int(start) for start in starts)


def test_the_starter_model(gpu: FakeGpu) -> None:
    opened = open_model(starter_model())
    f = opened.config.d_ff
    everything = [np.arange(f, dtype=np.int32)] * opened.config.n_layers
    made = Case(opened, load_weights(opened, hold="mapped"), None, a_placement(everything, f, head="gpu"))
    loaded = made.load(gpu)
    layer = loaded.model.layers[-1]
    assert layer is not None
    assert layer.whole is not None
    same(gpu, layer.whole.down, made.weights.layers[-1].ffns[0].down)  # type: ignore[arg-type]
    loaded.close()
    assert gpu.used_bytes == 0


# --- what goes wrong


class ShortGpu(FakeGpu):
    """Memory runs out at the n-th request; n_alive: how many were given and not given back."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.left = n
        self.n_pinned = 0

    def allocate(self, n_bytes: int) -> Any:
        self._count()
        return super().allocate(n_bytes)

    def pin(self, n_bytes: int) -> Any:
        self._count()
        return super().pin(n_bytes)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CudaOutOfMemoryError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY")


def test_memory_that_runs_out_at_any_time_leaves_nothing_there(tmp_path: Path) -> None:
    made = models(tmp_path)["bundle q8_0"]()
    for n in range(100):
        gpu = ShortGpu(n)
        try:
            made.load(gpu).close()
            break
        except CudaOutOfMemoryError:
            assert gpu.used_bytes == 0
            assert not gpu._memory
        finally:
            gpu.close()
    assert 5 < n < 100


def test_cancelled_at_any_time_leaves_nothing_there(
    tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.gpu.weights.uploads.UPLOAD_BYTES", 4096)
    made = models(tmp_path)["f16"]()
    for n in range(5):
        asked = iter([False] * n + [True])
        with pytest.raises(Cancelled):
            made.load(gpu, job=Job(lambda answers=asked: next(answers)))
        assert gpu.used_bytes == 0
        assert not gpu._memory


def test_an_error_of_the_gpu_leaves_nothing_there(tmp_path: Path, gpu: FakeGpu) -> None:
    made = models(tmp_path)["f16"]()

    def fails() -> None:
        raise ArithmeticError("a fault")

    gpu.between(fails)
    with pytest.raises(CudaError, match="a fault"):
        made.load(gpu)
    assert gpu.used_bytes == 0


# --- uploader and slots


@pytest.mark.parametrize("half", [256, 1000, 1 << 20])
def test_rows_land_in_pieces_of_any_size(half: int, gpu: FakeGpu) -> None:
    rng = np.random.default_rng(0)
    source = PackedMatrix.pack(rng.normal(size=(37, 32)).astype(np.float32), "f32")
    ids = np.array([3, 4, 5, 9, 1, 36], np.int32)
    values = rng.integers(0, 255, 700).astype(np.uint8)
    memory = gpu.allocate(1 << 16)
    full = GpuMatrix(37, 32, "f32", (memory.address,))
    some = GpuMatrix(6, 32, "f32", (memory.address + 8192,))
    spread = GpuMatrix(9, 32, "f32", (memory.address + 12288,))
    places = np.array([8, 0, 2, 3, 5, 7], np.int32)
    at = memory.address + 16384
    with Uploader(gpu, POOL, half) as uploader:
        moved: list[int] = []
        jobs = [Rows(source, full), Numbers(places, at), Rows(source, some, ids), Rows(source, spread, ids, at)]
        uploader.run([*jobs, Numbers(values, memory.address + 20480)], moved.append)
    np.testing.assert_array_equal(rows_of(gpu, full), source.data)
    np.testing.assert_array_equal(rows_of(gpu, some), source.data[ids])
    np.testing.assert_array_equal(rows_of(gpu, spread)[places], source.data[ids])
    np.testing.assert_array_equal(gpu.bytes_at(memory.address + 20480, 700), values)
    assert moved[-1] == 37 * 128 + 12 * 128 + 24 + 700
    memory.free()
    assert gpu.used_bytes == 0


def test_neurons_are_exchanged_without_anything_being_laid_out_anew(tmp_path: Path, gpu: FakeGpu) -> None:
    made = models(tmp_path)["biases"]()
    loaded = made.load(gpu)
    side = loaded.hot_side
    assert side is not None
    before = gpu.used_bytes
    config, layer = made.opened.config, loaded.model.layers[1]
    assert layer is not None
    assert layer.block is not None
    blocks = HotBlocks(config, made.weights, made.placement.hot, lambda n: side)
    table = blocks.tables[1]
    gpu.array(layer.block.fired, table.n_slots, np.uint32)[:] = 7
    slots, neurons = np.array([3, 0], np.int32), table.cold[[5, 1]].copy()
    blocks.exchange(1, slots, neurons)
    np.testing.assert_array_equal(gpu.array(layer.block.neuron_in, table.n_slots, np.int32), table.neuron_in)
    source = made.weights.layers[1].ffns[0]
    same(gpu, layer.block.up, source.up, table.neuron_in)
    assert source.down_t is not None
    same(gpu, layer.block.down_t, source.down_t, table.neuron_in)
    if source.up_bias is not None:
        np.testing.assert_array_equal(gpu.array(layer.block.up_bias, table.n_slots), source.up_bias[table.neuron_in])
    words = gpu.array(layer.hot_bits, -(-config.d_ff // 32), np.uint32)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: config.d_ff]
    np.testing.assert_array_equal(np.flatnonzero(bits), table.hot)
    per_neuron = np.zeros((config.n_layers, config.d_ff), np.int64)
    blocks.collect(per_neuron)
    assert per_neuron[1].sum() == 7 * table.n_slots  # what lay there before the exchange
    assert per_neuron[1, neurons].sum() == 0
    assert gpu.used_bytes == before
    loaded.close()
    assert gpu.used_bytes == 0


def test_what_was_learned_is_loaded_instead(tmp_path: Path, gpu: FakeGpu) -> None:
    made = models(tmp_path)["f16"]()
    learned = [ids[::-1].copy() for ids in made.placement.hot]
    learned[0][0] = np.setdiff1d(np.arange(64), learned[0])[0]
    loaded = made.load(gpu, learned=learned)
    layer = loaded.model.layers[0]
    assert layer is not None
    assert layer.block is not None
    same(gpu, layer.block.up, made.weights.layers[0].ffns[0].up, learned[0])
    assert loaded.hot_side is not None
    for found, wanted in zip(loaded.hot_side.neuron_in, learned, strict=True):
        np.testing.assert_array_equal(found, wanted)
    loaded.close()
