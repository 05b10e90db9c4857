"""Ten thousand generated headers over all the formats: each is read or refused with an EngineError, cheaply.

A header is grown from the pieces that its format is made of, sound and unsound, so that most get past the first check
and some are read. Its number is the seed: a failure names it. Time is the CPU's; memory is counted for every
tenth, because counting slows everything down.
"""

from __future__ import annotations

import io
import json
import struct
import time
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from limits import MOST_SECONDS, little_memory
from samples.raw_gguf import array, entry, gguf_file, tensor, value

from engine.errors import EngineError
from engine.formats.gguf import open_gguf
from engine.formats.safetensors import open_safetensors, open_sharded_safetensors
from engine.formats.shard_index import INDEX_NAME
from engine.formats.torch_pickle import read_torch

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 31, 32, 33, 64, 255, 256, 1 << 16, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 47, 1 << 60,
           (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
KEYS = ("general.architecture", "general.alignment", "split.no", "split.count", "split.tensors.count", "a", "b", "")
TENSORS = ("blk.0.fc1.weight", "blk.0.ffn_down_t.weight", "blk.0.gpu_idx", "t", "u", "v", "")


# --- GGUF, under either magic


def gguf_entry(rng: Random) -> bytes:
    key = rng.choice(KEYS)
    if rng.random() < 0.6:
        sound = [rng.choice(NUMBERS), -rng.randrange(1 << 31), 0.5, "text", True, ["a", "bb"], [1, 2], [0.5], []]
        return value(key, rng.choice(sound))
    if rng.random() < 0.5:
        return entry(key, 9, array(rng.randrange(14), rng.choice(NUMBERS), rng.randbytes(rng.randrange(40))))
    return entry(key, rng.randrange(14), rng.randbytes(rng.randrange(17)))


def gguf_tensor(rng: Random, i: int) -> bytes:
    if rng.random() < 0.5:
        return tensor(
            f"t{i}", (rng.choice((32, 64, 256)), rng.randrange(1, 4)), rng.choice((0, 1, 2, 8, 16, 18)), i * 4096
        )
    dims = tuple(rng.choice(NUMBERS) for _ in range(rng.randrange(6)))
    return tensor(rng.choice(TENSORS), dims, rng.randrange(46), rng.choice(NUMBERS))


def gguf_header(rng: Random, folder: Path) -> Callable[[], object]:
    entries = tuple(gguf_entry(rng) for _ in range(rng.randrange(4)))
    tensors = tuple(gguf_tensor(rng, i) for i in range(rng.randrange(4)))
    counts = {"n_entries": len(entries), "n_tensors": len(tensors)}
    if rng.random() < 0.2:
        counts[rng.choice(list(counts))] = rng.choice(NUMBERS)
    version = 3 if rng.random() < 0.9 else rng.randrange(6)
    magic = rng.choice((b"GGUF", b"PWRI"))
    data = gguf_file(entries, tensors, magic=magic, version=version, data=bytes(16_384), **counts)
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data) + 1)]
    (folder / "m.gguf").write_bytes(data)
    return lambda: open_gguf(folder / "m.gguf")


# --- safetensors and their indexes


def odd(rng: Random) -> Any:
    return rng.choice((None, -1, "x", [], [1, -1], {}, [[1]], 0.5, True, rng.choice(NUMBERS)))


def safetensors_bytes(rng: Random, names: tuple[str, ...]) -> bytes:
    head: dict[str, Any] = {}
    at = 0
    for name in names:
        size = rng.randrange(1, 4)
        head[name] = {"dtype": "F32", "shape": [size], "data_offsets": [at, at + 4 * size]}
        at += 4 * size
    if head and rng.random() < 0.5:
        spoilt = head[rng.choice(list(head))]
        field = rng.choice(list(spoilt))
        spoilt[field] = rng.choice((odd(rng), [rng.choice(NUMBERS), rng.choice(NUMBERS)], [rng.choice(NUMBERS)] * 5))
    if rng.random() < 0.2:
        head["__metadata__"] = rng.choice((odd(rng), {"format": "pt"}, {"a": odd(rng)}))
    raw = json.dumps(head).encode()
    size = len(raw) if rng.random() < 0.9 else rng.choice(NUMBERS)
    return struct.pack("<Q", size) + raw + bytes(at if rng.random() < 0.9 else rng.randrange(40))


def safetensors_header(rng: Random, folder: Path) -> Callable[[], object]:
    path = folder / "m.safetensors"
    path.write_bytes(safetensors_bytes(rng, TENSORS[: rng.randrange(4)]))
    return lambda: open_safetensors(path)


