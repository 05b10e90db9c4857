"""Fit one layer's low-rank predictor, b relu(a x + a_bias) + b_bias, to its neurons' activity, or truncate the gate.

Training starts from the gate, truncated to the rank with respect to real inputs, and uses the rounded values of the
storage codec. It sets no thresholds. Paper: PowerInfer, section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.errors import DeviceMemoryError
from engine.job import Job
from native_kernels.backend import F32, PackedMatrix
from native_kernels.codecs import CODECS

if TYPE_CHECKING:
    from torch import Tensor

Codec = Literal["q4_0", "q8_0", "f16"]
F64 = NDArray[np.float64]

# The hidden values are shifted up by this many standard deviations, so that ReLU clips almost none and the truncated
# gate is preserved. Starter model, layer 4, rank 32, share at contribution recall .99: shift 1: .436, 2: .422, 3: .420;
# from random numbers .475 (400 steps).
SHIFT = 4.0
# Weight of active neurons beyond an even balance: a filter must pass everything that counts. The same layer, share at
# .995: weight 1: .494, 3: .485, 10: .464, 30: .456.
POSITIVE_WEIGHT = 10.0
LARGEST_WEIGHT = 100.0  # of one neuron at one position: a few are enormous
_RIDGE = 1e-6  # of the mean variance, added to all: directions that never occurred have no weight
_USUAL_WIDTH, _USUAL_RANK = 512, 128  # that rates were tried on
_PIECE_POSITIONS = 1024
_MEAN_DECAY, _SQUARE_DECAY = 0.9, 0.999  # of Adam's averages
_ROUNDED_SHARE = 0.3  # of the steps, at the end, is done with the values as they will be stored


@dataclass(frozen=True)
class Recipe:
    """The length and speed of training.

    rate: of Adam for biases, and for matrices up to a usual width and rank; it falls in proportion beyond them.
    """

    steps: int = 400
    batch: int = 1024  # positions
    rate: float = 6e-3
    seed: int = 0


@dataclass(frozen=True, eq=False)
class LowRankMap:
    """score = b relu(a x + a_bias) + b_bias; a and b are rounded by their codecs."""

    a: F32  # [R, D]
    a_bias: F32  # [R]
    b: F32  # [F, R]
    b_bias: F32  # [F]
    codec: Codec

    @property
    def rank(self) -> int:
        return len(self.a)

    def scores(self, x: F32) -> F32:
        """x [T, D] -> [T, F]."""
        scores: F32 = np.maximum(x @ self.a.T + self.a_bias, 0) @ self.b.T + self.b_bias
        return scores

    def packed(self) -> tuple[PackedMatrix, PackedMatrix]:
        """Return a and b as stored."""
        return tuple(PackedMatrix.pack(w, stored_codec(w.shape[1], self.codec)) for w in (self.a, self.b))  # type: ignore[return-value]


def stored_codec(n_cols: int, codec: Codec) -> Codec:
    """Return the codec of a matrix with this many columns: f16 if they are not whole blocks."""
    return codec if codec == "f16" or n_cols % CODECS[codec].block_size == 0 else "f16"


class GateCuts:
    """The gate of one layer (or up, without a gate), ready to be truncated to any rank.

    W C^1/2 is truncated, with C the inputs' covariance, to keep what matters on real inputs.
    """

    def __init__(self, w: F32, bias: F32 | None, mean: F64, second_moment: F64, device: str = "cpu") -> None:
        """w [F, D], bias [F], mean [D] and second_moment [D, D] of the inputs.

        Cost: one Cholesky and one eigen-decomposition of [D, D] in float64, 24 bytes per value of it.
        """
        import torch

        with _memory_of(device):
            moment, centre = (torch.from_numpy(values).to(device) for values in (second_moment, mean))
            _, lower = damped(moment - torch.outer(centre, centre), float(moment.diagonal().mean()), _RIDGE)
            gate = torch.from_numpy(w).to(device).double()
            squeezed = gate @ lower  # [F, D]
            energy, directions = torch.linalg.eigh(squeezed.T @ squeezed)
            self._directions = directions.flip(1)  # the strongest first
            self._energy = energy.flip(0).clamp_min(0)
            self._squeezed, self._lower = squeezed, lower
            self._at_mean = gate @ centre
            if bias is not None:
                self._at_mean += torch.from_numpy(bias).to(device)
            self._mean = centre

    def cut(self, rank: int, codec: Codec) -> LowRankMap:
        """Return the gate truncated to this rank, without training. One score unit is about one
        deviation of its error.
        """
        import torch

        kept = self._directions[:, :rank]
        a = torch.linalg.solve_triangular(self._lower.T, kept, upper=True).T  # [R, D], of unit variance on the inputs
        b = self._squeezed @ kept  # [F, R]
        missed = (self._energy[rank:].sum() / len(b)).sqrt()
        unit = missed if missed > 1e-3 * b.pow(2).sum(1).mean().sqrt() else b.pow(2).sum(1).mean().sqrt()
        unit = unit.clamp_min(1e-30)
        return _rounded_map(a.float(), b.float() / unit.float(), self._at_mean / unit, self._mean, codec)


def damped(covariance: Tensor, mean_square: float, share: float) -> tuple[Tensor, Tensor]:
    """Return covariance [D, D] plus a multiple of the identity, and the Cholesky factor of that.

    The multiple is this share of the mean variance, but at least the rounding errors of a second moment that is summed
    in float32: about sqrt(D) units of 2^-23 of the inputs' mean square. Inputs that hardly differ have no other
    covariance. Where that is still not positive definite, it grows tenfold.
    """
    import torch

    rounding = torch.finfo(torch.float32).eps * math.sqrt(len(covariance)) * mean_square
    ridge = max(float(covariance.diagonal().mean()) * share, rounding) or 1.0
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    while True:
        found = covariance + ridge * identity
        lower, failed = torch.linalg.cholesky_ex(found)
        if not failed:
            return found, lower
        if not ridge < mean_square * len(covariance):
            raise ValueError("infinite covariance")
        ridge *= 10


class LowRankFitter:
    """One layer's positions, to train predictors of any rank on.

    The loss is cross-entropy over all neurons of a position; an active one is weighted by its contribution, so that
    little is missed. Inputs are standardised while training, which is folded into a. Shapes: x [N, D]; contribution [N,
    F], 0 for inactive neurons, negative for those that do not count. Both may be mapped files, or the latter a
    ChosenRows: a batch is read at a time, unless the device holds everything.
    """

    def __init__(self, x: NDArray[Any], contribution: Any, device: str = "cpu") -> None:
        """Raises: DeviceMemoryError."""
        import torch

        self.device = device
        with _memory_of(device):
            self.x, self.contribution = _placed(x, contribution, device)
            mean, deviation, share, mean_contribution = _moments(self.x, self.contribution)
            self.mean, self.deviation = (torch.from_numpy(v).to(device) for v in (mean, deviation))
        # The exponent that turns an active neuron's contribution into its weight.
        self.scale = math.sqrt((1 - share) / share) * POSITIVE_WEIGHT / mean_contribution

    def fit(
        self,
        start: LowRankMap,
        recipe: Recipe | None = None,
        job: Job = Job(),
    ) -> LowRankMap:
        """Train from `start`, whose codec the result has.

        Units: progress reports steps. Cost: 6 R (D + F) operations per position and step, 20 bytes per neuron and
        position of a batch. Raises: Cancelled between two steps, DeviceMemoryError.
        """
        import torch

        recipe = recipe or Recipe()
        with _memory_of(self.device), _fast_products(self.device), torch.no_grad():
            fit = _Fit(self, start, recipe)
            for step in range(recipe.steps):
                job.stop_if_cancelled()
                fit.step(step)
                job.progress(step + 1, recipe.steps)
            return fit.result()


class _Fit:
    """The state of one training. Gradients are written out, which halves the passes over [batch, F]."""

    def __init__(self, of: LowRankFitter, start: LowRankMap, recipe: Recipe) -> None:
        import torch

        self._of = of
        self._recipe = recipe
        self._codec: Codec = start.codec
        self._draw = torch.Generator().manual_seed(recipe.seed)
        a, b = (torch.from_numpy(np.array(w)).to(of.device) for w in (start.a, start.b))
        a_bias, b_bias = (torch.from_numpy(np.array(v)).to(of.device) for v in (start.a_bias, start.b_bias))
        a_bias = a_bias + a @ of.mean  # from here on it reads x less its mean
        self._parts = [a * of.deviation, a_bias, b, b_bias]
        rank, width = a.shape
        # A step's effect on a score grows with the number of products in its sum.
        of_a, of_b = recipe.rate * min(4.0, _USUAL_WIDTH / width), recipe.rate * min(1.0, _USUAL_RANK / rank)
        self._rates = (of_a, recipe.rate, of_b, recipe.rate)
        self._averages = [(torch.zeros_like(part), torch.zeros_like(part)) for part in self._parts]

    def step(self, number: int) -> None:
        import torch

        recipe = self._recipe
        of = self._of
        picked = torch.randint(0, len(of.x), (min(recipe.batch, len(of.x)),), generator=self._draw)
        x, weight = (_rows(values, picked, of.device) for values in (of.x, of.contribution))
        x -= of.mean
        weight = weight.mul_(of.scale).clamp_(max=LARGEST_WEIGHT)

        a, a_bias, b, b_bias = self._parts
        folded, second = a / of.deviation, b
        if number >= recipe.steps * (1 - _ROUNDED_SHARE):
            folded, second = _rounded(folded, self._codec), _rounded(second, self._codec)
        before = torch.addmm(a_bias, x, folded.T)
        hidden = before.relu()
        probability = torch.addmm(b_bias, hidden, second.T).sigmoid_()
        # Of weight log(1 + e^-score) if active, of log(1 + e^score) if not.
        slope = torch.where(weight > 0, weight * (probability - 1), probability)
        slope.mul_(weight >= 0).div_(max(1, int(torch.count_nonzero(weight >= 0))))
        back = (slope @ second).mul_(before > 0)
        self._descend(number, [(back.T @ x) / of.deviation, back.sum(0), slope.T @ hidden, slope.sum(0)])

    def _descend(self, number: int, slopes: list[Tensor]) -> None:
        """Adam, written out: importing torch.optim takes longer than a small layer's training."""
        slowing = 0.5 * (1 + math.cos(math.pi * number / self._recipe.steps)) * min(1.0, (number + 1) / 20)
        for part, slope, (mean, square), rate in zip(self._parts, slopes, self._averages, self._rates, strict=True):
            mean.lerp_(slope, 1 - _MEAN_DECAY)
            square.mul_(_SQUARE_DECAY).addcmul_(slope, slope, value=1 - _SQUARE_DECAY)
            size = (square / (1 - _SQUARE_DECAY ** (number + 1))).sqrt_().add_(1e-8)
            part.addcdiv_(mean, size, value=-rate * slowing / (1 - _MEAN_DECAY ** (number + 1)))

    def result(self) -> LowRankMap:
        a, a_bias, b, b_bias = self._parts
        folded, second = _rounded(a / self._of.deviation, self._codec), _rounded(b, self._codec)
        first_bias = a_bias - folded @ self._of.mean
        return LowRankMap(_array(folded), _array(first_bias), _array(second), _array(b_bias), self._codec)


