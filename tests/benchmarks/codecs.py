"""What unpacking costs: GB/s of float32 made by every codec on one thread, against memcpy of the same size.

    python tests/benchmarks/codecs.py            print the figures
    python tests/benchmarks/codecs.py --record   and write them to tests/benchmarks/results/

memcpy is measured right before each codec, so that both see the same machine; a figure is that of the fastest round,
because neighbours on the machine only ever make it slower.
The bytes read per second are those of the float32 made times the codec's bits over 32.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
N_ROWS, N_COLS = 2048, 4096  # 32 MiB of float32: beyond every cache but the largest
ROUNDS = 9

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    flags = parser.parse_args()
    from engine.machine.hardware import probe
    from native_kernels.codecs import CODECS

    print(f"{'codec':8} {'bits':>5} {'decode GB/s':>12} {'of memcpy':>10} {'encode GB/s':>12}")
    rows = []
    for name in CODECS:
        row = measure(name)
        rows.append(row)
        encoded = f"{row['encode_gb_s']:12.2f}" if row["encode_gb_s"] else f"{'-':>12}"
        print(f"{name:8} {row['bits']:5.2f} {row['decode_gb_s']:12.2f} {row['of_memcpy']:10.2f} {encoded}")
    if flags.record:
        figures = {
            "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
            "command": "python tests/benchmarks/codecs.py --record",
            "hardware": {"cpu": probe().cpu.name, "logical_cpus": os.cpu_count(), "python": platform.python_version()},
            "codecs": rows,
        }
        file = RESULTS / f"codecs-{figures['date']}.json"
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(name: str) -> dict[str, Any]:
    """GB/s of float32 numbers made (decode) or read (encode); None where the codec is only read."""
    from samples import random_blocks

    from native_kernels.codecs import CODECS

    codec = CODECS[name]
    data = random_blocks.weights(name, N_ROWS, N_COLS)
    out, source = np.zeros((N_ROWS, N_COLS), np.float32), np.ones((N_ROWS, N_COLS), np.float32)
    copied = rate(lambda: np.copyto(out, source), out.nbytes)
    decoded = rate(lambda: codec.decode(data, out), out.nbytes)
    return {
        "name": name,
        "bits": 8 * codec.type_size / codec.block_size,
        "decode_gb_s": decoded,
        "of_memcpy": decoded / copied,
        "encode_gb_s": rate(lambda: codec.encode(out), out.nbytes) if codec.can_encode else None,
    }


def rate(work: Callable[[], object], n_bytes: int) -> float:
    work()  # pages and caches are warm from here on
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return n_bytes / min(seconds) / 1e9


if __name__ == "__main__":
    raise SystemExit(main())
