"""Rules for when a model releases GPU memory to other programs, and when it takes some back.

This module only computes with byte counts and times; engine/gpu/residency.py reads the GPU and places the model. The
model releases memory if less than FLOOR_BYTES is free, and takes some back only if the usual margin stays free
afterwards. The wide gap between the two keeps programs from displacing each other in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.placement import memory_plan

SMALLER = 0.8  # share of the placed bytes to keep after memory ran out
# With an automatic budget, memory is released if less than this is free.
FLOOR_BYTES = memory_plan.LEAST_MARGIN_BYTES // 2
# Least gain that justifies placing a model again, which uploads all its weights.
LEAST_GAIN_BYTES, LEAST_GAIN_SHARE = 256 << 20, 0.02
LOOK_EVERY_S = 5.0
TAKE_BACK_EVERY_S = 60.0
_LONGEST_WAIT_S = 600.0  # after failed attempts


class VramPolicy:
    """The memory limit of a model on its GPU. limit: bytes in total; None: as when it was loaded.

    is_automatic: whether the user gave no budget. With a budget, memory is released only after it ran out, and never
    taken back.
    """

    def __init__(self, is_automatic: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit: int | None = None
        self.is_automatic = is_automatic
        self._clock = clock
        self._changed_at = clock()
        self._wait_s = TAKE_BACK_EVERY_S
        self._looked_at = clock()
        self._could_be: int | None = None  # possible budget at the last check

    # --- releasing

    def is_short(self, free: int | None) -> bool:
        """Return whether the GPU has too little free memory for other programs. free: bytes; None: unknown."""
        return self.is_automatic and free is not None and free < FLOOR_BYTES

    def shrink(self, placed: int, free: int | None) -> None:
        """Lower the limit, because `placed` bytes no longer fit. free: bytes; None: unknown."""
        lacking = 0 if free is None else max(0, memory_plan.LEAST_MARGIN_BYTES - free)
        self.limit = max(0, min(int(SMALLER * placed), placed - lacking))
        self._changed()

    # --- taking back

    @property
    def seconds_to_look(self) -> float:
        """Seconds until the next useful call of `to_take_back`."""
        return max(0.0, self._looked_at + LOOK_EVERY_S - self._clock())

    def to_take_back(self, free: int | None, held: int, total: int, budget: int) -> int | None:
        """Return a budget that is worth placing the model again for, or None.

        free, total: bytes of the GPU. held: by the model. budget: of the current placement. The memory must be free at
        two checks, LOOK_EVERY_S apart.
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
        """Set the limit before placing again; None: as when it was loaded."""
        self.limit = limit
        self._changed()

    def failed(self) -> None:
        """Double the wait before the next attempt, after a failed one."""
        self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)
        self._changed()

    def worked(self) -> None:
        """Reset the wait after a successful attempt."""
        self._wait_s = TAKE_BACK_EVERY_S

    def _changed(self) -> None:
        self._changed_at, self._could_be = self._clock(), None
