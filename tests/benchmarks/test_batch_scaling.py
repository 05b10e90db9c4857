"""The sizes of a batch are held against floors by one figure of the RAM, however often it was read."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import batch_scaling
import pytest
from fakes.batch_operators import FakeBatchOps
from fakes.gpu_machine import FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.evaluation import bench, bench_batch
from engine.gpu import loaded_part


def test_all_floors_are_by_the_median_of_all_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_part, "batch_ops", FakeBatchOps)
    machine, readings = FakeGpuMachine(tmp_path, monkeypatch), iter((1e9, 2e9, 9e9, 5e9, 5e9, 4e9))
    read = bench.measured

    def measured(model: Any) -> Any:
        found = read(model)
        return replace(found, cpu=replace(found.cpu, bytes_per_s=next(readings)))

    for module in (bench, bench_batch, batch_scaling):
        monkeypatch.setattr(module, "measured", measured)
    model = machine.load(make_tiny_model(tmp_path / "model"), sequences=3, context=16)
    found = batch_scaling.on_a_gpu(model, [1, 2, 3], argparse.Namespace(gen_tokens=4, rounds=1))
    assert found["ram_bytes_per_s"] == 4.5e9
    assert [row["ram_readings_bytes_per_s"] for row in found["rows"]] == [[1e9, 2e9], [9e9, 5e9], [5e9, 4e9]]
    told: list[bench.Floor] = []
    for size, row in zip((1, 2, 3), found["rows"], strict=True):
        assert row["batch"] == size
        assert row["share_of_floor"] == pytest.approx(row["floor_s_per_token"] * row["decode_tok_s"])
    monkeypatch.setattr(bench_batch, "measured", read)
    again = bench_batch.run_batch(model, 3, batch_scaling.GPU_PROMPT_TOKENS, 4, 1, tell_floor=told.append)
    assert told[0](4.5e9) == pytest.approx(found["rows"][2]["floor_s_per_token"])
    assert again.floor_s_per_token == told[0](again.hardware["cpu"]["bytes_per_s"])
    model.close()
