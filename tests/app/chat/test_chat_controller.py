"""The controller with a real store and a fake for the engine, but without a window."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk import MakeDesk
from support.systems import ON_WINDOWS, kill

from app.chat.answers.answer_settings import history
from app.chat.store.conversation import Message, MessageState, Role
from app.chat.store.store import Store
from app.clients.engine_status import Phase
from app.errors import StoreError
from app.settings import AppSettings


@pytest.mark.parametrize("location", ["process", "in-thread"])
def test_a_message_is_answered_and_both_are_stored(make_desk: MakeDesk, location: str) -> None:
    desk = make_desk(location=location)
    desk.wait_ready()
    answer = desk.say("tell me a story")
    assert answer.text == "tell me a story "
    assert answer.state is MessageState.COMPLETE
    assert answer.stats is not None
    assert answer.stats["decode_tok_s"] == 100.0
    assert "text" not in answer.stats
    assert desk.opened is not None
    assert desk.opened.title == "tell me a story"
    desk.close()
    assert desk.stored() == desk.shown


def test_thinking_is_said_at_once_and_the_states_follow_in_order(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send("words 5 pace 0.01")
    assert desk.chat_statuses[-1].phase is Phase.THINKING
    assert desk.chat_statuses[-1].answering
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    phases = [status.phase for status in desk.statuses]
    seen = [phase for i, phase in enumerate(phases) if i == 0 or phases[i - 1] is not phase]
    assert seen == [Phase.LOADING, Phase.READY, Phase.THINKING, Phase.READING, Phase.WRITING, Phase.READY]
    assert desk.statuses[-1].model == "Fake"
    assert desk.statuses[-1].device == "CPU, 1 thread"
    assert desk.statuses[-1].context_total == 512


@pytest.mark.parametrize("location", ["process", "in-thread"])
def test_stop_keeps_what_is_written(make_desk: MakeDesk, location: str) -> None:
    desk = make_desk(location=location)
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.01")
    desk.wait(lambda: "word2" in desk.last.text)
    desk.controller.stop()
    assert desk.chat_statuses[-1].phase is Phase.STOPPING
    desk.wait(lambda: desk.last.state is MessageState.CANCELLED)
    assert desk.last.text.startswith("word0 word1 word2 ")
    desk.close()
    assert desk.stored()[-1] == desk.last


def test_a_message_typed_while_loading_is_answered_when_the_model_is_there(make_desk: MakeDesk) -> None:
    desk = make_desk(model="fake-slow")
    desk.controller.send("are you there")
    assert desk.chat_statuses[-1].answering
    assert desk.chat_statuses[-1].phase in {Phase.STARTING, Phase.LOADING}
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert desk.last.text == "are you there "


def test_stop_works_while_the_model_is_loading(make_desk: MakeDesk) -> None:
    desk = make_desk(model="fake-slow")
    desk.controller.send("are you there")
    desk.controller.stop()
    assert desk.last.state is MessageState.CANCELLED
    assert not desk.chat_statuses[-1].answering
    desk.wait_ready()
    assert desk.say("and now").text == "and now "


def test_the_question_is_in_the_file_before_the_engine_is_asked(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    order: list[str] = []
    ask, append = desk.engine.ask, Store.append

    class Watched(Store):
        def append(self, conversation_id: str, message: Message) -> None:
            append(self, conversation_id, message)
            order.append(f"stored {message.role}")

    assert desk.memory._store is not None
    desk.memory._store.__class__ = Watched
    desk.engine.ask = lambda *a: (order.append("asked"), ask(*a))[1]  # type: ignore[method-assign,assignment,func-returns-value]
    desk.say("hello")
    assert order.index("stored user") < order.index("asked")


def test_an_answer_goes_on_into_its_own_chat(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send(f"words 300 until {tmp_path / 'go_on'}")
    first = desk.opened
    assert first is not None
    desk.wait(lambda: "word3 " in desk.last.text)
    desk.controller.new_chat()
    assert desk.order == []
    assert desk.chat_statuses[-1].phase is Phase.READY, "the open chat can be written to"
    assert desk.statuses[-1].answering
    desk.controller.send("meanwhile")
    assert desk.chat_statuses[-1].queued
    desk.controller.open(first.id)
    assert "word3 " in desk.last.text, "it shows what came while nobody looked"
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert desk.last.text.endswith("word299 ")
    other = next(c for c in desk.conversations if c.id != first.id)
    desk.controller.open(other.id)
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert desk.last.text == "meanwhile "


def test_engine_killed_in_mid_answer_keeps_every_word_and_answers_again(make_desk: MakeDesk) -> None:
    desk = make_desk(location="process")
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.005")
    desk.wait(lambda: "word5 " in desk.last.text)
    kill(desk.pid)
    desk.wait(lambda: desk.last.state is MessageState.FAILED)
    kept = desk.last.text
    assert kept.startswith("word0 word1 ")
    assert desk.problem is not None
    assert desk.problem.remedy_action == "send-again"
    assert ("exit code 15" if ON_WINDOWS else "SIGKILL") in desk.problem.details
    assert desk.statuses[-1].phase is Phase.RESTARTING
    desk.wait_ready()
    desk.controller.remedy("send-again")
    assert desk.problem is None
    desk.wait(lambda: "word5 " in desk.last.text and desk.last.state is MessageState.WRITING)
    desk.controller.stop()
    desk.wait(lambda: desk.last.state is MessageState.CANCELLED)
    desk.close()
    assert [m.state for m in desk.stored()] == [MessageState.COMPLETE, MessageState.FAILED, MessageState.CANCELLED]
    assert desk.stored()[1].text == kept


def test_an_engine_that_keeps_dying_is_given_up_and_started_again_on_request(make_desk: MakeDesk) -> None:
    desk = make_desk(location="process", model="fake-crash")
    desk.wait(lambda: desk.statuses and desk.statuses[-1].phase is Phase.FAILED)
    assert desk.problem is not None
    assert desk.problem.remedy_action == "restart-engine"
    desk.controller.switch.wanted = "fake"
    desk.controller.remedy("restart-engine")
    desk.wait_ready()
    assert desk.problem is None
    assert desk.say("alive").text == "alive "


def test_an_engine_error_ends_the_answer_with_a_banner(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    answer = desk.say("fail after 2")
    assert answer.state is MessageState.FAILED
    assert answer.text == "word0 word1 "
    assert desk.problem is not None
    assert "RAM" in desk.problem.sentence
    assert desk.say("next").state is MessageState.COMPLETE
    assert desk.problem is None


def test_a_failed_answers_banner_stays_with_its_chat_and_acts_there(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("fail after 2")
    assert desk.problem is not None
    failed = desk.controller.open_conversation
    assert failed is not None
    desk.controller.new_chat()
    assert desk.problem is None
    desk.say("another chat")
    assert desk.problem is None
    desk.controller.open(failed)
    assert desk.problem is not None, "it was neither solved nor closed"
    before = list(desk.order)
    desk.controller.remedy("send-again")
    assert desk.problem is None
    desk.wait(lambda: desk.order != before and desk.last.state is MessageState.FAILED)
    assert desk.controller.open_conversation == failed
    desk.controller.delete(failed)
    assert desk.problem is None


def test_an_engine_that_dies_in_another_chats_answer_is_told_there(make_desk: MakeDesk) -> None:
    desk = make_desk(location="process")
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.005")
    desk.wait(lambda: "word5 " in desk.last.text)
    cut_short = desk.controller.open_conversation
    assert cut_short is not None
    desk.controller.new_chat()
    kill(desk.pid)
    desk.wait(lambda: desk.statuses[-1].phase is Phase.RESTARTING)
    assert desk.problem is None
    desk.controller.open(cut_short)
    assert desk.problem is not None
    assert desk.problem.remedy_action == "send-again"


def test_a_fault_of_ours_is_told_as_one_and_sent_again_without_the_empty_attempt(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("bug")
    assert desk.problem is not None
    assert "Traceback" in desk.problem.details
    empty = desk.last.id
    desk.controller.remedy("send-again")
    desk.wait(lambda: desk.last.id != empty and desk.last.state is MessageState.FAILED)
    assert [m.role for m in desk.shown] == [Role.USER, Role.ASSISTANT]
    desk.close()
    assert [m.id for m in desk.stored()] == desk.order


def test_a_model_that_does_not_load_is_said_and_loaded_again_on_request(make_desk: MakeDesk) -> None:
    desk = make_desk(model="fake-missing")
    desk.controller.send("are you there")
    desk.wait(lambda: desk.problem)
    assert desk.problem is not None
    assert desk.statuses[-1].phase is Phase.FAILED
    assert "retry-load" in (desk.problem.remedy_action, (desk.problem.second or ("", ""))[1])
    desk.controller.switch.wanted = "fake"
    desk.controller.remedy("retry-load")
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert desk.last.text == "are you there "
    assert desk.problem is None


def test_a_model_in_a_folder_is_called_by_its_own_name(make_desk: MakeDesk) -> None:
    desk = make_desk(model="/models/of mine/fake-missing")
    desk.wait(lambda: desk.problem)
    assert desk.problem is not None
    assert desk.problem.title.split()[-1] == "fake-missing"


def test_what_the_engine_left_out_is_marked(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("drop 2")
    assert desk.dropped == [(desk.last.id, 2)]


def test_the_engine_sees_instructions_and_complete_turns(make_desk: MakeDesk) -> None:
    desk = make_desk(settings=AppSettings(system_prompt="Be brief."))
    desk.wait_ready()
    desk.say("one")
    desk.say("bug")
    desk.say("fail after 1")
    seen = json.loads(desk.say("history").text)
    assert [(m["role"], m["content"].strip()) for m in seen] == [
        ("system", "Be brief."), ("user", "one"), ("assistant", "one"),
        ("user", "fail after 1"), ("assistant", "word0"), ("user", "history"),
    ]  # fmt: skip


def test_of_several_attempts_at_an_answer_the_last_counts() -> None:
    first = Message(Role.USER, "q1")
    second = Message(Role.USER, "q2")
    said = [first, Message(Role.ASSISTANT, "a1"), Message(Role.ASSISTANT, "a2"), second]
    assert [m["content"] for m in history(said, second.id, "")] == ["q1", "a2", "q2"]
    assert [m["content"] for m in history(said, first.id, "")] == ["q1"]


def test_delete_stops_the_answer_and_undo_brings_everything_back(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.005")
    desk.wait(lambda: "word2 " in desk.last.text)
    assert desk.opened is not None
    chat = desk.opened.id
    desk.controller.delete(chat)
    assert desk.opened is None
    assert desk.conversations == []
    desk.wait_ready()
    desk.toasts[-1][1]()  # undo
    assert desk.opened is not None
    assert desk.opened.id == chat
    assert desk.last.state is MessageState.CANCELLED
    assert desk.last.text.startswith("word0 ")
    desk.close()
    assert desk.stored() == desk.shown


def test_a_chat_deleted_for_good_leaves_nothing_in_the_file(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("secret")
    assert desk.opened is not None
    chat = desk.opened.id
    desk.controller.delete(chat)
    desk.memory.erase([chat])
    desk.close()
    with sqlite3.connect(tmp_path / "chats.db") as db:
        assert db.execute("SELECT count(*) FROM message").fetchone() == (0,)
    db.close()


def test_rename_search_and_order_of_the_list(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("the grey cat sleeps")
    assert desk.opened is not None
    first = desk.opened.id
    desk.controller.new_chat()
    desk.say("a red fox runs")
    assert [c.title for c in desk.conversations] == ["a red fox runs", "the grey cat sleeps"]
    desk.controller.rename(first, "  Cats   and \n more ")
    assert desk.conversations[1].title == "Cats and more"
    desk.controller.search("GREY")
    desk.wait(lambda: desk.hits)
    text, hits = desk.hits[-1]
    assert text == "GREY"
    assert [hit.conversation.id for hit in hits] == [first]
    desk.controller.search("")
    assert desk.hits[-1] == ("", None)
    desk.controller.open(first)
    desk.say("more about it")
    assert desk.conversations[0].id == first


def test_the_last_chat_is_opened_again(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("remember me")
    shown, chat = desk.shown, desk.opened
    assert chat is not None
    desk.close()
    again = make_desk(settings=AppSettings(last_conversation=chat.id))
    again.wait(lambda: again.opened)
    assert again.shown == shown


def test_after_a_kill_the_chat_that_was_being_answered_is_opened(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("first")
    first = desk.opened
    desk.controller.new_chat()
    desk.say("second")
    second = desk.opened
    assert first is not None
    assert second is not None
    desk.close()
    store, _ = Store.rescue(desk.path)
    store.append(second.id, Message(Role.ASSISTANT, "half an", state=MessageState.WRITING))
    store.close()
    again = make_desk(settings=AppSettings(last_conversation=first.id))
    again.wait(lambda: again.opened)
    assert again.opened is not None
    assert again.opened.id == second.id


def test_what_is_typed_before_the_chats_are_open_stays_in_the_new_chat(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.say("remember me")
    chat = desk.opened
    assert chat is not None
    desk.memory.set_draft("", "of the last time")
    desk.close()
    gate, rescue = threading.Event(), Store.rescue
    monkeypatch.setattr(Store, "rescue", lambda path: (gate.wait(60), rescue(path))[1])
    again = make_desk(settings=AppSettings(last_conversation=chat.id))
    again.memory.set_draft("", "typed at once")
    gate.set()
    again.wait(lambda: again.is_open)
    again.qtbot.wait(50)
    assert again.opened is None
    assert again.memory.draft("") == "of the last time\ntyped at once"


def test_closing_in_mid_answer_saves_every_word(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.001")
    desk.wait(lambda: "word20 " in desk.last.text)
    desk.close()
    assert desk.stored()[-1].text == desk.last.text
    assert desk.stored()[-1].state is MessageState.INTERRUPTED


def test_a_running_answer_reaches_the_file_while_it_runs(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.005")
    desk.wait(lambda: "word5 " in "".join(m.text for m in desk.stored()))
    assert desk.stored()[-1].state is MessageState.WRITING
    desk.controller.stop()


class FullDisk(Store):
    """Refuses every write while `full` is set."""

    full = False

    def _refuse(self) -> None:
        if type(self).full:
            raise StoreError("full", "database or disk is full", self.path)

    def append(self, conversation_id: str, message: Message) -> None:
        self._refuse()
        super().append(conversation_id, message)

    def update_message(self, message: Message) -> bool:
        self._refuse()
        return super().update_message(message)


@pytest.fixture
def full_disk() -> Iterator[type[FullDisk]]:
    yield FullDisk
    FullDisk.full = False


def test_a_full_disk_loses_nothing_and_stops_nobody(make_desk: MakeDesk, full_disk: type[FullDisk]) -> None:
    desk = make_desk(store=full_disk)
    desk.wait_ready()
    desk.say("before")
    full_disk.full = True
    assert desk.say("words 200 pace 0.005").state is MessageState.COMPLETE
    assert desk.problem is not None
    assert desk.problem.remedy_action == "retry-save"
    desk.controller.new_chat()
    desk.say("another chat")
    assert desk.saves.waiting().count("save what is written") <= 2
    full_disk.full = False
    desk.controller.remedy("retry-save")
    desk.wait(lambda: desk.problem is None)
    desk.close()
    assert [m.text for m in desk.stored()][0::2] == ["before", "words 200 pace 0.005", "another chat"]
    assert desk.stored()[3].text.endswith("word199 ")


def test_a_damaged_file_is_kept_aside_and_said(make_desk: MakeDesk, tmp_path: Path) -> None:
    (tmp_path / "chats.db").write_bytes(b"this is no database" * 1000)
    desk = make_desk()
    desk.wait_ready()
    desk.wait(lambda: desk.problem)
    assert desk.say("still works").text == "still works "
    assert list(tmp_path.glob("chats-damaged-*"))
    desk.close()
    assert desk.stored() == desk.shown


def test_chats_that_live_in_memory_move_to_the_disk_when_it_takes_them(make_desk: MakeDesk, tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("a file where a folder should be")
    desk = make_desk(folder=blocked)
    desk.wait_ready()
    desk.wait(lambda: desk.problem)
    assert desk.problem is not None
    assert desk.problem.remedy_action == "reopen-chats"
    desk.say("keep this")
    desk.controller.remedy("reopen-chats")
    desk.wait(lambda: len(desk.problems) >= 2)
    assert desk.problem is not None, "it still cannot be saved, and that is still said"
    blocked.unlink()
    blocked.mkdir()
    desk.controller.remedy("reopen-chats")
    desk.wait(lambda: desk.problem is None)
    desk.close()
    assert desk.stored() == desk.shown


def test_sampling_counts_from_the_next_answer_and_threads_load_the_model_again(
    make_desk: MakeDesk, tmp_path: Path
) -> None:
    desk = make_desk()
    desk.wait_ready()
    asked: list[Any] = []
    ask = desk.engine.ask
    desk.engine.ask = lambda r: (asked.append(r), ask(r))[1]  # type: ignore[method-assign,assignment,func-returns-value]
    desk.controller.settings_changed(AppSettings(temperature=0.0, mode="dense"))
    desk.say("hello")
    assert (asked[-1].sampling, asked[-1].mode) == ({"temperature": 0.0}, "dense")
    assert [s.phase for s in desk.statuses].count(Phase.LOADING) >= 1
    desk.controller.send(f"words 20 until {tmp_path / 'go_on'}")
    loads: list[Any] = []
    load = desk.engine.load
    desk.engine.load = lambda *a: (loads.append(a[1]["threads"]), load(*a))[1]  # type: ignore[method-assign,assignment,func-returns-value]
    for threads in (1, 12, 1, 3):  # typed, and corrected
        desk.controller.settings_changed(AppSettings(threads=threads))
    (tmp_path / "go_on").touch()
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert desk.last.text.endswith("word19 "), "the answer that runs is not cut short"
    desk.wait(lambda: desk.statuses[-1].device == "CPU, 3 threads")
    assert loads == [3]


@pytest.mark.parametrize(("model", "sent"), [("fake", None), ("fake-predictors", "sparse")])
def test_sparse_is_asked_of_models_with_predictors_and_said_of_others(
    make_desk: MakeDesk, model: str, sent: str | None
) -> None:
    desk = make_desk(model=model)
    desk.wait_ready()
    asked: list[Any] = []
    ask = desk.engine.ask
    desk.engine.ask = lambda r: (asked.append(r), ask(r))[1]  # type: ignore[method-assign,assignment,func-returns-value]
    desk.controller.settings_changed(AppSettings(mode="sparse"))
    words = [("Fake has no predictors, so its neurons are chosen automatically", "info")] if sent is None else []
    assert desk.toasts == words
    desk.say("hello")
    assert asked[-1].mode == sent
    assert desk.last.state is MessageState.COMPLETE
    desk.controller.settings_changed(AppSettings(mode="exact"))
    desk.say("hello")
    assert asked[-1].mode == "exact"
    assert desk.toasts == words


def test_the_choice_of_sparse_is_said_again_when_such_a_model_is_loaded(make_desk: MakeDesk) -> None:
    desk = make_desk(settings=AppSettings(mode="sparse"))
    desk.wait_ready()
    desk.wait(lambda: len(desk.toasts) == 1)
    assert desk.toasts[0][0].startswith("Fake ")


def test_the_engine_moves_into_a_process_when_the_setting_says_so(make_desk: MakeDesk) -> None:
    desk = make_desk(settings=AppSettings(engine_location="in-thread"))
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.005")
    desk.wait(lambda: "word2 " in desk.last.text)
    desk.controller.settings_changed(AppSettings(engine_location="process"))
    assert desk.last.state is MessageState.CANCELLED
    desk.wait_ready()
    assert desk.pid not in (0, os.getpid())
    assert desk.say("from there").text == "from there "
