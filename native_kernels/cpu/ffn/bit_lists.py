"""List the set bits of a mask that a device sends: the neurons expected to fire.

Every worker counts the bits before its range of the mask, a few hundred words in the cache, which saves a barrier.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from native_kernels.cpu.runtime.call import Call, Listed, arguments
from native_kernels.cpu.runtime.jit import inline, kernel
from native_kernels.cpu.runtime.simd import count_bits, get_int, lowest_bit, put_int, put_int32

_WORD = 64  # bits
_GRAIN = 8  # words per item range: a cache line


@inline
def _word(mask: int, i: int, n: int) -> int:
    """Return word i of a mask of n bits; bits from n on are 0."""
    bits: int = get_int(mask + 8 * i)
    left = n - 64 * i
    if left < 64:
        bits &= (1 << left) - 1
    return bits


@kernel
def _list(args: int, lo: int, hi: int, worker: int) -> None:
    """Items are words. args: mask, number of bits, ids, their number."""
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
    """Return the number of 32-bit words in a mask of n bits for `list_bits_calls`: whole 64-bit words."""
    return 2 * -(-n // _WORD)


def list_bits_calls(mask: NDArray[np.uint32], n: int, listed: Listed, stage: str = "predictor") -> list[Call]:
    """List the places of the set bits among the first n, ascending; lowest bit of a word first.

    Shapes: mask u32 [mask_words(n)], aligned to 8 bytes; listed.ids [n]. Items: words of 64 bits.
    """
    if len(mask) != mask_words(n) or len(listed.ids) < n:
        raise ValueError(f"a mask of {len(mask)} words and {len(listed.ids)} places do not serve {n} neurons")
    return [Call(_list, arguments(mask, n, *listed), len(mask) // 2, _GRAIN, stage, (mask, listed))]
