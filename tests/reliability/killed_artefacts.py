"""Kills what replaces an artefact before each of its steps on the disk, and looks at what is left: the old one or the
new one, never none and never some of both.

Run as a program, for it forks. Prints one JSON object: for a bundle and a folder, how many steps there were, and which
were left: 0 for none. Argument: where to work.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from samples.tiny_model import make_tiny_model
from support.killed_moves import forked

from engine.bundle import artefacts
from engine.bundle.bundle import open_bundle, verify
from engine.conversion.convert import convert
from engine.model.model_files import open_model
from engine.sparsity.stats import NeuronStats


def stats(number: int) -> NeuronStats:
    return NeuronStats(np.full((2, 64), number, np.int64), 100, "measured", "a text")


def left_of(path: Path, is_bundle: bool) -> tuple[int, list[int]]:
    seen: set[int] = set()
    step, was_killed = 0, True
    while was_killed:
        step += 1
        artefacts.save_stats(open_model(path), stats(1))
        was_killed = forked(lambda: artefacts.save_stats(open_model(path), stats(2)) and None, step)
        opened = open_model(path)
        if is_bundle:
            verify(open_bundle(path))
        found = artefacts.find(opened, "statistics")
        seen |= {0} if found is None else {*np.unique(artefacts.load_stats(opened).counts).tolist()}
    assert {path.name for path in artefacts.artefact_folder(opened).iterdir()} == {*artefacts.file_names("statistics")}
    return step, sorted(seen)


if __name__ == "__main__":
    source = make_tiny_model(Path(sys.argv[1]) / "source")
    bundle = convert(source, Path(sys.argv[1]) / "bundle", "q8_0").bundle
    print(json.dumps({"bundle": left_of(bundle, True), "folder": left_of(source, False)}))
