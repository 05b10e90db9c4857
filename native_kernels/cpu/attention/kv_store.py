"""Store keys and values of new positions into the blocks that attention reads; rotate those of a single token first.

The layout and its specification are native_kernels/kv_blocks.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from native_kernels.backend import F32, I64, U8
from native_kernels.cpu.attention.rope import rotate_head
from native_kernels.cpu.products.vector_math import put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import Kernel, inline
from native_kernels.cpu.runtime.simd import (
    I8,
    I32,
    LANES,
    VF,
    VI,
    F,
    absolute,
    f32,
    floats_to_halves,
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
from native_kernels.kv_blocks import BLOCK, GROUP, KvCodec, KvLayout

_POSITIONS = 32  # of an item
_WIDTH: dict[KvCodec, int] = {"f32": 4, "f16": 2, "q8_0": 1}


def _scatter(b: Any, at: Any, stride: int, n: Any, stored: Any) -> None:
    """Store the first n lanes `stride` bytes apart. stored: in the type of memory."""
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
    """Return two operations: store n lanes of keys into a column of a block, and a vector of values into a row."""
    width = _WIDTH[codec]

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
def _store_functions(codec: KvCodec) -> tuple[Any, Any]:
    """Return two functions that store a row of keys and one of values into a block."""
    put_keys, put_values = _put_functions(codec)
    quantised, width = codec == "q8_0", _WIDTH[codec]

    @inline
    def step_of(x: Any, head_dim: Any, group: Any, scale_at: Any) -> Any:
        """Store a group's scale and return the factor to multiply its numbers by before rounding."""
        most = zero()
        for d in range(group, min(group + GROUP, head_dim), LANES):
            most = larger(absolute(some_floats(x + 4 * d, head_dim - d)), most)
        size = largest(most)
        _put_half(scale_at + 2 * BLOCK * (group // GROUP), size * (1.0 / 127.0))
        return 127.0 / size if size > 0.0 else 0.0

    @inline
    def store_keys(x: Any, head_dim: Any, block: Any, inside: Any, scales: Any) -> Any:
        for group in range(0, head_dim, GROUP):
            step = 1.0
            if quantised:
                step = step_of(x, head_dim, group, block + scales + 2 * inside)
            for d in range(group, min(group + GROUP, head_dim), LANES):
                part = some_floats(x + 4 * d, head_dim - d)
                if quantised:
                    part = nearest(mul(part, spread(step)))
                put_keys(block + width * (d * BLOCK + inside), head_dim - d, part)

    @inline
    def store_values(x: Any, head_dim: Any, padded_dim: Any, row: Any, scale_at: Any) -> Any:
        for group in range(0, head_dim, GROUP):
            step = 1.0
            if quantised:
                step = step_of(x, head_dim, group, scale_at)
            for d in range(group, min(group + GROUP, head_dim), LANES):
                part = some_floats(x + 4 * d, head_dim - d)
                if quantised:
                    part = nearest(mul(part, spread(step)))
                put_values(row + width * d, part)

    return store_keys, store_values


@cache
def _store_kernel(codec: KvCodec, shared: bool) -> Kernel:
    store_keys, store_values = _store_functions(codec)
    width = _WIDTH[codec]

    def put(args: int, lo: int, hi: int, worker: int) -> None:
        """args, in words: 0 k, 1 v, 2 their token stride in bytes, 3 tokens, then as in _place."""
        k, v, stride, n_tokens = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        position, layer, head_bytes, n_heads = _place(args + 32)
        head_dim, padded_dim, block_bytes = get_int(args + 72), get_int(args + 80), get_int(args + 88)
        key_scales, values, value_scales = get_int(args + 96), get_int(args + 104), get_int(args + 112)
        for item in range(lo, hi):
            head, first = item % n_heads, item // n_heads * _POSITIONS
            for token in range(first, min(first + _POSITIONS, n_tokens)):
                place = position + token
                block, inside = layer + head_bytes * head + block_bytes * (place // BLOCK), place % BLOCK
                x = stride * token + 4 * head_dim * head
                if not shared:
                    store_keys(k + x, head_dim, block, inside, key_scales)
                row = block + values + width * padded_dim * inside
                store_values(v + x, head_dim, padded_dim, row, block + value_scales + 2 * inside)

    return Kernel(put, f"kv_store.put-{codec}{'-shared' if shared else ''}")


@cache
def _rotate_kernel(codec: KvCodec, shared: bool) -> Kernel:
    store_keys, store_values = _store_functions(codec)
    width = _WIDTH[codec]

    def rotate_and_put(args: int, lo: int, hi: int, worker: int) -> None:
        """args, in words: 0 q k v, contiguous, 1 cosines, 2 sines, 3 pairs, then as in _place, then 15 heads of q, 16
        whether pairs are adjacent, 17 first rotated number of a head, 18 where the rotated numbers of q come from (0:
        from q), 19 the step from one head's to the next, 20 how many. A shared layout has no v.
        """
        cosines, sines, pairs = get_int(args + 8), get_int(args + 16), get_int(args + 24)
        position, layer, head_bytes, n_kv_heads = _place(args + 32)
        head_dim, padded_dim, block_bytes = get_int(args + 72), get_int(args + 80), get_int(args + 88)
        key_scales, values, value_scales = get_int(args + 96), get_int(args + 104), get_int(args + 112)
        n_heads, neighbours, first = get_int(args + 120), get_int(args + 128), get_int(args + 136)
        source, source_step, n_rotated = get_int(args + 144), get_int(args + 152), get_int(args + 160)
        inside = position % BLOCK
        for head in range(lo, hi):
            x = get_int(args) + 4 * head_dim * head
            if head < n_heads and source != 0:
                for d in range(0, n_rotated, LANES):
                    part = some_floats(source + source_step * head + 4 * d, n_rotated - d)
                    put_some_floats(x + 4 * (first + d), n_rotated - d, part)
            if head < n_heads + n_kv_heads:
                rotate_head(x + 4 * first, cosines, sines, pairs, neighbours)
            if head >= n_heads:
                block = layer + head_bytes * ((head - n_heads) % n_kv_heads) + block_bytes * (position // BLOCK)
                if head < n_heads + n_kv_heads and not shared:
                    store_keys(x, head_dim, block, inside, key_scales)
                else:
                    row = block + values + width * padded_dim * inside
                    store_values(x, head_dim, padded_dim, row, block + value_scales + 2 * inside)

    return Kernel(rotate_and_put, f"kv_store.rotate-and-put-{codec}{'-shared' if shared else ''}")


@inline
def _place(args: Any) -> Any:
    """Return (position, address of the layer, bytes of a head, heads).

    args: addresses of position, cache and layer bytes, layer number, heads, head_dim, padded dimension, bytes of a
    block, and the offsets of key scales, values and value scales in it.
    """
    layer_bytes, n_heads = get_int(get_int(args + 16)), get_int(args + 32)
    return (
        get_int(get_int(args)),
        get_int(get_int(args + 8)) + get_int(args + 24) * layer_bytes,
        layer_bytes // n_heads,
        n_heads,
    )


@dataclass(frozen=True, eq=False)
class CachePlace:
    """Address and fill of a KV cache, in words that are read when calls run.

    Shapes: int64 [1] each. position: number of positions before the new ones. cache: address of blocks [L, H_kv,
    n_blocks, block_bytes]. layer_bytes: stride of a layer.
    """

    position: I64
    cache: I64
    layer_bytes: I64
    layout: KvLayout
    n_kv_heads: int

    @classmethod
    def of_layer(cls, blocks: U8, layout: KvLayout, position: int) -> CachePlace:
        """Describe one layer's blocks [H_kv, n_blocks, block_bytes], as layer 0."""
        words = np.array([position, blocks.ctypes.data, blocks.nbytes], np.int64)
        return cls(words[:1], words[1:2], words[2:], layout, len(blocks))

    def words(self, layer: int) -> tuple[Any, ...]:
        """Return the words of the kernels' arguments."""
        layout = self.layout
        return (
            self.position, self.cache, self.layer_bytes, layer, self.n_kv_heads, layout.head_dim, layout.padded_dim,
            layout.block_bytes, layout.key_scales, layout.values, layout.value_scales,
        )  # fmt: skip


def store_calls(k: F32, v: F32, place: CachePlace, layer: int, stage: str = "attention") -> list[Call]:
    """Store k and v [T, H_kv, head_dim], heads contiguous, as the next positions; of a shared layout v alone."""
    n_tokens, n_heads, head_dim = k.shape
    assert (n_heads, head_dim) == (place.n_kv_heads, place.layout.head_dim)
    assert k.strides == v.strides
    assert k.strides[1:] == (4 * head_dim, 4)
    args = arguments(k, v, k.strides[0], n_tokens, *place.words(layer))
    items = n_heads * -(-n_tokens // _POSITIONS)
    return [Call(_store_kernel(place.layout.codec, place.layout.shared), args, items, 1, stage, (k, v, place))]


def rotate_and_store_calls(
    qkv: F32, angles: F32, place: CachePlace, layer: int, n_heads: int, neighbours: bool = False, first: int = 0,
    q_rotated: F32 | None = None,
) -> list[Call]:  # fmt: skip
    """Rotate one token's q and k in place, and store its k and v as the next position.

    first: the first rotated number of a head. q_rotated: those of q, if they are not in qkv yet.
    Shapes: qkv [H + 2 H_kv, head_dim], in a shared layout [H + H_kv, head_dim]; angles [2, R / 2], R = 0 rotates
    nothing; q_rotated [H, n], rows need not be contiguous. Items: heads.
    """
    stored = place.n_kv_heads if place.layout.shared else 2 * place.n_kv_heads
    assert qkv.shape == (n_heads + stored, place.layout.head_dim)
    source = (0, 0, 0) if q_rotated is None else (q_rotated, q_rotated.strides[0], q_rotated.shape[1])
    args = arguments(
        qkv, angles[0], angles[1], angles.shape[1], *place.words(layer), n_heads, int(neighbours), first, *source
    )  # fmt: skip
    kernel, keeps = _rotate_kernel(place.layout.codec, place.layout.shared), (qkv, angles, place, q_rotated)
    return [Call(kernel, args, len(qkv), 1, "attention", keeps)]
