"""Time that a constrained answer takes beside the model, for each token, with a vocabulary of 151,936 tokens.

    python tests/benchmarks/grammar_masks.py             print the times
    python tests/benchmarks/grammar_masks.py --record    and write them to tests/benchmarks/results/

Each answer is one text, token by token, with random logits in which its tokens are the largest. `mask` is llguidance's
computation, `apply` excludes the other tokens from the logits, `forced` looks for tokens without a choice. `hidden` is
the time of the mask that is left if it is computed in another thread while this one works elsewhere for 5 ms, as with a
model on a GPU or in kernels that hold no lock of Python.
"""

from __future__ import annotations

import argparse
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
RESULTS = Path(__file__).parent / "results"
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
MODEL_S = 0.005
PERSON = {
    "type": "object", "additionalProperties": False, "required": ["name", "age", "tags", "note"],
    "properties": {
        "name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": ["string", "null"], "maxLength": 200},
    },
}  # fmt: skip
JSON_TEXT = '{"name": "bala cost", "age": 41, "tags": ["fin", "gu"], "note": "the banan in the casto, and so on"}'
JSON_GBNF = r"""
root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (string ": " value (", " string ": " value)*)? "}"
array ::= "[" (value (", " value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
"""
JSON_LARK = r"""
start: object
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{" (STRING ": " value (", " STRING ": " value)*)? "}"
array: "[" (value (", " value)*)? "]"
STRING: /"([^"\\\x00-\x1f]|\\["\\\/bfnrt])*"/
NUMBER: /-?[0-9]+(\.[0-9]+)?/
"""
CASES: dict[str, tuple[str, Any, str]] = {
    "JSON schema": ("json_schema", PERSON, JSON_TEXT),
    "regex": ("regex", r"[A-Z]{2}-\d{4}: [a-z ]{10,80}\.", "AB-1234: the banan in the casto and so on."),
    "Lark": ("grammar", JSON_LARK, JSON_TEXT),
    "GBNF": ("grammar", JSON_GBNF, JSON_TEXT),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write the times to tests/benchmarks/results/")
    flags = parser.parse_args()
    figures: dict[str, Any] = measure()
    figures["machine"] = f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}"
    figures["load_average"] = [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None
    print(json.dumps(figures, indent=2))
    if flags.record:
        file = RESULTS / f"grammar-masks-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure() -> dict[str, Any]:
    from vocabularies import VOCABULARIES

    from engine.session.constraint import Constraint
    from engine.session.grammar import Grammar, Vocabulary
    from engine.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_gguf(VOCABULARIES["like Qwen"]())
    n_tokens = tokenizer.vocab_size
    began = time.perf_counter()
    vocabulary = Vocabulary(tokenizer, n_tokens, tokenizer.stop_token_ids)
    found: dict[str, Any] = {"tokens": n_tokens, "vocabulary_ms": _ms([time.perf_counter() - began])["mean"]}
    for name, (kind, source, text) in CASES.items():
        began = time.perf_counter()
        grammar = Grammar(Constraint(kind, source), vocabulary)  # type: ignore[arg-type]
        compiled = time.perf_counter() - began
        tokens = [*tokenizer.encode(text), min(tokenizer.stop_token_ids)]
        found[name] = {
            "compile_ms": _ms([compiled])["mean"],
            "answer_tokens": len(tokens),
            **_answer(grammar, tokens, n_tokens),
        }
    return found


def _answer(grammar: Any, tokens: list[int], n_tokens: int) -> dict[str, Any]:
    times: dict[str, list[float]] = {"forced": [], "mask": [], "apply": [], "hidden": []}
    logits = np.random.default_rng(0).standard_normal(n_tokens, np.float32)
    clock = time.perf_counter
    for is_hidden in (False, True):
        matcher = grammar.begin()
        for token in tokens:
            if is_hidden:
                computed = grammar.begin_most(matcher)
                time.sleep(MODEL_S)
                began = clock()
                computed.result()
                times["hidden"].append(clock() - began)
            else:
                began = clock()
                matcher.compute_ff_tokens()
                found = clock()
                most = grammar.most(matcher)
                masked = clock()
                np.minimum(logits, most)
                times["forced"].append(found - began)
                times["mask"].append(masked - found)
                times["apply"].append(clock() - masked)
                assert most[token] > 0, "the text follows the constraint"
            matcher.consume_token(token)
    return {name: _ms(values) for name, values in times.items()}


def _ms(values: list[float]) -> dict[str, float]:
    """Return the mean and the largest value, in ms."""
    return {"mean": round(1e3 * float(np.mean(values)), 3), "most": round(1e3 * max(values), 3)}


if __name__ == "__main__":
    sys.exit(main())
