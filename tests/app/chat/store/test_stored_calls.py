"""Calls of tools in the file of chats and in exported files."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.chat.store.chat_files import read_json, write_json, write_markdown
from app.chat.store.conversation import CallState, Conversation, Message, Role, ToolCall, WholeChat
from app.chat.store.store import Store
from app.errors import ChatFileError, StoreError

CALL = ToolCall("c1", "read_web_page", {"url": "https://a.org", "n": [1, {"deep": None}]}, CallState.DONE, "", "a.org",
                "A page with ``` in it", 0.25)  # fmt: skip


def chat(*calls: ToolCall) -> WholeChat:
    conversation = Conversation(title="t", choices={"tools": ["a"], "allowed": ["web:a.org"], "mode": "exact"})
    question = Message(Role.USER, "Read it.")
    answer = Message(Role.ASSISTANT, "I read.", parent=question.id, calls=calls)
    return WholeChat(conversation, (question, answer))


def test_calls_are_stored_and_updated(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "chats.db")
    whole = chat(replace(CALL, state=CallState.ASKING, result=""))
    store.save_conversation(whole.conversation)
    for message in whole.messages:
        store.append(whole.conversation.id, message)
    assert store.messages(whole.conversation.id) == list(whole.messages)
    done = replace(whole.messages[1], calls=(CALL,))
    assert store.update_message(done)
    store.close()
    with contextlib.closing(Store.open(tmp_path / "chats.db")) as store:
        assert store.messages(whole.conversation.id)[1] == done


def test_an_exported_file_has_calls_and_none_of_the_consents(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    running = replace(CALL, id="c2", state=CallState.RUNNING, result="", seconds=None)
    write_json(path, [chat(CALL, running)])
    (back,) = read_json(path)
    assert back.messages[1].calls == (CALL, replace(running, state=CallState.NOT_RUN))
    assert back.conversation.choices == {"mode": "exact"}
    values = json.loads(path.read_text())
    values["chats"][0]["choices"] |= {"tools": ["a"], "allowed": ["web:a.org"]}
    path.write_text(json.dumps(values))
    assert read_json(path)[0].conversation.choices == {"mode": "exact"}, "a file switches no tool on"


def test_markdown_has_arguments_and_result_in_fences_that_hold(tmp_path: Path) -> None:
    path = tmp_path / "chat.md"
    write_markdown(path, chat(CALL))
    text = path.read_text()
    assert "read_web_page" in text
    assert '"url": "https://a.org"' in text
    assert "````\nA page with ``` in it\n````" in text


@pytest.mark.parametrize("change", [
    {"state": "allowed"}, {"state": 5}, {"arguments": "x"}, {"arguments": None}, {"id": 5}, {"result": None},
    {"seconds": "x"}, {"seconds": True},
])  # fmt: skip
def test_a_damaged_call_in_a_file_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "chats.json"
    write_json(path, [chat(CALL)])
    values = json.loads(path.read_text())
    values["chats"][0]["messages"][1]["calls"][0] |= change
    path.write_text(json.dumps(values))
    with pytest.raises(ChatFileError):
        read_json(path)


@pytest.mark.parametrize("calls", [
    "{", "5", "[5]", '[{"id": "c1"}]', '[{"id": "a", "tool": "b", "arguments": 5, "state": "done"}]',
])  # fmt: skip
def test_a_damaged_call_is_left_out_when_a_file_is_rescued(tmp_path: Path, calls: str) -> None:
    store = Store.open(tmp_path / "chats.db")
    whole = chat(CALL)
    store.save_conversation(whole.conversation)
    for message in whole.messages:
        store.append(whole.conversation.id, message)
    store._db.execute("UPDATE message SET calls = ? WHERE id = ?", (calls, whole.messages[1].id))
    with pytest.raises(StoreError):
        store.messages(whole.conversation.id)
    store.repair()
    assert store.messages(whole.conversation.id)[1] == replace(whole.messages[1], calls=())
    store.close()
