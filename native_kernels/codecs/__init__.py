"""The codecs of weights, by name.

To add one, write a function that fills f32 [n, block_size] from u8 [n, type_size], and add a Codec to its file's tuple.
"""

from __future__ import annotations

from native_kernels.codecs.codec import Codec as Codec
from native_kernels.codecs.copies import COPY_CODECS as COPY_CODECS
from native_kernels.codecs.lanes import LANE_CODECS
from native_kernels.codecs.lanes import codec_by_columns as codec_by_columns
from native_kernels.codecs.plain import BF16_CODEC, F16_CODEC, F32_CODEC
from native_kernels.codecs.quality import Deviation as Deviation
from native_kernels.codecs.quality import quality as quality
from native_kernels.codecs.small_blocks import SMALL_BLOCKS
from native_kernels.codecs.super_blocks import SUPER_BLOCKS

CODECS: dict[str, Codec] = {
    codec.name: codec for codec in (F32_CODEC, F16_CODEC, BF16_CODEC, *SMALL_BLOCKS, *SUPER_BLOCKS)
}

# Every codec that a matrix may have: those of files, of bundles, and of predictors.
ROW_CODECS: dict[str, Codec] = CODECS | LANE_CODECS | COPY_CODECS
