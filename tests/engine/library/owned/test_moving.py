"""Models move to another folder or disk: nothing is lost whatever interrupts it, and nothing foreign is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.conversion.convert import convert
from engine.errors import Cancelled, DiskSpaceError, LibraryError
from engine.job import Job
from engine.library.owned import moving
from engine.library.owned.imports import file_hash
from engine.library.owned.installed import STARTER_ID, Library
from engine.library.owned.library_file import LibraryFile
from engine.library.owned.stored_models import StoredModel
from engine.library.records import InstalledFile

KILLED = Path(__file__).parents[3] / "support" / "killed_moves.py"


def fill(library: Library, mine: Path) -> None:
    """A model from a hub with something of the person's beside it, one copied, one in place with a prepared bundle."""
    gguf = make_tiny_gguf(mine / "in place.gguf")
    folder = library.folder_for("maker/tiny")
    folder.mkdir(parents=True)
    for name in ("tiny.gguf", "deep/more.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(gguf, folder / name)
    files = [
        InstalledFile(name, (folder / name).stat().st_size, file_hash(folder / name, lambda done: None, lambda: False))
        for name in ("tiny.gguf", "deep/more.json")
    ]
    library.register(StoredModel("maker/tiny", "Tiny", str(folder), tuple(files), path="tiny.gguf"))
    (folder / "notes.txt").write_text("mine")
    library.add(make_tiny_model(mine / "hf"), copy=True, name="Copied")
    model = library.add(gguf, name="In place")
    library.set_prepared(model.id, convert(gguf, library.prepared_folder(model.id), "q8_0").bundle)
    library.set_prepared("maker/tiny", convert(gguf, library.prepared_folder("maker/tiny"), "q8_0").bundle)


@pytest.fixture
def library(tmp_path: Path) -> Library:
    library = Library(tmp_path / "models")
    fill(library, tmp_path / "mine")
    return library


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another disk than the tests' own, skipped with the reason where there is none."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second disk here")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def states(library: Library) -> dict[str, str]:
    return {model.id: model.state for model in library.models() if model.id != STARTER_ID}


def gguf_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".gguf", ".safetensors", ".bin", ".part")]


def move_and_check(library: Library, target: Path) -> list[tuple[int, int]]:
    before = {model.id: model for model in library.models()}
    seen: list[tuple[int, int]] = []
    assert library.relocate(target, Job(progress=lambda done, total: seen.append((done, total)))) == target
    again = Library(library.home)
    for model in again.models():
        old = before[model.id]
        assert (model.state, model.files, model.n_bytes) == (old.state, old.files, old.n_bytes)
        assert again.verify(model.id) == []
        assert Path(model.folder).is_relative_to(target) == model.owned
        assert not model.prepared or Path(model.prepared).is_relative_to(target)
    assert again.folder == target
    assert again.folder_for("a/b") == target / "a" / "b"
    assert (library.home / "maker" / "tiny" / "notes.txt").read_text() == "mine"
    assert gguf_files(library.home) == []
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0
    return seen


def test_models_move_by_renaming_on_the_same_disk(library: Library, tmp_path: Path) -> None:
    inodes = {path.stat().st_ino for path in gguf_files(library.home)}
    move_and_check(library, tmp_path / "new place" / "models")
    assert {path.stat().st_ino for path in gguf_files(tmp_path / "new place")} == inodes


def test_models_move_to_another_disk(library: Library, other_disk: Path) -> None:
    move_and_check(library, other_disk / "models")


def test_models_move_back_and_forth(library: Library, other_disk: Path, tmp_path: Path) -> None:
    for target in (other_disk / "a", tmp_path / "b", other_disk / "c"):
        library.relocate(target)
        assert set(states(library).values()) <= {"ready", "needs preparing"}
    library.relocate(library.home)
    assert library.folder == library.home
    assert gguf_files(other_disk) == gguf_files(tmp_path / "b") == []
    assert len(states(library)) == 3


def test_moving_to_where_they_are_does_nothing(library: Library) -> None:
    before = sorted(path for path in library.home.rglob("*") if "library" not in path.name)
    library.relocate(library.home)
    after = sorted(path for path in library.home.rglob("*") if "library" not in path.name)
    lock = library.home / moving.MOVING_LOCK  # which stays, except on Windows
    assert [path for path in after if path != lock] == [path for path in before if path != lock]


