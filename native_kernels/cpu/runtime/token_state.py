"""The words that change from token to token: which one it is, where it stands, and where the KV cache lies.

A program's calls have the address of this block in their arguments, so that the program is built once. It computes
nothing.
"""

from __future__ import annotations

import numpy as np

from native_kernels.backend import I64
from native_kernels.cpu.runtime.call import aligned_empty

TOKEN, POSITION, CACHE, LAYER_BYTES = range(4)
WORDS = 8


def token_state() -> I64:
    """A block of zeros. CACHE: address of the KV cache's blocks; LAYER_BYTES: from one layer of them to the next.

    POSITION: of this token, which is also how many positions the cache holds before it.
    """
    state: I64 = aligned_empty(WORDS, np.int64)
    return state
