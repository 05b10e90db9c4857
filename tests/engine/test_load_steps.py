"""The steps of a load: each has its time, and a load on a card tells how much it moved."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from on_a_stand_in import StandInMachine
from tiny_model import make_tiny_model

from engine.load_steps import LoadSteps


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
    machine = StandInMachine(tmp_path, monkeypatch)
    with caplog.at_level(logging.INFO, "engine.load_steps"):
        model = machine.load(make_tiny_model(tmp_path / "m", d_ff=256))
    assert "weights to the card" in caplog.text
    assert {
        "opening",
        "weights",
        "placing",
        "weights to the card",
        "programs of the card",
    } <= model.steps.seconds.keys()
    assert model.steps.n_bytes["weights to the card"] > 256 * 3 * 2
    assert sum(model.steps.seconds.values()) <= model.load_s
    model.close()
