"""Products by cuBLAS: where it is found, what it is asked for, and that whatever fails leaves the kernels here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes.cublas import NOT_SUPPORTED, Library, LibraryOps, opened
from numpy.typing import NDArray
from support.arrays_on_gpu import GpuArrays, entered_device

from native_kernels.cuda import cublas_trial
from native_kernels.cuda.cublas_trial import use_library
from native_kernels.cuda.gpu import GpuMatrix
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import HostRows, RoundedRows, Rows, Tile
from native_kernels.cuda.runtime import cublas
from native_kernels.cuda.runtime.cublas import Cublas, LibraryUnavailableError, Shape, alignment, find, torch_has_begun
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError, Stream

rng = np.random.default_rng(11)


# --- where the library is


def _torch(site: Path, cuda: str | None) -> Path:
    folder = site / "torch"
    folder.mkdir(parents=True)
    told = "None" if cuda is None else repr(cuda)
    (folder / "version.py").write_text(
        f"__version__ = '2.0'\ndebug = False\ncuda: Optional[str] = {told}\nhip = None\n"
    )
    return folder


def _put(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"")


@pytest.mark.parametrize(
    ("cuda", "windows", "place"),
    [
        ("12.8", False, "nvidia/cublas/lib/libcublasLt.so.12"), ("13.0", False, "nvidia/cu13/lib/libcublasLt.so.13"),
        ("12.1", False, "torch/lib/libcublasLt.so.12"), ("12.6", True, "torch/lib/cublasLt64_12.dll"),
        ("13.0", True, "torch/lib/cublasLt64_13.dll"), ("13.0", True, "nvidia/cu13/bin/x86_64/cublasLt64_13.dll"),
    ],
)  # fmt: skip
def test_it_is_found_where_torch_brings_it(tmp_path: Path, cuda: str, windows: bool, place: str) -> None:
    torch = _torch(tmp_path, cuda)
    _put(tmp_path / place)
    found = find(torch, [], windows)
    assert found.path == tmp_path / place
    assert found.cuda == tuple(map(int, cuda.split(".")))


def test_it_may_lie_in_another_folder_of_packages(tmp_path: Path) -> None:
    torch, other = _torch(tmp_path / "user", "13.0"), tmp_path / "system"
    file = other / "nvidia/cu13/lib/libcublasLt.so.13"
    _put(file)
    assert find(torch, [str(tmp_path / "nothing"), str(other)], False).path == file


def test_why_it_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LibraryUnavailableError, match="build without CUDA"):
        find(_torch(tmp_path / "a", None), [], False)
    torch = _torch(tmp_path / "b", "13.0")
    _put(tmp_path / "b/nvidia/cu13/lib/libcublasLt.so.12")
    with pytest.raises(LibraryUnavailableError, match=r"CUDA 13\.0 is not beside it"):
        find(torch, [], False)
    (torch / "version.py").unlink()
    with pytest.raises(LibraryUnavailableError, match="does not say"):
        find(torch, [], False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LibraryUnavailableError, match="not installed"):
        find()


def test_a_file_that_is_no_library_is_a_reason(tmp_path: Path) -> None:
    ops = LibraryOps()
    _put(tmp_path / "libcublasLt.so.13")
    file = cublas.LibraryFile(tmp_path / "libcublasLt.so.13", (13, 0))
    with pytest.raises(LibraryUnavailableError, match="cannot be loaded"):
        Cublas(ops.device, ops.stream, file)


# --- a fake


SECONDS = {"own": 1.2, "library": 1.0}


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> Iterator[LibraryOps]:
    monkeypatch.setattr(cublas_trial, "_seconds", lambda ops: SECONDS["library" if ops.library else "own"])
    made = LibraryOps()
    yield made
    made.close()
    assert not made.device.driver.memory  # type: ignore[attr-defined]


def test_what_it_takes_is_given_back(ops: LibraryOps) -> None:
    library = Library()
    made = opened(ops, library)
    assert made.version == 130002
    ((address, taken),) = ops.device.driver.memory.items()  # type: ignore[attr-defined]
    assert cublas.GPU_BYTES > taken.nbytes >= cublas.WORKSPACE_BYTES
    arrays = GpuArrays(ops.device)
    out = arrays.put(np.zeros(64 * 8, np.float32))
    shape = Shape(64, 8, 16, False, False, 16, 16, 8, (16, 16, 4))
    x, w = (arrays.put(np.ones((n, 16), np.float16)) for n in (64, 8))
    product = made.product(shape, x, w, out)
    product()
    product()
    made.spare(8)
    made.product(shape, x, w, out)()
    assert [one[2] for one in library.products] == [0, 0, 124]
    assert library.calls.count("cublasLtMatmulAlgoGetHeuristic") == 2
    assert library.aligned == [(16, 16, 4)] * 2
    assert (arrays.get(out, np.float32, 64, 8) == 16).all()
    made.close()
    made.close()
    assert not library.made
    assert address not in ops.device.driver.memory  # type: ignore[attr-defined]
    arrays.close()


def test_how_far_addresses_are_aligned() -> None:
    assert alignment(1 << 20) == 256
    assert alignment((1 << 20) + 48, 1 << 12) == 16
    assert alignment(4, 0) == 4


@pytest.mark.parametrize(
    "failing",
    ["cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatrixLayoutSetAttribute", "cublasLtMatmulAlgoGetHeuristic",
     "cublasLtMatmul"],
)  # fmt: skip
def test_one_that_fails_is_not_used(ops: LibraryOps, failing: str, caplog: pytest.LogCaptureFixture) -> None:
    library = Library()
    library.answers[failing] = NOT_SUPPORTED
    with caplog.at_level("INFO"):
        is_used, words = use_library(ops, lambda ops: opened(ops, library))
    assert not is_used
    assert ops.library is None
    assert f"{failing} failed: CUBLAS_STATUS_NOT_SUPPORTED (15)" in words
    assert words in caplog.messages
    assert not library.made


def test_one_that_knows_no_way_is_not_used(ops: LibraryOps) -> None:
    library = Library()
    library.knows = False
    assert use_library(ops, lambda ops: opened(ops, library))[1].endswith("it knows no way to multiply these matrices.")
    assert not library.made


def test_one_that_is_not_faster_is_not_used(ops: LibraryOps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECONDS, "own", 1.1)
    library = Library()
    is_used, words = use_library(ops, lambda ops: opened(ops, library))
    assert not is_used
    assert words.endswith("and not by cuBLAS: cuBLAS 13.0.2 takes 91% of their time.")
    assert not library.made
    assert use_library(ops, lambda ops: opened(ops, Library()), is_forced=True)[0]


def test_whether_torch_computes_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not torch_has_begun()
    for begun in (True, False):
        cuda = SimpleNamespace(is_initialized=lambda begun=begun: begun)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        assert torch_has_begun() is begun


def test_what_was_timed_before_counts(ops: LibraryOps, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: dict[str, float] = {}

    def asked() -> tuple[bool, str]:
        found = use_library(ops, lambda ops: opened(ops, Library()), shares=shares)
        library, ops.library = ops.library, None
        if library is not None:
            library.close()
        return found

    assert asked()[0]
    assert shares == {"cuBLAS 13.0.2": pytest.approx(0.83, abs=0.01)}
    monkeypatch.setitem(SECONDS, "own", 1.1)  # today it would not be faster
    assert asked()[0]
    shares["cuBLAS 13.0.2"] = 1.2
    assert "takes 120% of their time" in asked()[1]


def test_one_for_which_there_is_no_room_is_not_used(ops: LibraryOps) -> None:
    def full(ops: GpuPrefillOps) -> Cublas:
        raise CudaOutOfMemoryError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY")

    is_used, words = use_library(ops, full)
    assert not is_used
    assert "CUDA_ERROR_OUT_OF_MEMORY" in words


def test_other_failures_of_the_gpu_are_the_gpus(ops: LibraryOps) -> None:
    def broken(ops: GpuPrefillOps) -> Cublas:
        raise CudaError("cuMemAlloc_v2", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")

    with pytest.raises(CudaError):
        use_library(ops, broken)
    assert ops.library is None


def test_one_that_multiplies_wrongly_is_not_used(ops: LibraryOps) -> None:
    library = Library()
    library.wrong = True
    is_used, words = use_library(ops, lambda ops: opened(ops, library))
    assert not is_used
    assert words.endswith(": it multiplies wrongly on this GPU.")
    assert not library.made


def test_an_older_driver_or_library_is_a_reason(ops: LibraryOps) -> None:
    is_used, words = use_library(ops, lambda ops: opened(ops, Library(), (14, 1)))
    assert (is_used, "it needs a driver for CUDA 14, and the installed one runs CUDA 13.0" in words) == (False, True)
    library = Library()
    library.missing = {"cublasLtMatmul"}
    assert "too old" in use_library(ops, lambda ops: opened(ops, library))[1]


def test_where_there_is_none_it_is_said(ops: LibraryOps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert use_library(ops) == (
        False, "Prompts are multiplied by the engine's own kernels and not by cuBLAS: PyTorch is not installed."
    )  # fmt: skip


def test_the_trial_asks_for_all_kinds_of_products(ops: LibraryOps) -> None:
    library = Library()
    is_used, words = use_library(ops, lambda ops: opened(ops, library))
    assert is_used
    assert words == (
        "Prompts are multiplied by cuBLAS 13.0.2, which came with PyTorch: it takes 83% of our own kernels' time."
    )
    assert [one[1:] for one in library.products] == [(n, left) for n in (1, 2, 1) for left in (0, 124)]
    arrays = GpuArrays(ops.device)
    for prepare in (ops.gather_nothing, lambda: ops.gather([HostRows(0, 16, 16, 0, 16)], 0, 1), ops.gather_nothing):
        prepare()
        _products(ops, arrays, 64, 24, 40, seed=1)
    assert [one[2] for one in library.products[6:]] == [0] * 5 + [124] * 5 + [0] * 5
    arrays.close()


def test_one_that_fails_later_leaves_the_products_right(ops: LibraryOps) -> None:
    """What was prepared for it in the rows that are added to is taken back."""
    arrays, library = GpuArrays(ops.device), Library()
    assert use_library(ops, lambda ops: opened(ops, library))[0]
    library.answers["cublasLtMatmul"] = NOT_SUPPORTED
    wanted, found = (_products(ops, arrays, 70, 24, 40, seed=5)[2] for _ in range(2))
    assert ops.launched.count("multiply_rows") > 1
    assert ops.library is None
    assert np.array_equal(wanted, found)
    assert ops.failure == "cublasLtMatmul failed: CUBLAS_STATUS_NOT_SUPPORTED (15)"
    assert not library.made
    arrays.close()


def test_few_positions_are_not_its_business(ops: LibraryOps) -> None:
    arrays, library = GpuArrays(ops.device), Library()
    assert use_library(ops, lambda ops: opened(ops, library))[0]
    asked = len(library.calls)
    _products(ops, arrays, cublas.LEAST_POSITIONS - 1, 24, 40, seed=1)
    assert len(library.calls) == asked
    arrays.close()


# --- products


def _products(
    ops: GpuPrefillOps, arrays: GpuArrays, n_tokens: int, n_out: int, depth: int, seed: int, backwards: bool = False
) -> list[NDArray[Any]]:
    """What all operators leave: plain with a bias, two, added to by rows, by columns and turned."""
    rng = np.random.default_rng(seed)
    step, apart, half_step = n_out + 5, 2 * n_out + 3, -(-depth // 8) * 8
    columns = depth // 2 // 8 * 8

    def halves(*shape: int) -> int:
        return arrays.put((rng.standard_normal(shape) / 8).astype(np.float16))

    x = RoundedRows(halves(n_tokens, half_step), half_step, arrays.put(_factors(n_tokens)))
    hidden_step = -(-n_out // 8) * 8
    hidden = RoundedRows(halves(n_tokens, hidden_step), hidden_step, x.factors)
    bias = arrays.put(rng.standard_normal(2 * n_out).astype(np.float32))
    both = halves(2, n_out, half_step)
    first, second = (GpuMatrix(n_out, depth, "f16", (both + 2 * i * n_out * half_step,)) for i in (0, 1))
    pair = (second, first) if backwards else (first, second)
    tile = Tile(0, 0)

    def rows(width: int) -> int:
        return arrays.put(rng.standard_normal((n_tokens, width)).astype(np.float32))

    outs = [
        (rows(step), step),
        (rows(apart), apart),
        (rows(step), step),
        (rows(step), step),
        (rows(depth + 1), depth + 1),
    ]
    at = [Rows(*one) for one in outs]
    ops.multiply(first, x, n_tokens, at[0], tile, bias)
    two = at[1], Rows(at[1].address + 4 * n_out, apart)
    ops.multiply_two(pair, x, n_tokens, two, tile, (bias, bias + 4 * n_out))
    ops.multiply(first, x, n_tokens, at[2], tile, bias, True)
    ops.multiply_columns(first, x, n_tokens, at[3], tile, 0, True, range(8, 8 + columns))
    ops.multiply_transposed(first, hidden, n_tokens, at[4], tile, 0, True)
    return [arrays.get(one.address, np.float32, n_tokens, one.step) for one in at]


def _factors(n_tokens: int) -> NDArray[Any]:
    """1, and every fourth another power of two."""
    return np.where(np.arange(n_tokens) % 4, 1.0, 2.0 ** (np.arange(n_tokens) % 90 - 80)).astype(np.float32)


def _alike(found: list[NDArray[Any]], wanted: list[NDArray[Any]], depth: int) -> None:
    """Sums of f32 in another order, of so many terms of about 1/64; tensor cores drop bits where they add."""
    size = np.sqrt(depth) / 64 * _factors(len(found[0]))[:, None]
    for one, other in zip(found, wanted, strict=True):
        error = np.abs(one - other)
        assert (error <= 2.0**-13 * size + 2e-6).all(), float((error / (size + 1e-9)).max())


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("n_tokens", "n_out", "depth"), [(64, 24, 40), (77, 9, 21)])
def test_products_are_those_of_the_kernels_here(
    ops: LibraryOps, n_tokens: int, n_out: int, depth: int, backwards: bool
) -> None:
    arrays, library = GpuArrays(ops.device), Library()
    wanted = _products(ops, arrays, n_tokens, n_out, depth, 3, backwards)
    ops.library = ops.by_library(opened(ops, library))
    ops.launched.clear()
    found = _products(ops, arrays, n_tokens, n_out, depth, 3, backwards)
    assert set(ops.launched) == {"scale_rows"}
    assert [one[1] for one in library.products] == ([1] * 6 if backwards else [1, 2, 1, 1, 1])
    _alike(found, wanted, depth)
    asked = len(library.calls)
    _alike(_products(ops, arrays, n_tokens, n_out, depth, 3, backwards), found, depth)
    assert len(library.calls) > asked
    arrays.close()


# --- on a GPU


@pytest.fixture(scope="module")
def gpu() -> Iterator[tuple[GpuPrefillOps, GpuArrays]]:
    device = entered_device()
    arrays, copies = GpuArrays(device), Stream(device)
    ops = GpuPrefillOps(device, arrays.stream, copies)
    is_used, why = use_library(ops, is_forced=True)
    if not is_used:
        pytest.skip(why)
    assert "% of our own kernels' time" in why
    yield ops, arrays
    for thing in (ops, arrays, copies, device):
        thing.close()


@pytest.mark.gpu
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("n_tokens", "n_out", "depth"),
    [(64, 8, 24), (65, 129, 77), (100, 1025, 333), (512, 640, 1000), (300, 2048, 4096), (512, 4096, 2048)],
)
def test_a_gpus_products_are_those_of_the_kernels_here(
    gpu: tuple[GpuPrefillOps, GpuArrays], n_tokens: int, n_out: int, depth: int, backwards: bool
) -> None:
    ops, arrays = gpu
    library, ops.library = ops.library, None
    wanted = _products(ops, arrays, n_tokens, n_out, depth, 3, backwards)
    ops.library = library
    found = _products(ops, arrays, n_tokens, n_out, depth, 3, backwards)
    again = _products(ops, arrays, n_tokens, n_out, depth, 3, backwards)
    assert ops.library is library
    _alike(found, wanted, max(depth, n_out))
    for one, other in zip(found, again, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.gpu
def test_a_gpu_leaves_multiprocessors_to_others(gpu: tuple[GpuPrefillOps, GpuArrays]) -> None:
    ops, arrays = gpu
    assert ops.library is not None
    wanted = _products(ops, arrays, 512, 1024, 512, 4)
    ops.library.spare(8)
    found = _products(ops, arrays, 512, 1024, 512, 4)
    ops.library.spare(0)
    _alike(found, wanted, 1024)
