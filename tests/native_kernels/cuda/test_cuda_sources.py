"""Every .cu file compiles for every architecture, without a GPU, and no kernel spills its registers to memory."""

from __future__ import annotations

import hashlib
import inspect
import math
import pickle
import re
import struct
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from native_kernels.cuda import group_products, prefill_ops
from native_kernels.cuda.layouts import PLANE_FIELDS
from native_kernels.cuda.measure import measure_gpu
from native_kernels.cuda.runtime import modules
from native_kernels.cuda.runtime.driver import SHARED_KIB, Device
from native_kernels.cuda.runtime.modules import (
    ARCHITECTURES,
    NoMachineCodeError,
    architecture_for,
    machine_code,
    source_of,
    sources,
)
from native_kernels.cuda.runtime.nvrtc import CompilationError, Compiler, CompilerUnavailableError, compiler

REGISTERS = 1 << 16  # of a block, for all architectures
MAX_THREADS = b"\x04\x05\x0c\0"  # EIATTR_MAX_THREADS in a cubin, with three u32


@pytest.fixture(scope="module")
def nvrtc() -> Compiler:
    try:
        return compiler()
    except CompilerUnavailableError as error:
        pytest.skip(str(error))


def test_the_builtins_of_windows_are_loaded_before_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvrtc-builtins64_129.dll").touch()
    loaded: list[str] = []

    def load(path: str) -> object:
        loaded.append(Path(path).name)
        if "builtins" not in path:
            raise OSError("no library")
        return object()

    monkeypatch.setattr("ctypes.CDLL", load)
    with pytest.raises(CompilerUnavailableError):
        Compiler(str(tmp_path / "nvrtc64_120_0.dll"))
    assert loaded == ["nvrtc-builtins64_129.dll", "nvrtc64_120_0.dll"]


def test_every_kernel_waits_for_the_one_before_it() -> None:
    """Kernels start early on GPUs of 9.0, so one that does not wait would read what is not yet written."""
    loads_first = {"products", "products_each", "products_several", "neurons"}  # weights
    for name in sources():
        text, _ = source_of(name)
        first = re.findall(r"\bKERNEL\b[^{]*\{\s*(?:\\\s*)?(?:(START_NEXT); )?(\w+)", text)
        assert len(first) == len(re.findall(r"\bKERNEL\b", text)), name
        assert all(word == "WAIT" or (starts and name in loads_first) for starts, word in first), name


