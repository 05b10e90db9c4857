"""When a model gives back memory of its GPU because other programs want it, and when it takes some again.

Pure rules over numbers: who asks reads the GPU and places the model (engine/gpu/residency.py). Between giving back and
taking again lies a wide gap, so that two programs do not push each other about: memory is given back where less than
FLOOR_BYTES is free, and taken again only where the usual margin stays free afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.placement import memory_plan

SMALLER = 0.8  # of what was placed there, where memory ran out
# What other programs must find free of a GPU whose budget nobody gave; below it some is given back.
FLOOR_BYTES = memory_plan.LEAST_MARGIN_BYTES // 2
# Worth placing a model anew, which takes its weights over the bus once more.
LEAST_GAIN_BYTES, LEAST_GAIN_SHARE = 256 << 20, 0.02
LOOK_EVERY_S = 5.0
TAKE_BACK_EVERY_S = 60.0
_LONGEST_WAIT_S = 600.0  # between tries that failed


class VramPolicy:
    """What a model may take of its GPU at the moment. limit: bytes for all of it, None: as when it was loaded.

    is_automatic: whether nobody gave a budget; else nothing is given or taken unasked, but where memory ran out.
    """

    def __init__(self, is_automatic: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit: int | None = None
        self.is_automatic = is_automatic
        self._clock = clock
        self._changed_at = clock()
        self._wait_s = TAKE_BACK_EVERY_S
        self._looked_at = clock()
        self._could_be: int | None = None  # at the last look

    # ------------------------------------------------------------ giving back

    def is_short(self, free: int | None) -> bool:
        """Whether others have too little of the GPU, so that some is to be given back."""
        return self.is_automatic and free is not None and free < FLOOR_BYTES

    def shrink(self, placed: int, free: int | None) -> None:
        """For what was placed there, with so much free, there is no longer room."""
        lacking = 0 if free is None else max(0, memory_plan.LEAST_MARGIN_BYTES - free)
        self.limit = max(0, min(int(SMALLER * placed), placed - lacking))
        self._changed()

    # ------------------------------------------------------------ taking again

    @property
    def seconds_to_look(self) -> float:
        """Until `to_take_back` is worth asking again."""
        return max(0.0, self._looked_at + LOOK_EVERY_S - self._clock())

    def to_take_back(self, free: int | None, held: int, total: int, budget: int) -> int | None:
        """The budget that the model may have now, where that is worth placing it anew; else None.

        free, total: of the GPU; held: by the model; budget: by which it is placed now. What is free must have been so
        at two looks, LOOK_EVERY_S apart.
        """
        now = self._clock()
        if not self.is_automatic or free is None or now < self._looked_at + LOOK_EVERY_S:
            return None
        before, self._looked_at = self._could_be, now
        margin = memory_plan.margin_bytes(total)
        found = max(0, free + held - margin) // memory_plan.BUDGET_STEP_BYTES * memory_plan.BUDGET_STEP_BYTES
        worth_it = found - budget >= max(LEAST_GAIN_BYTES, int(LEAST_GAIN_SHARE * total))
        self._could_be = found if worth_it else None
        if not worth_it or before is None or now < self._changed_at + self._wait_s:
            return None
        return min(found, before)

    def taken(self, limit: int | None) -> None:
        """So much is to be taken now; None: as much as at loading."""
        self.limit = limit
        self._changed()

    def failed(self) -> None:
        """It could not be had: the next try comes later."""
        self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)
        self._changed()

    def worked(self) -> None:
        self._wait_s = TAKE_BACK_EVERY_S

    def _changed(self) -> None:
        self._changed_at, self._could_be = self._clock(), None
