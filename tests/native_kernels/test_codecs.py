"""Codecs against the gguf package, bit by bit: what it decodes and encodes, and what it does with odd numbers."""

from __future__ import annotations

import math
import tracemalloc
import warnings

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from samples import random_blocks

from native_kernels.codecs import CODECS, Codec, Deviation, quality

NAMES = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0",
         "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4")  # fmt: skip
ENCODED = ("f32", "f16", "bf16", "q8_0", "q4_0")
ODD_HALVES = np.array([0, -0.0, 6e-8, -6e-8, 6.1e-5, 1, -1, 65504, -65504, np.inf, -np.inf, np.nan], np.float16)


def oracle_decode(data: NDArray[np.uint8], name: str) -> NDArray[np.float32]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name.upper()]).astype(np.float32)


def oracle_encode(values: NDArray[np.float32], name: str) -> NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        coded = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name.upper()])
    return np.ascontiguousarray(coded).view(np.uint8)


def bit_equal(found: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
    """Equal bits, zeros' signs included; of what is not a number only that it is none (its bits are the CPU's)."""
    assert found.dtype == np.float32
    assert found.shape == wanted.shape
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), ~number)
    np.testing.assert_array_equal(found.view(np.uint32)[number], wanted.view(np.uint32)[number])


def test_every_codec_has_the_sizes_of_the_format() -> None:
    assert tuple(CODECS) == tuple(codec.name for codec in CODECS.values())
    assert set(CODECS) == set(NAMES)
    sizes = {name: gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]] for name in NAMES}
    assert {name: (codec.block_size, codec.type_size) for name, codec in CODECS.items()} == sizes
    assert {name for name, codec in CODECS.items() if codec.can_encode} == set(ENCODED)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n_rows", "n_blocks"), [(1, 1), (3, 1), (37, 5), (1, 3001)])
def test_random_bytes_are_decoded_bit_by_bit(name: str, n_rows: int, n_blocks: int) -> None:
    data = random_blocks.any_bytes(CODECS[name], n_rows, n_blocks)
    bit_equal(CODECS[name].decode(data), oracle_decode(data, name))


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_decoded_bit_by_bit(name: str) -> None:
    data = random_blocks.weights(name, 33, 1024)
    found = CODECS[name].decode(data)
    assert 0.1 < float(np.abs(found).mean()) < 10
    bit_equal(found, oracle_decode(data, name))


@pytest.mark.parametrize("name", ["q4_1", "q5_0", "q5_1", "mxfp4"])
def test_what_the_oracle_encoded_is_decoded(name: str) -> None:
    data = oracle_encode(values_of_every_size(), name)
    bit_equal(CODECS[name].decode(data), oracle_decode(data, name))


@pytest.mark.parametrize("name", [name for name in NAMES if random_blocks.HALVES[name]])
def test_odd_scales_are_treated_the_same(name: str) -> None:
    codec, n = CODECS[name], len(random_blocks.HALVES[name])
    scales = np.stack(np.meshgrid(*[ODD_HALVES] * n), axis=-1).reshape(-1, n)
    data = random_blocks.any_bytes(codec, 1, len(scales))
    random_blocks.set_halves(data, codec, scales)
    bit_equal(codec.decode(data), oracle_decode(data, name))


def test_every_scale_of_mxfp4() -> None:
    data = random_blocks.any_bytes(CODECS["mxfp4"], 256, 1)
    data[:, 0] = np.arange(256)
    bit_equal(CODECS["mxfp4"].decode(data), oracle_decode(data, "mxfp4"))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_every_pattern_of_sixteen_bits(name: str) -> None:
    every = np.arange(1 << 16, dtype="<u2")
    exponent = 0x7C00 if name == "f16" else 0x7F80
    for patterns in (every, every[(every & exponent) != exponent]):  # the second has finite numbers only
        data = patterns.view(np.uint8)
        bit_equal(CODECS[name].decode(data), oracle_decode(data, name))


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, -np.nan])
def test_one_value_that_is_not_finite_is_seen(odd: float) -> None:
    data = np.array([1, odd, -2, 65504, -65504], np.float16).view(np.uint8)
    bit_equal(CODECS["f16"].decode(data), oracle_decode(data, "f16"))


