"""Builds GGUF files byte by byte for tests: sound ones, lying ones, split ones and PowerInfer's."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from samples.tiny_model import make_tiny_gguf

from engine.formats.gguf import open_gguf

_NUMBERS = {np.dtype("<f4"): 0, np.dtype("<f2"): 1, np.dtype("i1"): 24, np.dtype("<i2"): 25, np.dtype("<i4"): 26}
_NUMBERS_2023 = {**_NUMBERS, np.dtype("i1"): 16, np.dtype("<i2"): 17, np.dtype("<i4"): 18}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + values


def tensor(name: str = "t", dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf_file(
    entries: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
    data: bytes = bytes(256),
) -> bytes:
    counts = (len(tensors) if n_tensors is None else n_tensors, len(entries) if n_entries is None else n_entries)
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def value(key: str, content: Any) -> bytes:
    """A metadata entry of the type that fits the Python value."""
    if isinstance(content, bool):
        return entry(key, 7, bytes([content]))
    if isinstance(content, int):
        return entry(key, 5 if content < 0 else 10, struct.pack("<i" if content < 0 else "<Q", content))
    if isinstance(content, float):
        return entry(key, 6, struct.pack("<f", content))
    if isinstance(content, str):
        return entry(key, 8, text(content))
    if not content or isinstance(content[0], str):
        return entry(key, 9, array(8, len(content), b"".join(text(item) for item in content)))
    kinds = {bool: (7, "?"), float: (6, "<f4")}
    kind, dtype = kinds.get(type(content[0]), (5, "<i4"))
    return entry(key, 9, array(kind, len(content), np.array(content, dtype).tobytes()))


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], *, magic: bytes = b"GGUF"
) -> Path:
    """A sound file of plain tensors; with the magic PWRI the type numbers are those of 2023. `path` back."""
    numbers = _NUMBERS_2023 if magic == b"PWRI" else _NUMBERS
    table, data = [], b""
    for name, stored in tensors.items():
        data += bytes(-len(data) % 32)
        table.append(tensor(name, stored.shape[::-1], numbers[stored.dtype], len(data)))
        data += stored.tobytes()
    entries = tuple(value(key, content) for key, content in metadata.items())
    path.write_bytes(gguf_file(entries, tuple(table), magic=magic, data=data))
    return path


def split_gguf(folder: Path, stem: str, metadata: Mapping[str, Any], *parts: Mapping[str, NDArray[Any]]) -> list[Path]:
    """The same as llama.cpp splits it: all metadata in the first part, `split.*` in each. The paths back."""
    total = sum(len(part) for part in parts)
    paths = []
    for i, part in enumerate(parts):
        own = {"split.no": i, "split.count": len(parts), "split.tensors.count": total}
        path = folder / f"{stem}-{i + 1:05d}-of-{len(parts):05d}.gguf"
        paths.append(write_gguf(path, {**(metadata if i == 0 else {}), **own}, part))
    return paths


def tiny_model_parts(folder: Path, **options: Any) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """Metadata and float32 tensors, by their GGUF names, of the tiny model."""
    source = open_gguf(make_tiny_gguf(folder / "parts.gguf", **options))
    return dict(source.metadata), {name: source.read_f32(name) for name in source.tensors}


def make_tiny_powerinfer(
    path: Path, *, threshold: float | None = 0.25, rank: int = 16, magic: bytes = b"PWRI", **options: Any
) -> Path:
    """The tiny model as PowerInfer would write it: down transposed, and predictors of a rank that grows by layer."""
    metadata, tensors = tiny_model_parts(path.parent, **options)
    rng = np.random.default_rng(1)
    out: dict[str, NDArray[Any]] = {}
    for name, values in tensors.items():
        if name.endswith("ffn_down.weight"):
            out[name.replace("ffn_down", "ffn_down_t")] = np.ascontiguousarray(values.T)
        else:
            out[name] = values
    for i in range(2):
        d_ff, d_model = out[f"blk.{i}.ffn_up.weight"].shape
        out[f"blk.{i}.fc1.weight"] = rng.standard_normal((rank * (i + 1), d_model)).astype("<f2")
        out[f"blk.{i}.fc2.weight"] = rng.standard_normal((d_ff, rank * (i + 1))).astype("<f2")
    if threshold is not None:
        metadata["powerinfer.sparse_threshold"] = threshold
    return write_gguf(path, metadata, out, magic=magic)
