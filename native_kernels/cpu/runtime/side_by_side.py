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
MOST_TOKENS = 16  # whose experts run in one order
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


@kernel
def run_by_expert(args: int, lo: int, hi: int, worker: int) -> None:
    """Run a range of the items of all tokens' experts: each expert's, tile by tile, for every token that chose it.

    args: the tokens' experts in order (router.Chosen), items of an expert, items of a tile, grain, address of the
    kernel, then the address of each token's block of arguments, and before them the items of this call, which stand for
    those of all experts in proportion.
    """
    order, each, tile, grain = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    code, items = get_int(args + 32), get_int(args + 40)
    n = get_int(order)
    begin, end = each * n * lo // items, each * n * hi // items
    at = 0
    while at < n:
        expert, after = get_int(order + 8 + 8 * at) >> 32, at + 1
        while after < n and get_int(order + 8 + 8 * after) >> 32 == expert:
            after += 1
        first = max(0, begin - each * at) // (after - at)
        last = max(0, end - each * at) // (after - at)
        first = each if first >= each else first // grain * grain
        last = each if last >= each else last // grain * grain
        while first < last:
            next_one = min(last, first + tile)
            for i in range(at, after):
                pair = get_int(order + 8 + 8 * i)
                place = each * (pair & 0xFFFF)
                block = get_int(args + BLOCKS + 8 + 8 * (pair >> 16 & 0xFFFF))
                call_kernel(code, block, place + first, place + next_one, worker)
            first = next_one
        at = after


def side_by_side(tokens: Sequence[Sequence[Call]], n_used: I64) -> list[Call]:
    """Merge lists of calls that were laid out alike, one for each token of a sequence.

    n_used i64 [1]: number of tokens in use, read when the calls run. The calls of the other tokens do nothing. A token
    may read what an earlier token wrote in an earlier call with a barrier, or in the same call if it is chained.
    Counts per neuron that the tokens share may be too low, because two workers may increment the same count at once.
    """
    found = []
    for calls in zip(*tokens, strict=True):
        if calls[0].of_experts is not None:
            found.append(_by_expert(calls))
        elif isinstance(calls[0].n_items, int) and not calls[0].chained:
            found.append(_merged(calls, 0, n_used))
        else:  # each token has its own number of items, or waits for the one before it
            waits = calls[0].chained
            found += [replace(_merged([call], token, n_used), barrier=waits) for token, call in enumerate(calls)]
            found[-1] = replace(found[-1], barrier=calls[-1].barrier)
    return found


def kernels_for(calls: Sequence[Call]) -> list[Kernel]:
    """Return the kernels that `side_by_side` adds to those of the calls."""
    together = dict.fromkeys(call.together for call in calls if call.together is not None)
    return [run_side_by_side, run_by_expert, *together]


def _by_expert(calls: Sequence[Call]) -> Call:
    one, of = calls[0], calls[0].of_experts
    assert of is not None, "the items are those of experts"
    items = len(calls) * (len(of.order) - 1) // MOST_TOKENS * of.each
    args = arguments(
        of.order, of.each, one.tile or of.each, one.grain, one.kernel.address, items, *(call.args for call in calls)
    )
    return Call(run_by_expert, args, items, one.grain, one.stage, tuple(calls), one.barrier)


def _merged(calls: Sequence[Call], first: int, n_used: I64) -> Call:
    one = calls[0]
    assert all((call.kernel, call.count(), call.grain) == (one.kernel, one.count(), one.grain) for call in calls)
    args = arguments(n_used, first, len(calls), one.tile or _ALL, one.kernel.address, *(call.args for call in calls))
    made = one.together if one.together is not None else run_side_by_side
    return Call(made, args, one.n_items, one.grain, one.stage, (n_used, *calls), one.barrier)
