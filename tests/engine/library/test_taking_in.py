"""Models that a person brings: in place and copied, what is refused, and what a cut-off copy leaves behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from samples.raw_gguf import make_tiny_powerinfer, split_gguf, tiny_model_parts
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.errors import (
    Cancelled,
    DiskSpaceError,
    EngineError,
    LibraryError,
    ModelFormatError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from engine.job import StagedJob
from engine.library.owned import disk_space, imports
from engine.library.owned.installed import STARTER_ID, Library


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "models")


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def split_model(folder: Path) -> list[Path]:
    metadata, tensors = tiny_model_parts(folder / "source")
    names = sorted(tensors)
    half = len(names) // 2
    first, second = ({name: tensors[name] for name in part} for part in (names[:half], names[half:]))
    return split_gguf(folder, "split", metadata, first, second)


def kinds(folder: Path) -> dict[str, Path]:
    from engine.conversion.convert import convert

    gguf = make_tiny_gguf(folder / "one.gguf")
    parts = split_model(folder / "parts")
    return {
        "gguf": gguf,
        "powerinfer": make_tiny_powerinfer(folder / "own" / "power.gguf"),
        "split": parts[1],
        "folder": make_tiny_model(folder / "hf"),
        "bundle": convert(gguf, folder / "bundle", "q8_0").bundle,
    }


@pytest.mark.parametrize("copy", [False, True], ids=["in place", "copied"])
@pytest.mark.parametrize("kind", ["gguf", "powerinfer", "split", "folder", "bundle"])
def test_every_kind_is_taken_in_and_loads(library: Library, tmp_path: Path, kind: str, copy: bool) -> None:
    from engine.config import EngineConfig
    from engine.session.loaded_model import LoadedModel

    path = kinds(tmp_path / "mine")[kind]
    before = tree(tmp_path / "mine")
    model = library.add(path, copy, "  My \n model ")
    assert (model.name, model.owned, model.origin) == ("My model", copy, "copied" if copy else "in place")
    assert model.id == "local/my-model"
    assert model.state in ("ready", "needs preparing"), model.reason
    assert model.n_bytes == sum(file.n_bytes for file in model.files) > 0
    if copy:
        assert Path(model.folder) == library.folder_for(model.id)
        assert all(len(file.sha256) == 64 for file in model.files)
        assert library.verify(model.id) == []
        assert not (library.folder / ".incoming").exists()
    assert tree(tmp_path / "mine") == before
    loaded = LoadedModel.load(str(library.resolve("my model").path), EngineConfig(backend="reference", device="cpu"))
    assert loaded.opened.config.n_layers == 2


def test_an_installed_model_loads_by_its_name(tmp_path: Path) -> None:
    from engine.config import EngineConfig
    from engine.session.loaded_model import LoadedModel

    Library().add(make_tiny_gguf(tmp_path / "a.gguf"), name="Anna")
    for name in ("Anna", "local/anna"):
        assert LoadedModel.load(name, EngineConfig(backend="reference", device="cpu")).name == "Anna"


def test_what_lies_beside_the_weights_comes_along(library: Library, tmp_path: Path) -> None:
    import torch

    folder = make_tiny_model(tmp_path / "hf")
    (folder / "predictor").mkdir()
    for layer in range(2):
        weights = {"fc1.weight": torch.zeros(4, 32), "fc2.weight": torch.zeros(64, 4)}
        torch.save(weights, folder / "predictor" / f"model_{layer}.pt")
    (folder / "activation").mkdir()
    for layer in range(2):
        torch.save(torch.ones(64, dtype=torch.int64), folder / "activation" / f"activation_{layer}.pt")
    (folder / "LICENSE").write_text("terms")
    (folder / "diary.txt").write_text("private")
    model = library.add(folder, copy=True)
    names = {file.name for file in model.files}
    assert {"predictor/model_0.pt", "predictor/model_1.pt", "activation/activation_1.pt", "LICENSE"} <= names
    assert "diary.txt" not in names
    assert not (Path(model.folder) / "diary.txt").exists()
    assert model.state == "ready"  # its predictors came along


def test_the_same_model_taken_in_twice_is_one(library: Library, tmp_path: Path) -> None:
    path = make_tiny_gguf(tmp_path / "a.gguf")
    first, again = library.add(path), library.add(path, name="Other")
    assert first.id == again.id
    assert again.name == "Other"
    copied, copied_again = library.add(path, copy=True), library.add(path, copy=True)
    assert len({first.id, copied.id, copied_again.id}) == 3
    assert library.add(Path(copied.path)) == copied  # Hearth's own stays Hearth's own


def test_a_model_that_changed_is_taken_in_anew(library: Library, tmp_path: Path) -> None:
    path = make_tiny_gguf(tmp_path / "a.gguf")
    first = library.add(path)
    make_tiny_gguf(path, n_layers=3)
    assert library.get(first.id).state == "broken"
    assert library.add(path).id == first.id
    assert library.get(first.id).state == "needs preparing"


def refused(folder: Path, kind: str) -> tuple[Path, type[EngineError], str]:
    match kind:
        case "nothing":
            return folder / "no.gguf", ModelNotFoundError, "no model"
        case "empty folder":
            (folder / "empty").mkdir()
            return folder / "empty", ModelNotFoundError, "There is no model"
        case "pickle":
            (folder / "model.pt").write_bytes(b"\x80\x02")
            return folder / "model.pt", EngineError, "(?i)gguf|pickle"
        case "pickles":
            (folder / "hf").mkdir()
            (folder / "hf" / "model.bin").write_bytes(b"\x80\x02")
            return folder / "hf", UnsupportedModelError, "pickle"
        case "text":
            (folder / "a.gguf").write_text("no model at all")
            return folder / "a.gguf", ModelFormatError, "(?i)gguf|past|end"
        case "cut":
            whole = make_tiny_gguf(folder / "whole.gguf").read_bytes()
            (folder / "cut.gguf").write_bytes(whole[: len(whole) // 2])
            return folder / "cut.gguf", ModelFormatError, "(?i)gguf|past|end"
        case "part missing":
            first, second = split_model(folder)
            second.unlink()
            return first, ModelNotFoundError, "Part 2 of 2"
        case "no tokenizer":
            model = make_tiny_model(folder / "hf")
            (model / "tokenizer.json").unlink()
            return model, ModelNotFoundError, "no tokenizer"
        case "other architecture":
            model = make_tiny_model(folder / "hf", config={"model_type": "mamba", "architectures": ["Mamba"]})
            return model, UnsupportedModelError, "mamba"
        case _:
            model = make_tiny_model(folder / "hf", tensors={"model.norm.weight": np.zeros(7, np.float32)})
            return model, ModelFormatError, "shape"


@pytest.mark.parametrize("copy", [False, True], ids=["in place", "copied"])
@pytest.mark.parametrize(
    "kind",
    ["nothing", "empty folder", "pickle", "pickles", "text", "cut", "part missing", "no tokenizer",
     "other architecture", "shape"],
)  # fmt: skip
def test_what_hearth_does_not_read_is_refused_with_the_reason(
    library: Library, tmp_path: Path, kind: str, copy: bool
) -> None:
    path, error, words = refused(tmp_path, kind)
    with pytest.raises(error, match=words) as caught:
        library.add(path, copy)
    assert caught.value.hint
    assert [model.id for model in library.models()] == [STARTER_ID]
    assert not library.home.exists()


# --- copies


def test_a_copy_tells_how_far_it_is(library: Library, tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "hf")
    told: dict[str, list[tuple[int, int]]] = {"copying": [], "checking": []}
    job = StagedJob(stage=lambda name: lambda done, total: told[name].append((done, total)))
    model = library.add(path, True, job=job)
    for steps in told.values():
        assert [total for _, total in steps] == [model.n_bytes] * len(steps)
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert steps[-1][0] == model.n_bytes


def test_a_full_disk_is_said_before_anything_is_written(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_gguf(tmp_path / "a.gguf")
    usage = namedtuple("usage", "total used free")
    room = disk_space.SPARE_BYTES + path.stat().st_size
    monkeypatch.setattr(shutil, "disk_usage", lambda at: usage(1 << 40, 0, room - 1))
    with pytest.raises(DiskSpaceError, match="free"):
        library.add(path, copy=True)
    assert not library.home.exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda at: usage(1 << 40, 0, room))
    library.add(path, copy=True)


def test_a_disk_that_fills_up_while_copying_leaves_nothing(library: Library, tmp_path: Path) -> None:
    import errno

    path = make_tiny_model(tmp_path / "hf")

    def full(done: int, total: int) -> None:
        if done > total // 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskSpaceError, match="accepted no more"):
        library.add(path, True, job=StagedJob(stage=lambda name: full))
    assert [model.id for model in library.models()] == [STARTER_ID]
    assert {path.name for path in library.home.rglob("*") if not path.name.endswith(".lock")} == {"heads.json"}


@pytest.mark.parametrize("stage", ["copying", "checking"])
def test_a_copy_can_be_stopped(library: Library, tmp_path: Path, stage: str) -> None:
    path = make_tiny_model(tmp_path / "hf")
    stopped: list[int] = []

    def watch(name: str):  # type: ignore[no-untyped-def]
        return lambda done, total: stopped.append(done) if name == stage and done else None

    with pytest.raises(Cancelled):
        library.add(path, True, job=StagedJob(lambda: bool(stopped), watch))
    assert [model.id for model in library.models()] == [STARTER_ID]
    assert list(library.home.rglob("*.safetensors*")) == []


def test_a_copy_that_came_out_differently_is_noticed(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_gguf(tmp_path / "a.gguf")
    whole = imports._Flushing.write
    monkeypatch.setattr(imports._Flushing, "write", lambda self, piece: whole(self, b"?" + piece[1:]))
    with pytest.raises(LibraryError, match="differs from"):
        library.add(path, copy=True)
    assert list(library.home.rglob("*.gguf*")) == []


COPY = """
import sys, time
from pathlib import Path
from engine.job import StagedJob
from engine.library.owned.installed import Library
library = Library(Path(sys.argv[1]))
moment = int(sys.argv[3])
steps = 0
def stage(name):
    def step(done, total):
        global steps
        steps += 1
        if steps == moment:
            print("there", flush=True)
            time.sleep(60)
    return step
