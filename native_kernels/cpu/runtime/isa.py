"""Choose the instruction set that the kernels are compiled for, once per process.

For tests, the environment variable HEARTH_KERNELS_ISA selects a lower set than the best one. It is read before the
first kernel is compiled, and limits the compiler to that set.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from dataclasses import dataclass

SWITCH = "HEARTH_KERNELS_ISA"

# Linux: the system call, its operation (ARCH_REQ_XCOMP_PERM), and the feature (XFEATURE_XTILEDATA).
_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True)
class Isa:
    """An instruction set.

    lanes: float32 numbers in a register.
    needs: CPU features by their LLVM names.
    limit: (CPU name, features) that keep the compiler within this set; None: the compiler's own choice.
    byte_dot: how four products of bytes are summed in a lane: "vnni512", "vnni256", "maddubs" or "plain".
    half: whether an instruction converts float16.
    tiles: whether it multiplies bfloat16 tiles (AMX), whose registers the operating system must grant.
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

# Best first. Each x86 set includes the needs of those below it.
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
    """Return every set for this CPU architecture, best first; the last one runs anywhere."""
    return (*_X86, _GENERIC_X86) if is_x86() else (_GENERIC,)


@functools.cache
def features() -> frozenset[str]:
    """Return the features of this CPU, by their LLVM names."""
    from llvmlite import binding

    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


def available() -> tuple[Isa, ...]:
    """Return the sets that run here, best first."""
    return tuple(isa for isa in known() if isa.needs <= features() and not (isa.tiles and tiles_refused()))


@functools.cache
def tiles_refused() -> str:
    """Request the tile registers for all threads of this process. Return why they were refused, or "".

    The result is meaningful only on a CPU that has them.
    """
    if not sys.platform.startswith("linux"):
        return "large pages are requested only on Linux"
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA):
        return f"the system says: {os.strerror(ctypes.get_errno())}"
    return ""


@functools.cache
def chosen() -> Isa:
    """Return the set of this process, and limit the compiler to it unless it is the best one.

    Raises: ValueError if the environment variable names a set that is unknown or does not run here.
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
    """Return for each set better than the chosen one what is missing, one sentence each."""
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
    if "numba" in sys.modules:  # numba has already read the environment
        from numba import config

        config.CPU_NAME, config.CPU_FEATURES = name, added
