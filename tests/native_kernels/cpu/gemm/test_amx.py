"""Products in tiles of bfloat16: what they become, wherever this runs, and what they compute where there is AMX.

The whole of test_gemm goes through them on such a processor, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from product_checks import check_matmul, check_matmul_t, matmul, matmul_t, matrix, random

from native_kernels.cpu.gemm import gemm
from native_kernels.cpu.runtime import isa, jit

COMPILED = """
from native_kernels.cpu.runtime import isa
there = isa.features()
isa.features, isa.tiles_refused = lambda: there | isa.known()[0].needs, lambda: ""
from native_kernels.cpu.gemm import gemm_amx
from native_kernels.cpu.runtime import jit
one_part, two_parts, transposed = (
    gemm_amx.tile_kernel("q4_0"), gemm_amx.tile_kernel("f16"), gemm_amx.transposed_tile_kernel("q8_0.lanes"))
for one in (one_part, two_parts, transposed):
    found = one.assembly()
    print(one.name, *(found.count(word) for word in ("ldtilecfg", "tilerelease", "tdpbf16ps", "vcvtneps2bf16")))
"""


@pytest.mark.skipif(not isa.is_x86(), reason="this is no x86 CPU")
def test_tiles_compile_on_any_x86_cpu(tmp_path: Path) -> None:
    around = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[4]),
        "NUMBA_CPU_NAME": "sapphirerapids",
        "NUMBA_CPU_FEATURES": "",
        jit.CACHE_VARIABLE: str(tmp_path),
    }
    around.pop(isa.SWITCH, None)
    done = subprocess.run([sys.executable, "-c", COMPILED], env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        name, configured, released, products, rounded = line.split()
        assert (configured, released) == ("1", "1"), name  # once for each run of a kernel
        assert int(products) >= 8, name
        assert int(rounded) >= 1, name
    assert len(done.stdout.splitlines()) == 3


def test_tiles_say_why_they_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    amx = isa.known()[0]
    if not amx.tiles:
        pytest.skip("this is no x86 CPU")
    rest = next(one for one in isa.known() if not one.tiles)
    monkeypatch.setattr(isa, "chosen", lambda: rest)
    monkeypatch.setattr(isa, "features", lambda: amx.needs - {"amx-tile"})
    assert isa.why_unavailable() == ["amx: the CPU lacks amx-tile."]
    assert amx not in isa.available()
    monkeypatch.setattr(isa, "features", lambda: amx.needs)
    monkeypatch.setattr(isa, "tiles_refused", lambda: "the system says: Operation not supported")
    assert isa.why_unavailable() == [
        "amx: this process is not granted its registers; the system says: Operation not supported."
    ]
    assert amx not in isa.available()
    monkeypatch.setattr(isa, "tiles_refused", lambda: "")
    assert isa.available()[0] == amx


there_is_amx = pytest.mark.skipif(not isa.chosen().tiles, reason=" ".join(isa.why_unavailable()) or "switched off")


@there_is_amx
@pytest.mark.parametrize("name", ["f16", "bf16", "q4_0", "q8_0.lanes", "q6_k"])
def test_many_tokens(name: str) -> None:
    assert gemm.form_of(name, 64).endswith("tiles")
    check_matmul(name, 64, 300, 2304, apart=7)
    check_matmul(name, 531, 33, 768)
    check_matmul_t(name, 64, 1300, 768, apart=7)
    check_matmul_t(name, 531, 33, 768)


@there_is_amx
def test_results_do_not_depend_on_threads_or_on_how_often() -> None:
    for name in ("f16", "q4_0"):
        w, _ = matrix(name, 331, 768)
        x, h = random(77, 768), random(77, 331)
        found, found_t = matmul(x, w), matmul_t(h, w)[0]
        for n_workers in range(1, 9):
            assert np.array_equal(matmul(x, w, n_workers), found)
            assert np.array_equal(matmul_t(h, w, n_workers)[0], found_t)


@there_is_amx
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_token(bad: float) -> None:
    for name in ("f16", "q4_0"):
        w, _ = matrix(name, 40, 512)
        x = random(70, 512)
        clean = matmul(x, w)
        x[33, 77] = bad
        found = matmul(x, w)
        assert not np.isfinite(found[33]).any(), name
        assert np.array_equal(np.delete(found, 33, 0), np.delete(clean, 33, 0)), name
