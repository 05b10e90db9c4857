"""Limits of processes that read a stranger's files, on this system and as Windows is asked for them."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.systems import UNDER_WINE

from app.process_limits import Job

ROOT = Path(__file__).resolve().parents[2]


def ended(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from app.process_limits import *\n{code}"], cwd=ROOT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.skipif(UNDER_WINE, reason="Wine accepts the limits of a job and does not apply them")
def test_a_process_gets_no_more_memory_and_time_than_it_allows_itself() -> None:
    code = (
        "limit_memory(300 << 20)\nbytearray(100 << 20)\ntry: bytearray(400 << 20)\nexcept MemoryError: print('refused')"
    )
    assert ended(code).stdout == "refused\n"
    assert ended("limit_time(0.5)\nwhile True: pass").returncode != 0


def test_windows_is_asked_for_all_limits_together() -> None:
    asked: list[tuple[int, int, bytes]] = []
    assigned: list[tuple[int | None, int | None]] = []

    def set_limits(job: Any, kind: int, limits: Any, size: int) -> int:
        asked.append((job.value, kind, ctypes.string_at(limits, size)))
        return 1

    kernel = SimpleNamespace(
        CreateJobObjectW=lambda security, name: 7,
        GetCurrentProcess=lambda: 2**64 - 1,
        AssignProcessToJobObject=lambda job, process: assigned.append((job.value, process.value)),
        SetInformationJobObject=set_limits,
    )
    job = Job(kernel)
    job.limit_memory(3 << 30)
    job.limit_time(2.5)
    job.end_together()
    assert assigned == [(7, 2**64 - 1)]
    (first, second, third) = asked
    assert [(one[0], one[1], len(one[2])) for one in asked] == [(7, 9, 144)] * 3  # the size on 64-bit Windows
    fields = struct.Struct("<q8xI92xQ24x")  # time in 100 ns, flags, memory
    assert fields.unpack(first[2]) == (0, 0x100, 3 << 30)
    assert fields.unpack(second[2]) == (25_000_000, 0x102, 3 << 30)
    assert fields.unpack(third[2]) == (25_000_000, 0x2102, 3 << 30)
