"""That the long run finds what it looks for: tokens that differ, and memory that is left behind."""

from __future__ import annotations

from pathlib import Path

import gpu_soak
import pytest
from fakes.gpu_machine import FakeGpuMachine, same_scratch_for_every_budget
from make_model import Recipe, make_model
from samples.placement_cases import a_profile
from support.exchanges import AT_ONCE

from engine.gpu.weights import expert_slots
from engine.session.loaded_model import LoadedModel


@pytest.mark.parametrize(
    ("recipe", "mode"),
    [
        (Recipe("turbosparse-tiny", "q4_0"), "auto"),
        (Recipe("tiny", "q8_0", variant="powerinfer", rank=32), "exact"),
    ],
)
def test_answers_are_the_same_while_experts_or_neurons_move(
    recipe: Recipe, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_scratch_for_every_budget(monkeypatch)
    for name in AT_ONCE:
        monkeypatch.setattr(expert_slots, name, getattr(expert_slots, name))  # so that they are put back
    for name, value in {"ANSWERS": 2, "ANSWER_TOKENS": 6, "MOST_PROMPT_TOKENS": 4, "LOADS": 3, "MOVES": 1.0}.items():
        monkeypatch.setattr(gpu_soak, name, value)
    machine, path = FakeGpuMachine(tmp_path, monkeypatch), tmp_path / "m.gguf"
    make_model(path, recipe)
    engine = machine.config(context=64, mode=mode)
    if recipe.variant == "powerinfer":  # beside a slow CPU, the GPU would also read all cold neurons
        a_profile(vram=1 << 32, exchange_s=1e-6).save(Path(engine.hardware_file))
    load = gpu_soak.loader(lambda engine: LoadedModel.load(path, engine), engine)
    tally = gpu_soak.soak(load, 36, 3, None)
    assert tally.tokens >= 36
    assert (tally.wrong, tally.excused) == (0, 0)
    assert tally.identical == tally.answers > 0
    assert tally.moved > 0
    assert tally.far == 0
