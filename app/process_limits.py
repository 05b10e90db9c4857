"""Limits that a child process sets for itself before it reads what a stranger wrote.

POSIX limits the address space and the CPU time. Windows does so with a job object, which limits committed memory.
No Qt.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import time
from typing import Any

_PROCESS_TIME, _PROCESS_MEMORY, _KILL_ON_CLOSE = 0x002, 0x100, 0x2000  # JOB_OBJECT_LIMIT_…
_EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
_TICKS_PER_S = 10_000_000


class _Limits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("smallest_working_set", ctypes.c_size_t),
        ("largest_working_set", ctypes.c_size_t),
        ("most_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority_class", ctypes.c_uint32),
        ("scheduling_class", ctypes.c_uint32),
        ("io", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class Job:
    """A job object of Windows with this process in it. Where the system refuses one, nothing is limited.

    kernel: kernel32.dll.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel, self._limits = kernel, _Limits()
        kernel.CreateJobObjectW.restype = kernel.GetCurrentProcess.restype = ctypes.c_void_p
        self._handle = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
        kernel.AssignProcessToJobObject(self._handle, ctypes.c_void_p(kernel.GetCurrentProcess()))

    def limit_memory(self, n_bytes: int) -> None:
        """Let the system commit no more memory to this process."""
        self._limits.process_memory = n_bytes
        self._set(_PROCESS_MEMORY)

    def limit_time(self, seconds: float) -> None:
        """Let the system end this process after this much CPU time since its start."""
        self._limits.process_time = int(seconds * _TICKS_PER_S)
        self._set(_PROCESS_TIME)

    def end_together(self) -> None:
        """Let the system end the processes that this one starts from now on when this one ends."""
        self._set(_KILL_ON_CLOSE)

    def _set(self, flag: int) -> None:
        self._limits.flags |= flag
        size = ctypes.sizeof(self._limits)
        self._kernel.SetInformationJobObject(self._handle, _EXTENDED_LIMITS, ctypes.byref(self._limits), size)


@functools.cache
def _own_job() -> Job:
    return Job(getattr(ctypes, "windll").kernel32)  # noqa: B009 - other systems' types do not have it


def end_children_with_it() -> None:
    """On Windows, let the system end this process's later children with it, however it ends."""
    if sys.platform == "win32":
        _own_job().end_together()


def limit_memory(n_bytes: int) -> None:
    """Let allocations of this process fail above this size, or above a smaller limit that it has already."""
    if sys.platform == "win32":
        _own_job().limit_memory(n_bytes)
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([n_bytes, *known]), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_time(seconds: float) -> None:
    """Let the system end this process after this much more CPU time."""
    most = time.process_time() + seconds
    if sys.platform == "win32":
        _own_job().limit_time(most)
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    whole = int(most) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (whole if hard == resource.RLIM_INFINITY else min(whole, hard), hard))
