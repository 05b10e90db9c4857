"""Finds where a conversation that is too long for the context has to begin; what is left out, it does not know."""

from __future__ import annotations

from collections.abc import Callable


def earliest_that_fits(
    encode_from: Callable[[int], list[int]], count: int, room: int, target: int
) -> tuple[int, list[int]]:
    """The first of `count` places to begin at from which the prompt has at most `room` tokens, and that prompt.

    Where not everything fits, the first with at most `target` tokens; the last place where none has so few.
    Cost: encodes about four times `room` tokens however long the conversation is, because it begins at its end.
    """
    last = at = count - 1
    newest = prompt = encode_from(last)
    too_long, step = -1, 1
    while at > 0 and too_long < 0:
        earlier = max(0, at - step)
        step *= 2
        longer = encode_from(earlier)
        if len(longer) <= room:
            at, prompt = earlier, longer
        else:
            too_long = earlier
    if at == 0:
        return at, prompt
    at, prompt = last, newest
    while at - too_long > 1:
        middle = (at + too_long) // 2
        longer = encode_from(middle)
        if len(longer) <= target:
            at, prompt = middle, longer
        else:
            too_long = middle
    return at, prompt
