"""Llama 4 (Scout, Maverick), text: attention in chunks, layers without positions, and one expert beside a shared one.

The chosen expert's weight multiplies its input. Every fourth layer has no rotation and sees all positions, and its
queries grow with them. In Maverick, every second layer has one FFN instead of experts. The vision tower is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader
from native_kernels.specs import Temperature

_FFN = "model.layers.{}.feed_forward"
_HF = HF_NAMES | {
    "gate": f"{_FFN}.gate_proj.weight",
    "up": f"{_FFN}.up_proj.weight",
    "down_t": f"{_FFN}.down_proj.weight",
    "router": f"{_FFN}.router.weight",
    "experts.gate_up halves": f"{_FFN}.experts.gate_up_proj",
    "experts.down_t": f"{_FFN}.experts.down_proj",
    "shared.gate": f"{_FFN}.shared_expert.gate_proj.weight",
    "shared.up": f"{_FFN}.shared_expert.up_proj.weight",
    "shared.down_t": f"{_FFN}.shared_expert.down_proj.weight",
}
# Of both published models; GGUF states none of these.
_CHUNK, _INTERVAL, _STRENGTH, _LENGTH = 8192, 4, 0.1, 8192
_WITHOUT_NORM = 128  # experts of the model whose queries and keys are not normed


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    n_layers, width = fields["n_layers"], fields["d_ff"]
    rotated = _rotated(read, n_layers)
    chunk = read.optional("attention_chunk_size", int, _CHUNK)
    in_chunks = ["chunked_attention" if on else "full_attention" for on in rotated]
    kinds = read.optional("layer_types", list, in_chunks)
    if len(kinds) != n_layers or not all(kind in ("chunked_attention", "full_attention") for kind in kinds):
        raise UnsupportedModelError(f"layer_types in {read.where} is not a list of {n_layers} known kinds of layer.")
    grows = read.values.get("attn_temperature_tuning", True)  # older files have a number
    temperature = Temperature(
        read.optional("attn_scale", float, _STRENGTH), read.optional("floor_scale", int, _LENGTH), offset=1
    )
    return {
        **experts_from_hf(read, ("num_local_experts",), "num_experts_per_tok"),
        **_experts(_step(read, n_layers), width, read.optional("intermediate_size_mlp", int, width)),
        "windows": tuple(chunk if kind == "chunked_attention" else 0 for kind in kinds),
        "unrotated": tuple(layer for layer, on in enumerate(rotated) if not on),
        "attention_temperature": temperature if grows else None,
        "qk_norm": read.optional("use_qk_norm", bool, True),
        "head_dim": read.optional("head_dim", int, 128),
    }


def _rotated(read: Reader, n_layers: int) -> list[int]:
    """Return 1 for each layer with rotation, 0 for the others."""
    interval = read.optional("no_rope_layer_interval", int, _INTERVAL)
    if interval < 1:
        raise ModelFormatError(f"no_rope_layer_interval is {interval} in {read.where}; a positive number is needed.")
    rotated = read.optional("no_rope_layers", list, []) or [int((i + 1) % interval > 0) for i in range(n_layers)]
    if len(rotated) != n_layers or not all(type(on) is int and on in (0, 1) for on in rotated):
        raise ModelFormatError(f"no_rope_layers in {read.where} is not a list of {n_layers} ones and zeros.")
    return list(rotated)


def _step(read: Reader, n_layers: int) -> int:
    step = _checked(read.optional("interleave_moe_layer_step", int, 1), n_layers, read)
    listed = read.optional("moe_layers", list, None)
    if listed is not None and listed != list(range(step - 1, n_layers, step)):
        raise UnsupportedModelError(f"moe_layers in {read.where} is not every layer of a number, which Hearth runs.")
    return step


def _checked(step: int, n_layers: int, read: Reader) -> int:
    """Return the distance of layers with experts if some layers have any."""
    if step == 0:
        raise UnsupportedModelError(f"interleave_moe_layer_step is 0 in {read.where}; Hearth runs llama4 with experts.")
    if not 1 <= step <= n_layers:
        raise ModelFormatError(f"interleave_moe_layer_step is {step} in {read.where}, beside {n_layers} layers.")
    return step


def _experts(step: int, width: int, dense: int) -> dict[str, Any]:
    """Return the fields of experts in every so-manyth layer, and an FFN of `dense` neurons in the others."""
    return {
        "experts_every": step,
        "d_ff": width,
        "shared_d_ff": width,
        "dense_d_ff": dense if step > 1 else 0,
        "router": "sigmoid",
        "normed_routing": False,
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    n_layers = fields["n_layers"]
    width = read.required("llama4.expert_feed_forward_length", int)
    own = experts_from_gguf(read, "llama4", "sigmoid", normed=False)
    chunks = read.optional("llama4.attention.sliding_window", int, _CHUNK) != 0
    full = tuple(range(_INTERVAL - 1, n_layers, _INTERVAL)) if chunks else ()
    step = _checked(read.required("llama4.interleave_moe_layer_step", int), n_layers, read)
    return {
        **own,
        **_experts(step, width, fields["d_ff"]),
        "windows": tuple(0 if layer in full else _CHUNK for layer in range(n_layers)) if chunks else (),
        "unrotated": full,
        "attention_temperature": Temperature(_STRENGTH, _LENGTH, offset=1) if chunks else None,
        "qk_norm": own["n_experts"] != _WITHOUT_NORM,
    }


LLAMA4 = Family(
    name="llama4",
    model_types=("llama4_text",),
    model_types_with_pictures=("llama4",),
    architectures=("llama4",),
    hf=Layout(_HF),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS, rope_pairs=True),
    hf_handles=frozenset({"num_local_experts", "attention_chunk_size", "no_rope_layers", "layer_types", "use_qk_norm"}),
    gguf_handles=GGUF_EXPERT_KEYS | {"interleave_moe_layer_step", "attention.sliding_window"},
    norm_eps=1e-5,
    rope_theta=500000.0,
    max_context=131072,
    activation="silu",
    experts=True,
    features={
        "rope_order": "interleaved",
        "qk_norm_after": True,
        "qk_norm_plain": True,
        "chunked_windows": True,
        "temperature_of_unrotated": True,
        "weighed_inputs": True,
        "shared_gated": False,
    },
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
