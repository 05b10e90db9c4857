"""Map logical processors to cores, and cores to speed classes, on Windows. Empty on other systems.

Parses the bytes of GetLogicalProcessorInformationEx, so tests on any system can use a recorded answer.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from dataclasses import dataclass

_OF_CORES = 0  # RelationProcessorCore
_HEADER = struct.Struct("<II")  # relationship, bytes of the record
_CORE = struct.Struct("<BB20xH")  # flags, efficiency class, groups
_GROUP = struct.Struct("<QH6x")  # mask, number; on 64-bit systems
_GROUP_SIZE = 64  # maximum logical processors of a group
_TOO_SMALL = 122  # ERROR_INSUFFICIENT_BUFFER


@dataclass(frozen=True)
class Core:
    """A physical core: its logical processors and its efficiency class; higher is faster."""

    efficiency_class: int
    processors: frozenset[int]


def read_cores() -> tuple[Core, ...]:
    """Return the machine's cores; empty unless on 64-bit Windows."""
    if sys.platform != "win32" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return ()
    ask = ctypes.WinDLL("kernel32", use_last_error=True).GetLogicalProcessorInformationEx
    size = ctypes.c_uint32(0)
    if ask(_OF_CORES, None, ctypes.byref(size)) or ctypes.get_last_error() != _TOO_SMALL:
        return ()
    answer = ctypes.create_string_buffer(size.value)
    if not ask(_OF_CORES, answer, ctypes.byref(size)):
        return ()
    return parse_cores(answer.raw[: size.value])


def parse_cores(answer: bytes) -> tuple[Core, ...]:
    """Return the core records, without truncated or other records."""
    cores, at = [], 0
    while at + _HEADER.size <= len(answer):
        relationship, size = _HEADER.unpack_from(answer, at)
        record = answer[at + _HEADER.size : at + size]
        if size < _HEADER.size or len(record) != size - _HEADER.size:
            break
        at += size
        if relationship != _OF_CORES or len(record) < _CORE.size:
            continue
        _, efficiency_class, groups = _CORE.unpack_from(record)
        processors: set[int] = set()
        for i in range(max(1, groups)):  # 0 in versions without groups
            place = _CORE.size + _GROUP.size * i
            if place + _GROUP.size > len(record):
                break
            mask, group = _GROUP.unpack_from(record, place)
            processors |= {_GROUP_SIZE * group + bit for bit in range(_GROUP_SIZE) if mask >> bit & 1}
        if processors:
            cores.append(Core(efficiency_class, frozenset(processors)))
    return tuple(cores)


def count_cores(cores: tuple[Core, ...], allowed: set[int]) -> tuple[int, int | None]:
    """Return (cores of the allowed logical processors, how many of them are of the fastest class).

    The second is None if all are alike.
    """
    used = [core.efficiency_class for core in cores if core.processors & allowed]
    fastest = used.count(max(used, default=0))
    return len(used), None if fastest == len(used) else fastest
