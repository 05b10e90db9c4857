"""Which neurons are expected to fire for a token: the Predictor type, its reading and writing. It is not trained here.

Paper: PowerInfer, section 5.1 (adaptive sparsity predictors).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.errors import ArtifactMismatchError, ModelFormatError
from engine.formats import TensorSource
from engine.sparsity.artifact_files import load_artifact, save_artifact
from native_kernels.backend import F32, I32, Operators, PackedMatrix
from native_kernels.codecs import CODECS
from native_kernels.reference import ReferenceOperators

Kind = Literal["low_rank"]
Input = Literal["residual", "normed"]

SCHEMA_VERSION = 1
ARTIFACT_NAME = "predictor"
_PIECE_ROWS = 256


@dataclass(frozen=True, eq=False)
class LayerPredictor:
    """Predicts one layer's neurons: score = b relu(a x + a_bias) + b_bias, active where score >= threshold.

    R is a layer's own rank. recall and precision were measured when it was made; None where nobody has.
    """

    a: PackedMatrix  # [R, D]
    b: PackedMatrix  # [F, R]
    threshold: float = 0.0  # a score of 0 is a probability of one half
    a_bias: F32 | None = None  # [R]
    b_bias: F32 | None = None  # [F]
    recall: float | None = None
    precision: float | None = None

    def __post_init__(self) -> None:
        if self.b.n_cols != self.a.n_rows:
            raise ModelFormatError(
                f"A predictor of rank {self.a.n_rows} has {self.b.n_cols} columns in its second half."
            )
        for bias, n_rows in ((self.a_bias, self.a.n_rows), (self.b_bias, self.b.n_rows)):
            if bias is not None and bias.shape != (n_rows,):
                raise ModelFormatError(f"A predictor's bias has the shape {list(bias.shape)} beside {n_rows} rows.")
        if not math.isfinite(self.threshold):
            raise ModelFormatError(f"A predictor's threshold is {self.threshold}, which is no number to compare with.")

    @property
    def rank(self) -> int:
        return self.a.n_rows


@dataclass(frozen=True, eq=False)
class Predictor:
    """The predictors of all layers.

    input: what a layer's predictor reads. "residual": what the norm before the FFN reads, which is after attention, and
    the layer's own input where attention and FFN run in parallel. "normed": what that norm makes of it.
    model: fingerprint of the model, "" where unknown.
    """

    kind: Kind
    input: Input
    layers: tuple[LayerPredictor, ...]
    model: str = ""
    operators: Operators = ReferenceOperators()  # noqa: RUF009 - it keeps no state

    def __post_init__(self) -> None:
        if not self.layers:
            raise ModelFormatError("The predictor has no layers.")
        for i, layer in enumerate(self.layers):
            if (layer.a.n_cols, layer.b.n_rows) != (self.d_model, self.d_ff):
                raise ModelFormatError(
                    f"The predictor of layer {i} is for a width of {layer.a.n_cols} and {layer.b.n_rows} neurons; "
                    f"that of layer 0 for {self.d_model} and {self.d_ff}."
                )

    @property
    def d_model(self) -> int:
        return self.layers[0].a.n_cols

    @property
    def d_ff(self) -> int:
        return self.layers[0].b.n_rows

    @property
    def n_bytes(self) -> int:
        """What the matrices take."""
        return sum(layer.a.n_bytes + layer.b.n_bytes for layer in self.layers)

    def scores(self, layer: int, x: F32) -> F32:
        """x [T, D] -> [T, F]; a neuron is expected to fire where its score reaches the layer's threshold."""
        part = self.layers[layer]
        hidden = self.operators.matmul(x, part.a)
        if part.a_bias is not None:
            hidden += part.a_bias
        scores = self.operators.matmul(self.operators.relu(hidden), part.b)
        if part.b_bias is not None:
            scores += part.b_bias
        return scores

    def expected(self, layer: int, x: F32) -> NDArray[np.bool_]:
        """Which neurons are expected to fire: x [T, D] -> [T, F]."""
        return np.greater_equal(self.scores(layer, x), np.float32(self.layers[layer].threshold))

    def active(self, layer: int, x: F32) -> I32:
        """The neurons expected to fire for one token: x [D] -> ids i32 [K], ascending."""
        return np.flatnonzero(self.expected(layer, x[None])[0]).astype(np.int32)

    def with_threshold(self, threshold: float) -> Predictor:
        """The same with another threshold in every layer; a lower one raises recall and cost."""
        return replace(self, layers=tuple(replace(layer, threshold=threshold) for layer in self.layers))

    def check_against(self, n_layers: int, d_model: int, d_ff: int) -> None:
        """Raises ArtifactMismatchError unless it is for a model of that shape."""
        mine, models = (len(self.layers), self.d_model, self.d_ff), (n_layers, d_model, d_ff)
        if mine != models:
            words = [
                f"{layers} layers, width {width} and {neurons} neurons" for layers, width, neurons in (mine, models)
            ]
            raise ArtifactMismatchError(f"The predictor is for {words[0]}; the model has {words[1]}.")

    def save(self, folder: Path) -> Path:
        """Writes predictor.json and predictor.safetensors into the folder; the former's path back."""
        tensors: dict[str, NDArray[Any]] = {}
        for i, layer in enumerate(self.layers):
            parts = {"a": _plain(layer.a), "b": _plain(layer.b), "a_bias": layer.a_bias, "b_bias": layer.b_bias}
            tensors |= {f"{i}.{name}": value for name, value in parts.items() if value is not None}
        listed = [{key: getattr(layer, key) for key in ("rank", "threshold", "recall", "precision")}
                  for layer in self.layers]  # fmt: skip
        values = {"kind": self.kind, "input": self.input, "model": self.model, "layers": listed}
        return save_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, values, tensors)

    @classmethod
    def load(cls, folder: Path, model: str | None = None) -> Predictor:
        """What `save` wrote, its matrices mapped. model: the fingerprint it must have been made from.

        Raises: ModelNotFoundError, ModelFormatError, ArtifactMismatchError.
        """
        values, source = load_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, model)
        head = f"{ARTIFACT_NAME}.json in {folder}"
        kind, reads, listed, made_from = (values.get(key) for key in ("kind", "input", "layers", "model"))
        if kind != "low_rank" or reads not in ("residual", "normed") or not isinstance(made_from, str):
            raise ModelFormatError(f"{head} lacks a kind, an input or a model that this Hearth knows.")
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise ModelFormatError(f"{head} lacks its list of layers.")
        layers = []
        for i, entry in enumerate(listed):
            numbers = {key: optional_number(entry.get(key), f"{key} of layer {i} in {head}")
                       for key in ("threshold", "recall", "precision")}  # fmt: skip
            layers.append(
                LayerPredictor(
                    matrix(source, f"{i}.a"),
                    matrix(source, f"{i}.b"),
                    numbers["threshold"] or 0.0,
                    bias(source, f"{i}.a_bias"),
                    bias(source, f"{i}.b_bias"),
                    numbers["recall"],
                    numbers["precision"],
                )
            )
        return cls("low_rank", reads, tuple(layers), made_from)


