"""What a context has room for: the three policies, what stays the same from turn to turn, and texts cut to fit."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import ContextOverflowError, InvalidRequestError
from engine.prompt_cache.stored_prompts import shared_length
from engine.service import protocol
from engine.service.host import EngineHost
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.text.attached_texts import AttachedTexts
from engine.text.context_fit import ChatMessage, ContextWindow, checked_overflow


def encode(messages: list[ChatMessage]) -> list[int]:
    """A token a word; a turn costs one more."""
    return [hash(word) for m in messages for word in (m["role"], *m["content"].split())]


def chat(turns: int, words: int = 9, system: bool = True) -> list[ChatMessage]:
    out = [{"role": "system", "content": "Be kind"}] if system else []
    for number in range(turns):
        out.append({"role": "user", "content": f"q{number} " + "x " * (words - 1)})
        out.append({"role": "assistant", "content": f"a{number} " + "y " * (words - 1)})
    return [*out, {"role": "user", "content": "and now?"}]


def kept(messages: list[ChatMessage], dropped: int, at: int) -> list[ChatMessage]:
    return [messages[0], *messages[1 : 1 + at], *messages[1 + at + dropped :]]


def test_the_middle_goes_and_the_first_exchange_stays() -> None:
    room, messages = ContextWindow(200), chat(20)
    fitted = room.fit(messages, None, encode, "middle")
    assert fitted.dropped_at == 2
    assert fitted.dropped > 0
    assert fitted.dropped % 2 == 0
    assert fitted.prompt == encode(kept(messages, fitted.dropped, 2))
    assert len(fitted.prompt) <= 150


def test_the_middle_that_went_stays_away_so_that_the_next_prompt_begins_the_same() -> None:
    room, messages = ContextWindow(200), chat(20)
    first = room.fit(messages, None, encode, "middle")
    messages += [{"role": "assistant", "content": "this"}, {"role": "user", "content": "more?"}]
    second = room.fit(messages, None, encode, "middle")
    assert (second.dropped, second.dropped_at) == (first.dropped, 2)
    assert shared_length(first.prompt, second.prompt) == len(first.prompt)


def test_a_first_exchange_that_would_fill_the_room_is_not_kept() -> None:
    messages = [{"role": "user", "content": "long " * 80}, {"role": "assistant", "content": "ok"}, *chat(12)[1:]]
    fitted = ContextWindow(200).fit(messages, None, encode, "middle")
    assert fitted.dropped_at == 0
    assert fitted.dropped > 2


def test_a_long_question_drives_the_kept_beginning_out_before_it_is_refused() -> None:
    messages = [*chat(3, 20)[:-1], {"role": "user", "content": "word " * 170}]
    fitted = ContextWindow(200).fit(messages, None, encode, "middle")
    assert (fitted.dropped, fitted.dropped_at) == (6, 0)
    with pytest.raises(ContextOverflowError, match="The message has"):
        ContextWindow(200).fit([*messages[:-1], {"role": "user", "content": "word " * 190}], None, encode, "middle")


@pytest.mark.parametrize("policy", ["roll", "middle", "stop"])
def test_nothing_goes_while_everything_fits(policy: Any) -> None:
    messages = chat(5)
    fitted = ContextWindow(200).fit(messages, None, encode, policy)
    assert (fitted.prompt, fitted.dropped, fitted.dropped_at) == (encode(messages), 0, 0)


def test_stop_refuses_and_says_why() -> None:
    room = ContextWindow(200)
    with pytest.raises(ContextOverflowError, match="206 tokens") as caught:
        room.fit(chat(10), None, encode, "stop")
    assert caught.value.hint
    with pytest.raises(ContextOverflowError):
        room.fit(chat(5000), None, encode, "stop")


def test_looking_is_what_fitting_would_give_and_leaves_no_trace() -> None:
    room, messages = ContextWindow(200), chat(20)
    looked = room.look(messages, None, encode)
    shorter = room.look([messages[0], *messages[-5:]], None, encode)
    assert room.fit(messages, None, encode) == looked
    assert shorter.dropped == 0
    assert room.is_too_long(room.look([{"role": "user", "content": "x " * 300}], None, encode))


def test_changing_the_policy_in_mid_chat_begins_anew() -> None:
    room, messages = ContextWindow(200), chat(20)
    rolled = room.fit(messages, None, encode, "roll")
    assert room.fit(messages, None, encode, "middle") == ContextWindow(200).fit(messages, None, encode, "middle")
    assert room.fit(messages, None, encode, "roll") == rolled


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        checked_overflow("shred")
    assert "roll, middle, stop" in caught.value.hint


# --- texts


def words_of(text: str) -> list[int]:
    return [1 for _ in text.split()]


def test_short_texts_stay_whole_and_long_ones_share_the_rest() -> None:
    short, long_one, longer = "one two", "word " * 500, "word\n" * 900
    portions = AttachedTexts(words_of).portions([longer, short, long_one], 202)
    assert [p.tokens for p in portions] == [900, 2, 500]
    assert portions[1].kept_chars == len(short)
    assert sum(p.kept_tokens for p in portions) <= 202
    for portion, text in ((portions[0], longer), (portions[2], long_one)):
        assert 95 <= portion.kept_tokens <= 100
        assert len(words_of(text[: portion.kept_chars])) == portion.kept_tokens
        assert text[portion.kept_chars].isspace(), "no word is cut in two"


@pytest.mark.parametrize("room", [0, -5, 1])
def test_where_there_is_no_room_little_or_nothing_is_kept(room: int) -> None:
    portion = AttachedTexts(words_of).portions(["word " * 50], room)[0]
    assert portion.kept_tokens <= max(room, 0)
    assert AttachedTexts(words_of).portions([""], room)[0].tokens == 0


def test_a_text_without_spaces_is_cut_all_the_same() -> None:
    portion = AttachedTexts(lambda text: [0] * (len(text) // 3)).portions(["日" * 9000], 300)[0]
    assert 290 <= portion.kept_tokens <= 300


def test_a_text_is_encoded_whole_only_once() -> None:
    whole: list[int] = []
    texts = AttachedTexts(lambda text: whole.append(len(text)) or words_of(text))  # type: ignore[func-returns-value]
    text = "word " * 1000
    for room in (10, 20, 30):
        texts.portions([text], room)
    assert whole.count(len(text)) == 1


# --- over the starter model


def test_a_count_is_what_the_answer_then_takes(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    for messages in (chat(2), chat(60), [{"role": "user", "content": "Hello!"}]):
        for policy in ("roll", "middle"):
            count = session.count(messages, None, policy)  # type: ignore[arg-type]
            fitted = session.fit(messages, None, policy)  # type: ignore[arg-type]
            assert count.fitted == fitted
            assert count.fits


def test_the_host_counts_without_computing(starter: LoadedModel) -> None:
    heard: list[Any] = []
    host = EngineHost(heard.append)
    host._model, host._session = starter, ChatSession(starter)
    question = [{"role": "user", "content": "What is the capital of Peru?"}]
    text = "The fox went over the hill. " * 400
    host.submit(protocol.Count("1", question))
    host.submit(protocol.Count("2", question, texts=[text]))
    host.submit(protocol.Generate("3", question, {"temperature": 0}))
    host.submit(protocol.Count("4", chat(60), overflow="stop"))
    host.submit(protocol.Generate("5", chat(60), overflow="stop"))
    host.submit(protocol.Count("6", question, overflow="shred"))
    host.run_pending()
    ends = {event.id: event for event in heard if isinstance(event, protocol.Finished | protocol.Failed)}
    one, two, four = (protocol.CountResult.from_dict(ends[n].result) for n in ("1", "2", "4"))
    answer = protocol.GenerationResult.from_dict(ends["3"].result)
    assert one.tokens == answer.prompt_tokens
    assert one.context_total == answer.context_total
    assert two.text_tokens[0] > two.text_kept_tokens[0] > 300
    cut = f"{question[0]['content']}\n{text[: two.text_kept_chars[0]]}"
    assert len(starter.tokenizer.encode_chat([{"role": "user", "content": cut}])) <= two.most_tokens
    assert not four.fits
    assert four.tokens > four.context_total
    assert ends["5"].error == "ContextOverflowError"
    assert ends["6"].error == "InvalidRequestError"


def test_the_result_of_an_answer_says_where_messages_are_missing(starter: LoadedModel) -> None:
    heard: list[Any] = []
    host = EngineHost(heard.append)
    host._model, host._session = starter, ChatSession(starter)
    host.submit(protocol.Generate("1", chat(60), {"max_tokens": 1}, overflow="middle"))
    host.run_pending()
    result = protocol.GenerationResult.from_dict(heard[-1].result)
    assert result.dropped_messages > 0
    assert result.dropped_at == 2
