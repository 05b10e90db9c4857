"""Built-in chat templates: what they write, which one is chosen and why, and what ends an answer."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.tiny_model import make_tiny_model
from starter_vocabulary import as_files, metadata

from engine.commands import cli
from engine.config import EngineConfig, SamplingConfig
from engine.errors import InvalidRequestError
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.text.chat_templates import BUILT_IN, TEMPLATE_NAMES, choose_template, kind_of
from engine.text.gguf_vocabulary import read_gguf
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import Vocabulary

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Why?"},
]
WRITTEN = {
    "chatml": "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    "Hello!<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
    "llama-3": "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "llama-2": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello! </s><s>[INST] Why? [/INST]",
    "mistral-instruct": "<s>[INST] Be brief.\n\nHi [/INST] Hello!</s>[INST] Why? [/INST]",
    "gemma": "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
    "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
    "phi-3": "<s><|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello!<|end|>\n<|user|>\n"
    "Why?<|end|>\n<|assistant|>\n",
    "vicuna": "<s>Be brief. USER: Hi ASSISTANT: Hello!</s>USER: Why? ASSISTANT:",
    "alpaca": "<s>Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello!</s>\n\n### Instruction:\nWhy?\n\n"
    "### Response:\n",
    "plain": "<s>Be brief.\n\nUser: Hi\nAssistant: Hello!\nUser: Why?\nAssistant:",
}


def vocabulary(*marks: str, template: str | None = None, adds_bos: bool = True) -> Vocabulary:
    """LLaMA's way of spelling, without merges, with <s>, </s> and the given marks."""
    tokens = ["<unk>", "<s>", "</s>", *marks, *(f"<0x{n:02X}>" for n in range(256)), "▁"]
    n = len(marks)
    facts: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": [2, 3, 3, *[3] * n, *[6] * 256, 1],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": adds_bos,
    }
    return read_gguf(facts if template is None else {**facts, "tokenizer.chat_template": template})


@functools.cache
def bare() -> Vocabulary:
    return vocabulary()


# --- what they write


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_a_template_writes(name: str) -> None:
    template, reason = choose_template("Any", bare(), name)
    assert template.render(CHAT) == WRITTEN[name]
    assert template.name == name
    assert reason == f"{BUILT_IN[name].title}, as requested"


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_chat_is_continued_where_its_prompt_ended(name: str) -> None:
    """So that the next turn finds this one in the cache."""
    template, _ = choose_template("Any", bare(), name)
    assert WRITTEN[name].startswith(template.render(CHAT[:2]))


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_template_begins_with_bos_only_where_texts_do(name: str) -> None:
    template, _ = choose_template("Any", vocabulary(adds_bos=False), name)
    assert not template.render(CHAT).startswith("<s>")


def test_without_a_system_message_vicuna_and_alpaca_say_their_own() -> None:
    for name, words in (("vicuna", "A chat between a curious user"), ("alpaca", "Below is an instruction")):
        assert choose_template("Any", bare(), name)[0].render(CHAT[1:2]).startswith(f"<s>{words}")


# --- which one, and why


@pytest.mark.parametrize(
    ("name", "marks", "chosen", "why"),
    [
        ("Qwen2.5-7B", ("<|im_start|>", "<|im_end|>"), "chatml", "the marks of ChatML, such as <|im_start|>"),
        ("Llama-3-8B-Instruct", ("<|start_header_id|>", "<|eot_id|>"), "llama-3", "the marks of Llama 3"),
        ("Llama-3-8B", ("<|start_header_id|>", "<|eot_id|>"), "plain", "does not say that it learned to chat"),
        ("gemma-2-2b-it", ("<start_of_turn>", "<end_of_turn>"), "gemma", "the marks of Gemma"),
        ("gemma-2-2b", ("<start_of_turn>", "<end_of_turn>"), "plain", "<start_of_turn>"),
        ("Phi-3-mini", ("<|user|>", "<|assistant|>", "<|end|>"), "phi-3", "the marks of Phi-3"),
        ("Mistral-7B-Instruct-v0.3", ("[INST]", "[/INST]"), "mistral-instruct", "the marks"),
        ("Mistral-7B-Instruct-v0.1", (), "mistral-instruct", "'Mistral-7B-Instruct' in its name"),
        ("TurboSparse-Mistral-7B", (), "chatml", "'TurboSparse' in its name means ChatML"),
        ("SmallThinker-4BA0.6B", (), "chatml", "'SmallThinker'"),
        ("Bamboo-DPO-v0.1", (), "vicuna", "'Bamboo-DPO' in its name means Vicuna"),
        ("vicuna-7b-v1.5", (), "vicuna", "'vicuna' in its name"),
        ("Llama-2-13b-chat-hf", (), "llama-2", "means Llama 2"),
        ("stanford_alpaca", (), "alpaca", "means Alpaca"),
        ("ReluLLaMA-7B", (), "plain", "neither its tokens nor its name tell another"),
        ("falcon-40b-instruct", (), "plain", "User:/Assistant:"),
        ("", (), "plain", "The model brings no chat template; neither"),
    ],
)
def test_the_choice_and_its_reason(name: str, marks: tuple[str, ...], chosen: str, why: str) -> None:
    template, reason = choose_template(name, vocabulary(*marks))
    assert template.name == chosen
    assert why in reason
    is_base = chosen == "plain" and "instruct" not in name
    assert kind_of(name, vocabulary(*marks)) == ("base" if is_base else "chat")


def test_a_model_that_brings_or_is_given_a_template_is_no_base_model() -> None:
    assert kind_of("ReluLLaMA-7B", vocabulary(template="{{ messages[0].content }}")) == "chat"
    assert kind_of("ReluLLaMA-7B", bare(), "plain") == "chat"
    tokenizer = Tokenizer(bare())
    tokenizer.use_template("ReluLLaMA-7B")
    assert tokenizer.kind == "base"


