"""The small set of models has every feature of all: new models and fields cannot leave it behind unseen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from family_cover import COVER, features, uncovered
from family_models import CASES, Reference

from engine.model.weights import open_model


def test_every_feature_occurs_in_the_cover(references: Callable[[str], Reference]) -> None:
    found = {name: features(open_model(references(name).folder).config) for name in CASES}
    assert uncovered(found, COVER) == set(), "`python family_cover.py` prints a cover"
    without = [name for name in COVER if name != "gemma2"]
    assert "AttentionSpec.softcap=some" in uncovered(found, without)


def test_a_feature_is_seen_without_its_size(references: Callable[[str], Reference]) -> None:
    config = open_model(references("gemma2").folder).config
    assert features(replace(config, attention_softcap=7.0)) == features(config)
    assert features(config) - features(replace(config, attention_softcap=None)) == {
        "AttentionSpec.softcap=some", "ModelConfig.attention_softcap=some"
    }  # fmt: skip
