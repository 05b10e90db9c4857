"""Which sequences need which neurons, on the card against NumPy; and slots of keys and values, anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from native_kernels.cuda.batch_ops import CardBatchOps, slot_of
from native_kernels.cuda.card import CardKv
from native_kernels.cuda.cuda_card import CudaCard
from native_kernels.cuda.driver import CudaError, CudaUnavailableError, Device, driver
from native_kernels.cuda.prefill_ops import Rows

N, SLOTS = 1003, 300


@pytest.fixture(scope="module")
def card() -> Iterator[CudaCard]:
    try:
        if driver().n_devices == 0:
            pytest.skip("the NVIDIA driver sees no GPU")
        found = CudaCard(Device(0))
    except (CudaUnavailableError, CudaError) as error:
        pytest.skip(f"no GPU: {error}")
    yield found
    found.close()


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 5, 32])
def test_words_and_what_they_leave(card: CudaCard, batch: int) -> None:
    rng = np.random.default_rng(batch)
    logits = rng.standard_normal((batch, N)).astype(np.float32)
    hot = rng.random(N) < 0.4
    neuron_in = rng.permutation(N)[:SLOTS].astype(np.int32)
    neuron_in[::7] = -1
    first = rng.standard_normal((batch, SLOTS)).astype(np.float32)
    bits = np.zeros(-(-N // 32) * 4, np.uint8)
    bits[: -(-N // 8)] = np.packbits(hot, bitorder="little")
    memory = card.allocate(1 << 20)
    places = {"logits": 0, "first": 1 << 18, "bits": 1 << 19, "slots": (1 << 19) + (1 << 16)}
    words, cold, computed = ((1 << 19) + (i << 16) for i in (2, 3, 4))
    at = memory.address
    card.fill(at, 0, 1 << 20)
    for name, array in (("logits", logits), ("first", first), ("bits", bits), ("slots", neuron_in)):
        card.upload(at + places[name], array.ctypes.data, array.nbytes)
    ops = CardBatchOps(card)
    ops.needed(Rows(at, N), batch, N, 0.5, at + places["bits"], at + words, at + cold)
    ops.keep(
        Rows(at + places["first"], SLOTS), batch, SLOTS, at + places["slots"], at + words, at + computed
    )  # fmt: skip
    got = {"words": np.zeros(N, np.uint32), "cold": np.zeros(N, np.uint32), "n": np.zeros(1, np.uint32)}
    kept = np.zeros_like(first)
    for to, source in ((got["words"], words), (got["cold"], cold), (got["n"], computed), (kept, places["first"])):
        card.download(to.ctypes.data, at + source, to.nbytes)
    card.synchronize()
    needed = logits >= 0.5
    wanted = (needed.astype(np.uint32) << np.arange(batch, dtype=np.uint32)[:, None]).sum(0, dtype=np.uint32)
    np.testing.assert_array_equal(got["words"], wanted)
    np.testing.assert_array_equal(got["cold"], np.where(hot, 0, wanted))
    stays = needed[:, neuron_in] & (neuron_in >= 0)
    np.testing.assert_array_equal(kept, np.where(stays, first, 0))
    assert got["n"][0] == stays.sum()
    ops.close()
    memory.free()


def test_a_slot_begins_at_its_position() -> None:
    kv = CardKv("q8_0", 1000, 2000, 3000, 4000, 2, 64, 40)
    moved = slot_of(kv, 8)
    assert (moved.keys, moved.values, moved.key_scales, moved.value_scales) == (1512, 2512, 3032, 4032)
    assert moved.capacity == 40
    halves = slot_of(CardKv("f16", 1000, 2000, 0, 0, 2, 64, 40), 8)
    assert (halves.keys, halves.key_scales) == (2024, 0)
