"""Holds the cost model against decode: predicted and measured time of a token, with bandwidth measured in the same run.

    python tests/benchmarks/prediction.py                              the starter model, 1 and 2 threads
    python tests/benchmarks/prediction.py --shape 1b --codec f16       and a synthetic model (make_model.py)

A sample is the bandwidth and then some tokens, so that both meet the same neighbours on the machine. Readings and
tokens in which a thread stood ready and had no CPU do not count, as long as there are others; with one thread
it is that thread's CPU time that is measured, which leaves waiting out. The neurons that fire are counted in the
run itself; what is predicted is their time, not their number.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]

from bench_sides import waited_s  # noqa: E402 - found by the line above
from make_model import Recipe, make_model  # noqa: E402
from model_shapes import SHAPES  # noqa: E402

from engine.config import EngineConfig, Mode  # noqa: E402
from engine.machine.hardware import HardwareProfile, default_threads, probe  # noqa: E402
from engine.model.kv_cache import KVCache  # noqa: E402
from engine.model.model_files import open_model  # noqa: E402
from engine.model.transformer import Transformer  # noqa: E402
from engine.placement.activity import activity_of, scaled_to  # noqa: E402
from engine.placement.cost_model import Machine  # noqa: E402
from engine.placement.machine_figures import working_set  # noqa: E402
from engine.placement.model_bytes import ModelBytes, PredictorBytes  # noqa: E402
from engine.placement.placement_problem import TokenContext, build_problem  # noqa: E402
from engine.session.generate import decode_one_token, prefill  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402
from engine.session.resolve_model import resolve_model  # noqa: E402
from native_kernels.cpu.products.bandwidth import ReadProbe  # noqa: E402

RESULTS = Path(__file__).parent / "results"
WAITED_SHARE = 0.02
AT, SAMPLE_TOKENS, READINGS = 128, 8, 4
PROMISED = 0.2  # how far the prediction may lie from what is measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="instead of the starter model")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="also a synthetic one; may be repeated")
    parser.add_argument("--codec", choices=("f16", "q4_0", "q8_0"), action="append", help="of synthetic ones")
    parser.add_argument("--mode", choices=("dense", "exact", "sparse"), action="append", help="may be repeated")
    parser.add_argument("--active", type=float, default=0.1)
    parser.add_argument("--rank", type=int, default=448, help="of the predictors")
    parser.add_argument("--threads", type=int, action="append", help="may be repeated; default: 1 and the default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "hearth-benchmark-models")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    hardware = probe()
    threads = flags.threads or sorted({1, default_threads(hardware), hardware.cpu.cores})
    models = [resolve_model(flags.model or "starter-chat")]
    models += [
        synthetic(flags, shape, codec) for shape in flags.shape or () for codec in flags.codec or ("f16", "q4_0")
    ]
    rows = [row for path in models for n in threads for row in compare(path, n, flags)]
    worst = max(abs(row["predicted_to_measured"] - 1) for row in rows)
    print(f"{len(rows)} predictions, the worst {100 * worst:.0f} % off; promised are {100 * PROMISED:.0f} %.")
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python tests/benchmarks/prediction.py", *sys.argv[1:]]),
            "hardware": {"cpu": hardware.cpu.name, "logical_cpus": os.cpu_count(), "python": platform.python_version()},
            "worst": worst,
            "rows": rows,
        }
        file = RESULTS / f"prediction-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0 if worst <= PROMISED else 1


def synthetic(flags: argparse.Namespace, shape: str, codec: str) -> Path:
    """The file of a synthetic model with predictors, made where it is not there."""
    path = Path(flags.folder) / f"{shape}-{codec}-powerinfer-a{flags.active:g}-r{flags.rank}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        make_model(path, Recipe(shape, codec, "powerinfer", True, flags.active, flags.rank))
    return path


def compare(path: Path, threads: int, flags: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each mode: what was predicted and measured, medians over the samples that count."""
    opened = open_model(path)
    wanted: list[Mode] = flags.mode or ["dense", "exact", "sparse"]
    modes = [mode for mode in wanted if mode != "sparse" or opened.has_predictors]
    model = LoadedModel.load(path, EngineConfig(threads=threads, context=512, mode=modes[0]))
    assert model.backend.kernels is not None, "the cost model is of the compiled kernels"
    pool, n_bytes = model.backend.kernels.pool, working_set(ModelBytes.of(opened))
    rng, vocabulary = np.random.default_rng(0), opened.config.vocab_size
    graphs = {mode: model.transformer(mode) for mode in modes}
    caches = {mode: model.new_cache(512) for mode in modes}
    for mode in modes:
        prefill(graphs[mode], rng.integers(0, vocabulary, AT).tolist(), caches[mode])
    samples: dict[Mode, list[dict[str, float]]] = {mode: [] for mode in modes}
    probe_of_memory = ReadProbe(pool, n_bytes)
    clock = time.thread_time if threads == 1 else time.perf_counter
    for number in range(flags.rounds + 1):  # the first round warms caches
        for mode in modes:
            caches[mode].truncate(AT)
            graphs[mode].executor.counters.reset()
            tokens = iter(rng.integers(0, vocabulary, SAMPLE_TOKENS).tolist())
            reads = timed(probe_of_memory.seconds, READINGS, clock)
            times = timed(lambda g=graphs[mode], c=caches[mode], t=tokens: decode(g, next(t), c), SAMPLE_TOKENS, clock)
            counters = graphs[mode].executor.counters
            if number:
                samples[mode].append({
                    "measured_s": statistics.median(times.seconds),
                    "bytes_per_s": probe_of_memory.n_bytes / min(reads.seconds),
                    "undisturbed": float(reads.undisturbed and times.undisturbed),
                    "fired": counters.fired_share or 0.0,
                    "active": counters.active_share or 0.0,
                })  # fmt: skip
    rows = []
    for mode in modes:
        quiet = [one for one in samples[mode] if one["undisturbed"]]
        counted = quiet if len(quiet) >= 3 else samples[mode]
        for one in counted:
            one["predicted_s"] = predicted(model, mode, threads, one)
        ratio = statistics.median(one["predicted_s"] / one["measured_s"] for one in counted)
        rows.append({
            "model": path.name, "mode": mode, "threads": threads, "samples": len(counted), "quiet": len(quiet),
            "predicted_to_measured": ratio,
            **{name: statistics.median(one[name] for one in counted) for name in counted[0]},
        })  # fmt: skip
        print(f"{path.name} {mode} {threads} threads: predicted {1e3 * rows[-1]['predicted_s']:.2f} ms, measured "
              f"{1e3 * rows[-1]['measured_s']:.2f} ms, ratio {ratio:.2f}; read at {rows[-1]['bytes_per_s'] / 1e9:.1f} "
              f"GB/s, {len(quiet)} quiet of {len(samples[mode])} samples", flush=True)  # fmt: skip
    return rows


