"""Models in the hub's own cache: found, loaded where they lie, copied nowhere, changed never."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from samples.raw_gguf import split_gguf, tiny_model_parts
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.systems import MAKES_LINKS

from engine.errors import ModelNotFoundError
from engine.library.owned.hub_cache import cache_folder, cached_models
from engine.library.owned.installed import STARTER_ID, Library
from engine.library.owned.stored_models import StoredModel

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("HF_HOME", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "models")


def put(cache: Path, repo: str, files: dict[str, Path], commit: str = COMMIT, ref: str | None = COMMIT) -> Path:
    """Lay a snapshot as the hub's client does: blobs and links to them, or the files where no links can be made."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    for i, (name, source) in enumerate(files.items()):
        blob = folder / "blobs" / f"{commit[:6]}{i:058x}"
        shutil.copy(source, blob)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if MAKES_LINKS:
            link.symlink_to(os.path.relpath(blob, link.parent))
        else:
            shutil.move(blob, link)
    if ref is not None:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(ref)
    return snapshot


def folder_files(tmp_path: Path) -> dict[str, Path]:
    return {path.name: path for path in make_tiny_model(tmp_path / "source").iterdir()}


def ids(library: Library) -> list[str]:
    return [model.id for model in library.models() if model.id != STARTER_ID]


