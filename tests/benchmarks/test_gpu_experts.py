"""That the script for models with experts measures them on GPU and CPU, and compares both with llama-bench."""

from __future__ import annotations

import argparse
import json
import stat
import sys
from pathlib import Path

import gpu_experts
import pytest
from fakes.gpu_machine import FakeGpuMachine, same_scratch_for_every_budget
from samples.placement_cases import a_profile
from support.systems import ON_WINDOWS

from engine.session.loaded_model import LoadedModel
from engine.sparsity.placement import Placement

GIB = 2**30
PEER = """#!{python}
import json, os, sys
ncmoe = int(sys.argv[sys.argv.index("-ncmoe") + 1]) if "-ncmoe" in sys.argv else -1
assert (os.environ.get("CUDA_VISIBLE_DEVICES") == "") == (ncmoe == -1)
if ncmoe == 2:
    sys.exit("out of memory")
prompts = [int(n) for n in sys.argv[sys.argv.index("-p") + 1].split(",")]
tests = [dict(n_prompt=n, n_gen=0, avg_ts=1000.0) for n in prompts]
print(json.dumps([*tests, dict(n_prompt=0, n_gen=8, avg_ts=10.0 - ncmoe)]))
"""


@pytest.mark.skipif(ON_WINDOWS, reason="the fake for llama-bench is a script with a #! line")
def test_it_compares_budgets_with_the_cpu_and_with_llama_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    same_scratch_for_every_budget(monkeypatch)
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    cpu = gpu_experts.load
    placements: list[Placement] = []

    def load(flags: argparse.Namespace, path: Path, budget: str) -> LoadedModel:
        if budget == "cpu":
            return cpu(flags, path, budget)
        limit = None
        if budget == "1":  # all but about half of the experts
            limit = (placements[0].vram_bytes - placements[0].hot_bytes * 0.45) / GIB
        model = machine.load(path, vram_budget_gib=limit, context=flags.context)
        assert model.gpu is not None
        placements.append(model.gpu.placement)
        return model

    monkeypatch.setattr(gpu_experts, "load", load)
    monkeypatch.setattr(gpu_experts, "measured", lambda model: a_profile())
    monkeypatch.setattr(gpu_experts, "RESULTS", tmp_path)
    peer = tmp_path / "llama-bench"
    peer.write_text(PEER.format(python=sys.executable))
    peer.chmod(peer.stat().st_mode | stat.S_IXUSR)
    flags = ["--shape", "gpt-oss-tiny", "--codec", "q8_0", "--folder", str(tmp_path), "--threads", "1"]
    flags += ["--budget", "cpu", "--budget", "all", "--budget", "1", "--context", "64", "--gen-tokens", "8"]
    flags += ["--repeat", "1", "--prefill", "16,32", "--llama-bench", str(peer), "--ncmoe", "2,0", "--record"]
    monkeypatch.setattr("sys.argv", ["gpu_experts.py", *flags])
    assert gpu_experts.main() == 0
    recorded = json.loads(next(tmp_path.glob("gpu-experts-gpt-oss-tiny-q8_0-*.json")).read_text("utf-8"))
    alone, whole, part = (recorded["runs"][budget] for budget in ("cpu", "all", "1"))
    assert alone["hit_rate"] == alone["bytes_per_token"]["gpu"] == 0
    assert (whole["hit_rate"], whole["resident_share"], whole["bytes_per_token"]["cpu"]) == (1, 1, 0)
    assert 0 < part["hit_rate"] < 1
    assert 0.4 < part["resident_share"] < 0.7
    assert sum(part["bytes_per_token"].values()) == pytest.approx(whole["bytes_per_token"]["gpu"], abs=1)
    assert sum(whole["bytes_per_token"].values()) == pytest.approx(alone["bytes_per_token"]["cpu"], abs=1)
    for found in (whole, part):
        assert found["same_text_as_cpu"]
        assert found["logits_off"] < 0.05
        assert set(found["prefill_tok_s"]) == {"16", "32"}
    out_of_memory = next(one for one in recorded["llama_cpp"] if one["ncmoe"] == 2)
    assert out_of_memory["error"] == "out of memory"
    assert whole["against_llama_cpp"]["decode"] == pytest.approx(whole["decode_tok_s"] / 10)
    assert alone["against_llama_cpp"]["decode"] == pytest.approx(alone["decode_tok_s"] / 11)
    assert "the same text as the CPU alone" in capsys.readouterr().out
