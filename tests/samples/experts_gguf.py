"""The tiny model with four experts in the place of each FFN, vocabulary and all, for tests that load whole models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from samples.raw_gguf import tiny_model_parts, write_gguf

N_EXPERTS, N_USED = 4, 2


def make_tiny_mixtral(
    path: Path,
    without: str = "",
    sizes: Mapping[str, Any] = MappingProxyType({}),
    tensors: Mapping[str, Any] = MappingProxyType({}),
    **metadata: Any,
) -> Path:
    """As GGUF with ReLU in the experts; d_model 32, d_ff 64, two layers. metadata: said instead; without: a tensor that
    is left out; sizes: of the tiny model; tensors: written instead. `path` back."""
    said, dense = tiny_model_parts(path.parent, **sizes)
    rng = np.random.default_rng(5)
    out = {}
    for name, values in dense.items():
        if ".ffn_" in name and "norm" not in name:
            more = rng.standard_normal((N_EXPERTS - 1, *values.shape)).astype(np.float32) * values.std()
            out[name.replace(".weight", "_exps.weight")] = np.concatenate([values[None], more])
        else:
            out[name] = values
    router = dense["output_norm.weight"].shape
    for layer in range(2):
        out[f"blk.{layer}.ffn_gate_inp.weight"] = rng.standard_normal((N_EXPERTS, *router)).astype(np.float32)
    out |= tensors
    out.pop(without, None)
    said |= {"llama.expert_count": N_EXPERTS, "llama.expert_used_count": N_USED, "hearth.activation": "relu-glu"}
    return write_gguf(path, said | metadata, out)
