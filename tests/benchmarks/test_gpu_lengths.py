"""That the script for answers from end to end runs where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import gpu_lengths
import pytest
from samples.tiny_model import make_tiny_gguf


def test_it_runs_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_tiny_gguf(tmp_path / "tiny.gguf")
    flags = [
        "--device",
        "cpu",
        "--context",
        "64",
        "--inputs",
        "1,8",
        "--outputs",
        "4",
        "--first",
        "16",
        "--in-memory",
        "--record",
    ]
    monkeypatch.setattr("sys.argv", ["gpu_lengths.py", str(path), *flags])
    monkeypatch.setattr(gpu_lengths, "RESULTS", tmp_path)
    assert gpu_lengths.main() == 0
    assert "8+4" in capsys.readouterr().out
    recorded = json.loads(next(tmp_path.glob("gpu-lengths-*.json")).read_text("utf-8"))
    run = recorded["runs"]["all"]
    assert [one["shape"] for one in run["answers"]] == ["1+4", "8+4"]
    assert all(one["tok_s"] > 0 and one["share_of_whole_gpu"] == 1 for one in run["answers"])
    assert run["first_floor_s"] == 0
    assert run["way"] == ""
