"""Random weights in every codec, for tests and benchmarks: bytes of any value, or of values that weights have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs import CODECS, Codec

# Where in a block its float16 scales (and minima) lie.
HALVES = {
    "f32": (), "f16": (0,), "bf16": (), "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,),
    "iq4_nl": (0,), "mxfp4": (), "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
    "iq4_xs": (0,),
}  # fmt: skip


def any_bytes(codec: Codec, n_rows: int, n_blocks: int, seed: int = 0) -> NDArray[np.uint8]:
    """u8 [n_rows, n_blocks * type_size]; scales may be infinite or no numbers."""
    rng = np.random.default_rng([seed, n_rows, n_blocks])
    return rng.integers(0, 256, (n_rows, n_blocks * codec.type_size), dtype=np.uint8)


def set_halves(data: NDArray[np.uint8], codec: Codec, values: NDArray[Any]) -> None:
    """Writes float16 values [n_blocks, len(HALVES)] over the scales of all blocks of data, in place."""
    blocks = data.reshape(-1, codec.type_size)
    for i, at in enumerate(HALVES[codec.name]):
        blocks[:, at : at + 2] = np.ascontiguousarray(values[:, i : i + 1], "<f2").view(np.uint8)


def weights(name: str, n_rows: int, n_cols: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of bytes u8 [n_rows, row_bytes] that decode to numbers of about one."""
    codec = CODECS[name]
    rng = np.random.default_rng([seed, n_rows, n_cols])
    if codec.can_encode:
        return codec.encode(rng.standard_normal((n_rows, n_cols)).astype(np.float32))
    n_blocks = n_cols // codec.block_size
    data = any_bytes(codec, n_rows, n_blocks, seed)
    if name == "mxfp4":
        data.reshape(-1, codec.type_size)[:, 0] = rng.integers(124, 127, n_rows * n_blocks)
    scales = rng.standard_normal((n_rows * n_blocks, len(HALVES[name])))
    decoded = np.abs(codec.decode(_with_scales(data, codec, np.ones_like(scales))))
    return _with_scales(data, codec, scales / max(1.0, float(decoded.mean()) if decoded.size else 1.0))


def _with_scales(data: NDArray[np.uint8], codec: Codec, scales: NDArray[np.float64]) -> NDArray[np.uint8]:
    out = data.copy()
    set_halves(out, codec, scales)
    return out
