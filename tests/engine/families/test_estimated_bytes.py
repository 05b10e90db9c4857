"""Bytes estimated from a shape equal those of files, for families with experts, dense layers and shared experts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from family_models import CASES, Reference
from gguf_models import write_gguf

from engine.library.estimate.shapes import bytes_of, one_layer_of_each, shape_of
from engine.model.model_files import open_model
from engine.placement.model_bytes import ModelBytes

NAMES = ("glm4-moe", "glm4-moe-air", "gpt-oss", "minimax-m2", "qwen3.5", "qwen3.5-moe", "deepseek-v3",
         "deepseek-v2-lite", "gemma3n", "gemma4", "gemma4-e",
         "gemma4-moe", "qwen3-next", "granite-hybrid", "granite-hybrid-moe", "lfm2", "lfm2-moe", "nemotron-h",
         "nemotron-h-moe", "mistral4", "glm4-moe-lite", "hunyuan-moe", "llama4-interleaved",
         "ministral3")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_dense_layers_and_shared_experts_have_the_bytes_of_their_files(
    tmp_path: Path, name: str, references: Callable[[str], Reference]
) -> None:
    opened = open_model(write_gguf(references(name).folder, tmp_path / "m.gguf", CASES[name]))
    real, estimated = ModelBytes.of(opened), bytes_of(shape_of(opened.config), "f32", "gguf").model
    np.testing.assert_array_equal(estimated.neuron, real.neuron)
    np.testing.assert_allclose(estimated.attention, real.attention, rtol=0.05)  # some biases are not estimated
    for part in ("neuron", "block", "head", "possible"):
        np.testing.assert_array_equal(getattr(estimated.gpu_bytes, part), getattr(real.gpu_bytes, part))
    assert estimated.attention_codecs == real.attention_codecs
    assert estimated.config.n_dense_layers == real.config.n_dense_layers
    np.testing.assert_array_equal(estimated.kv_of_layer(99, "f16"), real.kv_of_layer(99, "f16"))
    np.testing.assert_array_equal(estimated.kv_read(99, "f16"), real.kv_read(99, "f16"))
    sizes = bytes_of(shape_of(opened.config), "f32", "gguf")
    assert one_layer_of_each(sizes).config.n_layers == len(sizes.first)