def _every_source_everywhere() -> list[Any]:
    """(source, architecture). Every day each source for one architecture by turns, every second time the oldest or the
    RTX 4090's; gemm_wgmma for its only one too. flash_wgmma takes 13 s of CPU time for its only one."""
    found = []
    others = [one for one in ARCHITECTURES if one not in (75, 89)]
    for (i, name), architecture in product(enumerate(sources()), ARCHITECTURES):
        turn = (75, 89)[i // 2 % 2] if i % 2 == 0 else others[i // 2 % len(others)]
        turn = 89 if name == "gemm" else turn  # 75 takes it 3 s longer
        daily = architecture == turn or (name, architecture) == ("gemm_wgmma", 90)
        found.append(pytest.param(name, architecture, marks=() if daily else pytest.mark.slow))
    return found


@pytest.fixture(scope="module")
def kept(nvrtc: Compiler, kept_folder: Callable[[str, str], Path]) -> Path:
    """What earlier runs compiled of the same sources: 20 s of CPU time."""
    made_of = nvrtc.path, nvrtc.version, Path(inspect.getfile(Compiler)).read_bytes(), list(map(source_of, sources()))
    folder = kept_folder("cuda_sources", hashlib.sha256(repr(made_of).encode()).hexdigest())
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize(("name", "architecture"), _every_source_everywhere())
def test_every_source_compiles_without_spills(nvrtc: Compiler, kept: Path, name: str, architecture: int) -> None:
    if architecture not in nvrtc.architectures():
        pytest.skip(f"NVRTC {nvrtc.version} does not know {architecture}")
    source, headers = source_of(name)
    if not (file := kept / f"{name}-{architecture}").exists():
        anew = {"COMPILED_ANEW": time.time_ns()}  # NVRTC 13 keeps what it made, and then reports nothing
        file.with_suffix(".part").write_bytes(
            pickle.dumps(nvrtc.compile(source, f"{name}.cu", architecture, anew, headers))
        )
        file.with_suffix(".part").replace(file)
    compiled = pickle.loads(file.read_bytes())
    assert compiled.code.startswith(b"\x7fELF")
    if "ptxas" not in compiled.log:
        pytest.skip(f"NVRTC {nvrtc.version} reports nothing of what it has kept")
    spilled = [int(n) for n in re.findall(r"(\d+) bytes spill", compiled.log)]
    kernels = re.findall(r"^KERNEL .*?(\w+)\((?!\d)", source, re.MULTILINE)
    assert len(spilled) == 2 * len(kernels) == 2 * len(re.findall(r"^KERNEL", source, re.MULTILINE))
    allowed = 16 if architecture in (80, 100) else 0  # four registers, on GPUs of servers
    assert max(spilled) <= allowed, compiled.log
    threads = _most_threads(compiled.code)
    registers = {
        k: int(n) for k, n in re.findall(r"entry function '(\w+)'.*?Used (\d+) registers", compiled.log, re.DOTALL)
    }
    assert registers.keys() == set(kernels)
    too_large = {k: n for k, n in registers.items() if -(-n // 8) * 8 * threads.get(k, 1024) > REGISTERS}
    assert not too_large, "no block of these kernels can be launched"
    used = re.findall(r"entry function '(\w+)'.*?Used \d+ registers([^\n]*)", compiled.log, re.DOTALL)
    static = {kernel: sum(map(int, re.findall(r"(\d+) bytes smem", rest))) for kernel, rest in used}
    shared = {kernel: n + _dynamic_shared(name, kernel, architecture) for kernel, n in static.items()}
    assert shared.keys() == set(kernels)
    assert max(shared.values()) <= SHARED_KIB[architecture] << 10
    assert "serialized" not in compiled.log  # so it tells of warpgroup products that wait for each other
    assert all(kernel.encode() in compiled.code for kernel in kernels)


def _dynamic_shared(source: str, kernel: str, architecture: int) -> int:
    """Return the bytes of shared memory that a kernel is launched with there, besides its own."""
    family, _, dim = kernel.rpartition("_")
    if source == "gemm":
        return prefill_ops.PIECES_BYTES[architecture >= 80]
    if source == "flash_wgmma":
        return prefill_ops._wgmma_bytes(int(dim)) if architecture == 90 else 0
    if source == "flash_half":
        return prefill_ops._half_bytes(int(dim))
    if family == "attend_wide" and (architecture >= 80 or int(dim) == prefill_ops._WIDE_DIMS[0]):
        return prefill_ops._wide_bytes(int(dim))
    if source == "group_gemm":
        every = map(group_products._shared_bytes, PLANE_FIELDS)
        return max(n for n in every if architecture >= 80 or n <= group_products._SMALL_SHARED)
    return 0


def _most_threads(cubin: bytes) -> dict[str, int]:
    """Return the threads of a block that each kernel's __launch_bounds__ allow, as its cubin (an ELF file) says."""
    start, size, n, names_at = (*struct.unpack_from("<Q", cubin, 40), *struct.unpack_from("<HHH", cubin, 58))
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(n)]
    texts = sections[names_at][4]
    found = {}
    for name_at, _, _, _, at, n_bytes in sections:
        name = cubin[texts + name_at : cubin.index(b"\0", texts + name_at)].decode()
        place = cubin.find(MAX_THREADS, at, at + n_bytes) if name.startswith(".nv.info.") else -1
        if place >= 0:
            found[name.removeprefix(".nv.info.")] = math.prod(struct.unpack_from("<III", cubin, place + 4))
    return found


def test_there_are_sources() -> None:
    assert "probe" in sources()


def test_a_mistake_is_told_with_its_line(nvrtc: Compiler) -> None:
    with pytest.raises(CompilationError, match=r"wrong\.cu\(2\).*undefined"):
        nvrtc.compile("\nint f() { return nothing_of_that_name; }", "wrong.cu", 75, {}, {})


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [((7, 5), 75), ((8, 6), 86), ((8, 7), 86), ((8, 9), 89), ((9, 0), 90), ((12, 1), 120)],
)
def test_code_of_the_same_major_version_runs(capability: tuple[int, int], architecture: int) -> None:
    assert architecture_for(capability) == architecture


@pytest.mark.parametrize("capability", [(7, 0), (6, 1), (13, 0)])
def test_other_gpus_have_no_code(capability: tuple[int, int]) -> None:
    with pytest.raises(NoMachineCodeError, match=rf"{capability[0]}\.{capability[1]}"):
        architecture_for(capability)


def test_machine_code_is_kept_and_damage_is_noticed(
    nvrtc: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(modules.CACHE_VARIABLE, str(tmp_path))
    modules.cache_folder.cache_clear()
    code = machine_code("probe", 75, {})
    (kept,) = tmp_path.iterdir()
    monkeypatch.setattr(modules, "compiler", lambda: pytest.fail("it was kept"))
    assert machine_code("probe", 75, {}) == code
    monkeypatch.undo()
    monkeypatch.setenv(modules.CACHE_VARIABLE, str(tmp_path))
    kept.write_bytes(kept.read_bytes()[:-7] + b"damaged")
    assert machine_code("probe", 75, {}) == code
    assert kept.read_bytes().endswith(code)
    machine_code("probe", 75, {"ANYTHING": 1})
    assert len(list(tmp_path.iterdir())) == 2
    modules.cache_folder.cache_clear()


@pytest.mark.parametrize(
    "error",
    [
        CompilerUnavailableError("NVIDIA's compiler NVRTC is not installed"),
        CompilationError("probe.cu for sm_120: NVRTC 12.6 knows no such GPU"),
    ],
)
def test_without_a_compiler_for_the_gpu_the_reason_is_told(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Compiler:
        raise error

    monkeypatch.setenv(modules.CACHE_VARIABLE, str(tmp_path))
    modules.cache_folder.cache_clear()
    monkeypatch.setattr(modules, "compiler", refuse)
    with pytest.raises(NoMachineCodeError, match="NVRTC"):
        machine_code("probe", 75, {})
    modules.cache_folder.cache_clear()


@pytest.mark.gpu
def test_a_gpu_is_measured(device: Device) -> None:
    measure_gpu(device)  # the first use lets the driver keep some memory of its own
    before = device.memory()[0]
    speed = measure_gpu(device, threads=2, ram_bytes=256 << 20)
    assert speed.reach_bytes_per_s is not None
    assert speed.beside_share is not None
    assert 0.2 * speed.pcie_bytes_per_s < speed.reach_bytes_per_s < 1.5 * speed.pcie_bytes_per_s
    assert 0.1 < speed.beside_share <= 1
    assert 50e9 < speed.bytes_per_s < 20e12
    assert 1e9 < speed.pcie_bytes_per_s < 1e12
    assert 1e-6 < speed.sync_s < 1e-3
    assert device.memory()[0] > before - (700 << 20)  # it takes 1 GiB; others may take a context meanwhile
