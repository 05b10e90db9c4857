"""Checks of the small kernels and of the operators that are made of kernels, against the reference.

Also run by itself, in a process that is limited to another instruction set.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product

import numpy as np

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.attention.norms import RowNorm, norm_calls
from native_kernels.cpu.ffn.active_rows import clear_calls, list_calls, scatter_calls
from native_kernels.cpu.ffn.elementwise import COUNT_WORDS, activation_calls
from native_kernels.cpu.gemm.gemm import form_of
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.products.embedding import embedding_calls
from native_kernels.cpu.runtime.call import Listed, aligned_empty, run
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cpu.runtime.token_state import token_state
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
WIDTHS = (1, 7, 16, 33, 64, 515)
ODD = np.array([0, -0.0, 1e-30, -1e-30, 20, -20, 88, -88, 300, -300, np.inf, np.nan], np.float32)
# Some additions in another order, and functions by polynomials: units in the last place of float32, which is 1.2e-7.
NORM, FUNCTION = 2e-6, 5e-7


def check_norms() -> None:
    rng = np.random.default_rng(0)
    for width, n_workers in product(WIDTHS, (1, 3)):
        x, first, second = (rng.standard_normal((5, width)).astype(np.float32) + 2 for _ in range(3))
        weight, bias = (rng.standard_normal(width).astype(np.float32) for _ in range(2))
        for added in ((), (first,), (first, second)):
            total = sum(added, x)
            for norm, wanted in (
                ("rms", OPS.rms_norm(total, weight, 1e-5)),
                ("layer", OPS.layer_norm(total, weight, np.zeros_like(bias), 1e-5)),
            ):
                stream, out = x.copy(), np.empty_like(x)
                run(norm_calls(stream, out, RowNorm(norm, 1e-5, weight), added=added), n_workers)  # type: ignore[arg-type]
                np.testing.assert_allclose(stream, total, rtol=3e-7)
                np.testing.assert_allclose(out, wanted, atol=NORM * np.abs(wanted).max(), rtol=NORM)
            stream = x.copy()
            run(norm_calls(stream, stream, RowNorm("layer", 1e-5, None), added=added), n_workers)
            np.testing.assert_allclose(stream, total, rtol=3e-7)
        run(norm_calls(x, x, RowNorm("layer", 1e-5, weight, bias)), n_workers)  # where it lies
        assert np.isfinite(x).all()
    x = np.array([[1, np.nan, 2], [1, 2, 3]], np.float32)
    run(norm_calls(x, x, RowNorm("rms", 1e-5, np.ones(3, np.float32))))
    assert np.isnan(x[0]).all()
    assert np.isfinite(x[1]).all()


def check_activations() -> None:
    rng = np.random.default_rng(0)
    kinds = {
        "relu": OPS.relu, "fatrelu": lambda x: OPS.relu(x, 0.5), "silu": OPS.silu, "gelu": OPS.gelu,
        "gelu-tanh": OPS.gelu_tanh, "relu2": OPS.relu2,
    }  # fmt: skip
    for width, n_workers, (kind, function) in product((1, 13, 40, 700), (1, 4), kinds.items()):
        x, up = (rng.standard_normal((3, width)).astype(np.float32) * 4 for _ in range(2))
        bias, up_bias = (rng.standard_normal(width).astype(np.float32) for _ in range(2))
        for with_up, relu in ((False, False), (True, False), (True, True)):
            counts: np.ndarray = aligned_empty((n_workers, COUNT_WORDS), np.int64)
            out = np.empty_like(x)
            other = up + up_bias
            calls = activation_calls(
                kind, x, out, up=up if with_up else None, biases=(bias, up_bias if with_up else None),  # type: ignore[arg-type]
                relu_on_up=relu, threshold=0.5, counts=counts,
            )  # fmt: skip
            run(calls, n_workers)
            first = function(x + bias)
            wanted = first * (np.maximum(other, 0) if relu else other) if with_up else first
            np.testing.assert_allclose(out, wanted, atol=FUNCTION * np.abs(wanted).max() + 4e-7 * np.abs(other).max())
            if kind not in ("relu", "relu2", "fatrelu"):
                continue  # the others are nowhere exactly zero but where a float32 or float64 ends
            fired = first != 0
            assert counts[:, 0].sum() == fired.sum()
            assert counts[:, 1].sum() == (fired & (other > 0) if relu else fired).sum()
    with np.errstate(all="ignore"):
        for kind, function in kinds.items():
            out = np.empty_like(ODD)
            run(activation_calls(kind, ODD, out, threshold=0.5))  # type: ignore[arg-type]
            np.testing.assert_allclose(out, function(ODD), atol=1e-6, rtol=1e-6)


def check_lists() -> None:
    rng = np.random.default_rng(0)
    for n, share in product((1, 16, 37, 300), (0.0, 0.3, 1.0)):
        values = rng.standard_normal(n).astype(np.float32)
        values[rng.random(n) >= share] = 0
        bias = rng.standard_normal(n).astype(np.float32)
        listed, also = Listed.empty(n), np.zeros(1, np.int64)
        ids, count = listed
        run(list_calls(values, listed, also=also))
        wanted = np.flatnonzero(values)
        assert count[0] == also[0] == len(wanted)
        np.testing.assert_array_equal(ids[: count[0]], wanted)
        run(list_calls(values, listed, bias=bias, threshold=0.2))
        np.testing.assert_array_equal(ids[: count[0]], np.flatnonzero(values + bias >= np.float32(0.2)))
        found = rng.standard_normal(n).astype(np.float32)
        out, before = np.full(n, 2, np.float32), np.full(n, 2, np.float32)
        counts = np.zeros((3, COUNT_WORDS), np.int64)
        chosen = ids[: count[0]]
        run(scatter_calls(found, listed, out, multiplied=True, relu=True, counts=counts), 3)
        before[chosen] *= np.maximum(found[: count[0]], 0)
        np.testing.assert_array_equal(out, before)
        assert counts[:, 0].sum() == (found[: count[0]] > 0).sum()
        run(clear_calls(out), 2)
        assert not out.any()


def check_embeddings() -> None:
    rng = np.random.default_rng(0)
    for codec, width in product(("f32", "f16", "bf16", "q8_0", "q4_0"), (32, 96, 512)):
        w = PackedMatrix.pack(rng.standard_normal((9, width)).astype(np.float32), codec)
        state, out = token_state(), np.empty(width, np.float32)
        for token in (0, 6):
            state[0] = token
            run(embedding_calls(w, state, 0, out, offset=2, scale=0.5))
            np.testing.assert_allclose(out, OPS.rows(w, np.array([token + 2]))[0] * 0.5, rtol=1e-6)


def check_operators(n_threads: int, codecs: Sequence[str] = ("f16", "q8_0", "q4_0", "f32")) -> None:
    ours = CpuOperators(Pool(n_threads))
    for name in ("matmul", "matmul_t", "sparse_gemv", "rms_norm", "layer_norm", "rope"):
        setattr(ours._reference, name, None)  # what there are kernels for is not delegated
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    for codec, (f, d), tokens in product(codecs, ((1, 32), (70, 96)), (0, 1, 2, 9, 40)):
        w = PackedMatrix.pack(numbers(f, d), codec)
        x, h = numbers(tokens, d), numbers(tokens, f)
        # Tokens are rounded to 1 / 254 of the largest of 32 numbers where rows are quantised.
        loose = 0.05 if codec.startswith("q") else 1e-5
        scale = np.sqrt(d)
        # Tiles of bfloat16 in two parts leave out 3 * 2^-16 of each product.
        split = form_of(codec, tokens) == "split tiles"
        close = max(loose, 2e-4) if split else loose
        np.testing.assert_allclose(ours.matmul(x, w), OPS.matmul(x, w), atol=close * scale)
        close = 2e-4 if split else 1e-5
        np.testing.assert_allclose(ours.matmul_t(h, w), OPS.matmul_t(h, w), rtol=1e-4 * split, atol=close * np.sqrt(f))
        if tokens:
            for ids in (np.arange(0), np.arange(f), np.arange(0, f, 3)):
                some = ids.astype(np.int32)
                found = ours.sparse_gemv(w, x[0], some)
                np.testing.assert_allclose(found, OPS.sparse_gemv(w, x[0], some), atol=loose * scale)
                values = numbers(len(some))
                added = ours.sparse_axpy(w, values, some)
                np.testing.assert_allclose(added, OPS.sparse_axpy(w, values, some), atol=1e-5 * np.sqrt(f))
    for tokens in (0, 1, 5):
        x = numbers(tokens, 4, 24)
        weight, bias = numbers(24), numbers(24)
        np.testing.assert_allclose(ours.rms_norm(x, weight, 1e-5), OPS.rms_norm(x, weight, 1e-5), atol=5e-6)
        wanted = OPS.layer_norm(x, weight, bias, 1e-5)
        np.testing.assert_allclose(ours.layer_norm(x, weight, bias, 1e-5), wanted, atol=5e-6)
        cos, sin = ours.rope_angles(np.arange(tokens) + 5, 16, 1e4)
        for neighbours in (False, True):
            wanted = OPS.rope(x, cos, sin, neighbours)
            np.testing.assert_allclose(ours.rope(x, cos, sin, neighbours), wanted, atol=1e-6)
        for function in ("relu", "relu2", "silu", "gelu", "gelu_tanh"):
            np.testing.assert_allclose(getattr(ours, function)(x), getattr(OPS, function)(x), atol=2e-6)
        np.testing.assert_allclose(ours.softcap(x, 3.0), OPS.softcap(x, 3.0), atol=2e-6)
        np.testing.assert_allclose(ours.relu(x, 0.4), OPS.relu(x, 0.4))
    ours.pool.close()


def check_no_numbers() -> None:
    """What is infinite or no number comes out of the kernels as it comes out of the reference."""
    ours = CpuOperators(Pool(2))
    rng = np.random.default_rng(0)

    def same(found: np.ndarray, wanted: np.ndarray, split: bool = False) -> None:
        """split: in tiles of two parts, whose product of infinity and a part that is 0 is not a number."""
        for test in (np.isfinite,) if split else (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(test(found), test(wanted))

    with np.errstate(all="ignore"):
        for odd, tokens in product((np.nan, np.inf, -np.inf), (1, 2, 9, 40)):
            w = PackedMatrix.pack(rng.standard_normal((70, 96)).astype(np.float32), "f16")
            x, h = (rng.standard_normal((tokens, n)).astype(np.float32) for n in (96, 70))
            clean = PackedMatrix.pack(rng.standard_normal((70, 96)).astype(np.float32), "f16")
            w.data[[3, 17, 69], [5, 0, 95]] = odd
            ids = np.arange(0, 70, 3, dtype=np.int32)
            split = form_of("f16", tokens) == "split tiles"
            same(ours.matmul(x, w), OPS.matmul(x, w), split)
            same(ours.matmul_t(h, w), OPS.matmul_t(h, w), split)
            same(ours.sparse_gemv(w, x[0], ids), OPS.sparse_gemv(w, x[0], ids))
            same(ours.sparse_axpy(w, h[0, ids], ids), OPS.sparse_axpy(w, h[0, ids], ids))
            same(ours.rows(w, np.arange(70)), np.asarray(w.data, np.float32))
            x, h = x.copy(), h.copy()
            x[-1, 5] = h[0, 7] = odd
            same(ours.matmul(x, clean), OPS.matmul(x, clean), split)
            same(ours.matmul_t(h, clean), OPS.matmul_t(h, clean), split)
            blocks = PackedMatrix.pack(rng.standard_normal((70, 96)).astype(np.float32), "q4_0")
            found = np.isfinite(ours.matmul(x, blocks))  # by their groups' scales: infinite may be no number then
            np.testing.assert_array_equal(found, np.isfinite(OPS.matmul(x, blocks)))
        values = np.concatenate([ODD, -ODD])
        for function in ("relu", "relu2", "silu", "gelu", "gelu_tanh"):
            same(getattr(ours, function)(values), getattr(OPS, function)(values))
        same(ours.relu(values, 0.5), OPS.relu(values, 0.5))
    ours.pool.close()


def check_small_kernels() -> None:
    check_norms()
    check_activations()
    check_lists()


if __name__ == "__main__":
    check_small_kernels()
    check_embeddings()
    check_no_numbers()
    check_operators(2, sys.argv[1:])
