"""Models in several files, and PowerInfer's, that are damaged, contradict themselves or claim the impossible."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import MOST_MEMORY_BYTES, little_memory, refused
from safetensors.numpy import save_file
from samples.raw_gguf import array, entry, gguf_file, split_gguf, tensor, text, value

from engine.errors import EngineError, ModelFormatError, ModelNotFoundError
from engine.formats.gguf import open_gguf
from engine.formats.gguf_header import HeaderTooLargeError
from engine.formats.safetensors import open_safetensors, open_sharded_safetensors
from engine.formats.shard_index import INDEX_NAME

Data = bytes | Callable[[], bytes]  # large ones are made by the test that writes them, not while tests are collected


def write(path: Path, data: Data) -> None:
    path.write_bytes(data() if callable(data) else data)


# --- GGUF under either magic


@pytest.mark.parametrize("magic", [b"GGUF", b"PWRI"])
def test_a_gguf_header_cut_off_at_every_byte(tmp_path: Path, magic: bytes) -> None:
    """Every structural boundary is among the bytes."""
    entries = (value("general.architecture", "llama"), value("a.texts", ["x", "yy"]), value("a.flag", True),
               value("a.reals", [0.5, 1.5]), value("powerinfer.sparse_threshold", 0.25))  # fmt: skip
    tensors = (tensor("blk.0.fc1.weight", (8, 4)), tensor("blk.0.ffn_down_t.weight", (32,), 8, 128))
    data = gguf_file(entries, tensors, magic=magic, data=bytes(128 + 34))
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    assert len(open_gguf(path).tensors) == 2
    for kept in range(len(data)):
        path.write_bytes(data[:kept])
        with pytest.raises(ModelFormatError):
            open_gguf(path)


HUGE = (1 << 64) - 1
TEXT_2_60, TEXT_64 = struct.pack("<Q", 1 << 60), struct.pack("<Q", 64)
WIDE = "x" * (8 << 20) + "\U0001f525"  # one letter outside the first plane widens all the others in memory
PAST, DEAR = "past the file", "would take more than"
LIES: dict[str, tuple[Data, str]] = {
    "tensor count": (gguf_file(n_tensors=HUGE, magic=b"PWRI"), "claims 18446744073709551615 tensors"),
    "entry count": (gguf_file(n_entries=HUGE, magic=b"PWRI"), "claims 18446744073709551615 metadata"),
    "text of 2^60": (gguf_file((text("a") + b"\x08\0\0\0" + TEXT_2_60,), magic=b"PWRI"), "claims 1152921504606846976"),
    "array of arrays": (gguf_file((entry("a", 9, array(9, 1)),), magic=b"PWRI"), "array of arrays"),
    "texts in an array": (gguf_file((entry("a", 9, array(8, 2, TEXT_2_60)),), data=bytes(64)), PAST),
    "text beyond the end": (gguf_file((entry("a", 9, array(8, 1, TEXT_64)),), data=b""), "ends .* past the file"),
    "alignment 0": (gguf_file((value("general.alignment", 0),), magic=b"PWRI"), "general.alignment is 0"),
    "dimensions": (gguf_file((), (tensor(dims=(1 << 47,) * 4),), magic=b"PWRI"), "bytes past the file"),
    "overlap": (gguf_file((), (tensor("a"), tensor("b", offset=64)), magic=b"PWRI"), "a and b overlap"),
    "same tensor": (gguf_file((), (tensor(), tensor(offset=128)), magic=b"PWRI"), "tensor t appears twice"),
    "same key": (gguf_file((value("a", 1),) * 2, magic=b"PWRI"), "key a appears twice"),
    "type": (gguf_file((), (tensor(kind=26),), magic=b"PWRI"), "unknown type 26"),
    "other magic": (gguf_file(magic=b"PWRJ"), "begins with b'PWRJ'"),
    "long texts": (lambda: gguf_file(tuple(value(f"a{i}", "x" * (15 << 20)) for i in range(7))), DEAR),
    "wide texts": (lambda: gguf_file(tuple(value(f"a{i}", WIDE) for i in range(4))), DEAR),
    "many texts": (lambda: gguf_file((entry("a", 9, array(8, 4_000_000, bytes(32_000_000))),)), DEAR),
    "many numbers": (lambda: gguf_file((entry("a", 9, array(5, 4_000_000, bytes(16_000_000))),)), DEAR),
    "long names": (lambda: gguf_file((), tuple(tensor("x" * 65_000 + str(i), (1,)) for i in range(1400))), DEAR),
    "long keys": (lambda: gguf_file(tuple(value("x" * 65_000 + str(i), 1) for i in range(1400))), DEAR),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_hostile_headers(tmp_path: Path, name: str) -> None:
    data, words = LIES[name]
    write(tmp_path / "m.gguf", data)
    refused(lambda: open_gguf(tmp_path / "m.gguf"), words, HeaderTooLargeError if words == DEAR else ModelFormatError)


def test_the_largest_header_that_is_accepted_is_cheap(tmp_path: Path) -> None:
    """Gemma 4's. The memory of a quarter of it is counted: counting all of it takes ten seconds."""

    def written(n_tokens: int, n_merges: int) -> Path:
        tokens, merges = text("▁token262143") * n_tokens, text("a262143 b262143") * n_merges
        zeros = bytes(4 * n_tokens)
        entries = (entry("tokens", 9, array(8, n_tokens, tokens)), entry("scores", 9, array(6, n_tokens, zeros)),
                   entry("types", 9, array(5, n_tokens, zeros)),
                   entry("merges", 9, array(8, n_merges, merges)))  # fmt: skip
        (tmp_path / f"{n_tokens}.gguf").write_bytes(gguf_file(entries))
        return tmp_path / f"{n_tokens}.gguf"

    assert list(open_gguf(written(262_144, 514_906)).metadata["tokens"]) == ["▁token262143"] * 262_144
    quarter = written(262_144 // 4, 514_906 // 4)
    with little_memory(MOST_MEMORY_BYTES // 4):
        open_gguf(quarter)


# --- split GGUF


def test_parts_cut_off_anywhere(tmp_path: Path) -> None:
    ones = np.ones(40, np.float32)
    parts = split_gguf(tmp_path, "m", {"general.architecture": "llama"}, {"a": ones}, {"b": ones})
    for part in parts:
        data = part.read_bytes()
        for kept in range(0, len(data) - 1, 7):
            part.write_bytes(data[:kept])
            with pytest.raises(ModelFormatError):
                open_gguf(parts[0])
        part.write_bytes(data)
    assert len(open_gguf(parts[1]).tensors) == 2


def test_a_hundred_thousand_parts(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-99999.gguf"
    path.write_bytes(gguf_file((value("split.no", 0), value("split.count", 99_999))))
    refused(lambda: open_gguf(path), "Part 2 of 99999 .* no m-00002-of-99999", ModelNotFoundError)


def test_parts_share_one_budget(tmp_path: Path) -> None:
    for i in range(4):
        own = (value("split.no", i), value("split.count", 4))
        filler = tuple(value(f"x{j}", "y" * (10 << 20)) for j in range(3))
        (tmp_path / f"m-{i + 1:05d}-of-00004.gguf").write_bytes(gguf_file(own + filler))
    refused(
        lambda: open_gguf(tmp_path / "m-00001-of-00004.gguf"),
        "00003-of-00004.* would take more than",
        HeaderTooLargeError,
    )


# --- safetensors


def header(content: Any, data: bytes = b"") -> bytes:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def info(start: int, stop: int, *shape: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


TWICE = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
SAFETENSORS: dict[str, Data] = {
    "empty header": header(b""),
    "header of 2^60 bytes": struct.pack("<Q", 1 << 60) + b"{}",
    "header past the end": struct.pack("<Q", 3) + b"{}",
    "seven bytes": bytes(7),
    "a list": header(b"[]"),
    "nothing but brackets": header(b"[" * 100_000),
    "a tensor twice": header(TWICE, bytes(4)),
    "overlap": header({"a": info(0, 8, 2), "b": info(4, 12, 2)}, bytes(12)),
    "a hole": header({"a": info(0, 4, 1), "b": info(8, 12, 1)}, bytes(12)),
    "sizes that overflow": header({"a": info(0, 4, 1 << 40, 1 << 40)}, bytes(4)),
    "a negative size": header({"a": info(0, 4, -1)}, bytes(4)),
    "offsets reversed": header({"a": info(4, 0, 1)}, bytes(4)),
    "offsets of 2^63": header({"a": info(0, 1 << 63, 1 << 61)}, bytes(4)),
    "an unknown type": header({"a": info(0, 4, 1, dtype="F33")}, bytes(4)),
    "metadata of numbers": header({"__metadata__": {"a": 1}}),
    "a number of 5,000 digits": header(b'{"a":' + b"9" * 5000 + b"}"),
    "not UTF-8": header(b'{"\xff":1}'),
    "seven million commas": lambda: header(b'{"a":[' + b"1," * 3_500_000 + b"1]}"),
    "ten million brackets": lambda: header(b'{"a":[' + b"[]," * 2_000_000 + b"1]}"),
    "a hundred thousand tensors": lambda: header(
        b"{" + b",".join(b'"%d":{"dtype":"F32","shape":[],"data_offsets":[]}' % i for i in range(100_000)) + b"}"
    ),
    "nine megabytes": lambda: header(b"{" + b" " * (9 << 20) + b"}"),
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_hostile_safetensors(tmp_path: Path, name: str) -> None:
    write(tmp_path / "m.safetensors", SAFETENSORS[name])
    refused(lambda: open_safetensors(tmp_path / "m.safetensors"), r"m\.safetensors is not a sound safetensors file: ")


FILE = "model-00001-of-00001.safetensors"
INDEXES: dict[str, tuple[Data, str]] = {
    "empty": (b"", "is not JSON"),
    "cut": (b'{"weight_map": {"a"', "is not JSON"),
    "a list": (b"[]", "no JSON object"),
    "nested": (b"[" * 100_000, "lists more than|is not JSON"),
    "nested a little": (b"[" * 900, "is not JSON"),
    "no map": (b"{}", "lacks a 'weight_map'"),
    "an empty map": (b'{"weight_map": {}}', "lacks a 'weight_map'"),
    "a list as map": (b'{"weight_map": [1]}', "lacks a 'weight_map'"),
    "a number as file": (b'{"weight_map": {"a": 1}}', "which is not a .safetensors file beside it"),
    "a list as file": (b'{"weight_map": {"a": ["x"]}}', "which is not a .safetensors file beside it"),
    "the same tensor twice": (b'{"weight_map": {"a": "x", "a": "x"}}', "'a' appears twice"),
    "the same map twice": (b'{"weight_map": {"a": "x"}, "weight_map": {}}', "'weight_map' appears twice"),
    "half a million tensors": (
        lambda: json.dumps({"weight_map": dict.fromkeys(map(str, range(500_000)), FILE)}).encode(),
        "lists more than 262144"),
    "thirty megabytes": (lambda: b" " * (30 << 20), "larger than 25165824 bytes"),
    "ten thousand files": (
        json.dumps({"weight_map": {str(i): f"{i}.safetensors" for i in range(10_000)}}).encode(), "names 10000 files"),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXES)
def test_hostile_indexes(tmp_path: Path, name: str) -> None:
    data, words = INDEXES[name]
    save_file({"a": np.ones(2, np.float32)}, tmp_path / FILE)
    write(tmp_path / INDEX_NAME, data)
    refused(lambda: open_sharded_safetensors(tmp_path / INDEX_NAME), words)


ELSEWHERE = ["../m.safetensors", "/m.safetensors", "a\\b.safetensors", "C:m.safetensors", "a\0.safetensors", "m.bin",
             "", "x" * 300 + ".safetensors"]  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_indexes_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "inside").mkdir()
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "m.safetensors")
    index = tmp_path / "inside" / INDEX_NAME
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    refused(lambda: open_sharded_safetensors(index), "which is not a .safetensors file beside it")


def test_an_index_cut_off_anywhere(tmp_path: Path) -> None:
    save_file({"a": np.ones(2, np.float32)}, tmp_path / FILE)
    raw = json.dumps({"metadata": {}, "weight_map": {"a": FILE}}).encode()
    for kept in range(len(raw)):
        (tmp_path / INDEX_NAME).write_bytes(raw[:kept])
        with pytest.raises(EngineError):
            open_sharded_safetensors(tmp_path / INDEX_NAME)


def test_a_shard_cut_off_anywhere(tmp_path: Path) -> None:
    save_file({"a": np.ones(2, np.float32)}, tmp_path / FILE)
    (tmp_path / INDEX_NAME).write_text(json.dumps({"weight_map": {"a": FILE}}))
    data = (tmp_path / FILE).read_bytes()
    for kept in range(len(data)):
        (tmp_path / FILE).write_bytes(data[:kept])
        with pytest.raises(ModelFormatError):
            open_sharded_safetensors(tmp_path / INDEX_NAME)
