"""Models that other programs hold: found in each one's folders, loaded where they lie, changed never."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from samples.raw_gguf import split_gguf, tiny_model_parts
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.systems import needs_links

from engine.config import EngineConfig
from engine.library.owned.installed import STARTER_ID, Library
from engine.library.owned.other_programs import models_of_other_programs
from engine.library.records import InstalledModel
from engine.session.loaded_model import LoadedModel
from installer.make_starter_model import make_gguf

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the folders of a home on Linux")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return home


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "models")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return make_tiny_gguf(tmp_path / "tiny.gguf")


def put(path: Path, gguf: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(gguf, path)
    return path


def put_ollama(root: Path, name: str, gguf: Path, *more: dict[str, object]) -> Path:
    """Lays a model as Ollama does. name: "host/namespace/model/tag"."""
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    blob = put(root / "blobs" / f"sha256-{digest}", gguf)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}, *more]
    manifest = root / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def found(library: Library) -> dict[str, InstalledModel]:
    return {model.id: model for model in library.models() if model.id != STARTER_ID}


def state_of(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*"))


def test_a_model_of_each_program_is_listed_and_loads_where_it_lies(library: Library, home: Path, gguf: Path) -> None:
    put(home / ".lmstudio/models/maker/Tiny-GGUF/Tiny-Q4_K_M.gguf", gguf)
    put_ollama(home / ".ollama/models", "registry.ollama.ai/library/tiny/8b", gguf)
    put(home / ".config/Jan/data/llamacpp/models/tiny-jan/model.gguf", gguf)
    put(home / ".local/share/nomic.ai/GPT4All/Tiny.Q4_0.gguf", gguf)
    before = state_of(home)
    models = found(library)
    assert {(id, model.name, model.origin) for id, model in models.items()} == {
        ("maker/tiny-q4_k_m", "Tiny-Q4_K_M", "LM Studio"),
        ("ollama/tiny-8b", "tiny:8b", "Ollama"),
        ("jan/tiny-jan", "tiny-jan", "Jan"),
        ("gpt4all/tiny.q4_0", "Tiny.Q4_0", "GPT4All"),
    }
    for id, model in models.items():
        assert not model.owned
        path = library.resolve(id).path
        assert LoadedModel.load(str(path), EngineConfig(backend="reference", device="cpu")).opened.config.n_layers == 2
    assert state_of(home) == before


def test_removing_one_hides_it_and_leaves_the_file(library: Library, home: Path, gguf: Path) -> None:
    blob = put_ollama(home / ".ollama/models", "registry.ollama.ai/library/tiny/8b", gguf)
    undo = library.remove("ollama/tiny-8b")
    assert found(library) == {}
    library.purge()
    assert blob.is_file()
    assert found(library) == {}
    other = put(home / ".lmstudio/models/maker/Tiny-GGUF/Tiny.gguf", gguf)
    undo = library.remove("maker/tiny")
    library.restore(undo)
    assert other.is_file()
    assert "maker/tiny" in found(library)


def test_folders_that_were_chosen_in_a_program_are_read(library: Library, home: Path, gguf: Path, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio/settings.json").write_text(json.dumps({"downloadsFolder": str(tmp_path / "lms")}))
    put(tmp_path / "lms/maker/A-GGUF/a.gguf", gguf)
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "oll"))
    put_ollama(tmp_path / "oll", "hf.co/maker/B-GGUF/Q4_K_M", gguf)
    (home / ".config/nomic.ai").mkdir(parents=True)
    (home / ".config/nomic.ai/GPT4All.ini").write_text(f"[General]\nmodelPath={tmp_path / 'g4a'}\n")
    put(tmp_path / "g4a/c.gguf", gguf)
    assert {model.name for model in found(library).values()} == {"a", "hf.co/maker/B-GGUF:Q4_K_M", "c"}


def test_what_is_no_whole_model_of_its_own_is_left_out(
    library: Library, home: Path, gguf: Path, tmp_path: Path
) -> None:
    metadata, tensors = tiny_model_parts(tmp_path / "source")
    names = sorted(tensors)
    (tmp_path / "parts").mkdir()
    parts = split_gguf(
        tmp_path / "parts", "big", metadata, *[{name: tensors[name] for name in names[i::2]} for i in range(2)]
    )
    put(home / ".lmstudio/models/maker/Half/" / parts[0].name, parts[0])
    for part in parts:
        put(home / ".lmstudio/models/maker/Whole" / part.name, part)
    put(home / ".lmstudio/models/maker/Sees/mmproj-model-f16.gguf", gguf)
    (home / ".lmstudio/models/maker/text.gguf").write_bytes(b"no model")
    root = home / ".ollama/models"
    put_ollama(root, "registry.ollama.ai/library/adapted/1b", gguf, {
        "mediaType": "application/vnd.ollama.image.adapter", "digest": "sha256:" + "0" * 64})  # fmt: skip
    for tag, text in {
        "none": "{", "list": "[]", "empty": "{}", "long": " " * (1 << 20) + "{}",
        "out": json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model",
                                       "digest": "sha256:../../../../etc/passwd"}]}),
        "gone": json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model",
                                        "digest": "sha256:" + "1" * 64}]}),
    }.items():  # fmt: skip
        (root / "manifests/registry.ollama.ai/library/adapted" / tag).write_text(text)
    models = found(library)
    assert {(model.id, len(model.files)) for model in models.values()} == {("maker/big", 2)}


def test_a_model_that_was_added_by_hand_is_not_listed_twice(library: Library, home: Path, gguf: Path) -> None:
    path = put(home / ".lmstudio/models/maker/Tiny-GGUF/Tiny.gguf", gguf)
    library.add(path)
    assert [model.origin for model in found(library).values()] == ["in place"]


def test_two_tags_of_one_file_are_one_model(library: Library, home: Path, gguf: Path) -> None:
    for tag in ("8b", "latest"):
        put_ollama(home / ".ollama/models", f"registry.ollama.ai/library/tiny/{tag}", gguf)
    assert list(found(library)) == ["ollama/tiny-8b"]


@needs_links
def test_a_folder_without_end_is_not_walked_for_ever(home: Path, gguf: Path) -> None:
    deep = home / ".lmstudio/models" / "/".join("abcdefgh")
    put(deep / "far.gguf", gguf)
    (home / ".lmstudio/models/loop").symlink_to(home / ".lmstudio/models")
    assert list(models_of_other_programs()) == []


def test_a_base_model_is_told_by_its_head(library: Library, home: Path, tmp_path: Path) -> None:
    source = make_tiny_model(tmp_path / "source")
    for file in source.glob("*.json"):  # no marks of Phi-3, which would mean that it learned to chat
        file.write_text(file.read_text().replace("<|user|>", "<|reader|>"))
    settings = json.loads((source / "tokenizer_config.json").read_text())
    for name, template in (("Base", ""), ("Chat", "{{ messages[0].content }}")):
        (source / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
        made = tmp_path / f"{name}.gguf"
        make_gguf(source, made, name="Tiny", description="Random numbers.")
        put(home / f".lmstudio/models/maker/{name}-GGUF/{name}.gguf", made)
    assert {id: model.kind for id, model in found(library).items()} == {"maker/base": "base", "maker/chat": "chat"}
