"""Reads the predictors that PowerInfer's models come with: inside their GGUF file, or as a folder of PyTorch files.

Both read the residual before the norm, have no biases, and differ in rank from layer to layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.errors import ModelFormatError, ModelNotFoundError
from engine.formats import TensorSource
from engine.formats.json_text import read_object
from engine.formats.torch_pickle import read_torch
from engine.sparsity.predictor import (
    LayerPredictor,
    Predictor,
    bias,
    finite_bias,
    finite_matrix,
    matrix,
    sparse_threshold,
)

THRESHOLD_KEY = "powerinfer.sparse_threshold"

_GGUF_NAME = re.compile(r"blk\.(0|[1-9]\d{0,5})\.fc[12]\.(?:weight|bias)")
_FILE_NAME = re.compile(r"model_(0|[1-9]\d{0,5})\.pt")
_MAX_LAYERS = 1024
_MAX_JSON_BYTES = 1 << 20


def is_predictor_tensor(name: str) -> bool:
    """Whether a GGUF tensor is a predictor's. Hugging Face's OPT calls its FFN fc1 and fc2 too; GGUF never does."""
    return _GGUF_NAME.fullmatch(name) is not None


def predictor_from_gguf(source: TensorSource, as_stored: bool = False) -> Predictor:
    """The predictors that a PowerInfer GGUF file carries; f16 and f32 stay mapped, with as_stored the others too.

    Raises: ModelFormatError where a layer's are missing or do not fit.
    """
    found = {int(match[1]) for name in source.tensors if (match := _GGUF_NAME.fullmatch(name))}
    _require_all(found, lambda layer: f"blk.{layer}.fc1.weight")
    threshold = sparse_threshold(source.metadata, THRESHOLD_KEY, "the GGUF metadata")
    layers = [
        LayerPredictor(
            matrix(source, f"blk.{i}.fc1.weight", as_stored),
            matrix(source, f"blk.{i}.fc2.weight", as_stored),
            threshold,
            bias(source, f"blk.{i}.fc1.bias"),
            bias(source, f"blk.{i}.fc2.bias"),
        )
        for i in range(len(found))
    ]
    return Predictor("low_rank", "residual", tuple(layers))


def unpacked_bytes(source: TensorSource) -> int:
    """RAM that the predictors of a GGUF file take when those of them that are neither f16 nor f32 are unpacked."""
    return sum(4 * info.n_elements for name, info in source.tensors.items()
               if is_predictor_tensor(name) and info.codec not in ("f32", "f16"))  # fmt: skip


def predictor_files(folder: Path) -> dict[int, Path]:
    """Layer -> model_N.pt of a predictor repository; empty where the folder is none."""
    return {int(match[1]): path for path in sorted(folder.glob("model_*.pt"))
            if (match := _FILE_NAME.fullmatch(path.name))}  # fmt: skip


def read_predictor_folder(folder: Path) -> Predictor:
    """A predictor repository: model_0.pt, model_1.pt ..., and config.json's sparse_threshold where it has one.

    Raises: ModelNotFoundError where there is none, ModelFormatError for a missing layer and for damage.
    """
    files = predictor_files(folder)
    if not files:
        raise ModelNotFoundError(f"There is no model_0.pt in {folder}.")
    _require_all(set(files), lambda layer: f"model_{layer}.pt")
    threshold = sparse_threshold(_config(folder / "config.json"), "sparse_threshold", "config.json")
    return Predictor("low_rank", "residual", tuple(_read_layer(files[layer], threshold) for layer in range(len(files))))


def _read_layer(path: Path, threshold: float) -> LayerPredictor:
    tensors = read_torch(path)
    surplus = tensors.keys() - {"fc1.weight", "fc2.weight", "fc1.bias", "fc2.bias"}
    if surplus or not {"fc1.weight", "fc2.weight"} <= tensors.keys():
        shown = ", ".join(sorted(tensors))[:100]
        raise ModelFormatError(f"{path.name} holds {shown or 'nothing'}; a predictor is fc1.weight and fc2.weight.")
    biases = {name: finite_bias(tensors[name], f"{name} in {path.name}") for name in ("fc1.bias", "fc2.bias")
              if name in tensors}  # fmt: skip
    return LayerPredictor(
        finite_matrix(tensors["fc1.weight"], f"fc1.weight in {path.name}"),
        finite_matrix(tensors["fc2.weight"], f"fc2.weight in {path.name}"),
        threshold,
        biases.get("fc1.bias"),
        biases.get("fc2.bias"),
    )


def _config(path: Path) -> dict[str, Any]:
    return read_object(path, max_bytes=_MAX_JSON_BYTES, max_values=1 << 16) if path.exists() else {}


def _require_all(found: set[int], name: Callable[[int], str]) -> None:
    if len(found) > _MAX_LAYERS:
        raise ModelFormatError(f"There are predictors of {len(found)} layers; at most {_MAX_LAYERS} are accepted.")
    for layer in range(len(found)):
        if layer not in found:
            raise ModelFormatError(f"The predictors go up to layer {max(found)}, and {name(layer)} is missing.")
