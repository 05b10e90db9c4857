"""The keys and values of every position that a conversation has passed through the model; it decides nothing."""

from __future__ import annotations

import numpy as np

from engine.config import ModelConfig
from engine.errors import HostMemoryError, InvalidRequestError
from native_kernels.backend import F32, I64


class KVCache:
    """Keys and values of one conversation, for at most `capacity` tokens.

    Shapes: k, v f32 [L, T_max, H_kv, head_dim]; the first `length` positions of every layer are filled.
    tokens i64 [T_max]: what they were computed from; sequence_length: of how long a sequence they were taken to be.
    """

    def __init__(self, config: ModelConfig, context: int) -> None:
        if context < 1:
            raise InvalidRequestError(f"A context of {context} tokens was asked for; at least 1 is needed.")
        shape = (config.n_layers, context, config.n_kv_heads, config.head_dim)
        try:
            self.k: F32 = np.zeros(shape, np.float32)  # zeros, not empty: the pages stay untouched until they are used
            self.v: F32 = np.zeros(shape, np.float32)
        except MemoryError as error:
            need = self.bytes_for(config, context)
            raise HostMemoryError(
                f"The cache of {context} tokens of context needs {need} bytes, and that much memory is not to be had.",
                "Choose a smaller context.",
            ) from error
        self.tokens: I64 = np.zeros(context, np.int64)
        self.sequence_length = 0
        self.length = 0

    @staticmethod
    def bytes_for(config: ModelConfig, context: int) -> int:
        """What a cache for `context` tokens takes, in bytes."""
        return 2 * 4 * config.n_layers * context * config.n_kv_heads * config.head_dim

    @property
    def capacity(self) -> int:
        return int(self.k.shape[1])

    @property
    def n_bytes(self) -> int:
        return int(self.k.nbytes + self.v.nbytes)

    def write(self, layer: int, k: F32, v: F32) -> tuple[F32, F32]:
        """Stores k, v [T, H_kv, head_dim] behind the filled positions of a layer; all of that layer's [N, ...] back.

        The length grows only by `advance`, when every layer has written.
        """
        stop = self.length + k.shape[0]
        self.k[layer, self.length : stop] = k
        self.v[layer, self.length : stop] = v
        return self.k[layer, :stop], self.v[layer, :stop]

    def advance(self, n_tokens: int) -> None:
        """Counts n_tokens that every layer has written as filled."""
        self.length += n_tokens

    def truncate(self, length: int) -> None:
        """Forgets everything from position `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"a cache of {self.length} tokens cannot be cut to {length}")
        self.length = length
