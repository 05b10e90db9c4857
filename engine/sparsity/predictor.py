"""Select the neurons that are likely active for a token: the Predictor type and its file format.

engine/sparsity/predictor_kinds.py implements one layer's predictor; engine/training trains it. Paper: PowerInfer,
section 5.1 (adaptive sparsity predictors).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ArtifactMismatchError, ModelFormatError
from engine.job import CancelCheck, CountProgress, never
from engine.sparsity.artifact_files import Listing, load_artifact, open_tensors, read_head, save_artifact
from engine.sparsity.predictor_budget import Budget as Budget
from engine.sparsity.predictor_budget import MeasuredText as MeasuredText
from engine.sparsity.predictor_entries import layer_entry, layer_tensors, read_layer, unpacked_bytes
from engine.sparsity.predictor_kinds import Expected as Expected
from engine.sparsity.predictor_kinds import GateCopy as GateCopy
from engine.sparsity.predictor_kinds import Input as Input
from engine.sparsity.predictor_kinds import Kind as Kind
from engine.sparsity.predictor_kinds import LayerPredictor as LayerPredictor
from engine.sparsity.predictor_kinds import LowRank as LowRank
from native_kernels.backend import F32, I32, Operators
from native_kernels.reference import ReferenceOperators

SCHEMA_VERSION = 2
VERSION_OF_EXPERTS = 3  # the version of heads whose predictors are for experts, which older programs cannot run
_READ_VERSIONS = (1, SCHEMA_VERSION, VERSION_OF_EXPERTS)
ARTIFACT_NAME = "predictor"


@dataclass(frozen=True, eq=False)
class Predictor:
    """The predictors of all layers, each of its own kind.

    model: the model's fingerprint, "" if unknown. activation: as `ModelConfig.activation_text`; None if the publisher
    did not state it. budget: the error budget of its training; None if not measured (other publishers). statistics,
    text: what it was trained with, in words; None if unknown.
    """

    layers: tuple[LayerPredictor, ...]
    model: str = ""
    activation: str | None = None
    budget: Budget | None = None
    statistics: str | None = None
    text: str | None = None
    operators: Operators = ReferenceOperators()  # noqa: RUF009 - it keeps no state

    def __post_init__(self) -> None:
        if not self.layers:
            raise ModelFormatError("The predictor has no layers.")
        known = {i: layer.shape for i, layer in enumerate(self.layers) if layer.shape is not None}
        first = next(iter(known), 0)
        for i, shape in known.items():
            if shape != known[first]:
                raise ModelFormatError(
                    f"The predictor of layer {i} is for a width of {shape[0]} and {shape[1]} neurons; "
                    f"that of layer {first} for {known[first][0]} and {known[first][1]}."
                )

    @property
    def shape(self) -> tuple[int, int] | None:
        """(width D, neurons F); None if the model's own matrices decide in all layers."""
        return next((layer.shape for layer in self.layers if layer.shape is not None), None)

    @property
    def kinds(self) -> dict[Kind, int]:
        """Kind -> number of layers, in order of appearance."""
        return dict(Counter(layer.kind for layer in self.layers))

    @property
    def n_bytes(self) -> int:
        """Bytes of matrices and biases."""
        return sum(layer.n_bytes for layer in self.layers)

    @property
    def version(self) -> int:
        """Return the schema version of its head."""
        parts = [layer.low_rank for layer in self.layers if layer.low_rank is not None]
        return VERSION_OF_EXPERTS if any(part.read_share < 1 for part in parts) else SCHEMA_VERSION

    def expected(self, layer: int, normed: F32, residual: F32) -> Expected:
        """Select neurons from the norm's output and input, both [T, D].

        Raises: ValueError for a layer of kind true_gate.
        """
        return self.layers[layer].expected(normed, residual, self.operators)

    def active(self, layer: int, normed: F32, residual: F32) -> I32:
        """Return the neurons selected for one token: normed, residual [D] -> ids i32 [K], ascending."""
        return np.flatnonzero(self.expected(layer, normed[None], residual[None]).mask[0]).astype(np.int32)

    def check_against(self, n_layers: int, d_model: int, d_ff: int) -> None:
        """Raise ArtifactMismatchError unless it is for a model of that shape. d_ff: of all experts of a layer."""
        mine, models = (len(self.layers), *(self.shape or (d_model, d_ff))), (n_layers, d_model, d_ff)
        if mine != models:
            words = [
                f"{layers} layers, width {width} and {neurons} neurons" for layers, width, neurons in (mine, models)
            ]
            raise ArtifactMismatchError(f"The predictor is for {words[0]}; the model has {words[1]}.")

    def save(
        self,
        folder: Path,
        progress: CountProgress = lambda done: None,
        cancelled: CancelCheck = never,
        listing: Listing | None = None,
    ) -> Path:
        """Write predictor.json and predictor.safetensors into the folder; return the former's path.

        Matrices keep their codec bit by bit. listing and errors: as in `save_artifact`.
        """
        tensors: dict[str, NDArray[Any]] = {}
        for i, layer in enumerate(self.layers):
            tensors |= layer_tensors(layer, i)
        values = {
            "model": self.model,
            "activation": self.activation,
            "width": None if self.shape is None else self.shape[0],
            "budget": None if self.budget is None else self.budget.to_json(),
            "statistics": self.statistics,
            "text": self.text,
            "layers": [layer_entry(layer) for layer in self.layers],
        }
        return save_artifact(folder, ARTIFACT_NAME, self.version, values, tensors, progress, cancelled, listing)

    @classmethod
    def load(
        cls, folder: Path, model: str | None = None, activation: str | None = None, as_stored: bool = False
    ) -> Predictor:
        """Read what `save` wrote, with matrices mapped; packed low-rank ones are unpacked unless as_stored.

        model, activation: required origins, None for any.
        Raises: ModelNotFoundError, ModelFormatError, ArtifactMismatchError.
        """
        values, source = load_artifact(folder, ARTIFACT_NAME, _READ_VERSIONS, model, activation)
        head = f"{ARTIFACT_NAME}.json in {folder}"
        reads = None
        if values["schema_version"] == 1:  # one kind and input for all layers
            reads = values.get("input")
            if values.get("kind") != "low_rank" or reads not in ("residual", "normed"):
                raise ModelFormatError(f"{head} lacks a kind or an input that this Hearth knows.")
        if not isinstance(made_from := values.get("model"), str):
            raise ModelFormatError(f"{head} lacks the model that it was made from.")
        layers = tuple(
            read_layer(source, i, entry, head, values.get("width"), as_stored, reads)
            for i, entry in enumerate(_listed_layers(values, head))
        )
        budget = Budget.from_json(values.get("budget"), head)
        statistics, text = (_words(values.get(key), key, head) for key in ("statistics", "text"))
        return cls(layers, made_from, values.get("activation"), budget, statistics, text)


