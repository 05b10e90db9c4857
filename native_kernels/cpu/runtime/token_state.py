"""The words that change from token to token: its id, its position, and the address of the KV cache.

A program's calls hold the address of this block in their arguments, so that the program is built once.
"""

from __future__ import annotations

import numpy as np

from native_kernels.backend import I64
from native_kernels.cpu.runtime.call import aligned_empty

TOKEN, POSITION, CACHE, LAYER_BYTES, STATE, NEW_STATE, LOCAL_CACHE, LOCAL_LAYER_BYTES, LAYER_TOKEN = range(9)
LOCAL_POSITION = 9
WORDS = 16


def token_state() -> I64:
    """Return a block of zeros. CACHE: address of the KV cache's blocks. LAYER_BYTES: stride of a layer in them.

    LOCAL_CACHE, LOCAL_LAYER_BYTES, LOCAL_POSITION: cache, stride and position in the blocks of layers with a window.
    LAYER_TOKEN: the token whose embeddings for the layers are added.
    STATE, NEW_STATE: addresses of the recurrent states that a token reads and writes.
    POSITION: position of this token, which is also the number of positions already in the cache.
    """
    state: I64 = aligned_empty(WORDS, np.int64)
    return state
