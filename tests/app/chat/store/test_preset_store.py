"""Personas and presets as shelves: kept, changed, handed out, taken in, and hostile files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.chat.answers.personas import MAX_INSTRUCTIONS, Persona, Personas
from app.chat.answers.presets import BALANCED, MAX_STOPS, Preset, Presets, checked_sampling, fields_of_sampling
from app.chat.store.preset_store import MAX_FILE_BYTES, MAX_THINGS, NAME_LENGTH, PresetStoreError, checked_name, new_id
from engine.config import SamplingConfig


def mine(name: str = "Mine", instructions: str = "Be kind.", own_id: str = "") -> Persona:
    return Persona(own_id or new_id(), name, instructions)


def test_what_is_kept_comes_back_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "config" / "personas.json"
    store = Personas(path)
    store.read()  # there is no file yet
    kept = [store.put(mine("Pirate", "Sprich wie 海賊 \ud83d")), store.put(mine("Poet", "In rhymes."))]
    store.save(store.to_json())
    again = Personas(path)
    again.read()
    assert again.own == kept
    assert again.things[: len(again.built_in)] == list(again.built_in)
    assert [name.name for name in path.parent.iterdir()] == ["personas.json"], "nothing is left beside it"


def test_what_comes_with_hearth_stays_as_it_is() -> None:
    store = Presets()
    assert {preset.id for preset in store.built_in} == {"precise", BALANCED, "creative"}
    assert not store.is_own("precise")
    with pytest.raises(KeyError):
        store.remove("precise")
    for preset in store.built_in:
        SamplingConfig().changed(dict(preset.values))
        assert checked_sampling(preset.values) == dict(preset.values)


def test_a_name_is_given_once() -> None:
    store = Personas()
    first, second = store.put(mine("Concise")), store.put(mine("concise"))
    assert (first.name, second.name) == ("Concise 2", "concise 3")
    longest = "n" * NAME_LENGTH
    store.put(mine(longest))
    assert len(store.put(mine(longest)).name) <= NAME_LENGTH
    changed = store.put(Persona(first.id, "Concise 2", "Other words."))
    assert changed.name == "Concise 2", "its own name is free to it"
    assert [one.instructions for one in store.own if one.id == first.id] == ["Other words."]


def test_what_is_removed_can_be_put_back_where_it_stood() -> None:
    store = Personas()
    one, two, three = (store.put(mine(name)) for name in "abc")
    at = store.remove(two.id)
    assert store.own == [one, three]
    store.put(two, at)
    assert store.own == [one, two, three]


def test_there_is_an_end_to_a_shelf() -> None:
    store = Personas()
    for i in range(MAX_THINGS):
        store.put(mine(f"{i}"))
    with pytest.raises(PresetStoreError):
        store.put(mine("one more"))
    store.put(Persona(store.own[0].id, "changed", "still possible"))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("  two\n lines\t", "two lines"),
        ("a\u202egnp.exe", "a gnp.exe"),  # would turn the words around it
        ("x" * 500, "x" * NAME_LENGTH),
        ("\ud83d lone", "lone"),
    ],
)
def test_a_name_is_one_line_that_turns_nothing_around(name: str, shown: str) -> None:
    assert checked_name(name) == shown


@pytest.mark.parametrize("name", [None, 5, "", " \n", "\u202e"])
def test_a_name_that_says_nothing_is_none(name: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        checked_name(name)


def test_handed_out_and_taken_in_it_is_the_same(tmp_path: Path) -> None:
    ours, theirs = Presets(), Presets()
    kept = ours.put(Preset(new_id(), "Haiku", {"temperature": 0.9, "stop": ["\n\n"], "seed": 7}))
    ours.export_file(tmp_path / "out.json", [kept, ours.built_in[0]])
    added, left_out = theirs.import_file(tmp_path / "out.json")
    assert (len(added), left_out) == (1, 0), "the one that comes with Hearth is there already"
    assert (added[0].name, added[0].values) == ("Haiku", kept.values)
    assert theirs.import_file(tmp_path / "out.json") == ([], 0), "twice changes nothing"
    assert added[0].id != kept.id, "an id from outside names nothing here"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe", b"[]", b"null", b'"personas"', b"{}", b'{"personas": {}}', b'{"personas": [1, null, []]}',
        b'{"personas": [{"name": "x"}]}', b'{"personas": [{"name": "", "instructions": "y"}]}',
        b'{"personas": [{"name": "x", "instructions": 5}]}', b"[" * 200_000, b'{"schema_version": 99, "personas": []}',
        json.dumps({"personas": [{"name": "x", "instructions": "y" * (MAX_INSTRUCTIONS + 1)}]}).encode(),
        b" " * (MAX_FILE_BYTES + 1),
    ],
)  # fmt: skip
def test_a_file_from_outside_that_makes_no_sense_is_refused_and_harms_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "personas.json"
    path.write_bytes(content)
    store = Personas()
    with pytest.raises(PresetStoreError) as refused:
        store.import_file(path)
    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) < 200
    own = Personas(path)
    own.read()
    assert own.own == []
    assert store.own == []


def test_what_makes_no_sense_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    good = {"name": "Good", "values": {"temperature": 1}}
    bad: list[Any] = [
        {"name": "Hot", "values": {"temperature": 99}}, {"name": "Odd", "values": {"wings": 2}},
        {"name": "NaN", "values": {"top_p": float("nan")}}, {"name": "Stops", "values": {"stop": ["x"] * 99}},
        {"name": "Empty stop", "values": {"stop": [""]}}, {"name": "Seed", "values": {"seed": True}},
    ]  # fmt: skip
    path.write_text(json.dumps({"presets": [good, *bad]}))
    added, left_out = Presets().import_file(path)
    assert [preset.name for preset in added] == ["Good"]
    assert left_out == len(bad)


def test_a_missing_file_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PresetStoreError, match=r"gone\.json"):
        Personas().import_file(tmp_path / "gone.json")


def test_ids_of_a_file_are_taken_only_where_they_are_free(tmp_path: Path) -> None:
    path = tmp_path / "personas.json"
    values = [{"id": one, "name": "x", "instructions": "y"} for one in ("concise", "a", "a", "b" * 999, 5, "")]
    path.write_text(json.dumps({"schema_version": 1, "personas": values}))
    store = Personas(path)
    store.read()
    ids = [persona.id for persona in store.things]
    assert len(set(ids)) == len(ids) == len(store.built_in) + len(values)
    assert store.get("concise") == store.built_in[0]


def test_a_newer_file_stays_untouched(tmp_path: Path) -> None:
    path = tmp_path / "personas.json"
    path.write_text('{"schema_version": 2, "personas": "otherwise"}')
    store = Personas(path)
    store.read()
    store.put(mine())
    store.save(store.to_json())
    assert json.loads(path.read_text())["personas"] == "otherwise"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_file_is_kept_aside(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "personas.json"
    file.write_bytes(content)
    store = Personas(file)
    store.read()
    assert store.own == []
    store.put(Persona("p", "Cook", "Cook."))
    store.save(store.to_json())
    (aside,) = tmp_path.glob("personas-damaged-*.json")
    assert aside.read_bytes() == content
    again = Personas(file)
    again.read()
    assert [one.name for one in again.own] == ["Cook"]


def test_a_file_that_cannot_be_read_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "personas.json"
    file.mkdir()
    store = Personas(file)
    store.read()
    store.put(Persona("p", "Cook", "Cook."))
    store.save(store.to_json())
    assert file.is_dir()
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("no folder")
    with pytest.raises(OSError):  # noqa: PT011 - which one, the system says
        Personas(tmp_path / "config" / "personas.json").save({})


def test_every_field_of_sampling_is_one_of_the_engines() -> None:
    for setting in fields_of_sampling():
        assert hasattr(SamplingConfig(), setting.name)
        assert setting.fault(None) is None
        for bound in (setting.bounds.low, setting.bounds.high):
            assert bound is not None
            value = int(bound) if setting.kind == "whole" else bound
            SamplingConfig().changed({setting.name: value})
    assert MAX_STOPS < 20
