"""Sampled tokens have the model's own distribution, whichever source guesses them.

In the model used here, only the last token matters for the next one. So every token of an answer is a draw whose
distribution is known.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from samples.recurrent_model import make_recurrent_model

from engine.config import EngineConfig, SamplingConfig
from engine.session.chat_session import ChatSession
from engine.session.draft import Draft
from engine.session.generate import decode_one_token
from engine.session.guesses import Guesser, Guesses, StepTimes
from engine.session.loaded_model import LoadedModel
from engine.session.lookup import Lookup
from engine.session.mtp import MtpGuesser, MtpRecord

TOP_K, TEMPERATURE = 2, 0.8
PROMPT = [17, 4, 60]


class CheapRuns(StepTimes):
    """Further tokens cost little, so that one to three are guessed before each run."""

    is_recent, lost_too_much = True, False  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.one_s = 1.0

    def add(self, n_tokens: int, seconds: float) -> None:
        """Do not learn."""

    def of(self, n_tokens: int) -> float:
        return 1.0 + 0.3 * (n_tokens - 1)


def guesser(name: str, model: LoadedModel, session: ChatSession, draft: Draft | None) -> Guesser:
    if draft is not None:
        draft.begin(CheapRuns())
        return draft
    assert model.drafter is not None
    assert session.cache.trail is not None
    return Lookup() if name == "lookup" else MtpGuesser(model.drafter, session.cache.trail, MtpRecord())


def chances(model: LoadedModel, token: int) -> dict[int, float]:
    logits = decode_one_token(model.transformer(), token, model.new_cache()).astype(np.float64)
    best = np.argsort(-logits)[:TOP_K]
    weights = np.exp((logits[best] - logits[best[0]]) / TEMPERATURE)
    return dict(zip(best.tolist(), (weights / weights.sum()).tolist(), strict=True))


@pytest.mark.parametrize("n_draws", [1_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("name", ["lookup", "draft", "mtp"])
def test_draws_follow_the_models_distribution(
    tmp_path: Path, name: str, n_draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_recurrent_model(tmp_path / "m", drafts="right")
    model = LoadedModel.load(path, engine := EngineConfig(context=512, device="cpu", threads=1))
    small = LoadedModel.load(path, engine, backend=model.backend) if name == "draft" else None
    draft = None if small is None else Draft(small, model.opened.config.vocab_size)
    monkeypatch.setattr(
        ChatSession, "_guesses", lambda session: Guesses(CheapRuns(), [guesser(name, model, session, draft)])
    )
    session, drawn, guessed, accepted, seed = ChatSession(model), Counter[tuple[int, int]](), 0, 0, 0
    while drawn.total() < n_draws:
        sampling = SamplingConfig(temperature=TEMPERATURE, top_k=TOP_K, seed=seed, max_tokens=500)
        events = list(session.generate(PROMPT, sampling))
        said = [PROMPT[-1], *(event.token_id for event in events if event.token_id is not None)]
        if events[-1].finish_reason == "stop":  # the token that ends an answer is no event
            said += model.stop_token_ids & chances(model, said[-1]).keys()
        drawn.update(pairwise(said))
        guessed += events[-1].stats.guessed_tokens
        accepted += events[-1].stats.accepted_tokens
        seed += 1
    assert 0.05 * drawn.total() < accepted < 0.9 * guessed, "guesses are often right, and often wrong"
    chi2, freedom, likely, variance = 0.0, 0, 0.0, 0.0
    for before in {pair[0] for pair in drawn}:
        n = sum(count for pair, count in drawn.items() if pair[0] == before)
        wanted = chances(model, before)
        assert {pair[1] for pair in drawn if pair[0] == before} <= wanted.keys()
        best, p = max(wanted.items(), key=lambda one: one[1])
        likely += drawn[before, best] - n * p
        variance += n * p * (1 - p)
        if n * min(wanted.values()) >= 5:
            chi2 += sum((drawn[before, token] - n * p) ** 2 / (n * p) for token, p in wanted.items())
            freedom += len(wanted) - 1
    assert freedom > 20
    assert chi2 < freedom + 6 * np.sqrt(2 * freedom)
    assert abs(likely) < 4.5 * np.sqrt(variance), "guesses are mostly the likeliest token"
