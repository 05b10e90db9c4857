"""Files of models with Mamba-2 layers: how they name layers, what is left out and refused, and neurons skipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import CASES, CONTEXT, Reference, make_reference
from gguf_models import write_gguf

from engine.conversion.convert import convert
from engine.decode.decode_program import DecodeProgram, why_not
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.library.estimate.shapes import bytes_of, config_of, one_layer_of_each, shape_of
from engine.library.prepare.prepare_gains import Gains
from engine.model.families import config_from_gguf, config_from_hf
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.model.weights import load_weights, open_model
from engine.placement.gpu_bytes import why_not_on_gpu
from engine.session.generate import decode_one_token
from engine.training.profiler import check_zeros
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()


@pytest.fixture(scope="module")
def moe(references: Callable[[str], Reference]) -> Reference:
    return references("nemotron-h-moe")


def test_the_neurons_of_experts_and_of_the_shared_one_are_skipped(moe: Reference, tmp_path: Path) -> None:
    opened = open_model(convert(moe.folder, tmp_path / "bundle", "f16").bundle)
    config, weights = opened.config, load_weights(opened, hold="mapped")
    assert why_not(config, weights, "exact") == []
    executors, logits = [ExactExecutor(config, weights, OPS) for _ in range(2)], []
    pool = Pool(2)
    decoders = (None, DecodeProgram(config, weights, "exact", executors[1].counters, pool))
    for executor, decoder in zip(executors, decoders, strict=True):
        executor.counters.record_per_neuron()
        model, cache = Transformer(config, weights, executor, OPS, decoder), KVCache(config, CONTEXT)
        logits.append(np.stack([decode_one_token(model, int(token), cache) for token in moe.tokens[:12]]))
    pool.close()
    theirs, ours = (executor.counters for executor in executors)
    assert np.abs(logits[1] - logits[0]).max() < 2e-4
    np.testing.assert_array_equal(ours.layers, theirs.layers)
    np.testing.assert_array_equal(ours.per_neuron, theirs.per_neuron)
    used = 12 * (3 * config.d_ff + config.shared_d_ff)
    assert (ours.layers[[1, 3], 0] < 0.7 * used).all()


def test_layers_of_the_draft_are_left_out(moe: Reference, tmp_path: Path) -> None:
    metadata = dict(open_model(write_gguf(moe.folder, tmp_path / "m.gguf", moe.case)).source.metadata)
    arch = "nemotron_h_moe."
    drafts = {
        f"{arch}nextn_predict_layers": 1, f"{arch}block_count": 5, f"{arch}feed_forward_length": [0, 64, 0, 64, 64],
        f"{arch}attention.head_count_kv": [0, 0, 2, 0, 2],
    }  # fmt: skip
    with_draft, without = (config_from_gguf({**metadata, **more}, {"output.weight"}) for more in (drafts, {}))
    assert with_draft == without


def test_older_names_say_the_same(moe: Reference) -> None:
    values = json.loads((moe.folder / "config.json").read_text())
    older = {key: value for key, value in values.items() if key not in ("layers_block_type", "head_dim")}
    older |= {"hybrid_override_pattern": "ME*E", "num_hidden_layers": 4, "attention_head_dim": 8}
    older["time_step_limit"] = [0.0, float("inf")]
    assert config_from_hf(older, {}) == config_from_hf(values, {})
    assert config_from_hf({**values, "layers_block_type": ["mamba", "moe", "attention", "moe"]}, {}).delta_layers == (
        0,
    )


@pytest.mark.parametrize(("changes", "words"), [
    ({"moe_latent_size": 16}, "moe_latent_size is 16"), ({"use_bias": True}, "use_bias is True"),
    ({"mamba_proj_bias": True}, "mamba_proj_bias is True"), ({"mlp_bias": True}, "mlp_bias is True"),
    ({"time_step_limit": [0.0, 0.1]}, "time_step_limit is"), ({"time_step_limit": []}, "time_step_limit is"),
    ({"mamba_hidden_act": "gelu"}, "runs silu"), ({"mlp_hidden_act": "silu"}, "not supported"),
    ({"layers_block_type": ["moe", "mlp", "mamba", "attention"]}, "one of them"),
    ({"layers_block_type": ["mamba", "moe", "convolution"]}, "known ones"),
    ({"layers_block_type": ["mamba", "moe"]}, "None of the model's layers has attention"),
    ({"layers_block_type": ["mamba", "attention"]}, "some layers have an FFN"),
    ({"n_groups": 3}, "cannot share 3 key heads"), ({"mamba_num_heads": 0}, "value_heads is 0"),
    ({"layers_block_type": []}, "n_layers is 0"), ({"num_experts_per_tok": 9}, "cannot be used"),
    ({"conv_kernel": 0}, "conv_width is 0"), ({"sliding_window": 9}, "sliding_window is 9"),
])  # fmt: skip
def test_what_a_config_cannot_say(moe: Reference, changes: dict[str, Any], words: str) -> None:
    values = json.loads((moe.folder / "config.json").read_text())
    with pytest.raises((UnsupportedModelError, ModelFormatError), match=words):
        config_from_hf({**values, **changes}, {})


def test_granite_with_rotary_positions(tmp_path: Path) -> None:
    """Models without Mamba-2 have them, as have Bamba's; others may."""
    changes = {"layer_types": ["full_attention", "mamba", "full_attention"], "position_embedding_type": "rope"}
    reference = make_reference("granite-hybrid", tmp_path / "hf", changes)
    opened = open_model(reference.folder)
    weights = load_weights(opened)
    model = Transformer(opened.config, weights, DenseExecutor(opened.config, weights, OPS), OPS)
    found = model.logits(model.forward(reference.tokens, KVCache(opened.config, CONTEXT)))
    assert np.abs(found - reference.logits).max() < 2e-4
    attention = json.loads((reference.folder / "config.json").read_text()) | {"layer_types": ["attention"] * 3}
    alone = config_from_hf(attention, {})
    assert (alone.delta, alone.delta_layers, alone.unrotated) == (None, (), ())


