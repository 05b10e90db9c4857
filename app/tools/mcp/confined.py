"""The process between Hearth and an MCP server: it confines the server, and ends it with all its children.

Standard library only: from a checkout, this file runs by itself in an isolated interpreter. It reads one line of JSON
from stdin (a Plan), then starts the server, which gets the rest of stdin, stdout and stderr.

    Linux   Landlock keeps the server out of all files and folders that the plan does not name; a seccomp filter denies
            new Unix sockets, through which it could ask other programs to act for it. The network stays open.
    others  the server can do whatever the user can: `can_confine` is False.

The server and everything that it started end as soon as Hearth ends, however it ends, or closes stdin. On Linux this
process adopts orphans (PR_SET_CHILD_SUBREAPER), on Windows all run in one job. On macOS, only the server's process
group ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

FLAG = "--mcp-server"  # starts this process in the packaged program
MAX_PLAN_BYTES = 1 << 22
GRACE_S = 1.0  # for a server to end by itself after Hearth closed stdin
COULD_NOT_START = 126  # exit code; stderr says why

# Landlock: linux/landlock.h. The system calls have these numbers on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_LEAST_VERSION = 3  # earlier ones do not keep a process from emptying files
_SCOPES = 3  # no abstract Unix sockets of others, no signals to others

# prctl: linux/prctl.h
_PDEATHSIG, _GET_SECCOMP, _SET_SECCOMP, _SUBREAPER, _NO_NEW_PRIVS = 1, 21, 22, 36, 38
_SECCOMP_FILTER = 2
_SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # AUDIT_ARCH, number of socket()
_IO_URING_SETUP = 425


@dataclass(frozen=True)
class Plan:
    """How a server runs. command: with an absolute path. reads, writes: files and folders, with all that is in them.
    is_confined: False starts it without Landlock and seccomp. parent: Hearth's process id.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    is_confined: bool = True
    parent: int = 0

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def launch_command() -> list[str]:
    """Return the command that starts this process, from a checkout and in the packaged program."""
    if getattr(sys, "frozen", False):
        return [sys.executable, FLAG]
    return [sys.executable, "-I", "-S", os.path.abspath(__file__)]


def can_confine() -> bool:
    """Return whether this system keeps a server out of files that its plan does not name."""
    if sys.platform != "linux" or platform.machine() not in _SOCKET:
        return False
    return _landlock_version() >= _LEAST_VERSION and _libc().prctl(_GET_SECCOMP, 0, 0, 0, 0) >= 0


def main() -> int:
    """Run a server to its end. Returns its exit code, 128 + the signal that ended it, or COULD_NOT_START."""
    try:
        values = json.loads(_first_line(0))
        plan = Plan(**{**values, **{name: tuple(values[name]) for name in ("command", "reads", "writes")}})
    except (ValueError, TypeError, KeyError, RecursionError):
        return COULD_NOT_START  # Hearth ended before it sent a plan
    if sys.platform == "win32":
        return _run_on_windows(plan)
    return _run(plan)


def _first_line(source: int) -> bytes:
    """Read a line and not a byte more: the rest belongs to the server."""
    line = bytearray()
    while len(line) < MAX_PLAN_BYTES and (byte := os.read(source, 1)):
        if byte == b"\n":
            break
        line += byte
    return bytes(line)


# --- Linux and macOS


