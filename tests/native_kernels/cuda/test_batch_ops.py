"""Which sequences need which neurons, on the card against NumPy; and slots of keys and values, anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from native_kernels.cuda.batch_ops import CardBatchOps, slot_of
from native_kernels.cuda.card import CardKv, CardMatrix
from native_kernels.cuda.cuda_card import CudaCard
from native_kernels.cuda.driver import CudaError, CudaUnavailableError, Device, driver
from native_kernels.cuda.prefill_ops import RoundedRows, Rows, Tile

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
@pytest.mark.parametrize("batch", [1, 2, 8, 9, 16, 31, 32])
@pytest.mark.parametrize(("n_rows", "n_cols"), [(5, 8), (129, 768), (300, 5120), (48, 1003)])
def test_products_of_few_rows(card: CudaCard, batch: int, n_rows: int, n_cols: int) -> None:
    rng = np.random.default_rng(batch + n_rows)
    step = -(-n_cols // 8) * 8
    weights = [np.full((n_rows, step), np.nan, np.float16) for _ in range(2)]  # what lies behind a row does not matter
    for one in weights:
        one[:, :n_cols] = rng.standard_normal((n_rows, n_cols))
    x = np.full((batch, step), np.nan, np.float16)
    x[:, :n_cols] = rng.standard_normal((batch, n_cols))
    factors, bias = (rng.standard_normal(n).astype(np.float32) for n in (batch, n_rows))
    before = rng.standard_normal((batch, n_rows + 3)).astype(np.float32)
    arrays = {"w": weights[0], "v": weights[1], "x": x, "factors": factors, "bias": bias, "out": before, "two": before}
    at, n_bytes = {}, 0
    for name, array in arrays.items():
        at[name] = n_bytes
        n_bytes += -(-array.nbytes // 256) * 256
    memory = card.allocate(n_bytes)
    places = {name: memory.address + start for name, start in at.items()}
    for name, array in arrays.items():
        card.upload(places[name], array.ctypes.data, array.nbytes)
    ops = CardBatchOps(card)
    one, two = (CardMatrix(n_rows, n_cols, "f16", (places[name],)) for name in "wv")
    rows, tile = RoundedRows(places["x"], step, places["factors"]), Tile(0, 0)
    ops.multiply(one, rows, batch, Rows(places["out"], n_rows + 3), tile, places["bias"], True)
    first = _taken(card, places["out"], before)
    ops.multiply_two((one, two), rows, batch, (Rows(places["out"], n_rows + 3), Rows(places["two"], n_rows + 3)), tile)
    wanted = [x[:, :n_cols].astype(np.float64) @ w[:, :n_cols].T.astype(np.float64) for w in weights]
    wanted = [one * factors[:, None] for one in wanted]
    close = 2e-6 * n_cols * np.abs(factors).max() + 1e-5
    assert np.abs(first[:, :n_rows] - (before[:, :n_rows] + wanted[0] + bias)).max() < close
    assert (first[:, n_rows:] == before[:, n_rows:]).all()
    for name, value in zip(("out", "two"), wanted, strict=True):
        found = _taken(card, places[name], before)
        assert np.abs(found[:, :n_rows] - value).max() < close
        assert (found[:, n_rows:] == before[:, n_rows:]).all()
    ops.close()
    memory.free()


def _taken(card: CudaCard, address: int, like: np.ndarray) -> np.ndarray:
    found = np.empty_like(like)
    card.download(found.ctypes.data, address, found.nbytes)
    card.synchronize()
    return found


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
