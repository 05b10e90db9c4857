"""Gemma 3n, text: four residual streams (AltUp), a low-rank residual (LAuReL), per-layer embeddings, shared keys and
values, and gates of the first layers cut off so that 5 % of the neurons are active. Towers are left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import NormalDist
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families.dense.gemma2 import GEMMA_NAMES
from engine.model.families.varied.gemma4 import GGUF_LAYER_EMBEDDINGS, HF_LAYER_EMBEDDINGS, widths
from engine.model.family.family import Family, windows, windows_from_gguf
from engine.model.family.names import GGUF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal, numbers_by_layer

_PERIOD = 5
_LOCAL_THETA = 10000.0
_SPARSE_LAYERS, _SPARSITY = 10, 0.95  # where config.json is silent
_RANK = 64  # of LAuReL, where files are silent
_SOFTCAP = 30.0
_HF = HF_LAYER_EMBEDDINGS | {
    "stream_in": "model.altup_projections.{}.weight",
    "stream_out": "model.altup_unembed_projections.{}.weight",
    "stream_router_norm": "model.layers.{}.altup.router_norm.weight",
    "stream_router": "model.layers.{}.altup.modality_router.weight",
    "stream_prediction": "model.layers.{}.altup.prediction_coefs.weight",
    "stream_correction": "model.layers.{}.altup.correction_coefs.weight",
    "stream_scale": "model.layers.{}.altup.correct_output_scale",
    "laurel_left": "model.layers.{}.laurel.linear_left.weight",
    "laurel_right": "model.layers.{}.laurel.linear_right.weight",
    "laurel_norm": "model.layers.{}.laurel.post_laurel_norm.weight",
}
_GGUF = GGUF_LAYER_EMBEDDINGS | {
    "stream_in stack": "altup_proj.weight",
    "stream_out stack": "altup_unembd_proj.weight",
    "stream_router_norm": "blk.{}.altup_router_norm.weight",
    "stream_router": "blk.{}.altup_router.weight",
    "stream_prediction": "blk.{}.altup_predict_coef.weight",
    "stream_correction": "blk.{}.altup_correct_coef.weight",
    "stream_scale": "blk.{}.altup_correct_scale.weight",
    "laurel_left": "blk.{}.laurel_l.weight",
    "laurel_right": "blk.{}.laurel_r.weight",
    "laurel_norm": "blk.{}.laurel_post_norm.weight",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    if read.optional("altup_active_idx", int, 0) or read.optional("altup_correct_scale", bool, True) is not True:
        raise UnsupportedModelError(f"{read.where} has another active stream than the first, or none of its scales.")
    n_layers, size = fields["n_layers"], read.optional("sliding_window", int, 512)
    extra = read.optional("hidden_size_per_layer_input", int, 256)
    vocabulary = read.optional("vocab_size_per_layer_input", int, 262144)
    return {
        **widths(numbers_by_layer(read, "intermediate_size", n_layers)),
        "head_dim": read.optional("head_dim", int, 256),
        "n_kv_heads": read.optional("num_key_value_heads", int, 2),
        "windows": windows(read, n_layers, size, lambda layer: (layer + 1) % _PERIOD != 0),
        "rope_theta_local": fields["rope_theta_local"] or _LOCAL_THETA,
        "n_shared_kv_layers": read.optional("num_kv_shared_layers", int, 15),
        "layer_embedding_dim": extra,
        "layer_vocab_size": None if vocabulary >= fields["vocab_size"] else vocabulary,
        "n_streams": read.optional("altup_num_inputs", int, 4),
        "laurel_rank": read.optional("laurel_rank", int, _RANK),
        "gate_cutoffs": _cutoffs(read, n_layers),
        "logit_softcap": read.optional("final_logit_softcapping", float, _SOFTCAP),
        "embedding_scale": math.sqrt(fields["d_model"]),
    }


def _cutoffs(read: Reader, n_layers: int) -> tuple[float, ...]:
    """Return each layer's cut-off from the share of gates below it, if they are normally distributed."""
    sparse = _SPARSE_LAYERS if n_layers > _SPARSE_LAYERS else 0
    usual = [_SPARSITY] * sparse + [0.0] * (n_layers - sparse)
    shares = read.optional("activation_sparsity_pattern", list, usual)
    if len(shares) != n_layers or not all(type(one) in (int, float) and (one == 0 or 0.5 < one < 1) for one in shares):
        raise ModelFormatError(
            f"activation_sparsity_pattern in {read.where} is not a list of {n_layers} shares, each 0 or from 0.5 to 1."
        )
    return _any(tuple(NormalDist().inv_cdf(share) if share else 0.0 for share in shares))


def _any(cutoffs: tuple[float, ...]) -> tuple[float, ...]:
    return cutoffs if any(cutoffs) else ()


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    if read.optional("gemma3n.altup.active_idx", int, 0):
        raise UnsupportedModelError("gemma3n.altup.active_idx is not that of the first stream.")
    n_layers, size = fields["n_layers"], read.required("gemma3n.attention.sliding_window", int)
    factors = read.required("gemma3n.activation_sparsity_scale", list)
    if len(factors) != n_layers or not all(isinstance(one, float) and one < 1e3 for one in factors):
        raise ModelFormatError(f"gemma3n.activation_sparsity_scale is not a list of {n_layers} numbers.")
    return {
        **widths(numbers_by_layer(read, "gemma3n.feed_forward_length", n_layers)),
        "windows": windows_from_gguf(read, "gemma3n", n_layers, size, lambda layer: (layer + 1) % _PERIOD != 0),
        "rope_theta_local": decimal(read.optional("gemma3n.rope.freq_base_swa", float, _LOCAL_THETA)),
        "n_shared_kv_layers": read.required("gemma3n.attention.shared_kv_layers", int),
        "layer_embedding_dim": read.required("gemma3n.embedding_length_per_layer_input", int),
        "n_streams": read.required("gemma3n.altup.num_inputs", int),
        "laurel_rank": _RANK,
        "gate_cutoffs": _any(tuple(0.0 if one == -math.inf else one for one in factors)),
        "logit_softcap": decimal(read.optional("gemma3n.final_logit_softcapping", float, _SOFTCAP)),
        "embedding_scale": math.sqrt(fields["d_model"]),
    }


GEMMA3N = Family(
    name="gemma3n",
    model_types=("gemma3n_text",),
    model_types_with_pictures=("gemma3n",),
    architectures=("gemma3n",),
    hf=Layout(GEMMA_NAMES | _HF),
    gguf=Layout(GGUF_NAMES | _GGUF),
    hf_keys={"hidden_act": "hidden_activation"},
    hf_handles=frozenset({"sliding_window", "final_logit_softcapping"}),
    gguf_handles=frozenset(
        {"attention.sliding_window", "attention.sliding_window_pattern", "attention.shared_kv_layers",
         "rope.freq_base_swa", "embedding_length_per_layer_input", "altup.active_idx", "altup.num_inputs",
         "activation_sparsity_scale", "final_logit_softcapping"}
    ),
    by_layer=frozenset({"intermediate_size", "feed_forward_length"}),
    rope_theta=1e6,
    max_context=32768,
    tied=True,
    activation="gelu_pytorch_tanh",
    gguf_activation="gelu-tanh-glu",
    features={"norms": "both", "qk_norm": True, "v_norm": True, "attention_scale": 1.0},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)  # fmt: skip
