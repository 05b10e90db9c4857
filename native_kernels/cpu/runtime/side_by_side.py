"""Run the calls of several tokens side by side, so that the weights that they share are read from memory once.

Each token has its own list of calls, over its own buffers; all lists have the same layout. The calls at the same index
of all lists are merged into one. A worker takes a tile of its items, small enough for the weights to stay in the core's
cache, and runs it for one token after the other. Each token gets the same arithmetic as alone, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from native_kernels.backend import I64
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import Kernel, inline, kernel
from native_kernels.cpu.runtime.simd import call_kernel, get_int

BLOCKS = 5 * 8  # bytes before the addresses of the tokens' blocks of arguments
_ALL = 1 << 40  # items of a tile: more than any call has


@inline
def tokens_here(args: int) -> int:
    """Return how many tokens of a merged call are in use; 0 or less: none."""
    used: int = min(get_int(args + 16), get_int(get_int(args)) - get_int(args + 8))
    return used


@kernel
def run_side_by_side(args: int, lo: int, hi: int, worker: int) -> None:
    """Run a range of items, tile by tile, for each token that is in use.

    args: address of the number of tokens in use, index of this call's first token, number of its tokens, items of a
    tile, address of the kernel, then the address of each token's block of arguments.
    """
    tile, code = get_int(args + 24), get_int(args + 32)
    at = lo
    while at < hi:
        end = min(hi, at + tile)
        for token in range(tokens_here(args)):
            call_kernel(code, get_int(args + BLOCKS + 8 * token), at, end, worker)
        at = end


def side_by_side(tokens: Sequence[Sequence[Call]], n_used: I64) -> list[Call]:
    """Merge lists of calls that were laid out alike, one for each token of a sequence.

    n_used i64 [1]: number of tokens in use, read when the calls run. The calls of the other tokens do nothing. A token
    may read what an earlier token wrote in an earlier call with a barrier, or in the same call if it is chained.
    Counts per neuron that the tokens share may be too low, because two workers may increment the same count at once.
    """
    found = []
    for calls in zip(*tokens, strict=True):
        if isinstance(calls[0].n_items, int) and not calls[0].chained:
            found.append(_merged(calls, 0, n_used))
        else:  # each token has its own number of items, or waits for the one before it
            waits = calls[0].chained
            found += [replace(_merged([call], token, n_used), barrier=waits) for token, call in enumerate(calls)]
            found[-1] = replace(found[-1], barrier=calls[-1].barrier)
    return found


def kernels_for(calls: Sequence[Call]) -> list[Kernel]:
    """Return the kernels that `side_by_side` adds to those of the calls."""
    return [run_side_by_side, *dict.fromkeys(call.together for call in calls if call.together is not None)]


def _merged(calls: Sequence[Call], first: int, n_used: I64) -> Call:
    one = calls[0]
    assert all((call.kernel, call.count(), call.grain) == (one.kernel, one.count(), one.grain) for call in calls)
    args = arguments(n_used, first, len(calls), one.tile or _ALL, one.kernel.address, *(call.args for call in calls))
    made = one.together if one.together is not None else run_side_by_side
    return Call(made, args, one.n_items, one.grain, one.stage, (n_used, *calls), one.barrier)
