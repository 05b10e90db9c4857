"""BERT and XLM-RoBERTa: multilingual E5, BGE, MiniLM, GTE, Arctic Embed. Positions are learned.

In GGUF files both are the architecture `bert`, and the position table begins with position 0.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

ENCODER_GGUF_NAMES = GGUF_NAMES | {
    "token_types": "token_types.weight",
    "input_norm": "token_embd_norm.weight",
    "attention_norm": "blk.{}.attn_output_norm.weight",
    "ffn_norm": "blk.{}.layer_output_norm.weight",
}
ENCODER: dict[str, Any] = {"norm": "layer", "norms": "post", "final_norm": False, "input_norm": True, "causal": False,
                           "tied_embeddings": True}  # fmt: skip


def _names(outer: str, head: str) -> dict[str, str]:
    layer = f"{outer}.encoder.layer.{{}}."
    return {
        "embedding": f"{outer}.embeddings.word_embeddings.weight",
        "positions": f"{outer}.embeddings.position_embeddings.weight",
        "token_types": f"{outer}.embeddings.token_type_embeddings.weight",
        "input_norm": f"{outer}.embeddings.LayerNorm.weight",
        "q": f"{layer}attention.self.query.weight",
        "k": f"{layer}attention.self.key.weight",
        "v": f"{layer}attention.self.value.weight",
        "o": f"{layer}attention.output.dense.weight",
        "attention_norm": f"{layer}attention.output.LayerNorm.weight",
        "up": f"{layer}intermediate.dense.weight",
        "down_t": f"{layer}output.dense.weight",
        "ffn_norm": f"{layer}output.LayerNorm.weight",
        "head": head,
    }


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    kind = read.optional("position_embedding_type", str, "absolute")
    if kind != "absolute" or read.optional("is_decoder", bool, False):
        what = "is_decoder is true" if kind == "absolute" else f"position_embedding_type is {kind[:60]}"
        raise UnsupportedModelError(f"{what} in {read.where}, which Hearth does not run in {fields['family']}.")
    return {"token_types": read.optional("type_vocab_size", int, 2)}


def _from_hf_roberta(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    offset = read.optional("pad_token_id", int, 1) + 1  # the table begins with rows for padding
    return {**_from_hf(read, fields), "position_offset": offset, "max_context": fields["max_context"] - offset}


def encoder_from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return what GGUF files of encoders state in common."""
    n_types = read.optional("tokenizer.ggml.token_type_count", int, 0)
    return {"token_types": n_types if "token_types.weight" in names else 0}


_BIASES = ("norm", "q", "k", "v", "o", "up", "down")
_FEATURES = {**ENCODER, "positions": "learned", "biases": _BIASES}

BERT = Family(
    name="bert",
    model_types=("bert",),
    architectures=("bert",),
    hf=Layout(_names("bert", "cls.predictions.decoder.weight")),
    gguf=Layout(ENCODER_GGUF_NAMES | {"positions": "position_embd.weight"}),
    hf_keys={"rms_norm_eps": "layer_norm_eps"},
    gguf_handles=frozenset({"pooling_type"}),
    gated=False,
    norm_eps=1e-12,
    max_context=512,
    activation="gelu",
    gguf_activation="gelu",
    features=_FEATURES,
    from_hf=_from_hf,
    from_gguf=encoder_from_gguf,
)
XLM_ROBERTA = Family(
    name="xlm_roberta",
    model_types=("xlm-roberta",),
    hf=Layout(_names("roberta", "lm_head.decoder.weight")),
    hf_keys={"rms_norm_eps": "layer_norm_eps"},
    gated=False,
    norm_eps=1e-5,
    max_context=514,
    activation="gelu",
    features=_FEATURES,
    from_hf=_from_hf_roberta,
)
