"""Folders and files that people really have: spaces, other scripts, wide spaces, no Unicode, and very long paths."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.systems import ON_WINDOWS, UNDER_WINE, needs_links

from engine.files import bytes_below, matching, openable, replace_file, spelled, windows_spelling
from engine.library.owned.installed import STARTER_ID, Library
from engine.library.owned.stored_models import StoredModel, as_part, is_file_name, is_id, is_part
from engine.library.records import InstalledFile, from_json, to_json
from engine.model.model_files import open_model
from engine.session.resolve_model import find_model

ODD = {
    "spaces": " two  spaces and a space at the end ",
    "cyrillic": "Модели Ёлки",
    "chinese": "模型 文件夹",
    "japanese": "モデル\u3000フォルダ",
    "korean": "모델",
    "arabic": "نماذج",
    "combined": "mode\u0301les",
    "emoji": "🔥 modèles",
    "quotes": 'it\'s "quoted" & <100 %> #1; $HOME `x`',
    "dots": "..models.",
    "dash": "-rf",
    "newline": "two\nlines",
    "backslash": "back\\slash",
    "tilde": "~",
    "no unicode": "caf\udce9 \udcff",
    "long": "/".join(["a folder with a long name for a reason that nobody remembers"] * 6),
    "very long": "/".join(["模型" * 30] * 8),
}


@pytest.fixture(params=sorted(ODD))
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if ON_WINDOWS and request.param in ("quotes", "dots", "newline", "backslash", "no unicode", "spaces"):
        pytest.skip("no folder can be called so here")
    if UNDER_WINE and "long" in request.param:
        pytest.skip("Wine 8 resolves no path over 260 characters")
    folder = tmp_path / ODD[request.param]
    folder.mkdir(parents=True)
    return folder


def sound(library: Library, id: str) -> bool:
    return library.get(id).state in ("ready", "needs preparing") and library.verify(id) == []


def test_models_folder_with_any_name(odd: Path, tmp_path: Path) -> None:
    from engine.config import EngineConfig
    from engine.session.loaded_model import LoadedModel

    library = Library(odd / "models")
    gguf = make_tiny_gguf(tmp_path / "a.gguf")
    copied = library.add(gguf, copy=True)
    folder = library.folder_for("maker/tiny")
    folder.mkdir(parents=True)
    shutil.copy(gguf, folder)
    file = InstalledFile("a.gguf", gguf.stat().st_size, "")
    library.register(StoredModel("maker/tiny", "T", str(folder), (file,), path="a.gguf"))
    again = Library(odd / "models")
    assert sound(again, copied.id)
    assert sound(again, "maker/tiny")
    for model in again.models():
        assert from_json(type(model), to_json(model) | {"files": [to_json(file) for file in model.files]}, "x") == model
    path = str(again.resolve(copied.id).path)
    assert LoadedModel.load(path, EngineConfig(backend="reference", device="cpu")).opened.config.n_layers == 2
    token = again.remove(copied.id)
    assert sound(again, again.restore(token).id)
    again.remove(copied.id)
    assert again.purge() > 0
    assert [model.id for model in again.models()] == [STARTER_ID, "maker/tiny"]


def test_models_are_taken_in_from_anywhere_and_moved_anywhere(odd: Path, tmp_path: Path) -> None:
    library = Library(tmp_path / "models")
    name = odd.name or "model"
    file = odd / f"{name}.gguf" if len(os.fsencode(name)) < 240 else odd / "m.gguf"
    shutil.copy(make_tiny_gguf(tmp_path / "a.gguf"), file)
    hf = make_tiny_model(odd / "hf")
    in_place, folder_in_place = library.add(file, name=name), library.add(hf)
    copies = [library.add(path, copy=True) for path in (file, hf)]
    assert library.relocate(odd / "new") == odd / "new"
    again = Library(tmp_path / "models")
    for model in (in_place, folder_in_place, *copies):
        assert sound(again, model.id)
        assert again.resolve(model.id).path.exists()
    assert Path(again.get(copies[0].id).folder).is_relative_to(odd / "new")
    again.relocate(tmp_path / "models")
    assert all(sound(Library(tmp_path / "models"), model.id) for model in copies)
    for model in (in_place, folder_in_place, *copies):
        again.remove(model.id)
    again.purge()
    assert file.exists()
    assert (hf / "model.safetensors").exists()


def test_a_person_whose_home_has_an_odd_name(odd: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("XDG_DATA_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(variable, str(odd))
    model = Library().add(make_tiny_gguf(tmp_path / "a.gguf"), copy=True)
    assert Path(model.folder).is_relative_to(odd)
    assert sound(Library(), model.id)


def test_a_relative_path_and_a_tilde_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(tmp_path / "models")
    make_tiny_gguf(tmp_path / "a.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    model = library.add(Path("a.gguf"))
    assert model.path == str(tmp_path / "a.gguf")
    assert library.add(Path("~/a.gguf")).id == model.id
    assert library.relocate(Path("~/moved")) == tmp_path / "moved"


@needs_links
def test_a_linked_models_folder_and_a_linked_model(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "models").symlink_to(tmp_path / "real", target_is_directory=True)
    library = Library(tmp_path / "models")
    gguf = make_tiny_gguf(tmp_path / "a.gguf")
    (tmp_path / "link.gguf").symlink_to(gguf)
    linked, copied = library.add(tmp_path / "link.gguf"), library.add(tmp_path / "link.gguf", copy=True)
    assert sound(library, linked.id)
    assert not Path(copied.path).is_symlink()
    library.relocate(tmp_path / "new")
    assert sound(library, copied.id)
    for model in (linked, copied):
        library.remove(model.id)
    library.purge()
    assert gguf.exists()
    assert (tmp_path / "link.gguf").is_symlink()


# --- names


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Llama 2 7B (Chat)", "llama-2-7b-chat"), ("модель № 5", "модель-5"), ("モデル\u3000A", "モデル-a"),
        ("", "model"), ("...", "model"), ("CON", "model"), ("com1.gguf", "model"), ("../../x", "x"),
        ("a" * 500, "a" * 96),
        ("模" * 200, "模" * 32), ("x\0y\ud800z", "x-y-z"), (" -.tail-. ", "tail"), ("~", "model"),
    ],
)  # fmt: skip
def test_a_folder_is_called_what_a_person_recognises(text: str, part: str) -> None:
    assert as_part(text, "model") == part
    assert is_part(part)
    assert is_id(f"local/{part}")


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "/a", "a//b", "a/", "a\0b", "./a"])
def test_a_name_that_leads_out_of_a_folder_is_none(name: str) -> None:
    assert not is_file_name(name)


@pytest.mark.parametrize("name", ["a", "a/b.gguf", " a ", "模型/文件.gguf", "...a", "a:b" if not ON_WINDOWS else "a b"])
def test_other_names_are_fine(name: str) -> None:
    assert is_file_name(name)


def test_long_paths_are_spelled_as_windows_wants_them() -> None:
    deep = "\\".join(["a" * 60] * 5)
    short = "C:\\Users\\Anna\\models"
    assert windows_spelling(short) == short
    assert windows_spelling(f"C:\\{deep}") == f"\\\\?\\C:\\{deep}"
    assert windows_spelling(f"C:/{deep}/x/../y") == f"\\\\?\\C:\\{deep}\\y"
    assert windows_spelling(f"\\\\server\\share\\{deep}") == f"\\\\?\\UNC\\server\\share\\{deep}"
    assert windows_spelling(f"\\\\?\\C:\\{deep}") == f"\\\\?\\C:\\{deep}"
    if not ON_WINDOWS:
        assert spelled(Path("/" + "a/" * 300)) == Path("/" + "a/" * 300)


def test_a_long_path_from_a_user_is_spelled_out_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_tiny_gguf(tmp_path / "a.gguf")
    monkeypatch.setattr("engine.files.spelled", lambda path: model)  # the same file, as Windows opens it
    long = tmp_path.joinpath(*["b" * 60] * 5, "a.gguf")
    for module in ("engine.session.resolve_model", "engine.model.model_files"):
        monkeypatch.setattr(f"{module}.openable", lambda path: openable(path, windows=True))
    assert find_model(str(long)).path == model
    assert open_model(long).files.path == model
    assert openable(Path("a.gguf"), windows=True) == Path("a.gguf")


def test_a_file_that_another_program_reads_is_replaced_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new").write_text("new")
    (tmp_path / "old").write_text("old")
    replace, refusals = os.replace, [PermissionError(13, "in use")] * 2

    def refuse_twice(source: Path, target: Path) -> None:
        if refusals:
            raise refusals.pop()
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse_twice)
    replace_file(tmp_path / "new", tmp_path / "old", windows=True)
    assert (tmp_path / "old").read_text() == "new"
    refusals.append(PermissionError(13, "no right to"))
    with pytest.raises(PermissionError):
        replace_file(tmp_path / "old", tmp_path / "new", windows=False)


def test_a_folder_that_disappears_while_others_are_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.part").write_bytes(b"12345")
    scandir = os.scandir

    def removed_before_it_is_read(path: str | int) -> object:
        if isinstance(path, str) and os.path.basename(path) == "b":
            Path(path, "model.part").unlink(missing_ok=True)
            os.rmdir(path)  # shutil.rmtree would list it first
        return scandir(path)

    monkeypatch.setattr(os, "scandir", removed_before_it_is_read)
    assert matching(tmp_path, "*/*.part") == [tmp_path / "a/model.part", tmp_path / "c/model.part"]
    (tmp_path / "b").mkdir()
    assert bytes_below(tmp_path) == 10
