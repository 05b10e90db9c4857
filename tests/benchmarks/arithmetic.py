"""Measures how far the logits of decode and prefill are from those computed in F32.

    python tests/benchmarks/arithmetic.py            print the figures
    python tests/benchmarks/arithmetic.py --record   and write them to tests/benchmarks/results/

The reference is the NumPy backend with every neuron computed. Every position of one text counts, in one context window.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from engine.assets import starter_model  # noqa: E402 - found by the line above
from engine.config import EngineConfig, KvCodec  # noqa: E402
from engine.evaluation.evaluate import Arithmetic, last_logits  # noqa: E402
from engine.machine.hardware import probe  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

RESULTS = Path(__file__).parent / "results"
TEXT = ROOT / "assets" / "calibration" / "prose.txt"
TOKENS = 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(starter_model()), help="instead of the starter model")
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    reference = load(flags.model, backend="reference", mode="dense")
    tokens = reference.tokenizer.encode(flags.text.read_text(encoding="utf-8"))[: min(TOKENS, reference.context)]
    exact = log_softmax(last_logits(reference, tokens, "dense", True, "prefill"))
    rows = []
    for kv_cache in get_args(KvCodec):
        model = load(flags.model, kv_cache=kv_cache, mode="dense")
        for arithmetic in get_args(Arithmetic):
            found = log_softmax(last_logits(model, tokens, "dense", True, arithmetic))
            rows.append({"kv_cache": kv_cache, "arithmetic": arithmetic, **distance(exact, found, tokens)})
            print(rows[-1])
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": "python tests/benchmarks/arithmetic.py --record",
            "hardware": {"cpu": probe().cpu.name},
            "model": reference.name,
            "text": flags.text.name,
            "tokens": len(tokens),
            "rows": rows,
        }
        file = RESULTS / f"arithmetic-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def load(model: str, **options: Any) -> LoadedModel:
    return LoadedModel.load(model, EngineConfig(device="cpu", **options))


def log_softmax(logits: Any) -> Any:
    """[T, V] to [T, V] in F64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def distance(exact: Any, found: Any, tokens: list[int]) -> dict[str, float]:
    """Return the KL divergence in nats, how often the likeliest token agrees, and the ratio of the perplexities."""
    divergence = (np.exp(exact) * (exact - found)).sum(axis=-1)
    places = np.arange(len(tokens) - 1), tokens[1:]
    return {
        "kl_mean": float(divergence.mean()),
        "kl_max": float(divergence.max()),
        "same_likeliest": float((exact.argmax(axis=-1) == found.argmax(axis=-1)).mean()),
        "perplexity_ratio": float(np.exp((exact[places] - found[places]).mean())),
    }


if __name__ == "__main__":
    sys.exit(main())
