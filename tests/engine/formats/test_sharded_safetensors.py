"""Safetensors in several files with an index: read as one, and held to what the index says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.errors import ModelFormatError, ModelNotFoundError
from engine.formats.safetensors import open_sharded_safetensors
from engine.formats.shard_index import INDEX_NAME, indexed_files

A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
WHERE = {"a": A, "b": A, "c": B}


def values(name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.full((2, 3), ord(name), np.float32)


def write(folder: Path, where: Any = WHERE, first: str = "ab", second: str = "c") -> Path:
    save_file({name: values(name) for name in first}, folder / A)
    save_file({name: values(name) for name in second}, folder / B)
    index = folder / INDEX_NAME
    index.write_text(json.dumps({"metadata": {"total_size": 72}, "weight_map": where}))
    return index


def test_shards_read_as_one(tmp_path: Path) -> None:
    index = write(tmp_path)
    source = open_sharded_safetensors(index)
    assert [path.name for path in source.paths] == [path.name for path in indexed_files(index)] == [A, B]
    for name, file in WHERE.items():
        np.testing.assert_array_equal(source.read_f32(name), values(name))
        assert source.file_of(name).name == file
        assert not source.view(name).flags.writeable


def test_a_tensor_that_the_index_forgot_is_there_all_the_same(tmp_path: Path) -> None:
    source = open_sharded_safetensors(write(tmp_path, {"a": A, "c": B}))
    np.testing.assert_array_equal(source.read_f32("b"), values("b"))


@pytest.mark.parametrize("name", [A, B])
def test_a_missing_shard_is_named(tmp_path: Path, name: str) -> None:
    index = write(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelNotFoundError, match=f"there is no {name}") as caught:
        open_sharded_safetensors(index)
    assert name in caught.value.hint


@pytest.mark.parametrize(
    ("where", "first", "second", "words"),
    [
        ({**WHERE, "a": B}, "ab", "c", rf"\ba .*{B}.* {A}"),
        ({**WHERE, "d": B}, "ab", "c", rf"\bd .*{B}"),
        (WHERE, "ab", "bc", rf"\bb .*{A}.* {B}"),
    ],
)
def test_contradictions_between_index_and_shards(
    tmp_path: Path, where: dict[str, str], first: str, second: str, words: str
) -> None:
    with pytest.raises(ModelFormatError, match=words):
        open_sharded_safetensors(write(tmp_path, where, first, second))
