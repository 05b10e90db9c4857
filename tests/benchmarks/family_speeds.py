"""Prefill and decode of a real shape of each newer family beside llama.cpp, one after the other on the same file.

    python tests/benchmarks/family_speeds.py --llama-bench llama-bench --folder /dev/shm
    python tests/benchmarks/family_speeds.py --llama-bench llama-bench --device cpu --model smollm3-3b

The files are made by catalogue_models.py: Q4_0 with random numbers, as many layers as fit in --most-gb; one at a time,
and deleted. On a GPU, all of the model is there on both sides. Each side is asked `--repeat` times in a process of its
own; medians of Hearth, means of llama-bench. Experts are chosen nearly at random. The CPU reads memory before and
after, as its rate changes from minute to minute. A line a model is printed at once.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from catalogue_models import ROOT, of_layers, write_model

from engine.library.estimate.catalogue import load_catalogue
from engine.library.estimate.shapes import file_bytes
from engine.machine.hardware import default_threads, probe
from native_kernels.cpu.products.bandwidth import read_bytes_per_s
from native_kernels.cpu.runtime.pool import Pool

LIMIT_S = 180
MODELS = (
    "nemotron-3-nano-30b-a3b", "nemotron-nano-9b-v2", "granite-4.0-h-tiny", "granite-4.0-h-micro", "lfm2.5-8b-a1b",
    "lfm2.5-2.6b", "gemma-3n-e4b", "phi-3.5-moe", "llama-4-scout", "minimax-m2", "glm-4-9b", "glm-4.5-air",
    "ministral-3-8b", "smollm3-3b", "olmo-3-7b-instruct", "granite-4.1-8b", "phi-4-mini", "seed-oss-36b",
    "exaone-4.0-1.2b", "hunyuan-7b", "ernie-4.5-0.3b", "qwen3-next-80b-a3b-instruct", "gemma-4-e4b", "gemma-3-12b",
    "gemma-2-9b-it", "llama-3.1-8b-instruct", "qwen3-8b", "qwen2.5-7b-instruct",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", type=Path, required=True, metavar="PATH")
    parser.add_argument("--model", action="append", metavar="ID", help="of the catalogue (default: one of each family)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--threads", type=int, help="on both sides; as many as Hearth takes by itself")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--most-gb", type=float, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--gen-tokens", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the figures after every model")
    flags = parser.parse_args()
    hardware = probe()
    flags.threads = flags.threads or default_threads(hardware)
    figures: dict[str, Any] = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": " ".join(["python", "tests/benchmarks/family_speeds.py", *sys.argv[1:]]),
        "gpu": next((gpu.name for gpu in hardware.gpus), ""), "cpu": hardware.cpu.name, "threads": flags.threads,
        "dram_bytes_per_s": [_dram(flags.threads)], "models": {},
    }  # fmt: skip
    for name in flags.model or MODELS:
        figures["models"][name] = found = compare(flags, name)
        figures["dram_bytes_per_s"].append(_dram(flags.threads))
        print(name, json.dumps(found), flush=True)
        if flags.record:
            flags.record.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def compare(flags: argparse.Namespace, name: str) -> dict[str, Any]:
    entry = load_catalogue().get(name)
    whole = file_bytes(entry.shape, "q4_0", "gguf")
    layers = int(entry.shape.n_layers * min(1, flags.most_gb * 1e9 / whole))
    path = flags.folder / f"{name}.gguf"
    try:
        shape = of_layers(entry.shape, layers)
        found = {"layers": shape.n_layers, "of": entry.shape.n_layers, "bytes": write_model(path, shape)}
        ours, theirs = hearth(flags, path), llama_bench(flags, path)
    finally:
        path.unlink(missing_ok=True)
    ratios = {
        f"{what} ratio": ours[what] / theirs[what] for what in ("prefill", "decode") if what in ours and what in theirs
    }
    return {**found, "hearth": ours, "llama.cpp": theirs, **ratios}


def _dram(threads: int) -> float:
    return read_bytes_per_s(Pool(threads), 1 << 30)


def hearth(flags: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Return tokens/s of `engine bench`, or its error."""
    command = [sys.executable, "-m", "engine", "bench", str(path), "--json"]
    command += ["--context", str(flags.prompt_tokens + flags.gen_tokens + 64), "--device", flags.device]
    command += ["--threads", str(flags.threads), "--prompt-tokens", str(flags.prompt_tokens)]
    command += ["--gen-tokens", str(flags.gen_tokens), "--repeat", str(flags.repeat)]
    told = _told(command, dict(os.environ))
    if isinstance(told, str):
        return {"error": told}
    return {"prefill": told["prefill_tok_s"], "decode": told["decode_tok_s"]}


def llama_bench(flags: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Return tokens/s of llama-bench, or its error."""
    command = [str(flags.llama_bench), "-m", str(path), "-o", "json", "-t", str(flags.threads), "-r", str(flags.repeat)]
    command += ["-p", str(flags.prompt_tokens), "-n", str(flags.gen_tokens)]
    on_gpu = flags.device == "cuda"
    command += ["-ngl", "99", "-fa", "1"] if on_gpu else []
    told = _told(command, dict(os.environ) | ({} if on_gpu else {"CUDA_VISIBLE_DEVICES": ""}))
    if isinstance(told, str):
        return {"error": told}
    rates = {"decode" if one["n_gen"] else "prefill": one["avg_ts"] for one in told}
    return {**rates, "build": told[0].get("build_commit")}


def _told(command: list[str], environment: dict[str, str]) -> Any:
    """Return what a program prints as JSON, or the end of what it says is wrong."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
        )
    except subprocess.TimeoutExpired:
        return "not done within 180 s"
    return json.loads(done.stdout) if done.returncode == 0 else (done.stderr.strip() or str(done.returncode))[-600:]


if __name__ == "__main__":
    raise SystemExit(main())
