"""Measure what guessed tokens gain: answers that quote, edit or do not repeat the prompt, with and without guesses.

    python tests/benchmarks/guessed_tokens.py MODEL [--threads 2] [--device cpu] [--rounds 5] [--tokens 300]
    python tests/benchmarks/guessed_tokens.py MODEL --draft DRAFT      (a smaller model guesses as well)

The text of the answer is given, so that any weights will do, synthetic ones too: the model computes all logits, and
instead of sampling the answer's next token is taken. With a draft, the tokenizer encodes the texts; else words are
tokens. Rounds alternate. Prints JSON: tokens/s with guesses relative to without, as median and extremes over the
rounds, and the time of a run of several tokens relative to one.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.assets import asset_root
from engine.config import EngineConfig
from engine.job import Job
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.session.drafting import Drafting
from engine.session.generate import GenerationStats, Savings, StopRules, decode_tokens, generate, most_at_once, prefill
from engine.session.guesses import Guesser, Guesses, StepTimes
from engine.session.loaded_model import LoadedModel
from engine.session.lookup import Lookup

DOCUMENT = 400  # tokens
EDITED_EVERY = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--draft", default="off")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--vram-budget", type=float, metavar="GIB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=300, help="of an answer, at most 400")
    flags = parser.parse_args()
    engine = EngineConfig(
        flags.device, flags.threads, 1024, vram_budget_gib=flags.vram_budget, draft=flags.draft
    )  # fmt: skip
    model = LoadedModel.load(flags.model, engine)
    model.make_ready(None)
    transformer, cache, times, drafting = model.transformer(), model.new_cache(), StepTimes(), Drafting(model)
    if flags.draft != "off":
        drafting.load(Job())
    if transformer.decoder is not None:
        transformer.decoder.lay_out(cache)
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"), "machine": platform.processor() or platform.machine(), "model": model.name,
        "device": model.device_reason, "threads": flags.threads, "rounds": flags.rounds, "tokens": flags.tokens,
        "run of n tokens, relative to one": _run_times(transformer, cache), "answers": {},
    }  # fmt: skip
    encode = model.tokenizer.encode if drafting.draft else None
    for name, (prompt, answer) in _chats(model.opened.config.vocab_size, flags.tokens, encode).items():
        with_guesses, without = [], []
        for _ in range(flags.rounds):
            without.append(_answer(transformer, cache, prompt, answer, None))
            sources: list[Guesser] = [Lookup()]
            if drafting.draft is not None:
                drafting.draft.begin(times)
                sources.append(drafting.draft)
            with_guesses.append(_answer(transformer, cache, prompt, answer, Guesses(times, sources)))
        ratios = [a.decode_tok_s / b.decode_tok_s for a, b in zip(with_guesses, without, strict=True)]
        found["answers"][name] = {
            "gain": statistics.median(ratios), "least": min(ratios), "most": max(ratios),
            "tokens_s": statistics.median(one.decode_tok_s for one in with_guesses),
            "guessed": with_guesses[-1].guessed_tokens, "accepted": with_guesses[-1].accepted_tokens,
            **({"by source": with_guesses[-1].guesses} if encode else {}),
        }  # fmt: skip
    drafting.close()
    model.close()
    print(json.dumps(found, indent=1))
    return 0


def _run_times(transformer: Transformer, cache: KVCache) -> dict[int, float]:
    tokens = list(range(5, 305))
    cache.truncate(0)
    prefill(transformer, tokens, cache)
    found: dict[int, float] = {}
    for n in range(1, most_at_once(transformer, cache) + 1):
        seconds = []
        for _ in range(9):
            cache.truncate(len(tokens))
            started = time.perf_counter()
            decode_tokens(transformer, tokens[:n], cache)
            seconds.append(time.perf_counter() - started)
        found[n] = statistics.median(seconds) / found.get(1, 1.0)
    cache.truncate(0)
    return {**found, 1: 1.0} if found else {}


def _chats(
    vocabulary: int, n_tokens: int, encode: Callable[[str], list[int]] | None
) -> dict[str, tuple[list[int], list[int]]]:
    """Return prompts and answers: English prose, a table and code with more repetition, and tokens at random.

    encode: None: ids of words.
    """
    noise = np.random.default_rng(2).integers(3, vocabulary, DOCUMENT + n_tokens).tolist()
    found = {"random: goes on": (noise[:DOCUMENT], noise[DOCUMENT:])}
    for kind in ("prose", "code", "tables"):
        words = (asset_root() / "calibration" / f"{kind}.txt").read_text("utf-8")
        text = (encode or partial(_ids_of_words, vocabulary))(words)[: DOCUMENT + n_tokens]
        document = text[:DOCUMENT]
        others = np.random.default_rng(1).integers(3, vocabulary, len(document)).tolist()
        edited = [others[i] if i % EDITED_EVERY == 7 else token for i, token in enumerate(document)]
        found[f"{kind}: quotes the prompt"] = document, document[:n_tokens]
        found[f"{kind}: edits each {EDITED_EVERY}th token"] = document, edited[:n_tokens]
        found[f"{kind}: goes on"] = document, text[DOCUMENT:]
    return found


def _ids_of_words(vocabulary: int, text: str) -> list[int]:
    words = re.findall(r"\w+|[^\w\s]|\n", text)
    ids = {word: 3 + i % (vocabulary - 3) for i, word in enumerate(dict.fromkeys(words))}
    return [ids[word] for word in words]


def _answer(
    transformer: Transformer, cache: KVCache, prompt: Sequence[int], answer: Sequence[int], guesses: Guesses | None
) -> GenerationStats:
    known = len(prompt) - 1
    cache.truncate(cache.reusable(known if cache.tokens[:known].tolist() == prompt[:known] else 0))
    rules = StopRules(max_tokens=len(answer))
    events = generate(
        transformer, cache, prompt, _said(len(prompt), answer), _Silent(), rules, savings=Savings(guesses=guesses)
    )
    return list(events)[-1].stats


class _Silent:
    """A text stream whose tokens have no text."""

    def push(self, token: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


def _said(start: int, answer: Sequence[int]) -> Callable[[Any, Sequence[int]], int]:
    return lambda logits, history: answer[len(history) - start]


if __name__ == "__main__":
    raise SystemExit(main())
