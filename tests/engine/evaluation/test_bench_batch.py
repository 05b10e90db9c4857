"""Several sequences measured together: what is asked for fits, and both sides' figures are those of a batch."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig
from engine.errors import InvalidRequestError
from engine.evaluation.bench_batch import run_batch, whole_slots
from engine.session.loaded_model import LoadedModel


def test_the_cpu_decodes_a_batch(tmp_path: Path) -> None:
    model = LoadedModel.load(make_tiny_model(tmp_path / "model"), EngineConfig(device="cpu", threads=2, sequences=3))
    seen: list[tuple[int, int]] = []
    found = run_batch(model, 3, 4, 3, 2, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert (found.batch, found.mode, found.device) == (3, "exact", "cpu")
    assert found.share_of_floor * found.timings["step"] == pytest.approx(found.floor_s_per_token * 3)
    assert found.bytes_per_token["gpu"] == 0 < found.ffn_bytes_per_token < found.bytes_per_token["cpu"]
    assert asdict(found)["active_share"] == found.fired_share
    for batch, prompt, words in ((33, 4, "at once"), (3, 400, "do not fit"), (3, 0, "at least 1")):
        with pytest.raises(InvalidRequestError, match=words):
            run_batch(model, batch, prompt, 3, 1)


def test_a_context_has_whole_slots() -> None:
    assert [whole_slots(tokens) for tokens in (1, 8, 9, 64)] == [8, 8, 16, 64]
