"""Measure what a smaller model that guesses costs and gains, whatever the weights: with any share of right guesses.

    python tests/benchmarks/drafted_tokens.py MODEL DRAFT [--device cuda] [--vram-budget GIB] [--tokens 200]
    python tests/benchmarks/drafted_tokens.py MODEL mtp      (the layer that MODEL has for it drafts)

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
from engine.session.mtp import MtpGuesser, MtpRecord, own_sources

PROMPT = 60  # tokens


class Corrected:
    """The guesses of a source, of which a share is right."""

    def __init__(self, source: Draft | MtpGuesser, text: list[int], share: float) -> None:
        self.source, self.name, self._text, self._at = source, source.name, text, 0
        self._is_right = np.random.default_rng(len(text)).random(len(text) + MOST_TOKENS) < share
        self.prepare, self.chances = source.prepare, source.chances
        self.seconds, self.computed = source.seconds, source.computed

    def read(self, text: Any) -> None:
        self._at = len(text)
        self.source.read(text)

    def guess(self) -> Iterator[tuple[int, float]]:
        for n, (_, chance) in enumerate(self.source.guess()):
            at = self._at + n
            token = self._text[at] if at < len(self._text) and self._is_right[at] else 0
            made = self.source._guessed if isinstance(self.source, Draft) else self.source._made
            made[-1] = (token, made[-1][1])  # type: ignore[call-overload]  # what its statistics count
            yield token, max(chance, self.source.chances(n + 1)[n])  # its own probability means nothing here


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
            flags.device,
            flags.threads,
            1024,
            vram_budget_gib=flags.vram_budget,
            adapt=False,
            draft="off" if flags.draft == "mtp" else flags.draft,
        ),
    )
    transformer, cache, drafting = model.transformer(), model.new_cache(), Drafting(model)
    if transformer.decoder is not None:
        transformer.decoder.lay_out(cache)
    runs = _run_times(transformer, cache)
    began, times, gains = time.perf_counter(), StepTimes(), {}
    if flags.draft == "mtp":
        assert model.drafts is not None, model.drafts_reason
        cache.trail = model.drafts.new_trail(cache.capacity, model.kv_codec)
    else:
        drafting.load(Job())
        assert drafting.draft is not None, drafting.reason
    loaded_s, draft, record = time.perf_counter() - began, drafting.draft, MtpRecord()
    text = np.random.default_rng(1).integers(3, model.opened.config.vocab_size, PROMPT + flags.tokens).tolist()
    for share in (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0):
        record = MtpRecord()
        if draft is not None:
            draft._right[:] = draft._seen[:] = 0
        with_guesses, without = [], []
        for _ in range(flags.rounds):
            without.append(_answer(transformer, cache, text[:PROMPT], text[PROMPT:], None))
            lookup, *layer = own_sources(model, transformer, cache, record)
            if draft is not None:
                draft.begin(times)
            guesses = Guesses(times, [lookup, Corrected(draft or layer[0], text, share)])  # type: ignore[arg-type]
            with_guesses.append(_answer(transformer, cache, text[:PROMPT], text[PROMPT:], guesses))
        ratios = [a.decode_tok_s / b.decode_tok_s for a, b in zip(with_guesses, without, strict=True)]
        gains[share] = {
            "gain": statistics.median(ratios), "least": min(ratios), "most": max(ratios),
            "first_token": statistics.median(a.ttft_s / b.ttft_s for a, b in zip(with_guesses, without, strict=True)),
            "tokens_s": statistics.median(one.decode_tok_s for one in without),
            "guessed": with_guesses[-1].guessed_tokens, "accepted": with_guesses[-1].accepted_tokens,
        }  # fmt: skip
    one_s, guess_s = times.one_s, record.step_s if draft is None else draft._own.one_s

    def gain(share: float) -> float:
        return best_number(times, [share] * (MOST_TOKENS - 1), lambda n: n * guess_s)[1]

    print(json.dumps({
        "date": time.strftime("%Y-%m-%d"), "machine": platform.processor() or platform.machine(),
        "model": model.name, "device": model.device_reason,
        **({"draft": model.drafts_reason} if draft is None else told(draft)),
        "model bytes": model.weights.n_bytes, "draft load s": loaded_s, "tokens": flags.tokens, "rounds": flags.rounds,
        "run of n tokens, relative to one": runs, "token ms": 1e3 * one_s, "guess ms": 1e3 * guess_s,
        "least share that gains": next((s / 100 for s in range(101) if gain(s / 100) >= LEAST_GAIN), None),
        "by share of right guesses": gains,
    }, indent=1))  # fmt: skip
    drafting.close()
    model.close()
    return 0


def told(draft: Draft) -> dict[str, Any]:
    model = draft.model
    return {"draft": model.name, "draft device": model.device_reason, "draft bytes": model.weights.n_bytes}


if __name__ == "__main__":
    raise SystemExit(main())
