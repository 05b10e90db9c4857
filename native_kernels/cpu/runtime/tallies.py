"""Count how often each neuron fires, in the calls that compute it.

Paper: PowerInfer, section 6.1 (a neuron's firing frequency is its impact).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from native_kernels.backend import F32, I64, U8
from native_kernels.cpu.runtime.call import Call, address, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import inline, kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    bits_not_zero,
    floats,
    floats_part,
    get_byte,
    get_int,
    get_int32,
    lowest_bit,
    put_byte,
)

GRAIN = 256


class TallyBlock:
    """Indirection through which calls find the counts (modulo 256), or none. Calls are laid out only once."""

    def __init__(self) -> None:
        self.at: I64 = aligned_empty(1, np.int64)
        self._counts: U8 | None = None

    def set_counts(self, counts: U8 | None) -> None:
        """Set the counts for later runs; None turns counting off."""
        self._counts = counts
        self.at[0] = 0 if counts is None else address(counts)


@dataclass(frozen=True, eq=False)
class Tally:
    """The counts of one FFN: those of a block from index `first` on."""

    block: TallyBlock
    first: int = 0


class Counting(NamedTuple):
    """Where a call of an FFN counts. counts: i64, one number per stage of the FFN. tally: each neuron that fires."""

    counts: I64 | None = None
    tally: Tally | None = None


NOT_COUNTED = Counting()


def tally_words(tally: Tally | None) -> tuple[I64 | int, int]:
    """Return the words by which a kernel finds the counts; the first is 0 if there are none."""
    return (0, 0) if tally is None else (tally.block.at, tally.first)


@inline
def counts_at(block_at: int, first: int) -> int:
    """Return the address of an FFN's counts from its two words; 0 while counting is off."""
    if block_at == 0:
        return 0
    counts: int = get_int(block_at)
    return counts if counts == 0 else counts + first


@inline
def tally_listed(counts: int, ids: int, lo: int, hi: int) -> None:
    """Increment the counts of the listed neurons lo to hi."""
    for i in range(lo, hi):
        place = counts + get_int32(ids + 4 * i)
        put_byte(place, get_byte(place) + 1)


@kernel
def _tally(args: int, lo: int, hi: int, worker: int) -> None:
    """Increment the count of each neuron lo to hi whose value is not zero. args: values, the two words."""
    values, counts = get_int(args), counts_at(get_int(args + 8), get_int(args + 16))
    if counts == 0:
        return
    for i in range(lo, hi, LANES):
        at, n = values + 4 * i, hi - i
        bits = bits_not_zero(floats(at)) if n >= LANES else bits_not_zero(floats_part(at, n))
        while bits != 0:
            place = counts + i + lowest_bit(bits)
            put_byte(place, get_byte(place) + 1)
            bits &= bits - 1


def tally_calls(values: F32, tally: Tally, stage: str = "ffn") -> list[Call]:
    """Count where values [F] are not zero. There is no barrier: the next call must not change the values."""
    args = arguments(values, *tally_words(tally))
    return [Call(_tally, args, values.size, GRAIN, stage, (values, tally), barrier=False)]
