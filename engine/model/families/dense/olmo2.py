"""OLMo 2 and 3: norms of the blocks' outputs alone, and of q and k over all heads.

OLMo 3 has windows in three of four layers, which keep the unscaled positions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.family.family import Family, windows, windows_from_gguf
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal

OUTPUT_NORMS = HF_NAMES | {
    "post_attention_norm": "model.layers.{}.post_attention_layernorm.weight",
    "post_ffn_norm": "model.layers.{}.post_feedforward_layernorm.weight",
}
_PERIOD = 4  # of layers without a window


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    size = read.optional("sliding_window", int, None)
    return {
        "biases": ("q", "k", "v", "o") if read.optional("attention_bias", bool, False) else (),
        **_windowed(fields, windows(read, fields["n_layers"], size, _is_windowed)),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    size = read.optional("olmo2.attention.sliding_window", int, 0)
    sizes = windows_from_gguf(read, "olmo2", fields["n_layers"], size, _is_windowed) if size else ()
    theta = decimal(read.optional("olmo2.rope.freq_base_swa", float, fields["rope_theta"]))
    return _windowed({**fields, "rope_theta_local": theta}, sizes)


def _windowed(fields: dict[str, Any], sizes: tuple[int, ...]) -> dict[str, Any]:
    local = fields.get("rope_theta_local")
    return {"windows": sizes, "rope_theta_local": (fields["rope_theta"] if local is None else local) if sizes else None}


def _is_windowed(layer: int) -> bool:
    return (layer + 1) % _PERIOD > 0


OLMO2 = Family(
    name="olmo2",
    model_types=("olmo2", "olmo3"),
    architectures=("olmo2",),
    hf=Layout(OUTPUT_NORMS),
    gguf=Layout(GGUF_NAMES),
    hf_handles=frozenset({"attention_bias", "sliding_window"}),
    gguf_handles=frozenset({"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"}),
    norm_eps=1e-5,
    rope_theta=500000.0,
    activation="silu",
    features={"norms": "output", "qk_norm": True, "qk_norm_whole": True},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
