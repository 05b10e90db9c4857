"""Reads GGUF versions 2 and 3, little endian, from files that may be hostile.

Every count, size, offset and type is checked against the file before anything is allocated. It gives no meaning to
names or keys. PowerInfer's variant (magic PWRI) is refused by name.
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.formats import TensorInfo, pickle_refused
from engine.formats.mapped import MappedSource, map_file
from engine.formats.quant import CODECS

# Caps, each well above what any published model has, so that a lying file costs little before it is found out.
_MAX_ENTRIES = 1 << 16  # key-value pairs, and tensors
_MAX_NAME_BYTES = 1 << 16
_MAX_STRING_BYTES = 16 << 20
_MAX_ARRAY_ELEMENTS = 1 << 22  # over all arrays of a file
_MAX_HEADER_BYTES = 512 << 20
_MAX_ALIGNMENT = 1 << 20
_DEFAULT_ALIGNMENT = 32

_SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
_BOOL, _STRING, _ARRAY = 7, 8, 9

_TENSOR_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_k", 11: "q3_k",
    12: "q4_k", 13: "q5_k", 14: "q6_k", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s",
    20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64",
    29: "iq1_m", 30: "bf16", 34: "tq1_0", 35: "tq2_0", 39: "mxfp4",
}  # fmt: skip


def open_gguf(path: Path) -> MappedSource:
    """Opens the file and checks its whole table.

    Raises: ModelNotFoundError where there is no such file, ModelFormatError where it is damaged or lies,
    UnsupportedModelError for a version or a codec that Hearth does not read.
    """
    data = map_file(path)
    cursor = _Cursor(path.name, data)
    n_tensors, n_entries = _read_preamble(cursor)
    metadata = _read_metadata(cursor, n_entries)
    tensors = _read_tensor_table(cursor, n_tensors, _alignment(cursor, metadata))
    return MappedSource(path, data, tensors, metadata)


class _Cursor:
    """A position in the file's header; every read is checked against the end."""

    def __init__(self, file_name: str, data: NDArray[np.uint8]) -> None:
        self.file_name = file_name
        self.size = len(data)
        self.at = 0
        self._data = data.data  # a memoryview
        self._array_elements = 0

    def fail(self, words: str) -> ModelFormatError:
        return ModelFormatError(f"{self.file_name} is no sound GGUF file: {words}.")

    def take(self, n_bytes: int, what: str) -> memoryview:
        """The next n_bytes."""
        if n_bytes > self.size - self.at:
            raise self.fail(f"{what} at byte {self.at} ends {n_bytes - (self.size - self.at)} bytes past the file")
        if self.at + n_bytes > _MAX_HEADER_BYTES:
            raise self.fail(f"its header is longer than {_MAX_HEADER_BYTES} bytes")
        start = self.at
        self.at += n_bytes
        return self._data[start : self.at]

    def number(self, fmt: str, what: str) -> int:
        value: int = struct.unpack(fmt, self.take(struct.calcsize(fmt), what))[0]
        return value

    def text(self, what: str, cap: int = _MAX_STRING_BYTES) -> bytes:
        length = self.number("<Q", what)
        if length > cap:
            raise self.fail(f"{what} at byte {self.at} claims {length} bytes; at most {cap} are accepted")
        return bytes(self.take(length, what))

    def name(self, what: str) -> str:
        raw = self.text(what, _MAX_NAME_BYTES)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} {raw[:40]!r} is not UTF-8") from error

    def value(self, kind: int, key: str) -> Any:
        """One metadata value. Text of values may hold broken UTF-8 (single bytes of a vocabulary): it is replaced."""
        if kind in _SCALARS:
            dtype = np.dtype(_SCALARS[kind])
            return np.frombuffer(self.take(dtype.itemsize, f"the value of {key}"), dtype)[0].item()
        if kind == _BOOL:
            flag = self.number("<B", f"the value of {key}")
            if flag > 1:
                raise self.fail(f"the truth value of {key} is {flag}")
            return bool(flag)
        if kind == _STRING:
            return self.text(f"the value of {key}").decode(errors="replace")
        if kind == _ARRAY:
            return self._array(key)
        raise self.fail(f"{key} has the unknown value type {kind}")

    def _array(self, key: str) -> list[Any]:
        kind = self.number("<I", f"the array {key}")
        count = self.number("<Q", f"the array {key}")
        if kind == _ARRAY:
            raise self.fail(f"{key} is an array of arrays, which no model needs")
        if kind not in _SCALARS and kind not in (_BOOL, _STRING):
            raise self.fail(f"the array {key} has the unknown element type {kind}")
        self._array_elements += count
        if self._array_elements > _MAX_ARRAY_ELEMENTS:
            raise self.fail(f"the array {key} claims {count} elements; at most {_MAX_ARRAY_ELEMENTS} are accepted")
        if kind == _STRING:
            if count * 8 > self.size - self.at:
                raise self.fail(f"the array {key} claims {count} texts, more than the file could hold")
            return [self.text(key).decode(errors="replace") for _ in range(count)]
        dtype = np.dtype(_SCALARS.get(kind, "<u1"))
        values = np.frombuffer(self.take(count * dtype.itemsize, f"the array {key}"), dtype)
        listed: list[Any] = (values != 0).tolist() if kind == _BOOL else values.tolist()
        return listed


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    magic = bytes(cursor.take(4, "the magic number"))
    if magic == b"PWRI":
        raise UnsupportedModelError(
            f"{cursor.file_name} is a PowerInfer GGUF, which this version of Hearth does not read.",
            "Choose an ordinary GGUF file of the same model.",
        )
    if magic == b"PK\x03\x04" or magic[:1] == b"\x80":  # a zip archive, as torch.save writes it, or a bare pickle
        raise pickle_refused(cursor.file_name)
    if magic != b"GGUF":
        raise cursor.fail(f"it begins with {magic!r} instead of b'GGUF'")
    version = cursor.number("<I", "the version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        what = f"version {swapped}, big endian" if swapped in (1, 2, 3) else f"version {version}"
        raise UnsupportedModelError(
            f"{cursor.file_name} is GGUF {what}; versions 2 and 3, little endian, are supported.",
            "Choose a newer file of the same model.",
        )
    n_tensors = cursor.number("<Q", "the tensor count")
    n_entries = cursor.number("<Q", "the metadata count")
    for what, count in (("tensors", n_tensors), ("metadata entries", n_entries)):
        if count > _MAX_ENTRIES:
            raise cursor.fail(f"it claims {count} {what}; at most {_MAX_ENTRIES} are accepted")
    return n_tensors, n_entries


def _read_metadata(cursor: _Cursor, n_entries: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(n_entries):
        key = cursor.name("a metadata key")
        if key in metadata:
            raise cursor.fail(f"the metadata key {key} appears twice")
        metadata[key] = cursor.value(cursor.number("<I", f"the type of {key}"), key)
    return metadata


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(value) is not int or not 1 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        raise cursor.fail(f"general.alignment is {value!r}; a power of two up to {_MAX_ALIGNMENT} is needed")
    return value


def _read_tensor_table(cursor: _Cursor, n_tensors: int, alignment: int) -> dict[str, TensorInfo]:
    table = [_read_tensor_entry(cursor) for _ in range(n_tensors)]
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, codec, offset in table:
        if name in tensors:
            raise cursor.fail(f"the tensor {name} appears twice")
        if codec not in CODECS:
            raise UnsupportedModelError(
                f"Tensor {name} is stored as {codec.upper()}; Hearth reads {', '.join(c.upper() for c in CODECS)}.",
                "Choose a Q8_0 or F16 file of the same model.",
            )
        if offset % alignment:
            raise cursor.fail(f"tensor {name} begins at {offset}, which is no multiple of {alignment}")
        block = CODECS[codec]
        if shape[-1] % block.block_size:
            raise cursor.fail(f"the rows of tensor {name} hold {shape[-1]} values, no multiple of {block.block_size}")
        info = TensorInfo(name, shape, codec, data_start + offset, 0)
        n_bytes = info.n_elements // block.block_size * block.type_size
        if info.offset + n_bytes > cursor.size:
            raise cursor.fail(f"tensor {name} ends {info.offset + n_bytes - cursor.size} bytes past the file")
        tensors[name] = TensorInfo(name, shape, codec, info.offset, n_bytes)
    _check_overlap(cursor, tensors)
    return tensors


def _read_tensor_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], str, int]:
    name = cursor.name("a tensor name")
    n_dims = cursor.number("<I", f"tensor {name}")
    if not 1 <= n_dims <= 4:
        raise cursor.fail(f"tensor {name} has {n_dims} dimensions; 1 to 4 are possible")
    dims = [cursor.number("<Q", f"tensor {name}") for _ in range(n_dims)]
    if any(not 1 <= size < 1 << 48 for size in dims):
        raise cursor.fail(f"tensor {name} claims the dimensions {dims}")
    kind = cursor.number("<I", f"tensor {name}")
    if kind not in _TENSOR_TYPES:
        raise cursor.fail(f"tensor {name} has the unknown type {kind}")
    offset = cursor.number("<Q", f"tensor {name}")
    return name, tuple(reversed(dims)), _TENSOR_TYPES[kind], offset  # GGUF names the innermost dimension first


def _check_overlap(cursor: _Cursor, tensors: dict[str, TensorInfo]) -> None:
    ordered = sorted(tensors.values(), key=lambda info: info.offset)
    for before, after in itertools.pairwise(ordered):
        if before.offset + before.n_bytes > after.offset:
            raise cursor.fail(f"the tensors {before.name} and {after.name} overlap")
