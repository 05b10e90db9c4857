"""A mask's bits become a list of neurons, ascending, on any number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels.cpu.ffn.bit_lists import list_bits_calls, mask_words
from native_kernels.cpu.runtime.call import Listed, run
from native_kernels.cpu.runtime.pool import Pool, Program


@pytest.mark.parametrize("n", [1, 31, 32, 64, 65, 1000, 5121])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_the_places_of_the_bits_that_are_set(n: int, share: float) -> None:
    is_set = np.random.default_rng(n).random(n) < share
    mask = np.zeros(4 * mask_words(n), np.uint8)
    packed = np.packbits(is_set, bitorder="little")
    mask[: len(packed)] = packed
    if n % 8:
        mask[len(packed) - 1] |= 0xFF << n % 8 & 0xFF  # what lies behind the last neuron does not count
    ids, count = np.full(n, -1, np.int32), np.full(1, -1, np.int64)
    for n_workers in (1, 2, 3, 7):
        count[0] = -1
        run(list_bits_calls(mask.view(np.uint32), n, Listed(ids, count)), n_workers)
        assert ids[: count[0]].tolist() == np.flatnonzero(is_set).tolist()
    pool = Pool(3)
    count[0] = -1
    assert pool.run(Program(list_bits_calls(mask.view(np.uint32), n, Listed(ids, count))))
    assert ids[: count[0]].tolist() == np.flatnonzero(is_set).tolist()
    pool.close()


def test_too_little_room_is_refused() -> None:
    with pytest.raises(ValueError, match="do not serve 40"):
        list_bits_calls(np.zeros(2, np.uint32), 40, Listed.empty(39))
