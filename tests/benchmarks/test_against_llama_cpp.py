"""The comparison with llama.cpp: what it makes of samples, and that it runs where llama.cpp is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import against_llama_cpp
import pytest
from against_llama_cpp import Child, quartiles

SCRIPT = Path(against_llama_cpp.__file__)


def child(samples: list[tuple[int, float, float]]) -> Child:
    return Child("any", cast("subprocess.Popen[str]", None), 2, samples={"decode": samples})


def test_samples_that_waited_for_a_cpu_do_not_count() -> None:
    assert child([(0, 10.0, 0.0), (1, 5.0, 0.5), (2, 11.0, 0.01)]).rates("decode") == {0: 10.0, 2: 11.0}
    # On a machine that is never quiet there is nothing better than all of them.
    assert child([(0, 10.0, 0.3), (1, 5.0, 0.5), (2, 9.0, 0.5), (3, 11.0, 0.01)]).rates("decode").keys() == {0, 1, 2, 3}
    assert child([]).rates("prefill") == {}


def test_quartiles() -> None:
    assert quartiles([]) == (0.0, 0.0, 0.0)
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(against_llama_cpp, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["against_llama_cpp.py"])
    assert against_llama_cpp.main() == 1
    assert "llama-cpp-python is not installed" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")
def test_a_small_comparison(tmp_path: Path) -> None:
    options = "--shape tiny --rank 64 --codec q4_0 --threads 1 --rounds 2 --prefill-rounds 1 --bundle --mode exact"
    command = [sys.executable, str(SCRIPT), *options.split(), "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.strip().splitlines()
    names = [line.partition("prefill")[0].strip() for line in lines[1:]]
    assert names == ["llama.cpp", "hearth exact", "hearth exact, bundle"]
    assert all("prefill" in line and "decode" in line and line.endswith("MB") for line in lines[1:])
