"""Hostile artefacts: heads whose fields lie, and tensors that are not those described, end in errors of the world."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from limits import refused
from samples.raw_gguf import make_tiny_powerinfer

from engine.errors import ArtifactMismatchError, ModelFormatError, UnsupportedModelError
from engine.model.model_artefacts import read_stats
from engine.model.model_files import open_model
from engine.sparsity.predictor import (
    Budget,
    GateCopy,
    LayerPredictor,
    LowRank,
    MeasuredText,
    Predictor,
    stored_kinds,
    stored_sizes,
)
from engine.sparsity.stats import NeuronStats
from native_kernels.backend import PackedMatrix

REFUSALS = (ModelFormatError, ArtifactMismatchError, UnsupportedModelError)
ODD: list[Any] = [
    None, True, -1, 0, 1, 33, 1 << 70, 1e300, float("nan"), "", "x", "q4_0", "q6_k", "f16", [], [1], ["q4_0"], {},
    {"a_codec": "q4_0"}, [{}], [[]],
]  # fmt: skip


def make_predictor(folder: Path, codec: str) -> Path:
    def matrix(rows: int, cols: int) -> PackedMatrix:
        return PackedMatrix.pack(np.ones((rows, cols), np.float32), codec)

    budget = Budget(0.01, (MeasuredText("prose", 0.002, 0.98),), True, 0.99)
    part = LowRank(matrix(32, 64), matrix(96, 32), b_bias=np.ones(96, np.float32))
    copy = GateCopy(PackedMatrix.pack(np.ones((96, 64), np.float32), "copy2"), bias=np.ones(96, np.float32))
    layers = (LayerPredictor(part, input="residual"), LayerPredictor(part, copy))
    return Predictor(layers, "m", budget=budget, text="its own").save(folder)


@pytest.mark.parametrize("codec", ["q4_0", "f32"])
def test_every_field_of_a_head_may_lie(tmp_path: Path, codec: str) -> None:
    head = make_predictor(tmp_path, codec)
    sound = json.loads(head.read_text())
    changes = [({key: odd}, {}) for key, odd in itertools.product(sound, ODD)]
    changes += [({}, {key: odd}) for key, odd in itertools.product([*sound["layers"][1], "b_codec", "a_codec"], ODD)]
    changes += [({"budget": {**sound["budget"], key: odd}}, {}) for key, odd in itertools.product(sound["budget"], ODD)]
    refused = 0
    for top, inner in changes:
        values = json.loads(json.dumps(sound)) | top
        if inner:
            values["layers"][1] |= inner
        head.write_text(json.dumps(values))
        for read in (Predictor.load, stored_sizes, stored_kinds):
            try:
                read(tmp_path)
            except REFUSALS:
                refused += 1
    assert refused > len(changes)
    head.write_text(json.dumps(sound))
    assert Predictor.load(tmp_path).shape == (64, 96)


def test_tensors_that_are_not_those_described(tmp_path: Path) -> None:
    """Bytes changed at random, under a head that vouches for them."""
    head = make_predictor(tmp_path, "q4_0")
    sound, values = (tmp_path / "predictor.safetensors").read_bytes(), json.loads(head.read_text())
    dice = random.Random(0)
    for _ in range(400):
        data = bytearray(sound)
        for _ in range(dice.choice((1, 1, 4))):
            data[dice.randrange(min(len(data), 1200))] = dice.randrange(256)
        if dice.random() < 0.2:
            data = data[: dice.randrange(1, len(data))]
        (tmp_path / "predictor.safetensors").write_bytes(data)
        head.write_text(json.dumps(values | {"tensors_sha256": hashlib.sha256(data).hexdigest()}))
        with contextlib.suppress(*REFUSALS):
            Predictor.load(tmp_path, as_stored=dice.random() < 0.5)
        with contextlib.suppress(*REFUSALS):
            stored_sizes(tmp_path)


def test_every_field_of_a_head_of_statistics_may_lie(tmp_path: Path) -> None:
    head = NeuronStats(np.ones((2, 8), np.int64), 5, "measured", "a text", "m").save(tmp_path)
    sound = json.loads(head.read_text())
    for key, odd in itertools.product(sound, ODD):
        head.write_text(json.dumps(sound | {key: odd}))
        with contextlib.suppress(*REFUSALS):
            NeuronStats.load(tmp_path)


@pytest.mark.parametrize(("layers", "words"), [(300, "of 300 layers; the model has 2"), (2, "of 1048576 neurons")])
def test_counts_of_another_shape_are_refused_before_room_is_made_for_them(
    tmp_path: Path, layers: int, words: str
) -> None:
    """One file of 8 MB under many names: together they would take gigabytes."""
    model = make_tiny_powerinfer(tmp_path / "m.gguf")
    folder = tmp_path / "activation"
    folder.mkdir()
    torch.save(torch.zeros(1 << 20, dtype=torch.int64), folder / "activation_0.pt")
    for i in range(1, layers):
        (folder / f"activation_{i}.pt").hardlink_to(folder / "activation_0.pt")
    opened = open_model(model)
    refused(lambda: read_stats(opened), words, ArtifactMismatchError)
