"""The files that the families' speeds are measured with have the shapes of the catalogue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from catalogue_models import of_layers, write_model
from family_speeds import MODELS

from engine.library.estimate.catalogue import load_catalogue
from engine.library.estimate.shapes import shape_of
from engine.model.families import FAMILIES
from engine.model.weights import open_model


@pytest.mark.parametrize("name", [*MODELS, "gpt-oss-20b", "gemma-4-26b-a4b", "glm-4.7-flash"])
def test_a_file_opens_with_the_shape_it_was_made_of(name: str, tmp_path: Path) -> None:
    # All tokens have a row in the files' tables for layers.
    shape = replace(of_layers(load_catalogue().get(name).shape, 6), vocab_size=320, layer_vocab_size=None)
    write_model(tmp_path / "model.gguf", shape, filled=False)
    found = shape_of(open_model(tmp_path / "model.gguf").config)
    assert replace(found, layer_vocab_size=None) == shape


def test_families_that_are_left_out_have_benchmarks_of_their_own() -> None:
    named = {load_catalogue().get(name).shape.family for name in MODELS}
    in_others = {"qwen3_5", "qwen3_5_moe", "qwen3_moe", "gpt_oss", "deepseek2", "bamboo", "falcon", "opt",
                 "bert", "nomic_bert"}  # fmt: skip
    shipped = {entry.shape.family for entry in load_catalogue().entries if entry.shape is not None}
    assert shipped <= named | in_others
    assert named <= {family.name for family in FAMILIES}
