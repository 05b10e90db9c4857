"""Lists what a mask of bits says, as a device sends it: which neurons are expected. It decides nothing.

Every worker counts the bits before its part of the mask, in place of one more hand-over: a few hundred words that are
in the cache.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import I32, I64
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import inline, kernel
from native_kernels.cpu.runtime.simd import count_bits, get_int, lowest_bit, put_int, put_int32

_WORD = 64  # bits
_GRAIN = 8  # words of an item's range: a cache line


@inline
def _word(mask: int, i: int, n: int) -> int:
    """Word i of a mask of n bits, without what lies behind them."""
    bits: int = get_int(mask + 8 * i)
    left = n - 64 * i
    if left < 64:
        bits &= (1 << left) - 1
    return bits


@kernel
def _list(args: int, lo: int, hi: int, worker: int) -> None:
    """Items are words. args: mask, how many bits, ids, how many of them."""
    mask, n, ids, count = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    found = 0
    for i in range(lo):
        found += count_bits(get_int(mask + 8 * i))
    for i in range(lo, hi):
        bits = _word(mask, i, n)
        while bits != 0:
            put_int32(ids + 4 * found, 64 * i + lowest_bit(bits))
            found += 1
            bits &= bits - 1
    if 64 * hi >= n:
        put_int(count, found)


def mask_words(n: int) -> int:
    """32-bit words of a mask for n bits, as `list_bits_calls` reads it: whole words of 64 bits."""
    return 2 * -(-n // _WORD)


def list_bits_calls(mask: NDArray[np.uint32], n: int, ids: I32, count: I64, stage: str = "predictor") -> list[Call]:
    """ids [count[0]] = the places of the bits that are set among the first n, ascending; of a word the lowest first.

    Shapes: mask u32 [mask_words(n)], from an address that 8 divides; ids [n]; count [1]. Items: words of 64 bits.
    """
    if len(mask) != mask_words(n) or len(ids) < n:
        raise ValueError(f"a mask of {len(mask)} words and {len(ids)} places do not serve {n} neurons")
    return [Call(_list, arguments(mask, n, ids, count), len(mask) // 2, _GRAIN, stage, (mask, ids, count))]