EVERY = [pytest.param(23, id="some"), pytest.param(1, id="each", marks=[pytest.mark.slow, pytest.mark.timeout(900)])]


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("disk", ["same", "other"])
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_killed_before_any_step_nothing_is_lost(
    library: Library, disk: str, every: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = (request.getfixturevalue("other_disk") if disk == "other" else tmp_path) / "moved"
    assert killed("relocate", library, tmp_path, target, every) > 30


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("what", ["remove", "restore", "purge"])
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_killed_before_any_step_of_a_removal_nothing_is_half(
    library: Library, what: str, every: int, tmp_path: Path
) -> None:
    assert killed(what, library, tmp_path, tmp_path / "moved", every) > 10


def killed(what: str, library: Library, tmp_path: Path, target: Path, every: int) -> int:
    command = [sys.executable, str(KILLED), what, str(library.home), str(tmp_path / "work"), str(target), str(every)]
    root = str(KILLED.parents[2])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=root, env={**os.environ, "PYTHONPATH": root}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(json.loads(done.stdout)["steps"])


def test_a_cancelled_move_leaves_every_model_whole(library: Library, other_disk: Path) -> None:
    seen: list[int] = []
    with pytest.raises(Cancelled):
        library.relocate(other_disk / "new", Job(lambda: len(seen) > 4, lambda done, total: seen.append(done)))
    assert set(states(library).values()) <= {"ready", "needs preparing"}
    assert all(library.verify(id) == [] for id in states(library))
    assert library.folder == library.home
    assert not (other_disk / "new" / ".incoming").exists()
    move_and_check(library, other_disk / "new")


def test_a_disk_without_room_is_said_first(library: Library, other_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda at: usage(1 << 40, 0, 1 << 30))
    with pytest.raises(DiskSpaceError, match="free"):
        library.relocate(other_disk / "new")
    assert gguf_files(other_disk) == []
    assert library.folder == library.home


def test_what_is_in_the_way_stays_and_is_said(library: Library, tmp_path: Path) -> None:
    target = tmp_path / "new"
    (target / "maker" / "tiny").mkdir(parents=True)
    (target / "maker" / "tiny" / "tiny.gguf").write_text("mine")
    with pytest.raises(LibraryError, match=r"tiny\.gguf|tiny"):
        library.relocate(target)
    assert (target / "maker" / "tiny" / "tiny.gguf").read_text() == "mine"
    assert "broken" not in states(library).values()
    (tmp_path / "file").write_text("")
    with pytest.raises(LibraryError, match="file"):
        library.relocate(tmp_path / "file")
    with pytest.raises(LibraryError, match=r"Tiny|maker/tiny"):
        library.relocate(library.folder_for("maker/tiny") / "inner")


def test_only_one_moves_at_a_time(library: Library, tmp_path: Path) -> None:
    refused: list[str] = []

    def meanwhile(done: int, total: int) -> None:
        if not refused:
            with pytest.raises(LibraryError, match="already") as caught:
                Library(library.home).relocate(tmp_path / "third")
            refused.append(caught.value.hint)

    library.relocate(tmp_path / "second", Job(progress=meanwhile))
    assert refused
    assert library.folder == tmp_path / "second"


def test_others_see_whole_models_while_they_move(library: Library, other_disk: Path, tmp_path: Path) -> None:
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        other = Library(library.home)
        while not over.is_set():
            seen.update(model.reason for model in other.models() if model.state == "broken")

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for target in (tmp_path / "a", other_disk / "b", tmp_path / "c"):
            library.relocate(target)
    finally:
        over.set()
        watcher.join()
    assert seen == set()


def test_a_model_that_is_taken_in_meanwhile_is_kept(library: Library, other_disk: Path, tmp_path: Path) -> None:
    added: list[str] = []
    other = make_tiny_gguf(tmp_path / "other.gguf", n_layers=3)

    def meanwhile(done: int, total: int) -> None:
        if not added:
            added.append(Library(library.home).add(other, copy=True, name="New").id)
            Library(library.home).remove("local/copied")

    library.relocate(other_disk / "new", Job(progress=meanwhile))
    assert states(library).keys() == {"maker/tiny", "local/in-place", *added}
    assert Path(library.get(added[0]).folder).is_relative_to(other_disk / "new")
    assert "broken" not in states(library).values()


def test_a_full_disk_midway_leaves_every_model_whole(
    library: Library, other_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def full(done: int, total: int) -> None:
        if done > total // 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskSpaceError):
        library.relocate(other_disk / "new", Job(progress=full))
    assert "broken" not in states(library).values()
    assert not (other_disk / "new" / ".incoming").exists()
    assert LibraryFile(library.home).read().moving_to == ""
