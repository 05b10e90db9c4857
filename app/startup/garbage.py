"""Collects reference cycles on the main thread alone.

Python collects them in whichever thread allocates next. A cycle may hold Qt objects, such as a closed window's, and Qt
objects of the main thread that are destroyed in another one crash the program.
"""

from __future__ import annotations

import gc

CHECK_EVERY_MS = 500


def collect_due() -> None:
    """Collect the oldest generation that is due by Python's own thresholds. Call it on the main thread."""
    due = [count > threshold for count, threshold in zip(gc.get_count(), gc.get_threshold(), strict=True)]
    if any(due):
        gc.collect(max(generation for generation, is_due in enumerate(due) if is_due))
