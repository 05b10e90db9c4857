"""Rows as files hold them, of every codec that GPUs read, and in NumPy the numbers that a GPU reads from its planes of
them, unit by unit as weights.cuh does."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from samples.random_blocks import HALVES

from native_kernels.codecs import CODECS, ROW_CODECS, lane_packing
from native_kernels.codecs.copies import copy_groups
from native_kernels.copies import pack_copy
from native_kernels.cuda.layouts import COPIES, GPU_CODECS, PLANE_FIELDS, gpu_codec

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]

SOURCES = (*GPU_CODECS, "q8_0.lanes", "q4_0.lanes")


def columns_for(codec: str, n_cols: int) -> int:
    """The nearest number of columns, not fewer, that rows of the codec can have."""
    block = CODECS[codec].block_size if codec in CODECS else 1
    return -(-n_cols // block) * block


def some_rows(codec: str, n_rows: int, n_cols: int, seed: int = 0) -> U8:
    """Rows u8 [n_rows, row_bytes] of numbers of about 1 as a file or a bundle stores them."""
    rng = np.random.default_rng((seed, n_rows, n_cols))
    if codec in COPIES:
        bits = int(codec[-1])
        codes = rng.integers(0, 1 << bits, (n_rows, n_cols), dtype=np.uint8)
        scales = rng.uniform(0.1, 0.3, (n_rows, copy_groups(n_cols))).astype(np.float16)
        return pack_copy(codes, scales, bits).data
    if codec.endswith(".lanes"):
        plain = gpu_codec(codec)
        blocks = some_rows(plain, n_rows, columns_for(plain, n_cols), seed)
        return lane_packing.pack_rows(plain, blocks.reshape(n_rows, -1, CODECS[plain].type_size))
    if codec in PLANE_FIELDS:
        kind = CODECS[codec]
        blocks = rng.integers(0, 256, (n_rows, n_cols // kind.block_size, kind.type_size), dtype=np.uint8)
        for offset in HALVES[codec]:
            numbers = (rng.uniform(0.5, 1.5, blocks.shape[:2]) * 0.002).astype("<f2")
            blocks[:, :, offset : offset + 2] = numbers[..., None].view(np.uint8)
        if codec == "mxfp4":
            blocks[:, :, 0] = rng.integers(118, 122, blocks.shape[:2])
        return blocks.reshape(n_rows, -1)
    return ROW_CODECS[codec].encode(rng.standard_normal((n_rows, n_cols)).astype(np.float32)).reshape(n_rows, -1)


def decoded(codec: str, rows: U8, n_cols: int) -> F32:
    """[n_rows, n_cols] of rows as a file stores them."""
    return ROW_CODECS[codec].decode(np.ascontiguousarray(rows)).reshape(len(rows), -1)[:, :n_cols]


def read_planes(codec: str, planes: list[U8], n_cols: int) -> F32:
    """The numbers in planes, [n_rows, n_cols], read as weights.cuh reads them."""
    found: F32 = _READ[codec](planes).astype(np.float32)[:, :n_cols]
    return found


def _halves(plane: U8) -> Any:
    return plane.view("<f2").astype(np.float32)


def _nibbles(plane: U8) -> Any:
    """[n, units, 32]: the low ones of 16 bytes, then the high ones."""
    units = plane.reshape(len(plane), -1, 16)
    return np.concatenate([units & 15, units >> 4], axis=2)


def _scaled(numbers: Any, scales: Any, least: Any = 0) -> Any:
    """[n, columns] of numbers [n, units, 32] whose units have a scale, and least where it is more than one number."""
    n, units = numbers.shape[:2]
    least = least[:, :units, None] if isinstance(least, np.ndarray) else least
    return (numbers.astype(np.float32) * scales[:, :units, None] - least).reshape(n, -1)


def _small_block(planes: list[U8], minimum: bool) -> Any:
    numbers = _nibbles(planes[0])
    if len(planes) == 3:
        bits = planes[1].view("<u4")[:, : numbers.shape[1], None]
        numbers = numbers | ((bits >> np.arange(32, dtype=np.uint32) & 1) << 4).astype(np.uint8)
    scales = _halves(planes[-1])
    return _scaled(numbers, scales[:, ::2], -scales[:, 1::2]) if minimum else _scaled(numbers, scales, 16 * scales)


def _superblocks(planes: list[U8], codec: str) -> Any:
    """Units of two times 16 columns, of which the second begins `gap` columns after the first."""
    n, n_blocks = len(planes[0]), planes[0].shape[1] // (64 if codec in ("q2_k", "q3_k") else 128)
    gap = 64 if codec == "q6_k" else 32
    out = np.empty((n, 256 * n_blocks), np.float32)
    for unit, part in np.ndindex(8 * n_blocks, 2):
        if gap == 64:
            column = unit // 4 * 128 + unit % 4 * 16 + 64 * part
        else:
            column = unit // 2 * 64 + unit % 2 * 16 + 32 * part
        numbers, scale, least = _HALF_UNITS[codec](planes, unit, part)
        out[:, column : column + 16] = numbers.astype(np.float32) * scale[:, None] - least[:, None]
    return out


def _line(plane: U8, number: int) -> U8:
    return plane[:, 16 * number : 16 * number + 16]


def _k_scales(head: U8, unit: int, part: int) -> Any:
    words, down = head.copy().view("<u4"), (unit & 2) * 8
    first, second, shared = (words[:, k] >> down for k in (1, 2, 3))
    late = bool(unit & 4)
    scales = (shared & 0x0F0F) | ((first >> 2) & 0x3030) if late else first & 0x3F3F
    minima = ((shared >> 4) & 0x0F0F) | ((second >> 2) & 0x3030) if late else second & 0x3F3F
    large = _halves(head[:, :4].copy())
    return large[:, 0] * ((scales >> (8 * part)) & 255), large[:, 1] * ((minima >> (8 * part)) & 255)


def _q4_k(planes: list[U8], unit: int, part: int) -> Any:
    return (_line(planes[0], unit) >> (4 * part) & 15, *_k_scales(_line(planes[-1], unit // 8), unit, part))


def _q5_k(planes: list[U8], unit: int, part: int) -> Any:
    numbers, scale, least = _q4_k(planes, unit, part)
    fifth = _line(planes[1], unit // 8 * 2 + unit % 2) >> ((unit & 6) + part) & 1
    return numbers | fifth << 4, scale, least


def _q6_k(planes: list[U8], unit: int, part: int) -> Any:
    high = _line(planes[1], unit // 4 * 2 + unit % 2) >> ((unit & 2) + 4 * part) & 3
    numbers = (_line(planes[0], unit) >> (4 * part) & 15) | high << 4
    scale = _halves(planes[3])[:, unit // 8] * planes[2].view(np.int8)[:, unit // 4 * 8 + unit % 4 + 4 * part]
    return numbers, scale, 32 * scale


def _pairs(plane: U8, unit: int, part: int) -> U8:
    return _line(plane, unit // 4 * 2 + unit % 2) >> (2 * (unit & 2) + 2 * part) & 3


def _q3_k(planes: list[U8], unit: int, part: int) -> Any:
    third = _line(planes[1], unit // 8 * 2 + unit % 2) >> ((unit & 6) + part) & 1
    words = planes[2].view("<u4")[:, unit // 8 * 3 :]
    at = unit % 2 * 8 + 16 * part
    small = (words[:, unit // 2 % 2] >> (at + (unit & 4)) & 15) | (words[:, 2] >> (at + (unit & 6)) & 3) << 4
    scale = _halves(planes[3])[:, unit // 8] * (small.astype(np.float32) - 32)
    return _pairs(planes[0], unit, part) | third << 2, scale, 4 * scale


def _q2_k(planes: list[U8], unit: int, part: int) -> Any:
    small = planes[1][:, unit // 2 * 4 + unit % 2 + 2 * part]
    scale, least = _halves(planes[2])[:, unit // 8 * 2 :][:, :2].T
    return _pairs(planes[0], unit, part), scale * (small & 15), least * (small >> 4)


def _iq4_xs(planes: list[U8]) -> Any:
    heads, groups = planes[1].view("<u4").reshape(len(planes[0]), -1, 2, 1), np.arange(8, dtype=np.uint32)
    small = (heads[:, :, 1] >> (4 * groups) & 15) | (heads[:, :, 0] >> (16 + 2 * groups) & 3) << 4
    scales = _halves(planes[1]).reshape(len(heads), -1, 4)[:, :, :1] * (small.astype(np.float32) - 32)
    return _scaled(_NON_LINEAR[_nibbles(planes[0])], scales.reshape(len(heads), -1))


def _mxfp4(planes: list[U8]) -> Any:
    return _scaled(_E2M1[_nibbles(planes[0])], np.ldexp(np.float32(1), planes[1].astype(np.int32) - 128))


_NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
_HALF_UNITS: dict[str, Any] = {"q2_k": _q2_k, "q3_k": _q3_k, "q4_k": _q4_k, "q5_k": _q5_k, "q6_k": _q6_k}
_READ: dict[str, Any] = {
    "f32": lambda planes: planes[0].view("<f4"),
    "f16": lambda planes: planes[0].view("<f2"),
    "bf16": lambda planes: (planes[0].view("<u2").astype(np.uint32) << 16).view(np.float32),
    "q8_0": lambda planes: _scaled(planes[0].view(np.int8).reshape(len(planes[0]), -1, 32), _halves(planes[1])),
    "q4_0": lambda planes: _scaled(_nibbles(planes[0]), _halves(planes[1]), 8 * _halves(planes[1])),
    "q4_1": lambda planes: _small_block(planes, True),
    "q5_0": lambda planes: _small_block(planes, False),
    "q5_1": lambda planes: _small_block(planes, True),
    "iq4_nl": lambda planes: _scaled(_NON_LINEAR[_nibbles(planes[0])], _halves(planes[1])),
    "mxfp4": _mxfp4,
    "iq4_xs": _iq4_xs,
    **{codec: partial(_superblocks, codec=codec) for codec in _HALF_UNITS},
}
