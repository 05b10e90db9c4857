"""The same prompt both ways: one after the other, stopped, failed; and what the two come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, MakeDesk
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.chat.answers.comparison import LONGEST, Comparison, Side, SideState, differences, verdict
from app.chat.store.conversation import MessageState
from app.clients.answer_request import AnswerRequest
from app.ui.chat.compare_dialog import PromptField
from engine.service.protocol import Generate, Request


def compare(desk: Desk, words: str, **sampling: Any) -> Comparison:
    request = AnswerRequest([{"role": "user", "content": words}], sampling)
    out = Comparison(desk.engine, request, "exact", parent=desk.engine)
    out.start()
    return out


def asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[Generate]:
    requests: list[Generate] = []
    submit = desk.worker.submit

    def recorded(request: Request) -> None:
        if isinstance(request, Generate):
            requests.append(request)
        submit(request)

    monkeypatch.setattr(desk.worker, "submit", recorded)
    return requests


def test_both_ways_are_asked_one_after_the_other_with_one_seed(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk()
    desk.wait_ready()
    requests = asked(desk, monkeypatch)
    comparison = compare(desk, "one two three", temperature=0.9)
    desk.wait(lambda: not comparison.is_running)
    assert [side.state for side in comparison.sides] == [SideState.DONE, SideState.DONE]
    assert [side.text.strip() for side in comparison.sides] == ["one two three"] * 2
    assert [request.mode for request in requests] == [None, "dense"]
    assert all(request.fresh for request in requests), "neither reads what the other computed"
    first, second = (request.sampling for request in requests)
    assert first == second
    assert first["seed"] is not None
    assert first["max_tokens"] == LONGEST
    assert desk.stored() == [], "nothing of it is kept"
    assert desk.order == []


def test_what_is_set_counts_for_it_too(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    comparison = compare(desk, "hello", seed=0, max_tokens=5, stop=["x"])
    assert comparison.request.sampling == {"seed": 0, "max_tokens": 5, "stop": ["x"]}
    desk.wait(lambda: not comparison.is_running)


def test_it_waits_for_the_answer_that_runs_and_lets_one_in_between(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    desk.controller.send(f"words 10 until {tmp_path / 'first'}")
    desk.wait(lambda: desk.engine.status.answering)
    comparison = compare(desk, f"words 10 until {tmp_path / 'second'}")
    assert comparison.sides[0].state is SideState.WAITING
    assert comparison.status_text.startswith("Waiting")
    (tmp_path / "first").touch()
    desk.wait(lambda: comparison.sides[0].state is SideState.RUNNING)
    assert desk.last.state is MessageState.COMPLETE
    assert comparison.status_text.endswith("Exact, 1 of 2")
    desk.controller.send("and me")
    (tmp_path / "second").touch()
    desk.wait(lambda: not comparison.is_running)
    desk.wait(lambda: desk.last.state is MessageState.COMPLETE)
    assert desk.last.text.strip() == "and me"
    assert [side.state for side in comparison.sides] == [SideState.DONE] * 2
    assert "me" not in comparison.sides[0].text + comparison.sides[1].text


def test_stopped_it_keeps_what_is_written_and_the_engine_is_free(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    comparison = compare(desk, "words 100000 pace 0.01")
    desk.wait(lambda: len(comparison.sides[0].text) > 20)
    comparison.stop()
    assert not comparison.is_running
    written = comparison.sides[0].text
    assert [side.state for side in comparison.sides] == [SideState.STOPPED] * 2
    desk.wait(lambda: desk.engine.is_ready)
    assert comparison.sides[0].text == written
    desk.controller.send("still there")
    desk.wait(lambda: desk.last.text.strip() == "still there")


@pytest.mark.parametrize("words", ["fail after 2", "bug"])
def test_a_failure_is_told_in_words_and_no_banner_is_left(make_desk: MakeDesk, words: str) -> None:
    desk = make_desk()
    desk.wait_ready()
    comparison = compare(desk, words)
    desk.wait(lambda: not comparison.is_running)
    assert comparison.sides[1].state is SideState.FAILED
    assert comparison.problem.endswith(".")
    assert desk.problems == []


def test_an_engine_that_dies_ends_it(make_desk: MakeDesk) -> None:
    desk = make_desk(location="process")
    desk.wait_ready()
    comparison = compare(desk, "crash after 2")
    desk.wait(lambda: not comparison.is_running)
    assert comparison.problem.startswith("The engine stopped")
    desk.wait(lambda: desk.engine.is_ready)
    assert not comparison.is_running, "it does not begin again by itself"


def test_another_model_ends_it(make_desk: MakeDesk, tmp_path: Path) -> None:
    desk = make_desk()
    desk.wait_ready()
    comparison = compare(desk, f"words 20 until {tmp_path / 'go_on'}")
    desk.controller.use_model("fake-as-Other")
    (tmp_path / "go_on").touch()
    desk.wait(lambda: not comparison.is_running)
    assert "changed" in comparison.problem


def test_words_that_differ_are_found() -> None:
    left, right = "The cat sat on the mat.", "The cat lay on the old mat."
    found = differences(left, right)
    assert [left[a:b] for a, b in found.left] == ["sat"]
    assert [right[a:b] for a, b in found.right] == ["lay", "old"]
    assert found.same_words == 2
    assert differences(left, f" {left}\n").are_none, "white space says nothing"
    assert differences("", "new words").right == ((0, 9),)
    long = "word " * 50_000
    assert differences(long, long).are_none


def test_what_two_sides_come_to(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    comparison = compare(desk, "one two three")
    desk.wait(lambda: not comparison.is_running)
    first, second = comparison.sides
    assert [numbers_in(one) for one in verdict(first, second)] == [[], []], "nothing differs"
    assert first.result is not None
    fast = replace(first, title="Exact", text="one two four", result=replace(first.result, decode_tok_s=230.0))
    dense = replace(second, title="Dense")
    same, rate = verdict(fast, dense)
    assert (numbers_in(same), numbers_in(rate)) == (["2"], ["2.3"])
    assert rate.startswith("Exact"), "the faster one"
    assert verdict(Side(None, "Exact"), Side("dense", "Dense")) == []


@pytest.mark.gui
def test_enter_compares_and_shift_enter_breaks_the_line(qtbot: QtBot) -> None:
    field = PromptField("a")
    pressed: list[int] = []
    qtbot.addWidget(field)
    field.entered.connect(lambda: pressed.append(1))
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert (field.toPlainText(), pressed) == ("a", [1])
    QTest.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert (field.toPlainText(), pressed) == ("\na", [1])
