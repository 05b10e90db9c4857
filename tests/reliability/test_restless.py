"""An engine that is stopped, cancelled, switched and ended at random moments: everything ends, no thread stays.

And one that is killed: its chats go on as they would have."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import told_by


@pytest.mark.parametrize("acts", [30, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_an_engine(tmp_path: Path, acts: int) -> None:
    told = told_by("restless_engine.py", acts, 2, tmp_path, *(["--small"] if acts < 100 else []))
    assert told["ended"]
    assert told["waiting"] == 0
    assert told["threads_after"] == told["threads_before"]
    if acts > 100:
        assert told["memory_mb_for_100_acts"] < 2, told


@pytest.mark.parametrize(
    ("tokens", "model"),
    [
        (300, "recurrent"),
        *(pytest.param(3000, name, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])
          for name in ("starter-chat", "recurrent", "windows")),
    ],
)  # fmt: skip
def test_chats_with_an_engine_that_is_killed(tmp_path: Path, tokens: int, model: str) -> None:
    told = told_by("killed_chats.py", tmp_path, tokens, 5, model)
    assert not told["faults"]
    assert told["logits compared"] >= tokens
    if tokens > 300:
        assert told["warm restarts"] > 0
        assert sum(guessed for guessed, _ in told["guessed and accepted"].values()) > 0
