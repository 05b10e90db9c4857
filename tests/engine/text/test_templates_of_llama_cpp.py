"""The chat templates in llama.cpp's source, models/templates/*.jinja: how each has its model think.

HEARTH_LLAMA_CPP as in test_vocabularies_of_llama_cpp.py. Levels and defaults were read in the templates.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.text.chat_template import ChatTemplate
from engine.text.thinking import thinking_of

FILES = sorted(Path(os.environ.get("HEARTH_LLAMA_CPP", "/nowhere"), "models", "templates").glob("*.jinja"))
pytestmark = pytest.mark.skipif(not FILES, reason="HEARTH_LLAMA_CPP names no source of llama.cpp")

ON = (
    "ByteDance-Seed-OSS", "Cohere2MoE", "GLM-4.6", "GLM-4.7-Flash", "HuggingFaceTB-SmolLM3-3B", "MiniMax-M2",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "NVIDIA-Nemotron-Nano-v2", "Qwen-Qwen3-0.6B", "Qwen3.5-4B", "Spark2.5",
    "StepFun3.5-Flash", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "inclusionai-ling-3.0-flash",
    "llama-cpp-deepseek-r1", "poolside-Laguna-S-2.1",
)  # fmt: skip
OFF = (
    "Apertus-8B-Instruct", "Bielik-11B-v3.0-Instruct", "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "Qwen-QwQ-32B", "Reka-Edge", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai-DeepSeek-V3.1",
    "deepseek-ai-DeepSeek-V3.2", "deepseek-ai-DeepSeek-V4", "deepseek-ai-DeepSeek-V4-Flash-0731",
    "google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved", "ibm-granite-granite-3.3-2B-Instruct",
    "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2",
)  # fmt: skip
EXPECTED = {
    **dict.fromkeys(ON, ("off on", "on")),
    **dict.fromkeys(OFF, ("off on", "off")),
    **dict.fromkeys(("MiniMax-M3", "llama-cpp-rwkv-world", "openbmb-MiniCPM5-1B"), ("off on", None)),
    "Kimi-K3": ("off on low high", "on"),
    "muse-glimmer": ("low medium high", "high"),
    "openai-gpt-oss-120b": ("low medium high", "medium"),
    "tencent-Hy3": ("off low high", "off"),
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_levels_of_a_template(file: Path) -> None:
    found = thinking_of(ChatTemplate(file.read_text(encoding="utf-8"), "<s>", "</s>"))
    assert (" ".join(found.levels), found.default) == EXPECTED.get(file.stem, ("", None))


def test_each_named_template_is_there() -> None:
    assert EXPECTED.keys() <= {file.stem for file in FILES}
