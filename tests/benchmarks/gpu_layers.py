"""Where a token's time goes on the GPU and on the CPU: operator by operator, stage by stage.

    python tests/benchmarks/gpu_layers.py 13b-f16.gguf --budget 11
    python tests/benchmarks/gpu_layers.py 70b-q4_0.gguf --threads 15 --json

Some tokens are decoded as always, and the program's own stages are timed. Then what the GPU did for the last of them
is done again without the CPU: all of it at a stretch, and every kind of operator by itself, for all layers one
after the other, so that no launch and no cache stands in for the work. `hidden` is timed together with the prediction
that it follows, which is taken off again. What the token took beyond the GPU's stretch and the CPU's stages is
launches, the exchange and waiting for each other.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from gpu_anchors import found_in_memory  # noqa: E402 - found by the lines above

from engine.config import EngineConfig  # noqa: E402
from engine.gpu.token.token_steps import Step  # noqa: E402 - found by the line above
from engine.machine.hardware import probe  # noqa: E402
from engine.session.generate import decode_one_token, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from native_kernels.cuda.cuda_gpu import CudaGpu  # noqa: E402
from native_kernels.cuda.runtime.driver import Event  # noqa: E402

RESULTS = Path(__file__).parent / "results"
ROUNDS = 5
SETTLING_S = 60.0  # for what is done behind the load


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--budget", type=float, metavar="GIB", help="default: what the GPU has free")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--mode", choices=("auto", "sparse", "exact", "dense"), default="auto")
    parser.add_argument("--tokens", type=int, default=32, help="decoded with the stages timed")
    parser.add_argument("--in-memory", action="store_true", help="the model's file lies in memory: it counts as free")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    engine = EngineConfig(
        device="cuda", threads=flags.threads, context=512, mode=flags.mode, vram_budget_gib=flags.budget
    )
    with tempfile.TemporaryDirectory() as folder:
        if flags.in_memory:
            engine = found_in_memory(engine, Path(flags.model), folder)
        model = LoadedModel.load(flags.model, engine)
    try:
        model.wait_for_weights(SETTLING_S)
        found = measured(model, flags.tokens)
    finally:
        model.close()
    print(json.dumps(found) if flags.json else in_words(found))
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/gpu_layers.py", *sys.argv[1:]]),
            "hardware": probe().to_json(), **found,
        }  # fmt: skip
        file = RESULTS / f"gpu-layers-{Path(flags.model).stem}-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0


def measured(model: LoadedModel, n_tokens: int) -> dict[str, Any]:
    """Seconds of a token, of the program's stages, of the GPU's stretch and of its operators."""
    transformer, cache = model.transformer(), model.new_cache()
    decoder = transformer.decoder
    assert decoder is not None, "a model on the GPU has a program"
    tokens = np.random.default_rng(0).integers(0, model.opened.config.vocab_size, 2 * n_tokens + 16).tolist()
    prefill(transformer, tokens[:16], cache)
    for token in tokens[16 : 16 + n_tokens]:  # warms up
        decode_one_token(transformer, token, cache)
    decoder.measure_stages()
    counters = transformer.executor.counters
    counters.reset()
    took = []
    for token in tokens[16 + n_tokens :]:
        started = time.perf_counter()
        decode_one_token(transformer, token, cache)
        took.append(time.perf_counter() - started)
    gpu, steps = decoder.gpu, [step for stretch in decoder.gpu_steps() for step in stretch]
    return {
        "model": model.name,
        "device": model.device_reason,
        "threads": model.threads,
        "token_s": statistics.median(took),
        "stages_s": {stage: seconds / n_tokens for stage, seconds in decoder.stage_seconds().items()},
        "gpu_neuron_load": counters.gpu_neuron_load,
        "predicted_gpu_neuron_load": None if model.gpu is None else model.gpu.placement.gpu_neuron_load,
        "stretches": len(decoder.gpu_steps()),
        "gpu_s": seconds_of(gpu, steps),
        "operators": by_operator(gpu, steps),
    }


def by_operator(gpu: CudaGpu, steps: Sequence[Step]) -> dict[str, dict[str, float]]:
    """Name -> how often it stands in a token, and the seconds of all of them."""
    groups: dict[str, list[Step]] = {}
    for step in steps:
        groups.setdefault(name_of(step), []).append(step)
    found = {name: {"calls": len(group), "seconds": seconds_of(gpu, group)} for name, group in groups.items()}
    predicting = [name for name in groups if name.startswith("expect")]
    for name in [name for name in groups if name.startswith("hidden")] if predicting else []:
        both = [step for step in steps if name_of(step) in (name, *predicting)]
        found[name]["seconds"] = seconds_of(gpu, both) - sum(found[one]["seconds"] for one in predicting)
    return found


def name_of(step: Step) -> str:
    """The operator, and the sizes of what it multiplies with."""
    name: str = step.func.__name__
    match name, step.args:
        case "multiply", (matrices, *_):
            return f"multiply {' + '.join(str(one.n_rows) for one in matrices)} x {matrices[0].n_cols}"
        case "expect", (matrix, *_):
            return f"expect {matrix.n_rows} x {matrix.n_cols}"
    return name


def seconds_of(gpu: CudaGpu, steps: Sequence[Step]) -> float:
    """The shortest of some rounds of all of them, as the GPU's own clock has it."""

    def ask() -> None:
        for step in steps:
            step()

    work = gpu.captured(ask)
    start, end = Event(gpu.device), Event(gpu.device)
    took = []
    for _ in range(ROUNDS):
        start.record(gpu.stream)
        gpu.launch(work)
        end.record(gpu.stream)
        end.wait()
        took.append(end.seconds_since(start))
    for one in (work, start, end):
        one.close()
    return min(took)


def in_words(found: dict[str, Any]) -> str:
    """The figures as lines."""
    token = found["token_s"]
    lines = [
        f"{found['model']}, {found['threads']} threads: {1e3 * token:.2f} ms a token ({1 / token:.2f} tok/s), "
        f"{found['stretches']} stretches of the GPU; {found['device']}",
        f"of the neurons the GPU computed: {found['gpu_neuron_load']:.1%}, foretold by the placement: "
        f"{found['predicted_gpu_neuron_load']:.1%}",
        f"GPU, all at a stretch: {1e3 * found['gpu_s']:.2f} ms ({found['gpu_s'] / token:.0%})",
    ]
    for name, own in sorted(found["operators"].items(), key=lambda item: -item[1]["seconds"]):
        each = own["seconds"] / own["calls"]
        lines.append(f"  {name:36} {own['calls']:5} x {1e6 * each:8.2f} us = {1e3 * own['seconds']:7.3f} ms")
    lines.append("CPU's program:")
    for stage, seconds in sorted(found["stages_s"].items(), key=lambda item: -item[1]):
        lines.append(f"  {stage:36} {1e3 * seconds:7.3f} ms ({seconds / token:.0%})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
