"""The first title of a chat: from its words, or from the model where that is cheap; a person's own always stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from desk import Desk, MakeDesk

from app.chat.chat_titles import MOST_TOKENS, REQUEST, ChatTitles, tidied, title_of
from app.chat.store.conversation import Message, MessageState, Role


def exchange(question: str, answer: str = "An answer.") -> list[Message]:
    return [Message(Role.USER, question), Message(Role.ASSISTANT, answer)]


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("How do I sort nearly sorted data?", "How do I sort nearly sorted data?"),
        ("Hi, could you please tell me how herons nest?", "How herons nest"),
        ("Hello! Can you help me with my tax return", "My tax return"),
        ("I'd like to know what a monad is", "What a monad is"),
        ("please translate this into French:\nGood morning", "Translate this into French"),
        ("# Draft of a letter\n\nDear sir", "Draft of a letter"),
        ("```python\nprint(1)\n```\nWhat is this?", "What is this?"),
        ("湿度センサーのメモを書いて", "湿度センサーのメモを書いて"),
        ("Highland cows are nice", "Highland cows are nice"),
        ("Hi there! How do herons nest?", "How do herons nest"),
        ("hello there", "hello there"),
        ("", ""),
    ],
)
def test_courtesy_is_left_out_of_a_title(question: str, title: str) -> None:
    assert title_of(exchange(question)).rstrip(":") == title


def test_a_mere_greeting_takes_the_answers_heading() -> None:
    assert title_of(exchange("Hello!", "# A short welcome\n\nHow are you?")) == "A short welcome"
    assert title_of(exchange("Hello!", "How are you?")) == "Hello!"


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Sorting nearly sorted data", "Sorting nearly sorted data"),
        ('Title: "Nearly Sorted Lists."\n', "Nearly Sorted Lists"),
        ("**Sorting lists**\nBecause you asked", "Sorting lists"),
        ("", ""),
        ("<think> The user wants a title", ""),
        ("The capital of Peru is Lima", ""),  # nothing of it was said
        ("Here is a title for this chat about how to sort lists that are nearly sorted already", ""),
        ("I", ""),
    ],
)
def test_a_title_of_the_model_counts_only_if_it_is_one(said: str, title: str) -> None:
    told = exchange("How do I sort a nearly sorted list?", "An insertion sort suits data and lists like that.")
    assert tidied(said, told) == title


def test_a_title_in_a_script_without_spaces_is_held_against_pairs_of_letters() -> None:
    told = exchange("湿度センサーの校正方法を教えて", "センサーを既知の湿度に置きます。")
    assert tidied("湿度センサーの校正", told) == "湿度センサーの校正"
    assert tidied("今日の天気予報", told) == ""


# --- beside the engine


class Aside:
    """What the engine was asked beside the answers, and the answer to it."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Any, Any]] = []
        monkeypatch.setattr(desk.engine, "ask_aside", lambda request, then: self.asked.append((request, then)))
        self.titles = ChatTitles(desk.engine, desk.memory, desk.controller)
        self.titles._timer.setInterval(10)
        self.desk = desk

    def fast(self, chat_id: str) -> None:
        """The answer tells of a machine on which a title costs next to nothing."""
        self.titles._parameters = 7_000_000_000
        answer = self.desk.memory.branch_of(chat_id)[-1]  # type: ignore[index]
        stats = {"prefill_tok_s": 500.0, "decode_tok_s": 40.0, "context_used": 100, "context_total": 4096}
        self.desk.memory.update(chat_id, replace(answer, stats=stats, state=MessageState.COMPLETE))
        self.titles._answered(chat_id)


def test_the_model_is_asked_with_the_chat_before_it_and_its_title_is_taken(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk()
    desk.wait_ready()
    aside = Aside(desk, monkeypatch)
    desk.say("could you explain heron nests to me")
    chat = desk.conversations[0]
    assert chat.title == "Explain heron nests to me"
    assert aside.asked == [], "nothing is known of what it would cost"
    desk.controller.rename(chat.id, "could you explain heron nests to me")
    aside.fast(chat.id)
    desk.wait(lambda: aside.asked)
    request, then = aside.asked[0]
    assert [m["role"] for m in request.messages] == ["user", "assistant", "user"]
    assert request.messages[-1]["content"] == REQUEST
    assert request.sampling == {"temperature": 0.0, "max_tokens": MOST_TOKENS, "thought_tokens": 0}
    then("<think>\n\n</think>\n\nHeron nests")
    assert desk.conversations[0].title == "Heron nests"


@pytest.mark.parametrize("why", ["small", "slow", "full", "named", "named meanwhile", "left", "longer"])
def test_the_model_is_left_in_peace_or_its_title_is_not_taken(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    desk = make_desk()
    desk.wait_ready()
    aside = Aside(desk, monkeypatch)
    desk.say("Heron nests")
    chat = desk.conversations[0]
    aside.titles._parameters = 7_000_000_000
    stats = {"prefill_tok_s": 500.0, "decode_tok_s": 40.0, "context_used": 100, "context_total": 4096}
    if why == "small":
        aside.titles._parameters = 32_000_000
    elif why == "slow":
        stats["decode_tok_s"] = 2.0
    elif why == "full":
        stats["context_used"] = 4050
    elif why == "named":
        desk.controller.rename(chat.id, "My own")
    answer = desk.memory.branch_of(chat.id)[-1]  # type: ignore[index]
    desk.memory.update(chat.id, replace(answer, stats=stats))
    aside.titles._answered(chat.id)
    if why == "left":
        desk.controller.new_chat()
    elif why == "longer":
        desk.say("and storks?")
    desk.qtbot.wait(60)
    if why == "named meanwhile":
        desk.controller.rename(chat.id, "My own")
        aside.asked[0][1]("Nests of herons")
        assert desk.conversations[0].title == "My own"
    else:
        assert aside.asked == []


def test_words_on_the_side_never_hold_up_an_answer(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.wait_ready()
    heard: list[str] = []
    desk.say("first")
    request = desk.controller.next_request("aside")
    statuses = len(desk.statuses)
    desk.engine.ask_aside(request, heard.append)
    desk.wait(lambda: heard)
    assert heard[0].strip()
    assert len(desk.statuses) == statuses, "nobody sees it"
    assert len(desk.messages) == 2
    cancelled: list[str] = []
    cancel = desk.engine._worker.cancel
    desk.engine._worker.cancel = lambda target: (cancelled.append(target), cancel(target))
    desk.engine.ask_aside(desk.controller.next_request("words 100000 pace 0.02"), heard.append)
    desk.controller.send("second")
    desk.wait(lambda: len(desk.shown) == 4 and desk.last.state is not MessageState.WRITING)
    desk.engine._worker.cancel = cancel  # type: ignore[method-assign]
    assert cancelled[0].startswith("aside-")
    assert len(heard) == 1