class Timed(NamedTuple):
    """seconds: of the times in which no thread had to wait for a processor, or of all where there was none."""

    seconds: list[float]
    undisturbed: bool


def timed(work: Callable[[], object], times: int, clock: Callable[[], float]) -> Timed:
    """Does it so many times."""
    all_of_them, quiet = [], []
    for _ in range(times):
        waited, started = waited_s(), clock()
        work()
        all_of_them.append(clock() - started)
        if waited_s() - waited <= WAITED_SHARE * all_of_them[-1]:
            quiet.append(all_of_them[-1])
    return Timed(quiet or all_of_them, bool(quiet))


def decode(graph: Transformer, token: int, cache: KVCache) -> None:
    decode_one_token(graph, token, cache)


def predicted(model: LoadedModel, mode: Mode, threads: int, sample: dict[str, float]) -> float:
    """Seconds of a token on the CPU alone, as the solver's cost model has them."""
    config = model.opened.config
    sizes = ModelBytes.of(model.opened)
    predictors = PredictorBytes.of(model.modes.predictor, sizes) if mode == "sparse" else None
    if predictors is not None:
        predictors = replace(predictors, active_share=(sample["active"],) * config.n_layers)
    activity = activity_of(config, mode, None, predictors)
    fired = np.stack([scaled_to(layer, sample["fired"]) for layer in activity.fired])
    if mode != "dense":
        activity = replace(activity, fired=fired, opened=fired)
    profile: HardwareProfile = probe()
    profile = replace(profile, cpu=replace(profile.cpu, bytes_per_s=sample["bytes_per_s"]))
    problem = build_problem(
        sizes, activity, Machine.of(profile, threads, None), mode,
        TokenContext(model.context, AT + SAMPLE_TOKENS // 2, model.kv_codec), predictors,
    )  # fmt: skip
    return problem.cpu_alone.seconds(problem)


if __name__ == "__main__":
    raise SystemExit(main())
