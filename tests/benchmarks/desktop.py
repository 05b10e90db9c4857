"""Measures the statements that Hearth's window is held to, those that a machine can judge; docs/desktop.md lists all.

    python tests/benchmarks/desktop.py               measure all, print the figures
    python tests/benchmarks/desktop.py start idle    measure these
    python tests/benchmarks/desktop.py --record      and write them to tests/benchmarks/results/

Everything runs without a screen (offscreen), each measurement in a process and a folder of its own. A machine that does
other things as well makes times longer: the load at the beginning and at the end is in the result.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(path) for path in (ROOT, ROOT / "tests", ROOT / "tests" / "app", ROOT / "tests" / "benchmarks")]

RESULTS = Path(__file__).parent / "results"
LONGEST_S = 400
# What is measured, and the statements of docs/desktop.md that it is for. A new one is one line and one function.
MEASURES = {
    "start": (1,),
    "busy": (2,),
    "send": (7, 8),
    "stop": (9,),
    "kill_download": (10,),
    "kill_streaming": (14,),
    "long_chat": (15, 22),
    "streaming": (16, 17),
    "rates": (18, 19),
    "panel": (19,),
    "idle": (20,),
    "paths": (23,),
    "packets": (24,),
    "diagrams": (),
    "search": (),
    "list_change": (),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MEASURES)}; none: all")
    parser.add_argument("--record", action="store_true", help="write the figures to tests/benchmarks/results/")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        import desktop_measures

        print(json.dumps(getattr(desktop_measures, flags.child)(flags.folder)), flush=True)
        return 0
    if unknown := set(flags.names) - set(MEASURES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    figures = measure(flags.names or list(MEASURES))
    print(json.dumps(figures, indent=2))
    if flags.record:
        file = RESULTS / f"desktop-{datetime.datetime.now(datetime.UTC):%Y-%m-%d}.json"
        if flags.names and file.exists():  # measured again: the others of that day stay, each with its own load
            before = json.loads(file.read_text(encoding="utf-8"))["measured"]
            figures["measured"] = {**before, **figures["measured"]}
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(names: list[str]) -> dict[str, Any]:
    """The figures of these measurements, and on what machine they came to be."""
    out: dict[str, Any] = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "command": " ".join(["python", "tests/benchmarks/desktop.py", *sys.argv[1:]]),
        "hardware": {"logical_cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "load_average_before": _load(),
        "measured": {},
    }
    for name in names:
        began = time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        figures = one(name)
        figures |= {"statements": list(MEASURES[name]), "took_s": round(time.monotonic() - began, 1), "load": _load()}
        out["measured"][name] = figures
        print(json.dumps(figures), file=sys.stderr, flush=True)
    out["load_average_after"] = _load()
    return out


def _load() -> float | None:
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def one(name: str) -> dict[str, Any]:
    """The figures of one measurement; why not, where it failed."""
    from desktop_rooms import environment

    with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        command = [sys.executable, __file__, "--child", name, "--folder", folder]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LONGEST_S, env=environment(Path(folder))
            )
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            return {"reached": None, "why": f"not done after {LONGEST_S} s"}
        except (IndexError, ValueError):
            return {"reached": None, "why": (done.stderr or traceback.format_exc())[-2000:]}


if __name__ == "__main__":
    sys.exit(main())
