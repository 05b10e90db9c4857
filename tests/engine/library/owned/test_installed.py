"""The list of installed models: what it says of each, who may change it, and what becomes of its damage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.systems import needs_links

from engine.errors import (
    LibraryError,
    ModelFormatError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from engine.job import Job
from engine.library.owned.installed import STARTER_ID, Library
from engine.library.owned.library_file import RECEIPT
from engine.library.owned.stored_models import StoredModel
from engine.library.records import InstalledFile


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "models")


def put(library: Library, source: Path, id: str = "maker/tiny", **more: object) -> Path:
    """A model in the library's own folder, registered as a download registers it."""
    folder = library.folder_for(id)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / source.name)
    files = [InstalledFile(source.name, source.stat().st_size, sha256(source))]
    library.register(StoredModel(id, "Tiny", str(folder), tuple(files), path=source.name, **more))  # type: ignore[arg-type]
    return folder


def sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def ids(library: Library) -> list[str]:
    return [model.id for model in library.models()]


def listed(library: Library) -> dict[str, object]:
    found: dict[str, object] = json.loads((library.home / "library.json").read_text())
    return found


# --- what is listed


def test_an_empty_library_lists_the_starter_and_writes_nothing(library: Library) -> None:
    (starter,) = library.models()
    assert (starter.id, starter.name, starter.state, starter.origin) == (STARTER_ID, "Pip", "ready", "shipped")
    assert starter.n_bytes > 1e6
    assert not starter.owned
    assert not library.home.exists()


def test_a_registered_model_has_all_that_was_said_of_it(library: Library, tiny_gguf: Path) -> None:
    folder = put(
        library, tiny_gguf, repo="maker/tiny", revision="abc", catalogue_id="tiny-1", licence="MIT", kind="chat"
    )
    model = Library(library.home).get("maker/tiny")
    assert (model.folder, model.path) == (str(folder), str(folder / "tiny.gguf"))
    assert (model.owned, model.origin, model.n_bytes) == (True, "download", tiny_gguf.stat().st_size)
    assert (model.repo, model.revision, model.catalogue_id) == ("maker/tiny", "abc", "tiny-1")
    assert (model.licence, model.kind) == ("MIT", "chat")
    assert model.state == "needs preparing"  # it is a ReLU model without predictors
    assert "Prepare" in model.reason
    assert model.added.startswith("20")
    assert ids(library) == [STARTER_ID, "maker/tiny"]


def test_a_model_without_zeros_is_ready_as_it_is(library: Library, tmp_path: Path) -> None:
    put(library, make_tiny_gguf(tmp_path / "silu.gguf", activation="silu"))
    assert library.get("maker/tiny").state == "ready"


def test_what_preparing_made_is_remembered_and_loaded(library: Library, tiny_gguf: Path) -> None:
    from engine.conversion.convert import convert

    put(library, tiny_gguf)
    bundle = convert(tiny_gguf, library.prepared_folder("maker/tiny"), "q8_0").bundle
    model = library.set_prepared("maker/tiny", bundle)
    assert (model.state, model.prepared) == ("ready", str(bundle))
    assert library.resolve("maker/tiny").path == bundle
    still = library.set_prepared("maker/tiny", bundle, still_needed="Predictors are still to be trained.")
    assert (still.state, still.reason) == ("needs preparing", "Predictors are still to be trained.")
    shutil.rmtree(bundle)
    assert library.resolve("maker/tiny").path == Path(model.path)


def test_predictors_that_were_trained_make_a_model_ready(library: Library, tiny_gguf: Path) -> None:
    from engine.bundle import artefacts
    from engine.model.model_files import open_model

    put(library, tiny_gguf)
    assert library.get("maker/tiny").state == "needs preparing"
    folder = artefacts.artefact_folder(open_model(tiny_gguf))
    folder.mkdir(parents=True)
    (folder / f"{artefacts.NAMES['predictors']}.json").write_text("{}")
    assert library.get("maker/tiny").state == "ready"


def test_a_measured_rate_is_remembered_of_any_model(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf)
    library.set_measured("maker/tiny", 12.5)
    library.set_measured(STARTER_ID, 99.0)
    again = Library(library.home)
    assert [again.get(id).measured_tok_s for id in ("maker/tiny", STARTER_ID)] == [12.5, 99.0]


