"""What GGML calls its tensor types: numbers in a file, today's and those of 2023, and sizes. It decodes nothing.

A type that Hearth cannot decode is still known by its size, so that the table of a file can be checked in full.
"""

from __future__ import annotations

from collections.abc import Mapping

_BLOCKS = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_k", 11: "q3_k",
    12: "q4_k", 13: "q5_k", 14: "q6_k", 15: "q8_k",
}  # fmt: skip

GGML_TYPES: Mapping[int, str] = _BLOCKS | {
    16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs",
    24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 29: "iq1_m", 30: "bf16", 34: "tq1_0", 35: "tq2_0",
    39: "mxfp4", 40: "nvfp4", 41: "q1_0",
}  # fmt: skip

# In November 2023, when PowerInfer's format was made, the integers stood where three IQ types stand today.
POWERINFER_TYPES: Mapping[int, str] = _BLOCKS | {16: "i8", 17: "i16", 18: "i32"}

# Withdrawn from GGUF: weights interleaved for one kind of processor. Named, because such files exist.
WITHDRAWN_TYPES: Mapping[int, str] = {
    31: "q4_0_4_4", 32: "q4_0_4_8", 33: "q4_0_8_8", 36: "iq4_nl_4_4", 37: "iq4_nl_4_8", 38: "iq4_nl_8_8",
}  # fmt: skip

# Numbers of a block, and the bytes they take.
BLOCK_SIZES: Mapping[str, tuple[int, int]] = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "f64": (1, 8), "i8": (1, 1), "i16": (1, 2), "i32": (1, 4),
    "i64": (1, 8), "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34),
    "q8_1": (32, 40), "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176),
    "q6_k": (256, 210), "q8_k": (256, 292), "iq2_xxs": (256, 66), "iq2_xs": (256, 74), "iq3_xxs": (256, 98),
    "iq1_s": (256, 50), "iq4_nl": (32, 18), "iq3_s": (256, 110), "iq2_s": (256, 82), "iq4_xs": (256, 136),
    "iq1_m": (256, 56), "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17), "nvfp4": (64, 36),
    "q1_0": (128, 18),
}  # fmt: skip
