"""Times of constrained answers, in ms for each token, with a vocabulary of 151,936 tokens; --record writes them.

`mask`: the computation of llguidance. `apply`: of the mask to the logits. `forced`: the search for tokens without a
choice. `hidden`: the wait that is left if the mask is computed in another thread while a model takes 5 ms.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
MODEL_S = 0.005
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
}
JSON_GBNF = r"""
root ::= "{" (string ": " value (", " string ": " value)*)? "}"
value ::= root | "[" (value (", " value)*)? "]" | string | "-"? [0-9]+ ("." [0-9]+)? | "true" | "false" | "null"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
"""
TEXT = '{"name": "bala cost", "tags": ["fin", "gu"], "note": "the banan in the casto, and so on"}'
CASES: dict[str, tuple[str, Any, str]] = {
    "JSON schema": ("json_schema", SCHEMA, TEXT),
    "regex": ("regex", r"[A-Z]{2}-\d{4}: [a-z ]{10,80}\.", "AB-1234: the banan in the casto and so on."),
    "GBNF": ("grammar", JSON_GBNF, TEXT),
}


def main() -> None:
    from vocabularies import VOCABULARIES

    from engine.session.constraint import Constraint
    from engine.session.grammar import Grammar, Vocabulary
    from engine.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_gguf(VOCABULARIES["like Qwen"]())
    vocabulary = Vocabulary(tokenizer, tokenizer.vocab_size, tokenizer.stop_token_ids)
    figures: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}",
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }
    for name, (kind, source, text) in CASES.items():
        grammar = Grammar(Constraint(kind, source), vocabulary)  # type: ignore[arg-type]
        figures[name] = answer(grammar, [*tokenizer.encode(text), min(tokenizer.stop_token_ids)], tokenizer.vocab_size)
    text = json.dumps(figures) + "\n"
    print(text)
    if "--record" in sys.argv:
        file = f"grammar-masks-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        (Path(__file__).parent / "results" / file).write_text(text, encoding="utf-8")


def answer(grammar: Any, tokens: list[int], n_tokens: int) -> dict[str, Any]:
    """Return the mean and the largest time of each part."""
    times: dict[str, list[float]] = {"forced": [], "mask": [], "apply": [], "hidden": []}
    logits, clock = np.random.default_rng(0).standard_normal(n_tokens, np.float32), time.perf_counter
    here, ahead = grammar.begin(), grammar.begin()
    for token in tokens:
        began = clock()
        here.compute_ff_tokens()
        found = clock()
        most = grammar.most(here)
        masked = clock()
        np.minimum(logits, most)
        applied = clock()
        assert most[token] > 0, "the text follows the constraint"
        computed = grammar.begin_most(ahead)
        time.sleep(MODEL_S)
        slept = clock()
        computed.result()
        seconds = (found - began, masked - found, applied - masked, clock() - slept)
        for name, value in zip(times, seconds, strict=True):
            times[name].append(1e3 * value)
        here.consume_token(token)
        ahead.consume_token(token)
    return {name: [round(float(np.mean(each)), 3), round(max(each), 3)] for name, each in times.items()}


if __name__ == "__main__":
    main()
