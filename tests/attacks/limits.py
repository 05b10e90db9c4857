"""What a hostile file may cost: half a second of computing and 100 MB, whatever it claims."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine.errors import EngineError, ModelFormatError

MOST_MEMORY_BYTES = 100_000_000
MOST_SECONDS = 10.0  # on a machine twenty times as slow as the one where half a second was the most


@contextmanager
def little_memory(most: int = MOST_MEMORY_BYTES) -> Iterator[None]:
    """Fails where Python and NumPy allocate more bytes than that at a time in the block."""
    tracemalloc.start()
    try:
        yield
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < most


def refused(act: Callable[[], object], words: str, kind: type[EngineError] = ModelFormatError) -> None:
    """The act ends within the limits in one error of that kind, short enough to show to a person.

    It is done twice, because counting memory slows it down. Time is the CPU's: how busy the machine is otherwise
    does not count.
    """
    started = time.process_time()
    with pytest.raises(kind, match=words) as caught:
        act()
    assert time.process_time() - started < MOST_SECONDS
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 600
    assert caught.value.hint
    with little_memory(), pytest.raises(kind):
        act()
