"""The ground that the CPU kernels stand on: a small kernel, compiled, cached, called by its address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import small_kernels
from support.repetitions import some_daily

import native_kernels
from native_kernels.cpu.runtime import call, isa, jit

RUN = """
import json, sys
import numpy as np
import small_kernels
from native_kernels.cpu.runtime import call, isa
rng = np.random.default_rng(1)
w, x = rng.standard_normal((5, 45), np.float32), rng.standard_normal(45, np.float32)
out = np.zeros(5, np.float32)
was_ready = small_kernels.row_dots.is_ready
call.run([call.Call(small_kernels.row_dots, call.arguments(w, x, out, 45), 5)], n_workers=2)
print(json.dumps({"isa": isa.chosen().name, "why": isa.why_unavailable(), "was_ready": was_ready,
    "error": float(np.abs(out - w @ x).max()), "asm": small_kernels.row_dots.assembly()}))
"""


def run_fresh(cache: Path, **environment: str) -> dict[str, object]:
    """What RUN finds in an interpreter of its own."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parents[2])]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), jit.CACHE_VARIABLE: str(cache), **environment}
    command = [sys.executable, "-W", "error", "-c", RUN]
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", some_daily([one.name for one in isa.available()], (isa.available()[-1].name,)))
def test_a_kernel_runs_by_its_address_on_every_instruction_set_here(name: str, tmp_path: Path) -> None:
    found = run_fresh(tmp_path, **{isa.SWITCH: name})
    assert found["isa"] == name
    assert float(str(found["error"])) < 1e-5
    assert len(found["why"]) == [one.name for one in isa.known()].index(name)  # type: ignore[arg-type]
    assembly = str(found["asm"])
    if not name.startswith(("amx", "avx512")):
        assert "%zmm" not in assembly  # the compiler is held to the set, too
    if name == "generic":
        assert "%ymm" not in assembly


def test_the_second_start_compiles_nothing(tmp_path: Path) -> None:
    assert run_fresh(tmp_path)["was_ready"] is False
    assert run_fresh(tmp_path)["was_ready"] is True


def test_the_cache_knows_sources_by_their_folder_and_counts_those_of_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "native_kernels"
    for folder in ("cpu/one", "cpu/other"):
        (package / folder).mkdir(parents=True)
    (package / "cpu/one/gemv.py").write_text("x = 1")
    monkeypatch.setattr(native_kernels, "__path__", [str(package)])
    keys = [jit._key()]
    (package / "cpu/one/gemv.py").write_text("x = 2")
    keys.append(jit._key())
    (package / "cpu/one/gemv.py").rename(package / "cpu/other/gemv.py")
    keys.append(jit._key())
    assert len(set(keys)) == 3


def test_kernels_of_files_of_one_name_have_files_of_their_own() -> None:
    def dot(args: int, lo: int, hi: int, worker: int) -> None: ...

    names = []
    for module in ("native_kernels.cpu.one.gemv", "native_kernels.cpu.other.gemv"):
        dot.__module__ = module
        names.append(jit.Kernel(dot).name)
    assert len(set(names)) == 2


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the kernels that are compiled in the test, whose folder for machine code is its own."""
    names: list[str] = []
    compiles = jit.Kernel._compile

    def compile_one(one: jit.Kernel) -> None:
        names.append(one.name)
        compiles(one)

    monkeypatch.setattr(jit.Kernel, "_compile", compile_one)
    jit.cache_folder.cache_clear()
    yield names
    jit.cache_folder.cache_clear()


def dots_by(one: jit.Kernel) -> float:
    w, x, out = np.ones((1, 9), np.float32), np.arange(9, dtype=np.float32), np.zeros(1, np.float32)
    call.run([call.Call(one, call.arguments(w, x, out, 9), 1)])
    return float(out[0])


def test_a_broken_file_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    monkeypatch.setenv(jit.CACHE_VARIABLE, str(tmp_path))
    function = small_kernels.row_dots.function
    assert [dots_by(jit.Kernel(function)) for _ in range(2)] == [36, 36]
    assert len(compiled) == 1
    [code] = tmp_path.rglob("*.code")
    code.write_bytes(code.read_bytes()[:-10])
    assert [dots_by(jit.Kernel(function)) for _ in range(2)] == [36, 36]
    assert len(compiled) == 2


def test_without_a_place_to_write_it_compiles_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv(jit.CACHE_VARIABLE, str(file))
    assert [dots_by(jit.Kernel(small_kernels.row_dots.function)) for _ in range(2)] == [36, 36]
    assert len(compiled) == 2


def test_an_unknown_instruction_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(isa.SWITCH, "mmx")
    isa.chosen.cache_clear()
    try:
        with pytest.raises(ValueError, match="mmx"):
            isa.chosen()
    finally:
        monkeypatch.undo()
        isa.chosen.cache_clear()


def test_slices_cover_every_item_once_in_order() -> None:
    for n_items in (0, 1, 7, 64, 100):
        for grain in (1, 8, 64):
            for n_workers in range(1, 9):
                ranges = call.slices(n_items, grain, n_workers)
                assert [i for lo, hi in ranges for i in range(lo, hi)] == list(range(n_items))
                assert all(lo % grain == 0 for lo, hi in ranges if lo < hi)


def test_arguments_hold_addresses_integers_and_floats() -> None:
    array = np.zeros(3, np.float32)
    block = call.arguments(array, 7, 1.5)
    assert list(block) == [array.ctypes.data, 7, np.float32(1.5).view(np.int32)]
    assert call.aligned_empty((3, 5)).ctypes.data % call.ALIGNMENT == 0
