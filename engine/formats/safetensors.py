"""Reads one safetensors file: the library validates the header, the tensors are views into the mapped file."""

from __future__ import annotations

import json
from pathlib import Path

from engine.errors import ModelFormatError
from engine.formats import TensorInfo
from engine.formats.mapped import MappedSource, map_file

# Other types of the format hold no weights that Hearth could run; they are listed under their own names.
_CODECS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


def open_safetensors(path: Path) -> MappedSource:
    """Opens the file and checks its header.

    Raises: ModelNotFoundError where there is no such file, ModelFormatError where it is damaged or cut off.
    """
    data = map_file(path)
    _validate(path)
    header_bytes = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + header_bytes].tobytes())
    metadata = header.pop("__metadata__", None) or {}
    tensors = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        codec = _CODECS.get(entry["dtype"], entry["dtype"].lower())
        tensors[name] = TensorInfo(name, tuple(entry["shape"]), codec, 8 + header_bytes + start, stop - start)
    return MappedSource(path, data, tensors, dict(metadata))


def _validate(path: Path) -> None:
    """Lets the format's own library check header size, JSON, types, overlaps and the file's length."""
    import safetensors

    try:
        with safetensors.safe_open(str(path), framework="np"):
            pass
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ModelFormatError(f"{path.name} is no sound safetensors file: {error}.") from error
