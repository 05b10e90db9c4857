"""Find the entries of an uncompressed zip archive, such as PyTorch's files. Extracts nothing.

The archive may be hostile: every record is checked against the file, entries may not overlap, and compressed entries
are refused, so that content cannot exceed the file's size.
"""

from __future__ import annotations

import itertools
import struct
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError

_MAX_ENTRIES = 1 << 15
_MAX_DIRECTORY_BYTES = 16 << 20
_MAX_COMMENT_BYTES = (1 << 16) - 1

_END, _END_64, _LOCATOR_64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_CENTRAL, _LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
_ENCRYPTED = 0x0001
_IN_ZIP64 = 0xFFFFFFFF


class Entry(NamedTuple):
    """The bytes of one entry: data[start : start + n_bytes]."""

    start: int
    n_bytes: int


def zip_entries(file_name: str, data: NDArray[np.uint8]) -> dict[str, Entry]:
    """Return all entries of the archive by name.

    Cost: reads the directory and each entry's header.
    Raises: ModelFormatError if the archive is damaged or inconsistent, or has compressed or encrypted entries.
    """
    return _Archive(file_name, data).entries()


class _Archive:
    def __init__(self, file_name: str, data: NDArray[np.uint8]) -> None:
        self._file_name = file_name
        self._data = data
        self._size = len(data)

    def entries(self) -> dict[str, Entry]:
        start, n_bytes, count = self._directory()
        directory = self._bytes(start, n_bytes, "its directory")
        entries: dict[str, Entry] = {}
        spans: list[tuple[int, int]] = []
        at = 0
        for _ in range(count):
            if at + _CENTRAL.size > n_bytes:
                self._fail("its directory ends early")
            fields = _CENTRAL.unpack_from(directory, at)
            name_end = at + _CENTRAL.size + fields[10]
            extra_end = name_end + fields[11]
            at_next = extra_end + fields[12]
            if fields[0] != b"PK\x01\x02" or at_next > n_bytes:
                self._fail("its directory is damaged")
            name = directory[at + _CENTRAL.size : name_end]
            flags, method, packed, size, header = fields[3], fields[4], fields[8], fields[9], fields[16]
            size, packed, header = self._zip64(directory[name_end:extra_end], size, packed, header)
            text = self._name(name)
            if text in entries:
                self._fail(f"the entry {text[:100]} appears twice")
            if flags & _ENCRYPTED or method != 0 or packed != size:
                self._fail(f"its entry {text[:100]} is compressed or encrypted, which PyTorch's files never are")
            entry = self._locate(name, text, header, size)
            entries[text] = entry
            spans.append((header, entry.start + size))
            at = at_next
        if at != n_bytes:
            self._fail("its directory is longer than its entries")
        spans.sort()
        for before, after in itertools.pairwise([*spans, (start, start)]):
            if before[1] > after[0]:
                self._fail("its entries overlap")
        return entries

    def _directory(self) -> tuple[int, int, int]:
        """Return start, length and entry count of the central directory."""
        tail_start = max(0, self._size - _END.size - _MAX_COMMENT_BYTES)
        tail = self._data[tail_start:].tobytes()
        found = tail.rfind(b"PK\x05\x06")
        if found < 0 or found + _END.size > len(tail):
            self._fail("it has no directory, so it is cut off or no zip archive")
        _, disk, first_disk, here, count, n_bytes, start, _ = _END.unpack_from(tail, found)
        if disk or first_disk or here != count:
            self._fail("it is one of several volumes")
        end = tail_start + found
        if count == 0xFFFF or _IN_ZIP64 in (n_bytes, start):
            start, n_bytes, count, end = self._directory_64(end)
        if count > _MAX_ENTRIES or n_bytes > _MAX_DIRECTORY_BYTES:
            self._fail(f"it claims {count} entries in a directory of {n_bytes} bytes")
        if start + n_bytes > end:
            self._fail(f"its directory of {n_bytes} bytes at {start} ends past byte {end}")
        return start, n_bytes, count

    def _directory_64(self, end: int) -> tuple[int, int, int, int]:
        """Return the same from the zip64 records of large archives, and where those begin."""
        locator = self._bytes(end - _LOCATOR_64.size, _LOCATOR_64.size, "its zip64 locator")
        magic, _, at, _ = _LOCATOR_64.unpack(locator)
        if magic != b"PK\x06\x07":
            self._fail("its zip64 locator is missing")
        record = self._bytes(at, _END_64.size, "its zip64 record")
        magic, _, _, _, disk, first_disk, here, count, n_bytes, start = _END_64.unpack(record)
        if magic != b"PK\x06\x06" or disk or first_disk or here != count:
            self._fail("its zip64 record is damaged")
        return start, n_bytes, count, at

    def _zip64(self, extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
        """Return the three numbers, with those beyond 32 bits taken from the extra field."""
        wanted = [value == _IN_ZIP64 for value in (size, packed, header)]
        if not any(wanted):
            return size, packed, header
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            body = extra[at + 4 : at + 4 + length]
            if kind == 1:
                if len(body) < 8 * sum(wanted):
                    break
                large = iter(struct.unpack_from(f"<{sum(wanted)}Q", body))
                values = [next(large) if is_large else value
                          for value, is_large in zip((size, packed, header), wanted, strict=True)]  # fmt: skip
                return values[0], values[1], values[2]
            at += 4 + length
        return self._fail("an entry of its directory lacks its size")

    def _locate(self, name: bytes, text: str, header: int, size: int) -> Entry:
        head = self._bytes(header, _LOCAL.size, f"its entry {text[:100]}")
        fields = _LOCAL.unpack(head)
        if fields[0] != b"PK\x03\x04" or fields[3] != 0:
            self._fail(f"its entry {text[:100]} does not begin where the directory says")
        again = self._bytes(header + _LOCAL.size, fields[9], f"its entry {text[:100]}")
        if again != name:
            self._fail(f"its entry {text[:100]} has another name in the directory")
        start = header + _LOCAL.size + fields[9] + fields[10]
        if start + size > self._size:
            self._fail(f"its entry {text[:100]} ends {start + size - self._size} bytes past the file")
        return Entry(start, size)

    def _bytes(self, start: int, n_bytes: int, what: str) -> bytes:
        if start < 0 or start + n_bytes > self._size:
            self._fail(f"{what} is outside the file")
        return self._data[start : start + n_bytes].tobytes()

    def _name(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return self._fail(f"the entry name {raw[:40]!r} is not UTF-8")

    def _fail(self, words: str) -> NoReturn:
        raise ModelFormatError(f"{self._file_name} is not a sound PyTorch file: {words}.")
