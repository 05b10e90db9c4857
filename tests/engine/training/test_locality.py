"""Locality as figures and as pictures."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.repetitions import slow

from engine.errors import DiskSpaceError, InvalidRequestError
from engine.sparsity.stats import NeuronStats
from engine.training.locality import curve, hot_set_coverage, locality
from engine.training.plot import draw_locality

COUNTS = np.array([[80, 10, 5, 5], [25, 25, 25, 25], [0, 0, 0, 0]], np.int64)
STATS = NeuronStats(COUNTS, 100, "measured", "x", text="given")


def test_figures_of_each_layer_and_of_the_whole() -> None:
    found = locality(STATS)
    assert [layer.neurons_for_80_percent for layer in found.layers] == [1, 4, 0]
    assert [layer.share_for_80_percent for layer in found.layers] == [0.25, 1.0, 0.0]
    assert [layer.fired_share for layer in found.layers] == [0.25, 0.25, 0.0]
    # Of 200 activations 160 are wanted: 80 + 3 x 25 do not suffice, 80 + 4 x 25 do.
    assert (found.whole.neurons_for_80_percent, found.whole.share_for_80_percent) == (5, 5 / 12)
    unknown = locality(NeuronStats(COUNTS, None, "shipped", "x"))
    assert unknown.whole.fired_share is unknown.layers[0].fired_share is None


def test_curves() -> None:
    x, y = curve(COUNTS[0])
    assert x.tolist() == [0, 0.25, 0.5, 0.75, 1]
    np.testing.assert_allclose(y, [0, 0.8, 0.9, 0.95, 1])
    assert curve(COUNTS[2])[1].tolist() == [0] * 5
    assert len(curve(COUNTS)[0]) == 13


def test_coverage_of_a_hot_set() -> None:
    stats, seen = np.array([[9, 1], [5, 0]], np.int64), np.array([[1, 5], [4, 10]], np.int64)
    assert hot_set_coverage(stats, seen, 0.5) == 5 / 20
    assert hot_set_coverage(seen, seen, 0.25) == 10 / 20
    assert hot_set_coverage(stats, np.zeros_like(seen), 0.5) == 0


@pytest.mark.parametrize(("ending", "n_layers"), [("svg", 1), slow("svg", 30), ("PNG", 3)])
def test_pictures(tmp_path: Path, ending: str, n_layers: int) -> None:
    counts = np.random.default_rng(0).integers(0, 90, (n_layers, 50))
    path = tmp_path / f"picture.{ending}"
    draw_locality(NeuronStats(counts, 100, "measured", "x"), path, "A model")
    data = path.read_bytes()
    if ending == "svg":
        text = data.decode()
        assert "A model" in text
        assert "80 %" in text
        draw_locality(NeuronStats(counts, 100, "measured", "x"), path, "A model")
        assert path.read_bytes() == data
    else:
        assert data.startswith(b"\x89PNG")
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_neurons_that_never_fired_are_drawn_too(tmp_path: Path) -> None:
    draw_locality(NeuronStats(np.zeros((2, 4), np.int64), None, "shipped", "x"), tmp_path / "a.svg", "Quiet")
    draw_locality(STATS, tmp_path / "b.svg", "Three")


def test_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    with pytest.raises(InvalidRequestError, match=r"\.png and \.svg"):
        draw_locality(STATS, tmp_path / "a.pdf", "x")
    with pytest.raises(InvalidRequestError, match="no folder"):
        draw_locality(STATS, tmp_path / "none" / "a.png", "x")
    for code, kind in ((errno.ENOSPC, DiskSpaceError), (errno.EACCES, InvalidRequestError)):

        def fail(figure: Any, path: Path, code: int = code, **_: Any) -> None:
            Path(path).write_bytes(b"half")
            raise OSError(code, "no")

        monkeypatch.setattr(Figure, "savefig", fail)
        with pytest.raises(kind):
            draw_locality(STATS, tmp_path / "a.png", "x")
        assert not list(tmp_path.iterdir())


def test_matplotlib_is_loaded_when_something_is_drawn_and_not_before() -> None:
    code = "import engine.training.plot, engine.commands.profile, sys; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
