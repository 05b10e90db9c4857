"""Norms, activations, lists, embeddings and the whole operators on kernels."""

from __future__ import annotations

import operator_checks
import pytest


@pytest.mark.parametrize(
    "check", ["check_norms", "check_activations", "check_lists", "check_embeddings", "check_no_numbers"]
)
def test_small_kernels(check: str) -> None:
    getattr(operator_checks, check)()


@pytest.mark.parametrize("n_threads", [1, 2, 5, 8])
def test_operators(n_threads: int) -> None:
    operator_checks.check_operators(n_threads)
