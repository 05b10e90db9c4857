"""Chats and their projects: the model that is loaded, what moving and importing may send, and proposed notes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, MakeDesk

from app.chat.chat_folders import ChatFolders
from app.chat.message_action import MessageAction
from app.chat.projects.project import Project
from app.chat.store.conversation import CallState, Conversation
from app.clients.servers import Place, Server
from app.tools.propose_note import PROPOSE_NOTE

SERVER = Server("one", "Elsewhere", "https://example.org/v1", ("big",))
THERE = {"id": "one", "model": "big"}


def place_for(choices: Mapping[str, Any]) -> Place | None:
    return Place(SERVER, "big") if choices.get("server") == THERE else None


def in_project(desk: Desk, project: Project, folder: str = "Thesis") -> None:
    desk.projects.put(folder, project)
    desk.controller.choices.changed.emit()
    desk.controller.new_chat(folder)


def test_a_chat_of_a_project_is_answered_by_its_model(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    in_project(desk, Project(model="fake-as-Bamboo"))
    assert desk.controller.model == "fake", "looking at a chat loads nothing"
    desk.say("Hello")
    assert desk.controller.model == "fake-as-Bamboo"
    assert desk.last.text
    desk.controller.new_chat()
    desk.say("Hello")
    assert desk.controller.model == "fake-as-Bamboo", "other chats take what is loaded"


def test_a_model_that_the_user_chooses_in_a_chat_stays_with_it(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    in_project(desk, Project(model="fake-as-Bamboo"))
    desk.controller.keep_model("fake")
    desk.say("Hello")
    assert desk.controller.model == "fake"
    assert desk.controller.choices.values == {"model": "fake"}
    desk.controller.keep_model("fake-as-Bamboo")
    assert desk.controller.choices.values == {}
    desk.say("Hello")
    assert desk.controller.model == "fake-as-Bamboo"


def test_a_chat_can_stay_here_though_its_project_names_a_server(make_desk: MakeDesk) -> None:
    desk = make_desk(place_for=place_for)
    desk.wait_ready()
    in_project(desk, Project(server=THERE))
    assert desk.controller.place is not None
    desk.wait(lambda: desk.chat_statuses[-1].server == "Elsewhere")
    desk.controller.set_place(None)
    assert desk.controller.place is None
    assert desk.say("Hello").text.strip() == "Hello"


def test_moving_asks_only_if_something_would_be_sent_elsewhere(make_desk: MakeDesk) -> None:
    desk = make_desk(place_for=place_for)
    desk.wait_ready()
    folders = ChatFolders(desk.memory, desk.policy)
    desk.projects.put("Here", Project("Be short.", notes="/n.md", tools=("read_web_page",)))
    desk.projects.put("There", Project("Be short.", server=THERE))
    plain, sent, stays = (
        Conversation(title="plain"),
        Conversation(title="sent", choices={"server": THERE}),
        Conversation(title="stays", choices={"server": {}}),
    )
    for chat in (plain, sent, stays):
        desk.memory.add(chat)
    assert not folders.question_before_move(plain.id, "Here")
    assert not folders.question_before_move(plain.id, "")
    assert "example.org" in folders.question_before_move(plain.id, "There")
    assert "example.org" in folders.question_before_move(sent.id, "Here"), "instructions and notes would go there"
    assert "example.org" in folders.question_before_move(sent.id, "There")
    assert not folders.question_before_move(sent.id, "Another")
    assert not folders.question_before_move(stays.id, "There")


def test_an_imported_chat_is_not_sent_to_the_server_of_a_project(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk(place_for=place_for)
    desk.wait_ready()
    folders = ChatFolders(desk.memory, desk.policy)
    desk.projects.put("There", Project("x", server=THERE, tools=("calculate",)))
    chat = {"id": "c", "title": "t", "folder": "There", "created_at": 1, "updated_at": 1, "messages": [
        {"id": "m", "role": "user", "created_at": 1, "text": "hi"}]}  # fmt: skip
    path = tmp_path / "in.json"
    path.write_text(json.dumps({"format": "hearth-chats", "version": 1, "chats": [chat]}), encoding="utf-8")
    said: list[Any] = []
    folders.toast.connect(lambda words, undo: said.append(undo))
    folders.import_chats(path)
    desk.wait(lambda: said)
    found = desk.memory.conversation("c")
    assert found is not None
    assert desk.policy.place_for(desk.policy.in_force(found)) is None
    assert desk.policy.in_force(found)["tools"] == []
    said[-1]()
    assert desk.memory.conversation("c") is None
    binned: list[Any] = []
    folders.read_bin(binned.extend)
    desk.wait(lambda: desk.reads.waiting() == [])
    assert binned == [], "an undone import leaves nothing"


def test_renaming_onto_another_project_keeps_that_ones_settings(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    folders = ChatFolders(desk.memory, desk.policy)
    said: list[Any] = []
    folders.toast.connect(lambda words, undo: said.append(undo))
    one, two = Project("one"), Project("two")
    desk.projects.put("A", one)
    desk.projects.put("B", two)
    folders.rename_folder("A", "B")
    assert (desk.projects.of("A"), desk.projects.of("B")) == (None, two)
    said[-1]()
    assert (desk.projects.of("A"), desk.projects.of("B")) == (one, two)


def test_the_last_chat_leaves_and_the_project_stays(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    in_project(desk, Project("x"))
    desk.say("Hello")
    desk.controller.delete(desk.controller.open_conversation or "")
    assert desk.projects.of("Thesis") == Project("x")


@pytest.mark.parametrize("act", ["allow_in_chat", "allow_in_folder"])
def test_no_lasting_consent_covers_a_proposed_note(make_desk: MakeDesk, tmp_path: Path, act: Any) -> None:
    desk = make_desk()
    desk.wait_ready()
    path = tmp_path / "Notes.md"
    path.write_bytes(b"")
    in_project(desk, Project(notes=str(path), proposes=True))
    desk.controller.send(f'call [["{PROPOSE_NOTE}", {{"note": "a"}}], ["{PROPOSE_NOTE}", {{"note": "b"}}]]')
    desk.wait(lambda: desk.shown and [one.state for one in desk.last.calls] == [CallState.ASKING] * 2)
    first, second = desk.last.calls
    desk.controller.act(MessageAction(act, desk.last.id, call_id=first.id))
    assert [one.state for one in desk.last.calls] == [CallState.DONE, CallState.ASKING]
    assert path.read_bytes() == b"- a\n"
    assert not desk.controller.has_tool_consents
    desk.controller.act(MessageAction("refuse", desk.last.id, call_id=second.id))
    assert path.read_bytes() == b"- a\n"


def test_a_note_is_not_written_to_another_file_than_the_one_that_was_shown(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    shown, other = tmp_path / "shown.md", tmp_path / "other.md"
    for path in (shown, other):
        path.write_bytes(b"")
    in_project(desk, Project(notes=str(shown), proposes=True))
    desk.controller.send(f'call [["{PROPOSE_NOTE}", {{"note": "a"}}]]')
    desk.wait(lambda: desk.shown and [one.state for one in desk.last.calls] == [CallState.ASKING])
    desk.projects.put("Thesis", Project(notes=str(other), proposes=True))
    (call,) = desk.last.calls
    desk.controller.act(MessageAction("allow_once", desk.last.id, call_id=call.id))
    assert [(one.state, one.scope) for one in desk.last.calls] == [(CallState.ASKING, str(other))]
    assert shown.read_bytes() == other.read_bytes() == b""


def test_a_note_that_cannot_be_written_fails_and_says_why(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    path = tmp_path / "Notes.md"
    path.write_bytes(b"")
    in_project(desk, Project(notes=str(path), proposes=True))
    desk.controller.send(f'call [["{PROPOSE_NOTE}", {{"note": "a"}}]]')
    desk.wait(lambda: desk.shown and [one.state for one in desk.last.calls] == [CallState.ASKING])
    path.write_bytes(b"\xff\xff")
    message, (call,) = desk.last, desk.last.calls
    desk.controller.act(MessageAction("allow_once", message.id, call_id=call.id))
    assert [one.state for one in desk.messages[message.id].calls] == [CallState.FAILED]
    assert "Notes.md" in desk.messages[message.id].calls[0].result
    assert path.read_bytes() == b"\xff\xff"


def test_a_chat_stores_its_folder_and_nothing_of_the_project(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    in_project(desk, Project("Be short.", "editor", tools=("calculate",)))
    desk.say("Hello")
    found = desk.memory.conversation(desk.controller.open_conversation or "")
    assert found is not None
    assert (found.folder, found.choices) == ("Thesis", {})
