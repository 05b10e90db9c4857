"""Models as they lie on people's disks: split, PowerInfer's, with predictors and statistics beside them."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from samples.raw_gguf import make_tiny_powerinfer, split_gguf, tiny_model_parts, write_gguf
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError
from engine.formats import TensorInfo
from engine.formats.shard_index import INDEX_NAME, TORCH_INDEX_NAME
from engine.model.down_layout import fit_down
from engine.model.families import PlannedTensor
from engine.model.weights import find_model_files, load_weights, open_model
from engine.sparsity.powerinfer_predictors import predictor_from_gguf
from engine.sparsity.stats import read_activation_folder


def assert_same_weights(path: Path, other: Path) -> None:
    ours, theirs = load_weights(open_model(path)), load_weights(open_model(other))
    np.testing.assert_array_equal(ours.embedding.data, theirs.embedding.data)
    for mine, wanted in zip(ours.layers, theirs.layers, strict=True):
        for name in ("q", "k", "v", "o", "gate", "up", "down_t"):
            np.testing.assert_array_equal(getattr(mine, name).data, getattr(wanted, name).data)


# --- PowerInfer's


def test_a_powerinfer_model_opens_with_the_same_weights(tmp_path: Path) -> None:
    path = make_tiny_powerinfer(tmp_path / "m.gguf")
    opened = open_model(path)
    assert opened.format == "powerinfer-gguf"
    predictor_from_gguf(opened.source).check_against(2, 32, 64)
    assert_same_weights(path, make_tiny_gguf(tmp_path / "plain.gguf"))


def test_what_powerinfer_keeps_beside_a_model_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (folder / "activation").mkdir(parents=True)
    path = make_tiny_powerinfer(folder / "m.gguf")
    for layer in range(2):
        torch.save(torch.arange(64), folder / "activation" / f"activation_{layer}.pt")
    ids = np.arange(4, dtype="<i4")
    gpu_index = folder / "m.gguf.generated.gpuidx"
    write_gguf(gpu_index, {"general.architecture": "generic.gpu_index"}, {"blk.0.gpu_idx": ids}, magic=b"PWRI")
    (folder / "parts.gguf").unlink()
    for asked in (folder, path):
        files = find_model_files(asked)
        assert files.stats == folder / "activation"
        (note,) = files.notes
        assert note.startswith("m.gguf.generated.gpuidx ")
    assert read_activation_folder(files.stats).counts.shape == (2, 64)
    assert open_model(folder).files.notes == files.notes
    with pytest.raises(UnsupportedModelError, match="PowerInfer"):
        open_model(gpu_index)


@pytest.mark.parametrize("place", [".", "predictor", "predictors"])
def test_a_predictor_repository_is_found(tmp_path: Path, place: str) -> None:
    model = make_tiny_model(tmp_path / "m")
    assert find_model_files(model).predictors is None
    (model / place).mkdir(exist_ok=True)
    torch.save({}, model / place / "model_0.pt")
    assert find_model_files(model).predictors == model / place


# --- down, both ways round


def planned(shape: tuple[int, ...] = (32, 64), name: str = "blk.0.ffn_down.weight") -> PlannedTensor:
    return PlannedTensor("0.down_t", name, shape, "transposed")


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("blk.0.ffn_down.weight", (32, 64), "transposed"),
        ("blk.0.ffn_down.weight", (64, 32), "as is"),
        ("blk.0.ffn_down.weight", (64, 64), "transposed"),
        ("blk.0.ffn_down_t.weight", (64, 32), "as is"),
    ],
)
def test_the_layout_of_down_is_told_by_its_shape(name: str, shape: tuple[int, ...], wanted: str) -> None:
    usual = planned((64, 64)) if shape == (64, 64) else planned()
    (fitted,) = fit_down([usual], {name: TensorInfo(name, shape, "f32", 0, 0)})
    assert (fitted.foreign_name, fitted.shape, fitted.treatment) == (name, shape, wanted)


def test_the_layout_of_down_of_many_experts() -> None:
    name = "blk.0.ffn_down_exps.weight"
    usual = planned((4, 32, 64), name)
    assert fit_down([usual], {name: TensorInfo(name, (4, 32, 64), "f32", 0, 0)}) == [usual]
    (fitted,) = fit_down([usual], {name: TensorInfo(name, (4, 64, 32), "f32", 0, 0)})
    assert (fitted.shape, fitted.treatment) == ((4, 64, 32), "as is")
    assert fit_down([usual], {}) == [usual]  # missing: the check of the plan says so


def test_a_model_whose_down_is_transposed_under_its_usual_name(tmp_path: Path) -> None:
    metadata, tensors = tiny_model_parts(tmp_path)
    turned = {
        name: np.ascontiguousarray(values.T) if "ffn_down" in name else values for name, values in tensors.items()
    }
    assert_same_weights(write_gguf(tmp_path / "m.gguf", metadata, turned), make_tiny_gguf(tmp_path / "plain.gguf"))


# --- split models


def halves(tensors: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = list(tensors)
    return {name: tensors[name] for name in names[::2]}, {name: tensors[name] for name in names[1::2]}


def test_a_split_gguf_model_opens_from_any_part_and_from_its_folder(tmp_path: Path) -> None:
    metadata, tensors = tiny_model_parts(tmp_path)
    (tmp_path / "m").mkdir()
    parts = split_gguf(tmp_path / "m", "model", metadata, *halves(tensors))
    plain = make_tiny_gguf(tmp_path / "plain.gguf")
    for asked in (*parts, tmp_path / "m"):
        assert find_model_files(asked).weights == parts
        assert_same_weights(asked, plain)
    parts[0].unlink()
    for asked in (parts[1], tmp_path / "m"):
        with pytest.raises(ModelNotFoundError, match=f"Part 1 of 2 .* no {parts[0].name}"):
            open_model(asked)


def test_a_folder_with_two_models(tmp_path: Path) -> None:
    metadata, tensors = tiny_model_parts(tmp_path)
    split_gguf(tmp_path, "model", metadata, *halves(tensors))
    with pytest.raises(ModelNotFoundError, match=r"2 .*\(model-00001-of-00002.gguf, parts.gguf\)"):
        open_model(tmp_path)


def test_a_split_hugging_face_model(tmp_path: Path) -> None:
    whole, split = make_tiny_model(tmp_path / "whole"), make_tiny_model(tmp_path / "split")
    tensors = load_file(split / "model.safetensors")
    (split / "model.safetensors").unlink()
    where = {}
    for i, part in enumerate(halves(tensors)):
        name = f"model-{i + 1:05d}-of-00002.safetensors"
        save_file(part, split / name)
        where |= dict.fromkeys(part, name)
    (split / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    for asked in (split, split / "model-00002-of-00002.safetensors"):
        assert [path.name for path in find_model_files(asked).weights] == sorted(set(where.values()))
        assert_same_weights(asked, whole)
    (split / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match=r"model-00001-of-00002\.safetensors"):
        open_model(split)


def as_pytorch_wrote_it(folder: Path, parts: int = 1) -> Path:
    """Save the weights of a model as PyTorch's files instead of safetensors."""
    tensors = {name: torch.from_numpy(array) for name, array in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    if parts == 1:
        torch.save(tensors, folder / "pytorch_model.bin")
        return folder
    where = {}
    for i in range(parts):
        name = f"pytorch_model-{i + 1:05d}-of-{parts:05d}.bin"
        some = {key: tensors[key] for key in list(tensors)[i::parts]}
        torch.save(some, folder / name)
        where |= dict.fromkeys(some, name)
    (folder / TORCH_INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


@pytest.mark.parametrize("parts", [1, 3])
def test_weights_in_pytorchs_files_are_read_in_place(tmp_path: Path, parts: int) -> None:
    model, same = make_tiny_model(tmp_path / "m"), make_tiny_model(tmp_path / "same")
    as_pytorch_wrote_it(model, parts)
    some = sorted(model.glob("*.bin"))[0]
    for asked in (model, some):
        opened = open_model(asked)
        assert [path.suffix for path in opened.files.weights] == [".bin"] * parts
        assert opened.format == "pytorch"
        assert_same_weights(asked, same)
    name, source = opened.plan[0].foreign_name, opened.source
    assert not source.view(name).flags.owndata
    assert opened.fingerprint == open_model(same).fingerprint


def test_a_part_in_pytorchs_format_without_its_list_is_not_opened(tmp_path: Path) -> None:
    model = as_pytorch_wrote_it(make_tiny_model(tmp_path / "m"), 3)
    (model / TORCH_INDEX_NAME).unlink()
    with pytest.raises(UnsupportedModelError, match="pickle"):
        open_model(model)


def test_a_tensor_in_pieces_is_named(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "m")
    tensors = {name: torch.from_numpy(array) for name, array in load_file(model / "model.safetensors").items()}
    name = next(name for name, tensor in tensors.items() if tensor.dim() == 2)
    tensors[name] = tensors[name].T.contiguous().T
    torch.save(tensors, model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match=name.replace(".", r"\.")):
        open_model(model)


def test_a_program_in_pytorchs_files_does_not_run(tmp_path: Path) -> None:
    model, ran = make_tiny_model(tmp_path / "m"), tmp_path / "ran"
    as_pytorch_wrote_it(model)
    with zipfile.ZipFile(model / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil(ran)))
    with pytest.raises(ModelFormatError, match="pytorch_model"):
        open_model(model)
    assert not ran.exists()


class Evil:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._path),)