@pytest.mark.parametrize(("changes", "words"), [
    ({"mamba_proj_bias": True}, "mamba_proj_bias is set"), ({"attention_bias": True}, "attention_bias is True"),
    ({"time_step_limit": [0.1, 1.0]}, "time_step_limit is"), ({"layer_types": ["mamba"] * 3}, "layers with attention"),
    ({"layer_types": ["mamba", "attention"]}, "not a list of 3 known"), ({"layer_types": None}, "lacks 'layer_types'"),
    ({"mamba_n_heads": 0}, "value_heads is 0"), ({"mamba_d_head": "auto", "mamba_n_heads": 5}, "cannot share 64"),
    ({"mamba_n_groups": 3}, "in 3 equal groups"), ({"position_embedding_type": "alibi"}, "is alibi"),
    ({"shared_intermediate_size": 0}, "d_ff is 0"),
    ({"residual_multiplier": 0.0}, "multiplier of the model is 0.0"),
])  # fmt: skip
def test_what_a_config_of_granite_cannot_say(
    references: Callable[[str], Reference], changes: dict[str, Any], words: str
) -> None:
    values = json.loads((references("granite-hybrid").folder / "config.json").read_text())
    with pytest.raises((UnsupportedModelError, ModelFormatError), match=words):
        config_from_hf({**values, **changes}, {})


def test_what_gguf_metadata_cannot_say(references: Callable[[str], Reference], tmp_path: Path) -> None:
    source = open_model(write_gguf(references("nemotron-h").folder, tmp_path / "m.gguf", CASES["nemotron-h"])).source
    for key, value, words in (
        ("ssm.inner_size", 49, "cannot share"), ("ssm.group_count", 3, "cannot share"), ("ssm.state_size", 0, "dim"),
        ("feed_forward_length", [0, 80, 80, 80, 80], "one size, attention or Mamba-2"),
        ("feed_forward_length", [0, 80, 0, 0, 40], "one size"), ("feed_forward_length", [0, 80], "not a list of 5"),
        ("attention.head_count_kv", [0, 0, 0, -1, 0], "from 0 on"), ("moe_latent_size", 8, "narrower input"),
        ("ssm.dt_b_c_rms", True, "does not know"), ("nextn_predict_layers", 6, "n_layers"),
    ):  # fmt: skip
        changed = {**source.metadata, f"nemotron_h.{key}": value}
        with pytest.raises((UnsupportedModelError, ModelFormatError), match=words):
            config_from_gguf(changed, set(source.tensors))


def test_neither_counts_nor_predictors_are_offered(references: Callable[[str], Reference]) -> None:
    opened = open_model(references("nemotron-h").folder)
    missing = Gains(opened).missing
    assert (missing.convert, missing.profile, missing.train) == (True, False, False)
    with pytest.raises(UnsupportedModelError, match="some have no FFN"):
        check_zeros(opened)


def test_a_shape_says_which_layers_have_what(moe: Reference) -> None:
    config = open_model(moe.folder).config
    shape = shape_of(config)
    again = config_of(shape)
    assert (again.delta, again.ffn_only_layers, again.mixer_only_layers) == (config.delta, (1, 3), (0, 2))
    kinds = one_layer_of_each(bytes_of(shape, "q8_0", "gguf"))
    assert (kinds.config.n_layers, kinds.config.delta_layers, kinds.config.ffn_only_layers) == (3, (0,), (1,))
    assert why_not_on_gpu(config) == ""
    assert config.delta is not None
    assert "256" in why_not_on_gpu(replace(config, delta=replace(config.delta, key_dim=257)))
