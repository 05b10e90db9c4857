"""How keys and values lie in blocks: what is written is read again, within the codec's rounding and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels import kv_blocks
from native_kernels.kv_blocks import BLOCK, GROUP, KV_CODECS, KvCodec, KvLayout

DIMS = (2, 20, 64, 80, 128)


def random(n: int, heads: int, dim: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, n, heads, dim]).standard_normal((n, heads, dim), np.float32)


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("n", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_what_is_written_is_read_within_the_rounding(n: int, dim: int, codec: KvCodec) -> None:
    layout = KvLayout(dim, codec)
    blocks = kv_blocks.allocate(2, 3, n, layout)
    k, v = random(n, 3, dim), random(n, 3, dim, 1)
    kv_blocks.write(blocks[1], layout, 0, k, v)
    assert not blocks[0].any()
    for found, given in zip(kv_blocks.read(blocks[1], layout, n), (k, v), strict=True):
        assert found.shape == given.shape
        match codec:
            case "f32":
                np.testing.assert_array_equal(found, given)
            case "f16":
                np.testing.assert_array_equal(found, given.astype(np.float16).astype(np.float32))
            case "q8_0":  # half a step of 1/127 of the group's largest, and 2^-11 of it by the scale in float16
                for start in range(0, dim, GROUP):
                    part = given[..., start : start + GROUP]
                    allowed = np.abs(part).max(axis=-1, keepdims=True) * (0.5 / 127 + 2**-11)
                    assert (np.abs(found[..., start : start + GROUP] - part) <= allowed).all()


@pytest.mark.parametrize("codec", KV_CODECS)
def test_in_pieces_as_at_once_and_over_what_was_there(codec: KvCodec) -> None:
    layout = KvLayout(48, codec)
    k, v = random(100, 2, 48), random(100, 2, 48, 1)
    once, pieces = (kv_blocks.allocate(1, 2, 100, layout)[0] for _ in range(2))
    kv_blocks.write(once, layout, 0, k, v)
    kv_blocks.write(pieces, layout, 0, v, k)
    at = 0
    for size in (1, 30, 1, 1, 40, 27):
        kv_blocks.write(pieces, layout, at, k[at : at + size], v[at : at + size])
        at += size
    np.testing.assert_array_equal(pieces, once)


@pytest.mark.parametrize("codec", KV_CODECS)
@pytest.mark.parametrize("dim", DIMS)
def test_the_parts_of_a_block_lie_one_after_another(dim: int, codec: KvCodec) -> None:
    layout = KvLayout(dim, codec)
    width = {"f32": 4, "f16": 2, "q8_0": 1}[codec]
    places = [0, layout.key_scales, layout.values, layout.value_scales, layout.block_bytes]
    assert places == sorted(places)
    assert layout.key_scales == BLOCK * dim * width
    assert layout.block_bytes % 64 == 0
    assert layout.padded_dim - dim in range(16)
    assert kv_blocks.allocate(1, 1, 5, layout).ctypes.data % 64 == 0


@pytest.mark.parametrize("codec", KV_CODECS)
def test_a_shared_layout_holds_each_number_once(codec: KvCodec) -> None:
    layout, apart = KvLayout(64, codec, shared=True), KvLayout(64, codec)
    assert (layout.key_scales, layout.values) == (0, 0)
    assert 2 * layout.block_bytes == apart.block_bytes
    both, once = (kv_blocks.allocate(1, 1, 50, one)[0] for one in (apart, layout))
    k = random(50, 1, 64)
    kv_blocks.write(both, apart, 0, k, k)
    kv_blocks.write(once, layout, 0, k, k)
    keys, values = kv_blocks.read(once, layout, 50)
    np.testing.assert_array_equal(keys, values)
    np.testing.assert_array_equal(keys, kv_blocks.read(both, apart, 50)[0])


def test_values_beyond_float16_become_infinite() -> None:
    layout = KvLayout(16, "f16")
    blocks = kv_blocks.allocate(1, 1, 1, layout)[0]
    kv_blocks.write(blocks, layout, 0, np.full((1, 1, 16), 1e6, np.float32), np.zeros((1, 1, 16), np.float32))
    assert np.isinf(kv_blocks.read(blocks, layout, 1)[0]).all()
