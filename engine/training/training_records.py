"""Finished layers of a training on disk, so that an interruption costs at most one layer.

An incomplete record counts as none: the layer is done again.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import DiskSpaceError, InvalidRequestError
from engine.sparsity.artifact_files import DISK_FULL
from engine.sparsity.predictor import GateCopy, LowRank
from engine.training.choosing import Candidate, LayerCost
from engine.training.thresholds import Point, Worth
from native_kernels.backend import PackedMatrix


@dataclass(frozen=True, eq=False)
class LayerRecord:
    """The useful ways to predict one layer, and its cost without any."""

    candidates: Sequence[Candidate]
    cost: LayerCost

    def save(self, path: Path) -> None:
        """Write the record atomically. Raises: DiskSpaceError, InvalidRequestError if the folder cannot be written."""
        arrays: dict[str, NDArray[Any]] = {}
        listed = []
        for i, candidate in enumerate(self.candidates):
            entry: dict[str, Any] = {"points": [asdict(point) for point in candidate.points]}
            if (low_rank := candidate.low_rank) is not None:
                entry |= _matrix(arrays, f"{i}.a", low_rank.a) | _matrix(arrays, f"{i}.b", low_rank.b)
                entry["read_share"] = low_rank.read_share
                arrays |= {f"{i}.a_bias": _bias(low_rank.a_bias), f"{i}.b_bias": _bias(low_rank.b_bias)}
            if (copy := candidate.copy) is not None and candidate.worth is not None:
                entry |= _matrix(arrays, f"{i}.copy", copy.matrix)
                entry |= {"signed_input": copy.signed_input, "threshold": candidate.worth.threshold}
                arrays |= {f"{i}.copy_bias": _bias(copy.bias), f"{i}.noise": candidate.worth.noise,
                           f"{i}.weight": candidate.worth.weight}  # fmt: skip
            listed.append(entry)
        text = json.dumps({"candidates": listed, "cost": asdict(self.cost)}).encode()
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, head=np.frombuffer(text, np.uint8), **arrays)
            os.replace(part, path)
        except OSError as error:
            part.unlink(missing_ok=True)
            if error.errno in DISK_FULL:
                raise DiskSpaceError(
                    f"The disk accepted no more data while {path} was written: {error.strerror}."
                ) from error
            raise InvalidRequestError(
                f"{path} cannot be written: {error.strerror or error}.", "Make its folder writable."
            ) from error

    @classmethod
    def load(cls, path: Path) -> LayerRecord | None:
        """Return what `save` wrote; None without a complete record."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                head = json.loads(arrays["head"].tobytes())
                found = [_candidate(arrays, i, entry) for i, entry in enumerate(head["candidates"])]
                return cls(found, LayerCost(**head["cost"]))
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
            return None


def _candidate(arrays: Any, i: int, entry: dict[str, Any]) -> Candidate:
    low_rank = copy = worth = None
    if f"{i}.a" in arrays:
        a, b = (_packed(arrays, f"{i}.{name}", entry) for name in "ab")
        low_rank = LowRank(a, b, arrays[f"{i}.a_bias"], arrays[f"{i}.b_bias"], read_share=entry["read_share"])
    if f"{i}.copy" in arrays:
        matrix = _packed(arrays, f"{i}.copy", entry)
        copy = GateCopy(matrix, bias=arrays[f"{i}.copy_bias"], signed_input=entry["signed_input"])
        worth = Worth(arrays[f"{i}.noise"], arrays[f"{i}.weight"], entry["threshold"])
    return Candidate(low_rank, copy, worth, [Point(**point) for point in entry["points"]])


def _matrix(arrays: dict[str, NDArray[Any]], name: str, matrix: PackedMatrix) -> dict[str, Any]:
    arrays[name] = matrix.data
    return {name: [matrix.n_rows, matrix.n_cols, matrix.codec]}


def _packed(arrays: Any, name: str, entry: dict[str, Any]) -> PackedMatrix:
    n_rows, n_cols, codec = entry[name]
    return PackedMatrix(n_rows, n_cols, codec, arrays[name])


def _bias(values: NDArray[np.float32] | None) -> NDArray[np.float32]:
    assert values is not None, "what is trained here has biases"
    return values
