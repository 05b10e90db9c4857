"""The choice of guesses, replayed on the benchmark's texts with the recorded times of runs of several tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from guessed_tokens import _chats

from engine.session import guesses
from engine.session.guesses import Guesses, StepTimes
from engine.session.lookup import Lookup

RESULTS = Path(__file__).parent / "results"


def gain(seconds: dict[int, float], prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Return the rate with guesses relative to that without. seconds: of runs, by their number of tokens."""
    guessing, text, at, spent = Guesses(StepTimes(), [Lookup()]), [*prompt, answer[0]], 1, 0.0
    while at < len(answer):
        found = guessing.next(text, min(max(seconds), len(answer) - at) - 1)
        follows = answer[at : at + len(found)]
        n_right = next((i for i, token in enumerate(follows) if token != found[i]), len(found))
        text += answer[at : at + n_right + 1]
        at += n_right + 1
        spent += seconds[1 + len(found)]
        guessing.computed(1 + len(found), seconds[1 + len(found)], n_right)
    return (len(answer) - 1) * seconds[1] / spent


@pytest.mark.parametrize(("n_tokens", "of_edits"), [(60, 1.35), (300, 1.6)])
@pytest.mark.parametrize(
    "model",
    ["1b-q4_0-cpu-2026-11-27", "1b-f16-cpu-2026-11-27", "8b-q4_0-gpu-2026-11-27", "30b-a3b-q4_0-gpu-2026-11-28"],
)
def test_edits_gain_and_nothing_is_lost(
    model: str, n_tokens: int, of_edits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses.time, "perf_counter", lambda: 0.0)
    record = json.loads((RESULTS / f"guessed-tokens-{model}.json").read_text("utf-8"))
    seconds = {int(n): share for n, share in record["run of n tokens, relative to one"].items()}
    gains = {name: gain(seconds, *chat) for name, chat in _chats(32_000, n_tokens, None).items()}
    assert min(gains.values()) >= 0.98, gains
    assert min(value for name, value in gains.items() if "edits" in name) >= of_edits, gains
    assert min(value for name, value in gains.items() if "quotes" in name) >= 1.6, gains
