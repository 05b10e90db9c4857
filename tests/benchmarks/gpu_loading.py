"""How long a model takes to be loaded, step by step, and what of it stays in the process's memory.

    python tests/benchmarks/gpu_loading.py 70b-q4_0.gguf --budget 24 --repeat 3 --record
    python tests/benchmarks/gpu_loading.py tiny.gguf --device cpu

The first load of a file may read it from the disk; the later ones find it in the system's cache of files. Steps that
move weights also say how many bytes a second.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from engine.config import EngineConfig  # noqa: E402 - found by the line above
from engine.machine.hardware import probe  # noqa: E402
from engine.session.loaded_model import LoadedModel  # noqa: E402

RESULTS = Path(__file__).parent / "results"
_STATUS = Path("/proc/self/status")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--budget", type=float, metavar="GIB", help="of the GPU (default: all)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--mode", choices=("sparse", "exact", "dense", "auto"), default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    loads = []
    for _ in range(flags.repeat):
        loads.append(loaded(flags))
        print(line(loads[-1]), flush=True)
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": " ".join(["python", "tests/benchmarks/gpu_loading.py", *sys.argv[1:]]),
            "model": flags.model.stem, "file_bytes": flags.model.stat().st_size,
            "hardware": probe().to_json(), "loads": loads,
        }  # fmt: skip
        file = RESULTS / f"gpu-loading-{flags.model.stem}-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"Written to {file}.")
    return 0


def loaded(flags: argparse.Namespace) -> dict[str, Any]:
    """Seconds and bytes of one load; all of it is given back."""
    engine = EngineConfig(
        device=flags.device, mode=flags.mode, threads=flags.threads, context=flags.context,
        vram_budget_gib=flags.budget,
    )  # fmt: skip
    began = time.perf_counter()
    model = LoadedModel.load(flags.model, engine)
    taken = time.perf_counter() - began
    try:
        return {
            "load_s": taken, "device": model.device, "mode": model.mode, "vram_bytes": model.vram_bytes,
            "steps_s": dict(model.steps.seconds), "steps_bytes": dict(model.steps.n_bytes), **resident(),
        }  # fmt: skip
    finally:
        model.close()


def resident() -> dict[str, int]:
    """What this process holds in memory: of its own, and of files, which the system can take back. Where it says so."""
    if not _STATUS.exists():
        return {}
    lines = dict(one.split(":", 1) for one in _STATUS.read_text().splitlines() if ":" in one)
    kinds = {"own_bytes": ("RssAnon",), "file_bytes": ("RssFile", "RssShmem")}
    return {kind: sum(1024 * int(lines[name].split()[0]) for name in names) for kind, names in kinds.items()}


def line(load: dict[str, Any]) -> str:
    """A load in words."""
    words = []
    for name, seconds in load["steps_s"].items():
        n_bytes = load["steps_bytes"].get(name)
        rate = f" ({n_bytes / 1e9:.2f} GB, {n_bytes / 1e9 / seconds:.1f} GB/s)" if n_bytes and seconds else ""
        words.append(f"{name} {seconds:.2f}{rate}")
    held = f"; RAM {load['own_bytes'] / 1e9:.2f} GB of its own" if "own_bytes" in load else ""
    return f"{load['load_s']:.2f} s ({load['device']}, {load['vram_bytes'] / 2**30:.2f} GiB there{held}): " + ", ".join(
        words
    )


if __name__ == "__main__":
    sys.exit(main())
