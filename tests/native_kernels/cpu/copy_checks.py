"""Low-bit copies by the CPU kernels: rows against float64, and every way of multiplying them against every other.

Run as a script it checks some shapes for the instruction set of its process: a test starts it once for each. A score
decides by a threshold, so one row, several, a list, a cascade and a batch of tokens must give the same bits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from row_checks import check_gemv, input_of, matrix, random, spoil

from native_kernels.copies import signs
from native_kernels.cpu.ffn import predicting, sparse_ffn
from native_kernels.cpu.ffn.matrices import FfnMatrices
from native_kernels.cpu.products import gemv
from native_kernels.cpu.products.copy_batch import batch_calls
from native_kernels.cpu.runtime import call
from native_kernels.cpu.runtime.tallies import Counting

CODECS = ("copy1", "copy2", "copy3", "copy4")
WIDTHS = (1, 65, 320, 512, 700, 1100)
N_ROWS = 21


def one_token(codec: str, w: Any, x: NDArray[np.float32], ids: NDArray[np.int32] | None = None) -> NDArray[np.float32]:
    out = np.zeros(w.n_rows if ids is None else len(ids), np.float32)
    listed = None if ids is None else call.Listed.of(ids)
    call.run(gemv.gemv_calls(w, input_of(x, codec).buffers["lanes"], out, listed=listed))
    return out


def check_rows(codec: str, n_cols: int) -> None:
    """All rows, rows without a gap between them, and those of lists of no, one, some and all rows."""
    check_gemv(codec, n_cols)
    x = random(n_cols, seed=1)
    whole = one_token(codec, matrix(codec, N_ROWS, n_cols, apart=100), x)
    assert (one_token(codec, matrix(codec, N_ROWS, n_cols, apart=0), x) == whole).all()
    for n_ids in (0, 1, 13, N_ROWS):
        ids = np.sort(np.random.default_rng(n_ids).permutation(N_ROWS)[:n_ids]).astype(np.int32)
        check_gemv(codec, n_cols, ids=ids)
        assert (one_token(codec, matrix(codec, N_ROWS, n_cols), x, ids) == whole[ids]).all()


def check_batch(codec: str, n_cols: int, n_rows: int = N_ROWS) -> None:
    """Many tokens: each as if it were alone, on 1 to 8 workers."""
    w = matrix(codec, n_rows, n_cols)
    for n_tokens in (1, 2, 5, 11):
        x = random(n_tokens, n_cols, seed=3)
        wanted = np.stack([one_token(codec, w, token) for token in x])
        for n_workers in (1, 3, 8):
            out = np.full((n_tokens + 1, n_rows), np.float32(7))
            call.run(batch_calls(x, w, out[:-1], n_workers), n_workers)
            assert (out[-1] == 7).all()
            assert (out[:-1] == wanted).all()


def check_second_score(codec: str, n_cols: int, n_rows: int = 75) -> None:
    """A copy in the rows that a first score lets pass: none, one, some, all; no other row is read."""
    x, bias, logits = random(n_cols, seed=4), random(n_rows, seed=5), random(n_rows, seed=6)
    given = input_of(x, codec).buffers["lanes"]
    for k in (0, 1, 40, n_rows):
        w = matrix(codec, n_rows, n_cols)
        limit = float(np.sort(logits)[n_rows - k]) if k else float(logits.max()) + 1
        ids = np.flatnonzero(logits >= np.float32(limit)).astype(np.int32)
        wanted = one_token(codec, w, x, ids) + bias[ids]
        spoil(w, np.setdiff1d(np.arange(n_rows), ids))
        for n_workers in (1, 2, 5, 8):
            passed, also = predicting.Passed.make(n_rows), np.full(1, 7)
            buffers = sparse_ffn.Buffers.make(n_rows, n_cols, n_workers)
            buffers.scratch[:] = 255
            first = sparse_ffn.Predicted(logits, limit)
            calls = predicting.second_score_calls(w, given, first, passed, buffers, bias=bias, also=also)
            call.run(calls, n_workers)
            assert passed.listed.n[0] == also[0] == k
            assert (passed.listed.ids[:k] == ids).all()
            assert (passed.scores[:k] == wanted).all()


def check_ffn_of_a_second_score() -> None:
    """The feed-forward part computes those of the listed neurons whose second score reaches its threshold."""
    gate, up, down = (matrix("f32", 75, 33, seed=seed) for seed in (5, 6, 7))
    ffn = FfnMatrices(gate, up, down, "relu")
    x, scores = {"f32": random(33, seed=8)}, random(75, seed=9)
    for n_listed in (0, 1, 50, 75):
        listed = np.sort(np.random.default_rng(0).permutation(75)[:n_listed]).astype(np.int32)
        held = np.zeros(75, np.int32)
        held[:n_listed] = listed
        for limit in (-10.0, 0.2, 10.0):
            wanted_ids = listed[scores[:n_listed] >= np.float32(limit)]
            results = []
            predicted = sparse_ffn.Predicted(scores, limit, call.Listed(held, np.array([n_listed])))
            for neurons in (predicted, call.Listed.of(wanted_ids)):
                for n_workers in (1, 4):
                    out, counts = np.zeros(33, np.float32), np.zeros(3, np.int64)
                    buffers = sparse_ffn.Buffers.make(75, 33, n_workers)
                    calls = sparse_ffn.ffn_calls(ffn, x, out, buffers, neurons=neurons, counting=Counting(counts))
                    call.run(calls, n_workers)
                    assert counts[0] == len(wanted_ids)
                    results.append(out)
            assert all((out == results[0]).all() for out in results)


def check_signs() -> None:
    x = random(1000, seed=2)
    x[[3, 4, 5]] = 0, -0.0, np.nan
    out = np.zeros(1000, np.float32)
    call.run(predicting.sign_calls(x, out), 3)
    np.testing.assert_array_equal(out, signs(x))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for width in (65, 512, 700):
            check_rows(name, width)
            check_batch(name, width)
        check_second_score(name, 700)
    check_ffn_of_a_second_score()
    check_signs()
