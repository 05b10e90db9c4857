"""Batches of a model that was loaded onto a GPU: room for all sequences, and the same tokens as one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.batch_operators import FakeBatchOps
from fakes.gpu_machine import FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.errors import ContextOverflowError
from engine.evaluation.bench_batch import run_batch
from engine.gpu import loaded_part, placed_model
from engine.placement import memory_plan
from engine.placement.model_bytes import ModelBytes
from engine.placement.solving import Solved, solve_model
from engine.session.batch import open_batch
from engine.session.generate import decode_batch, decode_one_token


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuMachine:
    monkeypatch.setattr(loaded_part, "batch_ops", FakeBatchOps)
    return FakeGpuMachine(tmp_path, monkeypatch)


def test_sequences_share_the_gpu(machine: FakeGpuMachine, tmp_path: Path) -> None:
    model = machine.load(make_tiny_model(tmp_path / "model"), sequences=3, context=16)
    assert model.gpu is not None
    together, alone = open_batch(model, 3), model.transformer()
    assert open_batch(model, 3) is together
    wanted = [decode_one_token(alone, token, model.new_cache()) for token in (7, 8, 9)]
    caches = [model.new_cache() for _ in range(3)]
    np.testing.assert_allclose(decode_batch(together, [7, 8, 9], caches), np.stack(wanted), atol=0.03)
    more = open_batch(model, 6)  # more than it was loaded for: each has less room
    caches = [model.new_cache() for _ in range(6)]
    for _ in range(8):
        decode_batch(more, [1] * 6, caches)
    with pytest.raises(ContextOverflowError, match="room for 8 tokens"):
        decode_batch(more, [1] * 6, caches)
    found: Any = run_batch(model, 3, 5, 4, 1)
    assert (found.batch, found.device) == (3, "cuda")
    assert found.bytes_per_token["gpu"] > 0
    model.close()


def test_what_is_read_over_the_bus_counts_as_read_in_the_ram(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_cold = 5

    def solved(*how: Any, **options: Any) -> Solved:
        found = solve_model(*how, **options)
        whole = found.placement
        hot = tuple(ids[: len(ids) // 2] for ids in whole.hot)
        zero_copy = tuple(ids[len(ids) // 2 : -n_cold] for ids in whole.hot)
        return replace(found, placement=replace(whole, hot=hot, zero_copy=zero_copy))

    monkeypatch.setattr(placed_model, "solve_model", solved)
    model = machine.load(make_tiny_model(tmp_path / "model"), sequences=2, context=16, mode="exact")
    assert model.gpu is not None
    zero_copy = sum(map(len, model.gpu.placement.zero_copy))
    ffn = model.weights.layers[0].ffns[0]
    each = sum(one.n_bytes for one in (ffn.gate, ffn.up, ffn.down_t) if one is not None) / model.opened.config.d_ff
    found = run_batch(model, 2, 5, 4, 1)
    cold = 2 * found.bytes_per_token["cpu"] - zero_copy * each
    assert zero_copy > 0
    assert -2 <= cold <= n_cold * model.opened.config.n_layers * each
    together = open_batch(model, 2)
    assert together.routed_shares()[:, 0].sum() * model.opened.config.d_ff == pytest.approx(zero_copy)
    alone = model.transformer()
    caches = [model.new_cache() for _ in range(2)]
    wanted = [decode_one_token(alone, token, model.new_cache()) for token in (7, 8)]
    np.testing.assert_allclose(decode_batch(together, [7, 8], caches), np.stack(wanted), atol=0.03)
    sizes = ModelBytes.of(model.opened, model.weights)
    assert model.gpu.batch("exact", 2).n_bytes <= memory_plan.batch_bytes(sizes, 2)
    assert model.gpu.batch("exact", 32).n_bytes <= memory_plan.batch_bytes(sizes, 32)
    model.close()
