"""What a model is called: general.name and file names as published files have them."""

from __future__ import annotations

import pytest

from engine.model.model_names import model_name

PUBLISHED = [
    # general.name, the file's stem, what a person calls it
    ("Smollm2 135M 8k Lc100K Mix1 Ep2", "SmolLM2-135M-Instruct-Q8_0", "SmolLM2-135M-Instruct"),
    ("Smollm2 1.7B 8k Mix7 Ep2 v2", "SmolLM2-1.7B-Instruct-Q4_K_M", "SmolLM2-1.7B-Instruct"),
    ("47b6801b24d15ff9bcd8c96dfaea0be9ed3a0301", "gemma-4-26B-A4B-it-UD-Q4_K_XL", "gemma-4-26B-A4B-it"),
    ("Meta Llama 3.1 8B Instruct", "Meta-Llama-3.1-8B-Instruct-Q4_K_M", "Meta Llama 3.1 8B Instruct"),
    ("Qwen3 0.6B", "Qwen3-0.6B-Q8_0", "Qwen3 0.6B"),
    ("Qwen3-30B-A3B", "Qwen3-30B-A3B-Q4_K_M-00001-of-00002", "Qwen3-30B-A3B"),
    ("Gemma 3 270m It", "gemma-3-270m-it-F16", "Gemma 3 270m It"),
    ("LLaMA v2", "llama-2-7b-chat.Q4_K_M", "llama-2-7b-chat"),
    ("mistralai_mistral-7b-instruct-v0.2", "mistral-7b-instruct-v0.2.Q5_K_S", "mistralai_mistral-7b-instruct-v0.2"),
    ("Phi3", "Phi-3-mini-4k-instruct-q4", "Phi3"),
    ("gpt-neox-20b", "ggml-vocab-gpt-neox", "gpt-neox-20b"),
    ("model", "tinyllama-1.1b-chat-v1.0.Q2_K", "tinyllama-1.1b-chat-v1.0"),
    ("hf", "prosparse-llama-2-7b.f16", "prosparse-llama-2-7b"),
    ("Checkpoint 1200", "my-finetune-IQ4_XS", "my-finetune"),
    ("/data/models/output", "bamboo-7b-dpo.i1-Q4_K_M", "bamboo-7b-dpo"),
    ("C:\\models\\x", "Falcon3-1B-MXFP4_MOE", "Falcon3-1B"),
    (None, "OLMo-1B-BF16-00001-of-00003", "OLMo-1B"),
    ("", "SmallThinker-4B-A0.6B.Q4_0", "SmallThinker-4B-A0.6B"),
    ("7", "13", "7"),
    ("Dolphin 2.9 Llama 3", "model", "Dolphin 2.9 Llama 3"),
    ("Pip", "starter-chat", "Pip"),
]


@pytest.mark.parametrize(("stated", "stem", "name"), PUBLISHED)
def test_names_of_published_files(stated: str | None, stem: str, name: str) -> None:
    assert model_name({} if stated is None else {"general.name": stated}, stem) == name


def test_the_parts_of_a_name_where_neither_name_says_anything() -> None:
    said = {"general.basename": "smollm2", "general.size_label": "135M", "general.finetune": "Instruct"}
    blob = "sha256-f535f83ec568d040f88ddc04a199fa6da90923bbb41d4dcaed02caa924d6ef57"
    assert model_name({"general.name": "model", **said}, blob) == "smollm2 135M Instruct"
    assert model_name({"general.name": "model"}, blob) == "model"
    assert model_name({"general.name": 7, "general.basename": 3}, "ggml-model-q4_0") == "ggml-model"
