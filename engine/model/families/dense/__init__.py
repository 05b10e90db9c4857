"""Families whose models are dense: every token passes all neurons."""

from __future__ import annotations

from engine.model.families.dense.bamboo import BAMBOO
from engine.model.families.dense.cohere import COHERE, COHERE2
from engine.model.families.dense.ernie4_5 import ERNIE4_5
from engine.model.families.dense.exaone4 import EXAONE4
from engine.model.families.dense.falcon import FALCON
from engine.model.families.dense.gemma2 import GEMMA2
from engine.model.families.dense.gemma3 import GEMMA3
from engine.model.families.dense.glm4 import GLM4
from engine.model.families.dense.granite import GRANITE
from engine.model.families.dense.hunyuan import HUNYUAN
from engine.model.families.dense.llama import LLAMA
from engine.model.families.dense.mistral import MINISTRAL3, MISTRAL
from engine.model.families.dense.olmo2 import OLMO2
from engine.model.families.dense.opt import OPT
from engine.model.families.dense.phi3 import PHI3
from engine.model.families.dense.qwen2 import QWEN2
from engine.model.families.dense.qwen3 import QWEN3
from engine.model.families.dense.seed_oss import SEED_OSS
from engine.model.families.dense.smollm3 import SMOLLM3
from engine.model.family.family import Family

DENSE: tuple[Family, ...] = (
    LLAMA, MISTRAL, BAMBOO, OPT, FALCON, QWEN2, QWEN3, GEMMA2, GEMMA3, PHI3, GLM4, SMOLLM3,
    SEED_OSS, ERNIE4_5, GRANITE, COHERE, COHERE2, OLMO2, EXAONE4, MINISTRAL3, HUNYUAN,
)  # fmt: skip