def stored_sizes(folder: Path, model: str | None = None, activation: str | None = None) -> tuple[int, int]:
    """Return (bytes that `load` reads, bytes of packed ones once unpacked), from headers.

    Raises: ModelNotFoundError, ModelFormatError, ArtifactMismatchError.
    """
    values, head = _head(folder, model, activation)
    tensors = open_tensors(folder, ARTIFACT_NAME).tensors
    unpacked = sum(unpacked_bytes(tensors, i, entry, head) for i, entry in enumerate(_listed_layers(values, head)))
    return sum(info.n_bytes for info in tensors.values()), unpacked


def stored_kinds(folder: Path, model: str | None = None, activation: str | None = None) -> dict[str, int]:
    """Return kind -> number of layers, from the head. Raises: as `stored_sizes`."""
    values, head = _head(folder, model, activation)
    return dict(Counter(str(entry.get("kind", "low_rank"))[:40] for entry in _listed_layers(values, head)))


def _head(folder: Path, model: str | None, activation: str | None) -> tuple[dict[str, Any], str]:
    values = read_head(folder, ARTIFACT_NAME, _READ_VERSIONS, model, activation)
    return values, f"{ARTIFACT_NAME}.json in {folder}"


def _listed_layers(values: dict[str, Any], head: str) -> list[dict[str, Any]]:
    listed = values.get("layers")
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise ModelFormatError(f"{head} lacks its list of layers.")
    return listed


def _words(value: Any, key: str, head: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ModelFormatError(f"{head} says a {key} that is not text.")
    return value
