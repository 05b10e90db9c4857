"""What Hearth stores: every file that a run writes belongs to a group, and deleting a group takes that and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from samples.tiny_model import make_tiny_gguf
from support.systems import needs_links

from app import stored_data
from app.settings import paths
from app.stored_data import GROUPS, StoredData
from engine.library.owned.installed import Library
from engine.library.prepare import prepare_state
from engine.machine import measured_hardware
from engine.training import saved_arrays

ROOT = Path(__file__).resolve().parents[2]
ALL = [group.name for group in GROUPS]

# A start with an answer, a setting, an act that fails, an exported report's log, and the end.
DRIVER = """
import sys, threading
from PySide6.QtCore import QTimer
from app.startup import bootstrap
class Driven(bootstrap.Hearth):
    def start(self):
        super().start()
        self.engine.ready.connect(self.ask)
        self.engine.answered.connect(lambda _: QTimer.singleShot(300, self.end))
    def ask(self):
        self.engine.ready.disconnect(self.ask)
        self.controller.send("What is the capital of Peru?")
    def end(self):
        QTimer.singleShot(600, self.window.quit)
        threading.excepthook(threading.ExceptHookArgs((ValueError, ValueError("tried"), None, threading.main_thread())))
        self.setup.save_preset("Mine")
        self.setup.keep_default(True)
        self.servers.add("Rack", "http://127.0.0.1:9/v1", "", ["m"])
        self.window.preferences.set(text_px=16)
bootstrap.Hearth = Driven
sys.exit(bootstrap.run("process"))
"""


def stored() -> StoredData:
    return StoredData(paths())


def every_file() -> set[Path]:
    places = paths()
    folders = {places.data, places.config, places.cache, places.log}
    return {file for folder in folders for file in folder.rglob("*") if not file.is_dir()}


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.gui
def test_every_file_that_a_run_writes_belongs_to_a_group_and_goes_with_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DRIVER], cwd=ROOT, capture_output=True, text=True, timeout=240,
                          env={**os.environ, "QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": str(ROOT)},
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    gguf = make_tiny_gguf(tmp_path / "tiny.gguf")
    Library().add(gguf, copy=True)
    write(paths().cache / "kernels" / "key" / "one.code")
    prepare_state.keep_pace("pc", "train", 2.0)
    prepare_state.keep_state(prepare_state.PrepareState("maker/tiny"))
    saved_arrays.save(saved_arrays.saved_file("profiles", "one"), {"a": np.zeros(3)})
    measured_hardware.remember_expected("tiny", 0.5)
    data = stored()
    named = {file for group in GROUPS for file in data.files(group)}
    models = paths().data / "models"
    left = {file for file in every_file() - named if not file.is_relative_to(models)}
    assert {file.name for file in named} >= {
        "chats.db", "settings.json", "presets.json", "servers.json", "hearth.log", "crash.txt",
        "pace.json", "measured-hardware.json",
    }  # fmt: skip
    assert left == set(), "no group names these"
    sizes = {group.name: data.size(group) for group in GROUPS}
    assert sizes["models"] > gguf.stat().st_size
    told: list[int] = []
    erased = data.erase(ALL, told.append)
    assert erased.undeleted == []
    assert not erased.stopped
    assert every_file() == set()
    assert not any(folder.exists() for folder in data.folders)
    assert told == sorted(told)
    assert told[-1] == erased.n_bytes
    assert gguf.exists()


def test_only_the_chosen_groups_go() -> None:
    places = paths()
    chats, settings = write(places.chats_file), write(places.settings_file)
    aside = write(places.data / "chats-damaged-20260101-120000-000000.db-wal")
    assert stored().erase(["chats"], lambda _: None).n_bytes == 2
    assert not chats.exists()
    assert not aside.exists()
    assert settings.exists()


def test_what_a_user_put_into_the_folders_stays() -> None:
    places = paths()
    own = [write(places.data / "letter.txt"), write(places.config / "notes.json"),
           write(places.data / "models" / "my.gguf"), write(places.data / "chats backup.db")]  # fmt: skip
    write(places.chats_file)
    assert stored().erase(ALL, lambda _: None).undeleted == []
    assert all(file.exists() for file in own)
    assert not places.chats_file.exists()


def test_models_used_in_place_and_those_of_other_programs_stay(tmp_path: Path) -> None:
    in_place = make_tiny_gguf(tmp_path / "mine" / "tiny.gguf")
    others = make_tiny_gguf(Path.home() / ".lmstudio" / "models" / "maker" / "tiny" / "other.gguf")
    library = Library()
    library.add(in_place)
    copied = Path(library.add(others, copy=True).folder)
    assert any(model.owned for model in library.models())
    assert stored().erase(["models"], lambda _: None).undeleted == []
    assert in_place.exists()
    assert others.exists()
    assert not copied.exists()
    assert not library.home.exists(), "nor the list of them"


def test_a_models_folder_elsewhere_is_emptied_of_what_is_hearths_alone(tmp_path: Path) -> None:
    library = Library()
    library.relocate(tmp_path / "elsewhere")
    library.add(make_tiny_gguf(tmp_path / "tiny.gguf"), copy=True)
    own = write(tmp_path / "elsewhere" / "holiday.jpg")
    part = write(tmp_path / "elsewhere" / ".downloads" / "abc" / "key.part")
    foreign = write(tmp_path / "elsewhere" / ".downloads" / "film.mkv")
    assert stored().erase(["models", "downloads"], lambda _: None).undeleted == []
    assert not part.exists()
    assert sorted(file for file in (tmp_path / "elsewhere").rglob("*") if file.is_file()) == sorted([own, foreign])


@pytest.mark.skipif(os.name == "nt" or not hasattr(os, "geteuid"), reason="needs the rights of a folder")
def test_what_cannot_be_deleted_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    places = paths()
    stuck, log = write(places.settings_file), write(places.log / "engine.log")
    unlink = Path.unlink

    def refuse(file: Path, missing_ok: bool = False) -> None:
        if file == stuck:
            raise PermissionError(13, "Permission denied", str(file))
        unlink(file, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    erased = stored().erase(ALL, lambda _: None)
    assert [(one.what, one.why) for one in erased.undeleted] == [(str(stuck), "Permission denied.")]
    assert not log.exists()


@needs_links
def test_a_link_goes_and_what_it_leads_to_is_named(tmp_path: Path) -> None:
    elsewhere, places = write(tmp_path / "disk" / "chats.db"), paths()
    places.data.mkdir(parents=True)
    places.chats_file.symlink_to(elsewhere)
    (places.data / "artefacts").symlink_to(elsewhere.parent)
    erased = stored().erase(ALL, lambda _: None)
    assert not places.chats_file.is_symlink()
    assert elsewhere.exists()
    assert [one.what for one in erased.undeleted] == [str(elsewhere), str(elsewhere.parent)]


def test_stopping_leaves_the_rest() -> None:
    places = paths()
    write(places.chats_file)
    settings = write(places.settings_file)
    told: list[int] = []
    erased = stored().erase(["chats", "settings"], told.append, lambda: bool(told))
    assert erased.stopped
    assert not places.chats_file.exists()
    assert settings.exists()


def test_groups_have_different_names_and_words() -> None:
    assert len({group.name for group in GROUPS}) == len({group.title for group in GROUPS}) == len(GROUPS)
    assert {stored_data.SERVERS, stored_data.MODELS, stored_data.PREPARED, stored_data.DOWNLOADS} <= set(ALL)
