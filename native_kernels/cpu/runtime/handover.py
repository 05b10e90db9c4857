"""The CPU's side of the synchronisation with a device: wait for its flag, and launch its next work.

These are calls of a program, so that a token needs no Python. Launch functions are passed by address; nothing here
depends on CUDA. Every wait ends: by the flag, a stop word or a time limit.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from native_kernels.backend import I64
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.simd import atomic_get, clock, get_int, i64, operation, pause, put_int

_I64 = ir.IntType(64)

# Values of a status word: 0 is success, else the error code of a launch or one of these.
LATE = -1  # the flag was not set in time
STOPPED = -2  # the stop word was set during the wait

_LOOKS = 256  # spins between two checks of the clock and the stop word


@operation(i64, i64, i64, i64)
def _call_with_two(b: Any, function: Any, first: Any, second: Any) -> Any:
    """Call the C function int f(void *, void *) at an address."""
    of = ir.FunctionType(ir.IntType(32), [_I64, _I64])
    return b.sext(b.call(b.inttoptr(function, of.as_pointer()), [first, second]), _I64)


@kernel
def _launch(args: int, lo: int, hi: int, worker: int) -> None:
    """args: the launch function, its two arguments, the status word. Does nothing after an earlier failure."""
    status = get_int(args + 24)
    if get_int(status) == 0:
        put_int(status, _call_with_two(get_int(args), get_int(args + 8), get_int(args + 16)))


@kernel
def _await(args: int, lo: int, hi: int, worker: int) -> None:
    """args: the flag, its last value, the time limit in ticks, the stop word, the status word.

    The flag is incremented by one each time.
    """
    flag, seen_at, limit = get_int(args), get_int(args + 8), get_int(args + 16)
    stop, status = get_int(args + 24), get_int(args + 32)
    if get_int(status) != 0:
        return
    wanted = get_int(seen_at) + 1
    started = clock()
    turns = 0
    while atomic_get(flag) - wanted < 0:
        pause()
        turns += 1
        if turns % _LOOKS == 0:
            if atomic_get(stop) != 0:
                put_int(status, STOPPED)
                return
            if clock() - started > limit:
                put_int(status, LATE)
                return
    put_int(seen_at, wanted)


def launch_call(function: int, work: int, stream: int, status: I64, stage: str = "exchange") -> Call:
    """Call the C function at that address with a work handle and a stream; its result is written to status [1].

    The next call may run concurrently with the launched work.
    """
    return Call(_launch, arguments(function, work, stream, status), 1, 1, stage, (status,))


def await_call(flag: int, seen: I64, limit_ticks: int, stop: I64, status: I64, stage: str = "exchange") -> Call:
    """Wait until the int64 at the address `flag` reaches seen[0] + 1, and write that to seen [1].

    limit_ticks: in ticks of the kernels' clock (pool.ticks_per_s). stop [1]: any value but 0 ends the wait. status [1]:
    LATE or STOPPED if the flag was not set; later waits and launches then do nothing.
    """
    return Call(_await, arguments(flag, seen, limit_ticks, stop, status), 1, 1, stage, (seen, stop, status))
