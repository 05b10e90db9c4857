"""Values that are not numbers in matrices that stay in their file: found in small ones and in samples of large ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples.recoded_gguf import recode
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.assets import starter_model
from engine.conversion.convert import convert
from engine.errors import ModelFormatError
from engine.formats.gguf import open_gguf
from engine.model import finite_check
from engine.model.finite_check import SAMPLED_ROWS, WHOLE_BYTES, check_numbers
from engine.model.weights import load_weights, open_model
from native_kernels.backend import PackedMatrix

UP = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_bad_value_of_a_mapped_matrix_is_refused(tmp_path: Path, dtype: str, value: float) -> None:
    broken = np.ones((64, 32), np.float32)
    broken[41, 7] = value
    opened = open_model(make_tiny_model(tmp_path / "m", dtype=dtype, tensors={UP: broken}))
    with pytest.raises(ModelFormatError, match=UP):
        load_weights(opened, hold="mapped")


@pytest.mark.parametrize("codec", ["q4_0", "q8_0", "q4_1", "bf16", "iq4_nl"])
def test_a_scale_that_is_no_number_is_refused(tmp_path: Path, codec: str) -> None:
    path = recode(make_tiny_gguf(tmp_path / "source.gguf"), tmp_path / "m.gguf", codec)
    load_weights(open_model(path), hold="mapped")
    source = open_gguf(path)
    at = source.tensors["blk.1.ffn_up.weight"].offset
    with path.open("r+b") as file:
        file.seek(at)
        file.write(np.array([0x7F80 if codec == "bf16" else 0x7C00], "<u2").tobytes())
    with pytest.raises(ModelFormatError, match=r"blk\.1\.ffn_up\.weight"):
        load_weights(open_model(path), hold="mapped")


def test_a_norm_of_a_mapped_model_is_checked_whole(tmp_path: Path) -> None:
    norm = np.ones(32, np.float32)
    norm[31] = np.nan
    opened = open_model(make_tiny_model(tmp_path / "m", tensors={"model.norm.weight": norm}))
    with pytest.raises(ModelFormatError, match=r"model\.norm\.weight"):
        load_weights(opened, hold="mapped")


def test_a_bundle_is_checked_as_well(tmp_path: Path) -> None:
    bundle = convert(make_tiny_model(tmp_path / "m", dtype="float16"), tmp_path / "b", "f16").bundle
    opened = open_model(bundle)
    entry: Any = opened.source.manifest.tensors["1.up"]  # type: ignore[attr-defined]
    with (bundle / entry.file).open("r+b") as file:
        file.seek(entry.offset + 5 * entry.row_stride)
        file.write(np.array([np.nan], "<f2").tobytes())
    with pytest.raises(ModelFormatError, match=r"1\.up"):
        load_weights(open_model(bundle), hold="mapped")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_large_matrix_is_sampled_from_end_to_end(dtype: type[np.floating[Any]]) -> None:
    rows = 4 * WHOLE_BYTES // (1024 * np.dtype(dtype).itemsize)
    codec = "f16" if dtype is np.float16 else "f32"
    found = []
    for row in range(rows):
        if row not in (0, 1, 2, rows - 2, rows - 1) and row % 97:
            continue
        values = np.ones((rows, 1024), dtype)
        values[row] = np.nan
        try:
            check_numbers(PackedMatrix.pack(values, codec), "x")
        except ModelFormatError:
            found.append(row)
    assert {0, rows - 1} <= set(found)
    assert len(found) <= SAMPLED_ROWS
    gap = np.ones((rows, 1024), dtype)
    gap[rows // 3 : rows // 3 + rows // (SAMPLED_ROWS - 1) + 1] = np.inf  # as long as the sample's step
    with pytest.raises(ModelFormatError, match="x holds"):
        check_numbers(PackedMatrix.pack(gap, codec), "x")


def test_samples_of_a_mapped_file_are_asked_for_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int]] = []
    seen = finite_check._are_numbers

    def ask(matrix: PackedMatrix, first: int, last: int) -> None:
        told.append(("asked", id(matrix)))

    def look(matrix: PackedMatrix, ids: np.ndarray) -> bool:
        told.append(("looked", id(matrix)))
        return seen(matrix, ids)

    monkeypatch.setattr(finite_check, "ask_for", ask)
    monkeypatch.setattr(finite_check, "_are_numbers", look)
    weights = load_weights(open_model(starter_model()), hold="mapped")
    assert {who for how, who in told if how == "asked"} == {who for how, who in told if how == "looked"}
    first_look = told.index(("looked", id(weights.embedding)))
    assert len({who for _, who in told[:first_look]}) > 20, "many at once are the disk's to read"
