"""Which neurons are hot: tables of slots that change in place, and what cannot be split between two devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.hot_store import FakeHotStore
from samples.tiny_model import make_tiny_model

from engine.errors import InvalidRequestError
from engine.executor.hot_blocks import HotBlocks
from engine.executor.slots import SlotTable
from engine.model.weights import load_weights, open_model
from native_kernels.backend import PackedMatrix


def test_a_table_keeps_its_arrays_and_refuses_what_would_lose_a_neuron() -> None:
    table = SlotTable(8, np.array([6, 1, 3], np.int32))
    arrays = (table.slot_of, table.hot_slots, table.cold)
    assert table.hot_slots.tolist() == [1, 2, 0]
    table.put(np.array([0, 2], np.int32), np.array([2, 7], np.int32))
    assert all(one is other for one, other in zip(arrays, (table.slot_of, table.hot_slots, table.cold), strict=True))
    assert table.neuron_in.tolist() == [2, 1, 7]
    assert table.slot_of.tolist() == [-1, 1, 0, -1, -1, -1, -1, 2]
    assert (table.hot_slots.tolist(), table.cold.tolist()) == ([1, 0, 2], [0, 3, 4, 5, 6])
    for slots_, neurons in (([0], [7]), ([0, 0], [3, 4]), ([0, 1], [3, 3])):
        with pytest.raises(InvalidRequestError, match="Only cold neurons"):
            table.put(np.array(slots_, np.int32), np.array(neurons, np.int32))
    for hot in ([1, 1], [8], [-1]):
        with pytest.raises(InvalidRequestError, match="below 8"):
            SlotTable(8, np.array(hot, np.int32))


def test_what_cannot_be_split_is_refused(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "tiny", n_layers=3))
    config, weights = opened.config, load_weights(opened, hold="f32")
    placed = [np.arange(4, dtype=np.int32)] * 3
    row_wise = [
        replace(w, down_t=None, down=PackedMatrix.pack(w.down_t.data.T, "f32"))
        for w in weights.layers
        if w.down_t is not None
    ]
    with pytest.raises(InvalidRequestError, match="row-wise"):
        HotBlocks(config, replace(weights, layers=row_wise), placed, FakeHotStore)
    with pytest.raises(InvalidRequestError, match="2 layers"):
        HotBlocks(config, weights, placed[:2], FakeHotStore)


def test_what_fired_before_an_exchange_counts_for_what_lay_there(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "tiny"))
    config, weights = opened.config, load_weights(opened, hold="f32")
    blocks = HotBlocks(config, weights, [np.array([3, 5], np.int32)] * config.n_layers, FakeHotStore)
    store = blocks.hot
    assert isinstance(store, FakeHotStore)
    store.fired[0][:] = 7, 2
    blocks.exchange(0, np.array([1], np.int32), np.array([9], np.int32))
    store.fired[0][:] = 1, 4
    assert store.neurons[0].tolist() == [3, 9]
    counts = np.zeros((config.n_layers, config.d_ff), np.int64)
    blocks.collect(counts)
    assert {n: counts[0, n] for n in counts[0].nonzero()[0].tolist()} == {3: 8, 5: 2, 9: 4}