def _rounded_map(a: Tensor, b: Tensor, at_mean: Tensor, mean: Tensor, codec: Codec) -> LowRankMap:
    """Return a and b as stored, with biases that keep the scores at the mean input."""
    a, b = _rounded(a, codec), _rounded(b, codec)
    a_bias = SHIFT - a @ mean.float()
    b_bias = at_mean.float() - SHIFT * b.sum(1)
    return LowRankMap(_array(a), _array(a_bias), _array(b), _array(b_bias), codec)


def _rounded(w: Tensor, codec: Codec) -> Tensor:
    """Round w [N, M] like the codec in native_kernels/codecs."""
    import torch

    codec = stored_codec(w.shape[1], codec)
    if codec == "f16":
        return w.half().float()
    blocks = w.reshape(len(w), -1, CODECS[codec].block_size)
    largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
    if codec == "q4_0":
        scale = largest / -8
        inverse = torch.where(scale != 0, 1 / scale, torch.zeros_like(scale))
        whole = (blocks * inverse + 8.5).trunc().clamp_(max=15) - 8
    else:
        scale = (largest / 127).abs()
        inverse = torch.where(scale != 0, 1 / scale, torch.zeros_like(scale))
        whole = (blocks * inverse).round()
    return (whole * scale.half().float()).reshape(w.shape)


