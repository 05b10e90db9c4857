"""Open GGUF files, versions 2 and 3, whole or split, and PowerInfer's variant. The files may be hostile.

Every tensor's position is checked against the file before reading. Names have no meaning here, except to detect the
variant, and `split.*`, which describes how a model was split.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from engine.errors import EngineError, ModelFormatError, UnsupportedModelError
from engine.formats import TensorInfo
from engine.formats.gguf_header import Budget, Header, RawTensor, damaged, read_header
from engine.formats.mapped import MappedSource, MergedSource, map_file
from engine.formats.quant import BLOCK_SIZES, GGML_TYPES, POWERINFER_TYPES, WITHDRAWN_TYPES
from engine.formats.shards import shard_paths

Dialect = Literal["gguf", "powerinfer"]

_MAX_ALIGNMENT = 1 << 20
_DEFAULT_ALIGNMENT = 32
_GPU_INDEX = "generic.gpu_index"  # architecture stated in PowerInfer's lists of neurons


class GgufSource(MergedSource):
    """The tensors of an open GGUF model in one or more files.

    dialect: "powerinfer" by its magic number, or by its tensors if another tool wrote the usual magic number.
    """

    def __init__(self, parts: list[MappedSource], metadata: Mapping[str, Any], dialect: Dialect) -> None:
        super().__init__(parts, metadata)
        self.dialect = dialect


def open_gguf(path: Path) -> GgufSource:
    """Open the file, with all shards of a split model, and check the tensor table.

    Cost: reads headers only; tensors are mapped.
    Raises: ModelNotFoundError for a missing file or shard, ModelFormatError for damage or inconsistency,
    UnsupportedModelError for a valid file that is not a readable model.
    """
    paths = shard_paths(path)
    budget = Budget()
    parts: list[MappedSource] = []
    magics: set[bytes] = set()
    for part in paths:
        data = map_file(part)
        header = read_header(part.name, data, budget)
        _refuse_gpu_index(part, header)
        magics.add(header.magic)
        parts.append(MappedSource(part, data, tensor_table(part.name, len(data), header), header.metadata))
    if len(magics) > 1:
        raise ModelFormatError(f"{paths[0].name} and its other parts are of different formats.")
    _check_split(parts)
    transposed = any(name.startswith("blk.") and name.endswith(".ffn_down_t.weight") for name in parts[0].tensors)
    dialect: Dialect = "powerinfer" if magics == {b"PWRI"} or transposed else "gguf"
    return GgufSource(parts, parts[0].metadata, dialect)


def is_gpu_index(path: Path) -> bool:
    """Return whether the file is PowerInfer's list of neurons for a model; False if unreadable."""
    try:
        return _lists_neurons(read_header(path.name, map_file(path), Budget()))
    except EngineError:
        return False


def _lists_neurons(header: Header) -> bool:
    listed = any(tensor.name.endswith((".gpu_idx", ".gpu_bucket")) for tensor in header.tensors)
    return listed or header.metadata.get("general.architecture") == _GPU_INDEX


def _refuse_gpu_index(path: Path, header: Header) -> None:
    if _lists_neurons(header):
        raise UnsupportedModelError(
            f"{path.name} is not a model: PowerInfer noted in it which neurons of one it kept on a GPU.",
            "Choose the model's own .gguf file beside it; Hearth does not need this one.",
        )


def tensor_table(file_name: str, file_bytes: int, header: Header) -> dict[str, TensorInfo]:
    """Return the tensors' positions in a file of this size. Raises: ModelFormatError, UnsupportedModelError."""
    alignment = header.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        shown = repr(alignment)[:60]
        raise damaged(file_name, f"general.alignment is {shown}; a power of two up to {_MAX_ALIGNMENT} is needed")
    data_start = -(-header.end // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for raw in header.tensors:
        shown = raw.name[:100]
        if raw.name in tensors:
            raise damaged(file_name, f"the tensor {shown} appears twice")
        codec = _codec(file_name, raw, POWERINFER_TYPES if header.magic == b"PWRI" else GGML_TYPES)
        block_size, type_size = BLOCK_SIZES[codec]
        if raw.offset % alignment:
            raise damaged(file_name, f"tensor {shown} begins at {raw.offset}, which is not a multiple of {alignment}")
        if raw.shape[-1] % block_size:
            raise damaged(
                file_name, f"the rows of tensor {shown} hold {raw.shape[-1]} values, no multiple of {block_size}"
            )
        n_elements = 1
        for size in raw.shape:
            n_elements *= size
        n_bytes = n_elements // block_size * type_size
        offset = data_start + raw.offset
        if offset + n_bytes > file_bytes:
            raise damaged(file_name, f"tensor {shown} ends {offset + n_bytes - file_bytes} bytes past the file")
        tensors[raw.name] = TensorInfo(raw.name, raw.shape, codec, offset, n_bytes)
    ordered = sorted(tensors.values(), key=lambda info: info.offset)
    for before, after in itertools.pairwise(ordered):
        if before.offset + before.n_bytes > after.offset:
            raise damaged(file_name, f"the tensors {before.name[:100]} and {after.name[:100]} overlap")
    return tensors


def _codec(file_name: str, raw: RawTensor, types: Mapping[int, str]) -> str:
    codec = types.get(raw.type_number)
    if codec is not None and codec in BLOCK_SIZES:
        return codec
    if types is GGML_TYPES and raw.type_number in WITHDRAWN_TYPES:
        raise UnsupportedModelError(
            f"Tensor {raw.name[:100]} is stored as {WITHDRAWN_TYPES[raw.type_number].upper()}, which GGUF dropped.",
            "Choose a Q4_0 or Q8_0 file of the same model.",
        )
    raise damaged(file_name, f"tensor {raw.name[:100]} has the unknown type {raw.type_number}")


def _check_split(parts: list[MappedSource]) -> None:
    """Check that the shards' metadata and names agree on their order."""
    for i, part in enumerate(parts):
        number, count = _split_value(part, "split.no"), _split_value(part, "split.count")
        if len(parts) == 1 and count in (None, 0, 1):
            continue
        if count is None or number is None:
            raise ModelFormatError(
                f"{part.path.name} is named as part {i + 1} of {len(parts)}, and its metadata knows of no parts.",
                "Give the file its own name back, or download the model again.",
            )
        if (number, count) != (i, len(parts)):
            raise ModelFormatError(
                f"{part.path.name} says that it is part {number + 1} of {count}, not {i + 1} of {len(parts)}.",
                f"Name the parts as they were published: ...-{number + 1:05d}-of-{count:05d}.gguf.",
            )
        architecture = part.metadata.get("general.architecture")
        if architecture is not None and architecture != parts[0].metadata.get("general.architecture"):
            raise ModelFormatError(f"{part.path.name} belongs to another model than {parts[0].path.name}.")
    total = _split_value(parts[0], "split.tensors.count")
    found = sum(len(part.tensors) for part in parts)
    if len(parts) > 1 and total is not None and total != found:
        raise ModelFormatError(f"The parts of {parts[0].path.name} hold {found} tensors; {total} were written.")


def _split_value(part: MappedSource, key: str) -> int | None:
    value = part.metadata.get(key)
    if value is not None and (type(value) is not int or not 0 <= value <= 1 << 32):
        raise ModelFormatError(f"{key} in {part.path.name} is {str(value)[:60]!r}; a number of parts is needed.")
    return value