@pytest.mark.parametrize("harm", ["missing", "cut", "folder", "head"])
def test_a_broken_model_says_why_and_harms_no_other(library: Library, tiny_gguf: Path, harm: str) -> None:
    folder = put(library, tiny_gguf)
    put(library, tiny_gguf, "maker/other")
    file = folder / "tiny.gguf"
    if harm == "missing":
        file.unlink()
    elif harm == "cut":
        file.write_bytes(tiny_gguf.read_bytes()[:-1])
    elif harm == "folder":
        shutil.rmtree(folder)
    else:
        file.write_bytes(b"XXXX" + tiny_gguf.read_bytes()[4:])
    models = {model.id: model for model in library.models()}
    assert models["maker/tiny"].state == "broken"
    words = {"missing": "tiny.gguf is missing", "cut": "bytes; it had", "folder": "is not there", "head": "GGUF"}
    assert words[harm] in models["maker/tiny"].reason
    assert models["maker/other"].state == "needs preparing"
    with pytest.raises(ModelNotFoundError, match="cannot be loaded"):
        library.resolve("maker/tiny")


def test_heads_are_read_once(library: Library, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(library, tiny_gguf)
    library.models()
    monkeypatch.setattr("engine.library.owned.heads.open_model", lambda *of: pytest.fail("a head was read again"))
    assert ids(Library(library.home)) == [STARTER_ID, "maker/tiny"]


def test_what_is_registered_must_be_there_and_readable(library: Library, tiny_gguf: Path, tmp_path: Path) -> None:
    folder = library.folder_for("maker/tiny")
    file = InstalledFile("tiny.gguf", tiny_gguf.stat().st_size, "")
    with pytest.raises(LibraryError, match="is not there"):
        library.register(StoredModel("maker/tiny", "T", str(folder), (file,)))
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(b"no model" * 100)
    with pytest.raises(LibraryError, match="bytes; it had"):
        library.register(StoredModel("maker/tiny", "T", str(folder), (file,)))
    with pytest.raises(ModelFormatError):
        library.register(StoredModel("maker/tiny", "T", str(folder), (replace(file, n_bytes=800),)))
    with pytest.raises(LibraryError, match="is not where"):
        library.register(StoredModel("maker/tiny", "T", str(tiny_gguf.parent), (file,), path="tiny.gguf"))
    assert ids(library) == [STARTER_ID]


@pytest.mark.parametrize(
    "id", ["", "a", "a/b/c", "../b", "a/..", "a/.b", "/b", "a/", "a/con", "a/b.", "a/b\0", "a/b:c"]
)
def test_an_id_that_no_folder_can_have_is_refused(library: Library, id: str) -> None:
    with pytest.raises(LibraryError, match="not an id"):
        library.folder_for(id)


def test_ids_of_variants(library: Library) -> None:
    assert library.id_for("maker/Tiny-GGUF") == "maker/Tiny-GGUF"
    assert library.id_for("maker/Tiny-GGUF", "Q4_0") == "maker/Tiny-GGUF-q4_0"
    assert library.id_for("gpt2") == "hub/gpt2"
    with pytest.raises(LibraryError):
        library.id_for("../tiny")


# --- names


def test_a_model_goes_by_its_id_its_name_and_its_catalogue_id(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf, "Maker/Tiny-7B", catalogue_id="tiny-7b-chat", activation="relu", template="plain")
    for name in ("Maker/Tiny-7B", "maker/tiny-7b", "tiny-7b", "Tiny", "TINY", "tiny-7b-chat"):
        found = library.resolve(name)
        assert (found.id, found.name, found.path.name) == ("Maker/Tiny-7B", "Tiny", "tiny.gguf")
        assert (found.activation, found.template) == ("relu", "plain")
    assert library.resolve("pip").id == library.resolve("starter-chat").id == STARTER_ID
    with pytest.raises(ModelNotFoundError, match="'else'"):
        library.resolve("else")


def test_two_models_of_one_name_are_told_apart_by_their_ids(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf, "a/one")
    put(library, tiny_gguf, "b/two")
    with pytest.raises(ModelNotFoundError, match=r"2 models.* 'Tiny'") as caught:
        library.resolve("Tiny")
    assert "a/one" in caught.value.hint
    assert library.resolve("b/two").id == "b/two"


# --- giving up


def test_a_removed_model_comes_back_by_its_token(library: Library, tiny_gguf: Path) -> None:
    folder = put(library, tiny_gguf, licence="MIT")
    library.set_measured("maker/tiny", 7.0)
    before = library.get("maker/tiny")
    token = library.remove("maker/tiny")
    assert ids(library) == [STARTER_ID]
    assert not folder.exists()
    assert not folder.parent.exists()
    assert Library(library.home).restore(token) == before
    assert (folder / "tiny.gguf").read_bytes() == tiny_gguf.read_bytes()
    assert sorted(path.name for path in library.folder.iterdir() if path.is_dir()) == ["maker"]
    with pytest.raises(LibraryError, match="deleted"):
        library.restore(token)


def test_only_listed_files_are_deleted(library: Library, tiny_gguf: Path) -> None:
    folder = put(library, tiny_gguf)
    (folder / "my notes.txt").write_text("mine")
    library.remove("maker/tiny")
    assert library.purge() >= tiny_gguf.stat().st_size
    assert [path.name for path in folder.iterdir()] == ["my notes.txt"]
    assert not (library.folder / ".trash").exists()


def test_what_was_removed_long_ago_is_gone_for_good(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf)
    token = library.remove("maker/tiny")
    assert library.purge(600) == 0
    library.restore(token)
    token = library.remove("maker/tiny")
    assert library.purge() > 0
    with pytest.raises(LibraryError, match="deleted"):
        library.restore(token)
    assert list(library.folder.rglob("*.gguf")) == []


def test_a_model_in_place_is_only_taken_off_the_list(library: Library, tiny_gguf: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(tiny_gguf, tmp_path / "mine.gguf"))
    model = library.add(file)
    token = library.remove(model.id)
    library.purge(600)
    assert file.exists()
    assert library.restore(token) == model
    library.remove(model.id)
    library.purge()
    assert file.exists()


def test_the_bundle_that_preparing_made_goes_and_comes_with_its_model(library: Library, tiny_gguf: Path) -> None:
    from engine.conversion.convert import convert

    model = library.add(tiny_gguf)
    bundle = convert(tiny_gguf, library.prepared_folder(model.id), "q8_0").bundle
    library.set_prepared(model.id, bundle)
    token = library.remove(model.id)
    assert not bundle.exists()
    assert library.restore(token).prepared == str(bundle)
    assert library.resolve(model.id).path == bundle
    library.remove(model.id)
    library.purge()
    assert tiny_gguf.exists()
    assert [path for path in library.folder.rglob("*") if path.is_dir()] == []


def test_a_model_that_came_again_is_not_overwritten_by_undo(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf)
    token = library.remove("maker/tiny")
    folder = put(library, tiny_gguf)
    with pytest.raises(LibraryError, match="again"):
        library.restore(token)
    library.purge()
    assert (folder / "tiny.gguf").exists()
    assert library.get("maker/tiny").state == "needs preparing"


def test_the_starter_stays(library: Library) -> None:
    with pytest.raises(LibraryError, match="comes with Hearth"):
        library.remove(STARTER_ID)


@pytest.mark.parametrize("token", ["", "x", "../../etc", "0" * 16])
def test_a_senseless_token_brings_nothing_back(library: Library, token: str) -> None:
    with pytest.raises(LibraryError, match="deleted"):
        library.restore(token)


def test_a_new_version_replaces_the_files_of_the_old_one(library: Library, tiny_gguf: Path, tmp_path: Path) -> None:
    folder = put(library, tiny_gguf)
    (folder / "notes.txt").write_text("mine")
    library.set_measured("maker/tiny", 5.0)
    put(library, Path(shutil.copy(tiny_gguf, tmp_path / "newer.gguf")))
    assert sorted(path.name for path in folder.iterdir()) == [RECEIPT, "newer.gguf", "notes.txt"]
    model = library.get("maker/tiny")
    assert model.path == str(folder / "newer.gguf")
    assert model.measured_tok_s is None  # of other files


def test_a_model_that_is_fetched_again_keeps_what_was_found_out(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf)
    library.set_measured("maker/tiny", 5.0)
    library.set_prepared("maker/tiny")
    put(library, tiny_gguf)
    model = library.get("maker/tiny")
    assert (model.measured_tok_s, model.state) == (5.0, "ready")


# --- checking


def test_verify_names_the_files_that_are_not_what_they_were(library: Library, tmp_path: Path) -> None:
    model = library.add(make_tiny_model(tmp_path / "hf"), copy=True)
    seen: list[tuple[int, int]] = []
    assert library.verify(model.id, Job(progress=lambda done, total: seen.append((done, total)))) == []
    assert seen[-1] == (model.n_bytes, model.n_bytes)
    weights = Path(model.folder) / "model.safetensors"
    flipped = bytearray(weights.read_bytes())
    flipped[-1] ^= 1
    weights.write_bytes(flipped)
    (Path(model.folder) / "tokenizer.json").unlink()
    assert sorted(library.verify(model.id)) == ["model.safetensors", "tokenizer.json"]


# --- two at once


def test_window_and_command_line_see_each_other(library: Library, tiny_gguf: Path) -> None:
    here, there = library, Library(library.home)
    put(here, tiny_gguf, "a/one")
    put(there, tiny_gguf, "b/two")
    assert ids(here) == ids(there) == [STARTER_ID, "a/one", "b/two"]
    here.remove("b/two")
    assert ids(there) == [STARTER_ID, "a/one"]


def test_writers_at_the_same_time_lose_nothing(library: Library, tiny_gguf: Path) -> None:
    for i in range(6):
        put(library, tiny_gguf, f"maker/m{i}")

    def measure(i: int) -> None:
        own = Library(library.home)
        for round in range(5):
            own.set_measured(f"maker/m{i}", float(10 * i + round))

    threads = [threading.Thread(target=measure, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [library.get(f"maker/m{i}").measured_tok_s for i in range(6)] == [10.0 * i + 4 for i in range(6)]


def test_processes_at_the_same_time_lose_nothing(library: Library, tiny_gguf: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from engine.library.owned.installed import Library\n"
        "library = Library(Path(sys.argv[1]))\n"
        "for i in range(8): library.set_measured(sys.argv[2], float(i)); library.set_measured(sys.argv[2], 100.0 + i)\n"
    )
    for i in range(3):
        put(library, tiny_gguf, f"maker/m{i}")
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(library.home), f"maker/m{i}"], env=dict(os.environ))
        for i in range(3)
    ]
    assert [child.wait(timeout=600) for child in running] == [0, 0, 0]
    assert [library.get(f"maker/m{i}").measured_tok_s for i in range(3)] == [107.0] * 3


