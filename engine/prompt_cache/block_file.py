"""Read and write one file of the prompt cache: keys and values of up to BLOCK_TOKENS tokens, or a recurrent state.

Layout: magic, header length (u32, little-endian), header (JSON), data, checksum. The checksum is the BLAKE2b hash of
everything before the data and of the data's CRC-32; `read_block` verifies it on every read. CRC-32 detects every change
within 32 adjacent bits, and reads four times as fast as BLAKE2b.

A file's name is the key of the tokens before it, a hyphen, and its own key. A key is the hash of the previous key and
of the block's kind and tokens; the first key belongs to the model. Chats with the same beginning therefore share files,
and a model never finds files that another model computed.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from engine.files import replace_file
from engine.model.window_memory import STORED_TOKENS
from native_kernels.backend import U8

Kind = Literal["kv", "state"]

BLOCK_TOKENS = STORED_TOKENS
INSTRUCTIONS = "instructions"
MAGIC = b"HearthP1"
_HASH_BYTES = 32
_KEY_BYTES = 16
_MAX_HEADER_BYTES = 1 << 16


@dataclass(frozen=True)
class Header:
    """The header of a file. parent: key of all tokens before the file's own.

    tokens: in a kv file, those at its positions; in a state file, those since the last full block, which the state
    includes. forms: as KVCache.forms; of a state "", or INSTRUCTIONS for one that other chats share. token_s: seconds
    to compute one token of such a prompt; 0 if not measured.
    """

    parent: str
    kind: Kind
    tokens: tuple[int, ...]
    forms: str
    token_s: float
    data_bytes: int

    @property
    def key(self) -> str:
        return key_of(self.parent, self.kind, self.tokens)

    @property
    def name(self) -> str:
        return f"{self.parent}-{self.key}"


def key_of(parent: str, kind: Kind, tokens: Sequence[int]) -> str:
    """Return the key of a block: 32 hexadecimal digits."""
    text = np.asarray(tokens, "<i8").tobytes()
    return hashlib.blake2b(f"{parent} {kind} ".encode() + text, digest_size=_KEY_BYTES).hexdigest()


def write_block(path: Path, header: Header, data: U8) -> None:
    """Write the file under a temporary name, then rename it. Raises: OSError."""
    text = json.dumps(asdict(header), separators=(",", ":")).encode()
    head = MAGIC + len(text).to_bytes(4, "little") + text
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(partial, flags, 0o600), "wb") as f:
            f.write(head)
            f.write(data.data)
            f.write(_check(head, data))
        replace_file(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_header(path: Path) -> Header | None:
    """Return the file's header, not checked by the hash; None if the file is missing or its beginning is damaged."""
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC) + 4)
            n_bytes = int.from_bytes(start[len(MAGIC) :], "little")
            if start[: len(MAGIC)] != MAGIC or n_bytes > _MAX_HEADER_BYTES:
                return None
            return _parsed(file.read(n_bytes), path.stem)
    except OSError:
        return None


def read_block(path: Path) -> tuple[Header, U8] | None:
    """Return header and data; None unless the file is whole, undamaged and has the content that its name says.

    Cost: one read of the file and its CRC, without the GIL. Raises: OSError.
    """
    content: U8 = np.fromfile(path, np.uint8)
    body, check = content[:-_HASH_BYTES], content[-_HASH_BYTES:].tobytes()
    start = len(MAGIC) + 4
    n_bytes = int.from_bytes(body[len(MAGIC) : start].tobytes(), "little")
    head, data = body[: start + n_bytes].tobytes(), body[start + n_bytes :]
    if head[: len(MAGIC)] != MAGIC or _check(head, data) != check:
        return None
    header = _parsed(head[start:], path.stem)
    return None if header is None or len(data) != header.data_bytes else (header, data)


def _check(head: bytes, data: U8) -> bytes:
    crc = zlib.crc32(data.data).to_bytes(4, "little")
    return hashlib.blake2b(head + crc, digest_size=_HASH_BYTES).digest()


def _parsed(text: bytes, name: str) -> Header | None:
    try:
        values: dict[str, Any] = json.loads(text)
        header = Header(**{**values, "tokens": tuple(int(token) for token in values["tokens"])})
        return header if header.name == name else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
