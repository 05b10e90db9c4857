"""GGUF's tensor types: numbers, names and sizes. native_kernels/codecs implements the codecs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from native_kernels.codecs import CODECS as CODECS
from native_kernels.codecs import Codec as Codec

_BLOCKS = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_k", 11: "q3_k",
    12: "q4_k", 13: "q5_k", 14: "q6_k", 15: "q8_k",
}  # fmt: skip

_SINCE = {
    16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs",
    24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 29: "iq1_m", 30: "bf16", 34: "tq1_0", 35: "tq2_0",
    39: "mxfp4", 40: "nvfp4", 41: "q1_0",
}  # fmt: skip

GGML_TYPES: Mapping[int, str] = MappingProxyType(_BLOCKS | _SINCE)
"""Type numbers of GGUF files as they are written today."""

POWERINFER_TYPES: Mapping[int, str] = MappingProxyType(_BLOCKS | {16: "i8", 17: "i16", 18: "i32"})
"""Type numbers of files with the magic PWRI: those of November 2023, where three numbers mean something else."""

_WITHDRAWN = {
    31: "q4_0_4_4", 32: "q4_0_4_8", 33: "q4_0_8_8", 36: "iq4_nl_4_4", 37: "iq4_nl_4_8", 38: "iq4_nl_8_8",
}  # fmt: skip

WITHDRAWN_TYPES: Mapping[int, str] = MappingProxyType(_WITHDRAWN)
"""Type numbers that files of 2024 may carry: weights interleaved for one kind of CPU, no longer in the format."""

# Types with a known size that nothing here decodes: numbers per block, bytes per block.
_ONLY_SIZED = {
    "q8_1": (32, 40), "q8_k": (256, 292), "iq2_xxs": (256, 66), "iq2_xs": (256, 74), "iq3_xxs": (256, 98),
    "iq1_s": (256, 50), "iq3_s": (256, 110), "iq2_s": (256, 82), "iq1_m": (256, 56), "tq1_0": (256, 54),
    "tq2_0": (256, 66), "nvfp4": (64, 36), "q1_0": (128, 18), "i8": (1, 1), "i16": (1, 2), "i32": (1, 4),
    "i64": (1, 8), "f64": (1, 8),
}  # fmt: skip

BLOCK_SIZES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {name: (codec.block_size, codec.type_size) for name, codec in CODECS.items()} | _ONLY_SIZED
)
"""Numbers and bytes of a block of every type that a file may hold, whether a codec decodes it or not."""
