"""Products by warpgroups: every way to cut one into blocks against NumPy, and all of them the same bits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from prefill_on_gpu import PrefillOnGpu

from native_kernels.cuda.operands import Operand, Product, Result
from native_kernels.cuda.runtime.driver import Stream
from native_kernels.cuda.runtime.launch_config import LaunchConfig
from native_kernels.cuda.wgmma_products import (
    WIDTHS,
    Tiling,
    WgmmaProducts,
    most_stages,
    stage_bytes,
    tiling_for,
)

F16, F32 = NDArray[np.float16], NDArray[np.float32]
rng = np.random.default_rng(9)
CLUSTERS = [(1, 1), (2, 1), (1, 2), (2, 2)]
WAYS = [(64, 2), (64, 5), (128, 3), (128, 6), (192, 3), (192, 5)]  # outputs of a block, stages


@pytest.mark.parametrize("n_multiprocessors", [78, 114, 132])
@pytest.mark.parametrize(("n_tokens", "n_out"), [(1, 1), (64, 4096), (128, 100), (512, 2048), (600, 28672), (300, 77)])
@pytest.mark.parametrize("n_products", [1, 2])
def test_blocks_fit_onto_a_multiprocessor(n_multiprocessors: int, n_tokens: int, n_out: int, n_products: int) -> None:
    found = tiling_for(n_tokens, n_out, n_products, n_multiprocessors)
    assert found.width in WIDTHS
    assert found.stages >= 3
    assert found.shared_bytes + 1024 <= 227 << 10
    assert all(size in (1, 2) for size in found.cluster)


@pytest.mark.parametrize(
    ("n_tokens", "n_out", "n_products", "width", "cluster"),
    [(512, 2048, 1, 64, (1, 1)), (512, 2048, 2, 128, (2, 1)), (512, 5120, 1, 192, (2, 2)), (512, 8192, 1, 128, (2, 1)),
     (512, 28672, 1, 128, (2, 1)), (300, 8192, 1, 192, (1, 2)), (300, 4096, 1, 128, (1, 1))],
)  # fmt: skip
def test_blocks_are_as_wide_as_it_takes_that_all_run_at_once(
    n_tokens: int, n_out: int, n_products: int, width: int, cluster: tuple[int, int]
) -> None:
    found = tiling_for(n_tokens, n_out, n_products, 132)
    assert (found.width, found.cluster) == (width, cluster)


def test_as_many_stages_as_there_is_room_for() -> None:
    assert stage_bytes(128) == 32 << 10
    assert [most_stages(width, 1) for width in WIDTHS] == [8, 7, 5]
    assert [most_stages(width, 2) for width in WIDTHS[:2]] == [4, 3]


class Driver:
    """Takes the place of the driver: what it is asked to describe, and what is launched."""

    def __init__(self) -> None:
        self.maps: list[tuple[int, list[int], int, list[int]]] = []
        self.launched: list[tuple[str, Any, Any, Any, Any]] = []

    def call(
        self, name: str, to: Any, kind: int, rank: int, at: int, sizes: Any, steps: Any, box: Any, *_: Any
    ) -> None:
        assert (name, kind, rank, ctypes.addressof(to._obj) % 64) == ("cuTensorMapEncodeTiled", 6, 2, 0)
        to._obj.words[0] = at
        self.maps.append((at, list(sizes._obj), steps._obj[0], list(box._obj)))

    def function(self, name: str) -> Any:
        def prepared(
            stream: Any, grid: Any, block: Any, *arguments: Any, shared_bytes: int, cluster: Any
        ) -> Callable[[], None]:
            return lambda: self.launched.append((name, tuple(grid), arguments, shared_bytes, cluster))

        return SimpleNamespace(allow_shared=lambda n_bytes: None, prepared=prepared)


def test_a_product_is_launched_in_whole_clusters_and_its_maps_are_kept() -> None:
    driver = Driver()
    device: Any = SimpleNamespace(driver=driver, n_multiprocessors=132)
    products, stream = WgmmaProducts(device, driver.function), cast(Stream, SimpleNamespace(handle=1))
    products.tiling_for = lambda *_: Tiling(128, (2, 2), 3)
    x, w = Operand(1024, 300, 77, 80), Operand(4096, 500, 77, 88)
    one, other = Result(64, 512, 0), (Operand(8192, 500, 77, 88), Result(96, 512, 5))
    products.launch(stream, Product("rows", x, 7, w, one))
    products.launch(stream, Product("rows", x, 7, w, one, True, other))
    assert driver.maps == [
        (1024, [77, 300], 160, [64, 64]), (4096, [77, 500], 176, [64, 64]), (8192, [77, 500], 176, [64, 64]),
    ]  # fmt: skip
    (name, grid, arguments, shared, cluster), second = driver.launched
    assert (name, grid, shared, cluster) == ("multiply_rows_128", (4, 4, 1), 3 * (32 << 10) + 48, (2, 2))
    assert [one.words[0] for one in arguments[:3]] == [1024, 4096, 4096]
    assert [one.value for one in arguments[3:]] == [64, 512, 7, 0, 300, 500, 77, 0, 64, 0, 3]
    assert second[1] == (4, 4, 2)
    assert [one.words[0] for one in second[2][:3]] == [1024, 4096, 8192]
    assert [one.value for one in second[2][10:]] == [1, 96, 5, 3]


def test_a_launch_in_clusters_is_described_as_the_driver_reads_it() -> None:
    config = LaunchConfig.of((4, 6, 1), (288, 1, 1), 5000, 77, (2, 1, 1))
    assert (list(config.grid), list(config.block), config.shared_bytes, config.stream) == (
        [4, 6, 1],
        [288, 1, 1],
        5000,
        77,
    )
    attribute = config.attributes.contents
    assert (config.n_attributes, attribute.id, list(attribute.value)[:4]) == (1, 4, [2, 1, 1, 0])
    assert (ctypes.sizeof(config), ctypes.sizeof(attribute)) == (56, 72)


class Setting(PrefillOnGpu):
    """With the products by warpgroups."""

    @property
    def products(self) -> WgmmaProducts:
        if self.ops.wgmma is None:
            pytest.skip("the GPU has no warpgroup products")
        return self.ops.wgmma

    def operand(self, values: F16, step: int) -> Operand:
        """NaN follows each row."""
        n_rows, n_cols = values.shape
        rows = np.full((n_rows, step), np.nan, np.float16)
        rows[:, :n_cols] = values
        return Operand(self.arrays.put(rows), n_rows, n_cols, step)


@pytest.fixture(scope="module")
def gpu() -> Iterator[Setting]:
    made = Setting()
    yield made
    made.close()


def _step(n: int) -> int:
    return -(-n // 8) * 8 + 8


def _product(
    gpu: Setting, kind: Any, x: F16, weights: list[F16], tiling: Tiling, biases: Any = None, before: Any = None,
    factors: Any = None, odd: bool = False,
) -> list[F32]:  # fmt: skip
    products, n_tokens, depth = gpu.products, *x.shape
    n_out = weights[0].shape[0]
    step = n_out + (1 if odd else 2 - n_out % 2)
    places = []
    for i in range(len(weights)):
        rows = np.full((n_tokens, step), np.nan, np.float32)
        if before is not None:
            rows[:, :n_out] = before[i]
        places.append(gpu.arrays.put(rows))
    laid = [w if kind == "rows" else np.ascontiguousarray(w.T) for w in weights]
    operands = [gpu.operand(w, _step(w.shape[1])) for w in laid]
    shifts = [0 if biases is None else gpu.arrays.put(biases[i]) for i in range(len(weights))]
    results = [Result(at, step, bias) for at, bias in zip(places, shifts, strict=True)]
    other = (operands[1], results[1]) if len(weights) > 1 else None
    usual, products.tiling_for = products.tiling_for, lambda *_: tiling
    try:
        scales = 0 if factors is None else gpu.arrays.put(factors)
        product = Product(
            kind, gpu.operand(x, _step(depth)), scales, operands[0], results[0], before is not None, other
        )  # fmt: skip
        products.launch(gpu.arrays.stream, product)
    finally:
        products.tiling_for = usual
    found = [gpu.arrays.get(at, np.float32, n_tokens, step) for at in places]
    assert all(np.isnan(one[:, n_out:]).all() for one in found)  # nothing behind a row is touched
    return [one[:, :n_out] for one in found]


@pytest.mark.gpu
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize(
    ("n_tokens", "n_out", "depth"),
    [(1, 8, 8), (5, 77, 77), (64, 128, 64), (129, 300, 200), (257, 520, 1000), (600, 129, 72), (512, 1024, 4096)],
)
def test_every_way_to_cut_a_product_makes_the_same_bits(
    gpu: Setting, kind: str, n_tokens: int, n_out: int, depth: int, cluster: tuple[int, int]
) -> None:
    n_weights = 2 if kind == "rows" else 1
    x = rng.standard_normal((n_tokens, depth)).astype(np.float16)
    weights = [rng.standard_normal((n_out, depth)).astype(np.float16) for _ in range(n_weights)]
    wanted = [x.astype(np.float32) @ w.T.astype(np.float32) for w in weights]
    first = _product(gpu, kind, x, weights, Tiling(64, (1, 1), 4))
    for one, right in zip(first, wanted, strict=True):
        assert np.abs(one - right).max() <= 2e-6 * depth + 1e-5
    for width, stages in WAYS:
        cut = Tiling(width, cluster, stages)
        for one, other in zip(first, _product(gpu, kind, x, weights, cut), strict=True):
            assert np.array_equal(one, other), cut
    alone = _product(gpu, kind, x[-1:], weights, Tiling(128, (1, 1), 4))
    for one, other in zip(first, alone, strict=True):
        assert np.array_equal(one[-1:], other)  # whoever is beside a position


@pytest.mark.gpu
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(("n_tokens", "n_out", "depth"), [(130, 330, 260), (300, 63, 96)])
@pytest.mark.parametrize("kind", ["rows", "columns"])
def test_factors_biases_and_what_is_added_to(
    gpu: Setting, kind: str, n_tokens: int, n_out: int, depth: int, odd: bool
) -> None:
    x = rng.standard_normal((n_tokens, depth)).astype(np.float16)
    weights = [rng.standard_normal((n_out, depth)).astype(np.float16) for _ in range(2 if kind == "rows" else 1)]
    factors = (2.0 ** rng.integers(-3, 4, n_tokens)).astype(np.float32)
    biases, before = (rng.standard_normal((2, *shape)).astype(np.float32) for shape in ((n_out,), (n_tokens, n_out)))
    for tiling in (Tiling(64, (2, 2), 4), Tiling(128, (2, 1), 3), Tiling(192, (1, 1), 3)):
        found = _product(gpu, kind, x, weights, tiling, biases, before, factors, odd)
        for i, w in enumerate(weights):
            right = x.astype(np.float64) @ w.T.astype(np.float64) * factors[:, None] + biases[i] + before[i]
            assert np.abs(found[i] - right).max() <= 1e-4 * factors.max()