def _placed(x: NDArray[Any], contribution: Any, device: str) -> tuple[Any, Any]:
    """Return both on the device if half of its free memory holds them; else unchanged."""
    if device == "cpu":
        return x, contribution
    import torch

    free, _ = torch.cuda.mem_get_info()
    if x.nbytes + contribution.nbytes > free // 2:
        return x, contribution
    placed = [torch.from_numpy(np.ascontiguousarray(values)).to(device) for values in (x, contribution)]
    return placed[0], placed[1]


def _rows(values: Any, picked: Tensor, device: str) -> Tensor:
    """Return the picked rows as float32 on the device."""
    import torch

    if isinstance(values, torch.Tensor):
        return values[picked.to(device)].float()
    return torch.from_numpy(values[picked.numpy()]).to(device).float()


def _moments(x: Any, contribution: Any) -> tuple[F32, F32, float, float]:
    """Return mean and deviation [D] of the inputs, the share of active neurons, and the mean contribution of one."""
    import torch

    total = squares = torch.zeros(x.shape[1], dtype=torch.float64)
    n_fired, n_counted, contributed = 0, 0, 0.0
    for start in range(0, len(x), _PIECE_POSITIONS):
        part, counted = (torch.as_tensor(values[start : start + _PIECE_POSITIONS]) for values in (x, contribution))
        part = part.double()
        total, squares = total + part.sum(0).cpu(), squares + (part * part).sum(0).cpu()
        n_fired += int(torch.count_nonzero(counted > 0))
        n_counted += int(torch.count_nonzero(counted >= 0))
        contributed += float(counted.clamp(min=0).sum(dtype=torch.float64))
    mean = (total / len(x)).numpy()
    deviation = np.sqrt(np.maximum((squares / len(x)).numpy() - mean * mean, 0))
    floor = max(float(deviation.mean()) * 1e-3, 1e-12)
    share = min(max(n_fired / max(1, n_counted), 1e-6), 1 - 1e-6)
    each = contributed / n_fired if contributed > 0 else 1.0
    return mean.astype(np.float32), np.maximum(deviation, floor).astype(np.float32), share, each


def _array(values: Tensor) -> F32:
    found: F32 = values.detach().float().cpu().numpy()
    return np.ascontiguousarray(found)


@contextmanager
def _fast_products(device: str) -> Iterator[None]:
    """On a GPU, products of float32 may round their factors to 10 bits: a predictor's noise is far larger."""
    if device == "cpu":
        yield
        return
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _memory_of(device: str) -> Iterator[None]:
    """Convert out-of-memory errors of the device to the engine's."""
    if device == "cpu":
        yield
        return
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise DeviceMemoryError(f"Fitting a predictor needs more memory than {device} has free: {error}.") from error