# --- damage


@pytest.mark.expects_log("The list of models was damaged")
@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"\0" * 4096, b'{"schema_version": 1, "models": 3}', b'{"schema_version": "1"}']
)
def test_a_damaged_list_is_kept_aside_and_made_anew(library: Library, tiny_gguf: Path, damage: bytes) -> None:
    put(library, tiny_gguf, "maker/owned")
    in_place = library.add(tiny_gguf)
    library.set_measured("maker/owned", 1.0)
    (library.home / "library.json").write_bytes(damage)
    again = Library(library.home)
    assert sorted(ids(again)) == sorted([STARTER_ID, "maker/owned", in_place.id])
    (aside,) = library.home.glob("library.damaged-*.json")
    assert aside.read_bytes() == damage
    assert ids(library) == ids(again)


@pytest.mark.expects_log("The list of models was damaged")
def test_models_are_found_by_what_lies_in_their_folders(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf, licence="MIT")
    before = library.get("maker/tiny")
    for name in ("library.json", "library.before.json"):
        (library.home / name).write_bytes(b"?")
    again = Library(library.home)
    assert again.get("maker/tiny") == before
    token = again.remove("maker/tiny")
    assert again.restore(token) == before


def test_a_list_that_somebody_deleted_is_found_again(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf)
    (library.home / "library.json").unlink()
    assert ids(Library(library.home)) == [STARTER_ID, "maker/tiny"]


