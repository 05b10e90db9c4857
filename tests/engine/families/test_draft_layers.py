"""Layers that draft tokens (MTP): what they compute, in both file formats, eagerly and as a program."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draft_models import ONE_LAYER, DraftReference, drafts_gguf, with_drafts
from family_models import Reference

from engine.bundle.bundle import open_bundle, verify
from engine.conversion.convert import convert
from engine.decode.decode_program import DecodeProgram
from engine.executor.dense import DenseExecutor
from engine.model.draft_layer import DraftLayer, DraftTransformer, load_drafts, open_drafts
from engine.model.kv_cache import KVCache
from engine.model.weights import load_weights, open_model
from native_kernels.backend import Operators
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

CLOSE, ROUNDED = 2e-4, 0.02


@pytest.fixture(scope="module")
def draft_reference(
    references: Callable[[str], Reference], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], DraftReference]:
    made: dict[str, DraftReference] = {}

    def find(name: str) -> DraftReference:
        if name not in made:
            made[name] = with_drafts(name, references(name), tmp_path_factory.mktemp(name))
        return made[name]

    return find


def loaded(path: Path) -> DraftLayer:
    opened = open_model(path)
    layer, reason = load_drafts(opened, load_weights(opened, hold="mapped"))
    assert layer is not None, reason
    return layer


def drafter(layer: DraftLayer, operators: Operators, pool: Pool | None = None) -> DraftTransformer:
    config, weights = layer.opened.config, layer.weights
    executor = DenseExecutor(config, weights, operators)
    program = None if pool is None else DecodeProgram(config, weights, "dense", executor.counters, pool)
    return DraftTransformer(config, weights, executor, operators, program)


def logits_of(drafter: DraftTransformer, wanted: DraftReference, filled: int) -> np.ndarray:
    """The logits behind the first `filled` positions, which are read at once, and those of the rest one by one."""
    cache = KVCache(drafter.config, 64)
    if filled:
        drafter.fill(wanted.tokens[:filled], wanted.hidden[:filled], cache)
    steps = zip(wanted.tokens[filled:], wanted.hidden[filled:], strict=True)
    return np.stack([drafter.step(int(token), hidden, cache)[0] for token, hidden in steps])


@pytest.mark.parametrize("name", ONE_LAYER)
def test_a_layer_computes_what_transformers_does(
    name: str, draft_reference: Callable[[str], DraftReference], tmp_path: Path
) -> None:
    wanted = draft_reference(name)
    layer = loaded(wanted.folder)
    assert np.abs(logits_of(drafter(layer, ReferenceOperators()), wanted, 20) - wanted.logits[20:]).max() < CLOSE
    pool = Pool(2)
    found = logits_of(drafter(layer, CpuOperators(pool), pool), wanted, 30)
    assert np.abs(found - wanted.logits[30:]).max() < CLOSE
    if name != "deepseek-v3":  # llama.cpp's converter leaves its layer out
        layer = loaded(drafts_gguf(name, wanted.folder, tmp_path / "m.gguf"))
        found = logits_of(drafter(layer, ReferenceOperators()), wanted, 30)
        assert np.abs(found - wanted.logits[30:]).max() < CLOSE


def test_a_layer_may_have_an_embedding_and_a_head_of_its_own(
    references: Callable[[str], Reference], tmp_path: Path
) -> None:
    wanted = with_drafts("glm4-moe", references("glm4-moe"), tmp_path, own=True)
    bundle = convert(wanted.folder, tmp_path / "bundle", "f16").bundle
    for path in (wanted.folder, drafts_gguf("glm4-moe", wanted.folder, tmp_path / "m.gguf"), bundle):
        found = logits_of(drafter(loaded(path), ReferenceOperators()), wanted, 30)
        assert np.abs(found - wanted.logits[30:]).max() < (ROUNDED if path == bundle else CLOSE)


def test_the_hidden_state_is_the_one_that_enters_the_head(draft_reference: Callable[[str], DraftReference]) -> None:
    wanted = draft_reference("qwen3.5")
    layer = loaded(wanted.folder)
    eager, pool = drafter(layer, ReferenceOperators()), Pool(2)
    program = drafter(layer, CpuOperators(pool), pool)
    for one in (eager, program):
        logits, hidden = one.step(int(wanted.tokens[0]), wanted.hidden[0], KVCache(layer.opened.config, 8))
        assert np.abs(one.logits(hidden[None])[0] - logits).max() < CLOSE
        one.use_head(lambda hidden: np.full((1, 5), hidden[0, 0]))
        logits, again = one.step(int(wanted.tokens[0]), wanted.hidden[0], KVCache(layer.opened.config, 8))
        np.testing.assert_allclose(again, hidden, atol=1e-5)
        np.testing.assert_array_equal(logits, np.full(5, again[0]))


def damaged(folder: Path, to: Path) -> Path:
    """A copy with a norm of another shape."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(folder, to)
    tensors = load_file(to / "model.safetensors")
    tensors["mtp.pre_fc_norm_hidden.weight"] = np.ones(3, np.float32)
    save_file(tensors, to / "model.safetensors")
    return to


def test_a_damaged_layer_is_left_out_and_the_model_runs(
    draft_reference: Callable[[str], DraftReference], tmp_path: Path
) -> None:
    opened = open_model(damaged(draft_reference("qwen3.5").folder, tmp_path / "m"))
    layer, reason = load_drafts(opened, load_weights(opened))
    assert layer is None
    assert "pre_fc_norm_hidden" in reason


def test_a_model_without_such_a_layer(references: Callable[[str], Reference]) -> None:
    opened = open_model(references("qwen3.5").folder)
    assert open_drafts(opened) is None
    assert load_drafts(opened, load_weights(opened)) == (None, "")


@pytest.mark.parametrize("name", ONE_LAYER)
def test_a_bundle_keeps_the_layer(name: str, draft_reference: Callable[[str], DraftReference], tmp_path: Path) -> None:
    wanted = draft_reference(name)
    paths = [wanted.folder]
    if name == "glm4-moe":
        paths.append(drafts_gguf(name, wanted.folder, tmp_path / "m.gguf"))
    for i, path in enumerate(paths):
        source, bundle = open_drafts(open_model(path)), convert(path, tmp_path / f"{i}", "f16").bundle
        verify(open_bundle(bundle))
        layer = loaded(bundle)
        assert source is not None
        assert layer.opened.parameters == source.parameters
        assert layer.opened.config == source.config
        found = logits_of(drafter(layer, ReferenceOperators()), wanted, 30)
        assert np.abs(found - wanted.logits[30:]).max() < ROUNDED
        again = loaded(convert(bundle, tmp_path / f"{i} again", "q8_0").bundle)
        assert again.opened.parameters == source.parameters


def test_a_bundle_without_the_layer_opens(
    draft_reference: Callable[[str], DraftReference], references: Callable[[str], Reference], tmp_path: Path
) -> None:
    """As an older Hearth made it, or because the layer is damaged, which the conversion says."""
    older = convert(references("qwen3.5").folder, tmp_path / "older", "f16")
    assert load_drafts(open_model(older.bundle), load_weights(open_model(older.bundle))) == (None, "")
    assert older.warnings == ()
    made = convert(damaged(draft_reference("qwen3.5").folder, tmp_path / "m"), tmp_path / "damaged", "f16")
    assert any("draft tokens" in warning for warning in made.warnings)
    assert open_drafts(open_model(made.bundle)) is None