if sys.platform != "win32":

    def _run(plan: Plan) -> int:
        awake, wake = os.pipe()
        for end in (awake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        ending: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda given, _: ending.append(given))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        if sys.platform == "linux":
            _libc().prctl(_SUBREAPER, 1, 0, 0, 0)
            _libc().prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        server = os.fork()
        if server == 0:
            _become(plan)
        watch = select.poll()
        watch.register(awake, select.POLLIN)
        watch.register(0, 0)  # reports only that Hearth's end is closed
        until: float | None = None  # when the server is killed
        code: int | None = None
        while code is None and not ending and (until is None or time.monotonic() < until):
            if os.getppid() != plan.parent:
                break
            # The time limit is for systems that do not signal the parent's death.
            for descriptor, _ in watch.poll(1000 if until is None else 50):
                if descriptor == awake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(awake, 4096)
                else:
                    watch.unregister(0)
                    until = time.monotonic() + GRACE_S
            code = _reaped(server)
        found = _end_all(server)
        return COULD_NOT_START if (last := code if code is not None else found) is None else last

    def _reaped(server: int) -> int | None:
        """Collect ended processes. Returns the server's exit code if it is among them."""
        code = None
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == server:
                    code = os.waitstatus_to_exitcode(ended[1])
        return None if code is None else code if code >= 0 else 128 - code

    def _end_all(server: int) -> int | None:
        """Kill everything that the server started, and collect it. Returns the server's exit code, if it still ran."""
        code = None
        while True:
            if sys.platform == "linux":
                for process in _descendants(os.getpid()):
                    _kill(process)
            else:
                with contextlib.suppress(OSError):
                    os.killpg(server, signal.SIGKILL)
            found = _reaped(server)
            code = found if found is not None else code
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return code
            time.sleep(0.01)

    def _kill(process: int) -> None:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)

    def _descendants(root: int) -> Iterator[int]:
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                    # The name in parentheses may hold anything; the parent is the second field after it.
                    children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
        waiting = [root]
        while waiting:
            found = children.get(waiting.pop(), [])
            waiting += found
            yield from found

    def _become(plan: Plan) -> NoReturn:
        """Turn this new child process into the server."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.setpgid(0, 0)
            os.chdir(plan.folder)
            if sys.platform == "linux":
                _libc().prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if plan.is_confined:
                    confine(plan.reads, plan.writes)
            os.execve(plan.command[0], plan.command, plan.environment)
        except OSError as error:
            os.write(2, f"{plan.command[0]}: {error.strerror or error}\n".encode(errors="replace"))
        finally:
            os._exit(COULD_NOT_START)


# --- Linux


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _landlock_version() -> int:
    """Return the version of Landlock; less than 1: the kernel has none, or it is switched off."""
    return int(_libc().syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("place", ctypes.c_int32))


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("if_true", ctypes.c_uint8), ("if_false", ctypes.c_uint8),
                ("value", ctypes.c_uint32))  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def confine(reads: Sequence[str], writes: Sequence[str] = (), denies_all_sockets: bool = False) -> None:
    """Confine this process and its children for good, on a system that `can_confine`. Raises OSError.

    reads, writes: files and folders, with all that is in them. denies_all_sockets: those of the network too.
    """
    version = _landlock_version()
    every = (1 << (13 + (version >= 2) + (version >= 3))) - 1 | (_IOCTL_DEV if version >= 5 else 0)
    scopes = _SCOPES if version >= 6 else 0
    given = _Ruleset(every, 0, scopes)
    size = 24 if scopes else 8
    ruleset = _called(_libc().syscall(ctypes.c_long(_CREATE_RULESET), ctypes.byref(given), ctypes.c_size_t(size), 0))
    for paths, rights in ((reads, _READING), (writes, every)):
        for path in paths:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                _allow(ruleset, path, rights & every)
    if _libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the system does not let this process give up privileges")
    _called(_libc().syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), 0))
    os.close(ruleset)
    _deny_sockets(denies_all_sockets)


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)  # type: ignore[attr-defined, unused-ignore]
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = _Rule(rights, place)
        _called(_libc().syscall(ctypes.c_long(_ADD_RULE), ctypes.c_int(ruleset), 1, ctypes.byref(rule), 0))
    finally:
        os.close(place)


def _deny_sockets(every: bool) -> None:
    """Let socket(AF_UNIX), or every socket, and io_uring_setup fail, by a seccomp filter (linux/filter.h). socketpair
    still works.
    """
    load, jump_equal, jump_at_least, leave = 0x20, 0x15, 0x35, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000
    architecture, socket_call = _SOCKET[platform.machine()]
    instructions = [
        (load, 0, 0, 4),  # the architecture: other ones have other numbers
        (jump_equal, 1, 0, architecture),
        (leave, 0, 0, refuse | errno.ENOSYS),
        (load, 0, 0, 0),  # the number of the system call
        (jump_at_least, 0, 1, 0x40000000),  # of x32, the same calls once more
        (leave, 0, 0, refuse | errno.ENOSYS),
        (jump_equal, 0, 1, _IO_URING_SETUP),  # it opens sockets too
        (leave, 0, 0, refuse | errno.ENOSYS),
        (jump_equal, 0, 3, socket_call),
        (load, 0, 0, 16),  # the address family
        (jump_at_least, 0, 1, 0) if every else (jump_equal, 0, 1, 1),  # AF_UNIX
        (leave, 0, 0, refuse | errno.EACCES),
        (leave, 0, 0, allow),
    ]
    listed = (_Instruction * len(instructions))(*(_Instruction(*one) for one in instructions))
    program = _Program(len(instructions), listed)
    if _libc().prctl(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the system does not let this process filter its system calls")


def _called(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"could not be confined: {os.strerror(number)}")
    return result


# --- Windows


if sys.platform == "win32":

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("process_time", ctypes.c_int64), ("job_time", ctypes.c_int64), ("flags", ctypes.c_uint32),
            ("least_memory", ctypes.c_size_t), ("most_memory", ctypes.c_size_t), ("n_processes", ctypes.c_uint32),
            ("affinity", ctypes.c_size_t), ("priority", ctypes.c_uint32), ("scheduling", ctypes.c_uint32),
        )  # fmt: skip

    class _Limits(ctypes.Structure):
        _fields_ = (("basic", _BasicLimits), ("io", ctypes.c_uint64 * 6), ("memory", ctypes.c_size_t * 4))

    def _run_on_windows(plan: Plan) -> int:
        """Run the server in a job that ends with this process, and end with Hearth."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = kernel.OpenProcess.restype = ctypes.c_void_p
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        job = kernel.CreateJobObjectW(None, None)
        limits = _Limits()
        limits.basic.flags = 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
        kernel.SetInformationJobObject(ctypes.c_void_p(job), 9, ctypes.byref(limits), ctypes.sizeof(limits))
        kernel.AssignProcessToJobObject(ctypes.c_void_p(job), ctypes.c_void_p(kernel.GetCurrentProcess()))
        hearth = kernel.OpenProcess(0x00100000, False, plan.parent)  # SYNCHRONIZE
        try:
            server = subprocess.Popen(  # the packaged program has no console to share; without one, pipes must be named
                plan.command, env=plan.environment, cwd=plan.folder, stdin=0, stdout=1, stderr=2,
                creationflags=subprocess.CREATE_NO_WINDOW,
            )  # fmt: skip
        except OSError as error:
            os.write(2, f"{plan.command[0]}: {error.strerror or error}\n".encode(errors="replace"))
            return COULD_NOT_START
        waited = (ctypes.c_void_p * 2)(int(server._handle), hearth)  # type: ignore[attr-defined]
        kernel.WaitForMultipleObjects(2 if hearth else 1, waited, False, 0xFFFFFFFF)
        code = server.poll()
        os._exit(COULD_NOT_START if code is None else code)  # closes the job, which ends all processes in it


if __name__ == "__main__":
    sys.exit(main())