library.add(Path(sys.argv[2]), True, job=StagedJob(stage=stage))
print("done", flush=True)
"""


@pytest.mark.parametrize("moment", [1, 2, 5, 9])
def test_a_killed_copy_leaves_nothing_behind(library: Library, tmp_path: Path, moment: int) -> None:
    path = make_tiny_model(tmp_path / "hf")
    before = tree(path)
    child = subprocess.Popen(
        [sys.executable, "-c", COPY, str(library.home), str(path), str(moment)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "there\n"
    live = Library(library.home)
    live.purge()
    assert list((library.home / ".incoming").glob("*/*")) != [] or moment == 1  # it is at work: nobody sweeps there
    child.kill()
    child.wait()
    child.stdout.close()
    assert [model.id for model in live.models()] == [STARTER_ID]
    live.purge()
    assert not (library.home / ".incoming").exists()
    assert tree(path) == before
    assert live.add(path, copy=True).state == "needs preparing"


def test_a_copy_killed_before_it_was_listed_is_listed_at_the_next_start(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_gguf(tmp_path / "a.gguf")
    with monkeypatch.context() as patch:
        patch.setattr(
            "engine.library.owned.library_file.LibraryFile._write", lambda *of: (_ for _ in ()).throw(SystemExit)
        )
        with pytest.raises(SystemExit):
            library.add(path, copy=True)
    again = Library(library.home)
    again.set_measured(STARTER_ID, 1.0)
    again.purge()
    (model,) = again.models()[1:]
    assert (model.origin, model.owned, again.verify(model.id)) == ("copied", True, [])


def test_copying_is_no_slower_than_hashing_twice(library: Library, tmp_path: Path) -> None:
    """Guards against a copy in small pieces; generous, since the machine is shared."""
    big = tmp_path / "big"
    big.write_bytes(os.urandom(32 << 20))
    started = time.process_time()
    imports.copy_checked(big, tmp_path / "copy", lambda done: None, lambda done: None, lambda: False)
    assert time.process_time() - started < 20
    assert (tmp_path / "copy").read_bytes() == big.read_bytes()
