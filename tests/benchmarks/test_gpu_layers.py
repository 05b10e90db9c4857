"""How operators are told apart by what they multiply with, and a token's figures in words."""

from __future__ import annotations

from functools import partial
from typing import Any

import gpu_layers
import pytest

from native_kernels.cuda.gpu import GpuMatrix, GpuVector

X = GpuVector(8, 0)


def multiply(matrices: list[GpuMatrix], x: GpuVector, outs: list[int]) -> None: ...


def expect(matrix: GpuMatrix, x: GpuVector, bias: int, threshold: float, bits: int) -> None: ...


def hidden(block: Any, x: GpuVector) -> None: ...


def matrix(n_rows: int) -> GpuMatrix:
    return GpuMatrix(n_rows, 8, "f16", (0,))


STEPS = [
    partial(multiply, [matrix(3), matrix(2)], X, [0, 0]),
    partial(expect, matrix(5), X, 0, 0.0, 0),
    partial(hidden, None, X),
    partial(multiply, [matrix(3), matrix(2)], X, [0, 0]),
    partial(expect, matrix(5), X, 0, 0.0, 0),
    partial(hidden, None, X),
]


def test_operators_are_told_apart_by_their_matrices() -> None:
    assert [gpu_layers.name_of(step) for step in STEPS[:3]] == ["multiply 3 + 2 x 8", "expect 5 x 8", "hidden"]


def test_what_was_predicted_is_taken_off_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"multiply": 3.0, "expect": 2.0, "hidden": 5.0}
    monkeypatch.setattr(gpu_layers, "seconds_of", lambda gpu, steps: sum(seconds[step.func.__name__] for step in steps))
    found = gpu_layers.by_operator(None, STEPS)  # type: ignore[arg-type]
    assert found == {
        "multiply 3 + 2 x 8": {"calls": 2, "seconds": 6.0},
        "expect 5 x 8": {"calls": 2, "seconds": 4.0},
        "hidden": {"calls": 2, "seconds": 10.0},
    }


def test_a_token_is_told_in_words() -> None:
    words = gpu_layers.in_words(
        {
            "model": "m", "device": "all of it", "threads": 2, "token_s": 0.01, "stages_s": {"ffn": 0.004},
            "gpu_neuron_load": 0.42, "predicted_gpu_neuron_load": 0.43,
            "stretches": 3, "gpu_s": 0.005, "operators": {"hidden": {"calls": 2, "seconds": 0.002}},
        }
    )  # fmt: skip
    assert "10.00 ms a token (100.00 tok/s), 3 stretches" in words
    assert "5.00 ms (50%)" in words
    assert "1000.00 us =   2.000 ms" in words
    assert "the GPU computed: 42.0%, foretold by the placement: 43.0%" in words