def index(rng: Random, folder: Path) -> Callable[[], object]:
    for name, held in (("a", ("t", "u")), ("b", ("v",))):
        (folder / f"{name}.safetensors").write_bytes(
            safetensors_bytes(rng, held) if rng.random() < 0.2 else SOUND[name]
        )
    where: Any = {"t": "a.safetensors", "u": "a.safetensors", "v": "b.safetensors"}
    if rng.random() < 0.6:
        others = ("b.safetensors", "gone.safetensors", "../a.safetensors", "a", odd(rng))
        where[rng.choice(("t", "u", "v", "w"))] = rng.choice(others)
    if rng.random() < 0.2:
        where = odd(rng)
    raw = json.dumps(
        {rng.choice(("weight_map", "weight_map", "weight_map", "map")): where, "metadata": odd(rng)}
    ).encode()
    (folder / INDEX_NAME).write_bytes(raw if rng.random() < 0.9 else raw[: rng.randrange(len(raw))])
    return lambda: open_sharded_safetensors(folder / INDEX_NAME)


def sound_shard(*names: str) -> bytes:
    head = {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(names)}
    raw = json.dumps(head).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(4 * len(names))


SOUND = {"a": sound_shard("t", "u"), "b": sound_shard("v")}

# --- PyTorch's files

KINDS = ("FloatStorage", "HalfStorage", "BFloat16Storage", "IntStorage", "LongStorage", "DoubleStorage")
SCRAPS = (b"N", b")", b"]", b"}", b"(", b"t", b"s", b"u", b"a", b"e", b"R", b"b", b"Q", b"h\x00", b"q\x00", b"\x85",
          b"cos\nsystem\n", b"ccollections\nOrderedDict\n)R", b"r\xff\xff\xff\xff", b"\x8a\xff",
          b"X\xff\xff\xff\xff")  # fmt: skip


def word(content: str) -> bytes:
    return b"X" + struct.pack("<I", len(content.encode())) + content.encode()


def whole(number: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<Q", number)


def pickled_tensor(rng: Random) -> bytes:
    kind, name, count, offset, shape, strides = "FloatStorage", "0", 4, 0, [2, 2], [2, 1]
    if rng.random() < 0.6:
        spoilt = rng.randrange(6)
        kind = rng.choice(KINDS) if spoilt == 0 else kind
        name = rng.choice(("1", "7", "../data.pkl")) if spoilt == 1 else name
        count = rng.choice(NUMBERS) if spoilt == 2 else count
        offset = rng.choice(NUMBERS) if spoilt == 3 else offset
        shape = [rng.choice(NUMBERS) for _ in range(rng.randrange(4))] if spoilt == 4 else shape
        strides = [rng.choice(NUMBERS) for _ in range(rng.choice((2, 2, 3)))] if spoilt == 5 else strides
    stored = b"(" + word("storage") + f"ctorch\n{kind}\n".encode() + word(name) + word("cpu") + whole(count) + b"tQ"
    places = b"".join(b"(" + b"".join(map(whole, numbers)) + b"t" for numbers in (shape, strides))
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + whole(offset) + places + b"\x89}tR"


def torch_file(rng: Random, folder: Path) -> Callable[[], object]:
    code = b"\x80\x02}"
    for i in range(rng.randrange(3)):
        code += word(f"t{i}") + pickled_tensor(rng) + b"s"
        if rng.random() < 0.3:
            code += rng.choice((*SCRAPS, rng.randbytes(2)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in (("data.pkl", code + b"."), ("data/0", bytes(16)), ("data/1", bytes(8))):
            archive.writestr(f"t/{name}", data)
    data = bytearray(buffer.getvalue())
    if rng.random() < 0.4:
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
    (folder / "t.pt").write_bytes(data if rng.random() < 0.9 else data[: rng.randrange(len(data))])
    return lambda: read_torch(folder / "t.pt")


# --- all of them


@pytest.mark.parametrize("start", [0, pytest.param(1, id="others", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("make", "count"), [(gguf_header, 2000), (safetensors_header, 1000), (index, 500), (torch_file, 1500)]
)
def test_generated_headers(
    tmp_path: Path, make: Callable[[Random, Path], Callable[[], object]], count: int, start: int
) -> None:
    n_read = 0
    for seed in range(count * start, count * (start + 1)):
        act = make(Random(seed), tmp_path)
        started = time.process_time()
        try:
            with little_memory() if seed % 10 == 0 else nullcontext():
                act()
            n_read += 1
        except EngineError as error:
            assert 0 < len(error.message) < 1000, seed  # noqa: PT017 - either outcome is right
        except Exception as error:
            raise AssertionError(f"header {seed}: {type(error).__name__}: {error}") from error
        assert time.process_time() - started < MOST_SECONDS, seed
    assert count / 20 < n_read < count * 0.9, "the generator would prove nothing if all were sound, or none"
