"""Thoughts told apart from answers, in one piece and in many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.thinking import ThoughtClock
from engine.text.thoughts import MARKS, Reply, ReplySplitter, split, spoken


@pytest.mark.parametrize(("opening", "end"), MARKS)
def test_every_kind_of_thought_is_known(opening: str, end: str) -> None:
    assert split(f"{opening}\nhm, let me\n{end}\n\nThe answer") == Reply("hm, let me", "The answer")
    assert split(f"{opening.upper()}hm") == Reply("hm", "", is_thinking=True)


def test_a_channel_that_follows_belongs_to_neither() -> None:
    text = "<|channel|>analysis<|message|>We<|end|><|start|>assistant<|channel|>final<|message|>Hello"
    assert split(text) == Reply("We", "Hello")


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        "  indented",
        "The mark <think> opens a thought",
        "a </think> b",
        "```\n</think>\n```",
        "<b>",
        "<thin",
        "",
    ],
)
def test_an_answer_without_a_thought_is_left_as_it_is(text: str) -> None:
    assert split(text) == Reply("", text)


@pytest.mark.parametrize("mark", ["answer", "response"])
def test_marks_around_an_answer_after_a_thought_are_dropped(mark: str) -> None:
    wrapped = f"<{mark}>\nHello <b> </{mark}> you\n</{mark}>\n"
    assert split(f"<think>\nhm\n</think>\n{wrapped}") == Reply("hm", f"Hello <b> </{mark}> you")
    assert split(wrapped) == Reply("", wrapped)


def test_a_thought_that_the_template_opened_ends_alone() -> None:
    assert split("hm\n</think>\n\nHello") == Reply("hm", "Hello")


def test_only_the_answer_is_spoken() -> None:
    assert spoken("<think>a</think>b") == "b"
    assert spoken("<think>a") == ""


@given(
    st.lists(
        st.sampled_from(
            ["<think>", "</think>", "a", "\n", " ", "<", "thi", "nk>", "<|channel|>", "/", "<answer>", "</answer>"]
        ),
        max_size=14,
    )
)
def test_pieces_give_what_the_whole_gives(pieces: list[str]) -> None:
    whole, parts = ReplySplitter(), ReplySplitter()
    first = whole.append("".join(pieces))
    last = whole.finish()
    got = [parts.append(piece) for piece in pieces] + [parts.finish()]
    assert "".join(a for a, _ in got) == first[0] + last[0]
    assert "".join(b for _, b in got) == first[1] + last[1]


def test_the_clock_runs_while_the_model_thinks() -> None:
    clock = ThoughtClock()
    for now, tokens, text in [(10.0, 1, "<think>"), (11.0, 5, "hm"), (16.2, 12, "</think>"), (20.0, 40, "Hello")]:
        clock.take(text, now, tokens)
    clock.stop(21.0, 41)
    assert clock.figures() == {"thought_s": 6.2, "thought_tokens": 12}
    silent = ThoughtClock()
    silent.take("Hello", 1.0, 1)
    assert silent.figures() == {}


def test_the_clock_of_a_thought_that_is_written_on_adds_up() -> None:
    clock = ThoughtClock("<think>hm", seconds=2.0, tokens=3)
    clock.take("so", 5.0, 4)
    clock.take("</think>", 6.0, 6)
    assert clock.figures() == {"thought_s": 3.0, "thought_tokens": 6}


def test_letters_that_grow_in_lower_case_move_no_mark() -> None:
    assert split("<think>\u0130stanbul \u0130zmir</THINK>Hello") == Reply("\u0130stanbul \u0130zmir", "Hello")
