"""Draws the pictures of docs/benchmarks.md from what is recorded in tests/benchmarks/results; it measures nothing.

    python tests/benchmarks/plots.py

Each picture is one function that reads its figures and hands them to svg_charts.py. The curves of the activations come
from the counts that the starter model ships with. A newer record of the same kind takes the place of an older one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "benchmarks")]

from svg_charts import Axis, Curve, Group, grouped_bars, lines, parted_bars  # noqa: E402 - found by the line above

from engine.model.model_artefacts import read_stats  # noqa: E402
from engine.model.weights import open_model  # noqa: E402
from engine.training.locality import curve, locality  # noqa: E402

RESULTS = Path(__file__).parent / "results"
PLOTS = ROOT / "docs" / "plots"
STARTER = ROOT / "assets" / "models" / "starter-chat" / "starter-chat-q8_0.gguf"
MODELS = {"13b-f16": "13B F16", "32b-f16": "32B F16", "70b-q4_0": "70B Q4_0"}
PER_CENT = [(share / 100, f"{share} %") for share in range(0, 101, 20)]


def main() -> int:
    PLOTS.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (PLOTS / name).write_text(draw(), encoding="utf-8")
        print(f"Written to {PLOTS / name}.")
    return 0


def decode_on_gpu() -> str:
    peers = newest("peers-h200")["rows"]
    groups = []
    for row in anchors():
        same = [p for p in peers if (p["model"], p["budget"]) == (row["model"], row["budget"])]
        # the peers' faster setting: 16 threads where both are recorded
        best = {p["engine"]: p["tok_s"] for p in sorted(same, key=lambda p: float(p["tok_s"]))}
        groups.append(Group(named(row), (row["decode_tok_s"], best["PowerInfer"], best["llama.cpp"])))
    return grouped_bars(
        "Decode rate by model and budget of the GPU",
        "tokens/s of one sequence; H200 with capped VRAM, synthetic weights, 15 % of the neurons active",
        ("Hearth, sparse", "PowerInfer", "llama.cpp (all neurons)"),
        groups,
    )


def decode_on_cpu() -> str:
    found = newest("against-llama-cpp-1b")["codecs"]
    sides = ("hearth sparse", "hearth exact", "hearth dense", "llama.cpp")
    groups = [
        Group(f"1B {codec.upper()}, no GPU", [engines[side]["decode"]["tok_s"] for side in sides])
        for codec, engines in found.items()
    ]
    return grouped_bars(
        "Decode rate on two virtual processors",
        "tokens/s of one sequence; synthetic 1B shape, 10 % of the neurons active, engines taking turns in one run",
        ("Hearth, sparse", "Hearth, exact", "Hearth, dense", "llama.cpp (all neurons)"),
        groups,
    )


def neuron_load() -> str:
    groups = [Group(named(row), (row["gpu_neuron_load"], 1 - row["gpu_neuron_load"])) for row in anchors()]
    return parted_bars(
        "Who computes the active neurons",
        "share of the neurons computed in decode; sparse mode, the runs of the chart of decode rates",
        ("GPU", "CPU"),
        groups,
    )


def activation_curves() -> str:
    stats = read_stats(open_model(STARTER))
    assert stats is not None, "the starter model ships with its counts"
    found = locality(stats)
    curves = [Curve(thinned(curve(counts)), 1) for counts in stats.counts]
    whole = Curve(thinned(curve(stats.counts)), 0, "whole model", strong=True)
    few = found.whole.share_for_80_percent
    mark = Curve([(few, 0.8)], 0, f"{100 * few:.0f} % carry 80 %", strong=True, dots=True)
    return lines(
        "Activations carried by the busiest neurons, layer by layer",
        f"the starter model: {len(stats.counts)} layers of {stats.counts.shape[1]:,} neurons, counted over "
        f"{stats.tokens:,} tokens of its own text; thin lines are layers",
        Axis("share of the neurons, busiest first", 1.0, PER_CENT),
        Axis("share of the activations", 1.0, PER_CENT),
        [*curves, whole, mark],
    )


def batch_scaling() -> str:
    found = newest("batch-scaling")
    points = [(float(row["batch"]), float(row["decode_tok_s"])) for row in found["rows"]]
    end = -(-points[-1][1] // 200) * 200
    together = Curve(points, 0, f"{points[-1][1]:.0f}", strong=True, dots=True)
    alone = Curve([(0.0, found["alone_tok_s"]), (points[-1][0], found["alone_tok_s"])], 1, "one alone")
    return lines(
        "Several sequences at once",
        f"tokens/s of CPU time, of all together; the starter model, mode {found['mode']}, "
        f"threads: {found['threads']}, fastest of several rounds",
        Axis("sequences decoded at once", points[-1][0], [(size, f"{size:.0f}") for size, _ in points]),
        Axis("tokens/s of all together", end, [(v * end / 4, f"{v * end / 4:.0f}") for v in range(5)]),
        [alone, together],
    )


def batches_on_gpu() -> str:
    rows = newest("batch-scaling-gpu")["rows"]
    groups = [
        Group(f"{row['batch']} at once", (row["decode_tok_s"], row["decode_tok_s"] / row["share_of_floor"]))
        for row in rows
    ]
    return grouped_bars(
        "Several sequences at once, GPU and CPU",
        "tokens/s of all together; 32B F16 within 24 GiB of an H200, mode sparse",
        ("decoded", "at its floor: the bytes that any of them needs"),
        groups,
    )


def share_of_floor() -> str:
    groups = [Group(named(row), (row["share_of_bytes_floor"], row["share_of_floor"])) for row in anchors()]
    return grouped_bars(
        "Share of the floor reached in decode",
        "1.00 is the time of a token's bytes at the speeds measured just before; runs of the chart of decode rates",
        ("of the best placement's floor", "of the floor of the placement taken"),
        groups,
        decimals=2,
        whole=max(1.0, *(share for group in groups for share in group.values if share is not None)),
    )


def anchors() -> list[dict[str, Any]]:
    """The recorded runs on the GPU, smaller models and larger budgets first."""
    rows = [row for name in ("13b", "32b", "32b-whole-gpu", "70b") for row in newest(f"gpu-anchors-{name}")["rows"]]
    return sorted(rows, key=lambda row: (list(MODELS).index(row["model"]), row["budget"] != "all", -vram(row)))


def newest(kind: str) -> dict[str, Any]:
    """The latest record of a kind; the names of records end with their date."""
    files = sorted(RESULTS.glob(f"{kind}-[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].json"))
    found: dict[str, Any] = json.loads(files[-1].read_text(encoding="utf-8"))
    return found


def vram(row: dict[str, Any]) -> float:
    return float(row["vram_bytes"])


def named(row: dict[str, Any]) -> str:
    where = "whole GPU" if row["budget"] == "all" else f"{row['budget']} GiB"
    return f"{MODELS[row['model']]}, {where}"


def thinned(line: tuple[Any, Any], points: int = 60) -> list[tuple[float, float]]:
    """So many of a curve's points, denser where it is steep: at its beginning."""
    x, y = line
    last = len(x) - 1
    at = sorted({round((i / points) ** 2 * last) for i in range(points + 1)})
    return [(float(x[i]), float(y[i])) for i in at]


PICTURES: dict[str, Callable[[], str]] = {
    "decode-gpu.svg": decode_on_gpu,
    "decode-cpu.svg": decode_on_cpu,
    "neuron-load.svg": neuron_load,
    "activation-curves.svg": activation_curves,
    "batch-scaling.svg": batch_scaling,
    "batch-gpu.svg": batches_on_gpu,
    "share-of-floor.svg": share_of_floor,
}

if __name__ == "__main__":
    sys.exit(main())