def _plain(w: PackedMatrix) -> NDArray[Any]:
    """Its values in f32 or f16."""
    return w.data if w.codec in ("f32", "f16") else ReferenceOperators().rows(w, np.arange(w.n_rows))


def matrix(source: TensorSource, name: str, as_stored: bool = False) -> PackedMatrix:
    """The tensor as a matrix: mapped where it is stored as f32 or f16, otherwise decoded.

    as_stored: mapped in every codec that the operators read, to be unpacked on use.
    Raises: ModelFormatError where it is missing, no matrix, or holds values that are no numbers.
    """
    info = source.tensors.get(name)
    if info is None or len(info.shape) != 2:
        raise ModelFormatError(f"The predictor lacks the matrix {name}.")
    if info.codec == "f32":
        return finite_matrix(source.view(name).view("<f4").reshape(info.shape), name)
    if info.codec == "f16":
        return finite_matrix(source.view(name).view("<f2").reshape(info.shape), name)
    if as_stored and info.codec in CODECS:
        stored = PackedMatrix.view(source.view(name), *info.shape, info.codec)
        for start in range(0, stored.n_rows, _PIECE_ROWS):
            ids = np.arange(start, min(start + _PIECE_ROWS, stored.n_rows))
            finite_matrix(ReferenceOperators().rows(stored, ids), name)
        return stored
    return finite_matrix(source.read_f32(name), name)


def finite_matrix(values: NDArray[Any], name: str) -> PackedMatrix:
    """The f32 or f16 values [n_rows, n_cols] as they lie. Raises ModelFormatError unless all of them are numbers."""
    if values.ndim != 2 or not values.size or values.dtype not in (np.float32, np.float16):
        raise ModelFormatError(f"The predictor's {name} is {values.dtype} {list(values.shape)}, which is no matrix.")
    step = max(1, (4 << 20) // values[0].nbytes)
    for start in range(0, len(values), step):
        if not np.isfinite(values[start : start + step]).all():
            raise ModelFormatError(f"The predictor's {name} holds values that are no numbers.")
    return PackedMatrix.pack(values, "f32" if values.dtype == np.float32 else "f16")


def bias(source: TensorSource, name: str) -> F32 | None:
    """The tensor as float32 [n]; None where there is none."""
    if name not in source.tensors:
        return None
    return finite_bias(source.read_f32(name), name)


def finite_bias(values: NDArray[Any], name: str) -> F32:
    """The values as float32. Raises ModelFormatError unless all of them are numbers."""
    numbers: F32 = np.asarray(values, np.float32)
    if not np.isfinite(numbers).all():
        raise ModelFormatError(f"The predictor's {name} holds values that are no numbers.")
    return numbers


def optional_number(value: Any, what: str) -> float | None:
    """A finite number of a file, or None where it gives none. Raises ModelFormatError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
        raise ModelFormatError(f"{what} is {str(value)[:60]!r}; expected is a number.")
    return float(value)


def sparse_threshold(values: Mapping[str, Any], key: str, where: str) -> float:
    """The threshold that a publisher wrote down for all layers; 0, one half as a probability, where none is given."""
    return optional_number(values.get(key), f"{key} in {where}") or 0.0
