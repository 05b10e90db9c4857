"""A chat that outgrows the context goes on from a summary of its oldest messages, written by the model itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.config import SamplingConfig
from engine.job import Job
from engine.service import protocol
from engine.service.host import EngineHost
from engine.session import summaries
from engine.session.chat_session import ChatSession
from engine.session.generate import TokenEvent
from engine.session.loaded_model import LoadedModel
from engine.session.summaries import summarise_if_needed
from engine.text.context_fit import ChatMessage, with_summary

FOR_100 = SamplingConfig(max_tokens=100)  # an answer of so many tokens
RULES: ChatMessage = {"role": "system", "content": "Be brief."}


def turns(n: int, times: int = 5) -> list[ChatMessage]:
    """n questions, all but the last answered."""
    said: list[ChatMessage] = []
    asked, told = "What of the sea and its ships? " * times, "The sea is wide and full. " * times
    for number in range(n):
        said.append({"role": "user", "content": f"Question {number}. {asked}"})
        said.append({"role": "assistant", "content": f"Answer {number}. {told}"})
    return said[:-1]


class Writing:
    """What the model was asked to summarise; it answers with a text."""

    def __init__(self, text: str = "They spoke of the sea.") -> None:
        self.text = text
        self.prompts: list[str] = []
        self.computes = False  # otherwise its answer comes at once
        self.reused: list[int] = []

    def answer(
        self, session: ChatSession, real: Any, prompt: list[int], *arguments: Any, **more: Any
    ) -> Iterator[TokenEvent]:
        self.prompts.append(session.model.tokenizer.decode(prompt))
        if not self.computes:
            yield TokenEvent(self.text, finish_reason="stop")
            return
        events = list(real(session, prompt, SamplingConfig(temperature=0.0, max_tokens=1), *arguments[1:], **more))
        self.reused.append(events[-1].stats.reused_tokens)
        yield TokenEvent(self.text, finish_reason=events[-1].finish_reason and "stop", stats=events[-1].stats)


@pytest.fixture
def session(starter: LoadedModel) -> ChatSession:
    return ChatSession(starter)


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Writing:
    made, real = Writing(), ChatSession.generate
    monkeypatch.setattr(
        ChatSession, "generate", lambda session, *arguments, **more: made.answer(session, real, *arguments, **more)
    )
    return made


def test_what_fits_is_left_as_it_is(session: ChatSession, writing: Writing) -> None:
    found = summarise_if_needed(session, [RULES, *turns(3)], FOR_100, "")
    assert (found.messages, found.summary, found.replaced) == ([RULES, *turns(3)], "", 0)
    assert not writing.prompts


def test_the_oldest_messages_are_replaced_and_the_rest_fits(session: ChatSession, writing: Writing) -> None:
    chat = [RULES, *turns(20)]
    found = summarise_if_needed(session, chat, FOR_100, "")
    assert 0 < found.replaced < len(chat) - 1
    assert found.messages == with_summary([RULES, *chat[1 + found.replaced :]], writing.text)
    assert not session.count(found.messages, 100).fitted.dropped
    prompt = "".join(writing.prompts)
    assert "Be brief." in prompt
    assert "Question 0." in prompt
    assert chat[1 + found.replaced]["content"] not in prompt


def test_a_chat_that_never_fitted_is_summarised_in_steps(session: ChatSession, writing: Writing) -> None:
    chat = [RULES, *turns(60), {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}]
    chat[5] = {"role": "user", "content": "A long one. " * 2000}
    found = summarise_if_needed(session, chat, FOR_100, "")
    assert len(writing.prompts) > 3
    assert all(writing.text in prompt for prompt in writing.prompts[1:])
    assert not session.count(found.messages, 100).fitted.dropped
    for number in range((found.replaced - 3) // 2):
        assert any(f"Answer {number}." in prompt for prompt in writing.prompts)


def test_a_later_summary_includes_the_earlier_one(session: ChatSession, writing: Writing) -> None:
    found = summarise_if_needed(session, [RULES, *turns(20)], FOR_100, "They spoke of cats.")
    assert "They spoke of cats." in writing.prompts[0]
    assert "They spoke of cats." not in found.messages[0]["content"]
    assert found.summary == writing.text


@pytest.mark.parametrize("text", ["", "   ", "<think>What to say?</think>  "])
def test_without_a_summary_messages_are_left_out_as_before(session: ChatSession, writing: Writing, text: str) -> None:
    writing.text = text
    found = summarise_if_needed(session, turns(20), FOR_100, "They spoke of cats.")
    assert (found.messages, found.replaced) == (with_summary(turns(20), "They spoke of cats."), 0)
    assert found.summary == "They spoke of cats."


def test_thoughts_are_no_part_of_a_summary(session: ChatSession, writing: Writing) -> None:
    writing.text = "<think>Hm, cats.</think>\n\nThe sea."
    assert summarise_if_needed(session, turns(20), FOR_100, "").summary == "The sea."


def test_a_cancelled_summary_changes_nothing(session: ChatSession) -> None:
    found = summarise_if_needed(session, turns(20), FOR_100, "", Job(lambda: True))
    assert (found.summary, found.replaced) == ("", 0)


def test_it_is_read_from_what_the_last_prompt_left_in_the_cache(session: ChatSession, writing: Writing) -> None:
    writing.computes = True
    longest = next(n for n in range(2, 30) if session.count(turns(n), 100).fitted.dropped) - 1
    list(session.chat(turns(longest), SamplingConfig(temperature=0.0, max_tokens=2))[1])
    found = summarise_if_needed(session, turns(longest + 1), FOR_100, "")
    old = session.model.tokenizer.encode_chat(turns(longest)[: found.replaced])
    assert writing.reused == [0, pytest.approx(len(old), abs=8)]


def test_the_window_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "FEWEST_TOKENS", 8)
    monkeypatch.setattr(summaries, "SHARE", 0.01)
    events: list[Any] = []
    host = EngineHost(events.append)

    def ask(**more: Any) -> dict[str, Any]:
        events.clear()
        sampling = {"temperature": 0.0, "max_tokens": 4}
        host.submit(protocol.Generate("ask", [RULES, *turns(20)], sampling, overflow="summarise", **more))
        host.run_pending()
        (end,) = [event for event in events if isinstance(event, protocol.Finished)]
        return end.result

    host.submit(protocol.Load("load", "starter-chat", {"device": "cpu"}))
    host.run_pending()
    told = ask(summary="They spoke of cats.", summarised=6)
    assert told["summary"] not in ("", "They spoke of cats.")
    assert told["summarised"] > 6
    assert told["dropped_messages"] == 0
    stages = [event.stage for event in events if isinstance(event, protocol.Progress)]
    assert stages.index("summarising") < stages.index("reading")
    host.close()
    host.run_pending()