def test_the_list_of_a_newer_hearth_is_refused_kindly_and_left_alone(library: Library, tiny_gguf: Path) -> None:
    put(library, tiny_gguf)
    file = library.home / "library.json"
    file.write_text(json.dumps({**listed(library), "schema_version": 2, "models": "otherwise"}))
    before = file.read_bytes()
    again = Library(library.home)
    with pytest.raises(LibraryError, match="newer Hearth") as caught:
        again.models()
    assert "Update" in caught.value.hint
    with pytest.raises(LibraryError, match="newer Hearth"):
        again.set_measured("maker/tiny", 1.0)
    assert file.read_bytes() == before


def hostile(change: str, victim: Path, values: dict[str, object]) -> dict[str, object]:
    """The list as somebody would write it who wants Hearth to delete or open what is none of its business."""
    (model,) = values["models"]  # type: ignore[misc]
    file = {"name": victim.name, "n_bytes": victim.stat().st_size, "sha256": ""}
    match change:
        case "escape":
            model["files"] = [{**file, "name": f"../../../{victim.parent.name}/{victim.name}"}]
        case "absolute":
            model["files"] = [{**file, "name": str(victim)}]
        case "folder":
            model.update(folder=str(victim.parent), files=[file], path=victim.name)
        case "relative":
            model.update(folder=f"../../{victim.parent.name}", files=[file], path=victim.name)
        case "id":
            model["id"] = "../.."
        case "twice":
            values["models"] = [model, model]
        case "leftovers":
            values["leftovers"] = [{"folder": str(victim.parent), "names": [victim.name]}]
        case "removed":
            gone = {**model, "folder": str(victim.parent), "files": [file], "path": ""}
            values["removed"] = {
                "0" * 16: {"model": gone, "trash": str(victim.parent), "names": [victim.name], "bundle": [], "at": 0.0},
                "1" * 16: {
                    "model": gone, "trash": str(victim.parent / ".trash" / ("1" * 16)),
                    "names": [victim.name], "bundle": [], "at": 0.0,
                },
            }  # fmt: skip
        case "moving":
            values["moving_to"] = str(victim.parent)
        case "remarks":
            values["remarks"] = {"hearth/starter-chat": {"prepared": 3}}
        case "many":
            model["files"] = [file] * 30000
        case "sizes":
            model["files"] = [{**file, "n_bytes": -(10**30)}]
        case "types":
            model["files"] = {"a": 1}
        case "deep":
            values["models"] = json.loads("[" * 200 + "]" * 200)
    return values


