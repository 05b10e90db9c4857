"""The codec of each tensor in a model's files, by the name of their mixture ("Q4_K_M") and the tensor's name in them.

llama.cpp's mixtures give more bits to the head and to some values and down projections. They go by the names in GGUF
files, not by ours. Other programs mix differently under the same names; sizes of their files differ by some per cent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.config import ModelConfig
from engine.errors import UnsupportedModelError
from engine.library.records import ModelFormat
from engine.model.families import PlannedTensor, split_expert_name
from native_kernels.codecs import CODECS

_MIXTURE = re.compile(r"(q[2-6]_k)_(xs|s|m|l|xl)")
# What llama.cpp uses for a row that is not a multiple of 256 columns.
_NARROWER = {
    "q2_k": "q4_0", "q3_k": "q4_0", "iq4_xs": "iq4_nl", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
}  # fmt: skip
_FLOATS = ("f32", "f16", "bf16")
# Matrices that converters keep in 32 bits, and those that quantising leaves as they were, in 16 bits.
_IN_32_BITS = ("ffn_gate_inp.weight", "ssm_conv1d.weight", "shortconv.conv.weight", "altup_correct_coef.weight",
               "altup_predict_coef.weight", "altup_router.weight")  # fmt: skip
_IN_16_BITS = ("altup", "laurel", "per_layer_model_proj")
# The head, and the embeddings if the head is one of them. Files of Gemma 3n are older than the rule for the last.
_OF_HEAD = ("output.weight", "token_embd.weight", "per_layer_token_embd.weight")
_NOT_OF_HEAD = {"gemma3n": ("per_layer_token_embd.weight",)}
_VALUES = ("attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight")
_MORE_BITS = {"q4_k_m": "q6_k", "q5_k_m": "q6_k"}
_LLAMA_70B_LAYERS = 80
_EIGHT_EXPERTS = {"attn_v.weight": "q8_0", "attn_k.weight": "q8_0", "attn_output.weight": "q5_k"}


def main_codec(name: str) -> str:
    """Return the codec of most weights of a file named Q4_K_M, Q8_0 and the like.

    Raises: UnsupportedModelError if Hearth cannot read it.
    """
    plain = name.lower()
    if found := _MIXTURE.fullmatch(plain):
        plain = found[1]
    if plain not in CODECS:
        raise UnsupportedModelError(f"Hearth reads no weights of the kind {name[:40]!r}.")
    return plain


def fitting(codec: str, cols: int) -> str:
    """Return the codec, or a replacement if a row is not a multiple of its block."""
    if cols % CODECS[codec].block_size == 0:
        return codec
    narrower = _NARROWER.get(codec, "f16")
    return narrower if cols % CODECS[narrower].block_size == 0 else "f16"


def codecs_of(plan: Sequence[PlannedTensor], codec: str, config: ModelConfig, layout: ModelFormat) -> list[str]:
    """Return the codec of each matrix of the plan. Vectors are f32 in any file."""
    if layout == "gguf":
        return _in_gguf(plan, codec.lower(), config)
    own = main_codec(codec)
    keeps_exact = layout != "safetensors"
    return ["f32" if tensor.is_vector or (keeps_exact and tensor.is_exact) else own for tensor in plan]


def _in_gguf(plan: Sequence[PlannedTensor], mixture: str, config: ModelConfig) -> list[str]:
    values = [name for name in dict.fromkeys(one.foreign_name for one in plan) if name.endswith(_VALUES)]
    ordinals = {name: i for i, name in enumerate(name for name in values if not name.endswith("attn_qkv.weight"))}
    downs = [name for name in dict.fromkeys(one.foreign_name for one in plan) if ".ffn_down." in name]
    if not config.n_experts:  # otherwise a down projection counts by its layer
        ordinals |= {name: i for i, name in enumerate(downs)}
    found: dict[str, str] = {}
    for tensor in plan:
        name = tensor.foreign_name
        if name not in found:
            found[name] = _codec_of(tensor, mixture, config, ordinals.get(name), len(values))
    return [found[tensor.foreign_name] for tensor in plan]


def _codec_of(tensor: PlannedTensor, mixture: str, config: ModelConfig, ordinal: int | None, n_values: int) -> str:
    """ordinal: of the tensor among those of its kind, if it is counted so. n_values: tensors that make values."""
    name, own = tensor.foreign_name, main_codec(mixture)
    if tensor.is_vector or name.endswith(_IN_32_BITS):
        return "f32"
    if own in _FLOATS:
        return own
    if any(part in name for part in _IN_16_BITS):
        return "f16"
    if own == "mxfp4":  # of experts alone
        return own if is_routed(tensor, config) else "q8_0"
    if name in _OF_HEAD[: None if config.tied_embeddings else 1] and name not in _NOT_OF_HEAD.get(config.family, ()):
        return own if own == "q8_0" else "q6_k"
    if not _MIXTURE.fullmatch(mixture):
        return own
    part = name.split(".", 2)[-1]
    if config.n_experts == 8 and part in _EIGHT_EXPERTS:
        return _EIGHT_EXPERTS[part]
    if part == "attn_qkv.weight":
        return {"q4_k_m": "q5_k", "q5_k_m": "q6_k"}.get(mixture, own)
    if part in _VALUES:
        return _of_values(mixture, config, ordinal or 0, n_values)
    if part.startswith("ffn_down"):
        layer = int(name.split(".")[1]) if ordinal is None else ordinal
        if mixture == "q4_k_s":
            return "q5_k" if layer < config.n_layers // 8 else own
        return _MORE_BITS.get(mixture, own) if _has_more_bits(layer, config.n_layers) else own
    return own


def _of_values(mixture: str, config: ModelConfig, i: int, n: int) -> str:
    own = main_codec(mixture)
    if mixture == "q4_k_s" and i < 4:
        return "q5_k"
    chosen = _MORE_BITS.get(mixture, own) if _has_more_bits(i, n) else own
    return "q5_k" if chosen == "q4_k" and config.n_layers == _LLAMA_70B_LAYERS else chosen


def _has_more_bits(i: int, n: int) -> bool:
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def is_routed(tensor: PlannedTensor, config: ModelConfig) -> bool:
    """Return whether it belongs to an expert that the router selects, not to a shared expert or a dense layer."""
    return tensor.of_expert and split_expert_name(tensor.name)[1] < config.n_experts
