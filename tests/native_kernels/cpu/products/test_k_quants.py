"""Blocks of 256 and of 32 numbers times one vector, and unpacked; product_checks says which errors are allowed."""

from __future__ import annotations

import numpy as np
import pytest
from product_checks import as_read_by, check_gemv, check_rows, matrix, random
from samples import random_blocks
from unpacked_rows import rows_calls

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS
from native_kernels.cpu.products import gemv
from native_kernels.cpu.products.k_quants import SMALL_BLOCKS, SUPER_BLOCKS
from native_kernels.cpu.runtime import call

BLOCKS = [*SUPER_BLOCKS, *SMALL_BLOCKS]


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(("n_rows", "n_blocks"), [(1, 1), (3, 2), (4, 1), (33, 3), (70, 16)])
def test_products_with_one_vector(name: str, n_rows: int, n_blocks: int) -> None:
    check_gemv(name, n_rows, 256 * n_blocks)
    check_gemv(name, n_rows, 256 * n_blocks, apart=5)


@pytest.mark.parametrize("name", SMALL_BLOCKS)
@pytest.mark.parametrize("n_blocks", [1, 7, 8, 9, 23, 90])
def test_rows_that_are_not_whole_eights_of_blocks(name: str, n_blocks: int) -> None:
    for n_rows in (1, 6):
        check_gemv(name, n_rows, 32 * n_blocks, apart=1)
        check_rows(name, n_rows, 32 * n_blocks)


@pytest.mark.parametrize("name", BLOCKS)
def test_unpacked_rows_are_the_codec_bit_by_bit(name: str) -> None:
    check_rows(name, 9, 1280)
    blocks = 768 // CODECS[name].block_size
    data = random_blocks.any_bytes(CODECS[name], 40, blocks)  # also scales that are infinite or no numbers
    out, ids = call.aligned_empty((40, 768)), np.arange(40)
    call.run(rows_calls(PackedMatrix.view(data, 40, 768, name), ids, out))
    np.testing.assert_array_equal(out, CODECS[name].decode(data))


@pytest.mark.parametrize("name", BLOCKS)
def test_the_largest_quants_and_bytes_do_not_overflow(name: str) -> None:
    codec = CODECS[name]
    n_blocks = 512 // codec.block_size
    data = np.full((5, n_blocks * codec.type_size), 255, np.uint8)
    random_blocks.set_halves(data, codec, np.ones((5 * n_blocks, len(random_blocks.HALVES[name]))))
    values = codec.decode(data).astype(np.float64)
    for sign in (1, -1):
        buffer, exact = as_read_by(name, np.full(512, sign, np.float32))
        out = call.aligned_empty(5)
        call.run(gemv.gemv_calls(PackedMatrix.view(data, 5, 512, name), buffer, out))
        np.testing.assert_allclose(out, values @ exact, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in BLOCKS if random_blocks.HALVES[name]])
def test_what_is_not_finite_stays_in_its_row(name: str) -> None:
    w, _ = matrix(name, 12, 512)
    buffer, _ = as_read_by(name, random(512))
    clean, found = call.aligned_empty(12), call.aligned_empty(12)
    call.run(gemv.gemv_calls(w, buffer, clean))
    at = random_blocks.HALVES[name][0]
    w.data[7, at : at + 2] = (0, 0x7C)  # an infinite scale
    call.run(gemv.gemv_calls(w, buffer, found))
    assert not np.isfinite(found[7])
    assert np.array_equal(np.delete(found, 7), np.delete(clean, 7))
    for bad in (np.nan, np.inf):
        x = random(512)
        x[300] = bad
        call.run(gemv.gemv_calls(w, as_read_by(name, x)[0], found))
        assert not np.isfinite(found).any()
