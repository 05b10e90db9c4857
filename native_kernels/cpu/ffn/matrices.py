"""The matrices of a layer's FFN with their activation, as the calls of one token and of several read them."""

from __future__ import annotations

from dataclasses import dataclass

from native_kernels.backend import F32, Activation, PackedMatrix


@dataclass(frozen=True, eq=False)
class FfnMatrices:
    """down_t (activation(gate x + gate_bias) * (up x + up_bias)), or down_t activation(up x + up_bias) without a gate.

    Shapes: matrices [F, D], biases [F]. down_t None: the caller multiplies by down. threshold: relu, drelu and fatrelu
    are 0 for values that do not exceed it.
    """

    gate: PackedMatrix | None
    up: PackedMatrix
    down_t: PackedMatrix | None
    activation: Activation
    threshold: float = 0.0
    gate_bias: F32 | None = None
    up_bias: F32 | None = None

    @property
    def first(self) -> PackedMatrix:
        """The matrix whose activation decides which neurons fire."""
        return self.up if self.gate is None else self.gate

    @property
    def second(self) -> PackedMatrix | None:
        """Up, if there is a gate."""
        return None if self.gate is None else self.up

    @property
    def biases(self) -> tuple[F32 | None, F32 | None]:
        """The biases of `first` and `second`."""
        return (self.up_bias, None) if self.gate is None else (self.gate_bias, self.up_bias)
