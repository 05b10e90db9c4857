"""List the tensors of layers with a recurrent state: gated delta nets, Mamba-2, short convolutions. Part of plan.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from native_kernels.specs import DeltaSpec, ShortConvSpec

if TYPE_CHECKING:
    from engine.model.family.plan import Plan, Treatment


def add_recurrent(plan: Plan, layer: int) -> None:
    delta, conv = plan.config.delta, plan.config.short_conv
    if delta is not None:
        (_add_mamba if delta.mamba else _add_delta)(plan, layer, delta)
    elif conv is not None:
        _add_short_conv(plan, layer, conv)


def _add_short_conv(plan: Plan, layer: int, spec: ShortConvSpec) -> None:
    n, width = spec.channels, spec.conv_width
    if "delta.in" in plan.layout.names:
        plan.add_fused(layer, "delta.in", {"k": n, "q": n, "v": n}, 1)
    else:
        _add_own(plan, layer, dict.fromkeys(("q", "k", "v"), (n, n)))
    key = "delta.conv" if "delta.conv" in plan.layout.names else "conv"
    shape = (n, 1, width) if plan.layout.as_trained else (n, width)
    plan.add("conv", shape, layer=layer, key=key, treatment="flat")
    _add_own(plan, layer, {"o": (n, n)})


def _add_delta(plan: Plan, layer: int, spec: DeltaSpec) -> None:
    """Add the tensors of a gated delta net."""
    names, d = plan.layout.names, plan.config.d_model
    rows = {"q": spec.key_width, "k": spec.key_width, "v": spec.value_width}
    with_gate, mixing = {**rows, "attention_gate": spec.value_width}, {"beta": spec.value_heads}
    mixing["alpha"] = spec.value_heads
    fused = names.get("delta.qkvz", "").format(layer)
    if fused and (fused in plan.present or "delta.qkv" not in names):
        plan.add_fused(layer, "delta.qkvz", with_gate, spec.key_heads)
    elif "delta.qkv" in names:
        plan.add_fused(layer, "delta.qkv", rows, 1)
        _add_own(plan, layer, {"attention_gate": (spec.value_width, d)})
    else:
        _add_own(plan, layer, {name: (n, d) for name, n in with_gate.items()})
    if "delta.ba" in names:
        plan.add_fused(layer, "delta.ba", mixing, spec.key_heads)
    else:
        _add_own(plan, layer, {name: (n, d) for name, n in mixing.items()})
    _add_convolution(plan, layer, spec)
    _add_own(plan, layer, {"head_norm": (spec.value_dim,), "o": (d, spec.value_width)})


def _add_mamba(plan: Plan, layer: int, spec: DeltaSpec) -> None:
    names, heads, d = plan.layout.names, spec.value_heads, plan.config.d_model
    rows = {"attention_gate": spec.value_width, "v": spec.value_width, "k": spec.key_width, "q": spec.key_width}
    rows["alpha"] = heads
    if "delta.in" in names:
        plan.add_fused(layer, "delta.in", rows, 1)
    else:
        _add_own(plan, layer, {name: (n, d) for name, n in rows.items()})
    _add_convolution(plan, layer, spec)
    columns = plan.layout.mamba_columns
    of_norm = (spec.norm_groups, spec.value_width // spec.norm_groups) if columns else (spec.value_width,)
    for name, shape in (("skip", (heads, 1) if columns else (heads,)), ("head_norm", of_norm)):
        key = f"delta.{name}" if f"delta.{name}" in names else name
        plan.add(name, shape, layer=layer, key=key, treatment="flat" if columns else "as is")
    _add_own(plan, layer, {"o": (d, spec.value_width)})


def _add_convolution(plan: Plan, layer: int, spec: DeltaSpec) -> None:
    """Add the convolution, and how a state decays."""
    names, trained, columns = plan.layout.names, plan.layout.as_trained, plan.layout.mamba_columns
    conv, decay = ("conv", "decay") if "delta.conv" not in names else ("delta.conv", "delta.decay")
    own = "alpha" if "delta.alpha_bias" not in names else "delta.alpha_bias"
    plan.add("alpha_bias", (spec.value_heads,), layer=layer, key=own)
    treatment: Treatment = "minus exp" if trained else "flat" if columns else "as is"
    plan.add("decay", (spec.value_heads, 1) if columns else (spec.value_heads,), layer=layer, key=decay,
             treatment=treatment)  # fmt: skip
    shape = (spec.channels, 1, spec.conv_width) if trained else (spec.channels, spec.conv_width)
    plan.add("conv", shape, layer=layer, key=conv, treatment="flat")
    if spec.conv_bias:
        plan.add("conv_bias", (spec.channels,), layer=layer, key=conv)


def _add_own(plan: Plan, layer: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Add tensors of a gated delta net that are not fused."""
    for name, shape in shapes.items():
        plan.add(name, shape, layer=layer, key=f"delta.{name}" if f"delta.{name}" in plan.layout.names else name)
