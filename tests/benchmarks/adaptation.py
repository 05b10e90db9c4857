"""How well the hot neurons fit the text after a person has changed its kind, and how far adapting makes up for it.

    python tests/benchmarks/adaptation.py CORPUS              texts profile-*.txt and eval-*.txt, and our own sources
    python tests/benchmarks/adaptation.py CORPUS --record     and write the figures to tests/benchmarks/results/

Coverage is the share of the activations that fall on hot neurons. Hot are as many neurons as are asked for, those that
fire most often in a calibration text; then so many tokens of another kind pass through the model in answers of 200,
and after each the host's adaptation exchanges what it would exchange when idle. The neurons that were placed on text
of the new kind itself, ten times as much, are what it is measured against; all of it on other text of that kind.
These are counts, not times: no load of the machine changes them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fakes.hot_store import FakeHotStore

from engine.bundle.artefacts import save_stats
from engine.config import EngineConfig
from engine.conversion.convert import convert
from engine.executor.adaptation import Adaptation
from engine.executor.hot_blocks import HotBlocks
from engine.session.loaded_model import LoadedModel
from engine.session.resolve_model import resolve_model
from engine.sparsity.stats import NeuronStats

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
FILES = {"encyclopedia": "wiki", "stories": "stor*", "dialogue": "dialogue"}  # kinds and what their files are called
CALIBRATION_TOKENS, HELD_OUT_TOKENS, ANSWER_TOKENS, WINDOW_TOKENS = 20_000, 8_000, 200, 400
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """Texts of one kind as token ids, none of them in two parts: to calibrate with, to chat in, to measure on."""

    calibration: list[int]
    chat: list[int]
    held_out: list[int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--model", default="starter-chat")
    parser.add_argument("--hot", type=float, default=0.26, help="share of the neurons")
    parser.add_argument("--tokens", type=int, default=2000, help="of the new kind of text")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = convert(resolve_model(flags.model), Path(folder) / "bundle", "q8_0").bundle
        model = LoadedModel.load(bundle, EngineConfig(mode="exact", context=WINDOW_TOKENS))
        kinds = read_kinds(flags.corpus, model, flags.tokens)
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": f"python tests/benchmarks/adaptation.py CORPUS --model {flags.model} --hot {flags.hot:g} "
            f"--tokens {flags.tokens}",
            "machine": f"{platform.machine()}, {os.cpu_count()} logical processors, {model.backend.name}",
            **measure(model, kinds, flags.hot),
        }
    print(json.dumps(figures, indent=1))
    if flags.record:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"adaptation-{figures['date']}.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    return 0


def read_kinds(corpus: Path, model: LoadedModel, tokens: int) -> dict[str, Kind]:
    """The corpus' kinds, and code: the sources of the engine to learn from, those of the window to measure on."""
    texts = {
        kind: [_joined(corpus.glob(f"{part}-{name}.txt")) for part in ("profile", "eval")]
        for kind, name in FILES.items()
    }
    texts["code"] = [_joined((ROOT / package).rglob("*.py")) for package in ("engine", "app")]
    kinds = {}
    for kind, (learned, held_out) in texts.items():
        ids = model.tokenizer.encode(learned[: 8 * (CALIBRATION_TOKENS + tokens)])
        kinds[kind] = Kind(
            ids[:CALIBRATION_TOKENS],
            ids[CALIBRATION_TOKENS : CALIBRATION_TOKENS + tokens],
            model.tokenizer.encode(held_out[: 8 * HELD_OUT_TOKENS])[:HELD_OUT_TOKENS],
        )
    return kinds


