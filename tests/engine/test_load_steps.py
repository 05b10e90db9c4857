"""The steps of a load: each has its time, and a load on a GPU tells how much it moved."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from fakes.gpu_machine import FakeGpuMachine
from samples.placement_cases import a_problem
from samples.tiny_model import make_tiny_model

from engine.errors import HostMemoryError
from engine.load_steps import LoadSteps
from engine.placement import solver, solving


def test_a_step_ends_where_the_next_one_begins() -> None:
    steps = LoadSteps()
    steps.end()
    steps.begin("one")
    steps.moved(7)
    steps.begin("two")
    steps.begin("one")
    steps.moved(3)
    steps.end()
    before = dict(steps.seconds)
    steps.end()
    assert list(steps.seconds) == ["one", "two"]
    assert steps.seconds == before
    assert steps.n_bytes == {"one": 10}


def test_a_load_tells_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    with caplog.at_level(logging.INFO, "engine.load_steps"):
        model = machine.load(make_tiny_model(tmp_path / "m", d_ff=256))
    assert "weights to the GPU" in caplog.text
    assert {
        "opening",
        "weights",
        "placing",
        "weights to the GPU",
        "programs of the GPU",
    } <= model.steps.seconds.keys()
    assert model.steps.n_bytes["weights to the GPU"] > 256 * 3 * 2
    assert sum(model.steps.seconds.values()) <= model.load_s
    model.close()


def test_a_load_does_not_wait_long_for_a_better_placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    limits: list[float] = []

    def watched(*problem: Any, time_limit_s: float) -> Any:
        limits.append(time_limit_s)
        return solver.solve(*problem, time_limit_s=time_limit_s)

    monkeypatch.setattr(solving, "solve", watched)
    machine.load(make_tiny_model(tmp_path / "m", d_ff=256)).close()
    assert limits == [pytest.approx(1.5)]


def test_where_any_placement_must_be_found_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def programme(problem: Any, kept: Any, vram: int, ram: int | None, time_limit_s: float, good_gap: float) -> Any:
        limits.append(time_limit_s)
        return None, 0.0

    monkeypatch.setattr(solver, "_programme", programme)
    with pytest.raises(HostMemoryError):
        solver.solve(a_problem(), 8 << 20, 1 << 20, time_limit_s=0.1)
    assert limits == [solver.TIME_LIMIT_S]
