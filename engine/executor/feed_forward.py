"""Operations common to the FFN executors: first matrix and activation, biases, both layouts of down.

This module selects no neurons and counts nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.model.activations import activate as activate
from engine.model.graph import FfnSpec
from engine.model.weights import FfnWeights
from native_kernels.backend import F32, I32, Operators, PackedMatrix
from native_kernels.cpu.ffn.matrices import FfnMatrices


def first_matrix(w: FfnWeights) -> tuple[PackedMatrix, F32 | None]:
    """Return the matrix whose activation decides which neurons are active, and its bias: gate, or else up."""
    return (w.up, w.up_bias) if w.gate is None else (w.gate, w.gate_bias)


def ffn_matrices(spec: FfnSpec, w: FfnWeights) -> FfnMatrices:
    """Return the block's matrices with its activation, as the CPU kernels expect them."""
    return FfnMatrices(w.gate, w.up, w.down_t, spec.activation, spec.threshold, w.gate_bias, w.up_bias)


def first_values(w: FfnWeights, x: F32, operators: Operators) -> F32:
    """Return the activation's input: x [T, D] -> [T, F]."""
    matrix, bias = first_matrix(w)
    values = operators.matmul(x, matrix)
    if bias is not None:
        values += bias
    return values


def first_values_of_some(w: FfnWeights, x: F32, ids: I32, operators: Operators) -> F32:
    """Return the activation's input for the neurons `ids` [K] of one token: x [D] -> [K]."""
    matrix, bias = first_matrix(w)
    values = operators.sparse_gemv(matrix, x, ids)
    return values if bias is None else values + bias[ids]


def everything(
    spec: FfnSpec, w: FfnWeights, x: F32, operators: Operators, mask: NDArray[np.bool_] | None = None
) -> tuple[F32, NDArray[np.bool_], int]:
    """Compute all neurons: x [T, D] -> (down's input [T, F], active [T, F], number with an active gate).

    A neuron is active if its activation is not zero, whatever up is; with dReLU both activations count, and its gate is
    active if the first one is not zero. mask [T, F]: neurons to keep, per position; the others become zero.
    """
    return behind_first(spec, w, x, first_values(w, x, operators), operators, mask)


def behind_first(
    spec: FfnSpec,
    w: FfnWeights,
    x: F32,
    first: F32,
    operators: Operators,
    mask: NDArray[np.bool_] | None = None,
) -> tuple[F32, NDArray[np.bool_], int]:
    """Do as `everything`, with the activation's input `first` [T, F] already computed; it is not changed."""
    h = activate(spec, first, operators)
    if mask is not None:
        h = np.where(mask, h, np.float32(0))
    fired = np.not_equal(h, 0)
    n_gate_active = int(np.count_nonzero(fired))
    if w.gate is None:
        return h, fired, n_gate_active
    up = operators.matmul(x, w.up)
    if w.up_bias is not None:
        up = up + w.up_bias
    if spec.relu_on_up:
        up = operators.relu(up)
        fired &= np.not_equal(up, 0)
    elif spec.activation == "clamped-silu":
        limit = np.float32(spec.threshold)
        up = np.clip(up, -limit, limit) + np.float32(1)
    h *= up
    return h, fired, n_gate_active


def times_up(spec: FfnSpec, w: FfnWeights, x: F32, ids: I32, h: F32, operators: Operators) -> tuple[I32, F32]:
    """Multiply one token's activated values h [K] of the neurons `ids` [K] by up: (active ids, down's input).

    With dReLU, up's activation removes more neurons; without a gate there is no factor.
    """
    if w.gate is None:
        return ids, h
    up = operators.sparse_gemv(w.up, x, ids)
    if w.up_bias is not None:
        up = up + w.up_bias[ids]
    if spec.relu_on_up:
        both = ~(up <= 0)  # keeps NaN, so that it shows in the result
        ids, h, up = ids[both], h[both], up[both]
    return ids, h * up


def down_of_all(w: FfnWeights, h: F32, operators: Operators) -> F32:
    """Multiply hidden values [T, F] by down and add its bias -> [T, D]."""
    if w.down_t is not None:
        out = operators.matmul_t(h, w.down_t)
    else:
        assert w.down is not None, "a block has down_t or down"
        out = operators.matmul(h, w.down)
    return out if w.down_bias is None else out + w.down_bias


def down_of_some(w: FfnWeights, values: F32, ids: I32, operators: Operators) -> F32:
    """Multiply hidden values [K] of the neurons `ids` [K] by down and add its bias -> [D].

    A row-wise down is computed whole, with zeros for the other neurons.
    """
    if w.down_t is None:
        h = np.zeros((1, first_matrix(w)[0].n_rows), np.float32)
        h[0, ids] = values
        whole: F32 = down_of_all(w, h, operators)[0]
        return whole
    out = operators.sparse_axpy(w.down_t, values, ids)
    return out if w.down_bias is None else out + w.down_bias
