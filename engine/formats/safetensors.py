"""Read safetensors, one file or several with an index: the library validates headers, tensors are mapped views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError
from engine.formats import TensorInfo
from engine.formats.json_text import parse_object
from engine.formats.mapped import MappedSource, MergedSource, map_file
from engine.formats.shard_index import open_indexed

# The format's other types hold no weights that Hearth runs; they keep their own names.
_CODECS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
# Limits well above any published model: 65,536 tensors per file.
_MAX_HEADER_BYTES = 8 << 20
_MAX_TENSORS = 1 << 16


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
    """Open every file in the index. Raises: as open_indexed and open_safetensors."""
    return open_indexed(index, open_safetensors)


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
    return ModelFormatError(f"{path.name} is not a sound safetensors file: {words}.")
