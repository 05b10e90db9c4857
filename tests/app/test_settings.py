"""The settings file: what is kept, what a damaged or foreign file does, and what every field says about itself."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.shown_text import numbers_in

from app import settings as module
from app.settings import (
    AppPaths,
    AppSettings,
    SettingsError,
    described,
    load_settings,
    make_private,
    paths,
    save_settings,
)
from engine.config import EngineConfig, SamplingConfig


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "настройки с пробелом" / "settings.json"


def write(file: Path, values: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")


def test_no_file_means_defaults_and_no_problem(file: Path) -> None:
    assert load_settings(file) == (AppSettings(), None)
    assert not file.exists()


def test_every_field_comes_back_as_it_was(file: Path) -> None:
    changed = AppSettings(
        theme="dark", language="de", text_px=20, contrast="high", motion="reduced", notify=False, stay_awake=False,
        tray=True, look_for_updates=True,
        engine_location="in-thread", mode="exact", threads=3, context=2048, temperature=0.0,
        device="cpu", vram_budget_gib=11.5,
        top_k=5, top_p=0.5, min_p=0.1, repeat_penalty=1.1, max_tokens=99, inspect=True, thought_tokens=50, seed=7,
        system_prompt="Sei kurz: \ud83d 火",
        sidebar_open=False, window_geometry="QUJD", last_conversation="abc", closed_folders="Work\nHome", model="a/b",
        offer_dismissed=True, kept_chats_gb=0.0, serve=True, serve_port=9000, serve_loads=True, serve_unload_min=30,
        serve_requests=3,
        search_service="searxng", search_address="https://searx.example.org", search_has_key=True,
    )  # fmt: skip
    assert all(getattr(changed, f.name) != f.default for f in dataclasses.fields(AppSettings))
    assert save_settings(file, changed)
    assert load_settings(file) == (changed, None)
    assert [entry.name for entry in file.parent.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_p", 9.0), ("min_p", "big"), ("min_p", True), ("min_p", float("nan")), ("min_p", float("inf")),
        ("text_px", 9), ("text_px", 25), ("text_px", 15.0), ("text_px", None),
        ("theme", "purple"), ("theme", ["dark"]), ("mode", "sparser"), ("threads", 0), ("threads", 1.5),
        ("threads", 10**400), ("seed", -1), ("temperature", -0.1), ("system_prompt", 5),
        ("system_prompt", "x" * 20_001), ("sidebar_open", 1), ("window_geometry", None),
    ],
)  # fmt: skip
def test_a_value_out_of_bounds_gives_its_default_and_a_note(file: Path, name: str, value: Any) -> None:
    write(file, {"schema_version": 1, name: value, "last_conversation": "kept"})
    settings, problem = load_settings(file)
    assert settings == AppSettings(last_conversation="kept")
    assert problem is not None
    assert problem.startswith(name)
    assert len(problem) < 200
    with pytest.raises(ValueError, match=name):
        AppSettings(**{name: value})


def test_two_bad_values_are_both_named(file: Path) -> None:
    write(file, {"schema_version": 1, "text_px": 9, "threads": 0})
    _, problem = load_settings(file)
    assert problem is not None
    assert "text_px" in problem
    assert "threads" in problem
    assert {"9", "10", "24", "0"} <= set(numbers_in(problem))


@pytest.mark.parametrize(
    "content",
    ["", "{", "\x00\x01", "[]", "3", '{"theme": "dark"}', '{"schema_version": "1"}', '{"schema_version": true}',
     '{"schema_version": -1}', "[" * 100_000, "{" + " " * module.MAX_FILE_BYTES + "}"],
    ids=["empty", "cut", "binary", "list", "number", "no version", "text version", "bool version", "old version",
         "deep", "huge"],
)  # fmt: skip
def test_a_damaged_file_is_kept_aside(file: Path, content: str) -> None:
    write(file, content)
    settings, problem = load_settings(file)
    assert settings == AppSettings()
    assert problem is not None
    (aside,) = file.parent.iterdir()
    assert aside.name in problem
    assert aside.name.startswith("settings-damaged-")
    assert aside.read_text(encoding="utf-8") == content
    assert save_settings(file, AppSettings(theme="dark"))
    assert load_settings(file) == (AppSettings(theme="dark"), None)


def test_bytes_that_are_no_text_are_kept_aside(file: Path) -> None:
    write(file, "")
    file.write_bytes(b'{"schema_version": 1, "theme": "\xff\xfe"}')
    assert load_settings(file)[0] == AppSettings()
    assert not file.exists()


def test_the_file_of_a_newer_version_stays_untouched(file: Path) -> None:
    write(file, {"schema_version": 99, "theme": {"by": "hour"}})
    before = file.read_bytes()
    settings, problem = load_settings(file)
    assert settings == AppSettings()
    assert problem is not None
    assert "newer" in problem
    assert save_settings(file, AppSettings(theme="dark")) is False
    assert file.read_bytes() == before


def test_values_of_another_version_survive_a_save(file: Path) -> None:
    write(file, {"schema_version": 1, "theme": "dark", "some_other_field": [1, 2]})
    settings, problem = load_settings(file)
    assert problem is None
    save_settings(file, dataclasses.replace(settings, theme="light"))
    values = json.loads(file.read_text(encoding="utf-8"))
    assert values["some_other_field"] == [1, 2]
    assert values["theme"] == "light"


def test_an_older_file_is_migrated_step_by_step(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCHEMA_VERSION", 3)
    steps = {
        1: lambda values: {**values, "theme": values["colours"]},
        2: lambda values: {**values, "min_p": values["min_p"] / 100},
    }
    monkeypatch.setattr(module, "_MIGRATIONS", steps)
    write(file, {"schema_version": 1, "colours": "dark", "min_p": 12})
    assert load_settings(file) == (AppSettings(theme="dark", min_p=0.12), None)


@pytest.mark.parametrize(
    ("zoom", "px"), [(1.0, 15), (0.8, 12), (1.6, 24), (1.1, 16), ("big", 15), (True, 15), (9.0, 15), (None, 15)]
)
def test_the_zoom_of_the_first_version_becomes_a_text_size(file: Path, zoom: object, px: int) -> None:
    write(file, {"schema_version": 1, "zoom": zoom, "theme": "dark"})
    assert load_settings(file) == (AppSettings(theme="dark", text_px=px), None)


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file" / "settings.json"
    with pytest.raises(SettingsError, match="could not be written") as caught:
        save_settings(path, AppSettings())
    assert caught.value.path == path
    settings, problem = load_settings(tmp_path)
    assert settings == AppSettings()
    assert problem is not None
    assert "could not be read" in problem


def test_a_failed_write_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_settings(file, AppSettings(theme="dark"))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(SettingsError, match="No space left"):
        save_settings(file, AppSettings(theme="light"))
    monkeypatch.undo()
    assert load_settings(file) == (AppSettings(theme="dark"), None)
    assert len(list(file.parent.iterdir())) == 1


def test_every_field_is_described_for_the_dialog() -> None:
    for setting in described():
        assert setting.title
        assert setting.fault(setting.default) is None
        if setting.group:
            assert setting.description.endswith(".")
            assert setting.kind != "choice" or len(setting.choices) > 1
            if setting.kind in {"number", "whole"}:
                assert None not in (setting.bounds.low, setting.bounds.high, setting.bounds.step)
                assert setting.fault(setting.bounds.low) is setting.fault(setting.bounds.high) is None
    assert [setting.name for setting in described()] == [f.name for f in dataclasses.fields(AppSettings)]


@pytest.mark.parametrize("edge", ["low", "high"])
def test_the_engine_takes_every_value_that_the_settings_allow(edge: str) -> None:
    values = {s.name: getattr(s.bounds, edge) for s in described() if s.kind in {"number", "whole"}}
    values |= {s.name: int(values[s.name]) for s in described() if s.kind == "whole"}
    settings = AppSettings(**values)
    SamplingConfig().changed(settings.sampling())
    for mode, _ in next(s.choices for s in described() if s.name == "mode"):
        EngineConfig(mode=mode)
    for device, _ in next(s.choices for s in described() if s.name == "device"):
        EngineConfig(**dataclasses.replace(settings, device=device).engine())
    assert AppSettings().sampling() == {}
    assert AppSettings(serve=True, serve_requests=3).engine()["sequences"] == 3
    assert AppSettings(serve_requests=3).engine() == AppSettings(serve=True).engine() == AppSettings().engine()
    assert AppSettings().engine() == {"device": "auto", "vram_budget_gib": None, "threads": None, "context": None}


def test_folders_follow_the_platform(own_folders: Path) -> None:
    """On every system: the suite must not read or harm a person's own files."""
    found = paths()
    assert all(file.is_relative_to(own_folders) for file in (found.chats_file, found.settings_file, found.log_file))
    assert not found.data.exists()
    if sys.platform == "linux":
        assert found.chats_file == own_folders / "data" / "Hearth" / "chats.db"
        assert found.settings_file == own_folders / "config" / "Hearth" / "settings.json"
        assert found.log_file.is_relative_to(own_folders / "state")


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a person's folders by other means")
def test_nobody_else_reads_hearths_folders(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        old = tmp_path / "share" / "Hearth"
        (old / "models").mkdir(parents=True)
        chosen = tmp_path / "chosen"
        chosen.mkdir()
        (chosen / "photo.jpg").touch()
        places = AppPaths(old, tmp_path / "config" / "Hearth", tmp_path / "new", tmp_path / "state" / "Hearth" / "log")
        make_private(places)
        make_private(AppPaths(chosen, chosen, chosen / "cache", chosen / "logs"))
    finally:
        os.umask(before)

    def rights(folder: Path) -> int:
        return folder.stat().st_mode & 0o777

    assert {rights(folder) for folder in (places.data, places.config, places.cache, places.log)} == {0o700}
    assert (rights(chosen), rights(chosen / "logs")) == (0o755, 0o700)
