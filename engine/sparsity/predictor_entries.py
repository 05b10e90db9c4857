"""Convert one layer's predictor to its entry in predictor.json and its tensors, and back. Opens no files.

docs/bundle.md, section 6 defines the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError
from engine.formats import TensorInfo, TensorSource
from engine.sparsity.predictor_kinds import KINDS, GateCopy, Input, Kind, LayerPredictor, LowRank
from engine.sparsity.predictor_parts import bias, codec_name, copy_codec_name, matrix, optional_number
from native_kernels.codecs import ROW_CODECS


def layer_entry(layer: LayerPredictor) -> dict[str, Any]:
    """Return a layer's entry in the head."""
    entry: dict[str, Any] = {"kind": layer.kind, "input": layer.input}
    if (low_rank := layer.low_rank) is not None:
        entry |= {"rank": low_rank.rank, "threshold": low_rank.threshold}
        entry |= {"read_share": low_rank.read_share} if low_rank.read_share < 1 else {}
        entry |= {f"{name}_codec": w.codec for name, w in (("a", low_rank.a), ("b", low_rank.b))
                  if w.data.dtype == np.uint8}  # fmt: skip
    if (copy := layer.copy) is not None:
        entry |= {"copy_codec": copy.matrix.codec, "copy_threshold": copy.threshold,
                  "signed_input": copy.signed_input}  # fmt: skip
    return entry | {key: getattr(layer, key) for key in ("recall", "precision", "active_share")}


def layer_tensors(layer: LayerPredictor, i: int) -> dict[str, NDArray[Any]]:
    """Return the numbers of layer i by name."""
    parts: dict[str, NDArray[Any] | None] = {}
    if (low_rank := layer.low_rank) is not None:
        parts |= {"a": low_rank.a.data, "b": low_rank.b.data, "a_bias": low_rank.a_bias, "b_bias": low_rank.b_bias}
    if (copy := layer.copy) is not None:
        parts |= {"copy": copy.matrix.data, "copy_bias": copy.bias}
    return {f"{i}.{name}": values for name, values in parts.items() if values is not None}


def read_layer(
    source: TensorSource, i: int, entry: dict[str, Any], head: str, width: Any, as_stored: bool, reads: Any = None
) -> LayerPredictor:
    """Read the layer that `layer_entry` and `layer_tensors` wrote; low-rank matrices are unpacked unless as_stored.

    width: D from the head. reads: the input, if the head states one for all layers (schema 1).
    Raises: ModelFormatError.
    """
    where = f"layer {i} in {head}"
    kind, reads = (entry.get("kind"), entry.get("input")) if reads is None else ("low_rank", reads)
    if kind not in KINDS or reads not in ("residual", "normed"):
        raise ModelFormatError(f"{where} lacks a kind or an input that this Hearth knows.")
    known = ("threshold", "copy_threshold", "recall", "precision", "active_share", "read_share")
    numbers = {key: optional_number(entry.get(key), f"{key} of {where}") for key in known}
    low_rank = copy = None
    if has_low_rank(kind):
        a_codec, b_codec = (codec_name(entry.get(f"{part}_codec"), where) for part in "ab")
        a = matrix(source, f"{i}.a", as_stored, a_codec, width)
        b = matrix(source, f"{i}.b", as_stored, b_codec, a.n_rows)
        low_rank = LowRank(
            a, b, bias(source, f"{i}.a_bias"), bias(source, f"{i}.b_bias"), numbers["threshold"] or 0.0,
            numbers["read_share"] or 1.0,
        )  # fmt: skip
    if has_copy(kind):
        codec, signed = copy_codec_name(entry.get("copy_codec"), where), entry.get("signed_input", False)
        if not isinstance(signed, bool) or (kind != "cascade" and signed != (kind == "sign")):
            raise ModelFormatError(f"{where} does not say whether its copy takes signs.")
        rows = matrix(source, f"{i}.copy", True, codec, width)
        copy = GateCopy(rows, numbers["copy_threshold"] or 0.0, bias(source, f"{i}.copy_bias"), signed)
    reading: Input = "residual" if reads == "residual" else "normed"
    return LayerPredictor(low_rank, copy, reading, numbers["recall"], numbers["precision"], numbers["active_share"])


def unpacked_bytes(tensors: Mapping[str, TensorInfo], i: int, entry: dict[str, Any], head: str) -> int:
    """Return the bytes of layer i's packed low-rank matrices once unpacked. Raises: ModelFormatError."""
    found = 0
    for part in "ab":
        codec, info = codec_name(entry.get(f"{part}_codec"), f"layer {i} in {head}"), tensors.get(f"{i}.{part}")
        if codec is not None and info is not None:
            found += 4 * ROW_CODECS[codec].block_size * (info.n_bytes // ROW_CODECS[codec].type_size)
    return found


def has_low_rank(kind: Kind) -> bool:
    """Return whether predictors of this kind have a low-rank part."""
    return kind in ("low_rank", "cascade")


def has_copy(kind: Kind) -> bool:
    return kind in ("gate_copy", "cascade", "sign")
