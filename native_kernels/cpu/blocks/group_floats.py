"""Decode 32 columns of a row of q4_0 or q8_0 to float32, as LLVM code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from native_kernels.cpu.runtime.simd import (
    F32,
    I8,
    I32,
    constant,
    f32,
    i64,
    load,
    offset,
    operation,
    pick,
    splat,
    store,
    times,
    void,
)


def _scaled(b: Any, quants: Any, scale: Any, target: Any) -> None:
    """Store signed bytes times the scale."""
    of = ir.VectorType(F32, quants.type.count)
    store(b, target, b.fmul(b.sitofp(quants, of), splat(b, scale, of)))


_SIXTEEN = ir.VectorType(I8, 16)


@operation(void, i64, f32, i64)
def floats_of_nibbles(b: Any, at: Any, scale: Any, target: Any) -> None:
    """Decode GGML's 16 bytes of q4_0 to 32 float32."""
    quants = load(b, at, _SIXTEEN)
    for i, half in enumerate((b.and_(quants, constant(_SIXTEEN, 15)), b.lshr(quants, constant(_SIXTEEN, 4)))):
        _scaled(b, b.sub(half, constant(_SIXTEEN, 8)), scale, offset(b, target, 64 * i))


@operation(void, i64, f32, i64)
def floats_of_bytes(b: Any, at: Any, scale: Any, target: Any) -> None:
    """Decode 32 signed bytes to 32 float32."""
    for i in range(2):
        _scaled(b, load(b, offset(b, at, 16 * i), _SIXTEEN), scale, offset(b, target, 64 * i))


def _dwords(b: Any, at: Any, step: Any, count: int) -> Any:
    """Load four-byte words, `step` bytes apart, into one vector."""
    found = ir.Constant(ir.VectorType(I32, count), ir.Undefined)
    for i in range(count):
        found = b.insert_element(found, load(b, b.add(at, times(b, step, i)), I32), ir.Constant(I32, i))
    return b.bitcast(found, ir.VectorType(I8, 4 * count))


@operation(void, i64, i64, f32, i64)
def floats_of_lane_nibbles(b: Any, at: Any, step: Any, scale: Any, target: Any) -> None:
    """Decode a group of lane-interleaved q4_0, its four-byte words `step` bytes apart, to 32 float32."""
    quants = _dwords(b, at, step, 4)
    low, high = b.and_(quants, constant(_SIXTEEN, 15)), b.lshr(quants, constant(_SIXTEEN, 4))
    for i in range(2):
        starts = (8 * i, 16 + 8 * i, 8 * i + 4, 16 + 8 * i + 4)
        half = pick(b, low, high, [start + j for start in starts for j in range(4)])
        _scaled(b, b.sub(half, constant(_SIXTEEN, 8)), scale, offset(b, target, 64 * i))


@operation(void, i64, i64, f32, i64)
def floats_of_lane_bytes(b: Any, at: Any, step: Any, scale: Any, target: Any) -> None:
    """Decode a group of lane-interleaved q8_0, its four-byte words `step` bytes apart, to 32 float32."""
    for i in range(2):
        quants = _dwords(b, b.add(at, times(b, step, 4 * i)), step, 4)
        _scaled(b, quants, scale, offset(b, target, 64 * i))
