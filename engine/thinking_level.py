"""Levels of thinking before an answer, and the choice of a template's level nearest to the requested one.

engine/text/thinking.py finds the levels of a chat template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Level = Literal["off", "on", "low", "medium", "high"]
LEVELS: tuple[Level, ...] = get_args(Level)
EFFORTS: tuple[Level, ...] = ("low", "medium", "high")


def nearest_level(level: Level | None, levels: Sequence[Level], default: Level | None) -> Level | None:
    """Return the nearest of a template's levels. None: use the template's default.

    A missing "off" becomes the lowest effort. A missing "on" becomes the default if that is an effort, otherwise the
    highest effort. A missing effort becomes the next higher one, otherwise "on", otherwise the highest effort.
    levels: of the template. With fewer than two, a missing level becomes None. default: of the template.
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
