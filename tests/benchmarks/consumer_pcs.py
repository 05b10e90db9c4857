"""Rates of models within the VRAM of consumer GPUs and on few CPU cores, and what of each model fits.

    python tests/benchmarks/consumer_pcs.py 8b-q4_k.gguf 30b-a3b-q4_k.gguf --record h100
    python tests/benchmarks/consumer_pcs.py tiny.gguf --budget 6 --cores 2

Every row is one `engine bench` in a process that may use so many cores, after a read of RAM on the same cores. As near
to a PC as a server's GPU comes: memory and cores are limited, but the GPU's own bandwidth, PCIe and the RAM are the
server's, so the rows show what fits and how rates fall with the budget, not what an RTX 3060 gives. Larger budgets
are left out once the whole model fits.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from engine.machine.hardware import choose_gpu, default_threads, probe  # noqa: E402 - found by the line above
from native_kernels.cpu.products.bandwidth import read_bytes_per_s  # noqa: E402
from native_kernels.cpu.runtime.pool import Pool  # noqa: E402

RESULTS = Path(__file__).parent / "results"
BUDGETS = (6, 8, 11, 12, 16, 24)  # GiB: GTX 1660, RTX 4060, 2080 Ti, 3060, 4080, 4090
CORES = (4, 6, 8)
SAMPLE_BYTES = 1 << 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--budget", type=int, action="append", help="GiB; may be repeated")
    parser.add_argument("--cores", type=int, action="append")
    parser.add_argument(
        "--record", metavar="NAME", help="write consumer-pcs-NAME-DATE.json to tests/benchmarks/results"
    )
    parser.add_argument("--tokens", type=int, default=64, help="to decode in each of two measured rounds")
    parser.add_argument("--within", type=float, default=math.inf, metavar="SECONDS", help="begin no row after that")
    flags = parser.parse_args()
    end = time.monotonic() + flags.within
    budgets, cores = flags.budget or BUDGETS, flags.cores or CORES
    gpu, reason = choose_gpu(probe())
    rows: list[dict[str, Any]] = []
    for model in flags.models:
        for budget in budgets:
            for n in cores:
                if time.monotonic() > end:
                    return 0
                rows.append(row(model, budget, n, flags.tokens))
                print(line(rows[-1]), flush=True)
                if flags.record:
                    record(flags.record, gpu.name if gpu is not None else reason, rows)
            if not rows[-1].get("cpu_bytes_per_token", 1):
                break
    return 0


def record(name: str, gpu: str, rows: list[dict[str, Any]]) -> None:
    """Write the rows so far."""
    today = datetime.datetime.now().astimezone().date().isoformat()
    columns = list(max(rows, key=len))
    found = {"date": today, "command": " ".join(sys.argv), "gpu": gpu, "columns": columns,
             "rows": [[each.get(column) for column in columns] for each in rows]}  # fmt: skip
    (RESULTS / f"consumer-pcs-{name}-{today}.json").write_text(json.dumps(found) + "\n")


def row(model: Path, budget: int, n_cores: int, n_tokens: int) -> dict[str, Any]:
    """One run of the bench, on the first n_cores that this process may use; with `error` if it failed."""
    processors = sorted(os.sched_getaffinity(0))
    found: dict[str, Any] = {"model": model.stem, "budget_gib": budget, "cores": n_cores}
    command = [sys.executable, "-m", "engine", "bench", str(model), "--vram-budget", str(budget), "--context", "2048",
               "--json", "--prompt-tokens", "1024", "--gen-tokens", str(n_tokens), "--repeat", "2"]  # fmt: skip
    os.sched_setaffinity(0, processors[:n_cores])
    try:
        with contextlib.closing(Pool(default_threads(probe()))) as pool:
            found["ram_gb_per_s"] = round(read_bytes_per_s(pool, SAMPLE_BYTES) / 1e9, 1)
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        os.sched_setaffinity(0, processors)
    if run.returncode:
        return {**found, "error": " ".join(run.stderr.split()[-30:])}
    bench = json.loads(run.stdout)
    names = ("prefill_tok_s", "decode_tok_s", "share_of_floor", "vram_bytes", "expert_hits", "gpu_neuron_load", "mode")
    found |= {name: bench[name] for name in names}
    return found | {f"{side}_bytes_per_token": n for side, n in bench["bytes_per_token"].items()}


def line(of: dict[str, Any]) -> str:
    """The row as text."""
    head = f"{of['model']:<24} {of['budget_gib']:>3} GiB {of['cores']} cores  RAM {of['ram_gb_per_s']:>6.1f} GB/s "
    if "error" in of:
        return f"{head} {of['error']}"
    on_gpu, on_cpu = of["gpu_bytes_per_token"], of["cpu_bytes_per_token"]
    return (
        f"{head} decode {of['decode_tok_s']:7.1f}  prompt {of['prefill_tok_s']:8.0f} tok/s  "
        f"{100 * on_gpu / max(1, on_gpu + on_cpu):5.1f} % of a token's bytes on the GPU, "
        f"{100 * (of['share_of_floor'] or 0):3.0f} % of the floor"
    )


if __name__ == "__main__":
    sys.exit(main())
