"""Two sides of one computation on the threads of one pool: active neurons parted by where they live, and two calls at
the same time, each on workers of its own. It knows no device.

Paper: PowerInfer, section 5.3 (hot and cold neurons computed at once).
"""

from __future__ import annotations

import numpy as np

from native_kernels.backend import I32, I64
from native_kernels.cpu.ffn.sparse_ffn import Predicted, list_where
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import inline, kernel
from native_kernels.cpu.runtime.simd import call_kernel, get_float, get_int, get_int32, put_int, put_int32


@kernel
def _part(args: int, lo: int, hi: int, worker: int) -> None:
    """One item. args: scores, threshold, how many scores, the list that has their neurons (0: each neuron has one), how
    many of it (0: as many as scores), slots by neuron, working memory, slots out, how many, neurons out, how many."""
    n, of, ids = get_int(args + 16), get_int(args + 24), get_int(args + 48)
    if of != 0:
        n = get_int(get_int(args + 32))
    slot_of, slots, neurons = get_int(args + 40), get_int(args + 56), get_int(args + 72)
    count = list_where(get_int(args), n, of, get_float(args + 8), 1, ids)
    here, there = 0, 0
    for i in range(count):
        neuron = get_int32(ids + 4 * i)
        slot = get_int32(slot_of + 4 * neuron)
        if slot >= 0:
            put_int32(slots + 4 * here, slot)
            here += 1
        else:
            put_int32(neurons + 4 * there, neuron)
            there += 1
    put_int(get_int(args + 64), here)
    put_int(get_int(args + 80), there)


def part_calls(
    predicted: Predicted,
    slot_of: I32,
    ids: I32,
    slots: I32,
    n_slots: I64,
    neurons: I32,
    n_neurons: I64,
    stage: str = "predictor",
) -> list[Call]:
    """Predicted neurons that have a slot -> their slots [n_slots[0]]; the others -> neurons [n_neurons[0]].

    Both in the order of the neurons, wherever their slots lie. slot_of: [F], -1 where a neuron has none; read when it
    runs. ids [F]: working memory.
    """
    args = arguments(
        predicted.logits, float(predicted.threshold), len(slot_of),
        0 if predicted.ids is None else predicted.ids, 0 if predicted.n_ids is None else predicted.n_ids,
        slot_of, ids, slots, n_slots, neurons, n_neurons,
    )  # fmt: skip
    return [Call(_part, args, 1, 1, stage, (predicted, slot_of, ids, slots, n_slots, neurons, n_neurons))]


@inline
def _run_side(side: int, worker: int) -> None:
    """This worker's share of a side, if it works there. side: kernel, args, items, grain, first worker, workers."""
    mine, n_workers = worker - get_int(side + 32), get_int(side + 40)
    if 0 <= mine < n_workers:
        n_items, grain = get_int(side + 16), get_int(side + 24)
        pieces = (n_items + grain - 1) // grain
        lo = min(pieces * mine // n_workers * grain, n_items)
        hi = min(pieces * (mine + 1) // n_workers * grain, n_items)
        if lo < hi:
            call_kernel(get_int(side), get_int(side + 8), lo, hi, worker)


@kernel
def _both(args: int, lo: int, hi: int, worker: int) -> None:
    """Items are workers. args: two sides."""
    for each in range(lo, hi):
        _run_side(args, each)
        _run_side(args + 48, each)


def both(here: Call, there: Call, n_workers: int, n_here: int) -> Call:
    """Two calls as one: the first n_here of the workers run the one, the others the other, at the same time.

    Where there is one worker it runs both. Results are those of the calls by themselves. Neither may read what the
    other writes; the number of their items must be known. Cost: compiles the kernels of both now.
    """
    alone = n_workers == 1
    places = ((0, 1), (0, 1)) if alone else ((0, n_here), (n_here, n_workers - n_here))
    assert all(size > 0 for _, size in places), "each side has a worker"
    words: list[int | I64] = []
    for call, (first, size) in zip((here, there), places, strict=True):
        assert isinstance(call.n_items, int), "the items are cut before anything runs"
        words += [call.kernel.address, call.args, call.n_items, call.grain, first, size]
    return Call(_both, arguments(*words), n_workers, 1, here.stage, (here, there), here.barrier or there.barrier)


def room_for(n: int) -> tuple[I32, I64]:
    """A list of up to n neurons, and how many it has."""
    return aligned_empty(n, np.int32), aligned_empty(1, np.int64)