@pytest.mark.parametrize(
    "change",
    ["escape", "absolute", "folder", "relative", "id", "twice", "leftovers", "removed", "moving", "remarks", "many",
     "sizes", "types", "deep"],
)  # fmt: skip
def test_a_hostile_list_deletes_nothing_that_is_not_hearths(
    library: Library, tiny_gguf: Path, tmp_path: Path, change: str, quiet_log: object
) -> None:
    put(library, tiny_gguf)
    victim = tmp_path / "private" / "thesis.gguf"
    victim.parent.mkdir()
    shutil.copy(tiny_gguf, victim)
    values = hostile(change, victim, listed(library))
    (library.home / "library.json").write_text(json.dumps(values))
    again = Library(library.home)
    again.purge()
    for model in again.models()[1:]:
        again.remove(model.id)
    again.purge()
    again.relocate(tmp_path / "elsewhere")
    assert victim.read_bytes() == tiny_gguf.read_bytes()
    quiet_log.records[:] = []  # type: ignore[attr-defined]


@needs_links
def test_a_link_in_the_folder_leads_no_deletion_out_of_it(library: Library, tmp_path: Path) -> None:
    model = library.add(make_tiny_model(tmp_path / "hf"), copy=True)
    folder = Path(model.folder)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "x.json").write_text("mine")
    (folder / "sub").symlink_to(kept, target_is_directory=True)
    receipt = json.loads((folder / RECEIPT).read_text())
    lists: dict[str, Any] = listed(library)
    for values in (receipt, *lists["models"]):
        values["files"].append({"name": "sub/x.json", "n_bytes": 4, "sha256": ""})
    (folder / RECEIPT).write_text(json.dumps(receipt))
    (library.home / "library.json").write_text(json.dumps(lists))
    library.remove(model.id)
    library.purge()
    assert (kept / "x.json").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, tiny_gguf: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    library = Library(blocked / "models")
    assert ids(library) == [STARTER_ID]
    with pytest.raises(LibraryError):
        library.add(tiny_gguf)


def test_unsupported_models_are_refused_with_the_reason(library: Library, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.bin").write_bytes(b"pickle")
    with pytest.raises(UnsupportedModelError, match="pickle"):
        library.add(tmp_path / "m")


def test_a_list_with_random_damage_is_got_over(library: Library, tiny_gguf: Path, quiet_log: Any) -> None:
    import random

    put(library, tiny_gguf)
    library.add(tiny_gguf)
    library.remove(library.add(tiny_gguf, copy=True, name="Gone").id)
    file = library.home / "library.json"
    sound, rng = file.read_bytes(), random.Random(0)
    for _ in range(150):
        raw = bytearray(sound)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(raw))
            match rng.randrange(4):
                case 0:
                    raw[at] = rng.randrange(256)
                case 1:
                    del raw[at : at + rng.randrange(1, 40)]
                case 2:
                    raw[at:at] = rng.choice([b"null", b"[]", b"{}", b"-1", b"1e999", b'"../.."', b"[[", b"\xff", b"\0"])
                case _:
                    other = rng.randrange(len(raw))
                    raw[at : at + 8], raw[other : other + 8] = raw[other : other + 8], raw[at : at + 8]
        file.write_bytes(raw)
        again = Library(library.home)
        try:
            again.models()
            again.purge()
        except LibraryError as error:  # the version became a newer one
            assert "newer Hearth" in error.message  # noqa: PT017
    file.write_bytes(sound)
    assert tiny_gguf.exists()
    assert (library.folder_for("maker/tiny") / "tiny.gguf").read_bytes() == tiny_gguf.read_bytes()
    quiet_log.records[:] = []
