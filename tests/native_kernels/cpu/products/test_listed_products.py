"""Products with listed rows are gemm's own, whatever rows are listed and however they are dealt out."""

from __future__ import annotations

import numpy as np
import pytest
from product_checks import DAILY, matmul, matrix, random
from support.repetitions import some_daily

from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.cpu.gemm.gemm import Panels, Scratch, form_of, pack_calls
from native_kernels.cpu.products.listed_products import RowBuffer, listed_calls
from native_kernels.cpu.runtime import call
from native_kernels.cpu.runtime.call import Listed, aligned_empty

CODECS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_0.lanes", "q4_k")


def listed(x: F32, w: PackedMatrix, ids: I32, n_workers: int = 1) -> F32:
    """The product with the rows `ids`, [T, K]."""
    tokens, n_ids = np.array([len(x)]), np.array([len(ids)])
    places = np.zeros(w.n_rows, np.int32)
    places[: len(ids)] = ids
    panels = Panels.make(len(x), w.n_cols, form_of(w.codec, len(x)))
    out = aligned_empty((len(x), w.n_rows))
    calls = pack_calls(x, tokens, panels)
    room, scratch = RowBuffer.make(n_workers, w.row_bytes), Scratch.make(n_workers)
    call.run(calls + listed_calls(panels, w, Listed(places, n_ids), tokens, out, scratch, room), n_workers)
    assert not out[:, len(ids) :].any()
    return out[:, : len(ids)]


@pytest.mark.parametrize("name", some_daily(CODECS, DAILY))
@pytest.mark.parametrize("n_tokens", [4, 17, 32])
def test_rows_are_those_of_the_whole_product(name: str, n_tokens: int) -> None:
    w, _ = matrix(name, 211, 768, apart=5)
    x = random(n_tokens, 768)
    whole = matmul(x, w)
    rng = np.random.default_rng(n_tokens)
    for share in (0.0, 0.05, 0.6, 1.0):
        ids = np.flatnonzero(rng.random(211) < share).astype(np.int32)
        for n_workers in (1, 3):
            np.testing.assert_allclose(listed(x, w, ids, n_workers), whole[:, ids], rtol=1e-6, atol=1e-5)


def test_no_result_depends_on_how_rows_are_dealt_out() -> None:
    for name in ("f16", "q4_0"):
        w, _ = matrix(name, 211, 768)
        x, ids = random(9, 768), np.arange(0, 211, 2, dtype=np.int32)
        found = listed(x, w, ids)
        for n_workers in (2, 5, 16):
            assert np.array_equal(listed(x, w, ids, n_workers), found)


def test_what_does_not_fit_is_refused() -> None:
    w, _ = matrix("f16", 8, 512)
    tokens, out = np.array([2]), aligned_empty((2, 8))
    panels, ids = Panels.make(2, 512, "floats"), np.zeros(8, np.int32)
    scratch, room = Scratch.make(1), RowBuffer.make(1, w.row_bytes)
    for bad in (
        (panels, w, Listed(ids[:4], tokens), tokens, out, scratch, room),
        (Panels.make(2, 32, "floats"), w, Listed(ids, tokens), tokens, out, scratch, room),
        (panels, w, Listed(ids, tokens), tokens, out, scratch, RowBuffer.make(1, 16)),
    ):
        with pytest.raises(ValueError, match=r"fit|buffer"):
            listed_calls(*bad)
