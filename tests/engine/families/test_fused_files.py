"""GGUF files with q, k and v in one tensor, or gate and up of all experts: options of llama.cpp's converter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import Reference
from gguf_models import write_gguf
from samples import raw_gguf
from test_family_bundles import arrays

from engine.formats.gguf import open_gguf
from engine.model.weights import load_weights, open_model

_QKV = tuple(f"blk.{{}}.attn_{name}." for name in "qkv")
_EXPERTS = ("blk.{}.ffn_gate_exps.", "blk.{}.ffn_up_exps.")


def _fused(path: Path, plain: Path) -> Path:
    """Write the model of the plain file with fused tensors wherever a layer has all the parts."""
    source = open_gguf(plain)
    tensors: dict[str, Any] = {name: source.read_f32(name) for name in source.tensors}
    for layer in range(int(source.metadata[f"{source.metadata['general.architecture']}.block_count"])):
        for names, whole, axis in ((_QKV, "attn_qkv", 0), (_EXPERTS, "ffn_gate_up_exps", 1)):
            for suffix in ("weight", "bias"):
                parts = [name.format(layer) + suffix for name in names]
                if all(part in tensors for part in parts):
                    together = np.concatenate([tensors.pop(part) for part in parts], axis=axis)
                    tensors[f"blk.{layer}.{whole}.{suffix}"] = together
    assert len(tensors) < len(source.tensors)
    return raw_gguf.write_gguf(path, source.metadata, tensors)


@pytest.mark.parametrize(
    "name",
    ["llama", "qwen2", "seed-oss-biases", "olmo2", "glm4", "mixtral", "qwen3-moe", "phimoe", "glm4-moe",
     "deepseek-v3", "qwen3.5-moe", "qwen3-next", "gemma4", "gemma4-moe"],
)  # fmt: skip
def test_a_file_with_fused_tensors_has_the_same_weights(
    name: str, references: Callable[[str], Reference], tmp_path: Path
) -> None:
    reference = references(name)
    plain = write_gguf(reference.folder, tmp_path / "plain.gguf", reference.case)
    together, apart = open_model(_fused(tmp_path / "fused.gguf", plain)), open_model(plain)
    assert together.config == apart.config
    found, expected = arrays(load_weights(together)), arrays(load_weights(apart))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)
