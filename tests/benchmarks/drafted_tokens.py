"""Measure what a smaller model that guesses costs and gains, whatever the weights: with any share of right guesses.

    python tests/benchmarks/drafted_tokens.py MODEL DRAFT [--device cuda] [--vram-budget GIB] [--tokens 200]

The draft computes all of its guesses, and a given share of them is then replaced by the tokens of the answer, which is
given. So time and choice of the number of guesses are real, and only the share of right guesses is set. Prints JSON:
the time of a run of n tokens and of a guess; the least share of right guesses that gains; and tokens/s relative to no
guesses by that share, as median and extremes over the rounds. A share of 0 is a useless draft.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from guessed_tokens import _answer, _run_times

from engine.config import EngineConfig
from engine.decode.decode_program import MOST_TOKENS
from engine.job import Job
from engine.session.draft import Draft
from engine.session.drafting import Drafting
from engine.session.guesses import LEAST_GAIN, Guesses, StepTimes, best_number
from engine.session.loaded_model import LoadedModel
from engine.session.lookup import Lookup

PROMPT = 60  # tokens


class Corrected:
    """The guesses of a draft, of which a share is right."""

    name = "draft"

    def __init__(self, draft: Draft, text: list[int], share: float) -> None:
        self.draft, self._text, self._at = draft, text, 0
        self._is_right = np.random.default_rng(len(text)).random(len(text) + MOST_TOKENS) < share
        self.read, self.chances, self.seconds, self.computed = self._read, draft.chances, draft.seconds, draft.computed
        self.prepare = draft.prepare

    def _read(self, text: Any) -> None:
        self._at = len(text)
        self.draft.read(text)

    def guess(self) -> Iterator[tuple[int, float]]:
        for n, (_, chance) in enumerate(self.draft.guess()):
            at = self._at + n
            token = self._text[at] if at < len(self._text) and self._is_right[at] else 0
            self.draft._guessed[-1] = (token, self.draft._guessed[-1][1])  # what its statistics count
            yield token, max(chance, self.draft.chance)  # its own probability means nothing here


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("draft")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--vram-budget", type=float, metavar="GIB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=200, help="of an answer")
    flags = parser.parse_args()
    model = LoadedModel.load(
        flags.model,
        EngineConfig(
            flags.device, flags.threads, 1024, vram_budget_gib=flags.vram_budget, adapt=False, draft=flags.draft
        ),
    )
    transformer, cache, drafting = model.transformer(), model.new_cache(), Drafting(model)
    if transformer.decoder is not None:
        transformer.decoder.lay_out(cache)
    runs = _run_times(transformer, cache)
    began = time.perf_counter()
    drafting.load(Job())
    loaded_s, draft = time.perf_counter() - began, drafting.draft
    assert draft is not None, drafting.reason
    times, gains = StepTimes(), {}
    text = np.random.default_rng(1).integers(3, model.opened.config.vocab_size, PROMPT + flags.tokens).tolist()
    for share in (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0):
        draft._right[:] = draft._seen[:] = 0
        with_guesses, without = [], []
        for _ in range(flags.rounds):
            without.append(_answer(transformer, cache, text[:PROMPT], text[PROMPT:], None))
            draft.begin(times)
            guesses = Guesses(times, [Lookup(), Corrected(draft, text, share)])
            with_guesses.append(_answer(transformer, cache, text[:PROMPT], text[PROMPT:], guesses))
        ratios = [a.decode_tok_s / b.decode_tok_s for a, b in zip(with_guesses, without, strict=True)]
        gains[share] = {
            "gain": statistics.median(ratios), "least": min(ratios), "most": max(ratios),
            "first_token": statistics.median(a.ttft_s / b.ttft_s for a, b in zip(with_guesses, without, strict=True)),
            "tokens_s": statistics.median(one.decode_tok_s for one in without),
            "guessed": with_guesses[-1].guessed_tokens, "accepted": with_guesses[-1].accepted_tokens,
        }  # fmt: skip
    one_s, guess_s = times.one_s, draft._own.one_s

    def gain(share: float) -> float:
        return best_number(times, [share] * (MOST_TOKENS - 1), lambda n: n * guess_s)[1]

    print(json.dumps({
        "date": time.strftime("%Y-%m-%d"), "machine": platform.processor() or platform.machine(),
        "model": model.name, "device": model.device_reason, "draft": draft.model.name,
        "draft device": draft.model.device_reason, "draft bytes": draft.model.weights.n_bytes,
        "model bytes": model.weights.n_bytes, "draft load s": loaded_s, "tokens": flags.tokens, "rounds": flags.rounds,
        "run of n tokens, relative to one": runs, "token ms": 1e3 * one_s, "guess ms": 1e3 * guess_s,
        "least share that gains": next((s / 100 for s in range(101) if gain(s / 100) >= LEAST_GAIN), None),
        "by share of right guesses": gains,
    }, indent=1))  # fmt: skip
    drafting.close()
    model.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
