"""Rows as files hold them, of every codec that GPUs read, and in NumPy what a GPU makes of them: its planes, and the
numbers that it reads from those planes, unit by unit as weights.cuh does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs import ROW_CODECS, lane_packing
from native_kernels.codecs.copies import copy_groups
from native_kernels.copies import pack_copy
from native_kernels.cuda.layouts import COPIES, gpu_codec, plane_row_bytes

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]

SOURCES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "q8_0.lanes", "q4_0.lanes", *COPIES)
_HALVES = {"q8_0": (34, (0,)), "q4_0": (18, (0,)), "q4_k": (144, (0, 2)), "q6_k": (210, (208,))}
_PARTS = {  # of a block: where each plane's bytes lie
    "q8_0": (34, ((2, 34), (0, 2))),
    "q4_0": (18, ((2, 18), (0, 2))),
    "q4_k": (144, ((16, 144), (0, 16))),
    "q6_k": (210, ((0, 128), (128, 192), (192, 208), (208, 210))),
}


def columns_for(codec: str, n_cols: int) -> int:
    """The nearest number of columns, not fewer, that rows of the codec can have."""
    block = {"q8_0": 32, "q4_0": 32, "q4_k": 256, "q6_k": 256}.get(codec, 1)
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
        return lane_packing.pack_rows(plain, blocks.reshape(n_rows, -1, _HALVES[plain][0]))
    if codec in _HALVES:
        size, at = _HALVES[codec]
        blocks = rng.integers(0, 256, (n_rows, n_cols // columns_for(codec, 1), size), dtype=np.uint8)
        for offset in at:
            numbers = (rng.uniform(0.5, 1.5, blocks.shape[:2]) * 0.002).astype("<f2")
            blocks[:, :, offset : offset + 2] = numbers[..., None].view(np.uint8)
        return blocks.reshape(n_rows, -1)
    return ROW_CODECS[codec].encode(rng.standard_normal((n_rows, n_cols)).astype(np.float32)).reshape(n_rows, -1)


def decoded(codec: str, rows: U8, n_cols: int) -> F32:
    """[n_rows, n_cols] of rows as a file stores them."""
    return ROW_CODECS[codec].decode(np.ascontiguousarray(rows)).reshape(len(rows), -1)[:, :n_cols]


def planes_of(codec: str, rows: U8, n_cols: int) -> list[U8]:
    """What a GPU keeps of such rows: of each plane u8 [n_rows, row bytes], filled up with 0."""
    target = gpu_codec(codec)
    if target != codec:
        rows = lane_packing.unpack_rows(target, rows).reshape(len(rows), -1)
    parts = [rows]
    if target in _PARTS:
        size, places = _PARTS[target]
        blocks = rows.reshape(len(rows), -1, size)
        parts = [blocks[:, :, start:stop].reshape(len(rows), -1) for start, stop in places]
    widths = plane_row_bytes(target, n_cols)
    return [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part, width in zip(parts, widths, strict=True)]


def read_planes(codec: str, planes: list[U8], n_cols: int) -> F32:
    """The numbers in planes, [n_rows, n_cols], read as weights.cuh reads them."""
    found: F32 = _READ[codec](planes).astype(np.float32)[:, :n_cols]
    return found


def _halves(plane: U8) -> Any:
    return plane.view("<f2").astype(np.float32)


def _small_blocks(planes: list[U8], nibbles: bool) -> Any:
    scales = _halves(planes[1])
    units = planes[0].reshape(len(scales), -1, 16)
    if nibbles:
        numbers = np.concatenate([units & 15, units >> 4], axis=2).astype(np.float32) - 8
    else:
        numbers = units.view(np.int8).astype(np.float32).reshape(len(scales), -1, 32)
    return (numbers * scales[:, : numbers.shape[1], None]).reshape(len(scales), -1)


def _q4_k(planes: list[U8]) -> Any:
    n = len(planes[0])
    units = planes[0].reshape(n, -1, 16)
    side = planes[1].reshape(n, -1, 16)
    large, words = _halves(side[..., :4].copy()), side.view("<u4")
    out = np.empty((n, 32 * units.shape[1]), np.float32)
    for unit in range(units.shape[1]):
        block, down = unit // 8, (unit & 2) * 8
        first, second, shared = (words[:, block, k] >> down for k in (1, 2, 3))
        late = bool(unit & 4)
        scales = (shared & 0x0F0F) | ((first >> 2) & 0x3030) if late else first & 0x3F3F
        minima = ((shared >> 4) & 0x0F0F) | ((second >> 2) & 0x3030) if late else second & 0x3F3F
        for part, numbers in enumerate((units[:, unit] & 15, units[:, unit] >> 4)):
            scale = large[:, block, 0] * ((scales >> (8 * part)) & 255)
            least = large[:, block, 1] * ((minima >> (8 * part)) & 255)
            column = unit // 2 * 64 + unit % 2 * 16 + 32 * part
            out[:, column : column + 16] = numbers * scale[:, None] - least[:, None]
    return out


def _q6_k(planes: list[U8]) -> Any:
    n = len(planes[0])
    units, upper = planes[0].reshape(n, -1, 16), planes[1].reshape(n, -1, 16)
    scales, large = planes[2].view(np.int8).astype(np.float32), _halves(planes[3])
    out = np.empty((n, 32 * units.shape[1]), np.float32)
    for unit in range(units.shape[1]):
        high = upper[:, unit // 4 * 2 + unit % 2]
        for part, numbers in enumerate((units[:, unit] & 15, units[:, unit] >> 4)):
            whole = numbers | (((high >> ((unit & 2) + 4 * part)) & 3) << 4)
            scale = large[:, unit // 8] * scales[:, unit // 4 * 8 + unit % 4 + 4 * part]
            column = unit // 4 * 128 + unit % 4 * 16 + 64 * part
            out[:, column : column + 16] = (whole.astype(np.float32) - 32) * scale[:, None]
    return out


_READ: dict[str, Any] = {
    "f32": lambda planes: planes[0].view("<f4"),
    "f16": lambda planes: planes[0].view("<f2"),
    "bf16": lambda planes: (planes[0].view("<u2").astype(np.uint32) << 16).view(np.float32),
    "q8_0": lambda planes: _small_blocks(planes, False),
    "q4_0": lambda planes: _small_blocks(planes, True),
    "q4_k": _q4_k,
    "q6_k": _q6_k,
}
