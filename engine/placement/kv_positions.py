"""Choose how many positions of KV cache the GPU has: as many as cost little speed, more once a conversation needs them.

Each byte of KV cache takes the place of weights, which every token then reads from RAM, however short the conversation.
"""

from __future__ import annotations

from collections.abc import Callable

FEWEST_POSITIONS = 4096  # or the context, if that is shorter
# More positions than needed are taken as long as a token takes at most this share longer: placing the model again costs
# a second or more.
_WORTH = 0.03


def kv_sizes(context: int, least: int = 0) -> list[int]:
    """Return the numbers of positions to choose from, ascending: 8, 7, 6, 5, 4, 3.5, 3, 2.5, 2 eighths and so on of
    the context. All hold `least` positions, as far as the context does.
    """
    least = min(context, max(least, FEWEST_POSITIONS))
    found, size = [], context
    while size >= least:
        found += [size, *(size * eighths // 512 * 64 for eighths in (7, 6, 5))]
        size //= 2
    return sorted(one for one in set(found) if one >= least)


def choose_kv_positions(context: int, least: int, seconds: Callable[[int], float]) -> int:
    """Return the most positions that cost little speed. seconds: predicted time of a token with this many positions."""
    sizes = kv_sizes(context, least)
    most_s = (1 + _WORTH) * seconds(sizes[0]) if len(sizes) > 1 else 0.0
    if len(sizes) == 1 or seconds(sizes[-1]) <= most_s:
        return sizes[-1]
    low, high = 0, len(sizes) - 1  # the first of them is fast enough, the second is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seconds(sizes[middle]) <= most_s else (low, middle)
    return sizes[low]
