"""Products of many tokens, of K-quants with one vector, and unpacked rows, for every instruction set that runs here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from native_kernels.cpu import isa, jit


@pytest.mark.parametrize("name", [one.name for one in isa.available()])
def test_every_instruction_set_here(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    here = Path(__file__).parent
    paths = [str(here), str(here.parents[1]), str(here.parents[2])]
    around = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        isa.SWITCH: name,
        jit.CACHE_VARIABLE: str(tmp_path_factory.mktemp("kernels")),
    }
    codecs = ["f16", "q4_0", "q8_0.lanes", "q4_k", "q6_k"]
    command = [sys.executable, "-W", "error", str(here / "product_checks.py"), *codecs]
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == name
