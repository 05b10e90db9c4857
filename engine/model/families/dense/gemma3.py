"""Gemma 3, text: Gemma 2 without caps, with norms on q and k; one layer in six has full attention, the others a window.

Layers with a window have their own RoPE base. Multimodal models are refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from engine.model.families.dense.gemma2 import GEMMA_NAMES, gguf_attention_scale, hf_attention_scale
from engine.model.family.family import Family, windows, windows_from_gguf
from engine.model.family.names import GGUF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal

_LAYERS_OF_27B = 62
_LOCAL_THETA = 10000.0


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    size = read.optional("sliding_window", int, 4096)
    period = read.optional("sliding_window_pattern", int, read.optional("_sliding_window_pattern", int, 6))
    return {
        "windows": windows(read, fields["n_layers"], size, lambda layer: (layer + 1) % max(1, period) != 0),
        "rope_theta_local": fields["rope_theta_local"] or _LOCAL_THETA,
        "attention_scale": hf_attention_scale(read),
        "attention_softcap": read.optional("attn_logit_softcapping", float, None),
        "logit_softcap": read.optional("final_logit_softcapping", float, None),
        "embedding_scale": math.sqrt(fields["d_model"]),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    size = read.required("gemma3.attention.sliding_window", int)
    softcap = read.optional("gemma3.final_logit_softcapping", float, 0.0)
    return {
        "windows": windows_from_gguf(read, "gemma3", fields["n_layers"], size, lambda layer: (layer + 1) % 6 != 0),
        "rope_theta_local": decimal(read.optional("gemma3.rope.freq_base_swa", float, _LOCAL_THETA)),
        "attention_scale": gguf_attention_scale(fields, _LAYERS_OF_27B),
        "logit_softcap": decimal(softcap) or None,
        "embedding_scale": math.sqrt(fields["d_model"]),
    }


GEMMA3 = Family(
    name="gemma3",
    model_types=("gemma3_text",),
    model_types_with_pictures=("gemma3",),
    architectures=("gemma3",),
    hf=Layout(GEMMA_NAMES, plus_one=True),
    gguf=Layout(GGUF_NAMES),
    hf_keys={"hidden_act": "hidden_activation"},
    hf_defaults={  # which the published files of 4B to 27B omit
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "bos_token_id": 2, "eos_token_id": 1,
    },
    hf_handles=frozenset(
        {"sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}
    ),
    gguf_handles=frozenset(
        {
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "final_logit_softcapping",
            "rope.freq_base_swa",
        }
    ),
    rope_theta=1e6,
    max_context=131072,
    tied=True,
    activation="gelu_pytorch_tanh",
    gguf_activation="gelu-tanh-glu",
    features={"norms": "both", "qk_norm": True},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)  # fmt: skip
