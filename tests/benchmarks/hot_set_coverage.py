"""How much of each kind of text the hot neurons cover that were counted on self-written calibration text.

    python tests/benchmarks/hot_set_coverage.py CORPUS [--model starter-chat] [--tokens 32768] [--out FILE.json]

For every kind of text a person may use (conversations, novels, encyclopedia, questions with the model's answers): the
hottest 26 % of all neurons, by statistics over real text of that very kind (the best one could have), over the
calibration text that `profile` uses, over each single kind of it, and over real text of the wrong kinds; then the share
of the activations on other text of the kind that they cover. CORPUS holds profile-NAME.txt and eval-NAME.txt; without
it there is nothing to compare with, and the script says so and ends well.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.machine.hardware import describe, probe
from engine.session.loaded_model import LoadedModel
from engine.training.calibration import PORTION_TOKENS, SAMPLING, write_portion
from engine.training.given_text import text_sequences
from engine.training.layer_walk import LayerBatch, ModelParts, walk_layers
from engine.training.locality import hot_set_coverage
from engine.training.writing import Task, write_texts
from native_kernels.backend import I64

HOT_SHARE = 0.26  # of all neurons, as in the paper
MOST_LOST = 8.0  # points of coverage that the calibration text may cost
REAL = {"dialogue": ("dialogue", "dialogue"), "story": ("stories", "story"), "wiki": ("wiki", "wiki")}
# Not among the prompts that ship: every second one is counted for the best hot set, the others are covered.
QUESTIONS = (
    "What is the capital of Norway?", "How many legs does a spider have?", "What does the word candid mean?",
    "Tell me a story about a brave hedgehog.", "What is nine plus fourteen?", "Why do leaves fall in autumn?",
    "Do you like music?", "Which animal is the fastest?", "What should I eat for lunch?", "Tell me about yourself.",
    "What is a compass for?", "Tell me a story about a lost kite.", "Who lives at the North Pole?",
    "What is half of fifty?", "Can you cheer me up?", "Where does rain come from?", "What is your favourite animal?",
    "How do I make tea?", "What is a synonym of happy?", "Is the sun a star?",
)  # fmt: skip


def count(model: LoadedModel, sequences: Sequence[Sequence[int]]) -> I64:
    """How often each neuron fired, [L, F]."""
    counts = np.zeros((model.opened.config.n_layers, model.opened.config.n_neurons), np.int64)

    def add(batch: LayerBatch) -> None:
        counts[batch.layer] += batch.fired_counts

    walk_layers(model, sequences, add).close()
    return counts


def answers(model: LoadedModel, questions: Sequence[str], tokens: int, seed: int) -> list[list[int]]:
    """The questions with the model's answers, sampled again and again, so many tokens in all."""
    tasks = [
        Task(model.tokenizer.encode_chat([{"role": "user", "content": question}]), 128, SAMPLING, model.stop_token_ids)
        for question in questions
    ]
    found: list[list[int]] = []
    while sum(map(len, found)) < tokens:
        found += write_texts(ModelParts.of(model), tasks, seed + len(found))
    return found


def study(model: LoadedModel, corpus: Path, tokens: int) -> dict[str, Any]:
    """Coverage in percent and losses in points, for every kind of text."""
    own: dict[str, I64] = {"self": count(model, answers(model, QUESTIONS[::2], tokens // 4, 1))}
    seen: dict[str, I64] = {"self": count(model, answers(model, QUESTIONS[1::2], tokens // 4, 2))}
    for kind, (profiled, evaluated) in REAL.items():
        for found, name, most in ((own, f"profile-{profiled}", tokens), (seen, f"eval-{evaluated}", tokens)):
            text = (corpus / f"{name}.txt").read_text(encoding="utf-8")
            found[kind] = count(model, text_sequences(model, text, most))
        print(f"counted {kind}", flush=True)
    written: dict[str, I64] = {}
    for number in range(-(-tokens // PORTION_TOKENS)):
        for kind, texts in write_portion(model, number).items():
            written[kind] = written.get(kind, 0) + count(model, texts)
    mix = np.sum(list(written.values()), axis=0)
    rows = {}
    for kind, text in seen.items():
        best = 100 * hot_set_coverage(own[kind], text, HOT_SHARE)

        def lost(stats: I64, text: I64 = text, best: float = best) -> float:
            return round(best - 100 * hot_set_coverage(stats, text, HOT_SHARE), 2)

        rows[kind] = {
            "own_kind_coverage": round(best, 2),
            "calibration_loss": lost(mix),
            "wrong_kind_losses": {other: lost(stats) for other, stats in own.items() if other != kind},
            "one_written_kind_losses": {other: lost(stats) for other, stats in written.items()},
        }
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--model", default="starter-chat")
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    names = [
        f"{part}-{name}.txt" for pair in REAL.values() for part, name in zip(("profile", "eval"), pair, strict=True)
    ]
    if missing := [name for name in names if not (arguments.corpus / name).is_file()]:
        print(f"Skipped: {arguments.corpus} has no {', '.join(missing)}.")
        return 0
    started = time.perf_counter()
    model = LoadedModel.load(arguments.model)
    rows = study(model, arguments.corpus, arguments.tokens)
    command = (
        f"python tests/benchmarks/hot_set_coverage.py CORPUS --model {arguments.model} --tokens {arguments.tokens}"
    )
    worst = max(row["calibration_loss"] for row in rows.values())
    result = {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "hardware": f"{describe(probe())}; {platform.processor() or platform.machine()}",
        "backend": model.backend.name,
        "model": model.name,
        "tokens": arguments.tokens,
        "hot_share": HOT_SHARE,
        "most_lost_points": MOST_LOST,
        "held": worst <= MOST_LOST,
        "worst_loss": worst,
        "seconds": round(time.perf_counter() - started, 1),
        "kinds": rows,
    }
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if result["held"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
