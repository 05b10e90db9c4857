"""Quality of SwiGLU and GELU models whose weakest neurons are skipped, against the share of their rows that is read.

    python tests/benchmarks/made_zeros.py MODEL.gguf CODE.txt DOCUMENT.txt [--tokens 8192] [--record NAME]

A neuron is skipped at a position if |act(gate)|, times the mean |up| and the norm of its column of down, is below its
layer's threshold. So gate is read whole, and up and down only for the others. The thresholds keep the same share (the
level) of the sum of the contributions |h| * |down| in every layer, on text that the model writes itself. Quality is
measured at every position of other text of its own (chats), of code and of a document: KL divergence from the model
with all neurons, agreement of the most likely token, rise of the perplexity. All positions are masked, as in decode.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from engine.config import EngineConfig  # noqa: E402 - found by the line above
from engine.evaluation.evaluate import log_softmax, windows  # noqa: E402
from engine.executor.dense import DenseExecutor  # noqa: E402
from engine.executor.feed_forward import activate, behind_first, down_of_all, first_values  # noqa: E402
from engine.machine.hardware import describe, probe  # noqa: E402
from engine.model.router import Routing  # noqa: E402
from engine.model.transformer import Transformer  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from engine.training.calibration import write_portion  # noqa: E402
from native_kernels.backend import F32  # noqa: E402

LEVELS = (0.999, 0.995, 0.98, 0.95, 0.9)
BARS = {"default": (0.005, 0.985, 0.005), "fast": (0.02, 0.97, 0.01)}  # KL, top-1, rise of the perplexity
CONTEXT, PIECE, CALIBRATED = 1024, 128, 4096


class Masked(DenseExecutor):
    """The FFN without neurons whose score is below the layer's threshold.

    weight [L, F]: what |act(gate)| is multiplied by. thresholds [L]. calibrates: computes all neurons and keeps
    |act(gate)| and |h|, each [T, F], of each layer in `seen`.
    """

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model.opened.config, model.weights, model.backend.operators)
        n_layers, n_neurons = model.opened.config.n_layers, model.opened.config.n_neurons
        self.norms = np.stack([down_norms(model, layer) for layer in range(n_layers)])
        self.weight = np.ones((n_layers, n_neurons), np.float32)
        self.thresholds = np.zeros(n_layers, np.float32)
        self.kept, self.total = np.zeros(n_layers), 0
        self.up_sums, self.seen = np.zeros((n_layers, n_neurons)), dict[int, list[Any]]()
        self.calibrates = False

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        w, spec = self._layers[layer].ffns[0], self._graph.ffn(layer).spec
        first = first_values(w, x, self._operators)
        strength = np.abs(activate(spec, first, self._operators))
        if self.calibrates:
            h, _, _ = behind_first(spec, w, x, first, self._operators)
            self.up_sums[layer] += np.abs(self._operators.matmul(x, w.up)).sum(axis=0)
            self.seen.setdefault(layer, []).append((strength.astype(np.float16), np.abs(h).astype(np.float16)))
            return down_of_all(w, h, self._operators)
        mask = strength * self.weight[layer] >= self.thresholds[layer]
        self.kept[layer] += mask.mean() * len(x)
        self.total += len(x) * (layer == 0)
        h, _, _ = behind_first(spec, w, x, first, self._operators, mask)
        return down_of_all(w, h, self._operators)

    def set_level(self, level: float) -> None:
        """Set the thresholds that keep this share of each layer's contributions on the calibration text."""
        for layer, pieces in self.seen.items():
            scores = np.concatenate([strength for strength, _ in pieces]).astype(np.float32) * self.weight[layer]
            contributions = np.concatenate([h for _, h in pieces]).astype(np.float32) * self.norms[layer]
            order = np.argsort(scores, axis=None)
            lost = np.cumsum(contributions.reshape(-1)[order], dtype=np.float64)
            cut = int(np.searchsorted(lost, (1 - level) * lost[-1]))
            self.thresholds[layer] = scores.reshape(-1)[order[min(cut, len(order) - 1)]]
        self.kept[:], self.total = 0, 0


def down_norms(model: LoadedModel, layer: int) -> F32:
    """The norm of each neuron's column of down, [F]."""
    w, operators = model.weights.layers[layer].ffns[0], model.backend.operators
    matrix, axis = (w.down, 0) if w.down_t is None else (w.down_t, 1)
    assert matrix is not None
    rows = operators.rows(matrix, np.arange(matrix.n_rows, dtype=np.int64))
    return np.asarray(np.sqrt(np.square(rows, dtype=np.float64).sum(axis=axis)), np.float32)


def hidden_states(model: LoadedModel, transformer: Transformer, tokens: Sequence[int]) -> F32:
    cache, ids = model.new_cache(len(tokens)), np.asarray(tokens, np.int64)
    return np.concatenate([transformer.forward(ids[at : at + PIECE], cache) for at in range(0, len(ids), PIECE)])