def measure(model: LoadedModel, kinds: dict[str, Kind], hot_share: float) -> dict[str, Any]:
    """Coverage of every kind by the hot neurons of every calibration, before and after adapting."""
    calibrated = {name: count(model, kind.calibration) for name, kind in kinds.items()}
    held_out = {name: count(model, kind.held_out) for name, kind in kinds.items()}
    sources = {
        **{name: [name] for name in kinds},
        "encyclopedia and stories": ["encyclopedia", "stories"],
        "all kinds": list(kinds),
    }
    own = {name: coverage(place(calibrated[name], hot_share), held_out[name]) for name in kinds}
    rows = []
    for source, parts in sources.items():
        counts = np.sum([calibrated[part] for part in parts], axis=0)
        positions = sum(len(kinds[part].calibration) for part in parts)
        save_stats(model.opened, NeuronStats(counts, positions, "measured", source))
        for name, kind in kinds.items():
            before = coverage(place(counts, hot_share), held_out[name])
            adapted, moved = adapt(model, place(counts, hot_share), kind.chat)
            after = coverage(adapted, held_out[name])
            gap = own[name] - before
            rows.append({
                "calibrated_on": source, "used_on": name, "coverage": round(before, 4),
                "coverage_adapted": round(after, 4), "coverage_of_its_own": round(own[name], 4),
                "gap_closed": round((after - before) / gap, 3) if gap > 0.01 else None, "neurons_moved": moved,
            })  # fmt: skip
    wrong = [row for row in rows if row["calibrated_on"] in kinds and row["calibrated_on"] != row["used_on"]]
    lost = [row["coverage_of_its_own"] - row["coverage"] for row in wrong]
    kept_lost = [row["coverage_of_its_own"] - row["coverage_adapted"] for row in wrong]
    code_after_prose = next(
        row for row in rows if (row["calibrated_on"], row["used_on"]) == ("encyclopedia and stories", "code")
    )
    return {
        "hot_share": hot_share,
        "tokens_of_the_new_kind": min(len(kind.chat) for kind in kinds.values()),
        "code_after_prose_gap_closed": code_after_prose["gap_closed"],
        "one_wrong_kind_loses_points": [round(100 * min(lost), 1), round(100 * max(lost), 1)],
        "adapting_wins_back_share": round(1 - sum(kept_lost) / sum(lost), 3),
        "rows": rows,
    }


def count(model: LoadedModel, tokens: Sequence[int]) -> I64:
    """How often each neuron fires over the tokens: [L, F]."""
    transformer = model.transformer("exact")
    transformer.executor.counters.record_per_neuron()
    for window in _pieces(tokens, WINDOW_TOKENS):
        transformer.forward(np.asarray(window, np.int64), model.new_cache())
    return transformer.executor.counters.take_per_neuron()[0]


def place(counts: I64, hot_share: float) -> list[NDArray[np.int32]]:
    """The hot neurons of each layer: of all neurons together those that fire most often."""
    mask = np.zeros(counts.size, np.bool_)
    mask[np.argsort(-counts, axis=None, kind="stable")[: round(hot_share * counts.size)]] = True
    return [np.flatnonzero(row).astype(np.int32) for row in mask.reshape(counts.shape)]


def coverage(hot: Sequence[NDArray[np.int32]], counts: I64) -> float:
    """The share of the activations that fall on hot neurons."""
    return float(sum(int(row[ids].sum()) for row, ids in zip(counts, hot, strict=True)) / counts.sum())


def adapt(model: LoadedModel, hot: list[NDArray[np.int32]], chat: Sequence[int]) -> tuple[list[NDArray[np.int32]], int]:
    """The hot neurons after these tokens in answers, with all idle work done after each; and how many moved."""
    blocks = HotBlocks(model.opened.config, model.weights, hot, FakeHotStore)
    transformer = model.transformer("exact")
    transformer.executor.counters.record_per_neuron()
    with tempfile.TemporaryDirectory() as folder:  # what is learned here is no person's
        adaptation = Adaptation(model.opened, Path(folder))
        for window in _pieces(chat, WINDOW_TOKENS):
            cache = model.new_cache()
            for answer in _pieces(window, ANSWER_TOKENS):
                transformer.forward(np.asarray(answer, np.int64), cache)
                adaptation.learn(transformer.executor.counters)
                while adaptation.adapt(blocks) == 0:
                    pass
    return [table.hot for table in blocks.tables], adaptation.moved


def _joined(files: Iterator[Path]) -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(files))


def _pieces(tokens: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


if __name__ == "__main__":
    raise SystemExit(main())
