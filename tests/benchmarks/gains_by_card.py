"""Predicted decode rates of ten models on PCs with 8, 12, 16 and 24 GB of GPU memory, beside simpler placements.

    python tests/benchmarks/gains_by_card.py [--record NAME]

Nothing is measured: the solver reckons with the catalogue's shapes and assets/typical_rates.json, for 64 GB of RAM at
the typical rate. "layers": the same cost model with as many whole layers on the GPU as fit, all neurons computed.
"cpu": nothing on the GPU, all neurons computed. "hearth": the placement that Hearth would choose, with neurons skipped
where the model has zeros.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from engine.library.estimate.catalogue import load_catalogue  # noqa: E402 - found by the line above
from engine.library.estimate.estimates import SolvedEstimate, solve_estimate  # noqa: E402
from engine.library.estimate.machines import KnownMachine, known_machine  # noqa: E402
from engine.library.records import CatalogueEntry  # noqa: E402
from engine.machine.graphics import GpuInfo  # noqa: E402
from engine.machine.hardware import CpuInfo, HardwareProfile, RamInfo  # noqa: E402
from engine.placement.placement_problem import Choice, Problem  # noqa: E402

CARDS = {"RTX 5060": 8, "RTX 5070": 12, "RTX 5070 Ti": 16, "RTX 4090": 24}  # GB
CAPABILITIES = {"RTX 4090": "8.9"}  # others: 12.0
FREE_SHARE, RAM_GB, CORES = 0.95, 64, 8
MODELS = (
    "qwen3.5-9b", "gemma-4-12b", "gpt-oss-20b", "qwen3.8-27b", "gemma-4-26b-a4b", "qwen3.6-35b-a3b", "gpt-oss-120b",
    "llama-3.3-70b-instruct", "prosparse-llama-2-13b", "relullama-70b",
)  # fmt: skip


def pc(card: str) -> KnownMachine:
    """A PC with this card and typical rates."""
    total = CARDS[card] << 30
    capability = CAPABILITIES.get(card, "12.0")
    gpu = GpuInfo(
        0, f"GeForce {card}", capability, total, int(total * FREE_SHARE), None, None, None, None, usable=True
    )  # fmt: skip
    ram = RamInfo(RAM_GB << 30, int((RAM_GB << 30) * 0.9))
    return known_machine(HardwareProfile(CpuInfo("", CORES, 2 * CORES, ("avx2", "fma", "f16c")), ram, (gpu,)))


def whole_layers(problem: Problem, vram_budget: int) -> Choice | None:
    """As many whole layers on the GPU as fit, the last ones first; None if the GPU cannot hold one."""
    most = int(problem.blocks.max())
    on_gpu = int(np.flatnonzero(problem.attention_on_gpu & (problem.blocks == most))[0])
    on_cpu = problem.cpu_alone.ways[0]
    for n_cpu in range(problem.n_layers):
        ways = (on_cpu,) * n_cpu + (on_gpu,) * (problem.n_layers - n_cpu)
        for head in (True, False):
            choice = Choice(ways, head)
            if choice.vram(problem) <= vram_budget and np.isfinite(choice.seconds(problem)):
                return choice
    return None


def figures(entry: CatalogueEntry, machine: KnownMachine) -> dict[str, Any]:
    """The three rates in tokens/s; None where it does not fit."""

    def solved(**shape: Any) -> SolvedEstimate:
        return solve_estimate(replace(entry.shape, **shape), entry.codec, entry.format, entry.sparsity, machine)

    found = solved()
    # the same weights with an activation that has no zeros: every neuron is computed
    dense = (
        found if found.mode == "dense" else solved(activation="silu-glu" if "glu" in entry.shape.activation else "gelu")
    )
    layers = whole_layers(dense.problem, found.estimate.vram_budget_bytes)
    alone = dense.problem.cpu_alone
    fits = found.estimate.fits
    rates = {
        "hearth": found.estimate.predicted_tok_s,
        "layers": None if layers is None else 1 / layers.seconds(dense.problem),
        "cpu": 1 / alone.seconds(dense.problem),
    }
    return {"fits": fits, **{name: None if rate is None else round(rate, 2) for name, rate in rates.items()}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="NAME", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    catalogue, results = load_catalogue(), dict[str, Any]()
    for name in MODELS:
        entry = catalogue.get(name)
        results[name] = {"codec": entry.codec} | {card: figures(entry, pc(card)) for card in CARDS}
        print(name, json.dumps(results[name]), flush=True)
    if flags.record:
        written = {
            "date": time.strftime("%Y-%m-%d"), "command": "tests/benchmarks/gains_by_card.py", "measured": False,
            "ram_gb_per_s": pc("RTX 4090").profile.cpu.bytes_per_s / 1e9,  # type: ignore[operator]
            "models": results,
        }  # fmt: skip
        path = Path(__file__).parent / "results" / f"{flags.record}-{written['date']}.json"
        path.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
