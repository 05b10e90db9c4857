"""Files of models whose layers differ, as they are published: towers beside, unused tensors, older keys; refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import CONTEXT, Reference

from engine.bundle.bundle_manifest import BundleCodec
from engine.conversion.convert import convert
from engine.decode.decode_program import DecodeProgram
from engine.errors import EngineError, ModelFormatError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.loading.backends import choose_backend
from engine.loading.modes import choose_mode
from engine.model.families import config_from_hf
from engine.model.graph import graph_of
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.placement.gpu_bytes import why_not_on_gpu
from engine.placement.model_bytes import ModelBytes
from engine.session.generate import decode_one_token
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

CLOSE = 2e-4
OPS = ReferenceOperators()


@pytest.fixture(scope="module")
def reference(references: Callable[[str], Reference]) -> Reference:
    return references("gemma4-e")


@pytest.fixture(scope="module")
def text(reference: Reference) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((reference.folder / "config.json").read_text())
    return config


def test_the_text_part_of_a_model_with_towers(reference: Reference, text: dict[str, Any], tmp_path: Path) -> None:
    """Published files also have keys and values of the layers that share those of others."""
    from safetensors.numpy import load_file, save_file

    tensors = load_file(reference.folder / "model.safetensors")
    for part in ("k_proj", "v_proj", "k_norm"):
        tensors[f"model.layers.4.self_attn.{part}.weight"] = tensors[f"model.layers.1.self_attn.{part}.weight"]
    tensors = {name.replace("model.", "model.language_model.", 1): values for name, values in tensors.items()}
    for name in ("vision_tower.patch_embedder.input_proj", "audio_tower.output_proj", "embed_vision.embedding"):
        tensors[f"model.{name}.weight"] = np.ones((2, 2), np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    outer = {"model_type": "gemma4", "text_config": text, "vision_config": {}, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    opened = open_model(tmp_path)
    model = Transformer(opened.config, weights := load_weights(opened), DenseExecutor(opened.config, weights, OPS), OPS)
    found = model.logits(model.forward(reference.tokens, KVCache(model.config, CONTEXT)))
    assert np.abs(found - reference.logits).max() < CLOSE


def test_older_keys_say_the_same(references: Callable[[str], Reference]) -> None:
    """The heads of full attention were named on their own before there was an entry for each layer."""
    text = json.loads((references("gemma4").folder / "config.json").read_text())
    older = {**text, "global_head_dim": 16, "num_global_key_value_heads": 1}
    del older["per_layer_config"]
    assert config_from_hf(older, {}) == config_from_hf(text, {})
    shared = config_from_hf({**older, "attention_k_eq_v": False}, {})
    assert (shared.n_kv_heads, shared.full_v_is_k) == (2, False)


def test_where_keys_and_values_come_from(reference: Reference) -> None:
    model = open_model(reference.folder)
    cache = KVCache(model.config, 64)
    assert (len(cache.blocks), len(cache.local_blocks)) == (1, 2)
    addresses = [cache.of_layer(layer)[0].ctypes.data for layer in range(5)]
    assert addresses[3] == addresses[2] != addresses[0]
    assert addresses[4] == addresses[1]
    assert cache.n_bytes == KVCache.bytes_for(model.config, 64)
    assert KVCache.bytes_read(model.config, 64) > cache.n_bytes  # shared ones are read twice


@pytest.mark.parametrize(("name", "on_gpu"), [("gemma3n", True), ("gemma4-e", True), ("gemma4", True),
                                              ("gemma4-moe", True)])  # fmt: skip
def test_models_with_layers_of_different_shapes_run_on_the_gpu(
    name: str, on_gpu: bool, references: Callable[[str], Reference]
) -> None:
    assert (why_not_on_gpu(open_model(references(name).folder).config) == "") is on_gpu


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"use_bidirectional_attention": "all"}, "both directions"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"vocab_size_per_layer_input": 90}, "per-layer embeddings of 90 tokens"),
        ({"per_layer_config": {"1": {"head_dim": 16}}}, "per_layer_config"),
        ({"per_layer_config": {"1": {"num_experts": 4}, "4": {"num_experts": 4}}}, "per_layer_config"),
        ({"num_kv_shared_layers": 4}, "a kind that no other layer has"),
        ({"num_kv_shared_layers": 5}, "cannot share keys and values"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 2.0}}},
            "proportional",
        ),
    ],
)
def test_what_is_refused(text: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        config_from_hf({**text, **changes}, {})


def test_experts_need_their_sizes(text: dict[str, Any]) -> None:
    with pytest.raises(ModelFormatError, match="lacks 'top_k_experts'"):
        config_from_hf({**text, "enable_moe_block": True, "num_experts": 4}, {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"altup_active_idx": 1}, "another active stream"),
        ({"altup_correct_scale": False}, "none of its scales"),
        ({"altup_num_inputs": 9}, "9 residual streams"),
        ({"activation_sparsity_pattern": [0.9, 0.0, 0.3, 0.0]}, "activation_sparsity_pattern"),
        ({"hidden_activation": "relu"}, "deviations above their mean"),
        ({"intermediate_size": [80, 80, 80]}, "intermediate_size"),
        ({"hidden_size_per_layer_input": 0}, "4 residual streams are invalid"),
        ({"num_kv_shared_layers": 3}, "a kind that no other layer has"),
    ],
)
def test_what_is_refused_of_several_streams(
    references: Callable[[str], Reference], changes: dict[str, Any], words: str
) -> None:
    text = json.loads((references("gemma3n").folder / "config.json").read_text())
    with pytest.raises(EngineError, match=words):
        config_from_hf({**text, **changes}, {})


def test_what_config_json_is_silent_about(references: Callable[[str], Reference]) -> None:
    text = json.loads((references("gemma3n").folder / "config.json").read_text())
    changes = {"num_hidden_layers": 20, "intermediate_size": 80, "layer_types": None, "num_kv_shared_layers": 10}
    config = config_from_hf({**text, **changes, "activation_sparsity_pattern": None}, {})
    assert config.gate_cutoffs[9] == pytest.approx(1.6448536)
    assert config.gate_cutoffs[10:] == (0.0,) * 10
    assert [layer for layer, size in enumerate(config.windows) if not size] == [4, 9, 14, 19]
    assert graph_of(config).attention(19).kv_from == 9


@pytest.mark.parametrize("codec", ["f16", pytest.param("q8_0", marks=pytest.mark.slow)])
def test_neurons_that_are_cut_off_are_skipped(
    references: Callable[[str], Reference], tmp_path: Path, codec: BundleCodec
) -> None:
    """Of a bundle up and down: the first and third layer in tokens of their own, the others whole."""
    opened = open_model(convert(references("gemma3n").folder, tmp_path / "bundle", codec).bundle)
    config, weights = opened.config, load_weights(opened, hold="mapped")
    assert choose_mode(opened, "auto")[0] == "exact"
    assert ModelBytes.of(opened).ffn_is_whole  # because a cut-off needs all gates
    tokens = references("gemma3n").tokens[:24]
    logits, counted = [], []
    for mode in ("dense", "exact"):
        kernels = choose_backend("kernels", 2)
        executor = (ExactExecutor if mode == "exact" else DenseExecutor)(config, weights, kernels.operators)
        decoder = kernels.decoder(config, weights, mode, executor.counters, None)
        model, cache = Transformer(config, weights, executor, kernels.operators, decoder), KVCache(config, CONTEXT)
        logits.append(np.stack([decode_one_token(model, int(token), cache) for token in tokens]))
        counted.append(executor.counters.layers[:, 0] / (len(tokens) * config.d_ff))
    np.testing.assert_allclose(logits[1], logits[0], atol=CLOSE)
    assert counted[0].tolist() == [1.0] * 5
    assert (counted[1][[0, 2]] < 0.6).all()
    assert (counted[1][[1, 3, 4]] > 0.99).all()


def test_a_model_with_experts_in_no_layer(references: Callable[[str], Reference], tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    reference = references("glm4-moe-air")
    config = json.loads((reference.folder / "config.json").read_text())
    n_layers = config["num_hidden_layers"] = config["first_k_dense_replace"]
    tensors = load_file(reference.folder / "model.safetensors")
    first = {n: t for n, t in tensors.items() if ".layers." not in n or int(n.split(".")[2]) < n_layers}
    save_file(first, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    opened = open_model(tmp_path)
    weights = load_weights(opened)
    eager = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    tokens = reference.tokens[:2]
    expected = eager.logits(eager.forward(tokens, KVCache(opened.config, CONTEXT)))
    executor = DenseExecutor(opened.config, weights, OPS)
    program = DecodeProgram(opened.config, weights, "dense", executor.counters, Pool(1))
    model, cache = Transformer(opened.config, weights, executor, OPS, program), KVCache(opened.config, CONTEXT)
    found = np.stack([decode_one_token(model, token, cache) for token in tokens.tolist()])
    assert np.abs(found - expected).max() < CLOSE
