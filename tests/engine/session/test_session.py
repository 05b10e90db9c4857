"""Sessions over the starter model: reuse of the prefix, overflow that is reported, and reasons for every choice."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from samples.tiny_model import make_tiny_model
from support.systems import MAKES_LINKS, needs_links

from engine.assets import starter_model
from engine.config import KV_CODECS, EngineConfig, SamplingConfig
from engine.errors import (
    Cancelled,
    ContextOverflowError,
    DeviceUnavailableError,
    InvalidRequestError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from engine.job import Job
from engine.loading.modes import choose_mode
from engine.loading.opening import choose_context
from engine.model.kv_cache import KVCache
from engine.model.weights import open_model
from engine.prompt_cache.stored_prompts import shared_length
from engine.session.chat_session import ChatSession
from engine.session.generate import TokenEvent
from engine.session.loaded_model import LoadedModel
from engine.text.context_fit import KEPT_SHARE_AFTER_DROP, SMALLEST_ANSWER_TOKENS, ChatMessage
from engine.text.tokenizer import Tokenizer

GREEDY = SamplingConfig(temperature=0, max_tokens=24)


def say(text: str, role: str = "user") -> ChatMessage:
    return {"role": role, "content": text}


def answer(
    session: ChatSession, messages: list[ChatMessage], sampling: SamplingConfig = GREEDY
) -> tuple[str, TokenEvent]:
    events = list(session.chat(messages, sampling)[1])
    return "".join(event.text for event in events), events[-1]


def test_the_starter_model_answers_and_stops_by_itself(starter: LoadedModel) -> None:
    text, last = answer(ChatSession(starter), [say("What is the capital of Peru?")])
    assert text == "Lima is the capital of Peru."
    assert last.finish_reason == "stop"
    assert 0.01 < (last.stats.fired_share or 0) < (last.stats.active_share or 0) < 0.2


def test_the_next_turn_reuses_the_prefix_and_answers_as_if_computed_afresh(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    messages = [say("Hello!")]
    text, _ = answer(session, messages)
    messages += [say(text, "assistant"), say("Tell me a riddle.")]
    again, last = answer(session, messages)
    fresh, cold = answer(ChatSession(starter), messages)
    assert again == fresh
    assert cold.stats.reused_tokens == 0
    prompt = starter.tokenizer.encode_chat(messages)
    before = starter.tokenizer.encode_chat(messages[:2])
    assert last.stats.reused_tokens >= 0.95 * (shared_length(prompt, before) - 1)


def test_an_answer_left_in_the_middle_leaves_the_cache_true(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    story = [say("Tell me a story about a shy robot called Bolt.")]
    events = session.chat(story, GREEDY)[1]
    for _ in range(5):
        next(events)
    events.close()
    assert answer(session, story)[0] == answer(ChatSession(starter), story)[0]


def test_another_conversation_in_the_same_session_is_not_disturbed(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    answer(session, [say("Tell me a story about a fox.")])
    question = [say("What is the capital of France?")]
    assert answer(session, question)[0] == answer(ChatSession(starter), question)[0]


def test_exact_and_dense_write_the_same_and_the_mode_can_change_between_answers(starter: LoadedModel) -> None:
    session = ChatSession(starter, "exact")
    question = [say("Why is the sky blue?")]
    exact, exact_end = answer(session, question)
    session.set_mode("dense")
    dense, dense_end = answer(session, question)
    assert exact == dense
    assert dense_end.stats.active_share == 1.0
    assert (exact_end.stats.active_share or 1) < 0.5


def test_a_seed_repeats_an_answer_and_another_changes_it(starter: LoadedModel) -> None:
    story = [say("Tell me a story.")]
    warm = [
        answer(ChatSession(starter), story, SamplingConfig(temperature=1.0, seed=seed, max_tokens=24))[0]
        for seed in (1, 1, 2)
    ]
    assert warm[0] == warm[1] != warm[2]


def fit(session: ChatSession, messages: list[ChatMessage]) -> tuple[list[int], int]:
    fitted = session.fit(messages, None)
    return fitted.prompt, fitted.dropped


def long_chat(turns: int) -> list[ChatMessage]:
    words = "The little fox went over the hill and looked at the sea for a long time. " * 3
    chat = [say("You are kind.", "system")]
    for number in range(turns):
        chat += [say(f"Part {number}. {words}"), say(f"I see. {words}", "assistant")]
    return [*chat, say("What did the fox look at?")]


def test_what_does_not_fit_is_left_out_from_the_oldest_and_counted(starter: LoadedModel) -> None:
    session, chat = ChatSession(starter), long_chat(20)
    prompt, dropped = fit(session, chat)
    assert 0 < dropped < len(chat) - 2
    kept = starter.tokenizer.decode(prompt, skip_special=False)
    assert "You are kind." in kept
    assert "What did the fox look at?" in kept
    assert "Part 0." not in kept
    assert kept.count("<|user|>") == kept.count("<|assistant|>")  # begins with the person's words
    assert len(prompt) <= 0.75 * starter.context


def test_the_same_messages_stay_out_so_that_the_next_turn_finds_its_prefix(starter: LoadedModel) -> None:
    session, chat = ChatSession(starter), long_chat(20)
    first, dropped = fit(session, chat)
    chat += [say("At the sea.", "assistant"), say("And then?")]
    second, still = fit(session, chat)
    assert still == dropped
    assert shared_length(first, second) == len(first)


def test_a_short_conversation_after_a_long_one_loses_nothing(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    session.fit(long_chat(20), None)
    assert session.fit([say("Hello!")], None).dropped == 0


def test_a_message_longer_than_the_context_is_refused_with_both_figures(starter: LoadedModel) -> None:
    with pytest.raises(ContextOverflowError, match=r"\d{4,} .*\b1024\b"):
        ChatSession(starter).chat([say("word " * 3000)], GREEDY)


def test_an_answer_that_fills_the_context_says_so(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    prompt = starter.tokenizer.encode("a " * 1500)[: starter.context - 3]
    events = list(session.generate(prompt, SamplingConfig(temperature=0)))
    assert events[-1].finish_reason in ("length", "stop")
    if events[-1].finish_reason == "length":
        assert events[-1].stats.context_full
    assert session.context_used <= session.context_total


def test_bad_prompts_are_refused_before_anything_runs(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    for prompt in ([], [9000], [0, -1]):
        with pytest.raises(InvalidRequestError):
            session.generate(prompt, GREEDY)


def test_a_name_that_means_nothing_is_refused_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no-such-model") as caught:
        LoadedModel.load("no-such-model")
    assert "starter-chat" in caught.value.hint


def test_what_this_version_cannot_do_is_said_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailableError, match="cannot be used"):
        LoadedModel.load("starter-chat", EngineConfig(device="cuda"))
    with pytest.raises(UnsupportedModelError, match="no predictors"):
        LoadedModel.load(make_tiny_model(tmp_path / "m"), EngineConfig(mode="sparse"))
    with pytest.raises(InvalidRequestError, match="trained with 1024"):
        LoadedModel.load("starter-chat", EngineConfig(context=4096))


def test_loading_can_be_cancelled_and_reports_bytes() -> None:
    with pytest.raises(Cancelled):
        LoadedModel.load("starter-chat", job=Job(lambda: True))
    seen: list[tuple[int, int]] = []
    model = LoadedModel.load(
        "starter-chat", EngineConfig(context=64), Job(progress=lambda done, total: seen.append((done, total)))
    )
    assert seen[-1][0] == seen[-1][1] > 30_000_000
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert model.context == 64


def test_auto_takes_the_starters_own_predictors_because_they_read_less(starter: LoadedModel) -> None:
    assert starter.mode == "sparse"
    assert "less than exact mode" in starter.mode_reason
    assert choose_mode(starter.opened, "dense")[0] == "dense"


def test_auto_takes_exact_where_there_are_no_predictors(tmp_path: Path) -> None:
    model = LoadedModel.load(make_tiny_model(tmp_path / "m"), EngineConfig(backend="reference"))
    assert model.mode == "exact"


def test_every_token_that_the_model_or_its_tokenizer_ends_with_ends_an_answer(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m", config={"eos_token_id": [1, 4, 9]})
    model = LoadedModel.load(folder)
    assert model.tokenizer.eos_token_ids == (1,)
    assert model.stop_token_ids == {1, 4, 9}
    free = [
        event.token_id for event in ChatSession(model).generate([0, 20], SamplingConfig(temperature=0, max_tokens=3))
    ]
    other = make_tiny_model(tmp_path / "other", config={"eos_token_id": [1, free[0]]})
    events = list(ChatSession(LoadedModel.load(other)).generate([0, 20], SamplingConfig(temperature=0, max_tokens=3)))
    assert [event.finish_reason for event in events] == ["stop"]


def test_a_text_begins_with_what_the_configuration_says_where_the_tokenizer_is_silent(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m", config={"bos_token_id": 5})
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "bos_token": None}))
    model = LoadedModel.load(folder)
    assert (model.tokenizer.bos_token_id, model.bos_token_id) == (None, 5)
    assert LoadedModel.load(make_tiny_model(tmp_path / "other")).bos_token_id == 0


def test_fitting_a_very_long_conversation_reads_no_more_than_its_end(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, chat, read = ChatSession(starter), long_chat(500), [0]
    encode = Tokenizer.encode_chat

    def counted(tokenizer: Tokenizer, messages: Sequence[ChatMessage], thinking: None) -> list[int]:
        read[0] += len(messages)
        return encode(tokenizer, messages, thinking)

    monkeypatch.setattr(Tokenizer, "encode_chat", counted)
    prompt, dropped = fit(session, chat)
    assert read[0] < 100
    assert 0.3 * starter.context < len(prompt) <= KEPT_SHARE_AFTER_DROP * starter.context
    assert fit(session, chat) == (prompt, dropped)
    one_more = [chat[0], *chat[dropped - 1 :]]
    assert (
        len(encode(starter.tokenizer, one_more)) > KEPT_SHARE_AFTER_DROP**2 * starter.context
    )  # nothing more would fit


@pytest.mark.parametrize("turns", range(6))
def test_no_message_is_dropped_while_all_of_them_fit(starter: LoadedModel, turns: int) -> None:
    chat = [message for number in range(turns) for message in (say(f"Part {number}."), say("I see.", "assistant"))]
    prompt, dropped = fit(ChatSession(starter), [*chat, say("And then?")])
    assert dropped == 0
    assert prompt == starter.tokenizer.encode_chat([*chat, say("And then?")])


LOOPS = [pytest.param(name, marks=needs_links) for name in ("loop", "loop/model")]


@pytest.mark.parametrize("name", ["x" * 300, "~nobody-of-this-name/model", "a\0b", *LOOPS])
def test_impossible_names_are_answered_with_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    if MAKES_LINKS:
        (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ModelNotFoundError):
        LoadedModel.load(name)


def test_an_answer_cut_by_its_limit_can_be_continued(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    story = starter.tokenizer.encode_chat([say("Tell me a story about a fox.")])
    first = [event.token_id for event in session.generate(story, GREEDY) if event.token_id is not None]
    longer = [*story, *first, *starter.tokenizer.encode(" And then")]
    held = len(story) + len(first) - 1  # the last token was chosen and not computed
    assert session.context_used == held
    rest = list(session.generate(longer, GREEDY))
    assert rest[-1].stats.reused_tokens == held
    fresh = list(ChatSession(starter).generate(longer, GREEDY))
    assert [event.token_id for event in rest] == [event.token_id for event in fresh]


def test_the_longest_prompt_leaves_room_for_one_token(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    prompt = [20] * starter.context
    with pytest.raises(ContextOverflowError, match=r"\b1024 .*\b1024\b"):
        session.generate(prompt, GREEDY)
    events = list(session.generate(prompt[:-1], GREEDY))
    assert sum(event.token_id is not None for event in events) <= 1
    assert events[-1].stats.context_full or events[-1].finish_reason == "stop"


def test_a_small_context_still_leaves_room_for_a_short_answer(starter: LoadedModel) -> None:
    chat = [say("One two three."), say("Four five.", "assistant"), say("Six seven eight?")]
    length = len(starter.tokenizer.encode_chat(chat))
    assert 20 <= length <= 35, "a quarter of the context below is less than the smallest answer"
    for spare, dropped in ((SMALLEST_ANSWER_TOKENS, 0), (SMALLEST_ANSWER_TOKENS - 1, 2)):
        small = dataclasses.replace(starter, context=length + spare)
        assert ChatSession(small).fit(chat, None).dropped == dropped
    with pytest.raises(ContextOverflowError):
        ChatSession(small).fit([say("many words " * 12)], None)


def test_no_mode_means_the_one_that_was_loaded(starter: LoadedModel) -> None:
    session = ChatSession(starter, "dense")
    session.set_mode(None)
    end = answer(session, [say("Hello!")])[1]
    assert (end.stats.active_share or 1) < 0.5


def test_a_default_context_takes_a_modest_share_of_the_free_memory(starter: LoadedModel) -> None:
    cache_bytes = KVCache.bytes_for(starter.opened.config, 1024)
    for free_bytes, context in ((4 * cache_bytes, 1024), (3 * cache_bytes, 512), (0, 512)):
        assert choose_context(starter.opened, None, free_bytes) == context
    longer = dataclasses.replace(starter.opened, config=dataclasses.replace(starter.opened.config, max_context=8192))
    assert choose_context(longer, None, 8 * cache_bytes) == 2048
    assert choose_context(longer, 4096, 0) == 4096  # asked for is asked for


def test_threads_are_as_asked_and_hold_for_the_mathematics() -> None:
    import threadpoolctl

    def of_numpy() -> set[int]:
        """NumPy's own: those of other packages, which other tests have loaded, are not computed with."""
        pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
        return {pool["num_threads"] for pool in pools if "numpy" in pool["filepath"]}

    default = LoadedModel.load("starter-chat", EngineConfig(context=64)).threads
    wanted = default + 1
    before = threadpoolctl.threadpool_info()
    try:
        assert LoadedModel.load("starter-chat", EngineConfig(context=64, threads=wanted)).threads == wanted
        assert len(of_numpy()) == 1
        assert of_numpy() <= {1, wanted}  # 1: a machine with one processor
        LoadedModel.load("starter-chat", EngineConfig(context=64, threads=1))
        assert of_numpy() == {1}
    finally:
        for pool in before:
            if pool["user_api"] == "blas":
                threadpoolctl.threadpool_limits(pool["num_threads"], "blas")


