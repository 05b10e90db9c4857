"""Keys and values of new positions into the blocks that attention reads; an item is a head and a few positions.

The layout and its specification are native_kernels/kv_blocks.py. Rotating is done before.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir

from native_kernels.backend import F32, I64
from native_kernels.cpu.attention_tiles import floats_to_halves
from native_kernels.cpu.call import Call, arguments
from native_kernels.cpu.jit import Kernel
from native_kernels.cpu.simd import (
    I8,
    I32,
    LANES,
    VF,
    VI,
    F,
    absolute,
    f32,
    get_int,
    i64,
    larger,
    largest,
    mul,
    nearest,
    number,
    operation,
    pointer,
    splat,
    spread,
    store,
    void,
    zero,
)
from native_kernels.cpu.vector_math import some_floats
from native_kernels.kv_blocks import BLOCK, GROUP, KvCodec, KvLayout

_POSITIONS = 32  # of an item


def _scatter(b: Any, at: Any, stride: int, n: Any, stored: Any) -> None:
    """The first n lanes, each `stride` bytes behind the other. stored: in the type of memory."""
    for lane in range(LANES):
        with b.if_then(b.icmp_signed("<", number(lane), n)):
            value = b.extract_element(stored, ir.Constant(I32, lane))
            place = b.add(at, number(stride * lane))
            b.store(value, pointer(b, place, value.type), align=1)


def _in_codec(b: Any, x: Any, codec: KvCodec) -> Any:
    if codec == "f32":
        return x
    if codec == "f16":
        return floats_to_halves(b, x)
    return b.trunc(b.fptosi(x, VI), ir.VectorType(I8, LANES))


@cache
def _put_functions(codec: KvCodec) -> tuple[Any, Any]:
    """(keys: n lanes into a column of a block, values: a whole vector into a row)."""
    width = {"f32": 4, "f16": 2, "q8_0": 1}[codec]

    @operation(void, i64, i64, F)
    def put_keys(b: Any, at: Any, n: Any, x: Any) -> None:
        _scatter(b, at, BLOCK * width, n, _in_codec(b, x, codec))

    @operation(void, i64, F)
    def put_values(b: Any, at: Any, x: Any) -> None:
        store(b, at, _in_codec(b, x, codec))

    return put_keys, put_values


@operation(void, i64, f32)
def _put_half(b: Any, at: Any, value: Any) -> None:
    halves = floats_to_halves(b, splat(b, value, VF))
    store(b, at, b.extract_element(halves, ir.Constant(I32, 0)))


@cache
def _kernel(codec: KvCodec) -> Kernel:
    put_keys, put_values = _put_functions(codec)
    quantised, width = codec == "q8_0", {"f32": 4, "f16": 2, "q8_0": 1}[codec]

    def put(args: int, lo: int, hi: int, worker: int) -> None:
        """args: k, stride of its tokens in bytes, v, stride, position, cache, bytes of a layer (the last three:
        addresses of a word), layer, key-value heads, head_dim, tokens, padded dimension, bytes of a block, and where
        in it key scales, values and value scales begin."""
        k, k_stride, v, v_stride = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        position = get_int(get_int(args + 32))
        layer_bytes = get_int(get_int(args + 48))
        n_heads, head_dim = get_int(args + 64), get_int(args + 72)
        n_tokens, padded_dim = get_int(args + 80), get_int(args + 88)
        block_bytes = get_int(args + 96)
        key_scales, values, value_scales = get_int(args + 104), get_int(args + 112), get_int(args + 120)
        layer = get_int(get_int(args + 40)) + get_int(args + 56) * layer_bytes
        head_bytes = layer_bytes // n_heads
        group_size = GROUP if quantised else padded_dim
        for item in range(lo, hi):
            head, first = item % n_heads, item // n_heads * _POSITIONS
            for token in range(first, min(first + _POSITIONS, n_tokens)):
                place = position + token
                block = layer + head_bytes * head + block_bytes * (place // BLOCK)
                inside = place % BLOCK
                for which in range(2):
                    x = (k + k_stride * token if which == 0 else v + v_stride * token) + 4 * head_dim * head
                    for group in range(0, padded_dim, group_size):
                        step = 1.0
                        end = min(group + group_size, padded_dim)
                        if quantised:
                            most = zero()
                            for d in range(group, min(end, head_dim), LANES):
                                most = larger(absolute(some_floats(x + 4 * d, head_dim - d)), most)
                            size = largest(most)
                            step = 127.0 / size if size > 0.0 else 0.0
                            scales = block + (key_scales if which == 0 else value_scales)
                            _put_half(scales + 2 * (group // GROUP * BLOCK + inside), size * (1.0 / 127.0))
                        for d in range(group, end, LANES):
                            n = head_dim - d
                            if n <= 0:
                                continue
                            part = some_floats(x + 4 * d, n)
                            if quantised:
                                part = nearest(mul(part, spread(step)))
                            if which == 0:
                                put_keys(block + width * (d * BLOCK + inside), n, part)
                            else:
                                put_values(block + values + width * (inside * padded_dim + d), part)

    return Kernel(put, f"kv_store.put-{codec}")


def store_calls(
    k: F32,
    v: F32,
    position: I64,
    cache: I64,
    layer_bytes: I64,
    layer: int,
    layout: KvLayout,
    stage: str = "attention",
    barrier: bool = True,
) -> list[Call]:
    """Stores k and v [T, H_kv, head_dim], the last axis in one piece and heads side by side, from `position` on.

    Shapes: position [1], how many positions lie before; cache [1], the address of blocks
    [L, H_kv, n_blocks, block_bytes]; layer_bytes [1], from one layer to the next: all read when the calls run.
    """
    n_tokens, n_heads, head_dim = k.shape
    assert head_dim == layout.head_dim
    assert k.strides[1:] == v.strides[1:] == (4 * head_dim, 4)
    args = arguments(
        k, k.strides[0], v, v.strides[0], position, cache, layer_bytes, layer, n_heads, head_dim, n_tokens,
        layout.padded_dim, layout.block_bytes, layout.key_scales, layout.values, layout.value_scales,
    )  # fmt: skip
    items = n_heads * -(-n_tokens // _POSITIONS)
    kept = (k, v, position, cache, layer_bytes)
    return [Call(_kernel(layout.codec), args, items, 1, stage, kept, barrier)]
