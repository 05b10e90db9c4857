"""PyTorch files that want to run code, to fill the memory or to read what is not theirs."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from limits import refused

from engine.errors import EngineError, ModelFormatError
from engine.formats.torch_pickle import read_torch

PROTO, STOP = b"\x80\x02", b"."
MOST = b"\xff" * 4


@pytest.fixture(autouse=True, scope="module")
def warmed_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is imported or compiled once is not the files' doing."""
    path = tmp_path_factory.mktemp("warm") / "t.pt"
    torch.save({"a": torch.ones(2)}, path)
    read_torch(path)


def archive(code: bytes, storages: dict[str, bytes] | None = None, method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("t/data.pkl", code)
        for name, data in (storages or {}).items():
            file.writestr(f"t/data/{name}", data)
    return buffer.getvalue()


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def whole(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(whole(value) for value in values) + b"t"


def storage(kind: str = "FloatStorage", name: str = "0", count: int = 4) -> bytes:
    return b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text(name) + text("cpu") + whole(count) + b"tQ"


def tensor(
    stored: bytes | None = None, offset: int = 0, shape: tuple[int, ...] = (4,), strides: tuple[int, ...] = (1,)
) -> bytes:
    arguments = (stored or storage()) + whole(offset) + numbers(*shape) + numbers(*strides) + b"\x89}"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def named(*parts: bytes) -> bytes:
    """A pickle of a dictionary that holds these tensors."""
    return PROTO + b"}" + b"".join(text(f"t{i}") + part + b"s" for i, part in enumerate(parts)) + STOP


FLOATS = {"0": np.arange(4, dtype="<f4").tobytes()}

PICKLES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "ends early"),
    "no stop": (PROTO + b"}", "ends early"),
    "empty stack": (PROTO + STOP, "leaves more than one value"),
    "two values": (PROTO + b"}}" + STOP, "leaves more than one value"),
    "a mark left": (PROTO + b"(" + STOP, "its content is a type"),
    "protocol 4": (b"\x80\x04}.", "protocol 4"),
    "system": (PROTO + b"cos\nsystem\n" + text("true") + b"\x85R.", r"would call os\.system"),
    "eval": (PROTO + b"c__builtin__\neval\n" + text("1") + b"\x85R.", r"would call __builtin__\.eval"),
    "getattr": (PROTO + b"cbuiltins\ngetattr\n.", r"would call builtins\.getattr"),
    "a part of an allowed name": (PROTO + b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.", "__globals__, which"),
    "an unused global": (PROTO + b"csubprocess\nPopen\n0}.", r"subprocess\.Popen"),
    "a long global": (PROTO + b"c" + b"a" * 100_000 + b"\nb\n.", "would call aaa"),
    "a global that is not UTF-8": (PROTO + b"c\xff\n\xfe\n.", "not UTF-8"),
    "a global without end": (PROTO + b"cos", "ends early"),
    "an instance": (PROTO + b"(ios\nsystem\n.", "instruction b'i'"),
    "an object": (PROTO + b"(cos\nsystem\no.", r"os\.system"),
    "new object": (PROTO + b"ccollections\nOrderedDict\n)\x81.", r"instruction b'\\x81'"),
    "stack global": (PROTO + text("os") + text("system") + b"\x93.", r"instruction b'\\x93'"),
    "extension": (PROTO + b"\x82\x01.", r"instruction b'\\x82'"),
    "old persistent id": (PROTO + b"Pabc\n.", "instruction b'P'"),
    "calling a storage type": (PROTO + b"ctorch\nFloatStorage\n)R.", "calls something that is not a function"),
    "calling a text": (PROTO + text("os") + b")R.", "calls something that is not a function"),
    "calling with a list": (PROTO + b"ccollections\nOrderedDict\n]R.", "calls something that is not a function"),
    "calling with too little": (PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "with 0 arguments"),
    "a filled dictionary": (PROTO + b"ccollections\nOrderedDict\n]\x85R.", "fills a dictionary"),
    "attributes": (PROTO + b"}}" + text("__class__") + text("x") + b"sb.", "sets attributes"),
    "attributes of a list": (PROTO + b"]}b.", "not a dict"),
    "text of 4 GB": (PROTO + b"X" + MOST + STOP, "ends early"),
    "number of 255 bytes": (PROTO + b"\x8a\xff" + bytes(255) + STOP, "number of 255 bytes"),
    "number of 2 GB": (PROTO + b"\x8b" + MOST + STOP, r"instruction b'\\x8b'"),
    "storing far away": (PROTO + b"}r" + MOST + b"0" + STOP, "instruction b'0'"),
    "storing nothing": (PROTO + b"q\x00" + STOP, "stores a value from an empty stack"),
    "recalling nothing": (PROTO + b"j" + MOST + STOP, "recalls value 4294967295"),
    "a tuple as a key": (PROTO + b"}(K\x01K\x02tK\x01s" + STOP, "uses a tuple as a key"),
    "a key twice": (PROTO + b"}" + 2 * (text("a") + b"Ns") + STOP, "sets 'a' twice"),
    "a key without value": (PROTO + b"}(K\x01u" + STOP, "a key without a value"),
    "appending to a dictionary": (PROTO + b"}Na" + STOP, "not a list"),
    "a group never opened": (PROTO + b"t" + STOP, "closes a group"),
    "popping a mark": (PROTO + b"(\x85" + STOP, "takes a value from an empty stack"),
    "nested tuples": (PROTO + b")" + b"\x85" * 150_000 + STOP, "its content is a tuple"),
    "shared tuples": (PROTO + b")q\x00" + b"h\x00\x86q\x00" * 100 + STOP, "takes a value|its content is a tuple"),
    "nested lists": (PROTO + b"]" * 90_000 + b"a" * 89_999 + STOP, "its content is a list"),
    "endless instructions": (PROTO + b"N" * 500_000 + STOP, "more than 200000 instructions"),
    "a list of itself": (PROTO + b"]q\x00h\x00a" + STOP, "its content is a list"),
    "a dictionary of itself": (PROTO + b"}q\x00" + text("a") + b"h\x00s" + STOP, "a deeper nest"),
    "a storage as content": (PROTO + storage() + STOP, "its content is a _Storage"),
    "no storage": (PROTO + b"NQ" + STOP, "names something that is not a storage"),
    "a storage of no type": (PROTO + b"(" + text("storage") + b"NNNNtQ" + STOP, "a storage without a type"),
    "a storage of a function": (
        PROTO + b"(" + text("storage") + b"ctorch._utils\n_rebuild_parameter\nNNNtQ" + STOP, "without a type"),
    "a type that is not read": (named(tensor(storage("ComplexFloatStorage"))), r"call torch\.ComplexFloatStorage"),
    "a missing storage": (named(tensor(storage(name="7"))), "lacks the storage '7'"),
    "a storage outside": (named(tensor(storage(name="../data.pkl"))), "lacks the storage"),
    "a storage too long": (named(tensor(storage(count=5))), "claims 20 bytes and has 16"),
    "a storage too short": (named(tensor(storage(count=3))), "claims 12 bytes and has 16"),
    "a storage of 2^60": (named(tensor(storage(count=1 << 60))), "claims 4611686018427387904 bytes"),
    "a storage of less than nothing": (named(tensor(storage(count=-4))), "a storage that is none"),
    "a tensor of nothing": (PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n(NNNNtR.", "a tensor of no storage"),
    "past the end": (named(tensor(offset=1)), "ends 1 values past its storage"),
    "a huge offset": (named(tensor(offset=1 << 47)), "values past its storage"),
    "a negative offset": (named(tensor(offset=-1)), "not a row of whole numbers"),
    "a negative stride": (named(tensor(strides=(-1,))), "not a row of whole numbers"),
    "a huge stride": (named(tensor(strides=(1 << 47,))), "values past its storage"),
    "a stride of 2^62": (named(tensor(strides=(1 << 62,))), "not a row of whole numbers"),
    "a stride beyond": (named(tensor(shape=(2, 2), strides=(3, 1))), "ends 1 values past"),
    "a negative size": (named(tensor(shape=(-4,))), "not a row of whole numbers"),
    "sizes that overflow": (named(tensor(shape=(1 << 40, 1 << 40), strides=(0, 0))), "values over a storage of 4"),
    "an expanded value": (named(tensor(shape=(1 << 40,), strides=(0,))), "1099511627776 values over a storage of 4"),
    "fewer strides": (named(tensor(shape=(2, 2))), "2 dimensions and 1 strides"),
    "many dimensions": (named(tensor(shape=(1,) * 9, strides=(1,) * 9)), "9 dimensions; at most 8"),
    "fifty thousand dimensions": (
        named(tensor(shape=((1 << 47),) * 50_000, strides=(1,) * 50_000)), "50000 dimensions; at most 8"),
    "an empty tensor far away": (named(tensor(offset=9, shape=(0,))), "past its storage"),
    "a parameter of nothing": (PROTO + b"ctorch._utils\n_rebuild_parameter\n(N\x88}tR.", "a parameter of no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICKLES)
def test_hostile_pickles(tmp_path: Path, name: str) -> None:
    code, words = PICKLES[name]
    (tmp_path / "t.pt").write_bytes(archive(code, FLOATS))
    refused(lambda: read_torch(tmp_path / "t.pt"), words)


def test_the_sound_pickle_that_the_others_were_made_from(tmp_path: Path) -> None:
    (tmp_path / "t.pt").write_bytes(archive(named(tensor(), tensor(shape=(2, 2), strides=(2, 1))), FLOATS))
    read = read_torch(tmp_path / "t.pt")
    assert read["t0"].tolist() == [0, 1, 2, 3]
    assert read["t1"].tolist() == [[0, 1], [2, 3]]


def test_nothing_is_run_even_when_python_would(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path = tmp_path / f"{protocol}.pt"  # Windows keeps the one before, which its error still maps
        path.write_bytes(archive(pickle.dumps({"a": Bomb()}, protocol)))
        refused(partial(read_torch, path), r"mkdir|instruction|protocol")
    assert not (tmp_path / "ran").exists()


def test_dictionaries_that_hold_one_another_many_times(tmp_path: Path) -> None:
    nest = b"}q\x00"
    for level in range(4):
        copies = b"".join(text(f"{level}.{j}") + b"h\x00s" for j in range(300))
        nest = b"}" + text("x") + nest + b"s" + copies + b"q\x00"
    (tmp_path / "t.pt").write_bytes(archive(PROTO + nest + STOP))
    refused(lambda: read_torch(tmp_path / "t.pt"), "names more than 65536 tensors")


def test_one_storage_unpacked_many_times(tmp_path: Path) -> None:
    halves = {"0": bytes(2 << 20)}
    part = tensor(storage("BFloat16Storage", count=1 << 20), shape=(1 << 20,))
    (tmp_path / "t.pt").write_bytes(archive(named(*[part] * 1000), halves))
    refused(lambda: read_torch(tmp_path / "t.pt"), "more than four times its size")


# --- the archive


def test_zip_bombs(tmp_path: Path) -> None:
    path = tmp_path / "t.pt"
    path.write_bytes(archive(named(tensor()), {"0": bytes(64 << 20)}, zipfile.ZIP_DEFLATED))
    assert path.stat().st_size < 1 << 20
    refused(lambda: read_torch(path), "is compressed or encrypted")
    other = tmp_path / "u.pt"
    other.write_bytes(archive(PROTO + b"}" + bytes(64 << 20), None, zipfile.ZIP_LZMA))
    refused(lambda: read_torch(other), "is compressed or encrypted")


def test_a_pickle_of_64_mb(tmp_path: Path) -> None:
    (tmp_path / "t.pt").write_bytes(archive(PROTO + b"N" * (64 << 20)))
    refused(lambda: read_torch(tmp_path / "t.pt"), "its pickle takes 67108866 bytes")


@pytest.mark.parametrize("entries", [{}, {"a/b/data.pkl": b""}, {"a/data.pkl": b"", "b/data.pkl": b""}])
def test_archives_without_one_pickle(tmp_path: Path, entries: dict[str, bytes]) -> None:
    with zipfile.ZipFile(tmp_path / "t.pt", "w") as file:
        file.writestr("x", b"")
        for name, data in entries.items():
            file.writestr(name, data)
    refused(lambda: read_torch(tmp_path / "t.pt"), "pickles of tensors instead of one")


def test_big_endian_numbers(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.pt", "w") as file:
        file.writestr("t/data.pkl", named())
        file.writestr("t/byteorder", b"big")
    refused(lambda: read_torch(tmp_path / "t.pt"), "not little endian")


def patched(data: bytes, offset: int, fmt: str, value: int, *, directory: bool = True) -> bytes:
    """The archive with a field of the first central record, or of the end record, set."""
    at = data.index(b"PK\x01\x02") if directory else data.rindex(b"PK\x05\x06")
    out = bytearray(data)
    struct.pack_into(fmt, out, at + offset, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("offset", "fmt", "value", "directory", "words"),
    [
        (8, "<H", 1, True, "compressed or encrypted"),
        (10, "<H", 8, True, "compressed or encrypted"),
        (20, "<I", 7, True, "compressed or encrypted"),
        (24, "<I", 7, True, "compressed or encrypted"),
        (20, "<I", 0xFFFFFFFF, True, "lacks its size"),
        (28, "<H", 0xFFFF, True, "directory is damaged"),
        (30, "<H", 0xFFFF, True, "directory is damaged"),
        (32, "<H", 0xFFFF, True, "directory is damaged"),
        (28, "<H", 3, True, "directory is damaged|has another name"),
        (42, "<I", 0xFFFFFFF0, True, "is outside the file"),
        (42, "<I", 5, True, "does not begin where the directory says"),
        (0, "<I", 0, True, "directory is damaged"),
        (4, "<H", 1, False, "several volumes"),
        (8, "<H", 9, False, "several volumes"),
        (10, "<H", 9, False, "several volumes"),
        (12, "<I", 0xFFFFFFF0, False, "claims 2 entries in a directory of 4294967280 bytes"),
        (12, "<I", 0xFFFFFFFF, False, "zip64 locator"),
        (16, "<I", 0xFFFFFFF0, False, "ends past byte"),
        (12, "<I", 10, False, "directory is damaged|ends early"),
    ],
)  # fmt: skip
def test_directories_that_lie(tmp_path: Path, offset: int, fmt: str, value: int, directory: bool, words: str) -> None:
    data = archive(named(tensor()), FLOATS)
    (tmp_path / "t.pt").write_bytes(patched(data, offset, fmt, value, directory=directory))
    refused(lambda: read_torch(tmp_path / "t.pt"), words)


def test_entries_that_lie_over_one_another(tmp_path: Path) -> None:
    data = bytearray(archive(named(tensor()), FLOATS))
    second = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)
    first_header = struct.unpack_from("<I", data, data.index(b"PK\x01\x02") + 42)[0]
    struct.pack_into("<I", data, second + 42, first_header)
    (tmp_path / "t.pt").write_bytes(data)
    refused(lambda: read_torch(tmp_path / "t.pt"), "has another name in the directory")
    name = b"t/data.pkl"
    body = b"PK\x03\x04" + struct.pack("<5H3I2H", 20, 0, 0, 0, 0, 0, 40, 40, len(name), 0) + name + bytes(60)

    def record(name: bytes, size: int, header: int) -> bytes:
        fields = struct.pack("<6H3I5H2I", 20, 20, 0, 0, 0, 0, 0, size, size, len(name), 0, 0, 0, 0, 0, header)
        return b"PK\x01\x02" + fields + name

    inner = b"PK\x03\x04" + struct.pack("<5H3I2H", 20, 0, 0, 0, 0, 0, 4, 4, 8, 0) + b"t/data/0" + bytes(4)
    body = body[:50] + inner + body[50 + len(inner) :]
    records = record(name, 60, 0) + record(b"t/data/0", 4, 50)
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 2, 2, len(records), len(body), 0)
    (tmp_path / "u.pt").write_bytes(body + records + end)
    refused(lambda: read_torch(tmp_path / "u.pt"), "entries overlap")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.pt", "w") as file:
        for _ in range(2):
            file.writestr("t/data.pkl", named())
    refused(lambda: read_torch(tmp_path / "t.pt"), r"t/data\.pkl appears twice")


def test_a_directory_of_very_many_entries(tmp_path: Path) -> None:
    record = b"PK\x01\x02" + struct.pack("<6H3I5H2I", 20, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    count = 0xFFFE
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, count, count, count * len(record), 4, 0)
    (tmp_path / "t.pt").write_bytes(b"PK\x03\x04" + record * count + end)
    refused(lambda: read_torch(tmp_path / "t.pt"), "claims 65534 entries")


def test_files_cut_off_anywhere(tmp_path: Path) -> None:
    torch.save({"fc1.weight": torch.ones(3, 2), "fc2.weight": torch.ones(2, 3).half()}, tmp_path / "whole.pt")
    data, path = (tmp_path / "whole.pt").read_bytes(), tmp_path / "t.pt"
    for kept in range(0, len(data), 5):
        path.write_bytes(data[:kept])
        with pytest.raises(ModelFormatError):
            read_torch(path)


def test_changed_bytes_are_read_or_refused(tmp_path: Path) -> None:
    torch.save({"fc1.weight": torch.ones(3, 2), "fc2.weight": torch.ones(2, 3).bfloat16()}, tmp_path / "whole.pt")
    data, path = (tmp_path / "whole.pt").read_bytes(), tmp_path / "t.pt"
    rng = np.random.default_rng(0)
    for _ in range(600):
        changed = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 5)):
            changed[at] = rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))])
        path.write_bytes(changed)
        try:
            read_torch(path)
        except EngineError as error:
            assert error.message  # noqa: PT017 - either outcome is right; what is wrong is any other exception
