"""Decode rates of a model without statistics: as placed at first, after learning from sample texts, with statistics.

    python tests/benchmarks/learned_placement.py /dev/shm/70b.gguf --shape 70b --codec q4_0 --budget 24 --record

Makes a synthetic model in PowerInfer's format (make_model.py) unless the file exists. Each load is a process of its own
with its own user folders: `off` learns nothing, `first` learns while it loads, `second` is the load after that,
`statistics` has the probabilities that the model was made with. Prints a JSON object.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]

from make_model import Recipe, make_model, save_statistics  # noqa: E402 - found by the line above

from engine.config import EngineConfig, SamplingConfig  # noqa: E402
from engine.executor.adaptation import Adaptation  # noqa: E402
from engine.machine.hardware import default_threads, describe, probe  # noqa: E402
from engine.session.chat_session import ChatSession  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from native_kernels.cpu.products.bandwidth import read_bytes_per_s  # noqa: E402
from native_kernels.cpu.runtime.pool import Pool, usable_processors  # noqa: E402

LOADS = ("off", "first", "second", "statistics")
ANSWERS, ANSWER_TOKENS, PROMPT_TOKENS = 3, 96, 16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", default="70b")
    parser.add_argument("--codec", default="q4_0")
    parser.add_argument("--active", type=float, default=0.1)
    parser.add_argument("--budget", type=float, default=24, metavar="GIB")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--load", choices=LOADS, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    recipe = Recipe(flags.shape, flags.codec, "powerinfer", True, flags.active, 1024, 1, None)
    if flags.load:
        print(json.dumps(measured(flags, recipe)))
        return 0
    if not flags.model.exists():
        make_model(flags.model, recipe)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for load in LOADS:
            found[load] = run_load(load, Path(folder) / load.replace("second", "first"))
            print(load, found[load], flush=True)
    processors = usable_processors()
    result = {
        "command": f"python tests/benchmarks/learned_placement.py MODEL --shape {flags.shape} --codec {flags.codec} "
        f"--active {flags.active} --budget {flags.budget:g}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "hardware": describe(probe()),
        "ram_gb_s": read_bytes_per_s(Pool(processors), 1 << 30) / 1e9, "loads": found,
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if flags.record:
        name = f"learned-placement-{flags.shape}-{flags.codec}-{result['date']}.json"
        (Path(__file__).parent / "results" / name).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def run_load(load: str, folder: Path) -> dict[str, Any]:
    """Measure one load in a process whose user folders are in this one."""
    folders = {"XDG_DATA_HOME": str(folder / "data"), "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, __file__, *sys.argv[1:], "--load", load]
    done = subprocess.run(command, env={**os.environ, **folders}, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def measured(flags: argparse.Namespace, recipe: Recipe) -> dict[str, Any]:
    if flags.load == "statistics":
        save_statistics(flags.model, recipe)
    adapts, began = flags.load != "off", time.perf_counter()
    engine = EngineConfig(
        device="cuda", threads=default_threads(probe()), mode="sparse", vram_budget_gib=flags.budget, context=1024,
        adapt=adapts,
    )  # fmt: skip
    model = LoadedModel.load(flags.model, engine)
    load_s = time.perf_counter() - began
    model.wait_for_weights(60)
    session = ChatSession(model, adaptation=Adaptation(model.opened) if adapts else None)
    sampling = SamplingConfig().changed({"temperature": 0.0, "max_tokens": ANSWER_TOKENS})
    draw, rates = np.random.default_rng(5), []
    for _ in range(ANSWERS):
        prompt = draw.integers(5, model.opened.config.vocab_size - 5, PROMPT_TOKENS).tolist()
        stats = list(session.generate(prompt, sampling))[-1].stats
        rates.append(stats.decode_tok_s)
        while adapts and session.adapt() == 0:  # as between two answers
            pass
    assert model.gpu is not None
    placement, seconds = model.gpu.placement, model.steps.seconds
    found = {
        "tok_s": [round(rate, 1) for rate in rates if rate], "load_s": round(load_s, 1),
        "learning_s": round(seconds.get("learning", 0.0), 2), "statistics": placement.statistics,
        "active_neurons_on_gpu": round(placement.gpu_neuron_load or 0.0, 3),
    }  # fmt: skip
    model.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