def test_the_memory_for_the_context_is_asked_for_with_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def load_weights(*arguments: Any, extra_bytes: int, mapped_bytes: int, **others: Any) -> None:
        asked.append((extra_bytes, mapped_bytes))
        raise Cancelled

    monkeypatch.setattr("engine.session.load_stages.load_weights", load_weights)
    for codec in KV_CODECS:
        with pytest.raises(Cancelled):
            LoadedModel.load("starter-chat", EngineConfig(context=64, kv_cache=codec, mode="exact"))
    opened = open_model(starter_model())
    assert asked == [(KVCache.bytes_for(opened.config, 64, codec), 0) for codec in KV_CODECS]


def test_a_question_stopped_while_it_was_read_can_be_asked_again(reference_starter: LoadedModel) -> None:
    starter = reference_starter  # kernels round tokens to bytes, which magnifies what pieces change in the last digit
    session, question = ChatSession(starter), [say("Tell me a story about a fox. " * 20)]
    looks = itertools.count()
    prompt = session.fit(question, None).prompt
    n_layers = starter.opened.config.n_layers  # one look before each piece and between its layers
    stopped = list(session.generate(prompt, GREEDY, job=Job(lambda: next(looks) >= n_layers)))
    assert [event.finish_reason for event in stopped] == ["cancelled"]
    assert 0 < session.context_used < len(prompt)
    text, last = answer(session, question)
    assert last.stats.reused_tokens > 0
    assert text == answer(ChatSession(starter), question)[0]


def test_a_session_that_forgets_computes_the_prompt_from_its_first_token(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    prompt = starter.tokenizer.encode_chat([{"role": "user", "content": "What is the capital of Peru?"}])
    sampling = SamplingConfig(temperature=0.0, max_tokens=4)

    def reused() -> int:
        return [event.stats for event in session.generate(prompt, sampling)][-1].reused_tokens

    assert reused() == 0
    assert reused() == len(prompt) - 1
    session.clear()
    assert reused() == 0
