"""Calls of tools in a chat: consent, running, stopping, and how the model goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, MakeDesk
from support.serving import Script, Scripted

from app.chat import tool_rounds
from app.chat.answers.answer_settings import AnswerSettings, request_for
from app.chat.message_action import MessageAction
from app.chat.store.conversation import CallState, Message, MessageState, Role, ToolCall
from app.clients.engine_status import Phase
from app.clients.servers import Place, Server
from app.tools.consents import FolderConsents
from app.tools.tool import Scope, Tool, ToolResult
from engine.config import SamplingConfig
from engine.service.host import EngineHost
from engine.tool_calls.call_format import HERMES, Call


class Shed:
    """A source with a local tool "add", and "fetch", which sends its address to a site."""

    def __init__(self) -> None:
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.cancelled = threading.Event()

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool("add", "Add", "Adds.", {"type": "object"}, is_local=True),
            Tool("fetch", "Fetch", "Fetches.", {"type": "object"}),
            Tool("broken", "Broken", "Breaks.", {"type": "object"}, is_local=True),
        )

    def scope(self, name: str, arguments: Mapping[str, Any]) -> Scope:
        return Scope(f"{name}:{arguments.get('site')}", str(arguments.get("site")))

    def call(self, name: str, arguments: Mapping[str, Any], is_cancelled: Callable[[], bool]) -> ToolResult:
        self.called.append((name, dict(arguments)))
        while not self.gate.wait(0.005):
            if is_cancelled():
                self.cancelled.set()
                return ToolResult("cancelled", is_error=True)
        if name == "broken":
            raise ZeroDivisionError
        return ToolResult(f"<{name} {json.dumps(arguments)}>")


@pytest.fixture
def shed() -> Shed:
    return Shed()


@pytest.fixture
def desk(make_desk: MakeDesk, shed: Shed) -> Desk:
    made: Desk = make_desk(sources=[shed])
    made.wait_ready()
    made.controller.choices.set(tools=["add", "fetch", "broken"])
    return made


def call(*calls: tuple[str, dict[str, Any]], word: str = "call") -> str:
    return f"{word} {json.dumps(calls)}"


def states(message: Message) -> list[CallState]:
    return [one.state for one in message.calls]


def asks(desk: Desk, *calls: tuple[str, dict[str, Any]]) -> Message:
    """Send it, and wait until the user is asked."""
    desk.controller.send(call(*calls))
    desk.wait(lambda: desk.shown and CallState.ASKING in states(desk.last))
    return desk.last


def act(desk: Desk, message: Message, name: str, nth: int = 0) -> None:
    desk.controller.act(MessageAction(name, message.id, call_id=message.calls[nth].id))  # type: ignore[arg-type]


def goes_on(desk: Desk, n_messages: int) -> Message:
    desk.wait(lambda: len(desk.shown) == n_messages and desk.last.state is MessageState.COMPLETE)
    return desk.last


def test_a_local_tool_runs_without_a_question_and_the_model_reads_its_result(desk: Desk, shed: Shed) -> None:
    desk.controller.send(call(("add", {"a": 2}), ("add", {"a": 3})))
    last = goes_on(desk, 3)
    question, called, answer = desk.shown
    assert (called.text, states(called)) == ("Let me see. ", [CallState.DONE] * 2)
    assert [one.result for one in called.calls] == ['<add {"a": 2}>', '<add {"a": 3}>']
    assert (called.parent, answer.parent) == (question.id, called.id)
    assert last.text == 'It gave <add {"a": 2}><add {"a": 3}>'
    desk.wait(lambda: not desk.saves.waiting())
    assert desk.stored() == desk.shown


def test_another_tool_waits_for_consent_and_is_sent_on_refusal(desk: Desk, shed: Shed) -> None:
    message = asks(desk, ("fetch", {"site": "a.org"}))
    assert shed.called == []
    assert (message.calls[0].scope, message.calls[0].source) == ("a.org", "")
    act(desk, message, "refuse")
    assert "not allow" in goes_on(desk, 3).text
    assert shed.called == []
    assert states(desk.shown[1]) == [CallState.REFUSED]


def test_once_is_once_and_a_consent_for_the_chat_covers_its_scope_alone(desk: Desk, shed: Shed) -> None:
    act(desk, asks(desk, ("fetch", {"site": "a.org"})), "allow_once")
    goes_on(desk, 3)
    act(desk, asks(desk, ("fetch", {"site": "a.org"})), "allow_in_chat")
    goes_on(desk, 6)
    desk.controller.send(call(("fetch", {"site": "a.org", "page": 2})))
    goes_on(desk, 9)
    assert len(shed.called) == 3
    asks(desk, ("fetch", {"site": "b.org"}))
    assert len(shed.called) == 3
    desk.controller.new_chat()
    desk.controller.choices.set(tools=["fetch"])
    asks(desk, ("fetch", {"site": "a.org"}))
    assert len(shed.called) == 3, "another chat asks again"


def test_a_consent_for_a_folder_covers_its_chats_until_it_is_dropped(desk: Desk, shed: Shed) -> None:
    message = asks(desk, ("fetch", {"site": "a.org"}))
    chat = desk.controller.open_conversation
    assert chat is not None
    desk.memory.set_folders({chat: "Trips"})
    act(desk, message, "allow_in_folder")
    goes_on(desk, 3)
    assert desk.consents.of("Trips") == ("fetch:a.org",)
    desk.controller.send(call(("fetch", {"site": "a.org"})))
    goes_on(desk, 6)
    desk.controller.rounds.drop_consents(chat)
    asks(desk, ("fetch", {"site": "a.org"}))
    assert len(shed.called) == 2


def test_a_lasting_consent_lets_the_other_calls_of_the_answer_run_that_it_covers(desk: Desk, shed: Shed) -> None:
    given = [("fetch", {"site": site}) for site in ("a.org", "a.org", "b.org")]
    message = asks(desk, *given)
    assert states(message) == [CallState.ASKING] * 3
    act(desk, message, "allow_in_chat")
    desk.wait(lambda: states(desk.last) == [CallState.DONE, CallState.DONE, CallState.ASKING])
    act(desk, message, "refuse", 2)
    goes_on(desk, 3)
    assert [name["site"] for _, name in shed.called] == ["a.org", "a.org"]


@pytest.mark.expects_log("the tool broken failed")
def test_a_tool_that_fails_or_is_gone_is_told_to_the_model(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.controller.send(call(("broken", {}), ("unknown", {})))
    answer = goes_on(desk, 3)
    assert states(desk.shown[1]) == [CallState.FAILED] * 2
    assert all(name in answer.text for name in ("broken", "unknown"))
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("how", ["stop", "send", "regenerate", "close"])
def test_calls_that_are_left_are_not_run_and_the_model_does_not_go_on(desk: Desk, shed: Shed, how: str) -> None:
    shed.gate.clear()
    desk.controller.send(call(("add", {"a": 1}), ("fetch", {"site": "a.org"})))
    desk.wait(lambda: len(desk.shown) == 2 and states(desk.last) == [CallState.RUNNING, CallState.ASKING])
    message = desk.last
    if how == "stop":
        desk.controller.stop()
    elif how == "send":
        desk.controller.send("never mind")
        desk.wait(lambda: len(desk.shown) == 4 and desk.last.text == "never mind ")
    elif how == "regenerate":
        shed.gate.set()
        desk.controller.act(MessageAction("regenerate", message.id))
        desk.wait(lambda: len(desk.shown) == 2 and states(desk.last) == [CallState.DONE, CallState.ASKING])
        assert desk.last.id != message.id
        desk.controller.stop()
    if how == "close":
        desk.close()
        (kept,) = [one for one in desk.stored() if one.calls]
        assert states(kept) == [CallState.RUNNING, CallState.ASKING], "read as not run at the next start"
        return
    messages = desk.memory.messages(desk.controller.open_conversation or "") or []
    (kept,) = [one for one in messages if one.id == message.id]
    assert states(kept)[1] is CallState.NOT_RUN
    if how != "regenerate":
        assert states(kept)[0] is CallState.NOT_RUN
        desk.wait(shed.cancelled.is_set)
        desk.qtbot.wait(30)
        assert len(desk.shown) == (4 if how == "send" else 2)


def test_calls_of_a_run_that_was_killed_were_not_run(make_desk: MakeDesk, shed: Shed, tmp_path: Path) -> None:
    first = make_desk(sources=[shed])
    first.wait_ready()
    first.controller.choices.set(tools=["fetch"])
    asks(first, ("fetch", {"site": "a.org"}))
    first.close()
    desk = make_desk(sources=[shed])
    desk.wait_ready()
    desk.controller.open(desk.conversations[0].id)
    desk.wait(lambda: desk.order)
    assert states(desk.last) == [CallState.NOT_RUN]
    act(desk, desk.last, "allow_once")
    desk.qtbot.wait(30)
    assert shed.called == []


def test_a_model_that_repeats_a_call_is_ended(desk: Desk, shed: Shed) -> None:
    desk.controller.send(call(("add", {"a": 1}), word="loop"))
    desk.wait(lambda: any("repeated" in words for words, _ in desk.toasts))
    assert len(shed.called) == tool_rounds.MOST_EQUAL
    assert states(desk.last) == [CallState.NOT_RUN]


class Bell(Shed):
    def tools(self) -> tuple[Tool, ...]:
        return (Tool("ring", "Ring", "Rings.", {"type": "object", "additionalProperties": False}, is_local=True),)


def test_a_loop_of_the_starter_model_is_ended(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = list[EngineHost]()

    def made(emit: Any) -> EngineHost:
        hosts.append(EngineHost(emit, serves=False))
        return hosts[0]

    def calls(sampling: SamplingConfig) -> Scripted:
        assert hosts[0].session is not None
        tokenizer = hosts[0].session.model.tokenizer
        script = Script(tokenizer, min(tokenizer.stop_token_ids))
        script.text = HERMES.write([Call("ring", {})])
        return script.sampler(sampling)

    monkeypatch.setattr("desk.FakeEngine", made)
    monkeypatch.setattr("engine.session.chat_session.make_sampler", calls)
    bell = Bell()
    desk = make_desk(sources=[bell], model="starter-chat")
    desk.wait_ready()
    desk.controller.choices.set(tools=["ring"])
    desk.controller.send("Ring the bell.")
    desk.wait(lambda: any("repeated" in words for words, _ in desk.toasts))
    assert bell.called == [("ring", {})] * tool_rounds.MOST_EQUAL
    assert states(desk.last) == [CallState.NOT_RUN]
    assert not any(HERMES.mark in message.text for message in desk.shown)


def test_a_chat_without_tools_offers_none(desk: Desk) -> None:
    desk.controller.choices.set(tools=[])
    answer = desk.say(call(("add", {"a": 1})))
    assert answer.calls == ()
    assert [one["name"] for one in desk.controller.next_request("hi").tools] == []
    desk.controller.choices.set(tools=["add", "gone"])
    assert [one["name"] for one in desk.controller.next_request("hi").tools] == ["add"]


def test_a_long_result_leaves_room_in_the_context(desk: Desk, shed: Shed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.controller.rounds, "_context_tokens", lambda: 400)
    monkeypatch.setattr(shed, "call", lambda name, arguments, is_cancelled: ToolResult("x" * 1000))
    desk.controller.send(call(("add", {"a": 1})))
    goes_on(desk, 3)
    result = desk.shown[1].calls[0].result
    assert (result.count("x"), "700" in result) == (300, True)


def test_a_later_question_sends_calls_and_results_of_earlier_ones_and_a_server_gets_text() -> None:
    done = ToolCall("c1", "add", {"a": 1}, CallState.DONE, result="2")
    first = Message(Role.USER, "Add.")
    called = Message(Role.ASSISTANT, "<think>Hm.</think>I add.", parent=first.id, calls=(done,))
    answer = Message(Role.ASSISTANT, "It is 2.", parent=called.id)
    second = Message(Role.USER, "Thanks.", parent=answer.id)
    way = [first, called, answer, second]
    sent = request_for(way, second.id, AnswerSettings()).messages
    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert (sent[1]["content"], sent[1]["calls"]) == ("I add.", [{"id": "c1", "name": "add", "arguments": {"a": 1}}])
    assert (sent[2]["id"], sent[2]["name"], sent[2]["content"]) == ("c1", "add", "2")
    assert "reasoning" not in sent[1]
    going_on = request_for(way, called.id, AnswerSettings()).messages
    assert going_on == [sent[0], {**sent[1], "reasoning": "Hm."}, sent[2]], "the thought belongs to the turn"
    place = Place(Server("s", "Box", "http://127.0.0.1:1/v1"), "m")
    there = request_for(way, second.id, AnswerSettings(place=place)).messages
    assert [one["role"] for one in there] == ["user", "assistant", "user"]
    assert all(set(one) == {"role", "content"} for one in there)
    assert all(part in there[1]["content"] for part in ("I add.", "add", "2", "It is 2."))


def test_consents_of_folders_survive_and_a_damaged_file_asks_again(tmp_path: Path) -> None:
    path = tmp_path / "consents.json"
    consents = FolderConsents(path)
    consents.add("Trips", "web:a.org")
    consents.add("", "web:b.org")
    consents.save(consents.to_json())
    again = FolderConsents(path)
    again.read()
    assert (again.of("Trips"), again.of("")) == (("web:a.org",), ())
    for text in ("{", "[]", '{"folders": {"Trips": "web:a.org"}}', '{"folders": {"Trips": [5, null]}}'):
        path.write_text(text)
        damaged = FolderConsents(path)
        damaged.read()
        assert damaged.of("Trips") == ()
    path.write_text('{"schema_version": 99, "folders": {"Trips": ["web:a.org"]}}')
    newer = FolderConsents(path)
    newer.read()
    newer.save(newer.to_json())
    assert (newer.of("Trips"), "99" in path.read_text()) == ((), True)


def test_a_message_that_waits_is_sent_after_the_last_answer_of_the_turn(desk: Desk, shed: Shed) -> None:
    shed.gate.clear()
    desk.controller.send(call(("add", {"a": 1})))
    desk.wait(lambda: len(desk.shown) == 2 and states(desk.last) == [CallState.RUNNING])
    assert desk.chat_statuses[-1].phase is Phase.THINKING
    desk.controller.send("and now")
    desk.qtbot.wait(30)
    assert len(desk.shown) == 2
    shed.gate.set()
    desk.wait(lambda: len(desk.shown) == 5 and desk.last.text == "and now ")
    assert desk.shown[2].text.startswith("It gave")


def test_a_message_that_waits_comes_back_when_the_calls_are_stopped(desk: Desk, shed: Shed) -> None:
    shed.gate.clear()
    desk.controller.send(call(("add", {"a": 1})))
    desk.wait(lambda: len(desk.shown) == 2 and states(desk.last) == [CallState.RUNNING])
    desk.controller.send("and now")
    desk.controller.stop()
    assert desk.drafts == ["and now"]
    desk.qtbot.wait(30)
    assert len(desk.shown) == 2


def test_a_deleted_question_takes_all_answers_of_its_turn_and_undo_brings_them_back(desk: Desk) -> None:
    desk.controller.send(call(("add", {"a": 1})))
    goes_on(desk, 3)
    before = list(desk.shown)
    desk.controller.act(MessageAction("delete", before[0].id))
    assert desk.shown == []
    desk.toasts[-1][1]()
    assert desk.shown == before


def test_the_answer_after_a_call_is_given_again_from_the_same_results(desk: Desk, shed: Shed) -> None:
    desk.controller.send(call(("add", {"a": 1})))
    last = goes_on(desk, 3)
    desk.controller.act(MessageAction("regenerate", last.id))
    desk.wait(lambda: desk.last.id != last.id and desk.last.state is MessageState.COMPLETE)
    assert (desk.last.text, desk.last.parent, len(shed.called)) == (last.text, last.parent, 1)
    assert desk.versions[desk.last.id] == (2, 2)


def test_a_question_is_asked_again_if_what_it_covers_has_changed(
    desk: Desk, shed: Shed, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = asks(desk, ("fetch", {"site": "a.org"}))
    monkeypatch.setattr(shed, "scope", lambda name, arguments: Scope("fetch:evil.org", "evil.org"))
    act(desk, message, "allow_in_chat")
    assert (states(desk.last), desk.last.calls[0].scope) == ([CallState.ASKING], "evil.org")
    assert "allowed" not in desk.controller.choices.values
    assert shed.called == []


def test_a_chat_that_is_deleted_ends_its_calls_and_comes_back_without(desk: Desk, shed: Shed) -> None:
    shed.gate.clear()
    desk.controller.send(call(("add", {"a": 1})))
    desk.wait(lambda: len(desk.shown) == 2 and states(desk.last) == [CallState.RUNNING])
    desk.controller.delete(desk.controller.open_conversation or "")
    desk.wait(shed.cancelled.is_set)
    desk.toasts[-1][1]()
    desk.wait(lambda: len(desk.shown) == 2)
    assert states(desk.last) == [CallState.NOT_RUN]


def test_a_stopped_turn_stays_in_what_the_model_reads() -> None:
    first = Message(Role.USER, "Who lives there?")
    done = ToolCall("c1", "add", {"a": 1}, CallState.DONE, result="2")
    called = Message(Role.ASSISTANT, "", parent=first.id, calls=(done,))
    second = Message(Role.USER, "Use your own knowledge.", parent=called.id)
    sent = request_for([first, called, second], second.id, AnswerSettings()).messages
    assert [one["role"] for one in sent] == ["user", "assistant", "user"]
    assert all(part in sent[1]["content"] for part in ("add", "2"))
    place = Place(Server("s", "Box", "http://127.0.0.1:1/v1"), "m")
    there = request_for([first, called], called.id, AnswerSettings(place=place)).messages
    assert [one["role"] for one in there] == ["user", "assistant", "user"], "it does not end with the assistant"


@pytest.mark.parametrize("name", ["delete", "switch", "unsummarise"])
def test_a_message_that_waits_comes_back_when_an_action_ends_the_calls(desk: Desk, shed: Shed, name: Any) -> None:
    desk.say("hello")
    shed.gate.clear()
    desk.controller.send(call(("add", {"a": 1})))
    desk.wait(lambda: len(desk.shown) == 4 and states(desk.last) == [CallState.RUNNING])
    desk.controller.send("and now")
    desk.controller.act(MessageAction(name, desk.shown[0].id))
    assert desk.drafts == ["and now"]


def test_another_answer_keeps_one_with_calls_and_without_text(
    desk: Desk, shed: Shed, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.controller.send(call(("add", {"a": 1})))
    goes_on(desk, 3)
    chat, called = desk.controller.open_conversation or "", desk.shown[1]
    desk.memory.update(chat, replace(called, text=""))
    desk.controller.act(MessageAction("regenerate", called.id))
    desk.wait(lambda: len(desk.shown) == 3 and desk.shown[1].id != called.id)
    assert called.id in {one.id for one in desk.memory.messages(chat) or []}


def test_a_tool_that_was_switched_off_does_not_run(desk: Desk, shed: Shed) -> None:
    message = asks(desk, ("fetch", {"site": "a.org"}))
    desk.controller.choices.set(tools=["add"])
    act(desk, message, "allow_once")
    goes_on(desk, 3)
    assert (states(desk.shown[1]), shed.called) == ([CallState.FAILED], [])


def test_another_folder_of_the_same_name_has_no_consents(desk: Desk) -> None:
    message = asks(desk, ("fetch", {"site": "a.org"}))
    chat = desk.controller.open_conversation or ""
    desk.memory.set_folders({chat: "Trips"})
    act(desk, message, "allow_in_folder")
    desk.memory.set_folders({chat: "Journeys"})
    assert desk.consents.of("Trips") == ()


def test_nothing_begins_after_a_chat_is_deleted_or_the_window_is_closed(desk: Desk, shed: Shed) -> None:
    message = asks(desk, ("fetch", {"site": "a.org"}))
    act(desk, message, "refuse")
    desk.controller.delete(desk.controller.open_conversation or "")
    desk.qtbot.wait(30)
    desk.controller.new_chat()
    desk.controller.choices.set(tools=["add"])
    shed.gate.clear()
    desk.controller.send(call(("add", {"a": 1})))
    desk.wait(lambda: desk.shown and states(desk.last) == [CallState.RUNNING])
    desk.controller.close()
    desk.wait(shed.cancelled.is_set)
    desk.qtbot.wait(30)
    assert len(desk.shown) == 2
