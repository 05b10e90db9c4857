"""Parting lists, two calls as one, and counts of single neurons, for any number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.ffn.sparse_ffn import Predicted
from native_kernels.cpu.ffn.two_sides import both, part_calls, room_for
from native_kernels.cpu.products.gemv import gemv_calls
from native_kernels.cpu.runtime.call import run
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cpu.runtime.tallies import Tally, TallyBlock, tally_calls


@pytest.mark.parametrize("n", [1, 15, 16, 77])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_active_neurons_are_parted_by_their_slots(n: int, share: float) -> None:
    rng = np.random.default_rng(n)
    slot_of = np.full(n, -1, np.int32)
    hot = rng.permutation(n)[: round(share * n)]
    slot_of[hot] = rng.permutation(len(hot))
    scores = rng.standard_normal(n).astype(np.float32)
    (slots, n_slots), (cold, n_cold), (ids, _) = (room_for(n) for _ in range(3))
    some, n_some = room_for(n)
    some[: n // 2 + 1], n_some[0] = np.sort(rng.permutation(n)[: n // 2 + 1]), n // 2 + 1
    for threshold in (-9.0, 0.0, 9.0):
        whole, listed = Predicted(scores, threshold), Predicted(scores, threshold, some, n_some)
        for predicted in (whole, listed):
            active = np.flatnonzero(scores >= threshold)
            if predicted is listed:  # their scores are in the order of the list
                active = some[: n_some[0]][scores[: n_some[0]] >= threshold]
            run(part_calls(predicted, slot_of, ids, slots, n_slots, cold, n_cold))
            assert slots[: n_slots[0]].tolist() == [slot_of[i] for i in active if slot_of[i] >= 0]
            assert cold[: n_cold[0]].tolist() == [i for i in active if slot_of[i] < 0]


@pytest.mark.parametrize("n_workers", [1, 2, 3, 5])
def test_two_calls_at_once_give_what_each_gives_alone(n_workers: int) -> None:
    rng = np.random.default_rng(0)
    matrices = [PackedMatrix.pack(rng.standard_normal((rows, 24)).astype(np.float32), "f32") for rows in (100, 37)]
    x = rng.standard_normal(24).astype(np.float32)
    outs = [np.zeros(w.n_rows, np.float32) for w in matrices]
    calls = [gemv_calls(w, x, out)[0] for w, out in zip(matrices, outs, strict=True)]
    for call in calls:
        run([call])
    wanted = [out.copy() for out in outs]
    for n_here in range(1, max(2, n_workers)):
        for on_threads in (False, True):
            for out in outs:
                out[:] = 0
            pair = both(calls[0], calls[1], n_workers, n_here)
            if on_threads:
                pool = Pool(n_workers)
                assert pool.run(Program([pair]))
                pool.close()
            else:
                run([pair], n_workers)
            assert all((out == one).all() for out, one in zip(outs, wanted, strict=True))


@pytest.mark.parametrize("n_workers", [1, 3])
def test_neurons_are_counted_while_somebody_counts(n_workers: int) -> None:
    values = np.array([0, 1.5, -0.0, -2, np.nan] * 120, np.float32)
    block, counts = TallyBlock(), np.zeros(700, np.int64)
    calls = tally_calls(values, Tally(block, 50))
    run(calls, n_workers)
    block.point_to(counts)
    run(calls, n_workers)
    run(calls, n_workers)
    block.point_to(None)
    run(calls, n_workers)
    assert counts[50:650].tolist() == [0, 2, 0, 2, 2] * 120
    assert not counts[:50].any()
    assert not counts[650:].any()
