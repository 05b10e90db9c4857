"""OPT, 125M to 175B: learned positions, LayerNorm, biases everywhere, no gate. 350M has post-norms and projections.

llama.cpp does not support it; the GGUF names are PowerInfer's.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_OFFSET = 2  # the position table starts with two padding rows
_NAMES = {
    "embedding": "model.decoder.embed_tokens.weight",
    "positions": "model.decoder.embed_positions.weight",
    "project_in": "model.decoder.project_in.weight",
    "attention_norm": "model.decoder.layers.{}.self_attn_layer_norm.weight",
    "q": "model.decoder.layers.{}.self_attn.q_proj.weight",
    "k": "model.decoder.layers.{}.self_attn.k_proj.weight",
    "v": "model.decoder.layers.{}.self_attn.v_proj.weight",
    "o": "model.decoder.layers.{}.self_attn.out_proj.weight",
    "ffn_norm": "model.decoder.layers.{}.final_layer_norm.weight",
    "up": "model.decoder.layers.{}.fc1.weight",
    "down_t": "model.decoder.layers.{}.fc2.weight",
    "final_norm": "model.decoder.final_layer_norm.weight",
    "project_out": "model.decoder.project_out.weight",
    "head": "lm_head.weight",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    if not read.optional("layer_norm_elementwise_affine", bool, True):
        raise UnsupportedModelError("layer_norm_elementwise_affine is off, which Hearth does not run in opt.")
    before = read.optional("do_layer_norm_before", bool, True)
    width = read.optional("word_embed_proj_dim", int, fields["d_model"])
    biases = ("norm", "q", "k", "v", "o", "up", "down") if read.optional("enable_bias", bool, True) else ("norm",)
    return {
        "norms": "pre" if before else "post",
        "final_norm": before and not read.optional("_remove_final_layer_norm", bool, False),
        "embedding_dim": None if width == fields["d_model"] else width,
        "biases": biases,
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    # The context is stated as the table's length. PowerInfer reuses the embedding as the head.
    return {"max_context": fields["max_context"] - _OFFSET}


OPT = Family(
    name="opt",
    model_types=("opt",),
    architectures=("opt",),
    hf=Layout(_NAMES),
    gguf=Layout(GGUF_NAMES | {"positions": "position_embd.weight"}),
    hf_keys={"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
    gated=False,
    norm_eps=1e-5,
    tied=True,
    gguf_activation="relu",
    powerinfer_activation="relu",
    features={
        "norm": "layer",
        "positions": "learned",
        "position_offset": _OFFSET,
        "biases": ("norm", "q", "k", "v", "o", "up", "down"),
    },
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
