"""Nomic Embed Text 1 and 1.5: BERT with rotary positions, a gated FFN, and biases in the norms alone.

config.json has the keys of the authors' code, or those of transformers 5.
"""

from __future__ import annotations

from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.families.encoders.bert import ENCODER, ENCODER_GGUF_NAMES, encoder_from_gguf
from engine.model.family.family import Family
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_LAYER = "encoder.layers.{}."
_HF = {
    "embedding": "embeddings.word_embeddings.weight",
    "token_types": "embeddings.token_type_embeddings.weight",
    "input_norm": "emb_ln.weight",
    "qkv": f"{_LAYER}attn.Wqkv.weight",
    "o": f"{_LAYER}attn.out_proj.weight",
    "attention_norm": f"{_LAYER}norm1.weight",
    "up": f"{_LAYER}mlp.fc11.weight",
    "gate": f"{_LAYER}mlp.fc12.weight",
    "down_t": f"{_LAYER}mlp.fc2.weight",
    "ffn_norm": f"{_LAYER}norm2.weight",
    "head": "cls.predictions.decoder.weight",
}
_MUST_BE: dict[str, Any] = {"prenorm": False, "causal": False, "qkv_proj_bias": False, "mlp_fc1_bias": False,
                            "mlp_fc2_bias": False, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
                            "activation_function": "swiglu"}  # fmt: skip


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    for key, value in _MUST_BE.items():
        if (found := read.optional(key, type(value), value)) != value:
            raise UnsupportedModelError(f"{key} is {str(found)[:60]} in {read.where}, which Hearth does not run.")
    return {
        "token_types": read.optional("type_vocab_size", int, 0),
        "norm_eps": read.optional("layer_norm_epsilon", float, fields["norm_eps"]),
        "max_context": min(fields["max_context"], read.optional("max_trained_positions", int, 2048)),
        "rope_theta": read.optional("rotary_emb_base", float, fields["rope_theta"]),
    }


NOMIC_BERT = Family(
    name="nomic_bert",
    model_types=("nomic_bert",),
    architectures=("nomic-bert",),
    hf=Layout(_HF),
    gguf=Layout(ENCODER_GGUF_NAMES),
    hf_keys={"num_attention_heads": "n_head", "hidden_size": "n_embd", "num_hidden_layers": "n_layer",
             "intermediate_size": "n_inner", "rms_norm_eps": "layer_norm_eps"},
    hf_has_both=True,
    gguf_handles=frozenset({"pooling_type"}),
    norm_eps=1e-12,
    rope_theta=1000.0,
    max_context=2048,
    activation="silu",
    features={**ENCODER, "biases": ("norm",)},
    from_hf=_from_hf,
    from_gguf=encoder_from_gguf,
)  # fmt: skip
