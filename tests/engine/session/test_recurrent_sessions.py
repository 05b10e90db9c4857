"""Conversations with models that keep a state: turns, branches and stops reuse the longest remembered prefix."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from samples.placement_cases import a_profile
from samples.recurrent_model import make_recurrent_model

from engine.config import EngineConfig, SamplingConfig
from engine.errors import DeviceUnavailableError
from engine.evaluation.bench import run
from engine.evaluation.bench_batch import run_batch
from engine.gpu.trial import choice
from engine.session.batch import open_batch
from engine.session.chat_session import ChatSession
from engine.session.generate import TURN_END_TOKENS, TokenEvent, decode_batch
from engine.session.loaded_model import LoadedModel
from engine.text.context_fit import ChatMessage

GREEDY = SamplingConfig(temperature=0, max_tokens=12)


@pytest.fixture(scope="module", params=["dense", "experts"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = make_recurrent_model(tmp_path_factory.mktemp("model"), experts=request.param == "experts")
    return LoadedModel.load(folder, EngineConfig(device="cpu", threads=2, kv_cache="f32"))


def say(text: str, role: str = "user") -> ChatMessage:
    return {"role": role, "content": text}


def answer(session: ChatSession, messages: list[ChatMessage]) -> TokenEvent:
    return list(session.chat(messages, GREEDY)[1])[-1]


def tokens(session: ChatSession, messages: list[ChatMessage]) -> list[int | None]:
    return [event.token_id for event in session.chat(messages, GREEDY)[1]]


def test_the_next_turn_a_branch_and_a_repetition_reuse_what_they_share(model: LoadedModel) -> None:
    session, encode = ChatSession(model), model.tokenizer.encode_chat
    first = [say("Tell me of the sea, its tides and all its ships. " * 2)]
    answer(session, first)
    # The template leaves nothing out, but this answer is not the one that was given.
    second = [*first, say("It is wide.", "assistant"), say("And of the hills behind it? " * 2)]
    last = answer(session, second)
    assert last.stats.reused_tokens == len(encode(first)) - TURN_END_TOKENS
    again = answer(session, second)
    assert again.stats.reused_tokens == len(encode(second)) - TURN_END_TOKENS
    branch = [*first, say("It is deep.", "assistant"), say("And of the wind?")]
    assert tokens(session, branch) == tokens(ChatSession(model), branch)
    assert answer(session, second).stats.reused_tokens == len(encode(first)) - TURN_END_TOKENS
    assert tokens(session, second) == tokens(ChatSession(model), second)


def test_an_answer_that_is_continued_computes_only_what_is_new(model: LoadedModel) -> None:
    session = ChatSession(model)
    prompt = model.tokenizer.encode_chat([say("Count the stones on the beach, please.")])
    given = [event.token_id for event in session.generate(prompt, GREEDY) if event.token_id is not None]
    more = [*prompt, *given, 50, 51]
    last = list(session.generate(more, GREEDY))[-1]
    assert last.stats.reused_tokens == len(prompt) + len(given) - 1
    wanted = [event.token_id for event in ChatSession(model).generate(more, GREEDY)]
    assert [event.token_id for event in session.generate(more, GREEDY)] == wanted


def test_an_answer_left_in_the_middle_leaves_a_usable_cache(model: LoadedModel) -> None:
    session, story = ChatSession(model), [say("Tell me a story about a shy robot called Bolt, who likes the rain.")]
    events = session.chat(story, GREEDY)[1]
    for _ in zip(range(4), events, strict=False):
        pass
    events.close()
    assert tokens(session, story) == tokens(ChatSession(model), story)


def test_several_sequences_at_once(model: LoadedModel) -> None:
    batch = open_batch(model, 3)
    prompts = [[7, 8, 9], [10, 11], [12]]
    caches, others = ([model.new_cache(32) for _ in prompts] for _ in range(2))
    transformer = model.transformer()
    for prompt, cache, other in zip(prompts, caches, others, strict=True):
        transformer.forward(np.array(prompt), cache)
        transformer.forward(np.array(prompt), other)
    for step in ([20, 21, 22], [30, 31, 32]):
        found = decode_batch(batch, step, caches)
        for row, token, other in zip(found, step, others, strict=True):
            wanted = transformer.logits(transformer.forward(np.array([token]), other))[0]
            np.testing.assert_allclose(row, wanted, atol=2e-4)


def test_the_speed_of_one_and_of_several_is_measured(model: LoadedModel) -> None:
    assert run(model, prompt_tokens=20, gen_tokens=3, repeat=1).decode_tok_s > 0
    assert run_batch(model, 2, prompt_tokens=20, gen_tokens=3, repeat=1).decode_tok_s > 0


def test_no_gpu_is_tried_for_heads_that_it_has_no_kernels_for(model: LoadedModel) -> None:
    config, profile = model.opened.config, a_profile()
    assert config.delta is not None
    wide = dataclasses.replace(config, delta=dataclasses.replace(config.delta, key_dim=512))
    opened = dataclasses.replace(model.opened, config=wide)
    info, reason = choice.candidate(EngineConfig(), opened, profile, model.backend)
    assert info is None
    assert "heads of 128 numbers at most" in reason
    with pytest.raises(DeviceUnavailableError, match="heads of 128"):
        choice.candidate(dataclasses.replace(EngineConfig(), device="cuda"), opened, profile, model.backend)


def test_the_tower_and_the_draft_layer_are_left_out_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        LoadedModel.load(make_recurrent_model(tmp_path / "m"), EngineConfig(device="cpu", threads=1))
    assert "The 1 tensors of the model's towers for pictures and sound are left out" in caplog.text
    assert "The 2 tensors of the model's layers that draft tokens (MTP) are left out." in caplog.text
