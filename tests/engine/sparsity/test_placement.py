"""Placement: what was solved comes back bit by bit, a placement of something else is told apart, damage is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from samples.tiny_model import make_tiny_model

from engine.bundle import artefacts
from engine.conversion.convert import convert
from engine.errors import ArtifactMismatchError, ModelFormatError
from engine.model.model_files import open_model
from engine.sparsity.placement import RAM_PARTS, VRAM_PARTS, Origins, Placement

ORIGINS = Origins("model", "relu-glu", "statistics", "", "hardware", 1 << 30, None, 512, "f16", "exact", 1)


def ids(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(values, np.int32)


def some_placement(neurons: int = 64, **changes: Any) -> Placement:
    values: dict[str, Any] = {
        "hot": (ids(0, 3, 7, 8, neurons - 1), ids()),
        "attention": ("gpu", "cpu"),
        "predictor": ("gpu", "cpu"),
        "embedding": "cpu",
        "head": "gpu",
        "neurons": neurons,
        "statistics": "measured",
        "fired_share": 0.25,
        "vram_parts_bytes": {part: 10 + i for i, part in enumerate(VRAM_PARTS)},
        "ram_parts_bytes": {part: 20 + i for i, part in enumerate(RAM_PARTS)},
        "position": 256,
        "objective": 0.0125,
        "gap": 1e-4,
        "gpu_neuron_load": 0.3,
        "origins": ORIGINS,
        "notes": ("One thing.", "Another."),
    }
    return Placement(**{**values, **changes})


def assert_same(one: Placement, other: Placement) -> None:
    for field in fields(Placement):
        if field.name != "hot":
            assert getattr(one, field.name) == getattr(other, field.name)
    assert [list(hot) for hot in one.hot] == [list(hot) for hot in other.hot]
    assert {hot.dtype for hot in one.hot} == {np.dtype(np.int32)}


@pytest.mark.parametrize("neurons", [64, 61, 11008])
def test_saved_and_loaded(tmp_path: Path, neurons: int) -> None:
    placement = some_placement(neurons)
    assert placement.save(tmp_path / "p").name == "placement.json"
    assert_same(Placement.load(tmp_path / "p"), placement)
    assert Placement.load(tmp_path / "p").origins == ORIGINS
    limited = some_placement(neurons, origins=replace(ORIGINS, ram_budget_bytes=7), kv_positions=384)
    limited.save(tmp_path / "p")
    assert Placement.load(tmp_path / "p", "model", "relu-glu").origins.ram_budget_bytes == 7


def test_what_it_adds_up_to() -> None:
    placement = some_placement()
    assert placement.hot_counts == (5, 0)
    assert placement.hot_neurons == 5
    assert placement.vram_bytes == sum(range(10, 17))
    assert placement.hot_bytes == 16
    assert placement.ram_bytes == sum(range(20, 27))
    assert placement.predicted_tok_s == 80
    assert placement.uses_gpu
    assert not some_placement(vram_parts_bytes=dict.fromkeys(VRAM_PARTS, 0)).uses_gpu
    assert placement.hot[0].tolist() == [0, 3, 7, 8, 63]


@pytest.mark.parametrize(
    "changes",
    [
        {"hot": (ids(3, 0), ids())},
        {"hot": (ids(3, 3), ids())},
        {"hot": (ids(-1, 3), ids())},
        {"hot": (ids(64), ids())},
        {"hot": (np.array([1], np.int64), ids())},
        {"hot": (ids(1),)},
        {"hot": (), "attention": (), "predictor": ()},
        {"attention": ("gpu", "tpu")},
        {"head": "disk"},
        {"vram_parts_bytes": {"hot": 1}},
        {"neurons": 0},
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelFormatError):
        some_placement(**changes)


def test_differences_are_named() -> None:
    assert ORIGINS.differences(ORIGINS) == ()
    changed = replace(ORIGINS, hardware="another", vram_budget_bytes=5, statistics="")
    assert ORIGINS.differences(changed) == ("the statistics", "the machine", "the VRAM budget")
    for field in fields(Origins):
        other = replace(ORIGINS, **{field.name: 99 if isinstance(getattr(ORIGINS, field.name), int | None) else "x"})
        assert len(ORIGINS.differences(other)) == 1, field.name


def test_of_another_model_or_activation(tmp_path: Path) -> None:
    some_placement().save(tmp_path)
    with pytest.raises(ArtifactMismatchError, match="another model"):
        Placement.load(tmp_path, "other")
    with pytest.raises(ArtifactMismatchError, match="activation relu-glu"):
        Placement.load(tmp_path, "model", "silu-glu")
    with pytest.raises(ArtifactMismatchError, match=r"\b2 layers .*\b64 .*\b3 "):
        some_placement().check_against(3, 64)


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: values.pop("origins"),
        lambda values: values["origins"].pop("hardware"),
        lambda values: values["origins"].update(context="512"),
        lambda values: values["origins"].update(context=True),
        lambda values: values.update(objective="fast"),
        lambda values: values.update(objective=-1),
        lambda values: values.update(attention="gpu"),
        lambda values: values.update(attention=["gpu", 1]),
        lambda values: values.update(predictor=["gpu"]),
        lambda values: values.update(head=None),
        lambda values: values.update(neurons=-5),
        lambda values: values.update(neurons=57),
        lambda values: values.update(vram_parts_bytes=[]),
        lambda values: values["vram_parts_bytes"].update(hot=1.5),
        lambda values: values["ram_parts_bytes"].pop("cold"),
    ],
)
def test_damaged_heads_are_refused(tmp_path: Path, damage: Callable[[dict[str, Any]], object]) -> None:
    head = some_placement().save(tmp_path)
    values = json.loads(head.read_text())
    damage(values)
    head.write_text(json.dumps(values))
    with pytest.raises(ModelFormatError):
        Placement.load(tmp_path)


def test_hot_neurons_of_another_shape(tmp_path: Path) -> None:
    head = some_placement().save(tmp_path)
    values = json.loads(head.read_text())
    values["neurons"] = 80
    head.write_text(json.dumps(values))
    with pytest.raises(ArtifactMismatchError, match="hot neurons"):
        Placement.load(tmp_path)
    save_file({"hot": np.zeros((2, 8), np.uint8)}, tmp_path / "placement.safetensors")
    with pytest.raises(ArtifactMismatchError, match="not the file"):
        Placement.load(tmp_path)


@pytest.mark.parametrize("bundled", [False, True])
def test_kept_as_an_artefact_of_the_model(tmp_path: Path, bundled: bool) -> None:
    path = make_tiny_model(tmp_path / "m")
    if bundled:
        path = convert(path, tmp_path / "bundle", "f16").bundle
    opened = open_model(path)
    assert not opened.has_placement
    head = artefacts.save_placement(opened, some_placement())
    assert head.is_file()
    again = open_model(path)
    assert again.has_placement
    kept = artefacts.load_placement(again)
    assert kept.origins == replace(ORIGINS, model=opened.fingerprint, activation=opened.config.activation_text)
    assert kept.hot_counts == (5, 0)
    with pytest.raises(ArtifactMismatchError, match="3 layers"):
        artefacts.save_placement(
            opened, some_placement(hot=(ids(),) * 3, attention=("cpu",) * 3, predictor=("cpu",) * 3)
        )
