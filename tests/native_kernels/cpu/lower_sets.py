"""Runs checks in processes that are limited to lower instruction sets than this CPU's best.

Each set has byte products of its own, but many sets share everything else: what the vector types and the conversions of
float16 make of a kernel without byte products is the same code for all that have the same number of lanes. Such kernels
are compiled once for each kind of set and not for every set; this process itself stands for the kind of the best one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from native_kernels.cpu.runtime import isa

LOWER = [one.name for one in isa.available() if one != isa.chosen()]
COMMONEST = next((name for name in ("avx2", "generic") if name in LOWER), "")


def _first_of_their_kind() -> list[str]:
    seen, found = {(isa.chosen().lanes, isa.chosen().half)}, []
    for one in isa.available():
        if (one.lanes, one.half) not in seen and one != isa.chosen():
            seen.add((one.lanes, one.half))
            found.append(one.name)
    return found


OTHER_KINDS = _first_of_their_kind()


def run_limited(command: list[str], name: str) -> str:
    """What a fresh interpreter prints that is limited to this set. The machine code is kept for the tests after it."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parents[1]), str(here.parents[2])]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), isa.SWITCH: name}
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], env=around, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