def test_a_models_own_template_goes_first_and_can_be_overridden() -> None:
    own = vocabulary("<|im_end|>", template="{{ messages[0].content }}<|im_end|>")
    template, reason = choose_template("vicuna", own)
    assert template.name == "own"
    assert reason
    assert template.render(CHAT) == "Be brief.<|im_end|>"
    assert template.stops == ("<|im_end|>",)
    assert choose_template("vicuna", own, "own")[0].name == "own"
    assert choose_template("x", own, "plain")[0].name == "plain"


def test_overrides_that_do_not_exist() -> None:
    with pytest.raises(InvalidRequestError, match="called 'klingon'") as caught:
        choose_template("x", bare(), "klingon")
    assert all(name in caught.value.hint for name in TEMPLATE_NAMES)
    with pytest.raises(InvalidRequestError, match="own"):
        choose_template("x", bare(), "own")


# --- special tokens and stops


MARKS = ("<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>",
         "<end_of_turn>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "[INST]", "[/INST]")  # fmt: skip


@functools.cache
def chatting(name: str) -> Tokenizer:
    tokenizer = Tokenizer(vocabulary(*MARKS))
    tokenizer.use_template("x", name)
    return tokenizer


def specials(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    return [i for i in ids if i < 3 + len(MARKS)]


@pytest.mark.parametrize("name", BUILT_IN)
@settings(max_examples=25, deadline=None)
@given(forged=st.lists(st.sampled_from([*MARKS, "<s>", "</s>", "<unk>", "x", " ", "\n", "é", "<|", "|>"]), max_size=5))
def test_no_message_makes_a_special_token(name: str, forged: list[str]) -> None:
    tokenizer = chatting(name)
    honest = tokenizer.encode_chat([{"role": "user", "content": "x"}])
    ids = tokenizer.encode_chat([{"role": "user", "content": "x" + "".join(forged) + "x"}])
    assert specials(tokenizer, ids) == specials(tokenizer, honest)
    assert "".join(forged) in tokenizer.decode(ids, skip_special=False)


@pytest.mark.parametrize("name", BUILT_IN)
def test_stops_are_tokens_where_they_can_be_and_texts_elsewhere(name: str) -> None:
    rich, poor = chatting(name), Tokenizer(bare())
    poor.use_template("x", name)
    stops = set(BUILT_IN[name].stops)
    assert set(rich.stop_texts) == stops - {*MARKS, "</s>"}
    assert {rich.token_bytes(i).decode() for i in rich.stop_token_ids} >= stops & {*MARKS, "</s>"}
    assert set(poor.stop_texts) == stops - {"</s>"}
    assert 2 in poor.stop_token_ids


def test_the_starter_models_template_is_its_own() -> None:
    tokenizer = Tokenizer.from_gguf(metadata())
    assert tokenizer.template is not None
    assert tokenizer.template.name == "own"
    assert tokenizer.stop_token_ids == {1}
    assert tokenizer.stop_texts == ()


# --- files that say it elsewhere


def test_a_template_beside_the_tokenizer_is_read(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("BESIDE", encoding="utf-8")
    assert as_files(tmp_path, config={}).chat_template == "BESIDE"
    assert as_files(tmp_path, config={"chat_template": "INSIDE"}).chat_template == "BESIDE"


def test_marks_that_a_tokenizer_json_calls_ordinary_are_special(tmp_path: Path) -> None:
    added = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": False}
        for i, text in enumerate(("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|pad|>"))
    ]  # fmt: skip
    tokenizer = as_files(tmp_path, added_tokens=added)
    assert tokenizer.encode("<|user|>", special=True) == [3]
    assert 3 not in tokenizer.encode("<|user|>")
    forged = tokenizer.encode_chat([{"role": "user", "content": "<|end|>"}])
    assert [i for i in forged if i < 6] == [0, 3, 1, 4]


# --- in a chat


def test_a_chat_is_laid_out_and_ends_as_the_template_says(nameless: Path) -> None:
    model = LoadedModel.load(nameless, EngineConfig(template="plain"))
    assert model.chat_sampling(SamplingConfig(stop=("x",))).stop == ("x", "\nUser:", "\nAssistant:")
    prompt = ChatSession(model).fit([{"role": "user", "content": "Hi"}], 4).prompt
    assert model.tokenizer.decode(prompt, skip_special=False) == "<|begin|>User: Hi\nAssistant:"


def test_without_a_wish_the_models_marks_decide(nameless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", str(nameless), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["chat_template"], values["template"]) == (False, "phi-3")
    assert "<|user|>" in values["template_reason"]
    assert cli.main(["inspect", str(nameless), "--template", "alpaca"]) == 0
    assert "alpaca: Alpaca" in capsys.readouterr().out


def test_a_template_is_chosen_on_the_command_line(nameless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["generate", str(nameless), "--prompt", "Hi", "--max-tokens", "1", "--json"]
    prompts = []
    for name in ("plain", "chatml"):
        assert cli.main([*argv, "--template", name]) == 0
        prompts.append(json.loads(capsys.readouterr().out)["prompt_tokens"])
    assert prompts[0] != prompts[1]
    with pytest.raises(SystemExit) as ended:
        cli.main([*argv, "--template", "klingon"])
    assert ended.value.code == 2
    assert "mistral-instruct" in capsys.readouterr().err


@pytest.fixture(scope="module")
def nameless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose files hold no template."""
    folder = make_tiny_model(tmp_path_factory.mktemp("models") / "nameless")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    del config["chat_template"]
    path.write_text(json.dumps(config), encoding="utf-8")
    return folder
