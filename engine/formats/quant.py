"""How numbers are stored in model files: a registry of codecs. It reads no files and runs no models."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


class Codec(Protocol):
    """A way to store float32 numbers in blocks: block_size numbers take type_size bytes."""

    name: str
    block_size: int
    type_size: int

    def decode(self, data: U8) -> F32:
        """Bytes [n_blocks * type_size] -> numbers [n_blocks * block_size]."""

    def encode(self, values: F32) -> U8:
        """Numbers [n_blocks * block_size] -> bytes [n_blocks * type_size]."""


class _Plain:
    """Numbers stored one by one in a type that NumPy knows."""

    block_size = 1

    def __init__(self, name: str, dtype: str) -> None:
        self.name = name
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self.type_size = self._dtype.itemsize

    def decode(self, data: U8) -> F32:
        return data.view(self._dtype).astype(np.float32)

    def encode(self, values: F32) -> U8:
        return np.ascontiguousarray(values.astype(self._dtype)).view(np.uint8)


class _BF16:
    """The upper half of a float32; encoding rounds to the nearest, ties to even."""

    name, block_size, type_size = "bf16", 1, 2

    def decode(self, data: U8) -> F32:
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)

    def encode(self, values: F32) -> U8:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        quiet_nan = (bits >> 16) | 0x40
        return np.where(np.isnan(values), quiet_nan, rounded).astype("<u2").view(np.uint8)


class _Q8_0:  # noqa: N801 - the format's own name
    """32 signed bytes under one float16 scale: the largest magnitude of the block over 127."""

    name, block_size, type_size = "q8_0", 32, 34
    _block = np.dtype([("scale", "<f2"), ("q", "i1", (32,))])

    def decode(self, data: U8) -> F32:
        blocks = data.view(self._block)
        out = blocks["q"].astype(np.float32)
        out *= blocks["scale"].astype(np.float32)[:, None]
        return out.reshape(-1)

    def encode(self, values: F32) -> U8:
        rows = np.ascontiguousarray(values, np.float32).reshape(-1, 32)
        scale = np.abs(rows).max(axis=1, initial=0) / np.float32(127)
        inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
        scaled = rows * inverse[:, None]
        blocks = np.empty(len(rows), self._block)
        blocks["scale"] = scale
        blocks["q"] = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))  # half away from zero, as ggml does
        return blocks.view(np.uint8)


CODECS: dict[str, Codec] = {
    codec.name: codec for codec in (_Plain("f32", "<f4"), _Plain("f16", "<f2"), _BF16(), _Q8_0())
}
