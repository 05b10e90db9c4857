"""Decode with neurons on the GPU and on the CPU, against the least time that a token's bytes allow.

    python tests/benchmarks/gpu_anchors.py 32b-f16.gguf --budget 24 --budget all
    python tests/benchmarks/gpu_anchors.py 70b-q4_0.gguf --budget 11 --threads 15 --record
    python tests/benchmarks/gpu_anchors.py /dev/shm/40b.gguf --budget 24 --in-memory
    python tests/benchmarks/gpu_anchors.py tiny.gguf --device cpu

The models are files in PowerInfer's format: down neuron-major, a predictor in every layer (make_model.py powerinfer).
Every model and budget is one run of `engine bench` in a process of its own. Before them the CPU's memory is read
with as many threads as there are processors, and the GPU's memory by a kernel; with these the floor is counted: per
layer attention and predictor, then hot and cold neurons at the same time, and 12 us for an exchange; the neurons are
those that the model's statistics say, the most active ones in the budget. Neither our exchange nor our placement moves
it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from engine.config import EngineConfig  # noqa: E402
from engine.errors import EngineError  # noqa: E402
from engine.machine.gpu_speed import measure_gpus  # noqa: E402 - found by the line above
from engine.machine.graphics import used_bytes  # noqa: E402
from engine.machine.hardware import HardwareProfile, choose_gpu, default_threads, probe, sample_bytes  # noqa: E402
from engine.model.model_artefacts import read_stats  # noqa: E402
from engine.model.weights import OpenedModel, open_model  # noqa: E402
from engine.placement.machine_figures import with_figures, working_set  # noqa: E402
from engine.placement.model_bytes import ModelBytes  # noqa: E402
from native_kernels.cpu.products.bandwidth import read_bytes_per_s  # noqa: E402
from native_kernels.cpu.runtime.pool import Pool, usable_processors  # noqa: E402

RESULTS = Path(__file__).parent / "results"
EXCHANGE_S = 12e-6
LOOK_S = 0.1  # between two looks at the GPU's memory
GIB = 2**30


@dataclass(frozen=True)
class TokenBytes:
    """What a token reads, in bytes: of a layer whatever its neurons, of one neuron, of the head; the layers' KV cache.
    active: f64 [L, F], how likely each neuron is."""

    layer: float
    neuron: float
    head: float
    kv: float
    active: NDArray[np.float64]


@dataclass(frozen=True)
class Floor:
    """seconds of a token; hot_share: of the activations that are on the GPU."""

    seconds: float
    hot_share: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--budget", action="append", metavar="GIB", help="or `all`; may be repeated (default: all)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--threads", type=int, help="default: as many as the engine takes by itself")
    parser.add_argument("--memory-threads", type=int, help="that read memory for the floor (default: one a processor)")
    parser.add_argument("--mode", choices=("sparse", "exact", "dense"), default="sparse")
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--gen-tokens", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument(
        "--in-memory", action="store_true",
        help="the models lie in a file system of the memory: what one takes there counts as free, for it is used there",
    )  # fmt: skip
    parser.add_argument("--limit-s", type=float, default=240, help="for one run")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    profile = probe()
    threads = flags.threads or default_threads(profile)
    reading = flags.memory_threads or usable_processors()
    hardware, dram = measured(profile, reading, flags.device)
    gpu, _ = choose_gpu(hardware)
    speed = None if gpu is None or flags.device == "cpu" else gpu.bytes_per_s
    print(f"CPU: {dram / 1e9:.1f} GB/s with {reading} threads" + (f"; GPU: {speed / 1e9:.0f} GB/s" if speed else ""))
    rows = []
    for path in flags.models:
        opened = open_model(path)
        token = token_bytes(opened, flags.prompt_tokens + flags.gen_tokens // 2)
        machine = with_file_as_free(profile, opened, threads, flags.device) if flags.in_memory else None
        for budget in flags.budget or ["all"]:
            limit = None if budget == "all" else float(budget)
            floor = None if token is None else least_seconds(token, limit and limit * GIB, dram, speed)
            rows.append(row(path, budget, floor, run(flags, path, limit, threads, gpu and gpu.index, machine)))
            print(line(rows[-1]), flush=True)
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/gpu_anchors.py", *sys.argv[1:]]),
            "threads": threads, "memory_threads": reading, "dram_bytes_per_s": dram,
            "hardware": hardware.to_json(), "rows": rows,
        }  # fmt: skip
        file = RESULTS / f"gpu-anchors-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0 if all("decode_tok_s" in one for one in rows) else 1


def measured(profile: HardwareProfile, threads: int, device: str) -> tuple[HardwareProfile, float]:
    """The machine with its GPU's figures, and how fast the kernels' threads read memory."""
    pool = Pool(threads)
    try:
        dram = read_bytes_per_s(pool, sample_bytes(profile))
    finally:
        pool.close()
    return (measure_gpus(profile, threads) if device == "cuda" else profile), dram


def with_file_as_free(
    profile: HardwareProfile, opened: OpenedModel, threads: int, device: str
) -> HardwareProfile:  # fmt: skip
    """The machine as a model finds it whose file lies in memory already: else that would be counted twice, as taken
    and as wanted. With every figure that the engine measures before it places a model."""
    known = with_figures(profile, threads, working_set(ModelBytes.of(opened)), gpus=device == "cuda")
    free = known.ram.free_bytes + opened.files.path.stat().st_size
    return replace(known, ram=replace(known.ram, free_bytes=min(known.ram.total_bytes, free)))


def found_in_memory(engine: EngineConfig, path: Path, folder: str) -> EngineConfig:
    """The settings of a load of that model, whose file lies in memory; the folder is to stay until it is loaded."""
    profile, machine = probe(), Path(folder, "machine.json")
    threads = engine.threads or default_threads(profile)
    with_file_as_free(profile, open_model(path), threads, engine.device).save(machine)
    return replace(engine, hardware_file=str(machine))


def token_bytes(opened: OpenedModel, position: int) -> TokenBytes | None:
    """None where nothing is known of the neurons."""
    try:
        stats = read_stats(opened)
    except EngineError:
        stats = None
    if stats is None or stats.tokens is None:
        return None
    config, sizes = opened.config, {name: info.n_bytes for name, info in opened.source.tensors.items()}
    neurons = sum(n for name, n in sizes.items() if ".ffn_gate." in name or ".ffn_up." in name or ".ffn_down" in name)
    head = sizes.get("output.weight", sizes.get("token_embd.weight", 0))
    layers = sum(n for name, n in sizes.items() if name.startswith("blk.")) - neurons
    kv = 2 * 2 * config.n_kv_heads * config.head_dim * position
    return TokenBytes(
        layers / config.n_layers, neurons / (config.n_layers * config.d_ff), head, kv, stats.counts / stats.tokens
    )


def least_seconds(token: TokenBytes, budget: float | None, dram: float, gpu: float | None) -> Floor:
    """The floor within so many bytes of the GPU; None: all of it. GPU None: there is none.

    Every layer gets the same room for neurons, and takes the most active ones.
    """
    n_layers, neurons = token.active.shape
    expected = -np.sort(-token.active, axis=1)  # [L, F], the most active first
    always = n_layers * (token.layer + token.kv) + token.head
    if gpu is None:
        return Floor((always + float(expected.sum()) * token.neuron) / dram, 0.0)
    room = np.inf if budget is None else budget - always
    if room < 0:  # not even that: as many layers as fit, the rest with all neurons beside the CPU
        share = max(0.0, (budget or 0) / always)
        rest = (1 - share) * always + float(expected.sum()) * token.neuron
        return Floor(share * always / gpu + rest / dram + EXCHANGE_S, 0.0)
    hot = int(min(neurons, room // (n_layers * token.neuron)))
    hot_bytes = expected[:, :hot].sum(axis=1) * token.neuron
    cold_bytes = expected[:, hot:].sum(axis=1) * token.neuron
    seconds = np.maximum(hot_bytes / gpu, cold_bytes / dram) + (EXCHANGE_S if hot < neurons else 0.0)
    return Floor(float(seconds.sum()) + always / gpu, float(hot_bytes.sum() / (hot_bytes + cold_bytes).sum()))


def run(
    flags: argparse.Namespace,
    path: Path,
    budget: float | None,
    threads: int,
    gpu: int | None = None,
    machine: HardwareProfile | None = None,
) -> dict[str, Any]:
    """What `engine bench` says of the model, with the most that NVML's GPU of that number was seen to hold beyond
    what it held before; or {"error": its last words}. machine: in place of what the engine finds."""
    command = [sys.executable, "-m", "engine", "bench", str(path), "--json", "--context", "512"]
    command += ["--device", flags.device, "--mode", flags.mode, "--threads", str(threads)]
    command += ["--prompt-tokens", str(flags.prompt_tokens), "--gen-tokens", str(flags.gen_tokens)]
    command += ["--repeat", str(flags.repeat), *([] if budget is None else ["--vram-budget", f"{budget:g}"])]
    started, before = time.perf_counter(), used_bytes(gpu) or 0
    peak = before
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        tempfile.TemporaryDirectory() as folder,
    ):
        if machine is not None:
            machine.save(Path(folder) / "machine.json")
            command += ["--hardware", str(Path(folder) / "machine.json")]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=err, text=True)
        try:
            while process.poll() is None:
                if time.perf_counter() - started > flags.limit_s:
                    return {"error": f"not done within {flags.limit_s:g} s"}
                peak = max(peak, used_bytes(gpu) or 0)
                time.sleep(LOOK_S)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        if process.returncode:
            return {"error": err.read().strip()[-2000:] or f"exit code {process.returncode}"}
        found: dict[str, Any] = json.loads(out.read())
    return {**found, "wall_s": time.perf_counter() - started, "peak_gpu_bytes": peak - before}


def row(path: Path, budget: str, floor: Floor | None, found: dict[str, Any]) -> dict[str, Any]:
    """The run's figures with what it is held against."""
    own: dict[str, Any] = {"model": path.stem, "budget": budget, **found}
    if floor is not None:
        own["floor"] = asdict(floor)
        if "decode_tok_s" in found:
            own["share_of_bytes_floor"] = floor.seconds * found["decode_tok_s"]
    return own


def line(own: dict[str, Any]) -> str:
    """A run in words."""
    head = f"{own['model']:14} {own['budget']:>5} GiB: "
    if "error" in own:
        return head + own["error"]
    words = [f"{own['decode_tok_s']:7.2f} tok/s", f"prefill {own['prefill_tok_s']:.1f}"]
    moved: dict[str, float] = own["bytes_per_token"]
    words.append(", ".join(f"{side} {n / 1e9:.2f} GB" for side, n in moved.items()) + " a token")
    if own.get("gpu_neuron_load") is not None:
        words.append(f"GPU computes {own['gpu_neuron_load']:.0%} of the neurons")
    words.append(
        f"VRAM {own['vram_bytes'] / GIB:.2f} GiB (the GPU's own peak {own.get('peak_gpu_bytes', 0) / GIB:.2f})"
    )
    if "share_of_bytes_floor" in own:
        words.append(f"floor {1e3 * own['floor']['seconds']:.2f} ms, share {own['share_of_bytes_floor']:.2f}")
    words.append("ms: " + ", ".join(f"{name} {1e3 * s:.2f}" for name, s in own["timings"].items()))
    return head + "; ".join(words)


if __name__ == "__main__":
    sys.exit(main())
