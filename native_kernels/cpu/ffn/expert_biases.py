"""Biases of experts: which of them are added is known only when the router has chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from native_kernels.backend import F32, I64
from native_kernels.cpu.ffn.router import Chosen
from native_kernels.cpu.products.gemv import GRAIN
from native_kernels.cpu.products.vector_math import put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.simd import LANES, add, get_int, get_int32

_COLUMNS = 64  # of an item of add_to_tokens


@dataclass(frozen=True, eq=False)
class ExpertBiases:
    """One bias of every expert of a layer. addresses i64 [E]: where each begins; first [F]: any of them."""

    first: F32
    addresses: I64
    keeps: tuple[F32, ...]

    @classmethod
    def of(cls, biases: Sequence[F32]) -> ExpertBiases:
        addresses: I64 = aligned_empty(len(biases), np.int64)
        addresses[:] = [one.ctypes.data for one in biases]
        return cls(biases[0], addresses, tuple(biases))


@kernel
def _add_to_chosen(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: values of all chosen experts. args: addresses, ids, F, values (also written), their step."""
    table, ids, width = get_int(args), get_int(args + 8), get_int(args + 16)
    values, step = get_int(args + 24), get_int(args + 32)
    at = lo
    while at < hi:
        slot, column = at // width, at % width
        size = min(hi - at, width - column, LANES)
        bias = get_int(table + 8 * get_int32(ids + 4 * slot)) + 4 * column
        here = values + slot * step + 4 * column
        put_some_floats(here, size, add(some_floats(here, size), some_floats(bias, size)))
        at += size


@kernel
def _add_to_tokens(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: _COLUMNS of the values of several tokens. args: values (also written), their step, F, tokens, bias."""
    values, step, width = get_int(args), get_int(args + 8), get_int(args + 16)
    tokens, bias = get_int(get_int(args + 24)), get_int(args + 32)
    for t in range(tokens):
        for column in range(_COLUMNS * lo, min(width, _COLUMNS * hi), LANES):
            here, size = values + t * step + 4 * column, width - column
            put_some_floats(here, size, add(some_floats(here, size), some_floats(bias + 4 * column, size)))


def chosen_bias_calls(biases: ExpertBiases, chosen: Chosen, values: F32) -> list[Call]:
    """values [K N, F], of which every N-th row is a chosen expert's first, += the biases of the chosen."""
    n_used, width = len(chosen.ids), len(biases.first)
    words = arguments(biases.addresses, chosen.ids, width, values, values.strides[0] * (len(values) // n_used))
    return [Call(_add_to_chosen, words, n_used * width, GRAIN, "ffn", (biases, chosen, values))]


def token_bias_calls(bias: F32, values: F32, tokens: I64) -> list[Call]:
    """The first tokens[0] rows of values [T, F] += bias [F]."""
    words = arguments(values, values.strides[0], len(bias), tokens, bias)
    return [Call(_add_to_tokens, words, -(-len(bias) // _COLUMNS), 1, "ffn", (bias, values, tokens))]
