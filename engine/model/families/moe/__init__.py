"""Families whose models have experts (MoE): a router sends each token to a few of them."""

from __future__ import annotations

from engine.model.families.moe.deepseek import DEEPSEEK2, MISTRAL4
from engine.model.families.moe.glm4_moe import GLM4_MOE
from engine.model.families.moe.gpt_oss import GPT_OSS
from engine.model.families.moe.hunyuan_moe import HUNYUAN_MOE
from engine.model.families.moe.llama4 import LLAMA4
from engine.model.families.moe.minimax_m2 import MINIMAX_M2
from engine.model.families.moe.mixtral import MIXTRAL
from engine.model.families.moe.phimoe import PHIMOE
from engine.model.families.moe.qwen2_moe import QWEN2_MOE
from engine.model.families.moe.qwen3_moe import QWEN3_MOE
from engine.model.families.moe.smallthinker import SMALLTHINKER
from engine.model.family.family import Family

MOE: tuple[Family, ...] = (
    MIXTRAL, QWEN2_MOE, QWEN3_MOE, GLM4_MOE, MINIMAX_M2, SMALLTHINKER, GPT_OSS, DEEPSEEK2, MISTRAL4, HUNYUAN_MOE,
    PHIMOE, LLAMA4,
)  # fmt: skip
