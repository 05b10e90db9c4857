"""Chooses the instruction set that the kernels are compiled for, once per process; it compiles nothing itself.

One internal switch exists, for tests: the environment variable HEARTH_KERNELS_ISA, read before the first kernel is
compiled, names a lower set than the best one here. The compiler is then limited to that set, too.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from dataclasses import dataclass

SWITCH = "HEARTH_KERNELS_ISA"

# Linux: a system call, what it does (ARCH_REQ_XCOMP_PERM), and for what (XFEATURE_XTILEDATA).
_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True)
class Isa:
    """One instruction set.

    lanes: float32 numbers in one register.
    needs: the CPU's features, as LLVM calls them.
    limit: (CPU name, features) that keep the compiler from using more than this set; None: the compiler's own choice.
    byte_dot: how four products of bytes are added up in a lane: "vnni512", "vnni256", "maddubs" or "plain".
    half: whether float16 is converted by an instruction.
    tiles: whether it multiplies tiles of bfloat16 (AMX), whose registers the system has to grant.
    """

    name: str
    lanes: int
    needs: frozenset[str]
    limit: tuple[str, str] | None
    byte_dot: str
    half: bool
    tiles: bool = False


_V3 = frozenset({"avx2", "fma", "f16c"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}

# The best first. Each x86 set holds what those below it need.
_AMX = _V4 | {"avx512vnni", "avx512bf16", "amx-tile", "amx-bf16"}
_X86 = (
    Isa("amx", 16, _AMX, None, "vnni512", True, tiles=True),
    Isa("avx512-vnni", 16, _V4 | {"avx512vnni"}, ("x86-64-v4", "+avx512vnni"), "vnni512", True),
    Isa("avx512", 16, _V4, ("x86-64-v4", ""), "maddubs", True),
    Isa("avx-vnni", 8, _V3 | {"avxvnni"}, ("x86-64-v3", "+avxvnni"), "vnni256", True),
    Isa("avx2", 8, _V3, ("x86-64-v3", ""), "maddubs", True),
)
_GENERIC_X86 = Isa("generic", 8, frozenset(), ("x86-64", ""), "plain", False)
_GENERIC = Isa("generic", 8, frozenset(), None, "plain", platform.machine().lower() in {"aarch64", "arm64"})


def known() -> tuple[Isa, ...]:
    """Every set for this kind of CPU, the best first; the last one runs anywhere."""
    return (*_X86, _GENERIC_X86) if is_x86() else (_GENERIC,)


@functools.cache
def features() -> frozenset[str]:
    """What this CPU can do, as LLVM names it."""
    from llvmlite import binding

    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


def available() -> tuple[Isa, ...]:
    """The sets that run here, the best first."""
    return tuple(isa for isa in known() if isa.needs <= features() and not (isa.tiles and tiles_refused()))


@functools.cache
def tiles_refused() -> str:
    """Asks the system for the registers of tiles, for this process and all its threads: why it has none; "" where it
    has. The answer means something only on a processor that has them.
    """
    if not sys.platform.startswith("linux"):
        return "they are asked for on Linux alone"
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA):
        return f"the system says: {os.strerror(ctypes.get_errno())}"
    return ""


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
    raise ValueError(f"{SWITCH} is {wanted!r}; this CPU offers {names}")


def why_unavailable() -> list[str]:
    """For every set better than the chosen one: what is missing; one sentence each."""
    reasons = []
    for isa in known():
        if isa == chosen():
            break
        missing = sorted(isa.needs - features())
        lack = f"it is switched off by {SWITCH}"
        if missing:
            lack = f"the CPU lacks {', '.join(missing)}"
        elif isa.tiles and tiles_refused():
            lack = f"this process is not granted its registers; {tiles_refused()}"
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
