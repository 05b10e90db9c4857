"""All model families."""

from __future__ import annotations

from engine.model.families.bamboo import BAMBOO
from engine.model.families.cohere import COHERE, COHERE2
from engine.model.families.ernie4_5 import ERNIE4_5
from engine.model.families.exaone4 import EXAONE4
from engine.model.families.falcon import FALCON
from engine.model.families.family import Family
from engine.model.families.gemma2 import GEMMA2
from engine.model.families.gemma3 import GEMMA3
from engine.model.families.glm4 import GLM4
from engine.model.families.glm4_moe import GLM4_MOE
from engine.model.families.gpt_oss import GPT_OSS
from engine.model.families.granite import GRANITE
from engine.model.families.llama import LLAMA
from engine.model.families.minimax_m2 import MINIMAX_M2
from engine.model.families.mistral import MISTRAL
from engine.model.families.mixtral import MIXTRAL
from engine.model.families.olmo2 import OLMO2
from engine.model.families.opt import OPT
from engine.model.families.phi3 import PHI3
from engine.model.families.qwen2 import QWEN2
from engine.model.families.qwen2_moe import QWEN2_MOE
from engine.model.families.qwen3 import QWEN3
from engine.model.families.qwen3_moe import QWEN3_MOE
from engine.model.families.seed_oss import SEED_OSS
from engine.model.families.smallthinker import SMALLTHINKER
from engine.model.families.smollm3 import SMOLLM3

FAMILIES: tuple[Family, ...] = (
    LLAMA, MISTRAL, BAMBOO, OPT, FALCON, QWEN2, QWEN3, GEMMA2, GEMMA3, PHI3,
    GLM4, SMOLLM3, SEED_OSS, ERNIE4_5, GRANITE, COHERE, COHERE2, OLMO2, EXAONE4,
    MIXTRAL, QWEN2_MOE, QWEN3_MOE, GLM4_MOE, MINIMAX_M2, SMALLTHINKER, GPT_OSS,
)  # fmt: skip
