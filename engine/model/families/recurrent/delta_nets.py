"""Read the gated delta nets of a model, from keys and names that Qwen3-Next and its successors share."""

from __future__ import annotations

from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.family.names import GGUF_NAMES
from engine.model.family.reading import Reader
from engine.model.family.rope import rotary_dim_from_hf
from native_kernels.specs import DeltaSpec, HeadOrder

_PERIOD = 4  # every fourth layer has attention
_SHARE = 0.25  # of a head is rotated

# config.json's keys that change the graph, and GGUF's, that these readers implement.
HF_DELTA_KEYS = frozenset({"layer_types", "partial_rotary_factor", "attention_bias"})
GGUF_DELTA_KEYS = frozenset(
    {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size",
     "full_attention_interval", "attention.recurrent_layers", "rope.dimension_sections", "nextn_predict_layers"}
)  # fmt: skip

_OF_LAYER = "model.layers.{}.linear_attn."
HF_DELTA = {
    "delta.alpha_bias": f"{_OF_LAYER}dt",  # the tensor is dt_bias
    "delta.decay": f"{_OF_LAYER}A_log",
    "delta.conv": f"{_OF_LAYER}conv1d.weight",
    "delta.head_norm": f"{_OF_LAYER}norm.weight",
    "delta.o": f"{_OF_LAYER}out_proj.weight",
}
GGUF_DELTA = GGUF_NAMES | {
    "ffn_norm": "blk.{}.post_attention_norm.weight",
    "delta.qkv": "blk.{}.attn_qkv.weight",
    "delta.attention_gate": "blk.{}.attn_gate.weight",
    "delta.alpha_bias": "blk.{}.ssm_dt.weight",  # the tensor is ssm_dt.bias
    "delta.decay": "blk.{}.ssm_a",
    "delta.conv": "blk.{}.ssm_conv1d.weight",
    "delta.head_norm": "blk.{}.ssm_norm.weight",
    "delta.o": "blk.{}.ssm_out.weight",
}


def delta_from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of ModelConfig for the delta nets, the gate of attention and the rotated share of a head."""
    if read.optional("attn_output_gate", bool, True) is not True or read.optional("attention_bias", bool, False):
        raise UnsupportedModelError(
            f"{read.where} names attention without a gate or with biases, which Hearth does not run."
        )
    n_layers, period = fields["n_layers"], read.optional("full_attention_interval", int, _PERIOD)
    kinds = read.optional("layer_types", list, None)
    if kinds is None:
        layers = _all_but_each(period, n_layers, read)
    elif len(kinds) == n_layers and set(map(str, kinds)) <= {"full_attention", "linear_attention"}:
        layers = tuple(i for i, kind in enumerate(kinds) if kind == "linear_attention")
    else:
        raise UnsupportedModelError(f"layer_types in {read.where} is not a list of {n_layers} known kinds of layer.")
    spec = DeltaSpec(
        key_heads=read.optional("linear_num_key_heads", int, 16),
        value_heads=read.optional("linear_num_value_heads", int, 32),
        key_dim=read.optional("linear_key_head_dim", int, 128),
        value_dim=read.optional("linear_value_head_dim", int, 128),
        conv_width=read.optional("linear_conv_kernel_dim", int, 4),
    )
    head_dim = read.optional("head_dim", int, 256)
    return {**_with(spec, layers), "head_dim": head_dim, "rotary_dim": rotary_dim_from_hf(read, head_dim, _SHARE)}


def delta_from_gguf(read: Reader, arch: str, fields: dict[str, Any], order: HeadOrder) -> dict[str, Any]:
    """Return the same from GGUF keys. order: of value heads, which llama.cpp's converter changes in some families."""
    heads, inner = read.required(f"{arch}.ssm.time_step_rank", int), read.required(f"{arch}.ssm.inner_size", int)
    if heads < 1 or inner % heads:
        raise ModelFormatError(f"{arch}.ssm.inner_size is {inner}, which {heads} heads cannot share.")
    n_layers = fields["n_layers"] - read.optional(f"{arch}.nextn_predict_layers", int, 0)
    kinds = read.optional(f"{arch}.attention.recurrent_layers", list, None)  # also of the layers that draft tokens
    if kinds is None:
        layers = _all_but_each(read.optional(f"{arch}.full_attention_interval", int, _PERIOD), n_layers, read)
    elif len(kinds) == fields["n_layers"] and all(isinstance(kind, bool) for kind in kinds):
        layers = tuple(i for i, recurrent in enumerate(kinds[:n_layers]) if recurrent)
    else:
        raise ModelFormatError(f"{arch}.attention.recurrent_layers is not a list of {fields['n_layers']} truth values.")
    spec = DeltaSpec(
        key_heads=read.required(f"{arch}.ssm.group_count", int),
        value_heads=heads,
        key_dim=read.required(f"{arch}.ssm.state_size", int),
        value_dim=inner // heads,
        conv_width=read.required(f"{arch}.ssm.conv_kernel", int),
        order=order,
    )
    return {**_with(spec, layers), "n_layers": n_layers}


def _with(spec: DeltaSpec, layers: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of a model in which these layers have a delta net; of one without such layers, no spec."""
    return {"delta": spec if layers else None, "delta_layers": layers}


def _all_but_each(period: int, n_layers: int, read: Reader) -> tuple[int, ...]:
    if period < 1:
        raise ModelFormatError(f"full_attention_interval is {period} in {read.where}; at least 1 is needed.")
    return tuple(i for i in range(n_layers) if (i + 1) % period)
