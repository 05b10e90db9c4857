"""An artefact that takes the place of another: who dies in between leaves one of them or none, never some of both."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from killed_moves import forked
from tiny_model import make_tiny_model

from engine import artefacts
from engine.bundle import open_bundle, verify
from engine.convert import convert
from engine.model.model_files import open_model
from engine.sparsity.stats import NeuronStats

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and kills with SIGKILL")


def stats(number: int) -> NeuronStats:
    return NeuronStats(np.full((2, 64), number, np.int64), 100, "measured", "a text")


@pytest.mark.parametrize("kind", ["bundle", "folder"])
def test_killed_before_every_step(kind: str, tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "source")
    if kind == "bundle":
        path = convert(path, tmp_path / "bundle", "q8_0").bundle
    seen, step, was_killed = set(), 0, True
    while was_killed:
        step += 1
        artefacts.save_stats(open_model(path), stats(1))
        was_killed = forked(lambda: artefacts.save_stats(open_model(path), stats(2)) and None, step)
        opened = open_model(path)
        if kind == "bundle":
            verify(open_bundle(path))
        if artefacts.find(opened, "statistics") is None:
            seen.add(0)
        else:
            seen |= {*np.unique(artefacts.load_stats(opened).counts).tolist()}
    assert step > 5
    assert seen == {0, 1, 2}
    assert not [name for name in os.listdir(artefacts.artefact_folder(opened)) if name.endswith(".part")]
