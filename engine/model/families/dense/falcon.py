"""Falcon 7B (one key-value head, one norm), 40B and 180B (groups of heads, two norms), with GELU or ReLU.

Attention and FFN run in parallel; the FFN has no gate. ALiBi positions and sequential blocks are refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, fused
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_NAMES = {
    "embedding": "transformer.word_embeddings.weight",
    "shared_norm": "transformer.h.{}.input_layernorm.weight",
    "attention_norm": "transformer.h.{}.ln_attn.weight",
    "ffn_norm": "transformer.h.{}.ln_mlp.weight",
    "qkv": "transformer.h.{}.self_attention.query_key_value.weight",
    "o": "transformer.h.{}.self_attention.dense.weight",
    "up": "transformer.h.{}.mlp.dense_h_to_4h.weight",
    "down_t": "transformer.h.{}.mlp.dense_4h_to_h.weight",
    "final_norm": "transformer.ln_f.weight",
    "head": "lm_head.weight",
}
_GGUF_NAMES = fused(
    GGUF_NAMES,
    qkv="blk.{}.attn_qkv.weight",
    shared_norm="blk.{}.attn_norm.weight",
    attention_norm="blk.{}.attn_norm_2.weight",  # with two norms, the first name belongs to the FFN's norm
    ffn_norm="blk.{}.attn_norm.weight",
)


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    new = read.optional("new_decoder_architecture", bool, False)
    if read.optional("alibi", bool, False):
        raise UnsupportedModelError("alibi is on in config.json: ALiBi positions are not supported.")
    if not new and not read.optional("parallel_attn", bool, True):
        raise UnsupportedModelError("parallel_attn is off in config.json; Hearth runs Falcon's parallel blocks.")
    n_kv_heads = fields["n_kv_heads"]
    if not new and read.optional("multi_query", bool, True):
        n_kv_heads = 1
    n_norms = read.optional("num_ln_in_parallel_attn", int, 2 if new else 1)
    ffn = fields["d_ff"] or 4 * fields["d_model"]
    biases = ("q", "k", "v", "o", "up", "down") if read.optional("bias", bool, False) else ()
    return {"n_kv_heads": n_kv_heads, "d_ff": ffn, "shared_norm": not new or n_norms == 1, "biases": ("norm", *biases)}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {"shared_norm": "blk.0.attn_norm_2.weight" not in names}


FALCON = Family(
    name="falcon",
    model_types=("falcon",),
    architectures=("falcon",),
    hf=Layout(_NAMES, qkv_by_kv_head=True),
    gguf=Layout(_GGUF_NAMES),
    hf_keys={
        "num_key_value_heads": "num_kv_heads",
        "rms_norm_eps": "layer_norm_epsilon",
        "intermediate_size": "ffn_hidden_size",
        "hidden_act": "activation",
    },
    hf_handles=frozenset({"alibi", "parallel_attn"}),
    gated=False,
    norm_eps=1e-5,
    tied=True,
    activation="gelu",
    gguf_activation="gelu",
    powerinfer_activation="relu",
    features={"norm": "layer", "parallel": True, "biases": ("norm",)},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
