"""The settings of folders: kept in a file that may be damaged, and inherited by chats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.chat.answers.answer_policy import AnswerPolicy
from app.chat.projects.project import Project, Projects
from app.chat.store.conversation import Conversation
from app.clients.servers import Place, Server
from app.settings import AppSettings
from app.tools.propose_note import PROPOSE_NOTE

SERVER = Server("one", "Elsewhere", "https://example.org/v1", ("big",))
THERE = {"id": "one", "model": "big"}


def place_for(choices: Mapping[str, Any]) -> Place | None:
    return Place(SERVER, "big") if choices.get("server") == THERE else None


def policy_of(projects: Projects, context: int | None = None) -> AnswerPolicy:
    def definitions(names: Any) -> tuple[dict[str, Any], ...]:
        return tuple({"name": name} for name in names)

    return AnswerPolicy(AppSettings(system_prompt="Be kind."), None, place_for, definitions, projects, lambda: context)


def test_projects_are_as_before_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "projects.json"
    given = Project("Be short.", "editor", "m", None, ("calculate",), "/notes.md", True, ("/documents",))
    one = Projects(path)
    one.put("Thesis", given)
    one.put("Work", Project(server=THERE))
    one.save(one.to_json())
    again = Projects(path)
    again.read()
    assert again.of("Thesis") == given
    assert again.of("Work") == Project(server=THERE)
    assert again.of("") is None


def test_a_damaged_file_is_kept_and_a_newer_one_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "projects.json"
    for data in ("{", "[]", '{"projects": 3}', "[" * 100_000):
        path.write_text(data, encoding="utf-8")
        projects = Projects(path)
        projects.read()
        assert projects.folders == []
        assert not path.exists()
        assert [one.read_text(encoding="utf-8") for one in tmp_path.glob("projects-damaged-*.json")] == [data]
        next(tmp_path.glob("projects-damaged-*.json")).unlink()
    newer = '{"schema_version": 99, "projects": []}'
    path.write_text(newer, encoding="utf-8")
    projects = Projects(path)
    projects.read()
    projects.put("A", Project("x"))
    projects.save(projects.to_json())
    assert path.read_text(encoding="utf-8") == newer


@pytest.mark.parametrize("entry", [None, 3, [], "x"])
def test_an_entry_that_is_none_is_skipped(tmp_path: Path, entry: Any) -> None:
    path = tmp_path / "projects.json"
    path.write_text(json.dumps({"schema_version": 1, "projects": {"A": entry, "": {}, "B": {}}}), encoding="utf-8")
    projects = Projects(path)
    projects.read()
    assert projects.folders == ["B"]


def test_a_value_that_is_not_valid_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "projects.json"
    bad = {"instructions": "x" * 20_001, "persona": 3, "model": [], "server": {"id": 1}, "tools": [1, "a", ""],
           "notes": "a\0b", "proposes": "yes", "documents": "x"}  # fmt: skip
    path.write_text(json.dumps({"schema_version": 1, "projects": {"A": bad}}), encoding="utf-8")
    projects = Projects(path)
    projects.read()
    assert projects.of("A") == Project(tools=("a",), notes="ab")


def test_a_chat_inherits_what_it_did_not_choose() -> None:
    projects = Projects()
    projects.put("Thesis", Project("", "editor", "m", None, ("calculate",)))
    policy = policy_of(projects)
    plain = policy.in_force(Conversation(folder="Thesis"))
    assert plain == {"persona": "editor", "model": "m", "tools": ["calculate"]}
    own = policy.in_force(Conversation(folder="Thesis", choices={"tools": [], "persona": "teacher", "model": "x"}))
    assert own == {"persona": "teacher", "model": "x", "tools": []}
    assert policy.in_force(Conversation(folder="Other", choices={"mode": "exact"})) == {"mode": "exact"}
    assert policy.chosen(plain, "").tools == ("calculate",)
    chosen = policy.chosen(plain, "").persona
    assert chosen is not None
    assert chosen.id == "editor"


def test_a_server_of_a_chat_comes_before_the_model_of_its_project_and_the_other_way_round() -> None:
    projects = Projects()
    projects.put("Here", Project(model="m"))
    projects.put("There", Project(server=THERE))
    policy = policy_of(projects)
    assert policy.in_force(Conversation(folder="Here", choices={"server": THERE})) == {"server": THERE}
    assert policy.place_for(policy.in_force(Conversation(folder="There"))) is not None
    assert policy.place_for(policy.in_force(Conversation(folder="There", choices={"server": {}}))) is None


def test_the_system_message_begins_with_the_project_and_ends_with_the_chat(tmp_path: Path) -> None:
    path = tmp_path / "Notes.md"
    path.write_text("- The cat is called Mia\n", encoding="utf-8")
    projects = Projects()
    projects.put("Thesis", Project("Be short.", notes=str(path)))
    policy = policy_of(projects)
    first = policy.settings_for({}, "", "Thesis").system_prompt
    assert first.startswith("Be short.\n\n")
    assert first.index("Mia") < first.index("Be kind.")
    own = policy.settings_for({"instructions": "Rhyme."}, "", "Thesis").system_prompt
    assert own == f"{first}\n\nRhyme."
    assert policy.settings_for({"instructions": 3}, "", "").system_prompt == "Be kind."


def test_notes_that_do_not_fit_are_cut_here_and_whole_on_a_server(tmp_path: Path) -> None:
    path = tmp_path / "Notes.md"
    path.write_text("word\n" * 1000, encoding="utf-8")
    projects = Projects()
    projects.put("A", Project(notes=str(path)))
    policy = policy_of(projects, 256)
    assert policy.notes_for("A", None).is_cut
    assert policy.settings_for({}, "", "A").system_prompt.count("word") < 100
    assert policy.settings_for({"server": THERE}, "", "A").system_prompt.count("word") == 1000


def test_the_model_proposes_notes_only_in_a_project_that_lets_it(tmp_path: Path) -> None:
    path = tmp_path / "Notes.md"
    path.write_text("", encoding="utf-8")
    projects = Projects()
    projects.put("A", Project(notes=str(path), proposes=True))
    projects.put("B", Project(notes=str(path)))
    policy = policy_of(projects)

    def tools(folder: str, choices: Any = None) -> list[str]:
        return [tool["name"] for tool in policy.settings_for(choices or {}, "", folder).tools]

    assert tools("A") == [PROPOSE_NOTE]
    assert tools("A", {"tools": ["calculate"]}) == ["calculate", PROPOSE_NOTE]
    assert tools("B") == tools("") == tools("A", {"server": THERE}) == []
    path.unlink()
    assert tools("A") == [], "there is nothing to add to"
