"""Files of models with gated delta nets as they are published: with towers and drafts beside, and in older layouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import CASES, CONTEXT, Reference
from gguf_models import write_gguf

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.library.estimate.shapes import config_of, shape_of
from engine.model.families import config_from_gguf, config_from_hf, n_draft_layers
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from native_kernels.reference import ReferenceOperators

CLOSE = 2e-4
OPS = ReferenceOperators()


@pytest.fixture(scope="module")
def dense(references: Callable[[str], Reference]) -> Reference:
    return references("qwen3.5")


@pytest.fixture(scope="module")
def moe(references: Callable[[str], Reference]) -> Reference:
    return references("qwen3.5-moe")


@pytest.fixture(scope="module")
def following(references: Callable[[str], Reference]) -> Reference:
    return references("qwen3-next")


def check(path: Path, reference: Reference) -> None:
    opened = open_model(path)
    weights = load_weights(opened, hold="mapped")
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    found = model.logits(model.forward(reference.tokens, KVCache(model.config, CONTEXT)))
    assert np.abs(found - reference.logits).max() < CLOSE


def published(folder: Path, to: Path, fused: bool = False) -> Path:
    """The text model inside one with pictures. fused: with one tensor for gate and up of all experts."""
    from safetensors.numpy import load_file, save_file

    to.mkdir()
    text = json.loads((folder / "config.json").read_text())
    outer = {"model_type": text["model_type"].removesuffix("_text"), "text_config": text, "vision_config": {"depth": 2}}
    outer["architectures"] = ["Qwen3_5ForConditionalGeneration"]
    (to / "config.json").write_text(json.dumps(outer))
    tensors = load_file(folder / "model.safetensors")
    if fused:
        for layer in range(text["num_hidden_layers"]):
            prefix = f"model.layers.{layer}.mlp.experts"
            parts = {}
            for part in ("gate", "up", "down"):
                names = [f"{prefix}.{n}.{part}_proj.weight" for n in range(text["num_experts"])]
                parts[part] = np.stack([tensors.pop(name) for name in names])
            tensors[f"{prefix}.gate_up_proj"] = np.concatenate([parts["gate"], parts["up"]], axis=1)
            tensors[f"{prefix}.down_proj"] = parts["down"]
    tensors = {name.replace("model.", "model.language_model.", 1): values for name, values in tensors.items()}
    tensors |= {
        "model.visual.patch_embed.proj.weight": np.ones((3, 3), np.float32),
        "mtp.fc.weight": np.ones((2, 2), np.float32),
    }
    save_file(tensors, to / "model.safetensors")
    return to


def test_the_text_part_of_a_model_with_pictures(dense: Reference, moe: Reference, tmp_path: Path) -> None:
    check(published(dense.folder, tmp_path / "dense"), dense)
    names = (tmp_path / "dense/model.safetensors", moe.folder / "model.safetensors")
    assert all(name.is_file() for name in names)
    is_fused = b"experts.gate_up_proj" in names[1].read_bytes()[:200_000]
    check(published(moe.folder, tmp_path / "moe", fused=not is_fused), moe)


def test_qwen3_nexts_first_gguf_files_keep_the_fused_projection(
    following: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gguf_models._unfused", lambda tensors, config: tensors)
    path = write_gguf(following.folder, tmp_path / "m.gguf", following.case)
    assert "blk.0.ssm_in.weight" in open_model(path).source.tensors
    check(path, following)


def test_layers_that_draft_tokens_are_left_out_of_gguf_files(
    dense: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gguf

    finish = gguf.GGUFWriter.write_header_to_file

    def with_draft(writer: Any) -> None:
        writer.add_nextn_predict_layers(1)
        writer.kv_data[0]["qwen35.block_count"].value += 1
        writer.kv_data[0]["qwen35.attention.recurrent_layers"].value.append(False)
        for name in ("attn_q", "nextn.eh_proj", "ffn_up"):
            writer.add_tensor(f"blk.4.{name}.weight", np.ones((4, 4), np.float32))
        finish(writer)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", with_draft)
    path = write_gguf(dense.folder, tmp_path / "m.gguf", dense.case)
    opened = open_model(path)
    assert opened.config.n_layers == 4
    assert n_draft_layers(opened.config, opened.metadata) == 1
    check(path, dense)


HF: dict[str, Any] = {"model_type": "qwen3_5_text", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), [
    ({"attn_output_gate": False}, "without a gate"), ({"attention_bias": True}, "with biases"),
    ({"layer_types": ["full_attention"] * 3}, "not a list of 4 known kinds"),
    ({"layer_types": ["sliding_attention"] * 4}, "not a list of 4 known kinds"),
    ({"layer_types": ["linear_attention"] * 4}, "some layers with attention"),
    ({"full_attention_interval": 0}, "at least 1"), ({"linear_num_value_heads": 5, "linear_num_key_heads": 2}, "share"),
    ({"linear_key_head_dim": 0}, "key_dim is 0"), ({"linear_conv_kernel_dim": 1000}, "conv_width is 1000"),
    ({"num_experts": 4}, "without experts"), ({"hidden_act": "relu2"}, "not supported"),
])  # fmt: skip
def test_what_a_config_cannot_say(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((UnsupportedModelError, ModelFormatError), match=words):
        config_from_hf({**HF, **changes}, {})


def test_a_model_of_attention_alone_has_no_state() -> None:
    config = config_from_hf({**HF, "layer_types": ["full_attention"] * 4}, {})
    assert (config.delta, config.delta_layers, config.state_size, config.gated_attention) == (None, (), 0, True)


def test_what_gguf_metadata_cannot_say(dense: Reference, tmp_path: Path) -> None:
    source = open_model(write_gguf(dense.folder, tmp_path / "m.gguf", CASES["qwen3.5"])).source
    for key, value, words in (
        ("qwen35.ssm.inner_size", 95, "cannot share"), ("qwen35.ssm.time_step_rank", 0, "cannot share"),
        ("qwen35.ssm.group_count", 4, "cannot share"), ("qwen35.ssm.dt_b_c_rms", True, "does not know"),
        ("qwen35.full_attention_interval", -1, "at least 1"), ("qwen35.ssm.state_size", None, "lacks"),
        ("qwen35.attention.recurrent_layers", [1, 1, 1, 0], "truth"),
        ("qwen35.feed_forward_length", None, "lacks"), ("qwen35.nextn_predict_layers", 4, "n_layers"),
    ):  # fmt: skip
        layers = None if "interval" in key else [True] * 3 + [False]
        metadata = {**source.metadata, "qwen35.attention.recurrent_layers": layers, key: value}
        with pytest.raises((UnsupportedModelError, ModelFormatError), match=words):
            config_from_gguf(metadata, set(source.tensors))


def test_older_gguf_files_name_a_period_instead_of_layers(dense: Reference, tmp_path: Path) -> None:
    source = open_model(write_gguf(dense.folder, tmp_path / "m.gguf", CASES["qwen3.5"])).source
    for period, layers in ((4, (0, 1, 2)), (2, (0, 2))):
        older = {"qwen35.attention.recurrent_layers": None, "qwen35.full_attention_interval": period}
        assert config_from_gguf({**source.metadata, **older}, set(source.tensors)).delta_layers == layers


def test_a_shape_says_which_layers_have_a_state(dense: Reference) -> None:
    config = open_model(dense.folder).config
    again = config_of(shape_of(config))
    assert (again.delta, again.delta_layers, again.gated_attention) == (config.delta, (0, 1, 2), True)


def test_a_state_that_would_grow_is_refused(dense: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gguf_models._convert_delta",
        lambda name, values, config, architecture: values[:, 0] if "conv1d" in name else values,
    )
    opened = open_model(write_gguf(dense.folder, tmp_path / "m.gguf", dense.case))  # A_log as it is: positive in part
    with pytest.raises(ModelFormatError, match="makes a state grow"):
        load_weights(opened)


@pytest.mark.parametrize(("more", "wanted"), [({}, 0), ({"mtp_num_hidden_layers": 1}, 1)])
def test_config_json_says_how_many_layers_draft_tokens(more: dict[str, Any], wanted: int) -> None:
    for config in ({**HF, **more}, {"model_type": "qwen3_5", "text_config": {**HF, **more}}):
        assert n_draft_layers(config_from_hf(config, {}), config) == wanted
