"""Read safetensors, one file or several with an index: the library validates headers, tensors are mapped views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError, ModelNotFoundError
from engine.formats import TensorInfo
from engine.formats.json_text import parse_object
from engine.formats.mapped import MappedSource, MergedSource, map_file
from engine.formats.shards import existing_parts

INDEX_NAME = "model.safetensors.index.json"

# The format's other types hold no weights that Hearth runs; they keep their own names.
_CODECS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
# Limits well above any published model: 65,536 tensors per file, 262,144 tensors and 4,096 files in all.
_MAX_HEADER_BYTES = 8 << 20
_MAX_TENSORS = 1 << 16
_MAX_INDEX_BYTES = 24 << 20
_MAX_INDEX_ENTRIES = 1 << 18
_MAX_FILES = 1 << 12


def open_safetensors(path: Path) -> MappedSource:
    """Open one file and check its header.

    Raises: ModelNotFoundError if it is missing, ModelFormatError if it is damaged or truncated.
    """
    data = map_file(path)
    header_bytes = int.from_bytes(data[:8].tobytes(), "little")
    header = _bounded_header(path, data, header_bytes)
    _validate(path)
    metadata = header.pop("__metadata__", None) or {}
    tensors = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        codec = _CODECS.get(entry["dtype"], entry["dtype"].lower())
        tensors[name] = TensorInfo(name, tuple(entry["shape"]), codec, 8 + header_bytes + start, stop - start)
    return MappedSource(path, data, tensors, dict(metadata))


def open_sharded_safetensors(index: Path) -> MergedSource:
    """Open every file in the index and check that each tensor is where the index says.

    Tensors missing from the index belong to the model too, so that none is ignored silently.
    Raises: ModelNotFoundError naming a missing file, ModelFormatError for damage and contradictions.
    """
    where = _read_weight_map(index)
    paths = _files(index, where)
    merged = MergedSource([open_safetensors(path) for path in paths], {})
    for tensor, name in where.items():
        if tensor not in merged.tensors:
            raise ModelFormatError(f"{index.name} puts {tensor[:100]} into {name}, which has no such tensor.")
        if (found := merged.file_of(tensor).name) != name:
            raise ModelFormatError(f"{index.name} puts {tensor[:100]} into {name}; it lies in {found}.")
    return merged


def indexed_files(index: Path) -> list[Path]:
    """Return the files in the index, sorted, without opening them. Raises: as open_sharded_safetensors."""
    return _files(index, _read_weight_map(index))


def _files(index: Path, where: dict[str, str]) -> list[Path]:
    names = sorted(set(where.values()))
    if len(names) > _MAX_FILES:
        raise ModelFormatError(f"{index.name} names {len(names)} files; at most {_MAX_FILES} are accepted.")
    return existing_parts(index.parent, names, len(names))


def _read_weight_map(index: Path) -> dict[str, str]:
    """Return tensor name -> name of a file beside the index."""
    try:
        if index.stat().st_size > _MAX_INDEX_BYTES:
            raise ModelFormatError(f"{index.name} is larger than {_MAX_INDEX_BYTES} bytes.")
        raw = index.read_bytes()
    except OSError as error:
        raise ModelNotFoundError(f"{index} cannot be read: {error.strerror or error}.") from error
    values = parse_object(
        raw, index.name, max_bytes=_MAX_INDEX_BYTES, max_values=_MAX_INDEX_ENTRIES, max_containers=1 << 10
    )
    where = values.get("weight_map")
    if not isinstance(where, dict) or not where:
        raise ModelFormatError(f"{index.name} lacks a 'weight_map' that names the files of the tensors.")
    for tensor, name in where.items():
        plain = isinstance(name, str) and name.endswith(".safetensors") and len(name) < 256
        if not plain or any(sign in name for sign in "/\\:\0"):
            raise ModelFormatError(
                f"{index.name} puts {tensor[:100]} into {str(name)[:100]!r}, which is no safetensors file beside it."
            )
    return where


def _bounded_header(path: Path, data: NDArray[np.uint8], header_bytes: int) -> dict[str, Any]:
    """Return the header as JSON after checking its size only."""
    if len(data) < 8 or header_bytes > len(data) - 8:
        raise _damaged(path, f"its header of {header_bytes} bytes ends past the file")
    raw = data[8 : 8 + header_bytes].tobytes() if header_bytes <= _MAX_HEADER_BYTES else b""
    if header_bytes > _MAX_HEADER_BYTES or raw.count(b'"data_offsets"') > _MAX_TENSORS:
        raise _damaged(path, f"its header is beyond {_MAX_TENSORS} tensors or {_MAX_HEADER_BYTES} bytes")
    try:
        # Three containers and four commas per tensor, plus its dimensions.
        return parse_object(
            raw, "its header", max_bytes=_MAX_HEADER_BYTES, max_values=1 << 20, max_containers=4 * _MAX_TENSORS
        )
    except ModelFormatError as error:
        raise _damaged(path, error.message.rstrip(".")) from error


def _validate(path: Path) -> None:
    """Let the format's library check types, sizes, overlaps and the file's length."""
    import safetensors

    try:
        with safetensors.safe_open(str(path), framework="np"):
            pass
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, str(error)[:200]) from error


def _damaged(path: Path, words: str) -> ModelFormatError:
    return ModelFormatError(f"{path.name} is no sound safetensors file: {words}.")