def values_of_every_size() -> NDArray[np.float32]:
    """f32 [n, 64] with a spread of magnitudes from row to row."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((301, 64)) * 10.0 ** rng.uniform(-7, 4, (301, 1))
    return values.astype(np.float32)


def ties() -> NDArray[np.float32]:
    """Halves on the way to the nearest, the numbers beside them, and a largest magnitude of both signs."""
    halves = (np.arange(-63, 65, dtype=np.float32) / 2).reshape(-1, 32)  # -31.5 ... 32
    blocks = np.stack([halves, halves[::-1], -halves, halves * np.float32(127 / 32), halves / 8]).reshape(-1, 32)
    beside = np.concatenate([np.nextafter(blocks, np.float32(99)), np.nextafter(blocks, np.float32(-99))])
    both_signs = np.tile(np.array([[1, -1, 0.5, -0.5], [-1, 1, 0.5, -0.5]], np.float32), 8)
    below_half = np.full((1, 32), np.nextafter(np.float32(0.5), np.float32(0)), np.float32)
    below_half[0, 7] = 127
    return np.concatenate([blocks, beside, both_signs, below_half])


ENCODER_INPUTS = {
    "every size": values_of_every_size(),
    "ties": ties(),
    "zeros": np.zeros((3, 32), np.float32),
    "negative zeros": np.stack([np.full(32, -0.0), np.array([0.0, -0.0] * 16), np.array([-0.0, 0.0] * 16)]),
    "denormals": np.arange(1, 97).reshape(3, 32) * np.float32(1e-45),
    "small": np.linspace(-1, 1, 96).reshape(3, 32) * np.array([[1e-37], [1e-39], [3e-41]]),
    "scales at the edge": np.linspace(-1, 1, 96).reshape(3, 32) * np.array([[6e-8], [3e-8 * 127], [6.1e-5 * 8]]),
    "huge": np.linspace(-1, 1, 128).reshape(4, 32) * np.array([[3.4e38], [65504 * 8], [65520 * 127], [1e30]]),
    "one column": np.zeros((1, 32)) + np.eye(1, 32, 31) * -3,
}


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("kind", ENCODER_INPUTS)
def test_encoding_equals_the_oracle_bit_by_bit(name: str, kind: str) -> None:
    values = ENCODER_INPUTS[kind].astype(np.float32)
    found = CODECS[name].encode(values)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, oracle_encode(values, name).reshape(found.shape))
    bit_equal(CODECS[name].decode(found), oracle_decode(oracle_encode(values, name), name).reshape(values.shape))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_encoding_rounds_every_boundary_to_even(name: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint32)
    upper = every << 16 if name == "bf16" else np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = upper.view(np.uint32)
    near = np.stack([bits, bits + 1, bits + 0x0FFF, bits + 0x1000, bits + 0x7FFF, bits + 0x8000, bits + 0x8001])
    values = near.view(np.float32)
    found, wanted = CODECS[name].encode(values).view("<u2"), oracle_encode(values, name).reshape(7, -1).view("<u2")
    if name == "f16":  # the bits of what is not a number are NumPy's business
        found, wanted = (np.where(np.isnan(half.view("<f2")), 0x7E00, half) for half in (found, wanted))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_may_lie_anywhere(name: str) -> None:
    codec = CODECS[name]
    data = random_blocks.weights(name, 7, 512)
    wanted = codec.decode(data)
    shifted = np.concatenate([np.zeros(1, np.uint8), data.reshape(-1)])[1:]
    shifted.flags.writeable = False
    bit_equal(codec.decode(shifted), wanted.reshape(-1))
    bit_equal(codec.decode(shifted.reshape(-1, codec.type_size)), wanted.reshape(-1, codec.block_size))
    apart = np.full((7, data.shape[1] + 13), 0xFF, np.uint8)
    apart[:, 5 : 5 + data.shape[1]] = data
    bit_equal(codec.decode(apart[:, 5 : 5 + data.shape[1]]), wanted)
    bit_equal(codec.decode(data[::-2]), wanted[::-2])
    out = np.empty_like(wanted)
    assert codec.decode(data, out) is out
    bit_equal(out, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_decoded_to_nothing(name: str) -> None:
    codec = CODECS[name]
    assert codec.decode(np.zeros(0, np.uint8)).shape == (0,)
    assert codec.decode(np.zeros((0, 3 * codec.type_size), np.uint8)).shape == (0, 3 * codec.block_size)
    assert codec.decode(np.zeros((4, 0), np.uint8)).shape == (4, 0)
    if codec.can_encode:
        assert codec.encode(np.zeros((0, codec.block_size), np.float32)).shape == (0, codec.type_size)


def test_decoding_makes_a_new_array() -> None:
    data = CODECS["f32"].decode(np.zeros(8, np.uint8))
    data += 1
    assert data.tolist() == [1, 1]


def test_what_does_not_fit_is_refused() -> None:
    codec = CODECS["q4_0"]
    assert codec.n_bytes(64) == 36
    with pytest.raises(ValueError, match="33 numbers are not whole blocks of q4_0: a block has 32"):
        codec.n_bytes(33)
    with pytest.raises(ValueError, match="19 bytes are not whole blocks"):
        codec.decode(np.zeros(19, np.uint8))
    with pytest.raises(ValueError, match="q4_k is only read"):
        CODECS["q4_k"].encode(np.zeros(256, np.float32))
    with pytest.raises(ValueError, match="31 numbers are not whole blocks"):
        codec.encode(np.zeros((2, 31), np.float32))
    with pytest.raises(ValueError, match=r"contiguous float32 \(32,\) is needed"):
        codec.decode(np.zeros(18, np.uint8), np.zeros(64, np.float32))
    with pytest.raises(ValueError, match="is needed"):
        codec.decode(np.zeros(18, np.uint8), np.zeros(64, np.float32)[::2])


@pytest.mark.parametrize("name", NAMES)
def test_decoding_needs_little_beside_its_result(name: str) -> None:
    codec = CODECS[name]
    row = random_blocks.weights(name, 1, 4096)
    data = np.broadcast_to(row, (1024, row.shape[1]))  # 16 MiB of numbers, of rows that must be copied to be read
    out = np.empty((1024, 4096), np.float32)
    tracemalloc.start()
    try:
        codec.decode(data, out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20
    bit_equal(out[-1:], codec.decode(row))


def naive_quality(source: NDArray[np.float32], stored: NDArray[np.float32]) -> tuple[float, float]:
    pairs = list(zip(source.reshape(-1).tolist(), stored.reshape(-1).tolist(), strict=True))
    rms = math.sqrt(math.fsum((a - b) ** 2 for a, b in pairs) / math.fsum(a * a for a, _ in pairs))
    return rms, max(abs(a - b) for a, b in pairs)


@pytest.mark.parametrize("name", ENCODED)
def test_quality_is_the_error_of_what_comes_back(name: str) -> None:
    codec, source = CODECS[name], np.random.default_rng(3).standard_normal((700, 416)).astype(np.float32)
    coded = codec.encode(source)
    rms, largest = naive_quality(source, codec.decode(coded))
    for found in (quality(source, codec), quality(source, codec, coded)):
        assert found.relative_rms == pytest.approx(rms, rel=1e-9)
        assert found.max_abs == pytest.approx(largest, rel=1e-9)
    bounds = {"f32": (0, 0), "f16": (1e-4, 3e-4), "bf16": (1e-3, 3e-3), "q8_0": (4e-3, 1e-2), "q4_0": (0.07, 0.11)}
    assert bounds[name][0] <= rms <= bounds[name][1]


def test_quality_of_a_foreign_encoding() -> None:
    source = values_of_every_size()
    coded = oracle_encode(source, "q4_1")
    rms, largest = naive_quality(source, oracle_decode(coded, "q4_1"))
    found = quality(source, CODECS["q4_1"], coded)
    assert (found.relative_rms, found.max_abs) == (pytest.approx(rms), pytest.approx(largest))


def test_quality_of_odd_numbers() -> None:
    q8_0 = CODECS["q8_0"]
    assert quality(np.zeros((2, 32), np.float32), q8_0) == Deviation()
    assert quality(np.zeros((2, 32), np.float32), q8_0).relative_rms == 0
    lost = quality(np.zeros(32, np.float32), q8_0, q8_0.encode(np.ones(32, np.float32)))
    assert (lost.relative_rms, lost.max_abs) == (math.inf, pytest.approx(1, abs=1e-3))
    beyond = quality(np.full(32, 1e10, np.float32), CODECS["f16"])
    assert (beyond.relative_rms, beyond.max_abs) == (math.inf, math.inf)
    none = quality(np.array([np.nan, 1], np.float32), CODECS["f16"])
    assert math.isnan(none.relative_rms)
    assert math.isnan(none.max_abs)


def test_quality_needs_little_memory() -> None:
    source = np.ones((64, 1 << 18), np.float32)  # 64 MiB
    tracemalloc.start()
    try:
        assert quality(source, CODECS["q4_0"]).relative_rms == 0
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_quality_needs_an_encoding() -> None:
    with pytest.raises(ValueError, match="q4_k is only read"):
        quality(np.zeros(256, np.float32), CODECS["q4_k"])
    with pytest.raises(ValueError, match="18 bytes were given for 64 numbers; q4_0 takes 36"):
        quality(np.zeros(64, np.float32), CODECS["q4_0"], np.zeros(18, np.uint8))


def test_a_codec_is_two_functions() -> None:
    """What somebody who adds one must write."""

    def decode(blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        out[:, 0], out[:, 1] = blocks[:, 0] & 15, blocks[:, 0] >> 4

    found = Codec("pairs", 2, 1, decode).decode(np.array([[0x21, 0x43]], np.uint8))
    assert found.tolist() == [[1, 2, 3, 4]]
