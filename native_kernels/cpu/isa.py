"""Chooses the instruction set that the kernels are compiled for, once per process; it compiles nothing itself.

One internal switch exists, for tests: the environment variable HEARTH_KERNELS_ISA, read before the first kernel is
compiled, names a lower set than the best one here. The compiler is then limited to that set, too.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
from dataclasses import dataclass

SWITCH = "HEARTH_KERNELS_ISA"


@dataclass(frozen=True)
class Isa:
    """One instruction set.

    lanes: float32 numbers in one register.
    needs: the processor's features, as LLVM calls them.
    limit: (CPU name, features) that keep the compiler from using more than this set; None: the compiler's own choice.
    byte_dot: how four products of bytes are added up in a lane: "vnni512", "vnni256", "maddubs" or "plain".
    half: whether float16 is converted by an instruction.
    """

    name: str
    lanes: int
    needs: frozenset[str]
    limit: tuple[str, str] | None
    byte_dot: str
    half: bool


_V3 = frozenset({"avx2", "fma", "f16c"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}

# The best first. Each x86 set holds what those below it need.
_X86 = (
    Isa("avx512-vnni", 16, _V4 | {"avx512vnni"}, ("x86-64-v4", "+avx512vnni"), "vnni512", True),
    Isa("avx512", 16, _V4, ("x86-64-v4", ""), "maddubs", True),
    Isa("avx-vnni", 8, _V3 | {"avxvnni"}, ("x86-64-v3", "+avxvnni"), "vnni256", True),
    Isa("avx2", 8, _V3, ("x86-64-v3", ""), "maddubs", True),
)
_GENERIC_X86 = Isa("generic", 8, frozenset(), ("x86-64", ""), "plain", False)
_GENERIC = Isa("generic", 8, frozenset(), None, "plain", platform.machine().lower() in {"aarch64", "arm64"})


def known() -> tuple[Isa, ...]:
    """Every set for this kind of processor, the best first; the last one runs anywhere."""
    return (*_X86, _GENERIC_X86) if is_x86() else (_GENERIC,)


@functools.cache
def features() -> frozenset[str]:
    """What this processor can do, as LLVM names it."""
    from llvmlite import binding

    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


def available() -> tuple[Isa, ...]:
    """The sets that run here, the best first."""
    return tuple(isa for isa in known() if isa.needs <= features())


@functools.cache
def chosen() -> Isa:
    """The set of this process, and the compiler limited to it where it is not the best one.

    Raises: ValueError where the switch names a set that is unknown or does not run here.
    """
    best = available()[0]
    wanted = os.environ.get(SWITCH, "")
    if not wanted or wanted == best.name:
        return best
    for isa in available():
        if isa.name == wanted:
            _limit_the_compiler(isa)
            return isa
    names = ", ".join(isa.name for isa in available())
    raise ValueError(f"{SWITCH} is {wanted!r}; this processor offers {names}")


def why_unavailable() -> list[str]:
    """For every set better than the chosen one: what is missing; one sentence each."""
    reasons = []
    for isa in known():
        if isa == chosen():
            break
        missing = sorted(isa.needs - features())
        lack = f"the processor lacks {', '.join(missing)}" if missing else f"it is switched off by {SWITCH}"
        reasons.append(f"{isa.name}: {lack}.")
    return reasons


def is_x86() -> bool:
    return platform.machine().lower() in {"x86_64", "amd64"}


def _limit_the_compiler(isa: Isa) -> None:
    if isa.limit is None:
        return
    name, added = isa.limit
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = name, added
    if "numba" in sys.modules:  # which has read the environment already
        from numba import config

        config.CPU_NAME, config.CPU_FEATURES = name, added
