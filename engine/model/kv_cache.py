"""The keys and values of every position that a conversation has passed through the model; it decides nothing."""

from __future__ import annotations

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.errors import HostMemoryError, InvalidRequestError
from native_kernels import kv_blocks
from native_kernels.backend import I64, U8
from native_kernels.kv_blocks import KvLayout


class KVCache:
    """Keys and values of one conversation, for at most `capacity` tokens, in the layout that kernels read.

    The first `length` positions of every layer are filled. Operators write behind them (`cached_attention`), and
    `advance` counts them when every layer has.
    Shapes: blocks u8 [L, H_kv, n_blocks, block_bytes]. tokens i64 [T_max]: what they were computed from;
    sequence_length: of how long a sequence they were taken to be.
    """

    def __init__(self, config: ModelConfig, context: int, codec: KvCodec = "f32", n_layers: int | None = None) -> None:
        """n_layers: how many of the model's have blocks here; None: all."""
        if context < 1:
            raise InvalidRequestError(f"A context of {context} tokens was asked for; at least 1 is needed.")
        self.layout = KvLayout(config.head_dim, codec)
        self.capacity = context
        self.length = 0
        self.sequence_length = 0
        self.tokens: I64 = np.zeros(context, np.int64)
        n_here = config.n_layers if n_layers is None else n_layers
        try:
            self.blocks: U8 = kv_blocks.allocate(n_here, config.n_kv_heads, context, self.layout)
        except MemoryError as error:
            need = self.bytes_for(config, context, codec)
            raise HostMemoryError(
                f"The cache of {context} tokens of context needs {need} bytes, and that much memory is not to be had.",
                "Choose a smaller context.",
            ) from error

    @staticmethod
    def bytes_for(config: ModelConfig, context: int, codec: KvCodec = "f32") -> int:
        """What a cache for `context` tokens takes, in bytes."""
        layout = KvLayout(config.head_dim, codec)
        return config.n_layers * config.n_kv_heads * layout.n_blocks(context) * layout.block_bytes

    @property
    def codec(self) -> KvCodec:
        """How the numbers are stored."""
        return self.layout.codec

    @property
    def n_bytes(self) -> int:
        return int(self.blocks.nbytes)

    def advance(self, n_tokens: int) -> None:
        """Counts n_tokens that every layer has written as filled."""
        self.length += n_tokens

    def truncate(self, length: int) -> None:
        """Forgets everything from position `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"a cache of {self.length} tokens cannot be cut to {length}")
        self.length = length
