"""PyTorch's files without PyTorch: what torch.save wrote comes out as torch.load has it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError
from engine.formats.torch_pickle import read_torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64]


def as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    plain = tensor.detach()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def assert_equal_to_torch(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    theirs = torch.load(path, weights_only=True)
    theirs = {"": theirs} if isinstance(theirs, torch.Tensor) else theirs
    ours = read_torch(path)
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        wanted = as_numpy(tensor)
        assert (ours[name].dtype, ours[name].shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(ours[name], wanted)
    return ours


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_and_every_way_to_lie_in_a_storage(tmp_path: Path, dtype: torch.dtype) -> None:
    base = (torch.arange(-120, 120).reshape(4, 60) * 3).to(dtype)
    tensors = {
        "whole": base,
        "turned": base.T,
        "steps": base[1:, 5:50:7],
        "offset": base.reshape(-1)[17:],
        "cube": base.reshape(4, 5, 12).permute(2, 0, 1),
        "scalar": base[2, 3],
        "nothing": base[:0],
        "no storage": torch.empty(0, 7, dtype=dtype),
        "shared": base[2],
    }
    torch.save(tensors, tmp_path / "t.pt")
    assert_equal_to_torch(tmp_path / "t.pt")


def test_numbers_beyond_the_ordinary(tmp_path: Path) -> None:
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 3e38])
    torch.save({str(dtype): odd.to(dtype) for dtype in DTYPES[:3]}, tmp_path / "t.pt")
    assert_equal_to_torch(tmp_path / "t.pt")


def test_a_bare_tensor_a_parameter_and_a_state_dict(tmp_path: Path) -> None:
    torch.save(torch.arange(11), tmp_path / "activation.pt")
    assert list(assert_equal_to_torch(tmp_path / "activation.pt")) == [""]
    torch.save({"p": torch.nn.Parameter(torch.randn(3, 2))}, tmp_path / "parameter.pt")
    assert_equal_to_torch(tmp_path / "parameter.pt")
    layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 5, bias=False))
    torch.save(layers.state_dict(), tmp_path / "state.bin")
    assert list(assert_equal_to_torch(tmp_path / "state.bin")) == ["0.weight", "0.bias", "2.weight"]


def test_dictionaries_in_dictionaries_are_joined_by_dots(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.ones(2), "b": {"c": torch.zeros(1)}}}, tmp_path / "t.pt")
    assert list(read_torch(tmp_path / "t.pt")) == ["state_dict.a", "state_dict.b.c"]


def test_a_file_that_was_renamed(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "before.pt")
    (tmp_path / "before.pt").rename(tmp_path / "after.pth")
    assert_equal_to_torch(tmp_path / "after.pth")


def test_arrays_are_views_that_cannot_be_written(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(4, 4), "b": torch.ones(4, 4).T}, tmp_path / "t.pt")
    for values in read_torch(tmp_path / "t.pt").values():
        assert values.base is not None
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 2


def test_archives_with_large_numbers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.arange(40)}, tmp_path / "small.pt")
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)  # everything counts as large, so that it is written the large way
    with zipfile.ZipFile(tmp_path / "small.pt") as old, zipfile.ZipFile(tmp_path / "large.pt", "w") as new:
        for info in old.infolist():
            with new.open(info.filename, "w", force_zip64=True) as file:
                file.write(old.read(info))
    assert b"PK\x06\x06" in (tmp_path / "large.pt").read_bytes()
    np.testing.assert_array_equal(read_torch(tmp_path / "large.pt")["a"], np.arange(40))


def test_it_does_without_torch(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(4)}, tmp_path / "t.pt")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from engine.formats.torch_pickle import read_torch\n"
        "print(read_torch(Path(sys.argv[1]))['a'].tolist())"
    )
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", code, str(tmp_path / "t.pt")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 1, 2, 3]"


def test_what_is_sound_and_not_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "t.pt"
    torch.save({"a": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(UnsupportedModelError, match=r"1\.6"):
        read_torch(path)
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            archive.writestr(f"t/{name}", b"\x80\x02}.")
    with pytest.raises(UnsupportedModelError, match="TorchScript"):
        read_torch(path)
    with pytest.raises(ModelNotFoundError, match="There is no file"):
        read_torch(tmp_path / "gone.pt")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(2, dtype=torch.float64), r"call torch\.DoubleStorage"),
        (torch.ones(2, dtype=torch.int16), r"call torch\.ShortStorage"),
        (torch.nn.Linear(2, 2), r"call torch\.nn\.modules\.linear\.Linear"),
        ({"a": 3}, "a is a int"),
        ([torch.ones(2)], "list"),
        (torch.ones(1).expand(1000), "1000 .* 1$|1000 .* 1\\b"),
        ({"a": {"b": {"c": {"d": {"e": {"f": torch.ones(1)}}}}}}, "dictionaries"),
    ],
)
def test_other_content_is_refused_by_name(tmp_path: Path, value: Any, words: str) -> None:
    torch.save(value, tmp_path / "t.pt")
    with pytest.raises(ModelFormatError, match=words):
        read_torch(tmp_path / "t.pt")
