"""Low-bit copies of a layer's gate (or up, without a gate), rounded to minimise the error of their product.

The error of copy times input over real inputs is minimised, not that of the weights: columns are rounded one after
another, each passing its error on to the following ones (as in OBQ and GPTQ), then scales and codes are improved
alternately. Mean inputs go through an exact bias per neuron. It sets no threshold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.errors import Cancelled, DeviceMemoryError
from engine.job import CancelCheck, Job
from engine.training.low_rank import damped
from native_kernels.backend import F32, U8, PackedMatrix
from native_kernels.codecs.copies import COPY_GROUP
from native_kernels.copies import pack_copy

if TYPE_CHECKING:
    from torch import Tensor

F64 = NDArray[np.float64]
F16 = NDArray[np.float16]

# Added to the variance of every direction, relative to the mean variance: positions are few, and some directions hardly
# occur.
DAMPING = 0.01
# Number of alternating improvements of scales and codes. Starter model, layer 4, one bit, variance of the error over
# that of the gate: rounded by columns .222, one turn .200, two .192, three .189; nearest levels .335.
TURNS = 3
_ROWS = 2048  # of the matrix at a time: rows do not depend on one another
_COLUMNS = 64  # that exchange errors among themselves before the others receive them
# The best step for normally distributed weights, in their standard deviations, and the factors to try.
_USUAL_STEP = {1: 1.6, 2: 1.0, 3: 0.586, 4: 0.335}
_FACTORS = tuple(np.linspace(0.5, 1.6, 24).tolist())
_SMALLEST_SCALE = 2.0**-14  # of float16, in full precision


@dataclass(frozen=True, eq=False)
class CopyFit:
    """One copy: value = scale (2 code + 1 - 2^bits) / 2, score = values x + bias.

    Shapes: codes u8 [F, D]; scales f16 [F, ceil(D / group)]; bias f32 [F], the model's own included; noise f32 [F], the
    standard deviation of the score's error over the inputs.
    """

    bits: int
    codes: U8
    scales: F16
    bias: F32
    noise: F32
    group: int

    def values(self) -> F32:
        """Return the copy as numbers, [F, D]."""
        levels = self.codes.astype(np.float32) + np.float32((1 - (1 << self.bits)) / 2)
        levels *= np.repeat(self.scales.astype(np.float32), self.group, axis=1)[:, : levels.shape[1]]
        return levels

    def packed(self) -> PackedMatrix:
        """Return the copy as predictors store it."""
        return pack_copy(self.codes, self.scales, self.bits)


class CopyMaker:
    """One layer's gate, ready to be copied in any number of bits.

    w [F, D]; bias [F]; mean [D] and second_moment [D, D] of the inputs. Cost: two Cholesky factors and an inverse of
    [D, D] in float64, 32 bytes per value of it.
    """

    def __init__(
        self,
        w: F32,
        bias: F32 | None,
        mean: F64,
        second_moment: F64,
        device: str = "cpu",
        group: int = COPY_GROUP,
    ) -> None:
        import torch

        self._w = w
        self._bias = np.zeros(len(w), np.float32) if bias is None else bias
        self._mean = mean
        self._device = device
        self._groups = [slice(a, min(a + group, w.shape[1])) for a in range(0, w.shape[1], group)]
        self._group = group
        try:
            centre = torch.from_numpy(mean).to(device)
            moment = torch.from_numpy(second_moment).to(device)
            covariance = moment - torch.outer(centre, centre)
            self._covariance = covariance.float()
            covariance, lower = damped(covariance, float(moment.diagonal().mean()), DAMPING)
            inverse = torch.cholesky_inverse(lower)
            # Row j: how to spread the error of column j over the following columns.
            self._spread = torch.linalg.cholesky(inverse, upper=True).float()
            self._improved = covariance.float()
        except torch.cuda.OutOfMemoryError as error:
            raise DeviceMemoryError(f"Copies need more memory than {device} has free: {error}.") from error

    def fit(
        self,
        bits: int,
        turns: int = TURNS,
        job: Job = Job(),
    ) -> CopyFit:
        """Return the copy with 1 to 4 bits.

        Units: progress reports rows. Cost: F D^2 (2 + 4 turns) operations, some 40 MB besides the result for D = 4096.
        Raises: Cancelled, DeviceMemoryError.
        """
        import torch

        n_rows, n_cols = self._w.shape
        codes = np.empty((n_rows, n_cols), np.uint8)
        scales = np.empty((n_rows, len(self._groups)), np.float16)
        bias, noise = np.empty(n_rows, np.float32), np.empty(n_rows, np.float32)
        mean = torch.from_numpy(self._mean).to(self._device).float()
        try:
            with torch.no_grad():
                for start in range(0, n_rows, _ROWS):
                    rows = slice(start, min(start + _ROWS, n_rows))
                    w = torch.from_numpy(np.ascontiguousarray(self._w[rows])).to(self._device)
                    levels, steps = self._by_columns(w, bits, job.cancelled)
                    for _ in range(turns):
                        steps = _kept_in_f16(self._best_steps(w, levels))
                        self._improve(w, levels, steps, bits, job.cancelled)
                    steps = _kept_in_f16(self._best_steps(w, levels))
                    missed = w - self._numbers(levels, steps)
                    codes[rows] = (levels + ((1 << bits) - 1) / 2).to(torch.uint8).cpu().numpy()
                    scales[rows] = steps.cpu().numpy()
                    bias[rows] = self._bias[rows] + (missed @ mean).cpu().numpy()
                    noise[rows] = ((missed @ self._covariance) * missed).sum(1).clamp_min(0).sqrt().cpu().numpy()
                    job.progress(rows.stop, n_rows)
        except torch.cuda.OutOfMemoryError as error:
            raise DeviceMemoryError(f"A copy needs more memory than {self._device} has free: {error}.") from error
        return CopyFit(bits, codes, scales, bias, noise, self._group)

    def _by_columns(self, w: Tensor, bits: int, cancelled: CancelCheck) -> tuple[Tensor, Tensor]:
        """Return levels [N, D] (halves, from -(2^bits - 1) / 2 on) and steps [N, groups], column after column."""
        import torch

        left, levels = w.clone(), torch.empty_like(w)
        steps = torch.empty(len(w), len(self._groups), device=w.device)
        weights = self._spread.diagonal().pow(-2)  # the cost of an error after the following columns compensate for it
        for number, columns in enumerate(self._groups):
            steps[:, number] = _kept_in_f16(_searched_steps(left[:, columns], weights[columns], bits))
            step = steps[:, number]
            for block in _blocks(columns):
                if cancelled():
                    raise Cancelled
                here = left[:, block]
                errors = torch.empty_like(here)
                for at, column in enumerate(range(block.start, block.stop)):
                    levels[:, column] = _nearest(here[:, at], step, bits)
                    error = (here[:, at] - levels[:, column] * step) / self._spread[column, column]
                    here[:, at:] -= torch.outer(error, self._spread[column, column : block.stop])
                    errors[:, at] = error
                left[:, block.stop :] -= errors @ self._spread[block, block.stop :]
        return levels, steps

    def _best_steps(self, w: Tensor, levels: Tensor) -> Tensor:
        """Return the least-squares steps [N, groups] for the levels, all groups of a row at once."""
        import torch

        n_groups = len(self._groups)
        normal = torch.empty(len(w), n_groups, n_groups, device=w.device)
        wanted = torch.empty(len(w), n_groups, device=w.device)
        seen = w @ self._improved
        for i, columns in enumerate(self._groups):
            product = levels[:, columns] @ self._improved[columns]
            for k, others in enumerate(self._groups):
                normal[:, i, k] = (product[:, others] * levels[:, others]).sum(1)
            wanted[:, i] = (seen[:, columns] * levels[:, columns]).sum(1)
        size = normal.diagonal(dim1=1, dim2=2).mean(1).clamp_min(1e-30)
        normal += torch.eye(n_groups, device=w.device) * (1e-6 * size)[:, None, None]
        found: Tensor = torch.linalg.solve(normal, wanted)
        return found

    def _improve(self, w: Tensor, levels: Tensor, steps: Tensor, bits: int, cancelled: CancelCheck) -> None:
        """Move each level in turn to the lowest error of the product, with the others fixed; in place."""
        missed = w - self._numbers(levels, steps)
        for number, columns in enumerate(self._groups):
            step = steps[:, number]
            for block in _blocks(columns):
                if cancelled():
                    raise Cancelled
                slope = missed @ self._improved[:, block]
                among = self._improved[block, block]
                for at, column in enumerate(range(block.start, block.stop)):
                    best = levels[:, column] * step + slope[:, at] / among[at, at]
                    moved = _nearest(best, step, bits)
                    change = (moved - levels[:, column]) * step
                    slope -= change[:, None] * among[at]
                    levels[:, column] = moved
                missed[:, block] = w[:, block] - levels[:, block] * step[:, None]

    def _numbers(self, levels: Tensor, steps: Tensor) -> Tensor:
        return levels * steps.repeat_interleave(self._group, dim=1)[:, : levels.shape[1]]


def _blocks(columns: slice) -> Iterator[slice]:
    for start in range(columns.start, columns.stop, _COLUMNS):
        yield slice(start, min(start + _COLUMNS, columns.stop))


def _nearest(values: Tensor, step: Tensor, bits: int) -> Tensor:
    """Return the level nearest to each value: halves from -(2^bits - 1) / 2 to its opposite."""
    half = 1 << (bits - 1)
    return (values / step).floor_().clamp_(-half, half - 1).add_(0.5)


def _searched_steps(w: Tensor, weights: Tensor, bits: int) -> Tensor:
    """Return for every row of w [N, G] the step whose levels are nearest to it, by weights [G]: [N]."""
    import torch

    size = ((w * w) @ weights / weights.sum()).sqrt().clamp_min(_SMALLEST_SCALE)
    best, least = size, torch.full_like(size, torch.inf)
    for factor in _FACTORS:
        step = size * (_USUAL_STEP[bits] * factor)
        missed = w - _nearest(w, step[:, None], bits) * step[:, None]
        error = (missed * missed) @ weights
        best, least = torch.where(error < least, step, best), torch.minimum(error, least)
    return best


def _kept_in_f16(steps: Tensor) -> Tensor:
    """Round the steps as they are stored. A step is positive: a negative solution becomes the smallest."""
    return steps.clamp(_SMALLEST_SCALE, 60_000).half().float()
