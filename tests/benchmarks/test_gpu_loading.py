"""That the script for how long loading takes runs where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import gpu_loading
import pytest
from samples.tiny_model import make_tiny_gguf


def test_it_runs_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_tiny_gguf(tmp_path / "tiny.gguf")
    flags = ["--device", "cpu", "--context", "64", "--repeat", "2", "--record"]
    monkeypatch.setattr("sys.argv", ["gpu_loading.py", str(path), *flags])
    monkeypatch.setattr(gpu_loading, "RESULTS", tmp_path)
    assert gpu_loading.main() == 0
    assert capsys.readouterr().out.count("weights ") == 2
    recorded = json.loads(next(tmp_path.glob("gpu-loading-*.json")).read_text("utf-8"))
    assert len(recorded["loads"]) == 2
    for load in recorded["loads"]:
        assert {"opening", "tokenizer", "weights"} <= load["steps_s"].keys()
        assert 0 < sum(load["steps_s"].values()) <= load["load_s"]
