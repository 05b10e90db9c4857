"""Read the index of weights in several files: which tensor is in which file beside it. Opens no weights by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.errors import ModelFormatError, ModelNotFoundError
from engine.formats.json_text import parse_object
from engine.formats.mapped import MappedSource, MergedSource
from engine.formats.shards import existing_parts

INDEX_NAME, TORCH_INDEX_NAME = "model.safetensors.index.json", "pytorch_model.bin.index.json"
INDEX_NAMES = (INDEX_NAME, TORCH_INDEX_NAME)

# Limits well above any published model: 262,144 tensors and 4,096 files.
_MAX_INDEX_BYTES = 24 << 20
_MAX_INDEX_ENTRIES = 1 << 18
_MAX_FILES = 1 << 12


def open_indexed(index: Path, open_file: Callable[[Path], MappedSource]) -> MergedSource:
    """Open every file in the index with open_file and check that each tensor is where the index says.

    Tensors missing from the index belong to the model too, so that none is ignored silently.
    Raises: ModelNotFoundError naming a missing file, ModelFormatError for damage and contradictions; as open_file.
    """
    where = _read_weight_map(index)
    paths = _files(index, where)
    merged = MergedSource([open_file(path) for path in paths], {})
    for tensor, name in where.items():
        if tensor not in merged.tensors:
            raise ModelFormatError(f"{index.name} puts {tensor[:100]} into {name}, which has no such tensor.")
        if (found := merged.file_of(tensor).name) != name:
            raise ModelFormatError(f"{index.name} puts {tensor[:100]} into {name}; it is in {found}.")
    return merged


def indexed_files(index: Path) -> list[Path]:
    """Return the files in the index, sorted, without opening them. Raises: as open_indexed."""
    return _files(index, _read_weight_map(index))


def _files(index: Path, where: dict[str, str]) -> list[Path]:
    names = sorted(set(where.values()))
    if len(names) > _MAX_FILES:
        raise ModelFormatError(f"{index.name} names {len(names)} files; at most {_MAX_FILES} are accepted.")
    return existing_parts(index.parent, names, len(names))


def _read_weight_map(index: Path) -> dict[str, str]:
    """Return tensor name -> name of a file beside the index."""
    suffix = ".bin" if index.name == TORCH_INDEX_NAME else ".safetensors"
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
        plain = isinstance(name, str) and name.endswith(suffix) and len(name) < 256
        if not plain or any(sign in name for sign in "/\\:\0"):
            raise ModelFormatError(
                f"{index.name} puts {tensor[:100]} into {str(name)[:100]!r}, which is not a {suffix} file beside it."
            )
    return where
