"""Mixtral: Mistral with eight experts, of which each token uses two.

TurboSparse-Mixtral has ReLU on gate and up of each expert (dReLU). GGUF files of both use LLaMA's name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family, windows
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_EXPERTS = hf_experts("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2")


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    size = read.optional("sliding_window", int, None)
    own = experts_from_hf(read, ("num_local_experts",), "num_experts_per_tok")
    own["windows"] = windows(read, fields["n_layers"], size, lambda layer: True)
    if read.required("model_type", str) == "turbosparsemixtral":
        if fields["activation"] != "relu-glu":  # "relu" means ReLU on both in its configuration
            raise UnsupportedModelError(
                f"The activation {fields['activation']} is not supported in turbosparsemixtral; relu is."
            )
        own["activation"] = "drelu-glu"
    return own


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    window = read.optional("llama.attention.sliding_window", int, 0)
    own = experts_from_gguf(read, "llama", "softmax")
    return {**own, "windows": (window,) * fields["n_layers"] if window else ()}


MIXTRAL = Family(
    name="mixtral",
    model_types=("mixtral", "turbosparsemixtral"),
    architectures=("llama",),
    hf=Layout(HF_NAMES | _EXPERTS),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS, rope_pairs=True),
    hf_handles=frozenset({"sliding_window", "num_local_experts"}),
    gguf_handles=GGUF_EXPERT_KEYS | {"attention.sliding_window"},
    norm_eps=1e-5,
    rope_theta=1e6,
    max_context=131072,
    activation="silu",
    experts=True,
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
