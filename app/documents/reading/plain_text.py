"""Text files: the encoding of their bytes, and what is not text."""

from __future__ import annotations

from app.documents.reading.document import Document, TextLimit, Unreadable

_CHARSET_SAMPLE_BYTES = 256 << 10
_BINARY_SHARE = 0.02  # share of control characters above which data is not text
_SOUND_FOR_EACH_BROKEN = 20  # non-ASCII characters per broken one for data to count as UTF-8
_CONTROL = bytes({*range(0x20), 0x7F} - {*b"\t\n\r\f\x1b\b"})
_BOMS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32",
         b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # fmt: skip
# PNG, JPEG, GIF, ZIP, gzip, xz, bzip2, 7z, RAR, ELF, SQLite, Matroska, Ogg, GGUF, Windows' programs, old Office files
_BINARIES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"\xfd7zXZ", b"BZh9",
             b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a", b"\x7fELF", b"SQLite format 3\0", b"\x1aE\xdf\xa3", b"OggS\0", b"GGUF",
             b"MZ\x90\0", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")  # fmt: skip


def read(data: bytes, limit: TextLimit) -> Document:
    """Return a text file as one part. Raises Unreadable."""
    parts, _ = limit.parts([(decoded(data), "")])
    return Document("text", parts, 1, cut=limit.is_reached)


def decoded(data: bytes) -> str:
    """Decode text: by its BOM, else as UTF-8, UTF-16 without a BOM, or the charset that it looks like.

    Raises Unreadable if it is not text.
    """
    refuse_binary(data)
    for mark, encoding in _BOMS.items():
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if encoding := _unmarked_utf16(data):
        return data.decode(encoding, "replace")
    sample = data[:_CHARSET_SAMPLE_BYTES]
    if b"\0" in sample or len(sample) - len(sample.translate(None, _CONTROL)) > len(sample) * _BINARY_SHARE:
        raise Unreadable("unsupported")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        first = error.start
    as_utf8 = data.decode("utf-8", "replace")
    broken = as_utf8.count("\ufffd")
    if sum(char > "\x7f" for char in as_utf8) - broken > broken * _SOUND_FOR_EACH_BROKEN:
        return as_utf8
    from charset_normalizer import from_bytes

    at = max(first - _CHARSET_SAMPLE_BYTES // 4, 0)
    best = from_bytes(data[at : at + _CHARSET_SAMPLE_BYTES]).best()
    return data.decode(best.encoding if best is not None else "cp1252", "replace")


def refuse_binary(data: bytes) -> None:
    """Raise Unreadable if a file begins like one of those that hold no text."""
    if data.startswith(_BINARIES):
        raise Unreadable("unsupported")


def _unmarked_utf16(data: bytes) -> str:
    """Return the encoding of UTF-16 without a BOM, recognized by zeros in every second byte, or ""."""
    sample = data[:4096]
    if len(sample) < 4:
        return ""
    even, odd = sample[0::2].count(0) / len(sample[0::2]), sample[1::2].count(0) / len(sample[1::2])
    if odd > 0.3 and even < 0.02:
        return "utf-16-le"
    return "utf-16-be" if even > 0.3 and odd < 0.02 else ""