def state_of(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*"))


def test_the_cache_lies_where_the_hubs_client_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of the client itself, in a process of its own, since it reads the environment once."""
    import subprocess
    import sys

    names = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
    settings: list[dict[str, str]] = [
        {},
        {"XDG_CACHE_HOME": str(tmp_path / "x")},
        {"XDG_CACHE_HOME": str(tmp_path / "x"), "HF_HOME": "~/h"},
        {"HF_HOME": "$HOME/h", "HUGGINGFACE_HUB_CACHE": str(tmp_path / "old")},
        {"HF_HUB_CACHE": str(tmp_path / "c"), "HUGGINGFACE_HUB_CACHE": str(tmp_path / "old"), "HF_HOME": "/h"},
    ]
    program = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    for given in settings:
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert cache_folder() == Path(done.stdout.strip()), given


def test_a_model_in_the_cache_is_listed_and_loads_without_a_copy(library: Library, cache: Path, tmp_path: Path) -> None:
    from engine.config import EngineConfig
    from engine.session.loaded_model import LoadedModel

    snapshot = put(cache, "maker/Tiny", folder_files(tmp_path))
    before = state_of(cache)
    (model,) = [model for model in library.models() if model.origin == "hub cache"]
    assert (model.id, model.name, model.repo, model.revision) == ("maker/Tiny", "Tiny", "maker/Tiny", COMMIT)
    assert (model.owned, model.state, model.folder) == (False, "needs preparing", str(snapshot))
    assert model.n_bytes == sum(file.n_bytes for file in model.files) > 10000
    assert library.verify(model.id) == []
    path = library.resolve("tiny").path
    assert LoadedModel.load(str(path), EngineConfig(backend="reference", device="cpu")).opened.config.n_layers == 2
    assert not library.home.exists()  # not even the list
    assert state_of(cache) == before


def test_each_gguf_of_a_repository_is_a_model(library: Library, cache: Path, tmp_path: Path) -> None:
    gguf = make_tiny_gguf(tmp_path / "a.gguf")
    metadata, tensors = tiny_model_parts(tmp_path / "source")
    names = sorted(tensors)
    (tmp_path / "parts").mkdir()
    parts = split_gguf(tmp_path / "parts", "big", metadata, *[
        {name: tensors[name] for name in names[i::2]} for i in range(2)
    ])  # fmt: skip
    files = {"tiny.Q4_0.gguf": gguf, "tiny.Q8_0.gguf": gguf, "f16/x.gguf": gguf, **{path.name: path for path in parts}}
    put(cache, "maker/Tiny-GGUF", files)
    found = {model.id: model for model in library.models() if model.origin == "hub cache"}
    assert found.keys() == {
        "maker/Tiny-GGUF-tiny.q4_0", "maker/Tiny-GGUF-tiny.q8_0", "maker/Tiny-GGUF-x", "maker/Tiny-GGUF-big",
    }  # fmt: skip
    assert len(found["maker/Tiny-GGUF-big"].files) == 2
    assert Path(found["maker/Tiny-GGUF-x"].path).parts[-2:] == ("f16", "x.gguf")


def test_what_hearth_does_not_read_or_is_not_whole_is_not_named(library: Library, cache: Path, tmp_path: Path) -> None:
    files = folder_files(tmp_path)
    gguf = make_tiny_gguf(tmp_path / "a.gguf")
    other = make_tiny_model(tmp_path / "other", config={"model_type": "bert", "architectures": ["BertModel"]})
    put(cache, "maker/Bert", {path.name: path for path in other.iterdir()})
    put(cache, "maker/Pickle", {"config.json": files["config.json"], "pytorch_model.bin": gguf})
    put(cache, "maker/Config", {"config.json": files["config.json"]})
    put(cache, "maker/Part", {"a-00001-of-00002.gguf": gguf})
    dangling = put(cache, "maker/Dangling", files) / "model.safetensors"
    dangling.resolve().unlink()
    (cache / "datasets--maker--set" / "snapshots" / COMMIT).mkdir(parents=True)
    (cache / "models--maker--empty" / "snapshots").mkdir(parents=True)
    (cache / "models--gpt2" / "snapshots" / COMMIT).mkdir(parents=True)
    (cache / "models--..--..").mkdir()
    (cache / "version.txt").write_text("1")
    assert ids(library) == []


def test_the_branch_main_decides_which_snapshot_counts(cache: Path, tmp_path: Path) -> None:
    files = folder_files(tmp_path)
    put(cache, "maker/Tiny", files, commit="a" * 40, ref=None)
    put(cache, "maker/Tiny", files, commit="b" * 40, ref=None)
    refs = cache / "models--maker--Tiny" / "refs" / "main"
    refs.parent.mkdir(exist_ok=True)
    for commit in ("a" * 40, "b" * 40):
        refs.write_text(commit)
        assert [model.revision for model in cached_models(cache)] == [commit]
    refs.write_text("../../../..")
    assert len(list(cached_models(cache))) == 1


def test_nothing_in_the_cache_is_ever_changed(library: Library, cache: Path, tmp_path: Path) -> None:
    from engine.conversion.convert import convert

    snapshot = put(cache, "maker/Tiny", folder_files(tmp_path))
    before = state_of(cache)
    library.set_measured("maker/Tiny", 3.0)
    library.set_prepared("maker/Tiny", convert(snapshot, library.prepared_folder("maker/Tiny"), "q8_0").bundle)
    library.relocate(tmp_path / "elsewhere")
    model = Library(library.home).get("maker/Tiny")
    assert (model.measured_tok_s, model.state) == (3.0, "ready")
    assert Path(model.prepared).is_relative_to(tmp_path / "elsewhere")
    token = library.remove("maker/Tiny")
    assert ids(library) == []
    with pytest.raises(ModelNotFoundError):
        library.get("maker/Tiny")
    assert library.restore(token).prepared == model.prepared
    library.remove("maker/Tiny")
    library.purge()
    assert ids(Library(library.home)) == []  # it stays off the list
    assert state_of(cache) == before
    assert not (tmp_path / "elsewhere" / ".prepared").exists()


def test_what_was_downloaded_goes_before_what_lies_in_the_cache(library: Library, cache: Path, tmp_path: Path) -> None:
    files = folder_files(tmp_path)
    put(cache, "maker/Tiny", files)
    from engine.library.records import InstalledFile

    folder = library.folder_for("maker/tiny")
    shutil.copytree(tmp_path / "source", folder)
    told = [InstalledFile(name, path.stat().st_size, "") for name, path in files.items()]
    library.register(StoredModel("maker/tiny", "Tiny", str(folder), tuple(told)))
    assert ids(library) == ["maker/tiny"]


def test_a_cache_that_cannot_be_read_is_no_obstacle(library: Library, cache: Path, tmp_path: Path) -> None:
    assert ids(library) == []
    cache.write_text("a file")
    assert ids(library) == []
