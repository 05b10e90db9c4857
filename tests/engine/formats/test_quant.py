"""Codecs: bit-equal to the gguf package where it has them, and to NumPy where NumPy has the type."""

from __future__ import annotations

import numpy as np
import pytest

from engine.formats.quant import CODECS


def numbers() -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(64 * 32).astype(np.float32) * np.repeat(10.0 ** rng.uniform(-6, 3, 64), 32)
    values = values.astype(np.float32)
    values[:32] = 0  # a block of zeros
    values[32:64] = np.float32(127) * np.arange(-16, 16)  # halves on the way to the nearest
    return values


@pytest.mark.parametrize("name", ["f16", "bf16", "q8_0"])
def test_codecs_agree_with_gguf(name: str) -> None:
    import gguf

    kind = gguf.GGMLQuantizationType[name.upper()]
    values = numbers().reshape(16, -1)
    theirs = gguf.quants.quantize(values, kind)
    codec = CODECS[name]
    np.testing.assert_array_equal(codec.encode(values.reshape(-1)), theirs.view(np.uint8).reshape(-1))
    decoded = codec.decode(np.ascontiguousarray(theirs).view(np.uint8).reshape(-1))
    wanted = gguf.quants.dequantize(theirs, kind).astype(np.float32).reshape(-1)
    np.testing.assert_array_equal(decoded.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("name", sorted(CODECS))
def test_sizes_hold_and_nothing_is_fine(name: str) -> None:
    codec = CODECS[name]
    assert codec.name == name
    assert codec.encode(np.zeros(64, np.float32)).nbytes == 64 // codec.block_size * codec.type_size
    assert codec.decode(np.zeros(0, np.uint8)).shape == (0,)
    assert codec.encode(np.zeros(0, np.float32)).shape == (0,)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_bytes_that_are_not_aligned_are_decoded(name: str) -> None:
    codec = CODECS[name]
    data = codec.encode(numbers())
    shifted = np.concatenate([np.zeros(1, np.uint8), data])[1:]
    np.testing.assert_array_equal(codec.decode(shifted), codec.decode(data))


def test_bf16_keeps_what_is_no_number() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    np.testing.assert_array_equal(CODECS["bf16"].decode(CODECS["bf16"].encode(values)), values)


def test_halves_are_rounded_as_the_formats_say() -> None:
    ties = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)  # midway between two bfloat16
    assert CODECS["bf16"].encode(ties).view(np.uint16).tolist() == [0x3F80, 0x3F82]  # to the even one
    block = np.zeros(32, np.float32)
    block[:5] = 127, 0.5, -0.5, 2.5, -2.5  # the scale is 1
    assert CODECS["q8_0"].encode(block)[2:].view(np.int8)[:5].tolist() == [127, 1, -1, 3, -3]  # away from zero
