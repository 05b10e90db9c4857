"""Read predictors that come with PowerInfer's models: in their GGUF file, or as a folder of PyTorch files.

Both read the residual before the norm, have no biases, and vary in rank between layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ModelFormatError, ModelNotFoundError
from engine.formats import TensorSource
from engine.formats.json_text import read_object
from engine.formats.torch_pickle import BF16, Tensor, read_torch
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from engine.sparsity.predictor_parts import (
    bias,
    finite_bias,
    finite_matrix,
    matrix,
    packed_matrix,
    sparse_threshold,
)
from native_kernels.backend import PackedMatrix

THRESHOLD_KEY = "powerinfer.sparse_threshold"

_GGUF_NAME = re.compile(r"blk\.(0|[1-9]\d{0,5})\.fc[12]\.(?:weight|bias)")
_FILE_NAME = re.compile(r"model_(0|[1-9]\d{0,5})\.pt")
_MAX_LAYERS = 1024
_MAX_JSON_BYTES = 1 << 20


def is_predictor_tensor(name: str) -> bool:
    """Return whether a GGUF tensor is a predictor's. Hugging Face's OPT uses fc1 and fc2 too; GGUF never."""
    return _GGUF_NAME.fullmatch(name) is not None


def has_own_predictors(source: TensorSource) -> bool:
    """Return whether the weights' file has predictors."""
    return any(is_predictor_tensor(name) for name in source.tensors)


def predictor_from_gguf(source: TensorSource, as_stored: bool = False) -> Predictor:
    """Read the predictors of a PowerInfer GGUF file; f16 and f32 stay mapped, with as_stored all codecs.

    Raises: ModelFormatError if a layer's predictor is missing or does not fit.
    """
    found = {int(match[1]) for name in source.tensors if (match := _GGUF_NAME.fullmatch(name))}
    _require_all(found, lambda layer: f"blk.{layer}.fc1.weight")
    threshold = sparse_threshold(source.metadata, THRESHOLD_KEY, "the GGUF metadata")
    layers = [
        LowRank(
            matrix(source, f"blk.{i}.fc1.weight", as_stored),
            matrix(source, f"blk.{i}.fc2.weight", as_stored),
            bias(source, f"blk.{i}.fc1.bias"),
            bias(source, f"blk.{i}.fc2.bias"),
            threshold,
        )
        for i in range(len(found))
    ]
    return Predictor(tuple(LayerPredictor(layer, input="residual") for layer in layers))


def gguf_sizes(source: TensorSource) -> tuple[int, int]:
    """Return (stored bytes of a GGUF file's predictors, RAM of those neither f16 nor f32 once unpacked)."""
    own = [info for name, info in source.tensors.items() if is_predictor_tensor(name)]
    packed = [info for info in own if info.codec not in ("f32", "f16")]
    return sum(info.n_bytes for info in own), sum(4 * info.n_elements for info in packed)


def predictor_files(folder: Path) -> dict[int, Path]:
    """Return layer -> model_N.pt of a predictor repository; empty for other folders."""
    return {int(match[1]): path for path in sorted(folder.glob("model_*.pt"))
            if (match := _FILE_NAME.fullmatch(path.name))}  # fmt: skip


def folder_sizes(folder: Path) -> tuple[int, int, int]:
    """Return (stored bytes, RAM of unpacked bfloat16, RAM of copies) of a predictor repository.

    Tensors that are not stored row by row are copied. Cost: reads the files' headers.
    Raises: ModelNotFoundError, ModelFormatError, UnsupportedModelError as `read_predictor_folder`.
    """
    stored = unpacked = copied = 0
    for path in predictor_files(folder).values():
        for values in read_torch(path, unpack=False).values():
            stored += values.nbytes
            unpacked += 2 * values.nbytes if values.dtype == BF16 else 0
            copied += 0 if values.flags.c_contiguous else values.nbytes
    return stored, unpacked, copied


def read_predictor_folder(folder: Path, as_stored: bool = False) -> Predictor:
    """Read model_0.pt, model_1.pt, ..., and sparse_threshold of config.json if it has one.

    Matrices stay mapped; bfloat16 is unpacked unless as_stored.
    Raises: ModelNotFoundError if there are none, ModelFormatError for a missing layer or damage.
    """
    files = predictor_files(folder)
    if not files:
        raise ModelNotFoundError(f"There is no model_0.pt in {folder}.")
    _require_all(set(files), lambda layer: f"model_{layer}.pt")
    threshold = sparse_threshold(_config(folder / "config.json"), "sparse_threshold", "config.json")
    layers = [_read_layer(files[layer], threshold, as_stored) for layer in range(len(files))]
    return Predictor(tuple(LayerPredictor(layer, input="residual") for layer in layers))


def _read_layer(path: Path, threshold: float, as_stored: bool) -> LowRank:
    tensors = read_torch(path, unpack=False)
    surplus = tensors.keys() - {"fc1.weight", "fc2.weight", "fc1.bias", "fc2.bias"}
    if surplus or not {"fc1.weight", "fc2.weight"} <= tensors.keys():
        shown = ", ".join(sorted(tensors))[:100]
        raise ModelFormatError(f"{path.name} holds {shown or 'nothing'}; a predictor is fc1.weight and fc2.weight.")
    biases = {name: finite_bias(_numbers(tensors[name]), f"{name} in {path.name}") for name in ("fc1.bias", "fc2.bias")
              if name in tensors}  # fmt: skip
    return LowRank(
        _matrix(tensors["fc1.weight"], f"fc1.weight in {path.name}", as_stored),
        _matrix(tensors["fc2.weight"], f"fc2.weight in {path.name}", as_stored),
        biases.get("fc1.bias"),
        biases.get("fc2.bias"),
        threshold,
    )


def _matrix(values: Tensor, what: str, as_stored: bool) -> PackedMatrix:
    if values.dtype != BF16 or values.ndim != 2 or not values.size:
        return finite_matrix(_numbers(values), what)
    n_rows, n_cols = values.shape
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(n_rows, -1)
    return packed_matrix(rows, what, "bf16", n_cols, as_stored)


def _numbers(values: Tensor) -> Tensor:
    """Convert to a type that NumPy computes with."""
    if values.dtype != BF16:
        return values
    halves = np.ascontiguousarray(values).view("<u2")
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _config(path: Path) -> dict[str, Any]:
    return read_object(path, max_bytes=_MAX_JSON_BYTES, max_values=1 << 16) if path.exists() else {}


def _require_all(found: set[int], name: Callable[[int], str]) -> None:
    if len(found) > _MAX_LAYERS:
        raise ModelFormatError(f"There are predictors of {len(found)} layers; at most {_MAX_LAYERS} are accepted.")
    for layer in range(len(found)):
        if layer not in found:
            raise ModelFormatError(f"The predictors go up to layer {max(found)}, and {name(layer)} is missing.")
