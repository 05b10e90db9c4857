"""Runs the long forms of what tests/reliability tries in a sample, and records what they gave.

    python tests/reliability/long_forms.py --out tests/benchmarks/results/reliability-DATE.json --part soak

Each part is a process of its own with folders of its own; its figures are what it printed last, or what pytest said.
--scale 0.1 does a tenth of it. Parts that are recorded already are kept beside those that are run now.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def program(name: str, *arguments: object) -> list[str]:
    return [sys.executable, str(HERE / name), *map(str, arguments)]


def slow_tests(*names: str) -> list[str]:
    files = [str(ROOT / "tests" / name) for name in names]
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow", *files]


# Each: what is run in a folder, at a scale of 1 as often as is wanted of it.
PARTS: dict[str, Callable[[Path, float], list[str]]] = {
    "killed at steps": lambda at, scale: program("killed_jobs.py", at, "steps", round(1000 * scale), 1),
    "killed at moments": lambda at, scale: program("killed_jobs.py", at, "moments", round(1000 * scale), 2),
    "full disk": lambda at, scale: program("full_disk.py", at, round(100 * scale)),
    "restless engine": lambda at, scale: program("restless_engine.py", round(500 * scale), 3, at),
    "soak": lambda at, scale: program("restless_engine.py", round(500 * scale), 4, at, "--soak", "--tokens", 100),
    "killed chats": lambda at, scale: program("killed_chats.py", at, round(30_000 * scale), 5),
    "failing GPU": lambda at, scale: slow_tests("reliability/test_failing_gpu.py"),
    "restless person": lambda at, scale: slow_tests("app/test_restless_person.py"),
    "hostile files": lambda at, scale: slow_tests("attacks"),
}  # fmt: skip


def run(part: str, scale: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        at = Path(folder)
        environment = {
            **os.environ, "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}", "QT_QPA_PLATFORM": "offscreen",
            **{f"XDG_{name}_HOME": str(at / name.lower()) for name in ("DATA", "CACHE", "CONFIG", "STATE")},
        }  # fmt: skip
        command = PARTS[part](at / "work", scale)
        (at / "work").mkdir()
        began = time.monotonic()
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        took = time.monotonic() - began
    lines = done.stdout.strip().splitlines() or [""]
    try:
        told: Any = json.loads(lines[-1])
    except ValueError:
        told = lines[-1]
    figures: dict[str, Any] = {"scale": scale, "seconds": round(took, 1), "exit_code": done.returncode, "told": told}
    if done.returncode:
        figures["end_of_log"] = (done.stderr or done.stdout)[-1500:]
    return {**figures, "date": datetime.now().astimezone().strftime("%Y-%m-%d")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    found: dict[str, Any] = {"parts": {}}
    if given.out is not None and given.out.exists():
        found = json.loads(given.out.read_text("utf-8"))
    found["hardware"] = {"processor": platform.processor() or platform.machine(), "threads": os.cpu_count()}
    for part in given.part or PARTS:
        found["parts"][part] = run(part, given.scale)
        print(part, json.dumps(found["parts"][part]), flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return int(any(one["exit_code"] or has_faults(one["told"]) for one in found["parts"].values()))


def has_faults(told: Any) -> bool:
    """Whether a part that ended well tells of something that must not be."""
    return isinstance(told, dict) and bool(told.get("faults"))


if __name__ == "__main__":
    sys.exit(main())
