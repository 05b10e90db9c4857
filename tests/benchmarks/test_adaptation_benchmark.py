"""The benchmark of adapting on a tiny model: it runs, its figures mean what they say, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import adaptation
import numpy as np
import pytest
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig
from engine.conversion.convert import convert
from engine.session.loaded_model import LoadedModel


def test_coverage_and_placement() -> None:
    counts = np.array([[5, 0, 3], [9, 1, 2]])
    hot = adaptation.place(counts, 0.5)
    assert [ids.tolist() for ids in hot] == [[0, 2], [0]]
    assert adaptation.coverage(hot, counts) == pytest.approx(17 / 20)


def test_adapting_closes_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "WINDOW_TOKENS", 32)
    bundle = convert(make_tiny_model(tmp_path / "m", d_ff=256), tmp_path / "bundle", "f16").bundle
    model = LoadedModel.load(bundle, EngineConfig(mode="exact", context=32, threads=1))
    rng = np.random.default_rng(0)

    def kind(first: int) -> adaptation.Kind:
        calibration, chat, held_out = (rng.integers(first, first + 4, n).tolist() for n in (600, 600, 300))
        return adaptation.Kind(calibration, chat, held_out)

    kinds = {"encyclopedia": kind(20), "stories": kind(60), "code": kind(100)}
    found = adaptation.measure(model, kinds, 0.2)
    assert len(found["rows"]) == 5 * 3
    own = [row for row in found["rows"] if row["calibrated_on"] == row["used_on"]]
    assert all(row["coverage"] == row["coverage_of_its_own"] > 0.3 for row in own)
    wrong = [row for row in found["rows"] if row["calibrated_on"] in kinds and row not in own]
    assert all(row["coverage"] < row["coverage_of_its_own"] for row in wrong)
    assert found["adapting_wins_back_share"] > 0.3