def quality(model: LoadedModel, tested: Transformer, exact: Transformer, pairs: Sequence[Any]) -> dict[str, float]:
    """Over windows of (inputs, targets, hidden states with all neurons)."""
    divergence, same, nll, exact_nll, n = 0.0, 0, 0.0, 0.0, 0
    for inputs, targets, wanted_states in pairs:
        both = hidden_states(model, tested, inputs), wanted_states
        for at in range(0, len(inputs), PIECE):
            found, wanted = (log_softmax(exact.logits(one[at : at + PIECE])) for one in both)
            next_ones = np.asarray(targets[at : at + PIECE])
            rows = np.arange(len(next_ones))
            divergence += float((np.exp(wanted) * (wanted - found)).sum(dtype=np.float64))
            same += int((found.argmax(-1) == wanted.argmax(-1)).sum())
            nll -= float(found[rows, next_ones].sum(dtype=np.float64))
            exact_nll -= float(wanted[rows, next_ones].sum(dtype=np.float64))
            n += len(next_ones)
    return {
        "kl": divergence / n, "top1": same / n, "perplexity": math.exp(exact_nll / n),
        "perplexity_rise": math.exp((nll - exact_nll) / n) - 1, "tokens": n,
    }  # fmt: skip


def study(model: LoadedModel, texts: dict[str, list[Any]]) -> list[dict[str, Any]]:
    exact = model.transformer("dense")
    masked = Masked(model)
    tested = Transformer(model.opened.config, model.weights, masked, model.backend.operators)
    masked.calibrates, n = True, 0
    for text in (one for kind in write_portion(model, 0).values() for one in kind):
        if n < CALIBRATED:
            hidden_states(model, tested, text[: CALIBRATED - n])
            n += len(text[: CALIBRATED - n])
    masked.calibrates = False
    masked.weight = np.asarray(masked.up_sums / n * masked.norms, np.float32)
    rows = []
    known = {
        name: [(inputs, targets, hidden_states(model, exact, inputs)) for inputs, targets in pairs]
        for name, pairs in texts.items()
    }
    for level in LEVELS:
        masked.set_level(level)
        found = {name: quality(model, tested, exact, pairs) for name, pairs in known.items()}
        kept = float((masked.kept / masked.total).mean())
        rows.append({"level": level, "kept": kept, **bytes_read(model, kept), "texts": found, "holds": holds(found)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def holds(found: dict[str, dict[str, float]]) -> dict[str, bool]:
    return {
        bar: all(
            one["kl"] <= kl and one["top1"] >= top1 and one["perplexity_rise"] <= rise for one in found.values()
        )
        for bar, (kl, top1, rise) in BARS.items()
    }  # fmt: skip


def bytes_read(model: LoadedModel, kept: float) -> dict[str, float]:
    """Share of the bytes that a token reads, of the FFNs and of all weights, embedding rows left out."""
    gate = rest = other = 0
    for layer in model.weights.layers:
        w = layer.ffns[0]
        for name, matrix in ((name, one) for block in (layer, w) for name, one in vars(block).items()):
            n_bytes = getattr(matrix, "n_bytes", None)
            if n_bytes is None or callable(n_bytes):
                continue
            if name == "gate":
                gate += n_bytes
            elif name in ("up", "down", "down_t"):
                rest += n_bytes
            else:
                other += n_bytes
    other += model.weights.head.n_bytes
    read = gate + kept * rest
    return {"ffn_bytes": read / (gate + rest), "all_bytes": (read + other) / (gate + rest + other)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("code", type=Path)
    parser.add_argument("document", type=Path)
    parser.add_argument("--tokens", type=int, default=8192, help="of each text")
    parser.add_argument("--record", metavar="NAME", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    began = time.perf_counter()
    model = LoadedModel.load(flags.model, EngineConfig(device="cpu", context=CONTEXT))
    chats = [one for kind in write_portion(model, 1).values() for one in kind]
    pairs = [(one[:-1], one[1:]) for one in chats if len(one) > 1]
    while sum(len(inputs) for inputs, _ in pairs) > flags.tokens:
        pairs.pop()
    texts: dict[str, list[Any]] = {"own": pairs}
    for name, path in (("code", flags.code), ("document", flags.document)):
        tokens = model.tokenizer.encode(path.read_text(encoding="utf-8"))[: flags.tokens]
        texts[name] = list(windows(tokens, model.text_bos_id, CONTEXT))
    rows = study(model, texts)
    result = {
        "command": f"python tests/benchmarks/made_zeros.py MODEL CODE DOCUMENT --tokens {flags.tokens}",
        "date": time.strftime("%Y-%m-%d"), "hardware": f"{describe(probe())}; {platform.machine()}",
        "model": model.name, "activation": model.opened.config.activation, "seconds": time.perf_counter() - began,
        "levels": rows,
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if flags.record:
        path = Path(__file__).parent / "results" / f"made-zeros-{flags.record}-{result['date']}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
