"""How much a model thinks before it answers, and which of a template's levels comes nearest to the one that is wanted.

engine/text/thinking.py finds the levels of a chat template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Level = Literal["off", "on", "low", "medium", "high"]
LEVELS: tuple[Level, ...] = get_args(Level)
EFFORTS: tuple[Level, ...] = ("low", "medium", "high")


def nearest_level(level: Level | None, levels: Sequence[Level], default: Level | None) -> Level | None:
    """Return which of a template's levels comes nearest; None: no choice, or none that comes near.

    Without "off" it is the lowest effort; an effort that the template lacks is the next higher one, else "on".
    default: of the template.
    """
    if level is None or level in levels or len(levels) < 2:
        return level if level in levels else None
    efforts = [one for one in EFFORTS if one in levels]
    if level == "off":
        return efforts[0] if efforts else None
    if level == "on":
        return None if default in efforts else efforts[-1]
    higher = [one for one in efforts if EFFORTS.index(one) > EFFORTS.index(level)]
    return (higher or ["on" if "on" in levels else efforts[-1]])[0]
