"""Read the header of a GGUF file, which may be hostile: magic, version, metadata, raw tensor entries.

Every count and size is checked against the file and a memory budget before allocation. gguf.py interprets the entries.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.formats import pickle_refused

# Limits well above any published model, so that an inconsistent file costs little before it is detected.
MAX_ENTRIES = 1 << 16  # key-value pairs, and tensors
MAX_HEADER_MEMORY = 80 << 20  # estimated memory of the parsed header, without the extra allowance for texts
_CREDIT_PER_TEXT = 24  # bytes; Gemma 4's 777,050 texts take 92 MiB, and a file must contain the texts it lists
_MAX_NAME_BYTES = 1 << 16
_MAX_STRING_BYTES = 16 << 20
_MAX_ARRAY_ELEMENTS = 1 << 22

# Memory of Python objects, with their place in a list.
_TEXT_COST, _NUMBER_COST, _SMALL_NUMBER_COST, _TENSOR_COST, _ENTRY_COST = 64, 40, 8, 600, 300

_SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_LENGTH = struct.Struct("<Q")


class RawTensor(NamedTuple):
    """An entry of the tensor table; shape with the outermost dimension first."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int  # from the start of the data


@dataclass(frozen=True)
class Header:
    """The content before the tensors' bytes. end: its end in the file."""

    magic: bytes  # b"GGUF" or b"PWRI"
    metadata: dict[str, Any]
    tensors: list[RawTensor]
    end: int


class HeaderTooLargeError(UnsupportedModelError):
    """A possibly valid header that would take too much memory. metadata: the entries read before."""

    hint = "Choose another file of the same model, or another model."
    metadata: Mapping[str, Any] = MappingProxyType({})


class Budget:
    """The memory budget for all headers of one model."""

    def __init__(self, n_bytes: int = MAX_HEADER_MEMORY) -> None:
        self.left = n_bytes

    def charge(self, n_bytes: int) -> bool:
        """Return whether this much more is allowed."""
        self.left -= n_bytes
        return self.left >= 0

    def credit(self, n_texts: int) -> None:
        """Raise the budget for a list of texts whose count was checked against the file."""
        self.left += n_texts * _CREDIT_PER_TEXT


def read_header(file_name: str, data: NDArray[np.uint8], budget: Budget) -> Header:
    """Return the header of the file with the bytes `data`.

    Cost: reads only the header's pages.
    Raises: ModelFormatError for damage or inconsistency, UnsupportedModelError for another version, HeaderTooLargeError
    if it exceeds the budget.
    """
    cursor = _Cursor(file_name, data, budget)
    magic, n_tensors, n_entries = _read_preamble(cursor)
    metadata: dict[str, Any] = {}
    try:
        for _ in range(n_entries):
            key = cursor.name("a metadata key")
            if key in metadata:
                raise cursor.fail(f"the metadata key {key[:100]} appears twice")
            cursor.charge(_ENTRY_COST)
            metadata[key] = cursor.value(cursor.number("<I", f"the type of {key[:100]}"), key[:100])
        tensors = [_read_tensor_entry(cursor) for _ in range(n_tensors)]
    except HeaderTooLargeError as error:
        error.metadata = metadata
        raise
    return Header(magic, metadata, tensors, cursor.at)


def damaged(file_name: str, words: str) -> ModelFormatError:
    return ModelFormatError(f"{file_name} is not a sound GGUF file: {words}.")


