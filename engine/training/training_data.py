"""The data for training predictors: texts, split three ways, and one layer's inputs and activity at their positions.

One layer's positions are kept at a time, in a temporary file if there are many. Nothing is trained here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidRequestError
from engine.model.weights import FfnWeights
from engine.training.layer_walk import LayerBatch, ModelParts
from engine.training.residual_stream import ResidualStream
from native_kernels.backend import F32, PackedMatrix
from native_kernels.reference import ReferenceOperators

F16 = NDArray[np.float16]
F64 = NDArray[np.float64]

# Positions for setting thresholds: with 5 % of 1792 neurons active they have 180,000 values.
MOST_CALIBRATION = 2048
_LARGEST_HALF = 60_000.0
_PIECE_ROWS = 256


@dataclass(frozen=True)
class TrainingTexts:
    """Sequences of token ids, each in one part only; held_out by kind."""

    train: list[list[int]] = field(default_factory=list)
    calibration: list[list[int]] = field(default_factory=list)
    held_out: dict[str, list[list[int]]] = field(default_factory=dict)

    @property
    def walked(self) -> list[list[int]]:
        """Return what goes through the model layer by layer: the sequences for training, then those for thresholds."""
        return self.train + self.calibration

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for part in (self.train, self.calibration, *(self.held_out[kind] for kind in sorted(self.held_out))):
            for sequence in (*part, []):
                digest.update(np.asarray(sequence, "<i8").tobytes() + b"\n")
        return digest.hexdigest()


def spread(sequences: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Return sequences with about this many tokens, spread evenly over all of them."""
    total = sum(map(len, sequences))
    wanted = min(len(sequences), max(3, round(len(sequences) * tokens / max(1, total))))
    return [list(sequences[at * len(sequences) // wanted]) for at in range(wanted)]


def split_texts(kinds: dict[str, list[list[int]]]) -> TrainingTexts:
    """Split every kind: eight sequences of ten for training, one for thresholds, one held out; of a few one each.

    Raises: InvalidRequestError for a kind with less than three sequences: nothing could be held out.
    """
    texts = TrainingTexts()
    for kind, sequences in kinds.items():
        if len(sequences) < 3:
            raise InvalidRequestError(
                f"Of {kind} there are {len(sequences)} sequences; predictors need three at least: to be trained, set "
                "and checked on.",
                "Give a longer text, or more tokens.",
            )
        every = min(10, len(sequences))
        texts.held_out[kind] = sequences[every - 1 :: every]
        texts.calibration.extend(sequences[every - 2 :: every])
        texts.train.extend(sequence for at, sequence in enumerate(sequences) if at % every < every - 2)
    return texts


class ChosenRows:
    """The contributions of all experts' neurons, f16 [N, E F], of which only those of the chosen experts are kept.

    values f16 [N, K F]; experts [N, K]. Neurons of other experts have -1. An index of positions gives an array.
    """

    def __init__(self, values: F16, experts: NDArray[np.int64], n_experts: int) -> None:
        self._values, self._experts = values, experts
        self.shape = len(values), n_experts * values.shape[1] // experts.shape[1]
        self.nbytes = 2 * self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    def __getitem__(self, rows: Any) -> F16:
        experts, values = self._experts[rows], self._values[rows]
        width = values.shape[1] // experts.shape[1]
        found = np.full((len(values), self.shape[1] // width, width), -1, np.float16)
        np.put_along_axis(found, experts[..., None], values.reshape(*experts.shape, width), axis=1)
        return found.reshape(len(values), -1)


class LayerSamples:
    """One layer's FFN inputs and activity: the first n_train positions are for training, the others for thresholds.

    inputs f16 [N, D], normed; contribution f16 [N, F]: the input of down times the length of its row there, over
    `unit`; 0 for inactive neurons. With experts F counts all their neurons, and those of experts that a position did
    not choose have -1. Close it after use.
    """

    def __init__(
        self, layer: int, n_train: int, n_positions: int, d_model: int, d_ff: int, most_ram_bytes: int | None,
        experts: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        """d_ff: of an expert; experts: how many, and how many a token uses."""
        n_experts, n_used = experts
        self._experts = np.zeros((n_positions, n_used), np.int64) if n_experts else None
        self._n_experts = n_experts
        self.layer = layer
        self.n_train = n_train
        self.unit = 0.0
        self._inputs = ResidualStream(n_positions, d_model, most_ram_bytes, np.float16)
        try:
            self._contribution = ResidualStream(n_positions, n_used * d_ff, most_ram_bytes, np.float16)
        except BaseException:
            self._inputs.close()
            raise

    @property
    def inputs(self) -> F16:
        return self._inputs.values

    @property
    def contribution(self) -> F16 | ChosenRows:
        values = self._contribution.values
        return values if self._experts is None else ChosenRows(values, self._experts, self._n_experts)

    def add(self, start: int, normed: F32, contribution: F32, experts: NDArray[np.int64] | None = None) -> None:
        """Add positions from number `start` on; contribution [T, F], not yet divided by the unit, which the first batch
        sets. With experts [T, K], contribution is that of the chosen ones, [T, K F].
        """
        if self._experts is not None and experts is not None:
            self._experts[start : start + len(normed)] = experts
        if not self.unit:
            counted = contribution[contribution > 0]
            self.unit = float(counted.mean()) if counted.size else 1.0
        stop = start + len(normed)
        self.inputs[start:stop] = np.clip(normed, -_LARGEST_HALF, _LARGEST_HALF)
        scaled = contribution / np.float32(self.unit)
        # Keep active neurons above zero: the smallest nonzero half is 6e-8.
        self._contribution.values[start:stop] = np.where(contribution > 0, np.clip(scaled, 1e-7, _LARGEST_HALF), 0)

    def moments(self) -> tuple[F64, F64]:
        """Return mean [D] and second moment [D, D] of the training inputs."""
        width = self.inputs.shape[1]
        mean, second = np.zeros(width), np.zeros((width, width))
        for start in range(0, self.n_train, 1024):
            part = self.inputs[start : min(start + 1024, self.n_train)].astype(np.float32)
            mean += part.sum(0, dtype=np.float64)
            second += part.T @ part
        return mean / self.n_train, second / self.n_train

    def training(self) -> tuple[F16, F16 | ChosenRows]:
        """Return inputs [N, D] and contribution [N, F] of the training positions."""
        values, n = self._contribution.values[: self.n_train], self.n_train
        found = values if self._experts is None else ChosenRows(values, self._experts[:n], self._n_experts)
        return self.inputs[:n], found

    def calibration(self) -> tuple[F32, F32]:
        """Return inputs [T, D] and contribution [T, F] of the threshold positions, spread over them if many."""
        every = slice(self.n_train, None, -(-(len(self.inputs) - self.n_train) // MOST_CALIBRATION))
        return self.inputs[every].astype(np.float32), self.contribution[every].astype(np.float32)

    def close(self) -> None:
        self._inputs.close()
        self._contribution.close()

    def __enter__(self) -> LayerSamples:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SampleKeeper:
    """The visitor of a walk over `texts.walked`: keeps a layer's positions and hands them over when they are
    complete.
    """

    def __init__(
        self,
        parts: ModelParts,
        texts: TrainingTexts,
        hand_over: Callable[[LayerSamples], None],
        wanted: Callable[[int], bool] = lambda layer: True,
        most_ram_bytes: int | None = None,
    ) -> None:
        """wanted: the layers to keep. most_ram_bytes: as `ResidualStream`."""
        self._parts = parts
        self._n_train = sum(map(len, texts.train))
        self._n_positions = sum(map(len, texts.walked))
        self._hand_over = hand_over
        self._wanted = wanted
        self._most_ram_bytes = most_ram_bytes
        self._samples: LayerSamples | None = None
        self._lengths: F32 = np.zeros(0, np.float32)

    def __call__(self, batch: LayerBatch) -> None:
        if not self._wanted(batch.layer):
            return
        config = self._parts.config
        if self._samples is None:
            ffns = self._parts.weights.layers[batch.layer].ffns[: max(1, config.n_experts)]
            self._lengths = np.stack([down_lengths(one) for one in ffns])
            self._samples = LayerSamples(
                batch.layer, self._n_train, self._n_positions, config.d_model, config.d_ff, self._most_ram_bytes,
                (config.n_experts, max(1, config.n_experts_used)),
            )  # fmt: skip
        if batch.routing is None:
            self._samples.add(batch.start, batch.normed, np.abs(batch.hidden) * self._lengths)
        else:
            chosen = batch.routing.experts[:, : config.n_experts_used]
            found = np.zeros((*chosen.shape, config.d_ff), np.float32)
            for expert in np.unique(chosen).tolist():
                positions, places, hidden = batch.hidden_of(expert)
                found[positions, places] = np.abs(hidden) * self._lengths[expert]
            self._samples.add(batch.start, batch.normed, found.reshape(len(batch), -1), chosen)
        if batch.start + len(batch) == self._n_positions:
            with self._samples as samples:
                self._samples = None
                self._hand_over(samples)

    def close(self) -> None:
        """Discard an unfinished layer."""
        if self._samples is not None:
            self._samples.close()
            self._samples = None


def down_lengths(w: FfnWeights) -> F32:
    """Return the length of every neuron's row of down, [F]: the effect of one unit of its hidden value on the
    residual.
    """
    if w.down_t is not None:
        return np.concatenate([np.linalg.norm(rows, axis=1) for rows in _pieces(w.down_t)]).astype(np.float32)
    assert w.down is not None, "a block has down_t or down"
    squares = np.zeros(w.down.n_cols)
    for rows in _pieces(w.down):
        squares += (rows * rows).sum(axis=0, dtype=np.float64)
    lengths: F32 = np.sqrt(squares).astype(np.float32)
    return lengths


def unpacked(matrix: PackedMatrix) -> F32:
    """Return the whole matrix as float32 [N, D]."""
    return np.concatenate(list(_pieces(matrix)))


def _pieces(matrix: PackedMatrix) -> Any:
    operators = ReferenceOperators()
    for start in range(0, matrix.n_rows, _PIECE_ROWS):
        yield operators.rows(matrix, np.arange(start, min(start + _PIECE_ROWS, matrix.n_rows)))
