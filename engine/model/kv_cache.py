"""KV cache of a conversation."""

from __future__ import annotations

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.errors import HostMemoryError, InvalidRequestError
from native_kernels import kv_blocks
from native_kernels.backend import I64, U8
from native_kernels.kv_blocks import KvLayout


class KVCache:
    """Keys and values of one conversation for at most `capacity` tokens, in the kernels' layout.

    The first `length` positions of every layer are filled. Operators write after them (`cached_attention`); `advance`
    counts new positions once every layer has them.
    Shapes: blocks u8 [L, H_kv, n_blocks, block_bytes]. tokens i64 [T_max]: the cached tokens; sequence_length: the
    sequence length that their positions were rotated for.
    """

    def __init__(self, config: ModelConfig, context: int, codec: KvCodec = "f32", n_layers: int | None = None) -> None:
        """Allocate the cache. n_layers: number of layers with blocks here; None: all."""
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
        """Return the bytes of a cache for `context` tokens."""
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
        """Count n_tokens as filled after every layer has written them."""
        self.length += n_tokens

    def truncate(self, length: int) -> None:
        """Drop everything from position `length` on."""
        if not 0 <= length <= self.length:
            raise ValueError(f"a cache of {self.length} tokens cannot be cut to {length}")
        self.length = length
