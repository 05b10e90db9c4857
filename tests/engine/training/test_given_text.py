"""A person's text as sequences: plain text in windows, conversations in the chat template."""

from __future__ import annotations

import pytest
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig
from engine.errors import ChatTemplateError
from engine.session.loaded_model import LoadedModel
from engine.training import given_text
from engine.training.given_text import text_sequences


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = make_tiny_model(tmp_path_factory.mktemp("m"), max_context=256)
    return LoadedModel.load(folder, EngineConfig(backend="reference"))


def shown(model: LoadedModel, text: str, tokens: int | None = None) -> list[str]:
    return [model.tokenizer.decode(ids, skip_special=False) for ids in text_sequences(model, text, tokens)]


def test_plain_text_is_cut_into_windows(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    assert shown(model, "Hello.") == ["<|begin|>Hello."]
    monkeypatch.setattr(given_text, "CONTEXT_TOKENS", 100)
    windows = text_sequences(model, text)
    assert {len(window) for window in windows[:-1]} == {100}
    assert [token for window in windows for token in window[1:]] == model.tokenizer.encode(text)
    assert shown(model, "") == shown(model, " \n\n") == []


def test_lines_with_speakers_are_conversations(model: LoadedModel) -> None:
    text = (
        "A page about tea.\n\nUser: Hi!\nAssistant: Hello.\nHow are you?\nUser: Fine.\n\n"
        "Assistant: Well?\nHuman: Yes.\nAI: Good.\n\nThe end."
    )
    assert shown(model, text) == [
        "<|begin|>A page about tea.\n",
        "<|begin|><|user|>Hi!<|end|><|assistant|>Hello.\nHow are you?<|end|><|user|>Fine.<|end|><|assistant|>",
        "<|begin|><|user|>Yes.<|end|><|assistant|>Good.",
        "<|begin|>\nThe end.",
    ]


def test_long_conversations_are_cut_where_the_person_speaks(model: LoadedModel) -> None:
    text = "\n".join(f"User: q{i}\nAssistant: a{i}" for i in range(20))
    found = shown(model, text)
    assert len(found) == 3
    assert found[1].startswith("<|begin|><|user|>q8<|end|><|assistant|>a8")


def test_a_model_without_a_template_of_its_own_reads_the_lines(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.tokenizer, "chat_template", None)
    assert shown(model, "User: Hi!\nAssistant: Hello.") == ["<|begin|>User: Hi!\nAssistant: Hello."]


def test_a_template_that_refuses_gets_plain_lines(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(messages: object) -> list[int]:
        raise ChatTemplateError("no")

    monkeypatch.setattr(model.tokenizer, "encode_chat", refuse)
    assert shown(model, "User: Hi!\nAssistant: Hello.") == ["<|begin|>User: Hi!\nAssistant: Hello."]


def test_it_ends_after_so_many_tokens(model: LoadedModel) -> None:
    text = "word " * 1000
    for tokens in (1, 255, 256, 257, 700):
        assert sum(map(len, text_sequences(model, text, tokens))) == tokens
    special = text_sequences(model, "<|end|> is no end here")
    assert 1 not in special[0]
