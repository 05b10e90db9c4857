"""What opening a large vocabulary costs, from the metadata of a GGUF file to the first ids.

    python tests/benchmarks/vocabularies.py             the three sizes in use
    python tests/benchmarks/vocabularies.py --record    and write the figures to tests/benchmarks/results/

The vocabularies are made up, in the sizes of the published ones: 256,000 pieces with scores as Gemma has (here with
700,000 ways to join them, Gemma has 580,000), 151,936 tokens with one merge each as Qwen, 128,256 tokens with 280,147
merges as Llama 3.
Every run is a fresh process. Seconds of the CPU are what this needs by itself; seconds of the wall clock also
tell what else the machine was doing.
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
    figures: dict[str, Any] = {key: results[0][key] for key in ("tokens", "merges")} | {"runs": runs}
    for clock in ("cpu_s", "wall_s"):
        values = [result[clock] for result in results]
        figures[clock] = {"best": round(min(values), 3), "worst": round(max(values), 3)}
    return figures


def open_once(name: str) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    import tokenizers  # loading libraries is not what is measured

    from engine.text.tokenizer import Tokenizer

    assert tokenizers.__version__
    metadata = VOCABULARIES[name]()
    wall, cpu = time.perf_counter(), time.process_time()
    tokenizer = Tokenizer.from_gguf(metadata)
    ids = tokenizer.encode(TEXT)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert tokenizer.decode(ids) == TEXT
    merges = metadata.get("tokenizer.ggml.merges") or merges_of(metadata["tokenizer.ggml.tokens"])
    return {"tokens": tokenizer.vocab_size, "merges": len(merges), "cpu_s": cpu, "wall_s": wall}


def like_gemma() -> dict[str, Any]:
    letters = [*map(chr, range(33, 127)), "▁", *map(chr, range(0x410, 0x450)), *map(chr, range(0x4E00, 0x7200))]
    marks = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    given = [*(f"<unused{i}>" for i in range(99)), *("\n" * n for n in range(1, 32))]
    in_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    words = grown(letters, 256_000 - len(marks) - len(given) - len(in_bytes), "▁", chr(0x430))
    tokens = [*marks, *given, *in_bytes, *words]
    return {
        "general.architecture": "gemma2",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [3] * len(marks) + [4] * len(given) + [6] * 256 + [1] * len(words),
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.add_space_prefix": False,
    }


def byte_level(pre: str, n_tokens: int, n_merges: int) -> dict[str, Any]:
    """As many merges as asked for: of every way to join a token, or of one way each."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [*map(chr, printable), *(chr(256 + n) for n in range(256 - len(printable)))]
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = grown(letters, n_tokens - len(marks), "Ġ", chr(0xD0))
    ways = merges_of(tokens)
    if n_merges < n_tokens:
        ways = list({left + right: (left, right) for left, right in ways}.values())
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, *marks],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [3] * len(marks),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in ways[:n_merges]],
        "tokenizer.ggml.eos_token_id": len(tokens),
    }


def grown(letters: list[str], n_pieces: int, space: str, first_of_others: str) -> list[str]:
    """Words of two scripts with many of their beginnings, so that most can be joined in several ways."""
    rng = random.Random(0)
    latin = [a + b for a in "bcdfghklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "on", "st", "at")]
    start = ord(first_of_others)
    others = [chr(start + i) + chr(start + j) for i in range(30) for j in range(0, 30, 4)]
    pieces = dict.fromkeys(letters)
    while len(pieces) < n_pieces:
        syllables = others if rng.random() < 0.25 else latin
        word = "".join(syllables[int(len(syllables) * rng.random() ** 1.5)] for _ in range(rng.choice((1, 2, 2, 3, 4))))
        word = space * (rng.random() < 0.5) + word
        pieces.update(dict.fromkeys(word[:n] for n in range(2, len(word) + 1) if rng.random() < 0.75))
        pieces.update(dict.fromkeys([word[2:]] if rng.random() < 0.5 and len(word) > 3 else []))
    return list(pieces)[:n_pieces]


def merges_of(tokens: list[str]) -> list[tuple[str, str]]:
    sys.path.insert(0, str(ROOT))
    from engine.text.score_merges import merges_from_scores

    return merges_from_scores(tokens, [-float(i) for i in range(len(tokens))], list(range(len(tokens))))


VOCABULARIES: dict[str, Callable[[], dict[str, Any]]] = {
    "like Gemma": like_gemma,
    "like Qwen": lambda: byte_level("qwen2", 151_936, 151_387),
    "like Llama 3": lambda: byte_level("llama-bpe", 128_256, 280_147),
}


if __name__ == "__main__":
    sys.exit(main())
