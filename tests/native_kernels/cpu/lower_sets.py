"""Runs checks in processes that are limited to lower instruction sets than this CPU's best.

Each set has byte products of its own, but many sets share everything else: what the vector types and the conversions of
float16 make of a kernel without byte products is the same code for all that have the same number of lanes. Such kernels
are compiled once for each kind of set and not for every set; this process itself stands for the kind of the best one.

Compiling is what these tests cost, so every day the commonest set takes its share of the codecs; marked `slow` are the
other sets, and the run of all codecs on all sets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from native_kernels.cpu.runtime import isa

LOWER = [one.name for one in isa.available() if one != isa.chosen()]


def _first_of_their_kind() -> list[str]:
    seen, found = {(isa.chosen().lanes, isa.chosen().half)}, []
    for one in isa.available():
        if (one.lanes, one.half) not in seen and one != isa.chosen():
            seen.add((one.lanes, one.half))
            found.append(one.name)
    return found


OTHER_KINDS = _first_of_their_kind()


# Between what most processors have, and what all have, the codecs are shared; the sets between them with `-m slow`.
DAILY = [name for name in LOWER if name in ("avx2", "generic")] or LOWER


def _first_daily(names: Sequence[str], daily: Sequence[str]) -> pytest.MarkDecorator:
    """Each of the sets, all but the first of `daily` with `-m slow`."""
    marked = [name if [name] == [*daily[:1]] else pytest.param(name, marks=pytest.mark.slow) for name in names]
    return pytest.mark.parametrize("name", marked)


LOWER_SETS = _first_daily(LOWER, DAILY)
KINDS_OF_SETS = _first_daily(OTHER_KINDS, OTHER_KINDS)
THOROUGH = pytest.mark.parametrize("thorough", [False, pytest.param(True, id="all", marks=pytest.mark.slow)])


def dealt(codecs: Sequence[str], name: str, sets: Sequence[str], thorough: bool) -> list[str]:
    """The codecs whose turn it is on the set `name`, at least one: each codec has its turn on one of `sets` or more.

    A set that is alone takes every second codec: the others are compiled for it with `-m slow`.
    """
    if sets is LOWER and name in DAILY:
        sets = DAILY
    turn, n_sets = sets.index(name), max(2, len(sets))
    n = max(len(codecs), n_sets)
    return [*codecs] if thorough else sorted({codecs[i % len(codecs)] for i in range(n) if i % n_sets == turn})


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
