"""What opening a large vocabulary costs, from the metadata of a GGUF file to the first ids.

    python tests/benchmarks/vocabularies.py             the three sizes in use
    python tests/benchmarks/vocabularies.py --record    and write the figures to tests/benchmarks/results/

The vocabularies are made up, in the sizes of the published ones: 256,000 pieces with scores as Gemma has (and more ways
to join them: about 700,000), 151,936 tokens with as many merges as Qwen, 128,256 tokens with 280,147 merges as Llama 3.
Every run is a fresh process. Seconds of the processor are what this needs by itself; seconds of the wall clock also tell
what else the machine was doing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
TEXT = "the cat, Привет 12345\n\n\n  x = y + 1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--child", choices=tuple(VOCABULARIES), help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        print(json.dumps(open_once(flags.child)))
        return 0
    figures: dict[str, Any] = {name: measure(name, flags.runs) for name in VOCABULARIES}
    figures["machine"] = f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}"
    figures["load_average"] = [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None
    print(json.dumps(figures, indent=2))
    if flags.record:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"vocabularies-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(name: str, runs: int) -> dict[str, Any]:
    """The best of the runs, and the worst."""
    command = [sys.executable, __file__, "--child", name]
    done = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(runs)]
    results = [json.loads(text) for text in done]
    figures: dict[str, Any] = {"tokens": results[0]["tokens"], "runs": runs}
    for clock in ("cpu_s", "wall_s"):
        values = [result[clock] for result in results]
        figures[clock] = {"best": round(min(values), 3), "worst": round(max(values), 3)}
    return figures


def open_once(name: str) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    import numpy as np
    import tokenizers

    from engine.tokenizer import Tokenizer

    assert np.__version__ and tokenizers.__version__, "loading libraries is not what is measured"
    metadata = VOCABULARIES[name]()
    wall, cpu = time.perf_counter(), time.process_time()
    tokenizer = Tokenizer.from_gguf(metadata)
    ids = tokenizer.encode(TEXT)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert tokenizer.decode(ids) == TEXT
    return {"tokens": tokenizer.vocab_size, "cpu_s": cpu, "wall_s": wall}


def like_gemma() -> dict[str, Any]:
    """256,000 pieces of two scripts, grown letter by letter, so that most can be joined in several ways."""
    rng = random.Random(0)
    latin = [a + b for a in "bcdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "on", "st", "at")]
    cyrillic = [chr(0x430 + i) + chr(0x430 + j) for i in range(30) for j in range(0, 30, 4)]
    letters = [*map(chr, range(33, 127)), "▁", *map(chr, range(0x410, 0x450)), *map(chr, range(0x4E00, 0x7200))]
    marks = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        "<start_of_turn>",
        "<end_of_turn>",
        *(f"<unused{i}>" for i in range(99)),
    ]
    given = ["\n" * n for n in range(1, 32)]
    in_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = dict.fromkeys(letters)
    n_pieces = 256_000 - len(marks) - len(given) - len(in_bytes)
    while len(pieces) < n_pieces:
        syllables = cyrillic if rng.random() < 0.25 else latin
        word = "".join(syllables[int(len(syllables) * rng.random() ** 1.5)] for _ in range(rng.choice((1, 2, 2, 3, 4))))
        word = "▁" * (rng.random() < 0.5) + word
        pieces.update(dict.fromkeys(word[:n] for n in range(2, len(word) + 1) if rng.random() < 0.75))
        pieces.update(dict.fromkeys([word[2:]] if rng.random() < 0.5 and len(word) > 3 else []))
    words = list(pieces)[:n_pieces]
    tokens = [*marks, *given, *in_bytes, *words]
    types = [3] * 6 + [4] * 99 + [4] * len(given) + [6] * 256 + [1] * len(words)
    return {
        "general.architecture": "gemma2",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_space_prefix": False,
    }


def byte_level(pre: str, n_tokens: int, n_merges: int) -> dict[str, Any]:
    """Tokens joined from earlier ones; where there are more merges than tokens, some join the same in another way."""
    rng = random.Random(0)
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [*map(chr, printable), *(chr(256 + n) for n in range(256 - len(printable)))]
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens, merges = dict.fromkeys(letters), {}
    parts = list(letters)
    while len(tokens) < n_tokens - len(marks):
        left, right = (parts[int(len(parts) * rng.random() ** 2)] for _ in range(2))
        if len(left + right) <= 12 and left + right not in tokens:
            merges[f"{left} {right}"] = None
            tokens[left + right] = None
            parts.append(left + right)
    for whole in parts[::-1]:
        for cut in range(1, len(whole)):
            if len(merges) < n_merges and whole[:cut] in tokens and whole[cut:] in tokens:
                merges[f"{whole[:cut]} {whole[cut:]}"] = None
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, *marks],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [3] * len(marks),
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.eos_token_id": len(tokens),
    }


VOCABULARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "like Gemma": like_gemma,
    "like Qwen": lambda: byte_level("qwen2", 151_936, 151_387),
    "like Llama 3": lambda: byte_level("llama-bpe", 128_256, 280_147),
}


if __name__ == "__main__":
    sys.exit(main())
