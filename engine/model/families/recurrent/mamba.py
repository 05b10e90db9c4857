"""Read the Mamba-2 layers of a model, from keys and names that several families share."""

from __future__ import annotations

import math
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families.recurrent.delta_nets import GGUF_DELTA
from engine.model.family.reading import Reader
from native_kernels.specs import DeltaSpec

GGUF_MAMBA_KEYS = frozenset(
    {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"}
)
GGUF_MAMBA = GGUF_DELTA | {
    "delta.in": "blk.{}.ssm_in.weight",
    "delta.skip": "blk.{}.ssm_d",
    "ffn_norm": "blk.{}.ffn_norm.weight",
}


def hf_mamba(module: str) -> dict[str, str]:
    """Return the names in Hugging Face's format. module: the Mamba-2 module's, with "{}" for the layer."""
    parts = {
        "in": "in_proj.weight", "alpha_bias": "dt", "decay": "A_log", "skip": "D", "conv": "conv1d.weight",
        "head_norm": "norm.weight", "o": "out_proj.weight",
    }  # fmt: skip
    return {f"delta.{part}": f"{module}.{name}" for part, name in parts.items()}


def mamba_from_gguf(read: Reader, arch: str, layers: tuple[int, ...], epsilon: float | None = None) -> dict[str, Any]:
    """Return the fields of ModelConfig for the Mamba-2 layers. epsilon: DeltaSpec's."""
    heads, inner = read.required(f"{arch}.ssm.time_step_rank", int), read.required(f"{arch}.ssm.inner_size", int)
    if heads < 1 or inner % heads:
        raise ModelFormatError(f"{arch}.ssm.inner_size is {inner}, which {heads} heads cannot share.")
    groups = read.required(f"{arch}.ssm.group_count", int)
    spec = DeltaSpec(
        key_heads=groups,
        value_heads=heads,
        key_dim=read.required(f"{arch}.ssm.state_size", int),
        value_dim=inner // heads,
        conv_width=read.required(f"{arch}.ssm.conv_kernel", int),
        mamba=True,
        norm_groups=groups,
        conv_bias=True,
        epsilon=epsilon,
    )
    return with_mamba(spec, layers)


def with_mamba(spec: DeltaSpec, layers: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of a model in which these layers are Mamba-2; of one without such layers, no spec."""
    return {"delta": spec if layers else None, "delta_layers": layers}


def refuse_limits(read: Reader) -> None:
    """Raise UnsupportedModelError if config.json limits the time steps of Mamba-2."""
    limits = read.optional("time_step_limit", list, [0.0, math.inf])
    low, high = (limits[0], limits[-1]) if limits else (None, None)
    high = high.get("__float__") if isinstance(high, dict) else high  # as transformers writes infinity
    if low != 0 or high not in (math.inf, "Infinity"):
        raise UnsupportedModelError(
            f"time_step_limit is {str(limits)[:60]} in {read.where}, which Hearth does not run."
        )
