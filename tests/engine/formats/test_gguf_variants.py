"""GGUF as others write it: split over files, PowerInfer's variant with the numbers of 2023, and lists of neurons."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from samples.raw_gguf import gguf_file, make_tiny_powerinfer, split_gguf, tensor, write_gguf

from engine.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError
from engine.formats.gguf import is_gpu_index, open_gguf
from engine.formats.quant import BLOCK_SIZES, GGML_TYPES, POWERINFER_TYPES

META: dict[str, Any] = {"general.architecture": "llama", "general.name": "Split"}


def numbers(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- types


def test_every_type_has_the_number_and_size_that_ggml_gives_it() -> None:
    theirs = {int(kind): kind.name.lower() for kind in gguf.GGMLQuantizationType}
    assert dict(GGML_TYPES) == theirs
    assert dict(BLOCK_SIZES) == {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}


@pytest.mark.parametrize("number", sorted(GGML_TYPES))
def test_a_tensor_of_every_type_is_bounded_by_its_size(tmp_path: Path, number: int) -> None:
    path = tmp_path / "m.gguf"
    block, size = BLOCK_SIZES[GGML_TYPES[number]]
    raw = gguf_file((), (tensor("t", (2 * block, 3), number),), data=bytes(6 * size))
    path.write_bytes(raw)
    info = open_gguf(path).tensors["t"]
    assert (info.shape, info.codec, info.n_bytes) == ((3, 2 * block), GGML_TYPES[number], 6 * size)
    path.write_bytes(raw[:-1])
    with pytest.raises(ModelFormatError, match=r"\bt ends 1 byte"):
        open_gguf(path)


def test_what_cannot_be_decoded_is_named_when_it_is_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {}, {"t": np.arange(6, dtype="<i4").reshape(2, 3)})
    source = open_gguf(path)
    np.testing.assert_array_equal(source.view("t").view("<i4"), np.arange(6))
    with pytest.raises(UnsupportedModelError, match="t is stored as I32"):
        source.read_f32("t")


# --- PowerInfer's


def test_the_integers_of_2023_are_read_under_the_other_magic_only(tmp_path: Path) -> None:
    tensors = {"i8": np.arange(5, dtype="i1"), "i16": np.arange(6, dtype="<i2"), "i32": np.arange(7, dtype="<i4")}
    source = open_gguf(write_gguf(tmp_path / "old.gguf", {}, tensors, magic=b"PWRI"))
    assert {name: info.codec for name, info in source.tensors.items()} == {name: name for name in tensors}
    for name, values in tensors.items():
        np.testing.assert_array_equal(source.view(name).view(values.dtype), values)
    assert POWERINFER_TYPES[16] == "i8"
    new = tmp_path / "new.gguf"
    new.write_bytes(gguf_file((), (tensor("t", (256,), 18),), data=bytes(98)))
    assert open_gguf(new).tensors["t"].codec == "iq3_xxs"


@pytest.mark.parametrize("number", [19, 24, 26, 30])
def test_numbers_that_came_later_are_unknown_in_powerinfers_files(tmp_path: Path, number: int) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_file((), (tensor("t", (256,), number),), magic=b"PWRI", data=bytes(2048)))
    with pytest.raises(ModelFormatError, match=f"unknown type {number}"):
        open_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["plain.gguf", "x.powerinfer.gguf", "prosparse"])
def test_the_variant_is_told_by_magic_and_tensors_and_not_by_name(tmp_path: Path, name: str) -> None:
    assert open_gguf(make_tiny_powerinfer(tmp_path / name)).dialect == "powerinfer"
    assert open_gguf(make_tiny_powerinfer(tmp_path / name, magic=b"GGUF")).dialect == "powerinfer"
    assert open_gguf(write_gguf(tmp_path / name, META, {"t": numbers(0, 4)})).dialect == "gguf"
    assert open_gguf(write_gguf(tmp_path / name, META, {"t": numbers(0, 4)}, magic=b"PWRI")).dialect == "powerinfer"


@pytest.mark.parametrize("magic", [b"PWRI", b"GGUF"])
@pytest.mark.parametrize("architecture", ["generic.gpu_index", "unheard-of"])
def test_a_list_of_neurons_is_called_what_it_is(tmp_path: Path, magic: bytes, architecture: str) -> None:
    ids = np.arange(4, dtype="<i4")
    path = tmp_path / "m.gguf.generated.gpuidx"
    write_gguf(path, {"general.architecture": architecture, "split.vram_capacity": 1 << 33},
               {"blk.0.gpu_idx": ids, "blk.0.gpu_bucket": ids}, magic=magic)  # fmt: skip
    with pytest.raises(UnsupportedModelError, match=r"m\.gguf\.generated\.gpuidx .*PowerInfer") as caught:
        open_gguf(path)
    assert "beside it" in caught.value.hint
    assert is_gpu_index(path)


def test_what_is_no_list_of_neurons(tmp_path: Path) -> None:
    assert not is_gpu_index(write_gguf(tmp_path / "m.gguf", META, {"t": numbers(0, 4)}))
    (tmp_path / "junk").write_bytes(b"junk")
    (tmp_path / "four").write_bytes(gguf_file(version=4))
    (tmp_path / "empty").write_bytes(b"")
    assert not any(is_gpu_index(tmp_path / name) for name in ("junk", "four", "empty"))


# --- split models


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    tensors = [{f"{i}.a": numbers(i, 3, 32), f"{i}.b": numbers(i + 9, 5)} for i in range(3)]
    return split_gguf(tmp_path, "big", META, *tensors)


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_any_part_opens_the_whole_model(parts: list[Path], chosen: int) -> None:
    source = open_gguf(parts[chosen])
    assert source.paths == parts
    assert list(source.tensors) == ["0.a", "0.b", "1.a", "1.b", "2.a", "2.b"]
    assert source.metadata["general.name"] == "Split"
    for i in range(3):
        np.testing.assert_array_equal(source.read_f32(f"{i}.a"), numbers(i, 3, 32))
        np.testing.assert_array_equal(source.view(f"{i}.b").view("<f4"), numbers(i + 9, 5))
        assert source.file_of(f"{i}.a") == parts[i]


def test_what_the_gguf_package_splits_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "llama", split_max_tensors=2)
    for i in range(5):
        writer.add_tensor(f"t{i}", numbers(i, 2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    files = sorted(tmp_path.glob("*.gguf"))
    assert len(files) == 3
    source = open_gguf(files[1])
    assert source.metadata["general.architecture"] == "llama"
    for i in range(5):
        np.testing.assert_array_equal(source.read_f32(f"t{i}"), numbers(i, 2, 32))


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_is_named(parts: list[Path], missing: int) -> None:
    parts[missing].unlink()
    with pytest.raises(ModelNotFoundError, match=rf"Part {missing + 1} of 3 .* no {parts[missing].name}") as caught:
        open_gguf(parts[(missing + 1) % 3])
    assert parts[missing].name in caught.value.hint


def test_parts_that_contradict_their_names(parts: list[Path], tmp_path: Path) -> None:
    shutil.copy(parts[1], parts[2])
    with pytest.raises(ModelFormatError, match=r"00003-of-00003\.gguf .*part 2 of 3.* 3 of 3"):
        open_gguf(parts[0])
    alone = tmp_path / "alone.gguf"
    shutil.copy(parts[1], alone)
    with pytest.raises(ModelFormatError, match=r"alone\.gguf .*part 2 of 3.* 1 of 1") as caught:
        open_gguf(alone)
    assert "-00002-of-00003.gguf" in caught.value.hint
    with pytest.raises(ModelFormatError, match="part 3 of 2"):
        open_gguf(tmp_path / "x-00003-of-00002.gguf")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"split.no": None}, "no parts"),
        ({"split.count": None}, "no parts"),
        ({"split.count": 2}, "part 2 of 2.* 2 of 3"),
        ({"split.no": "one"}, "split.no"),
        ({"split.no": -1}, "split.no"),
        ({"general.architecture": "falcon"}, "another model"),
    ],
)
def test_parts_that_contradict_themselves(parts: list[Path], changes: dict[str, Any], words: str) -> None:
    own = {"split.no": 1, "split.count": 3, "split.tensors.count": 6} | changes
    kept = {key: value for key, value in own.items() if value is not None}
    write_gguf(parts[1], kept, {"1.a": numbers(1, 3, 32), "1.b": numbers(10, 5)})
    with pytest.raises(ModelFormatError, match=words):
        open_gguf(parts[0])


def test_parts_that_do_not_add_up(parts: list[Path]) -> None:
    own = {"split.no": 1, "split.count": 3, "split.tensors.count": 6}
    write_gguf(parts[1], own, {"1.a": numbers(1, 3, 32)})
    with pytest.raises(ModelFormatError, match=r"\b5 tensors.* 6 "):
        open_gguf(parts[0])
    write_gguf(parts[1], own, {"1.a": numbers(1, 3, 32), "2.a": numbers(10, 5)})
    with pytest.raises(ModelFormatError, match=r"2\.a .*big-00002.* big-00003"):
        open_gguf(parts[0])
    write_gguf(parts[1], own, {"1.a": numbers(1, 3, 32), "1.b": numbers(10, 5)}, magic=b"PWRI")
    with pytest.raises(ModelFormatError, match="different formats"):
        open_gguf(parts[0])
