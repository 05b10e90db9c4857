"""Which neurons are expected to fire for a token: the Predictor type, its reading and writing. It is not trained here.

Paper: PowerInfer, section 5.1 (adaptive sparsity predictors).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.errors import ArtifactMismatchError, ModelFormatError
from engine.sparsity.artifact_files import load_artifact, open_tensors, read_head, save_artifact
from engine.sparsity.predictor_parts import bias, codec_name, matrix, optional_number
from native_kernels.backend import F32, I32, Operators, PackedMatrix
from native_kernels.codecs import CODECS
from native_kernels.reference import ReferenceOperators

Kind = Literal["low_rank"]
Input = Literal["residual", "normed"]

SCHEMA_VERSION = 1
ARTIFACT_NAME = "predictor"


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
        for added, n_rows in ((self.a_bias, self.a.n_rows), (self.b_bias, self.b.n_rows)):
            if added is not None and added.shape != (n_rows,):
                raise ModelFormatError(f"A predictor's bias has the shape {list(added.shape)} beside {n_rows} rows.")
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
    model: fingerprint of the model, "" where unknown. activation: what it predicts the zeros of, as
    `ModelConfig.activation_text`; None where the publisher did not say.
    """

    kind: Kind
    input: Input
    layers: tuple[LayerPredictor, ...]
    model: str = ""
    activation: str | None = None
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

    def save(
        self,
        folder: Path,
        progress: Callable[[int], None] = lambda done: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Path:
        """Writes predictor.json and predictor.safetensors into the folder; the former's path back.

        Matrices keep their codec, bit by bit. Raises as `save_artifact` does.
        """
        tensors: dict[str, NDArray[Any]] = {}
        listed = []
        for i, layer in enumerate(self.layers):
            parts = {"a": layer.a.data, "b": layer.b.data, "a_bias": layer.a_bias, "b_bias": layer.b_bias}
            tensors |= {f"{i}.{name}": value for name, value in parts.items() if value is not None}
            entry = {key: getattr(layer, key) for key in ("rank", "threshold", "recall", "precision")}
            packed = {
                f"{name}_codec": w.codec for name, w in (("a", layer.a), ("b", layer.b)) if w.data.dtype == np.uint8
            }
            listed.append({**entry, **packed})
        values = {"kind": self.kind, "input": self.input, "model": self.model, "activation": self.activation,
                  "width": self.d_model, "layers": listed}  # fmt: skip
        return save_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, values, tensors, progress, cancelled)

    @classmethod
    def load(
        cls, folder: Path, model: str | None = None, activation: str | None = None, as_stored: bool = False
    ) -> Predictor:
        """What `save` wrote, its matrices mapped; packed ones are unpacked, unless as_stored.

        model, activation: what it must have been made from, None for any.
        Raises: ModelNotFoundError, ModelFormatError, ArtifactMismatchError.
        """
        values, source = load_artifact(folder, ARTIFACT_NAME, SCHEMA_VERSION, model, activation)
        head = f"{ARTIFACT_NAME}.json in {folder}"
        kind, reads, made_from = (values.get(key) for key in ("kind", "input", "model"))
        if kind != "low_rank" or reads not in ("residual", "normed") or not isinstance(made_from, str):
            raise ModelFormatError(f"{head} lacks a kind, an input or a model that this Hearth knows.")
        layers = []
        for i, entry in enumerate(_listed_layers(values, head)):
            numbers = {key: optional_number(entry.get(key), f"{key} of layer {i} in {head}")
                       for key in ("threshold", "recall", "precision")}  # fmt: skip
            a_codec, b_codec = (codec_name(entry.get(f"{part}_codec"), f"layer {i} in {head}") for part in "ab")
            a = matrix(source, f"{i}.a", as_stored, a_codec, values.get("width"))
            layers.append(
                LayerPredictor(
                    a,
                    matrix(source, f"{i}.b", as_stored, b_codec, a.n_rows),
                    numbers["threshold"] or 0.0,
                    bias(source, f"{i}.a_bias"),
                    bias(source, f"{i}.b_bias"),
                    numbers["recall"],
                    numbers["precision"],
                )
            )
        return cls("low_rank", reads, tuple(layers), made_from, values.get("activation"))


def stored_sizes(folder: Path, model: str | None = None, activation: str | None = None) -> tuple[int, int]:
    """(bytes of the matrices that `load` will read, bytes of packed ones among them once unpacked); from the heads.

    Raises: ModelNotFoundError, ModelFormatError, ArtifactMismatchError.
    """
    values = read_head(folder, ARTIFACT_NAME, SCHEMA_VERSION, model, activation)
    head = f"{ARTIFACT_NAME}.json in {folder}"
    tensors = open_tensors(folder, ARTIFACT_NAME).tensors
    unpacked = 0
    for i, entry in enumerate(_listed_layers(values, head)):
        for part in "ab":
            codec, info = codec_name(entry.get(f"{part}_codec"), f"layer {i} in {head}"), tensors.get(f"{i}.{part}")
            if codec is not None and info is not None:
                unpacked += 4 * CODECS[codec].block_size * (info.n_bytes // CODECS[codec].type_size)
    return sum(info.n_bytes for info in tensors.values()), unpacked


def _listed_layers(values: dict[str, Any], head: str) -> list[dict[str, Any]]:
    listed = values.get("layers")
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise ModelFormatError(f"{head} lacks its list of layers.")
    return listed
