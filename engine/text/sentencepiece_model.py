"""Read a `tokenizer.model`, SentencePiece's file: a protobuf message with the pieces and the preparation of text.

older_vocabularies.py builds a tokenizer from it. Only messages that SentencePiece defines are parsed, so there is no
nesting; every length and list is bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.errors import ModelFormatError, UnsupportedModelError

MAX_FILE_BYTES = 32 << 20  # the largest in use have 5 MB
MAX_PIECES = 400_000  # the largest in use have 262,144
_MAX_FIELDS = 256  # of one message, pieces aside; SentencePiece defines below 60
_MODEL_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_NORMAL, _LAST_TYPE = 1, 6


@dataclass
class SentencePieceModel:
    """The contents of the file. Types have the numbers of GGUF, which took them from here."""

    tokens: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    kind: str = "unigram"
    unknown: int = 0
    bos: int = 1
    eos: int = 2
    adds_prefix: bool = True
    collapses_spaces: bool = True
    charsmap: bytes = b""


def parse_sentencepiece(data: bytes, origin: str) -> SentencePieceModel:
    """Return the model in the bytes of a file.

    Cost: about 2 us per piece. Raises: ModelFormatError for damage, UnsupportedModelError for an unsupported kind.
    """
    try:
        return _parse(data)
    except _Damage as error:
        raise ModelFormatError(f"{origin} is not a sound SentencePiece model: {error}.") from error


class _Damage(Exception):  # noqa: N818 - never leaves this module
    """The file is damaged. The message ends a sentence."""


def _parse(data: bytes) -> SentencePieceModel:
    model = SentencePieceModel()
    n_others = 0
    for number, kind, value in _fields(data, 0, len(data)):
        if number == 1:
            if len(model.tokens) == MAX_PIECES:
                raise _Damage(f"it has more than {MAX_PIECES} pieces")
            _add_piece(model, data, *_stretch(kind, value))
            continue
        n_others += 1
        if n_others > _MAX_FIELDS:
            raise _Damage(f"it has more than {_MAX_FIELDS} parts")
        if number == 2:
            _read_trainer(model, data, *_stretch(kind, value))
        elif number == 3:
            _read_normalizer(model, data, *_stretch(kind, value))
    if not model.tokens:
        raise _Damage("it has no pieces")
    return model


def _add_piece(model: SentencePieceModel, data: bytes, start: int, end: int) -> None:
    text, score, type_ = "", 0.0, _NORMAL
    for n, (number, kind, value) in enumerate(_fields(data, start, end)):
        if n == 16:
            raise _Damage(f"piece {len(model.tokens)} has more than 16 parts")
        if number == 1:
            first, last = _stretch(kind, value)
            try:
                text = data[first:last].decode("utf-8")
            except UnicodeDecodeError as error:
                raise _Damage(f"piece {len(model.tokens)} is not text") from error
        elif number == 2 and kind == _FOUR_BYTES:
            (score,) = struct.unpack_from("<f", data, value)
        elif number == 3 and kind == _VARINT:
            type_ = value
    if not _NORMAL <= type_ <= _LAST_TYPE:
        raise _Damage(f"piece {len(model.tokens)} is of the unknown type {type_}")
    model.tokens.append(text)
    model.scores.append(score)
    model.types.append(type_)


def _read_trainer(model: SentencePieceModel, data: bytes, start: int, end: int) -> None:
    values = {number: value for number, kind, value in _counted(data, start, end) if kind == _VARINT}
    kind = values.get(3, 1)
    if _MODEL_KINDS.get(kind) not in ("unigram", "bpe"):
        raise UnsupportedModelError(
            f"The SentencePiece model cuts text by {_MODEL_KINDS.get(kind, f'an unknown rule ({kind})')}; "
            "Hearth supports bpe and unigram."
        )
    if values.get(24):
        raise UnsupportedModelError("The SentencePiece model puts spaces behind words, which Hearth does not.")
    model.kind = _MODEL_KINDS[kind]
    model.unknown, model.bos, model.eos = (_int32(values.get(40 + n, n)) for n in range(3))


def _read_normalizer(model: SentencePieceModel, data: bytes, start: int, end: int) -> None:
    for number, kind, value in _counted(data, start, end):
        if number == 2 and kind == _LENGTH:
            first, last = _stretch(kind, value)
            model.charsmap = data[first:last]
        elif number == 3 and kind == _VARINT:
            model.adds_prefix = bool(value)
        elif number == 4 and kind == _VARINT:
            model.collapses_spaces = bool(value)
        elif number == 5 and kind == _VARINT and not value:
            raise UnsupportedModelError("The SentencePiece model leaves spaces as they are, which Hearth does not.")


def _counted(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    for n, found in enumerate(_fields(data, start, end)):
        if n == _MAX_FIELDS:
            raise _Damage(f"one of its parts has more than {_MAX_FIELDS} parts")
        yield found


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, kind, value) of each field: a varint's value, the start of a fixed-size number, or for bytes their
    start and length in one number.
    """
    at = start
    while at < end:
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at, end)
        elif kind == _LENGTH:
            size, at = _varint(data, at, end)
            if size > end - at:
                raise _Damage(f"a field of {size} bytes begins at byte {at}, and what holds it ends at {end}")
            value = at << 32 | size
            at += size
        elif kind in (_FOUR_BYTES, _EIGHT_BYTES):
            value = at
            at += 4 if kind == _FOUR_BYTES else 8
        else:
            raise _Damage(f"byte {at - 1} begins a field of the unknown kind {kind}")
        if number == 0 or at > end:
            raise _Damage(f"a field ends at byte {at}, behind the end of what holds it" if number else "a field is 0")
        yield number, kind, value


def _stretch(kind: int, value: int) -> tuple[int, int]:
    if kind != _LENGTH:
        raise _Damage(f"a part that should be bytes is of the kind {kind}")
    start, size = value >> 32, value & 0xFFFFFFFF
    return start, start + size


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise _Damage(f"the number before byte {at} has more than ten bytes")
    raise _Damage(f"it is cut off at byte {at}")


def _int32(value: int) -> int:
    """Negative numbers are stored as 64 bits."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
