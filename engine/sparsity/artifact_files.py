"""An artefact on disk: one JSON file and the safetensors file it describes. What the numbers mean is not known here.

The JSON file carries the schema version, the fingerprint of the model it was made from and the hash of the tensors, and
is written last: an artefact that was cut off while being written, or put together from two, is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ArtifactMismatchError, InvalidRequestError
from engine.formats.json_text import read_object
from engine.formats.mapped import MappedSource
from engine.formats.safetensors import open_safetensors

_MAX_JSON_BYTES = 4 << 20
_CHUNK_BYTES = 4 << 20


def save_artifact(
    folder: Path, name: str, version: int, values: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]
) -> Path:
    """Writes NAME.safetensors and NAME.json into the folder, replacing older ones; the latter's path back.

    Raises: InvalidRequestError where the folder cannot be written.
    """
    from safetensors.numpy import save_file

    weights, head = folder / f"{name}.safetensors", folder / f"{name}.json"
    fresh_weights, fresh_head = weights.with_suffix(".safetensors.part"), head.with_suffix(".json.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, fresh_weights)
        written = {"schema_version": version, "tensors_sha256": _sha256(fresh_weights), **values}
        fresh_head.write_text(json.dumps(written, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh_weights, weights)
        os.replace(fresh_head, head)
    except OSError as error:
        raise InvalidRequestError(
            f"{head} cannot be written: {error.strerror or error}.", "Choose another folder."
        ) from error
    return head


def load_artifact(folder: Path, name: str, version: int, model: str | None) -> tuple[dict[str, Any], MappedSource]:
    """What `save_artifact` wrote, the tensors mapped; model: the fingerprint it must have been made from, None for any.

    Raises: ModelNotFoundError where there is none, ModelFormatError for damage, ArtifactMismatchError for another
    model or another version of Hearth.
    """
    head = folder / f"{name}.json"
    values = read_object(head, max_bytes=_MAX_JSON_BYTES, max_values=1 << 17)
    if values.get("schema_version") != version:
        shown = str(values.get("schema_version"))[:20]
        raise ArtifactMismatchError(f"{head.name} is of version {shown}; this Hearth reads version {version}.")
    made_from = values.get("model")
    if model is not None and made_from != model:
        raise ArtifactMismatchError(f"{head.name} in {folder} was made from another model.")
    weights = folder / f"{name}.safetensors"
    source = open_safetensors(weights)
    if values.get("tensors_sha256") != _sha256(weights):
        raise ArtifactMismatchError(f"{weights.name} in {folder} is not the file that {head.name} describes.")
    return values, source


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