class _Cursor:
    """A position in the header; every read is checked against the end."""

    def __init__(self, file_name: str, data: NDArray[np.uint8], budget: Budget) -> None:
        self.file_name = file_name
        self.size = len(data)
        self.at = 0
        self._data = data.data  # a memoryview
        self._budget = budget
        self._array_elements = 0

    def fail(self, words: str) -> ModelFormatError:
        return damaged(self.file_name, words)

    def charge(self, n_bytes: int) -> None:
        """Charge memory before allocating it."""
        if not self._budget.charge(n_bytes):
            raise HeaderTooLargeError(
                f"{self.file_name} has a header that would take more than {MAX_HEADER_MEMORY >> 20} MiB of memory, "
                "its vocabulary's allowance aside."
            )

    def take(self, n_bytes: int, what: str) -> memoryview:
        if n_bytes > self.size - self.at:
            raise self.fail(f"{what} at byte {self.at} ends {n_bytes - (self.size - self.at)} bytes past the file")
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
        raw = bytes(self.take(length, what))
        self.charge(_text_cost(raw))
        return raw

    def name(self, what: str) -> str:
        raw = self.text(what, _MAX_NAME_BYTES)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} {raw[:40]!r} is not UTF-8") from error

    def value(self, kind: int, key: str) -> Any:
        """Return one metadata value. Invalid UTF-8 in texts (single bytes of a vocabulary) is replaced."""
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
            return self._texts(key, count)
        dtype = np.dtype(_SCALARS.get(kind, "<u1"))
        values = np.frombuffer(self.take(count * dtype.itemsize, f"the array {key}"), dtype)
        self.charge(count * (_SMALL_NUMBER_COST if dtype == np.uint8 else _NUMBER_COST))
        listed: list[Any] = (values != 0).tolist() if kind == _BOOL else values.tolist()
        return listed

    def _texts(self, key: str, count: int) -> list[str]:
        """Read a vocabulary: the only long loop when opening a file, so it avoids the methods above."""
        data, at, size, unpack = self._data, self.at, self.size, _LENGTH.unpack_from
        self._budget.credit(count)
        self.charge(count * _TEXT_COST)
        letters, most_letters = 0, self._budget.left
        texts = []
        for _ in range(count):
            start = at + 8
            if start > size:
                raise self.fail(f"a text of {key} at byte {at} ends past the file")
            at = start + unpack(data, at)[0]
            if at > size:
                raise self.fail(f"a text of {key} at byte {start} ends {at - size} bytes past the file")
            if at - start > _MAX_STRING_BYTES:
                raise self.fail(f"a text of {key} claims {at - start} bytes; at most {_MAX_STRING_BYTES} are accepted")
            raw = bytes(data[start:at])
            letters += at - start if raw.isascii() else 4 * (at - start)
            if letters > most_letters:
                break
            texts.append(raw.decode(errors="replace"))
        self.charge(letters)
        self.at = at
        return texts


def _text_cost(raw: bytes) -> int:
    """Return the decoded text's maximum memory: one letter outside ASCII can widen all to four bytes."""
    return _TEXT_COST + (len(raw) if raw.isascii() else 4 * len(raw))


def _read_preamble(cursor: _Cursor) -> tuple[bytes, int, int]:
    magic = bytes(cursor.take(4, "the magic number"))
    if magic == b"PK\x03\x04" or magic[:1] == b"\x80":  # a zip archive from torch.save, or a bare pickle
        raise pickle_refused(cursor.file_name)
    if magic not in (b"GGUF", b"PWRI"):
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
        if count > MAX_ENTRIES:
            raise cursor.fail(f"it claims {count} {what}; at most {MAX_ENTRIES} are accepted")
    return magic, n_tensors, n_entries


def _read_tensor_entry(cursor: _Cursor) -> RawTensor:
    name = cursor.name("a tensor name")
    shown = name[:100]
    n_dims = cursor.number("<I", f"tensor {shown}")
    if not 1 <= n_dims <= 4:
        raise cursor.fail(f"tensor {shown} has {n_dims} dimensions; 1 to 4 are possible")
    dims = struct.unpack(f"<{n_dims}Q", cursor.take(8 * n_dims, f"tensor {shown}"))
    if any(not 1 <= size < 1 << 48 for size in dims):
        raise cursor.fail(f"tensor {shown} claims the dimensions {list(dims)}")
    kind = cursor.number("<I", f"tensor {shown}")
    offset = cursor.number("<Q", f"tensor {shown}")
    cursor.charge(_TENSOR_COST)
    return RawTensor(name, dims[::-1], kind, offset)  # GGUF stores the innermost dimension first
